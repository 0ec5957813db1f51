"""Linear solvers, those of lineax and of kernax, and the factors that they make."""

import abc
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float, PyTree

from kernax.core.base.printing import described
from kernax.core.base.solution import RESULTS, ROUNDING, promoted
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.linalg.cholesky import cholesky_factor, rounding_of_entries
from kernax.core.linalg.factorisation import AbstractFactor, direct_accuracy
from kernax.core.linalg.low_rank import LowRankFactor
from kernax.core.operators.operators import AbstractStructuredForm, LowRankGram
from kernax.core.operators.structure import AbstractStructure


class AbstractSymmetricSolver(lx.AbstractLinearSolver):
    """A solver of symmetric real systems, which equal their transpose and conjugate.

    The properties that learners need besides solutions have the values of a direct solver here.
    """

    @property
    def needs_whole_matrix(self) -> bool:
        """Whether it needs all entries of the matrix at once, for a factorisation."""
        return False

    @property
    def knows_determinant(self) -> bool:
        """Whether its factor has a determinant, which densities need."""
        return False

    def accurate_residual(self, dtype: Any) -> float | Float[Array, ""]:
        """The largest relative residual of a valid solution."""
        return direct_accuracy(dtype)

    @property
    def status_if_inaccurate(self) -> Any:
        """The status if the solver claims success, but the residual exceeds `accurate_residual`."""
        return RESULTS.inaccurate

    def advice(self) -> str:
        """Further advice after a failure: a sentence that begins with a space, or an empty text."""
        return ""

    def cause_of_rounding(self) -> str:
        """The cause of a large `stats["rounding"]`, for a message."""
        return ROUNDING

    def structure_for(
        self, kernel: AbstractKernel, X: PyTree, weights: Any
    ) -> AbstractStructure | None:
        """The structure of the points that the solver needs, or None.

        X and the weights (n,), or None, are NumPy arrays if they are concrete. Raises ValueError if
        the points do not have the structure.
        """
        return None

    def transpose(self, state, options):
        return state, options

    def conj(self, state, options):
        return state, options

    def assume_full_rank(self):
        return True


class AbstractFactorSolver(AbstractSymmetricSolver):
    """A solver for which `init` returns a factor as its state."""

    def compute(self, state: AbstractFactor, vector: Array, options: dict[str, Any]):
        result = lx.RESULTS.where(state.exists, lx.RESULTS.successful, lx.RESULTS.singular)
        solution, (_, stats) = state.solve_and_report(vector[:, None])
        return solution[:, 0], result, stats


class AbstractDirectSolver(AbstractFactorSolver):
    """A solver that factorises the dense matrix, and therefore has its determinant."""

    @property
    def needs_whole_matrix(self):
        return True

    @property
    def knows_determinant(self):
        return True


def refuse_options(solver: lx.AbstractLinearSolver, options: dict[str, Any]) -> None:
    """Raises ValueError for options of a solver without options, which would be ignored."""
    if options:
        raise ValueError(
            f"{type(solver).__name__} takes no options, but options has {', '.join(options)}: "
            "a preconditioner is for lineax.CG"
        )


def accurate_residual(solver: lx.AbstractLinearSolver, dtype: Any) -> float | Float[Array, ""]:
    """The largest relative residual of a valid solution by any solver."""
    is_ours = isinstance(solver, AbstractSymmetricSolver)
    return solver.accurate_residual(dtype) if is_ours else direct_accuracy(dtype)


def needs_whole_matrix(solver: lx.AbstractLinearSolver) -> bool:
    """Whether any solver needs all entries of the matrix at once."""
    if isinstance(solver, AbstractSymmetricSolver):
        return solver.needs_whole_matrix
    return isinstance(solver, lx.Cholesky | lx.LU | lx.QR | lx.SVD)


def check_knows_determinant(solver: Any) -> None:
    """Raises ValueError unless the solver is None or has a determinant."""
    if solver is None:
        return
    if not isinstance(solver, AbstractSymmetricSolver) or not solver.knows_determinant:
        raise ValueError(
            "solver must be None or one of kernax.solvers that computes the determinant of the "
            "matrix, such as JitteredCholesky(), or ConjugateGradient with "
            f"determinant=StochasticLanczos(key), but is {solver!r}"
        )


