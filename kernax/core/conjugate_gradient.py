"""Conjugate gradients, free of units and judged by the true residual; with a preconditioner, and
with an estimate of the determinant, where these are given.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Bool, Float, Int

from kernax.core.lanczos import AbstractLanczos, Estimate, log_determinant_by_probes
from kernax.core.numerics import chosen, eps_of, matmul, stopped
from kernax.core.operators import WeightedForm
from kernax.core.preconditioners import AbstractPreconditioner, Preconditioner, shift_of
from kernax.core.sharding import while_loop
from kernax.core.solution import RESULTS
from kernax.core.solvers import (
    AbstractFactorSolver,
    AbstractIterativeFactor,
    accurate_residual,
    ending_of_columns,
    knows_determinant,
    refuse_options,
)

Multiply = Callable[[Array], Array]


class _Best(eqx.Module):
    """The iterate whose true residual was smallest."""

    x: Float[Array, " n"]
    residual: Float[Array, ""]  # its size


class _Iterate(eqx.Module):
    """Conjugate gradients after some steps."""

    x: Float[Array, " n"]
    residual: Float[Array, " n"]  # by recurrence, which may drift away from the true one
    preconditioned: Float[Array, " n"]  # `M^-1` times that
    direction: Float[Array, " n"]
    best: _Best
    norm: Float[Array, ""]  # of A, from below: the largest |A v| / |v| so far
    steps: Int[Array, ""]
    stuck: Bool[Array, ""]  # whether no further step is of use


class _System(eqx.Module):
    """`A x = b` with |b| = 1, what it is solved with, and what a residual is compared with.

    Attributes:
        measure: what of a residual counts, a linear function.
        goal: the length of that at which to stop.
    """

    multiply: Multiply
    precondition: Multiply
    measure: Multiply
    b: Float[Array, " n"]
    goal: Float[Array, ""]

    def size(self, residual: Float[Array, " n"]) -> Float[Array, ""]:
        """The length of what counts."""
        return _length(self.measure(residual))

    def at_zero(self) -> _Iterate:
        """Before the first step."""
        b = self.b
        first = self.precondition(b)
        return _Iterate(
            x=jnp.zeros_like(b),
            residual=b,
            preconditioned=first,
            direction=first,
            best=_Best(jnp.zeros_like(b), self.size(b)),
            norm=jnp.zeros_like(b, shape=()),
            steps=jnp.zeros((), jnp.int32),
            stuck=jnp.asarray(False),
        )

    def step(self, now: _Iterate) -> _Iterate:
        """One step of conjugate gradients; none where A is not positive along the direction."""
        image = self.multiply(now.direction)
        slope = matmul(now.direction, image)
        norm = jnp.maximum(now.norm, _length(image) / _length(now.direction))
        before = matmul(now.residual, now.preconditioned)
        stuck = ~(slope > _rounding(norm, now.direction)) | ~(before > 0)
        step = jnp.where(stuck, 0, before / jnp.where(stuck, 1, slope))
        residual = jnp.where(stuck, now.residual, now.residual - step * image)
        preconditioned = self.precondition(residual)
        turn = matmul(residual, preconditioned) / before
        return _Iterate(
            x=now.x + step * now.direction,
            residual=residual,
            preconditioned=preconditioned,
            direction=preconditioned + turn * now.direction,
            best=now.best,
            norm=norm,
            steps=now.steps + 1,
            stuck=stuck,
        )

    def verified(self, now: _Iterate) -> _Iterate:
        """The same iterate with its true residual."""
        true = self.b - self.multiply(now.x)
        size = self.size(true)
        preconditioned = self.precondition(true)
        return _Iterate(
            x=now.x,
            residual=true,
            preconditioned=preconditioned,
            direction=now.direction + (preconditioned - now.preconditioned),
            best=_better(_Best(now.x, size), now.best),
            norm=now.norm,
            steps=now.steps,
            stuck=now.stuck | self._has_drifted(now, size),
        )

    def _has_drifted(self, now: _Iterate, size: Array) -> Bool[Array, ""]:
        """Whether only the residual by recurrence has reached the goal, and the true one, of that
        size, has not fallen by half.
        """
        drifted = (self.size(now.residual) <= self.goal) & (size > self.goal)
        return drifted & ~(size < now.best.residual / 2)


def _rounding(norm: Float[Array, ""], v: Float[Array, " n"]) -> Float[Array, ""]:
    """The error that rounding leaves in `v.A v`: ten times `eps |A| |v|^2`."""
    return 10 * eps_of(v) * norm * matmul(v, v)


def _better(one: _Best, other: _Best) -> _Best:
    """The one with the smaller residual."""
    smaller = one.residual < other.residual
    return chosen(smaller, one, other)


def _length(v: Float[Array, " n"]) -> Float[Array, ""]:
    """`|v|`."""
    return jnp.sqrt(matmul(v, v))


class Iteration(eqx.Module):
    """When conjugate gradients stop: at a relative residual, or after so many steps."""

    rtol: float | None = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)

    def tolerance(self, dtype: Any) -> float:
        """The relative residual that counts as solved in a dtype."""
        return eps_of(dtype) ** (2 / 3) if self.rtol is None else self.rtol

    def solve(
        self,
        multiply: Multiply,
        precondition: Multiply,
        measure: Multiply,
        vector: Float[Array, " n"],
    ) -> tuple[Array, Any, dict[str, Array]]:
        """The solution, lineax's word for how it ended, and the number of steps."""
        # Both are brought to size one, so that no square below leaves the range of floats.
        largest = _positive(jnp.max(jnp.abs(vector)))
        length = _positive(_length(vector / largest))
        b = vector / largest / length
        curvature = _positive(jnp.abs(matmul(b, multiply(b))))
        scaled = lambda v: multiply(v) / curvature
        goal = self.tolerance(b.dtype) * _length(measure(b))
        last = self._iterate(_System(scaled, precondition, measure, b, goal))
        x = last.best.x * length / curvature * largest
        return x, _result(last, goal), {"steps": last.steps}

    def _iterate(self, system: _System) -> _Iterate:
        """The last iterate, its residual verified every ten steps."""

        def ten_steps(start: _Iterate) -> _Iterate:
            def go_on(now: _Iterate):
                below_cap = (now.steps < self.max_steps) & (now.steps < start.steps + 10)
                return (system.size(now.residual) > system.goal) & below_cap & ~now.stuck

            return system.verified(while_loop(go_on, system.step, start))

        def unfinished(now: _Iterate):
            above = now.best.residual > system.goal
            return above & (now.steps < self.max_steps) & ~now.stuck

        return while_loop(unfinished, ten_steps, system.at_zero())


