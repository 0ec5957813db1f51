"""The one quadratic programme behind support vector machines.

    minimise  1/2 b.K b - targets.b + epsilon |b|_1   subject to   low <= b <= high,  sum b = total,  low <= 0 <= high

b are the signed coefficients of the expansion `f = K b + bias`; the bias is the multiplier of the sum. Classification has the
labels as targets and boxes [0, C] or [-C, 0]; regression a box [-C, C] and an epsilon; one-class machines no targets, and a
total. Each point is free (strictly between zero and a bound), at zero, or at a bound, and once that is known the rest is
linear: `active_set` polishes and differentiates the solution by that.
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float, Int

from kernax.core.gram import GramOperator
from kernax.core.operators import tell_lineax
from kernax.core.parameters import check_count


class ScaledOperator(lx.AbstractLinearOperator):
    """`gain K`, of which K is held as it was."""

    operator: lx.AbstractLinearOperator
    gain: Float[Array, ""]

    def mv(self, vector):
        return self.gain * self.operator.mv(vector)

    def as_matrix(self):
        return self.gain * self.operator.as_matrix()

    def transpose(self):
        return self

    def in_structure(self):
        return self.operator.in_structure()

    def out_structure(self):
        return self.in_structure()


tell_lineax(ScaledOperator, lambda operator: operator.gain * lx.diagonal(operator.operator))


class BoxProblem(eqx.Module):
    """The programme above. `total=None` leaves the sum free, which fixes the bias at zero.

    `scale` is the size of the targets, in units of f: tolerances are relative to it.
    """

    operator: lx.AbstractLinearOperator
    targets: Float[Array, " n"]
    low: Float[Array, " n"]
    high: Float[Array, " n"]
    epsilon: Float[Array, ""]
    total: Float[Array, ""] | None
    scale: Float[Array, ""]

    def residual(self, beta: Float[Array, " n"]) -> Float[Array, " n"]:
        """`targets - K b`, minus the gradient of the smooth part."""
        return self.targets - self.operator.mv(beta)

    def diagonal(self) -> Float[Array, " n"]:
        """k(x_i, x_i)."""
        return lx.diagonal(self.operator)

    def start(self) -> Float[Array, " n"]:
        """A feasible point: zero, or the total dealt out from the first point on."""
        if self.total is None:
            return jnp.zeros_like(self.targets)
        before = jnp.concatenate([jnp.zeros_like(self.high[:1]), jnp.cumsum(jnp.minimum(self.high, self.total))[:-1]])
        return jnp.clip(self.total - before, 0, self.high)

    def submatrix(self, places: Int[Array, " m"]) -> Float[Array, "m m"]:
        """The rows and columns of K at `places`; only these are computed if K is not held."""
        return submatrix(self.operator, places)

    def part_product(self, places: Int[Array, " m"], values: Float[Array, " m"]) -> Float[Array, " n"]:
        """`K[:, places] @ values`."""
        return part_product(self.operator, places, values)


def part_product(
    operator: lx.AbstractLinearOperator, places: Int[Array, " m"], values: Float[Array, " m"]
) -> Float[Array, " n"]:
    """`K[:, places] @ values`; of a Gram operator only these columns are computed."""
    if isinstance(operator, ScaledOperator):
        return operator.gain * part_product(operator.operator, places, values)
    if isinstance(operator, GramOperator):
        return operator.columns_product(places, values)
    return operator.mv(jnp.zeros_like(values, shape=operator.in_size()).at[places].set(values))


def submatrix(operator: lx.AbstractLinearOperator, places: Int[Array, " m"]) -> Float[Array, "m m"]:
    """The rows and columns of an operator at `places`; of a Gram operator only these are computed."""
    if isinstance(operator, ScaledOperator):
        return operator.gain * submatrix(operator.operator, places)
    if isinstance(operator, GramOperator):
        return operator.submatrix(places)
    return operator.as_matrix()[places[:, None], places[None, :]]


def slopes(
    beta: Float[Array, "*n"],
    residual: Float[Array, "*n"],
    low: Float[Array, "*n"],
    high: Float[Array, "*n"],
    epsilon: Float[Array, "..."],
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """How fast the objective falls as each coefficient rises (-inf at its upper bound), and as it drops (+inf at its lower).

    A point is optimal where no rise gains more than a drop costs: `max(rise) <= min(drop)`, with the bias in between.
    """
    rise = jnp.where(beta < high, residual - jnp.where(beta >= 0, epsilon, -epsilon), -jnp.inf)
    drop = jnp.where(beta > low, residual - jnp.where(beta > 0, epsilon, -epsilon), jnp.inf)
    return rise, drop


def bias_interval(problem: BoxProblem, beta: Array, residual: Array) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The largest rise and the smallest drop. Their difference is the violation; with no sum to keep, both meet zero."""
    rise, drop = slopes(beta, residual, problem.low, problem.high, problem.epsilon)
    top, bottom = jnp.max(rise), jnp.min(drop)
    return (top, bottom) if problem.total is not None else (jnp.maximum(top, 0), jnp.minimum(bottom, 0))


class AbstractDualSolver(eqx.Module):
    """What solves a `BoxProblem`, to a violation of `tol` in units of the targets."""

    tol: eqx.AbstractVar[float]

    @abc.abstractmethod
    def solve(
        self, problem: BoxProblem, beta: Float[Array, " n"], residual: Float[Array, " n"], tol: Float[Array, ""]
    ) -> tuple[Float[Array, " n"], Int[Array, ""]]:
        """Improves a feasible point of known residual until its violation is at most `tol`; also the number of steps."""


def as_dual_solver(solver: Any, default: AbstractDualSolver) -> AbstractDualSolver:
    """The solver, or the default for None. Raises ValueError for anything else, a class instead of an instance included."""
    if solver is not None and not isinstance(solver, AbstractDualSolver):
        raise ValueError(f"solver must be SMO() or ProjectedGradient(), called, but is {solver!r}")
    return default if solver is None else solver


def check_tolerance(tol: float, max_steps: int | None) -> None:
    """Raises ValueError for settings of a solver that make no sense."""
    if not 0 < tol < 1:
        raise ValueError(f"tol must be between 0 and 1, but is {tol!r}")
    if max_steps is not None:
        check_count(max_steps, "max_steps")


class Point(eqx.Module):
    """A solution of the programme, with its residual, and how many steps it took."""

    beta: Float[Array, " n"]
    residual: Float[Array, " n"]
    bias: Float[Array, ""]
    steps: Int[Array, ""]


def bias_of(problem: BoxProblem, beta: Array, residual: Array) -> Float[Array, ""]:
    """The mean over the free points, else the midpoint of what the bounded ones leave."""
    free = (beta != 0) & (beta < problem.high) & (beta > problem.low)
    count = jnp.sum(free, dtype=beta.dtype)
    mean = jnp.sum(jnp.where(free, residual - problem.epsilon * jnp.sign(beta), 0)) / jnp.maximum(count, 1)
    top, bottom = bias_interval(problem, beta, residual)
    return jnp.zeros((), beta.dtype) if problem.total is None else jnp.where(count > 0, mean, middle(top, bottom))


def middle(top: Array, bottom: Array) -> Array:
    """The midpoint; of an interval that is open to one side, its end."""
    both = jnp.isfinite(top) & jnp.isfinite(bottom)
    ends = [jnp.where(jnp.isfinite(end), end, 0) for end in (top, bottom)]
    return (ends[0] + ends[1]) / jnp.where(both, 2, 1).astype(top.dtype)
