"""Conjugate gradients as a factor: independent of units, with convergence by the true residual, and
with an optional preconditioner and determinant estimate.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.numerics import (
    dot,
    eps_of,
    matmul,
    positive_or_one,
    stop_gradient,
    tree_where,
)
from kernax.core.base.solution import RESULTS
from kernax.core.linalg.conjugate_step import ConjugateIterate
from kernax.core.linalg.factorisation import (
    AbstractCovarianceReduction,
    WeightedSystem,
    row_at,
    solve_transposed,
)
from kernax.core.linalg.iteration import AbstractIterate, AbstractMethod, Best, Iteration
from kernax.core.linalg.lanczos import Estimate
from kernax.core.linalg.linear_solvers import AbstractIterativeFactor, status_of_columns
from kernax.core.linalg.preconditioners import Preconditioner, shift_of
from kernax.core.operators.operators import AbstractGram, WeightedForm

Multiply = Callable[[Array], Array]


_VERIFIED_EVERY = 10  # steps


# A residual within rounding must halve within this many steps. For an ill-conditioned system it may
# first increase for dozens of steps.
_PATIENCE = 100


class _LastHalving(eqx.Module):
    """The size of the best true residual when it last halved, and the step count at that time."""

    residual: Float[Array, ""]
    steps: Int[Array, ""]

    def after(self, residual: Float[Array, ""], steps: Int[Array, ""]) -> "_LastHalving":
        """The progress after some more steps with the given best residual."""
        halved = residual < self.residual / 2
        return tree_where(halved, _LastHalving(residual, steps), self)


class _KrylovIterate(AbstractIterate):
    """The state of conjugate gradients after some steps."""

    at: ConjugateIterate
    best: Best
    progress: _LastHalving
    norm: Float[Array, ""]  # a lower bound of |A|: the largest |A v| / |v| so far
    steps: Int[Array, ""]
    stuck: Bool[Array, ""]


class _System(AbstractMethod):
    """`A x = b` with |b| = 1, the method of solution, and the residual at which to stop.

    Attributes:
        multiply: the product with A.
        precondition: the solution by a preconditioner.
        measure: a linear function of a residual; the length of its value is the size of the
            residual.
        start: a vector; its multiple nearest to x is the first iterate. None means zero.
        goal: the size of a residual at which to stop.
    """

    multiply: Multiply
    precondition: Multiply
    measure: Multiply
    b: Float[Array, " n"]
    start: Float[Array, " n"] | None
    goal: Float[Array, ""]

    def size(self, now):
        return self._size_of(now.at.residual)

    def _size_of(self, residual: Float[Array, " n"]) -> Float[Array, ""]:
        return _length(self.measure(residual))

    def first(self) -> _KrylovIterate:
        x, residual = self._nearest_to_start()
        size = self._size_of(residual)
        none = jnp.zeros((), jnp.int32)
        return _KrylovIterate(
            at=ConjugateIterate.first(x, residual, self.precondition),
            best=Best(x, size),
            progress=_LastHalving(size, none),
            norm=jnp.zeros_like(size),
            steps=none,
            stuck=jnp.asarray(False),
        )

    def _nearest_to_start(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The multiple of the start with the smallest error in the norm of A, which is never worse
        than zero, and its residual.
        """
        if self.start is None:
            return jnp.zeros_like(self.b), self.b
        image = self.multiply(self.start)
        curvature = matmul(self.start, image)
        # c = s.b / s.A s minimises 1/2 (c s).A (c s) - b.(c s), where s is the start.
        multiple = matmul(self.start, self.b) / positive_or_one(curvature)
        known = (curvature > 0) & jnp.isfinite(multiple) & jnp.all(jnp.isfinite(image))
        x = jnp.where(known, multiple * self.start, 0)
        residual = self.b - jnp.where(known, multiple * image, 0)
        return x, residual

    def step(self, now: _KrylovIterate) -> _KrylovIterate:
        # There is no step if A is not positive along the direction d.
        d = now.at.direction
        image = self.multiply(d)
        # |A| >= |A d| / |d| for any direction d.
        norm = jnp.maximum(now.norm, _length(image) / _length(d))
        # The rounding error of `d.A d`.
        rounding = _rounding(norm, d) * _length(d)
        at, _, moves = now.at.next(image, now.at.square > 0, rounding, self.precondition)
        return _KrylovIterate(
            at=at,
            best=now.best,
            progress=now.progress,
            norm=norm,
            steps=now.steps + 1,
            stuck=~moves,
        )

    def verified(self, now: _KrylovIterate) -> _KrylovIterate:
        x = now.at.x
        true = self.b - self.multiply(x)
        size = self._size_of(true)
        best = now.best.or_better(Best(x, size))
        progress = now.progress.after(best.residual, now.steps)
        stands = now.steps - progress.steps >= _PATIENCE
        is_rounding = _length(true) <= _rounding(now.norm, x)
        # In d = z + c d_before, the true z replaces the z of the recurrence.
        anew = ConjugateIterate.first(x, true, self.precondition)
        direction = now.at.direction + (anew.preconditioned - now.at.preconditioned)
        # Whether only the residual by recurrence has reached the goal, while the true one, of the
        # given size, has not halved.
        drifted = (self.size(now) <= self.goal) & (size > self.goal)
        return _KrylovIterate(
            at=eqx.tree_at(lambda at: at.direction, anew, direction),
            best=best,
            progress=progress,
            norm=now.norm,
            steps=now.steps,
            stuck=now.stuck | (drifted & ~(size < now.best.residual / 2)) | (stands & is_rounding),
        )