def _result(last: _Iterate, goal: Array) -> Any:
    """The word for how an iteration ended."""
    ended = lx.RESULTS.where(last.stuck, lx.RESULTS.breakdown, lx.RESULTS.max_steps_reached)
    close = last.best.residual <= jnp.where(last.stuck, 2, 1) * goal
    return lx.RESULTS.where(close, lx.RESULTS.successful, ended)


def _positive(size: Array) -> Array:
    """A size to divide by: one where it is zero."""
    return jnp.where(size == 0, 1, size)


class Determinant(eqx.Module):
    """The logarithm of a determinant that was estimated, and by which vectors.

    Attributes:
        logarithm: the estimate.
        signs: z, independent entries of variance one, (n, count).
    """

    logarithm: Estimate
    signs: Float[Array, "n count"]


class KrylovFactor(AbstractIterativeFactor):
    """Conjugate gradients with one matrix M, by its products.

    Attributes:
        operator: M.
        preconditioner: a matrix near M, `L L^T`; None for the identity.
        determinant: of M, where it was asked for.
    """

    operator: lx.AbstractLinearOperator
    preconditioner: Preconditioner | None
    determinant: Determinant | None
    iteration: Iteration
    jitter: Array
    exists: Array

    @staticmethod
    def of(
        operator: lx.AbstractLinearOperator,
        preconditioner: Preconditioner | None,
        iteration: Iteration,
        determinant: Determinant | None = None,
    ) -> "KrylovFactor":
        """That of any operator: nothing is computed."""
        return KrylovFactor(
            operator=operator,
            preconditioner=preconditioner,
            determinant=determinant,
            iteration=iteration,
            jitter=jnp.zeros((), operator.in_structure().dtype),
            exists=jnp.asarray(True),
        )

    @property
    def name(self):
        return "ConjugateGradient"

    @property
    def knows_determinant(self):
        return self.determinant is not None

    def solve_and_report(self, B):
        def column(b):
            return self.iteration.solve(self.operator.mv, self._preconditioned, self._measured, b)

        X, results, stats = jax.vmap(column, 1, (1, 0, 0))(B)
        return X, (ending_of_columns(results), {"steps": jnp.max(stats["steps"])})

    def squares(self, B):
        # With r = B - M X, B.M^-1 B = (B + r).X + r.M^-1 r, of which the last is left out: it is of
        # second order in r.
        X, (ending, _) = self.solve_and_report(B)
        r = B - jax.vmap(self.operator.mv, 1, 1)(X)
        known = jnp.where(ending == RESULTS.successful, 1, jnp.nan)
        return known * jnp.sum((B + r) * X, 0), jnp.zeros((1, B.shape[1]), jnp.int32)

    def log_determinant(self):
        if self.determinant is None:
            raise ValueError(
                "ConjugateGradient knows no determinant: give it determinant=StochasticLanczos(...)"
            )
        return self.determinant.logarithm.value

    def figures(self):
        if self.determinant is None:
            return {}
        return {"standard_error": self.determinant.logarithm.standard_error / 2}

    def probing(self) -> tuple[Float[Array, "n count"], Float[Array, "n count"]]:
        """`L z` and `L^-T z`, for the vectors z of the determinant: `tr(M^-1 A)` is the mean of
        `(M^-1 L z).A L^-T z`.
        """
        assert self.determinant is not None
        z = self.determinant.signs
        if self.preconditioner is None:
            return z, z
        of_left = jax.vmap(self.preconditioner.root_times, 1, 1)(z)
        return of_left, jax.vmap(self.preconditioner.solve_root_transposed, 1, 1)(z)

    def accurate_residual(self, dtype):
        return 2 * self.iteration.tolerance(dtype)

    @property
    def word_for_inaccuracy(self):
        return RESULTS.breakdown

    def rounding(self, diagonal):
        # What `squares` leaves out, r.M^-1 r, of data as large as those of N(0, M).
        least = jnp.min(shift_of(self.operator))
        return self.iteration.tolerance(diagonal.dtype) ** 2 * jnp.sum(diagonal) / least

    def _measured(self, residual: Float[Array, " n"]) -> Float[Array, " n"]:
        """`S r`, with the roots of weights: the residual of `T a = b` as written, of which this is
        the symmetric form.
        """
        if isinstance(self.operator, WeightedForm):
            return self.operator.weights.times_roots(residual)
        return residual

    def _preconditioned(self, v: Float[Array, " n"]) -> Float[Array, " n"]:
        return v if self.preconditioner is None else self.preconditioner.solve(v)


