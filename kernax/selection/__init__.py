"""Choosing among models and learning their parameters, beyond what `kernax` itself has
(`kernax.minimise`, `kernax.multi_start`, `kernax.cross_validate`, `kernax.k_folds`,
`kernax.grid_search`).

Criteria: leave-one-out errors and generalised cross-validation along a path of ridges, the
alignment of a kernel with targets, a `CrossValidatedLoss` that gradients minimise, comparisons of
models, the bootstrap. Searches: over random values, and over sums and products of kernels. For
`kernax.minimise`: where it starts from, and what watches it. For Bayesian optimisation: where to
evaluate an expensive function next.
"""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale.

from importlib import import_module
from typing import Any

from kernax import _read_stub

# As in kernax itself, a name is imported when it is first used, and `__init__.pyi` has the names.
_MODULES, _NAMES = _read_stub(__file__)


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return list(_NAMES)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return list(_NAMES)
