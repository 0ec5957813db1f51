"""Checks for the kernels that users write: positivity, and what every function relies on."""

# May import: kernax.core, kernax.kernels.

from kernax.testing.conformance import PROPERTIES, check_conformance
from kernax.testing.positivity import KernelReport, check_kernel

__all__ = ["PROPERTIES", "KernelReport", "check_conformance", "check_kernel"]


def __dir__() -> list[str]:
    return __all__
