"""kernax: differentiable kernel methods in JAX. Kernels and fitted functions are equinox modules.

A name is imported when it is first used (PEP 562, SPEC 1), so that importing kernax costs nothing
by itself. `__init__.pyi` says which names there are, for type checkers and for this module alike.
"""

import ast
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

# Old names, to be removed in 0.4, by the module that has them now.
_MOVED_TO = {
    "bases": ("eigenpairs", "empirical_features", "weight_space"),
    "calibration": ("svm_leave_one_out",),
    "kernels": (
        "AbstractSpectral",
        "AllSubsequences",
        "AllSubsets",
        "AllSubstrings",
        "ArcCosine",
        "BilinearForm",
        "BlendedSpectrum",
        "Brownian",
        "BrownianBridge",
        "Centred",
        "Coregionalisation",
        "Cosine",
        "ExpOf",
        "FisherKernel",
        "GammaExponential",
        "GaussianOf",
        "Gibbs",
        "Herglotz",
        "IntegratedBrownian",
        "Intersection",
        "Jaccard",
        "LinearSpline",
        "Mismatch",
        "Modulated",
        "Monomials",
        "OfFunctionals",
        "PolynomialOf",
        "Power",
        "Product",
        "Scaled",
        "ShiftedLinear",
        "SteinKernel",
        "Sum",
        "TangentKernel",
        "Tanh",
        "Tanimoto",
        "ZeroMeanPeriodic",
    ),
    "selection": (
        "Callback",
        "CrossValidatedLoss",
        "Validation",
        "aligned_sum",
        "alignment",
        "bootstrap",
        "compositional_search",
        "generalised_cross_validation",
        "leave_one_out_path",
        "median_lengthscale",
        "random_search",
        "random_starts",
        "regularisation_path",
        "ridge_path",
        "select",
        "stack_datasets",
        "time_folds",
        "unconstrained_density",
    ),
    "solvers": ("solve",),
    "types": (
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
    ),
}
_MOVED = {"grid": "kernax.grid_search"} | {
    name: f"kernax.{module}.{name}" for module, names in _MOVED_TO.items() for name in names
}


def _read_stub(init: str) -> tuple[dict[str, str], list[str]]:
    """The module of each public name of a package, and the names in the order of the API page, from
    the stub beside its `__init__`.
    """
    modules: dict[str, str] = {}
    names: list[str] = []
    for statement in ast.parse(Path(init).with_suffix(".pyi").read_text("utf-8")).body:
        if isinstance(statement, ast.ImportFrom):
            modules |= {alias.name: str(statement.module) for alias in statement.names}
        elif isinstance(statement, ast.Assign):
            names = ast.literal_eval(statement.value)
    return modules, names


def _lazy(
    package: str, init: str, otherwise: Callable[[str], Any] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that imports a name of its stub when it is first
    used, and asks `otherwise` for other names.
    """
    modules, names = _read_stub(init)

    def of_package(name: str) -> Any:
        if name == "__all__":
            return list(names)
        if name in modules:
            module = modules[name]
            if module == package:
                part = import_module(f"{package}.{name}")
                # Modules that only list names have no `__getattr__` of their own.
                vars(part).setdefault("__getattr__", partial(_raise_no_attribute, part.__name__))
                return part
            found = getattr(import_module(module), name)
            setattr(sys.modules[package], name, found)
            return found
        if otherwise is not None:
            return otherwise(name)
        raise _no_attribute(package, name)

    return of_package, lambda: list(names)


def _no_attribute(module: str, name: str) -> AttributeError:
    # Here, so that `import kernax` imports nothing else.
    from kernax._advice import no_attribute

    return no_attribute(module, name)


def _raise_no_attribute(module: str, name: str) -> Any:
    raise _no_attribute(module, name)


def _old_name(name: str) -> Any:
    if name not in _MOVED:
        raise _no_attribute("kernax", name)
    from kernax.core.base.deprecation import moved

    return moved("kernax", _MOVED)(name)


__getattr__, _names = _lazy(__name__, __file__, otherwise=_old_name)


def __dir__() -> list[str]:
    dunders = {name for name in globals() if name.startswith("__")}
    return sorted(dunders.union(_names()))