def _rounding(norm: Float[Array, ""], v: Float[Array, " n"]) -> Float[Array, ""]:
    """A bound of the rounding error of `A v`: ten times `eps |A| |v|`."""
    return 10 * eps_of(v) * norm * _length(v)


def _length(v: Float[Array, " n"]) -> Float[Array, ""]:
    """`|v|`."""
    return jnp.sqrt(matmul(v, v))


def _of_length_one(v: Float[Array, " n"]) -> tuple[Float[Array, " n"], Array, Array]:
    """A vector divided by its length, and two numbers with the length as their product."""
    largest = positive_or_one(jnp.max(jnp.abs(v)))
    length = positive_or_one(_length(v / largest))
    return v / largest / length, largest, length


class Determinant(eqx.Module):
    """An estimated log determinant, and the probe vectors.

    Attributes:
        logarithm: the estimate.
        signs: z, independent entries of variance one, (n, count).
    """

    logarithm: Estimate
    signs: Float[Array, "n count"]


class KrylovFactor(AbstractIterativeFactor):
    """Conjugate gradients with one matrix M, which only needs products.

    Attributes:
        operator: M.
        preconditioner: an approximation `L L^T` of M; None for the identity.
        determinant: the determinant of M, if it was requested.
        start: approximate solutions for the columns of right-hand sides, in their order; None for
            zeros.
        iteration: the stopping rule of a solve.
    """

    operator: lx.AbstractLinearOperator
    preconditioner: Preconditioner | None
    determinant: Determinant | None
    start: Float[Array, "n columns"] | None
    iteration: Iteration
    jitter: Array
    exists: Array

    @staticmethod
    def of(
        operator: lx.AbstractLinearOperator,
        preconditioner: Preconditioner | None,
        iteration: Iteration,
        determinant: Determinant | None = None,
        start: Float[Array, "n columns"] | None = None,
    ) -> "KrylovFactor":
        """The factor of any operator, without any computation."""
        return KrylovFactor(
            operator=operator,
            preconditioner=preconditioner,
            determinant=determinant,
            start=start,
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
        start = self.start
        if start is not None:
            # As many columns as B has, padded with columns of zeros.
            missing = max(0, B.shape[1] - start.shape[1])
            start = jnp.pad(start[:, : B.shape[1]].astype(B.dtype), ((0, 0), (0, missing)))
        X, results, steps = jax.vmap(self._column, 1, (1, 0, 0))(B, start)
        return X, (status_of_columns(results), {"steps": jnp.max(steps)})

    def log_determinant(self):
        if self.determinant is None:
            raise ValueError(
                "ConjugateGradient computes no determinant by default: pass "
                "determinant=StochasticLanczos(key)"
            )
        return self.determinant.logarithm.value

    def figures(self):
        if self.determinant is None:
            return {}
        # The log evidence has half of the log determinant.
        logarithm = self.determinant.logarithm
        return {
            "standard_error": logarithm.standard_error / 2,
            "bias_bound": logarithm.bias_bound / 2,
        }

    def probing(self) -> tuple[Float[Array, "n count"], Float[Array, "n count"]]:
        """`L z` and `L^-T z` for the vectors z of the determinant. `tr(M^-1 A)` is the mean of
        `(M^-1 L z).A L^-T z`.
        """
        assert self.determinant is not None
        z = self.determinant.signs
        if self.preconditioner is None:
            return z, z
        of_left = jax.vmap(self.preconditioner.root_times, 1, 1)(z)
        return of_left, jax.vmap(self.preconditioner.solve_root_transposed, 1, 1)(z)

    def columns_of_density(self, y: Float[Array, "n p"]) -> Float[Array, "n columns"]:
        """The right-hand sides for the derivative of a density: y, and `L z` if there is a
        determinant.
        """
        return y if self.determinant is None else jnp.concatenate([y, self.probing()[0]], 1)

    def terms_of_density(self, system, y):
        # As for any inverse P = T^-1, except that tr(P dT) is the mean of (P^T L z).dT L^-T z over
        # the vectors z of the determinant estimate. All columns are solved together.
        factor = stop_gradient(self)
        _, right = factor.probing()
        p = y.shape[1]
        solved = solve_transposed(system, factor, factor.columns_of_density(y))
        b = solved[:, :p]
        u = solved[:, p:]
        a = system.weights.times(b)

        def terms(system: WeightedSystem, y: Array) -> tuple[Array, Array]:
            images = system.apply(jnp.concatenate([a, right], 1))
            of_system = jnp.sum(b * (system.weights.times(y) - images[:, :p]))
            trace = jnp.sum(u * images[:, p:]) / u.shape[1]
            return trace, of_system + jnp.sum(a * y)

        return terms

    def covariance_reduction(self, system):
        return KrylovReduction(
            gram=system.gram,
            weights=system.weights.given,
            shift=system.shift,
            preconditioner=stop_gradient(self.preconditioner),
            iteration=self.iteration.no_coarser(system.shift.dtype),
        )

    def accurate_residual(self, dtype):
        return self.iteration.accurate_residual(dtype)

    @property
    def status_if_inaccurate(self):
        return RESULTS.breakdown

    def rounding(self, diagonal):
        # The omitted part r.M^-1 r of the squares, for data from N(0, M).
        least = jnp.min(shift_of(self.operator))
        return self.iteration.tolerance(diagonal.dtype) ** 2 * jnp.sum(diagonal) / least

    def _column(
        self, vector: Float[Array, " n"], start: Float[Array, " n"] | None
    ) -> tuple[Array, Any, Array]:
        """`M^-1 b`, the status in lineax, and the number of steps."""
        # Both are scaled to size one, so that no square below leaves the range of floats.
        b, largest, length = _of_length_one(vector)
        curvature = positive_or_one(jnp.abs(matmul(b, self.operator.mv(b))))
        goal = self.iteration.tolerance(b.dtype) * _length(self._measured(b))
        system = _System(
            multiply=lambda v: self.operator.mv(v) / curvature,
            precondition=self._preconditioned,
            measure=self._measured,
            b=b,
            start=None if start is None else _of_length_one(start)[0],
            goal=goal,
        )
        last = self.iteration.run(system, _VERIFIED_EVERY)
        # x' solves (M / curvature) x' = b, where vector = b length largest.
        x = last.best.x * length / curvature * largest
        return x, self.iteration.status(last.best.residual, last.stuck, goal), last.steps

    def _measured(self, residual: Float[Array, " n"]) -> Float[Array, " n"]:
        """`S r` with the roots of the weights: the residual of `T a = b`, of which this system is
        the symmetric form.
        """
        if isinstance(self.operator, WeightedForm):
            return self.operator.weights.times_roots(residual)
        return residual

    def _preconditioned(self, v: Float[Array, " n"]) -> Float[Array, " n"]:
        return v if self.preconditioner is None else self.preconditioner.solve(v)


class KrylovReduction(AbstractCovarianceReduction):
    """`k(x, X) W P^T k(X, z)`, with one solve for each point.

    Attributes:
        gram: K.
        weights: w, None where they are one.
        shift: (n,).
        preconditioner: the preconditioner, a constant for derivatives.
        iteration: the stopping rule of the solves.
    """

    gram: AbstractGram
    weights: Float[Array, " n"] | None
    shift: Float[Array, " n"]
    preconditioner: Preconditioner | None
    iteration: Iteration

    def own_factor(self):
        form = stop_gradient(self.system.symmetric_form())
        return KrylovFactor.of(form, self.preconditioner, self.iteration)

    def at(self, kernel, X, x, z):
        row = row_at(kernel, X, x)
        other = row if z is x else row_at(kernel, X, z)
        solved = solve_transposed(self.system, self.own_factor(), other[:, None])
        return dot(row, self.system.weights.times(solved)[:, 0])