def check_is_solver(solver: Any) -> None:
    """Raises ValueError unless it is a linear solver or None."""
    if not isinstance(solver, lx.AbstractLinearSolver | None):
        raise ValueError(
            "solver must be a linear solver, such as kernax.solvers.JitteredCholesky(), but is "
            f"{described(solver)}"
        )


def check_makes_factor(solver: Any) -> None:
    """Raises ValueError unless the solver is None or one of this package."""
    if solver is not None and not isinstance(solver, AbstractFactorSolver):
        raise ValueError(
            "solver must be None or one of kernax.solvers, such as JitteredCholesky() or "
            f"ConjugateGradient(), but is {described(solver)}"
        )


def block_size_for(solver: Any) -> str | None:
    """The `block_size` for a solver: "auto" if products suffice, otherwise None, for a dense K."""
    works_by_products = solver is not None and not needs_whole_matrix(solver)
    return "auto" if works_by_products else None


def advice_on(solver: lx.AbstractLinearSolver | None) -> str:
    """The advice of any solver, or of None."""
    return solver.advice() if isinstance(solver, AbstractSymmetricSolver) else ""


def cause_of_rounding(solver: lx.AbstractLinearSolver | None) -> str:
    """The cause of a large rounding error for any solver, or for None."""
    is_ours = isinstance(solver, AbstractSymmetricSolver)
    return solver.cause_of_rounding() if is_ours else ROUNDING


class AbstractIterativeFactor(AbstractFactor):
    """A factor that solves systems by products with the matrix. It has no inverse."""

    @property
    def is_direct(self):
        return False

    @property
    def status_without_factor(self):
        return RESULTS.not_psd

    def solve(self, B):
        return self.solve_and_report(B.reshape(len(B), -1))[0].reshape(B.shape)

    def whitened(self, B):
        raise ValueError(self._refusal("root of the inverse"))

    def inverse(self):
        raise ValueError(self._refusal("inverse"))

    def inverse_diagonal(self):
        raise ValueError(self._refusal("diagonal of the inverse"))

    def rounding_of_inverse(self, diagonal):
        return rounding_of_entries(self.solve, diagonal)

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the solver, for messages."""

    def _refusal(self, what: str) -> str:
        return f"{self.name} has no {what}: use JitteredCholesky()"


def status_of_columns(results: Any) -> Any:
    """The first failure among the results of several columns, as a status."""
    failed = jnp.argmax(results != lx.RESULTS.successful)
    return promoted(jax.tree.map(lambda leaf: leaf[failed], results))


class SolverFactor(AbstractIterativeFactor):
    """A linear solver of lineax and its state for a matrix, which only solves systems."""

    solver: lx.AbstractLinearSolver
    state: Any
    options: dict[str, Any]

    jitter: float = 0.0
    exists: bool = True

    @property
    def name(self):
        return type(self.solver).__name__

    def solve_and_report(self, B):
        def column(b):
            x, result, stats = self.solver.compute(self.state, b, self.options)
            # The statistics of a solver of lineax, as arrays.
            known = {name: jnp.asarray(value) for name, value in stats.items() if value is not None}
            return x, result, known

        X, results, stats = jax.vmap(column, 1, (1, 0, 0))(B)
        largest = {name: jnp.max(value) for name, value in stats.items()}
        return X, (status_of_columns(results), largest)

    def log_determinant(self):
        raise ValueError(self._refusal("determinant"))

    def rounding(self, diagonal):
        return rounding_of_entries(self.solve, diagonal)

    def accurate_residual(self, dtype):
        return accurate_residual(self.solver, dtype)

    @property
    def status_if_inaccurate(self):
        solver = self.solver
        is_ours = isinstance(solver, AbstractSymmetricSolver)
        return solver.status_if_inaccurate if is_ours else RESULTS.inaccurate


def factor_by(
    solver: lx.AbstractLinearSolver,
    operator: lx.AbstractLinearOperator,
    options: dict[str, Any] | None = None,
) -> AbstractFactor:
    """The state of a lineax solver for an operator, as a factor. `options` are lineax's."""
    options = {} if options is None else options
    state = solver.init(operator, options)
    if isinstance(state, AbstractFactor):
        return state
    return SolverFactor(solver=solver, state=state, options=options)


