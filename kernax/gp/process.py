"""Gaussian processes: a mean function and a kernel, closed under conditioning."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Key, PyTree

from kernax.core.boundary import as_point, as_scalar, cast, check_key, check_one_point, count, dtype_of
from kernax.core.density import cholesky
from kernax.core.functions import as_module
from kernax.core.gram import gram
from kernax.core.kernel import AbstractKernel, as_kernel
from kernax.core.memory import check_memory
from kernax.core.numerics import dot, product
from kernax.core.parameters import data, real
from kernax.core.preparation import prepare
from kernax.core.sharding import compiled
from kernax.core.solution import RESULTS, Solution, Suspect, finish
from kernax.core.solvers import factorise, solve_lower
from kernax.core.support import REAL


class FixedMean(eqx.Module):
    """`m(x) = value`, not learned."""

    value: Float[Array, "*outputs"] = data()

    def __call__(self, x: PyTree) -> Array:
        return self.value


class ConstantMean(eqx.Module):
    """`m(x) = value`, a parameter."""

    value: Float[Array, ""] = real(default=0.0)

    def __call__(self, x: PyTree) -> Array:
        return self.value


class LinearMean(eqx.Module):
    """`m(x) = slope . x + value`, both parameters; slope has one entry per dimension."""

    slope: Float[Array, " d"] = real()
    value: Float[Array, ""] = real(default=0.0)

    def __call__(self, x: PyTree) -> Array:
        if np.shape(x) != np.shape(self.slope):
            shapes = f"LinearMean.slope has shape {np.shape(self.slope)}, but points have shape {np.shape(x)}"
            raise ValueError(f"{shapes}: pass one slope per dimension")
        return dot(self.slope, x) + self.value


class ShiftedMean(eqx.Module):
    """`m(x) = prior(x) + update(x)`."""

    prior: Callable
    update: Callable

    def __call__(self, x: PyTree) -> Array:
        return self.prior(x) + self.update(x)


class PosteriorKernel(AbstractKernel):
    """`k(x, z) - v(x).v(z)`, `v(x) = L^-1 S k(X, x)`: the covariance of a process with kernel k once values at X are known.

    L is the Cholesky factor of `S K S + diag(noise)`, S the square roots of the weights. Nothing in it is a parameter: learn
    by differentiating through `condition`.

    Attributes:
        prior: the kernel k.
        points: X, a stack of n points.
        lower: L, (n, n).
        roots: the diagonal of S (n,), None for ones.
        gains: where a weight w is zero, `w / noise` (n,): nothing, but with a derivative. An observation of weight w at p takes
            `w c(x, p) c(p, z) / noise` away to first order, which the square root of w cannot tell.
        cross: `L^-1 S K` (n, n), where there are gains.
    """

    prior: AbstractKernel = data()
    points: PyTree = data()
    lower: Float[Array, "n n"] = data()
    roots: Float[Array, " n"] | None = data(default=None)
    gains: Float[Array, " n"] | None = data(default=None)
    cross: Float[Array, "n n"] | None = data(default=None)

    def __call__(self, x, z):
        u, left = self._explained(x)
        v, right = (u, left) if z is x else self._explained(z)  # a variance takes one solve, not two
        value = self.prior(x, z) - dot(u, v)
        if self.gains is None or left is None or right is None:
            return value
        return value - dot(self.gains * left, right)

    def _explained(self, x: PyTree) -> tuple[Float[Array, " n"], Float[Array, " n"] | None]:
        """v(x), `|v(x)|^2` being what the observations explain of the variance at x; and where there are gains, c(x, X)."""
        row = jax.vmap(lambda point: self.prior(point, x))(self.points)
        v = solve_lower(self.lower, row if self.roots is None else self.roots * row)
        return v, None if self.cross is None else row - product(v, self.cross)


class GaussianProcess(eqx.Module):
    """`f ~ GP(mean, kernel)`: a mean function and a covariance, which is itself a kernel.

    A prior is made with `GaussianProcess(kernel, mean)`; `condition` returns another process. Nothing here adds noise: the
    variance of a target is `process.variance(x) + noise`.

    Attributes:
        covariance: the kernel; `gram(process.covariance, X)` is the covariance matrix of the values at X.
        mean: a function of one point; `jax.vmap(process.mean)(X)` for a stack. A number means that constant, which is not
            learned; `ConstantMean` and `LinearMean` are, and any module or plain function of a point will do.
    """

    covariance: AbstractKernel
    mean: Callable

    def __init__(self, kernel: AbstractKernel, mean: Callable | ArrayLike = 0.0):
        self.covariance = as_kernel(kernel)
        self.mean = as_mean(mean)

    def variance(self, x: PyTree) -> Float[Array, ""]:
        """`Var f(x)` at one point, without noise, never negative; `jax.vmap(process.variance)(X)` for a stack."""
        x, covariance = as_point(x), self.covariance
        if isinstance(covariance, PosteriorKernel):
            check_one_point(x, covariance.points)
        dtype = covariance.lower.dtype if isinstance(covariance, PosteriorKernel) else dtype_of(x)
        return _variance(cast(covariance, dtype), cast(x, dtype))

    def sample(self, X: PyTree, *, key: Key[Array, ""], shape: tuple[int, ...] = (), throw: bool = True) -> Float[Array, "..."]:
        """Joint draws of f at a stack of n points, shape (*shape, n), or (*shape, n, outputs) if the mean has several.

        Differentiable in the process for a fixed key. A covariance that is singular to rounding, as that of smooth kernels
        is, is drawn from with jitter no larger than 1e-4 of the prior variance.

        Raises NotPSDError, NonFiniteError if there is no Cholesky factor: with `throw=False` the draws are NaN instead.
        ValueError for what is no key or no shape. MemoryBudgetError.
        """
        check_key(key)
        if not isinstance(shape, (tuple, list)) or not all(isinstance(size, (int, np.integer)) and size >= 0 for size in shape):
            raise ValueError(f"shape must be a tuple of integers, such as (5,), but is {shape!r}")
        covariance, X = prepare(self.covariance, X)
        check_memory(X, verb="sample")
        solution = _sample(covariance, self.mean, X, key, tuple(shape))
        suspect = Suspect("the covariance", count(X), lambda: gram(covariance, X))
        return finish(solution, throw, "GaussianProcess.sample", quiet=True, suspect=suspect).value


def as_mean(mean: Any) -> Callable:
    """A mean as a module: numbers are constants that are not learned."""
    if isinstance(mean, type):
        raise ValueError(f"mean must be a number or a function of a point, but is the class {mean.__name__}: call it")
    if callable(mean):
        return as_module(mean)
    if not eqx.is_array_like(mean):
        raise ValueError(f"mean must be a number or a function of a point, but is {mean!r}")
    return FixedMean(as_scalar(mean, jnp.result_type(mean, float), "mean", REAL))


@compiled
def _variance(covariance, x):
    return jnp.maximum(covariance(x, x), 0)


@compiled
def _sample(covariance, mean, X, key, shape):
    K = gram(covariance, X)
    factor = factorise(lx.MatrixLinearOperator(jax.lax.stop_gradient(K)), _prior_variance(covariance, X))
    L = cholesky(K, factor)
    centre = jax.vmap(cast(mean, K.dtype))(X)
    normal = jax.random.normal(key, (*shape, len(K), *centre.shape[1:]), K.dtype)
    draws = jnp.einsum("ij,...jo->...io", L, normal.reshape(*shape, len(K), -1), precision="highest").reshape(normal.shape)
    value = jnp.broadcast_to(centre, draws.shape) + jnp.where(factor.exists, draws, jnp.nan)
    finite = RESULTS.where(jnp.all(jnp.isfinite(K)), RESULTS.not_psd, RESULTS.nonfinite)
    return Solution(value, RESULTS.where(factor.exists, RESULTS.successful, finite), {"jitter": factor.jitter})


def _prior_variance(covariance, X):
    """The scale that rounding errors have: not that of a posterior, which may be tiny."""
    while isinstance(covariance, PosteriorKernel):
        covariance = covariance.prior
    return jnp.mean(jax.vmap(lambda x: covariance(x, x))(X))
