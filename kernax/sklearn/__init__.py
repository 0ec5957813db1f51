"""scikit-learn estimators of kernax, with scikit-learn's names, arguments and attributes.

Change `from sklearn.svm import SVC` into `from kernax.sklearn import SVC` and keep the rest of a
pipeline. Its estimators need scikit-learn, which is imported when the first of them is used.

Differences: a row of weight two counts as two rows everywhere, except in gamma="scale", which
ignores weights, as in scikit-learn; bounds of scikit-learn's kernels apply if the evidence is
maximised, and otherwise a learned parameter beyond them raises a warning; rows on the boundary of a
`OneClassSVM` are inside; several classes of a process share one kernel. The page "Coming from
another library" of the documentation has the whole list.
"""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale, kernax.selection, kernax.metrics,
# kernax.preparation.

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
