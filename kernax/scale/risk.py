"""The risk of a function over centres, and its minimum by Newton's method.

`F(a) = sum_i w_i L(y_i, f_i) + ridge/2 a.K_mm a`, `f = K_nm a`. Newton's steps are solved by
conjugate gradients with products over the rows; nothing of size n m is held.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kernax.core.losses import AbstractSmoothLoss, Squared
from kernax.core.numerics import chosen, matmul, positive_or_one
from kernax.core.solution import RESULTS, first_that_holds
from kernax.core.solves import solve_lower
from kernax.scale.normal_equations import solve_normal_equations
from kernax.scale.preconditioner import Preconditioner
from kernax.scale.rows import AbstractRows, Tile

_LENGTHS = 0.5 ** np.array([0, 1, 2, 4, 6, 9, 14, 20])  # of a step, of which one is taken
_MOST_NEWTON_STEPS = 100
_ROWS_OF_SQUARE = 1024  # at a time, in matrix products


def _gradient_part(tile: Tile, known: Any) -> Any:
    """`K^T g` with `g = w L'(y, f)`, and the sum of `w L`, of each column."""
    loss, a = known
    f = tile.values(a)
    g = tile.weighted(loss.derivative(tile.y, f))
    return tile.pulled(g), jnp.sum(tile.weighted(loss(tile.y, f)), 0)


def _product_part(tile: Tile, known: Any) -> Any:
    """`K^T H K V` with `H = w L''(y, f)`."""
    loss, a, V = known
    h = tile.weighted(loss.curvature(tile.y, tile.values(a)))
    return tile.pulled(h * tile.values(V))


def _square_part(tile: Tile, known: Any) -> Any:
    """`K^T H K`, H that of the first column."""
    loss, a = known
    y = tile.y[:, :1]
    h = tile.weighted(loss.curvature(y, tile.values(a[:, :1])))
    return matmul((h * tile.cross).T, tile.cross)


def _whitened_square_part(tile: Tile, known: Any) -> Any:
    """`L^-1 K^T H K L^-T`, and the sum of weights."""
    loss, a, lower = known
    y = tile.y[:, :1]
    h = tile.weighted(loss.curvature(y, tile.values(a[:, :1])))
    rows = (jnp.sqrt(h) * tile.cross).T
    white = solve_lower(lower, rows.astype(lower.dtype))
    return matmul(white, white.T), jnp.sum(tile.weights)


def _slope_part(tile: Tile, known: Any) -> Any:
    """`sum w L'(y, f + t v) v`, `v = K d`, for each length t of a step."""
    loss, a, d, lengths = known
    f = tile.values(a)
    v = tile.values(d)
    slope = lambda t: jnp.sum(tile.weighted(loss.derivative(tile.y, f + t * v) * v))
    return jnp.stack([slope(t.astype(f.dtype)) for t in lengths])


def _size_part(tile: Tile, known: Any) -> Any:
    """The sums of `w L'(y, 0)^2`, for each column, `w L''(y, 0)` and w."""
    nothing = jnp.zeros_like(tile.y)
    squares = tile.weighted(known.derivative(tile.y, nothing) ** 2)
    curvature = jnp.mean(tile.weighted(known.curvature(tile.y, nothing)), 1)
    return jnp.sum(squares, 0), jnp.sum(curvature), jnp.sum(tile.weights)


class Point(eqx.Module):
    """Coefficients a, and what was computed there."""

    a: Float[Array, "m p"]
    gradient: Float[Array, "m p"]
    losses: Float[Array, " p"]  # `sum w L` of each column
    P: Preconditioner
    left: Float[Array, ""]  # the length of Newton's step from here, relative to `Risk.size`


class Risk(eqx.Module):
    """F, as a function of a.

    Attributes:
        rows: of all points.
        sample: some of them, for the preconditioner; None for all.
        loss: L, of one column unless it is quadratic.
        gram: `K_mm`, with its jitter.
        lower: its factor.
        eps: the rounding unit of K_nm.
    """

    rows: AbstractRows
    sample: AbstractRows | None
    loss: AbstractSmoothLoss
    ridge: Float[Array, ""]
    gram: Float[Array, "m m"]
    lower: Float[Array, "m m"]
    eps: float = eqx.field(static=True)

    @property
    def quadratic(self) -> bool:
        """Whether F is, so that one Newton step leads to its minimum."""
        return isinstance(self.loss, Squared)

    def gradient(self, a: Float[Array, "m p"]) -> tuple[Float[Array, "m p"], Float[Array, " p"]]:
        """F'(a), and the sum of the losses."""
        pulled, losses = self.rows.total(_gradient_part, (self.loss, a))
        return pulled + self.ridge * matmul(self.gram, a), losses

    def product(self, a: Float[Array, "m p"], V: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """`F''(a) V`."""
        pulled = self.rows.total(_product_part, (self.loss, a, V))
        return pulled + self.ridge * matmul(self.gram, V)

    def preconditioner(self, a: Float[Array, "m p"], weight: Float[Array, ""]) -> Preconditioner:
        """That of F''(a); `weight` is the sum of all weights."""
        if self.sample is None:
            square = self.rows.total(_square_part, (self.loss, a), _ROWS_OF_SQUARE)
            return Preconditioner.of_square(square, self.lower, self.ridge)
        known = self.loss, a, self.lower
        square, part = self.sample.total(_whitened_square_part, known, _ROWS_OF_SQUARE)
        share = weight / positive_or_one(part)
        return Preconditioner.of_whitened(share * square, self.lower, self.ridge)

    def slopes(self, point: Point, d: Float[Array, "m p"]) -> Float[Array, " lengths"]:
        """The slope of F at each of `_LENGTHS` along d, after that at the point itself."""
        lengths = jnp.asarray(np.append(0, _LENGTHS), d.dtype)
        slopes = self.rows.total(_slope_part, (self.loss, point.a, d, lengths))
        image = matmul(self.gram, d)
        return slopes + self.ridge * (jnp.sum(point.a * image) + lengths * jnp.sum(d * image))


class Size(eqx.Module):
    """What a residual is compared with.

    Attributes:
        targets: `sqrt(sum_i w_i L'(y_i, 0)^2 / h)`, h the mean curvature at zero, for each column:
            for squares `sqrt(sum_i w_i y_i^2)`.
        weight: the sum of weights.
    """

    targets: Float[Array, " p"]
    weight: Float[Array, ""]

    @staticmethod
    def of(risk: Risk) -> "Size":
        squares, curvature, weight = risk.rows.total(_size_part, risk.loss)
        mean = curvature / positive_or_one(weight)
        return Size(jnp.sqrt(squares / positive_or_one(mean)), weight)


class _Progress(eqx.Module):
    """Newton's method after some steps."""

    point: Point
    steps: Int[Array, ""]
    products: Int[Array, ""]
    stuck: Bool[Array, ""]
    finite: Bool[Array, ""]


class Minimum(eqx.Module):
    """How the iteration ended; P is at the last a."""

    a: Float[Array, "m p"]
    P: Preconditioner
    result: Any
    stats: dict[str, Array]


def minimise(risk: Risk, shape: tuple[int, int], rtol: float | None, max_steps: int) -> Minimum:
    """The minimum of F, by Newton's method with conjugate gradients.

    Success is decided by the gradient at the last a, computed anew.
    """
    method = _Newton(risk, Size.of(risk), max_steps, *_tolerances(risk, rtol))
    start = method.start(shape)
    end = risk.rows.repeat(method.go_on, method.step, start)
    point = end.point
    norm = jnp.sum(point.a * matmul(risk.gram, point.a), 0)
    objective = point.losses + risk.ridge / 2 * norm
    stats = {"steps": end.steps, "products": end.products}
    stats |= {"residual": point.left, "objective": objective}
    return Minimum(point.a, point.P, method.ending(end), stats)


def _tolerances(risk: Risk, rtol: float | None) -> tuple[float, float]:
    """The residual to stop at, and that to accept where no step lowers it further."""
    eps = risk.eps
    return (eps**0.5 / 16, eps**0.5) if rtol is None else (rtol, rtol)


class _Newton(eqx.Module):
    """Newton's method for one risk."""

    risk: Risk
    size: Size
    max_steps: int = eqx.field(static=True)
    goal: float = eqx.field(static=True)
    bar: float = eqx.field(static=True)

    def start(self, shape: tuple[int, int]) -> _Progress:
        """At zero; of squares, where P is the Hessian itself, one step further."""
        risk = self.risk
        nothing = jnp.zeros(shape, risk.gram.dtype)
        P = risk.preconditioner(nothing, self.size.weight)
        point = self._at(nothing, P)
        if risk.quadratic and risk.sample is None:
            step = -P.solve(point.gradient)
            point = self._at(jnp.where(jnp.isfinite(step), step, 0), P)
        no_step = jnp.zeros((), jnp.int32)
        finite = jnp.isfinite(point.left)
        return _Progress(point, no_step, no_step, jnp.array(False), finite)

    def _at(self, a: Float[Array, "m p"], P: Preconditioner) -> Point:
        """What is known at a."""
        gradient, losses = self.risk.gradient(a)
        length = P.length_of_step(gradient)
        whole = jnp.maximum(self.size.targets, P.length(a))
        return Point(a, gradient, losses, P, jnp.max(length / positive_or_one(whole)))

    def go_on(self, now: _Progress) -> Bool[Array, ""]:
        more = (now.steps < _MOST_NEWTON_STEPS) & (now.products < self.max_steps)
        return (now.point.left > self.goal) & ~now.stuck & now.finite & more

    def ending(self, end: _Progress) -> Any:
        """How it ended, from the last point alone where that is close."""
        point = end.point
        endings = (
            (~jnp.all(jnp.isfinite(point.gradient)), RESULTS.nonfinite),
            (~point.P.exists, RESULTS.not_psd),
            (~(end.finite & jnp.isfinite(point.left)), RESULTS.nonfinite),
            (point.left <= self.bar, RESULTS.successful),
            (end.products >= self.max_steps, RESULTS.max_steps_reached),
            (end.stuck, RESULTS.inaccurate),
        )
        return first_that_holds(endings, RESULTS.max_steps_reached)

    def step(self, now: _Progress) -> _Progress:
        """One step: as exact as it is of use, shortened where F would rise."""
        risk = self.risk
        point = now.point
        d, products = solve_normal_equations(
            lambda V: risk.product(point.a, V),
            point.P,
            -point.gradient,
            self._forcing(point.left),
            self.max_steps - now.products,
            risk.rows.repeat,
        )
        a = point.a + self._length(point, d) * d
        P = point.P if risk.quadratic else risk.preconditioner(a, self.size.weight)
        return self._judged(now, self._at(a, P), products)

    def _forcing(self, left: Float[Array, ""]) -> Float[Array, ""]:
        """How exactly to solve for a step: for a quadratic F as exactly as is asked for."""
        needed = self.goal / 4 / left
        return needed if self.risk.quadratic else jnp.maximum(needed, jnp.minimum(0.1, left))

    def _length(self, point: Point, d: Float[Array, "m p"]) -> Float[Array, ""]:
        """The longest step at whose end F falls, or rises a tenth as fast as it fell at first."""
        if self.risk.quadratic:
            return jnp.ones((), d.dtype)
        slopes = self.risk.slopes(point, d)
        fits = (slopes[1:] <= abs(slopes[0]) / 10) | ~(slopes[0] < 0)  # false for NaN
        first = jnp.where(jnp.any(fits), jnp.argmax(fits), len(_LENGTHS) - 1)
        return jnp.asarray(_LENGTHS, d.dtype)[first]

    def _judged(self, now: _Progress, after: Point, products: Array) -> _Progress:
        """The point a step leads to; that before it where it should help, and does not."""
        before = now.point
        finite = jnp.all(jnp.isfinite(after.a)) & jnp.isfinite(after.left)
        must_help = jnp.asarray(self.risk.quadratic) | (before.left <= self.bar)
        worse = must_help & ~(after.left < before.left)
        slow = must_help & ~(after.left < before.left / 2)
        point = chosen(worse | ~finite, before, after)
        return _Progress(point, now.steps + 1, now.products + products, slow, finite)