@functools.singledispatch
def factorise(
    operator: lx.AbstractLinearOperator, scale: Float[Array, ""] | None = None
) -> AbstractFactor:
    """The factor that suits a symmetric positive definite operator: by default the Cholesky factor,
    with jitter if the plain factorisation fails.

    Jitter starts at sqrt(eps) (float64) or 10 eps (float32) of `scale`, by default the mean
    diagonal over points of positive weight, and grows tenfold up to 1e-4 of it. A pivot within
    rounding of zero counts as a failure, because a singular matrix often factorises by accident,
    into noise. It is not differentiable: callers have their own derivative rules.

    For your own operators use `factorise.register(MyOperator)(function)`. Raises TypeError for an
    `AbstractStructuredForm` without a registered function, because the dense matrix would need n^2
    numbers.
    """
    return cholesky_factor(operator, scale)


@factorise.register
def _(operator: AbstractStructuredForm, scale: Float[Array, ""] | None = None) -> AbstractFactor:
    kind = type(operator).__name__
    raise TypeError(
        f"factorise has no function for {kind}: import the module that registers it, which has the "
        f"factor of {kind}, or register one by factorise.register({kind}); a matrix without a "
        "factor of its own is a WeightedForm"
    )


@factorise.register
def _(operator: LowRankGram, scale: Float[Array, ""] | None = None) -> LowRankFactor:
    return LowRankFactor.of(operator)


class JitteredCholesky(AbstractDirectSolver):
    """The Cholesky factorisation as a lineax solver, with jitter on the diagonal only if the plain
    factorisation fails.

    A matrix that needs a jitter of more than 1e-4 of its mean diagonal counts as indefinite and
    gives NaN. `stats["jitter"]` is the jitter that was added. An operator with fewer explicit
    features than points is solved in feature space without jitter, and `stats["features"]` is their
    number.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> solver = kernax.solvers.JitteredCholesky()
        >>> solution = kernax.kernel_ridge(kernax.RBF(0.3), X, y, ridge=0.01, solver=solver)
        >>> float(solution.stats["jitter"])
        0.0
    """

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> AbstractFactor:
        refuse_options(self, options)
        return factorise(operator)


class Auto(AbstractDirectSolver):
    """Chooses the solver from the kernel, the number of points and the device: the default of
    `kernel_ridge`, `condition` and `log_marginal_likelihood`.

    The first rule that applies decides:

    1. for a kernel with fewer explicit features than points, and a positive ridge or noise,
       `JitteredCholesky()` of a system of the size of the features;
    2. in `kernel_ridge` with a `block_size`, `ConjugateGradient()`;
    3. in the other two, for points along one line, at least 1000 on a CPU or 10000 on an
       accelerator, and a kernel with a state-space model of at most 10 states, `StateSpace()`, in
       O(n);
    4. otherwise `JitteredCholesky()` of the dense matrix.

    `stats["solver"]` of the solution says which solver ran, and why. For the same algorithm
    everywhere, pass it: `solver=kernax.solvers.JitteredCholesky()`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> solver = kernax.solvers.Auto()
        >>> solution = kernax.kernel_ridge(kernax.RBF(0.3), X, y, ridge=0.01, solver=solver)
        >>> print(solution.stats["solver"])
        JitteredCholesky: the default, because no other rule of Auto applies
    """

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> AbstractFactor:
        return JitteredCholesky().init(operator, options)


AUTO = Auto()


class SolverThatRan(eqx.Module):
    """Which solver ran, and why. It has no arrays, so that `jit` and `vmap` return it."""

    name: str = eqx.field(static=True)
    reason: str = eqx.field(static=True)

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"

    def __repr__(self) -> str:
        return str(self)
