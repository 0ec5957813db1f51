"""Linear solvers: lineax's and ours, all of which give a factor."""

import abc
import functools
from typing import Any

import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float

from kernax.core.base.solution import RESULTS, ROUNDING, promoted
from kernax.core.linalg.factors import (
    AbstractFactor,
    direct_accuracy,
    factorise,
    rounding_of_entries,
)


class AbstractSymmetricSolver(lx.AbstractLinearSolver):
    """A solver of symmetric real systems, which are their own transpose and conjugate."""

    def transpose(self, state, options):
        return state, options

    def conj(self, state, options):
        return state, options

    def assume_full_rank(self):
        return True


class AbstractFactorSolver(AbstractSymmetricSolver):
    """A solver whose state, which `init` makes, is a factor."""

    def compute(self, state: AbstractFactor, vector: Array, options: dict[str, Any]):
        result = lx.RESULTS.where(state.exists, lx.RESULTS.successful, lx.RESULTS.singular)
        solution, (_, stats) = state.solve_and_report(vector[:, None])
        return solution[:, 0], result, stats


def refuse_options(solver: lx.AbstractLinearSolver, options: dict[str, Any]) -> None:
    """Raises ValueError for options, which would be ignored, of a solver that has none."""
    if options:
        raise ValueError(
            f"{type(solver).__name__} takes no options, but options has {', '.join(options)}: "
            "a preconditioner is for lineax.CG"
        )


@functools.singledispatch
def accurate_residual(solver: lx.AbstractLinearSolver, dtype: Any) -> float | Float[Array, ""]:
    """The relative residual up to which a solution by a solver counts as one: that of a direct
    solve, unless a class of solvers registers another.
    """
    return direct_accuracy(dtype)


@functools.singledispatch
def needs_whole_matrix(solver: lx.AbstractLinearSolver) -> bool:
    """Whether a solver factorises, for which it needs all entries of the matrix at once."""
    return False


@needs_whole_matrix.register(lx.Cholesky | lx.LU | lx.QR | lx.SVD)
def _(solver) -> bool:
    return True


@functools.singledispatch
def knows_determinant(solver: lx.AbstractLinearSolver) -> bool:
    """Whether the factor that a solver makes knows its determinant, as densities need."""
    return False


def check_knows_determinant(solver: Any) -> None:
    """Raises ValueError for what is neither None nor a solver that knows the determinant."""
    if solver is not None and not knows_determinant(solver):
        raise ValueError(
            "solver must be None or one of kernax.solvers that knows the determinant of the "
            "matrix, such as JitteredCholesky(), StateSpace(), Grid(), or ConjugateGradient with "
            f"determinant=StochasticLanczos(key), but is {solver!r}"
        )


def check_is_solver(solver: Any) -> None:
    """Raises ValueError unless it is a linear solver or None."""
    if not isinstance(solver, lx.AbstractLinearSolver | None):
        raise ValueError(
            "solver must be a linear solver, such as kernax.solvers.JitteredCholesky(), but is "
            f"{solver!r}"
        )


def check_makes_factor(solver: Any) -> None:
    """Raises ValueError for what is neither None nor a solver of this package."""
    if solver is not None and not isinstance(solver, AbstractFactorSolver):
        raise ValueError(
            "solver must be None or one of kernax.solvers, such as JitteredCholesky(), "
            f"StateSpace() or ConjugateGradient(), but is {solver!r}"
        )


def block_size_for(solver: Any) -> str | None:
    """The `block_size` for a solver: "auto" where it works by products, else None, for all of K."""
    works_by_products = solver is not None and not needs_whole_matrix(solver)
    return "auto" if works_by_products else None


@functools.singledispatch
def word_for_inaccuracy(solver: lx.AbstractLinearSolver) -> Any:
    """The result where a solver claims success, but its residual is above `accurate_residual`."""
    return RESULTS.inaccurate


@functools.singledispatch
def advice_on(solver: lx.AbstractLinearSolver | None) -> str:
    """What else may help where a solver has failed: a sentence, with a space before it, or none."""
    return ""


@functools.singledispatch
def cause_of_rounding(solver: lx.AbstractLinearSolver | None) -> str:
    """What leaves few digits where `stats["rounding"]` is large, for a message."""
    return ROUNDING


class AbstractIterativeFactor(AbstractFactor):
    """A matrix and how systems with it are solved by its products. It knows no inverse."""

    @property
    def is_direct(self):
        return False

    @property
    def word_for_none(self):
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
        return f"{self.name} knows no {what}: use JitteredCholesky()"


def ending_of_columns(results: Any) -> Any:
    """The first failure among the results of several columns, as a word of `RESULTS`."""
    failed = jnp.argmax(results != lx.RESULTS.successful)
    return promoted(jax.tree.map(lambda leaf: leaf[failed], results))


def _known(stats: dict[str, Any]) -> dict[str, Array]:
    """The figures that a solver of lineax gives, as arrays."""
    return {name: jnp.asarray(value) for name, value in stats.items() if value is not None}


class SolverFactor(AbstractIterativeFactor):
    """A linear solver of lineax and what it made of a matrix: it solves, and knows nothing else."""

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
            return x, result, _known(stats)

        X, results, stats = jax.vmap(column, 1, (1, 0, 0))(B)
        largest = {name: jnp.max(value) for name, value in stats.items()}
        return X, (ending_of_columns(results), largest)

    def log_determinant(self):
        raise ValueError(self._refusal("determinant"))

    def rounding(self, diagonal):
        return rounding_of_entries(self.solve, diagonal)

    def accurate_residual(self, dtype):
        return accurate_residual(self.solver, dtype)

    @property
    def word_for_inaccuracy(self):
        return word_for_inaccuracy(self.solver)


def factor_by(
    solver: lx.AbstractLinearSolver,
    operator: lx.AbstractLinearOperator,
    options: dict[str, Any] | None = None,
) -> AbstractFactor:
    """What a solver of lineax makes of an operator, as a factor. `options` are lineax's."""
    options = {} if options is None else options
    state = solver.init(operator, options)
    if isinstance(state, AbstractFactor):
        return state
    return SolverFactor(solver=solver, state=state, options=options)


class JitteredCholesky(AbstractFactorSolver):
    """`factorise` as a lineax solver: Cholesky, with jitter on the diagonal only where the plain
    factorisation fails.

    A matrix that needs more than 1e-4 of its mean diagonal is indefinite and gives NaN.
    `stats["jitter"]` is what was added. An operator of few features is solved in those, without
    jitter, and `stats["features"]` is their number.
    """

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> AbstractFactor:
        refuse_options(self, options)
        return factorise(operator)


@needs_whole_matrix.register
@knows_determinant.register
def _(solver: JitteredCholesky) -> bool:
    return True
