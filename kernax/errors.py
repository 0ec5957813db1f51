"""The exceptions and warnings of kernax."""

import numpy as np

__all__ = [
    "SolveError",
    "NonFiniteError",
    "NotPSDError",
    "MaxStepsError",
    "BreakdownError",
    "DivergedError",
    "CapacityError",
    "MemoryBudgetError",
    "KernaxFileError",
    "ConditionWarning",
    "RunawayWarning",
    "FeaturelessWarning",
    "ClusterWarning",
    "RelevanceWarning",
    "PrecisionWarning",
    "DamagedCheckpointWarning",
    "UndeclaredFieldWarning",
]


class SolveError(RuntimeError):
    """A solve did not succeed."""


class NonFiniteError(SolveError):
    """NaN or inf appeared in a matrix, an objective or a solution."""


class NotPSDError(SolveError, np.linalg.LinAlgError):
    """A matrix that must be positive definite is not, even with jitter.

    It is NumPy's `LinAlgError` as well, and so a ValueError, as what SciPy and scikit-learn raise.
    """


class MaxStepsError(SolveError):
    """An iterative solver used up its steps before it met its tolerance."""


class BreakdownError(SolveError):
    """A solver stopped before it met its tolerance.

    It made no more progress, or rounding errors are too large for the tolerance.
    """


class DivergedError(SolveError):
    """The iteration diverged: the problem has no finite solution, or the steps were too long."""


class CapacityError(SolveError):
    """A learner of a stream needed more points than it has room for, and left some out."""


class MemoryBudgetError(MemoryError):
    """A dense matrix would not fit into the memory of the device."""


class KernaxFileError(ValueError):
    """A file is no sound model or checkpoint of kernax, or not the one that was asked for.

    Or what is to be saved cannot be put into a file.
    """


class ConditionWarning(UserWarning):
    """A matrix is close to singular, or not positive semidefinite.

    Close to singular means that few digits of the result are right, or that jitter was added.
    """


class RunawayWarning(UserWarning):
    """A parameter for which the loss has no finite minimum was stopped at a bound."""


class FeaturelessWarning(UserWarning):
    """Some points have no features, such as empty strings: all their kernel values are zero."""


class ClusterWarning(UserWarning):
    """Clusters coincide because there are fewer distinct points, or a graph falls into parts."""


class RelevanceWarning(UserWarning):
    """No basis function is relevant, and a machine is zero everywhere."""


class PrecisionWarning(UserWarning):
    """float64 data is computed in float32, because JAX's 64-bit mode is off, or a lengthscale is
    so small that its square underflows.
    """


class DamagedCheckpointWarning(UserWarning):
    """A checkpoint has a file that is missing, cut or changed, and is not used."""


class UndeclaredFieldWarning(UserWarning):
    """A field of a module is learned without a declaration of the values that it may take."""
