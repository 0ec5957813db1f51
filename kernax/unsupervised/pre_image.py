"""Pre-images: points with feature vectors near a given function."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.optimize import minimize
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.batching import sequential_vmap
from kernax.core.base.boundary import as_point, cast
from kernax.core.base.compiled import compiled
from kernax.core.base.derivatives import implicit
from kernax.core.base.numerics import eps_of, matmul, positive_or_one, stop_gradient
from kernax.core.base.parameters import as_steps
from kernax.core.base.solution import RESULTS, Solution, finish, first_that_holds, void_unless_known
from kernax.core.kernel.kernel import AbstractStationary
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.linalg.solves import solve_by_lu

METHODS = ("fixed_point", "gradients")


def pre_image(
    f: KernelExpansion,
    start: ArrayLike | None = None,
    *,
    method: str | None = None,
    max_steps: int = 1000,
    throw: bool = True,
) -> Solution[Array]:
    """The pre-image of a function f: the point x that minimises `|k(x, .) - f|^2 = k(x, x) - 2 <f,
    k(x, .)> + |f|^2`.

    The pre-image of the result of `PrincipalComponents.reconstruction` is the denoised point (Mika
    et al. 1999); means of clusters and of samples have pre-images as well. The result is a local
    minimum near the start.

    Arguments:
        f: a function with one output, an expansion over points that are vectors. Its bias has no
            effect.
        start: (d,), by default the point of the expansion with the smallest distance.
        method: "fixed_point", for stationary kernels: minima are weighted means of the points, `x =
            sum_i g_i x_i / sum_i g_i` with `g_i = -c_i dk/ds` (Mika et al. 1999, eq. 10), and a
            step is halved where the distance would rise; or "gradients" (BFGS), for any smooth
            kernel. The default is the first, where it applies.
        max_steps: the largest number of steps of the iteration.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is x, (d,), differentiable in f (its kernel, points and
        coefficients). Stats: `distance`, `steps`, and the `residual`, the length of one more Newton
        step, relative to the spread of the points.

    Raises:
        ValueError: f has several outputs, points are not vectors, or the method does not apply.
        MaxStepsError, BreakdownError: no minimum was found.
        NonFiniteError: see `kernax.errors`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> mean = kernax.samples.mean_embedding(kernax.RBF(1.0), X)
        >>> solution = kernax.pre_image(mean)
        >>> jnp.round(solution.value, 2)
        Array([0.5], dtype=float64)
    """
    if not isinstance(f, KernelExpansion):
        raise ValueError(
            "f must be a KernelExpansion, such as components.reconstruction(components(x)), but is "
            f"of type {type(f).__name__}"
        )
    if f.coefficients.ndim != 1:
        raise ValueError(
            f"pre_image takes one function, but f has outputs of shape {f.bias.shape}: batch over "
            "them with jax.vmap"
        )
    points = f.points
    if not (eqx.is_inexact_array(points) and points.ndim == 2):
        raise ValueError("pre_image needs points that are vectors: those of f are not")
    stationary = isinstance(f.kernel, AbstractStationary)
    if method is None:
        method = "fixed_point" if stationary else "gradients"
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, but is {method!r}")
    if method == "fixed_point" and not stationary:
        raise ValueError(
            f"method='fixed_point' is for stationary kernels, and {type(f.kernel).__name__} is "
            "not: pass method='gradients'"
        )
    most_steps = as_steps(max_steps)
    first = None if start is None else cast(as_point(start), points.dtype)
    if first is not None and jnp.shape(first) != points.shape[1:]:
        raise ValueError(
            f"start must have shape {points.shape[1:]}, but has shape {jnp.shape(first)}"
        )
    solution = _pre_image(f, first, method, most_steps)
    return finish(solution, throw, "pre_image: another start or more max_steps may help.")


class _Distance(eqx.Module):
    """`J(x) = k(x, x) - 2 sum_i c_i k(x, x_i)`, the squared distance minus `|f|^2`."""

    f: KernelExpansion

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        row = jax.vmap(lambda point: self.f.kernel(x, point))(self.f.points)
        return self.f.kernel(x, x) - 2 * matmul(row, self.f.coefficients)

    def weighted_mean(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The step of the fixed point, divided by the absolute value of the sum of its weights, so
        that it always points downhill.
        """
        # k(x, x) is constant, so that -J'(x) = 4 sum_i g_i (x_i - x) / lengthscale^2,
        # g_i = -c_i dk/ds.
        kernel = self.f.kernel
        assert isinstance(kernel, AbstractStationary)
        apart = self.f.points - x[None, :]
        s = jnp.sum((apart / kernel.lengthscale) ** 2, 1)
        slopes = jax.vmap(jax.grad(kernel.of_squared_distance))(s)
        weights = -self.f.coefficients * slopes
        total = jnp.abs(jnp.sum(weights))
        return matmul(weights, apart) / positive_or_one(total)

    def newton_step(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """`-H^-1 J'`; not finite where H is singular."""
        slope = jax.grad(self)(x)
        return -solve_by_lu(jax.hessian(self)(x), slope)


class _Search(eqx.Module):
    """The problem of the search: the objective, the start, and the spread of the points."""

    distance: _Distance
    start: Float[Array, " d"]
    spread: Float[Array, ""]

    @staticmethod
    def of(f: KernelExpansion, start: Array | None) -> "_Search":
        """The search from a start, or from the best point of the expansion."""
        fixed = stop_gradient(f)
        variance = jnp.mean(jnp.var(fixed.points, 0))
        if start is None:
            start = fixed.points[jnp.argmin(lax.map(_Distance(fixed), fixed.points))]
        return _Search(
            distance=_Distance(f),
            start=stop_gradient(start),
            spread=jnp.sqrt(positive_or_one(variance)),
        )


class _PreImageIterate(eqx.Module):
    x: Float[Array, " d"]
    moved: Float[Array, ""]
    steps: Int[Array, ""]

    def at(self, x: Float[Array, " d"]) -> "_PreImageIterate":
        """The state at another point."""
        return _PreImageIterate(x, self.moved, self.steps)


@compiled
def _pre_image(f, start, method, max_steps):
    search = _Search.of(f, start)
    descend = _by_means if method == "fixed_point" else _by_gradients

    def solve(arguments: tuple[_Search, Array]) -> _PreImageIterate:
        search, max_steps = arguments
        end = descend(search, max_steps)
        return end.at(_polished(search.distance, end.x))

    def step(root: _PreImageIterate, arguments: tuple[_Search, Array]) -> _PreImageIterate:
        search, _ = arguments
        return root.at(root.x + search.distance.newton_step(root.x))

    end = implicit(solve, step, (search, max_steps))
    # The status, from the point alone.
    search, x = stop_gradient((search, end.x))
    distance = search.distance
    # |H^-1 J'| / spread.
    residual = jnp.linalg.norm(distance.newton_step(x)) / search.spread
    # x is a minimum if the Newton step vanishes and the second derivatives are positive definite.
    hessian = jax.hessian(distance)(x)
    curves_up = sequential_vmap(jnp.linalg.eigvalsh, hessian)[0] > 0
    is_minimum = (residual <= jnp.sqrt(eps_of(x))) & curves_up
    finite = jnp.all(jnp.isfinite(x)) & jnp.isfinite(distance(x))
    statuses = (
        (~finite, RESULTS.nonfinite),
        (~is_minimum & (end.steps >= max_steps), RESULTS.max_steps_reached),
        (~is_minimum, RESULTS.stagnation),
    )
    result = first_that_holds(statuses, RESULTS.successful)
    # |phi(x) - f|^2 = J(x) + |f|^2.
    square = distance(x) + distance.f.norm**2
    stats = {
        "distance": jnp.sqrt(jnp.maximum(square, 0)),
        "steps": end.steps,
        "residual": residual,
    }
    return Solution(void_unless_known(end.x, result), result, stats)


def _by_means(search: _Search, max_steps: Array) -> _PreImageIterate:
    """The fixed-point iteration, each step halved until the distance does not rise."""
    distance = search.distance
    small = 8 * eps_of(search.start) ** (2 / 3) * search.spread

    def go_on(now: _PreImageIterate) -> Bool[Array, ""]:
        return (now.moved > small) & (now.steps < max_steps)

    def step(now: _PreImageIterate) -> _PreImageIterate:
        # Along the way to the mean, with a length that is halved while the distance rises; x stays
        # if every length raises it.
        way = distance.weighted_mean(now.x)
        value = distance(now.x)

        def rises(t: Array) -> Array:
            too_far = distance(now.x + t * way) > value
            return too_far & (t > 1e-6)

        t = lax.while_loop(rises, lambda t: t / 2, jnp.ones((), now.x.dtype))
        ahead = now.x + t * way
        is_closer = distance(ahead) <= value
        x = jnp.where(is_closer, ahead, now.x)
        moved = jnp.linalg.norm(x - now.x)
        return _PreImageIterate(x, moved, now.steps + 1)

    start = _PreImageIterate(
        x=search.start,
        moved=jnp.asarray(jnp.inf, search.start.dtype),
        steps=jnp.zeros((), jnp.int32),
    )
    return lax.while_loop(go_on, step, start)


def _by_gradients(search: _Search, max_steps: Array) -> _PreImageIterate:
    """BFGS, in units of the spread."""

    def in_units(u: Array) -> Array:
        return search.distance(search.start + search.spread * u)

    # x = start + spread u: BFGS starts from the identity as its inverse Hessian.
    end = minimize(
        in_units,
        jnp.zeros_like(search.start),
        method="BFGS",
        options={"maxiter": max_steps},
    )
    return _PreImageIterate(
        x=search.start + search.spread * end.x,
        moved=jnp.zeros_like(search.spread),
        steps=jnp.asarray(end.nit, jnp.int32),
    )


def _polished(distance: _Distance, x: Float[Array, " d"]) -> Float[Array, " d"]:
    """A few Newton steps, each accepted if it lowers the slope and does not raise the distance."""

    def step(_: Array, x: Array) -> Array:
        ahead = x + distance.newton_step(x)
        # A step counts where the slope is lower ahead and the distance no higher, up to rounding.
        slope = jax.grad(distance)
        flatter = jnp.linalg.norm(slope(ahead)) < jnp.linalg.norm(slope(x))
        # J may be zero, where its terms cancel: its rounding is relative to k(x, x) as well.
        value = distance(x)
        size = jnp.abs(value) + jnp.abs(distance.f.kernel(x, x))
        rounding = 8 * eps_of(x) * size
        is_nearer = flatter & (distance(ahead) <= value + rounding)
        return jnp.where(is_nearer, ahead, x)

    return lax.fori_loop(0, 5, step, x)
