"""kernax: differentiable kernel methods in JAX. Kernels and fitted functions are equinox modules.

A name is imported when it is first used (PEP 562, SPEC 1), so that importing kernax costs nothing
by itself. `__init__.pyi` says which names there are, for type checkers and for this module alike.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

_KERNELS = "kernax.kernels"  # every kernel in its table is a name of kernax
# Old names, which go in 0.4, and where they are now.
_MOVED = {
    "grid": "kernax.grid_search",
    **{
        name: f"kernax.types.{name}"
        for name in (
            "ApproximatePosterior",
            "Bootstrap",
            "CanonicalPairs",
            "CategoricalPosterior",
            "Composition",
            "CrossValidation",
            "Datasets",
            "Discriminant",
            "Folds",
            "HeldOut",
            "ImportVectors",
            "InducingNormal",
            "Invariance",
            "KernelClusters",
            "PrincipalComponents",
            "RelevanceVectors",
            "SamplePaths",
            "Selection",
            "SpectralClusters",
            "Table",
            "WeightSpace",
        )
    },
}


def _read_stub() -> tuple[dict[str, str], list[str]]:
    """The module of each public name, and the names in the order of the page of the interface."""
    modules: dict[str, str] = {}
    names: list[str] = []
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8")).body:
        if isinstance(statement, ast.ImportFrom):
            modules |= {alias.name: str(statement.module) for alias in statement.names}
        elif isinstance(statement, ast.Assign):
            names = ast.literal_eval(statement.value)
    return modules, names


_MODULES, _NAMES = _read_stub()


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [*_NAMES, *import_module(_KERNELS).__all__]
    if name in _MOVED:
        from kernax.core.base.deprecation import moved

        return moved("kernax", _MOVED)(name)
    if name.startswith("_"):
        raise AttributeError(f"module 'kernax' has no attribute {name!r}")
    module = _MODULES.get(name, _KERNELS)
    if module == "kernax":
        return import_module(f"kernax.{name}")
    if module == _KERNELS and name not in import_module(_KERNELS).__all__:
        raise AttributeError(f"module 'kernax' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(module), name)
    return found


def __dir__() -> list[str]:
    dunders = {name for name in globals() if name.startswith("__")}
    return sorted(dunders.union(__getattr__("__all__")))
