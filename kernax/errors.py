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
    """A solve did not succeed.

    Examples:
        >>> kernel = kernax.Precomputed([[1.0, 2.0], [2.0, 1.0]])  # not positive semidefinite
        >>> try:
        ...     kernax.kernel_ridge(kernel, jnp.arange(2), jnp.ones(2), ridge=0.1)
        ... except kernax.errors.SolveError as error:
        ...     print(type(error).__name__)
        NotPSDError
    """


class NonFiniteError(SolveError):
    """NaN or inf appeared in a matrix, an objective or a solution.

    Examples:
        >>> kernax.gram(kernax.kernels.Brownian(), jnp.array([[-1.0], [1.0]]))  # for x >= 0
        Traceback (most recent call last):
            ...
        kernax.errors.NonFiniteError: ...
    """


class NotPSDError(SolveError, np.linalg.LinAlgError):
    """A matrix that must be positive definite is not, even with jitter.

    It is NumPy's `LinAlgError` as well, and so a ValueError, as what SciPy and scikit-learn raise.

    Examples:
        >>> kernel = kernax.Precomputed([[1.0, 2.0], [2.0, 1.0]])  # not positive semidefinite
        >>> kernax.kernel_ridge(kernel, jnp.arange(2), jnp.ones(2), ridge=0.1)
        Traceback (most recent call last):
            ...
        kernax.errors.NotPSDError: ...
    """


class MaxStepsError(SolveError):
    """An iterative solver used up its steps before it met its tolerance.

    Examples:
        >>> X, y = jnp.zeros((2, 1)), jnp.array([-1.0, 1.0])  # one point in both classes
        >>> kernax.kernel_perceptron(kernax.RBF(0.3), X, y, max_epochs=3)
        Traceback (most recent call last):
            ...
        kernax.errors.MaxStepsError: ...
    """


class BreakdownError(SolveError):
    """A solver stopped before it met its tolerance.

    It made no more progress, or rounding errors are too large for the tolerance.

    Examples:
        >>> operator = kernax.gram_operator(kernax.Linear(), jnp.array([[0.0], [1.0]]))  # singular
        >>> kernax.solvers.solve(operator, jnp.ones(2), kernax.solvers.ConjugateGradient())
        Traceback (most recent call last):
            ...
        kernax.errors.BreakdownError: ...
    """


class DivergedError(SolveError):
    """The iteration diverged: the problem has no finite solution, or the steps were too long.

    Examples:
        >>> X, y = jnp.zeros((2, 1)), jnp.array([-1.0, 1.0])  # one point in both classes
        >>> kernax.svm(kernax.RBF(0.3), X, y, C=jnp.inf)  # has no margin
        Traceback (most recent call last):
            ...
        kernax.errors.DivergedError: ...
    """


class CapacityError(SolveError):
    """An online learner needed more points than its capacity, and left some out.

    Examples:
        >>> X, y = jnp.array([[0.0], [1.0]]), jnp.array([1.0, -1.0])
        >>> rule, budget = kernax.online.Perceptron(), kernax.online.NoBudget(capacity=1)
        >>> learner = kernax.online.DualLearner(rule, kernax.RBF(0.3), budget)
        >>> kernax.online.run(learner, X, y)
        Traceback (most recent call last):
            ...
        kernax.errors.CapacityError: ...
    """


class MemoryBudgetError(MemoryError):
    """A dense matrix would not fit into the memory of the device.

    Examples:
        >>> kernax.gram(kernax.RBF(0.3), jnp.zeros((10_000_000, 1)))
        Traceback (most recent call last):
            ...
        kernax.errors.MemoryBudgetError: ...
    """


class KernaxFileError(ValueError):
    """A file is not a valid model or checkpoint of kernax, or belongs to another call.

    It is also raised for an object that cannot be saved.
    """


class ConditionWarning(UserWarning):
    """A matrix is close to singular, or not positive semidefinite.

    Close to singular means that few digits of the result are right, or that jitter was added.

    Examples:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     solution = kernax.kernel_ridge(kernax.RBF(0.3), jnp.zeros((2, 1)), jnp.ones(2), 0.0)
        >>> caught[0].category.__name__
        'ConditionWarning'
    """


class RunawayWarning(UserWarning):
    """A parameter for which the loss has no finite minimum was stopped at a bound."""


class FeaturelessWarning(UserWarning):
    """Some points have no features, such as empty strings: all their kernel values are zero.

    Examples:
        >>> import warnings
        >>> X = kernax.strings.encode(["a", "abc"])  # "a" has no substring of two letters
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     K = kernax.gram(kernax.Normalised(kernax.Spectrum(2)), X)
        >>> [warning.category.__name__ for warning in caught]
        ['FeaturelessWarning']
    """


class ClusterWarning(UserWarning):
    """Clusters coincide, because there are fewer distinct points or because a graph is
    disconnected.

    Examples:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     X = jnp.zeros((5, 1))
        ...     solution = kernax.kernel_kmeans(kernax.RBF(0.3), X, 2, key=jax.random.key(0))
        >>> [warning.category.__name__ for warning in caught]
        ['ClusterWarning']
    """


class RelevanceWarning(UserWarning):
    """No basis function is relevant: the relevance vector machine is zero everywhere.

    Examples:
        >>> import warnings
        >>> X, y = jnp.linspace(0.0, 1.0, 8)[:, None], jnp.zeros(8)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     solution = kernax.relevance_vector_machine(kernax.RBF(0.3), X, y, noise=0.01)
        >>> [warning.category.__name__ for warning in caught]
        ['RelevanceWarning']
    """


class PrecisionWarning(UserWarning):
    """float64 data is computed in float32, because JAX's 64-bit mode is off, or a lengthscale is
    so small that its square underflows.

    Examples:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     K = kernax.gram(kernax.RBF(1e-200), jnp.array([[0.0], [1.0]]))
        >>> [warning.category.__name__ for warning in caught]
        ['PrecisionWarning']
    """


class DamagedCheckpointWarning(UserWarning):
    """A checkpoint has a file that is missing, cut or changed, and is not used."""


class UndeclaredFieldWarning(UserWarning):
    """A field of a module is learned without a declaration of the values that it may take."""
