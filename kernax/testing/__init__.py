"""Checks for user-defined kernels: positivity, and the properties on which all functions rely."""

# May import: kernax.core, kernax.kernels.

from kernax.testing.conformance import PROPERTIES, check_conformance
from kernax.testing.positivity import KernelReport, check_kernel

__all__ = ["PROPERTIES", "KernelReport", "check_conformance", "check_kernel"]


def __dir__() -> list[str]:
    return __all__