class ConjugateGradient(AbstractFactorSolver):
    """Conjugate gradients (Hestenes & Stiefel 1952) until `|b - A x| <= rtol |b|` in the 2-norm.

    Nothing depends on the units of A and b. The residual is computed anew every ten steps and at
    the end, so that the true one decides. Where A is not positive along a direction, or where the
    residual falls by recurrence only, the value is the best iterate, and the result `breakdown`
    unless its residual is within twice rtol. Rounding leaves some `eps |A| |x| / |b|`, in float32
    and with 10000 points often 1e-3: an rtol of 1e-2 is right there, where the default one would
    take all steps. `stats["steps"]` counts them.

    Attributes:
        rtol: relative residual at which to stop; default eps^(2/3), 4e-11 in float64 and 2e-5 in
            float32.
        max_steps: default 1000.
        preconditioner: for a Gram matrix, such as `PivotedCholesky(key)`: fewer steps.
        determinant: how the logarithm of the determinant is estimated, which
            `log_marginal_likelihood` needs: `StochasticLanczos(key)`.
    """

    rtol: float | None = eqx.field(static=True, default=None)
    max_steps: int = eqx.field(static=True, default=1000)
    preconditioner: AbstractPreconditioner | None = None
    determinant: AbstractLanczos | None = None

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> KrylovFactor:
        if not lx.is_positive_semidefinite(operator):
            raise ValueError(
                "ConjugateGradient needs an operator tagged lineax.positive_semidefinite_tag"
            )
        refuse_options(self, options)
        near = None if self.preconditioner is None else self.preconditioner.made_of(operator)
        operator = lx.linearise(operator)
        iteration = Iteration(self.rtol, self.max_steps)
        return KrylovFactor.of(operator, near, iteration, self._determinant(operator, near))

    def tolerance(self, dtype: Any) -> float:
        """The relative residual that counts as solved in a dtype."""
        return Iteration(self.rtol, self.max_steps).tolerance(dtype)

    def _determinant(
        self, operator: lx.AbstractLinearOperator, near: Preconditioner | None
    ) -> Determinant | None:
        """`log |M| = log |L L^T| + log |L^-1 M L^-T|`, the latter estimated."""
        if self.determinant is None:
            return None
        z = self.determinant.signs(operator.in_size(), operator.in_structure().dtype)
        multiply = _whitened(stopped(operator), near)
        left = log_determinant_by_probes(multiply, z, self.determinant.steps)
        known = 0.0 if near is None else near.log_determinant()
        return Determinant(Estimate(known + left.value, left.standard_error), z)


def _whitened(operator: lx.AbstractLinearOperator, near: Preconditioner | None) -> Multiply:
    """The product with `L^-1 M L^-T`."""
    if near is None:
        return operator.mv
    return lambda v: near.solve_root(operator.mv(near.solve_root_transposed(v)))


@accurate_residual.register
def _(solver: ConjugateGradient, dtype: Any) -> float:
    return 2 * solver.tolerance(dtype)


@knows_determinant.register
def _(solver: ConjugateGradient) -> bool:
    return solver.determinant is not None
