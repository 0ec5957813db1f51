"""The exceptions and warnings of kernax."""


class SolveError(RuntimeError):
    """A solve did not succeed."""


class NonFiniteError(SolveError):
    """NaN or inf appeared in a matrix, an objective or a solution."""


class NotPSDError(SolveError):
    """A matrix that must be positive definite is not, even with jitter."""


class MaxStepsError(SolveError):
    """An iterative solver used up its steps before it met its tolerance."""


class BreakdownError(SolveError):
    """A solver stopped short of its tolerance: no more progress, or rounding errors as large as the solution."""


class DivergedError(SolveError):
    """The iteration diverged: the problem has no finite solution, or the steps were too long."""


class MemoryBudgetError(MemoryError):
    """A dense matrix would not fit into the memory of the device."""


class ConditionWarning(UserWarning):
    """A matrix is close to singular, so that few digits are left or jitter was added, or it is not positive semidefinite."""


class RunawayWarning(UserWarning):
    """A parameter that the loss does not hold back was stopped at a bound."""


class FeaturelessWarning(UserWarning):
    """A kernel met points without features, such as empty strings: every value is zero there."""


class PrecisionWarning(UserWarning):
    """float64 data is computed in float32, because JAX's 64-bit mode is off."""
