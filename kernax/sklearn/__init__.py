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

from kernax import _lazy

# A name is imported when it is first used; `__init__.pyi` has the names.
__getattr__, __dir__ = _lazy(__name__, __file__)
