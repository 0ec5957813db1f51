"""Draws from `GP(0, k)` as functions of a point."""

import abc
import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from kernax.core.base.numerics import matmul, safe_sqrt, vectors
from kernax.core.base.parameters import data
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel, Scaled, Sum
from kernax.core.kernel.on import On
from kernax.core.kernel.spectral_densities import AbstractSpectral


class AbstractDraw(eqx.Module):
    """Several random functions, with values (*draws) at a point."""

    @abc.abstractmethod
    def __call__(self, x: PyTree) -> Float[Array, "*draws"]:
        """The values at one point, which is not checked."""

    @abc.abstractmethod
    def select(self, index: Any) -> "AbstractDraw":
        """The draws at an index of their first axis: an integer, a slice or an array."""


class FourierDraw(AbstractDraw):
    """`sum_j c_j cos(2 pi w_j.x) + s_j sin(2 pi w_j.x)`; each draw has m frequencies of its own.

    Attributes:
        frequencies: w, (*draws, m, d), in cycles per unit of x.
        cosines, sines: c and s, (*draws, m).
    """

    frequencies: Float[Array, "*draws m d"] = data()
    cosines: Float[Array, "*draws m"] = data()
    sines: Float[Array, "*draws m"] = data()

    def __call__(self, x):
        x, _ = vectors(x, x, self.frequencies.reshape(-1, self.frequencies.shape[-1])[0])
        angles = 2 * jnp.pi * matmul(self.frequencies, x)
        return jnp.sum(self.cosines * jnp.cos(angles) + self.sines * jnp.sin(angles), -1)

    def select(self, index):
        return FourierDraw(self.frequencies[index], self.cosines[index], self.sines[index])


class FeatureDraw(AbstractDraw):
    """`phi(x).c`, for a kernel with explicit features phi.

    Attributes:
        kernel: `phi(x).phi(z)`.
        coefficients: c, (*draws, D).
    """

    kernel: AbstractKernel = data()
    coefficients: Float[Array, "*draws D"] = data()

    def __call__(self, x):
        phi = self.kernel.explicit_features()
        assert phi is not None
        return matmul(self.coefficients, phi(x))

    def select(self, index):
        return FeatureDraw(self.kernel, self.coefficients[index])


class SumDraw(AbstractDraw):
    """The sum of independent draws."""

    terms: tuple[AbstractDraw, ...]

    def __call__(self, x):
        values = [term(x) for term in self.terms]
        return sum(values[1:], values[0])

    def select(self, index):
        return SumDraw(tuple(term.select(index) for term in self.terms))


class ScaledDraw(AbstractDraw):
    """`root f(x)`."""

    root: Float[Array, ""] = data()
    draw: AbstractDraw = data()

    def __call__(self, x):
        return self.root * self.draw(x)

    def select(self, index):
        return ScaledDraw(self.root, self.draw.select(index))


class MappedDraw(AbstractDraw):
    """`f(phi(x))`, of `k(phi(x), phi(z))`."""

    phi: Callable = data()
    draw: AbstractDraw = data()

    def __call__(self, x):
        return self.draw(self.phi(x))

    def select(self, index):
        return MappedDraw(self.phi, self.draw.select(index))


class PartOf(eqx.Module):
    """The part of a point that a kernel `On` compares, as a function that files can hold."""

    kernel: On = data()

    def __call__(self, x: PyTree) -> PyTree:
        return self.kernel.part(x)


class DrawRequest(eqx.Module):
    """A request for random functions: how many, and of what kind of points.

    Attributes:
        points: a batch; all points have the shapes and dtypes of its first point.
        shape: the axes of the draws.
        frequencies: the number of frequencies of a draw if the kernel has a spectral density.
    """

    points: PyTree
    shape: tuple[int, ...] = eqx.field(static=True)
    frequencies: int = eqx.field(static=True)
    advice: str = eqx.field(static=True, default="")

    @property
    def point(self) -> PyTree:
        """The first point."""
        return points_at(self.points, 0)

    def mapped(self, function: Callable) -> "DrawRequest":
        """The request for draws as functions of `function(x)`."""
        points = jax.tree.map(lambda leaf: leaf[None], function(self.point))
        return DrawRequest(points, self.shape, self.frequencies, self.advice)


@functools.singledispatch
def prior_draw(kernel: AbstractKernel, request: DrawRequest, key: Key[Array, ""]) -> AbstractDraw:
    """Draws from `GP(0, kernel)`, differentiable in the kernel for a fixed key.

    If the kernel has explicit features, the draws are exact. If it has a spectral density, each
    draw has its own random frequencies (Rahimi & Recht 2007): its mean and covariance are exact,
    and its joint distribution at several points approaches a normal one with more frequencies.
    Terms of a sum are drawn independently.

    For your own kernels use `prior_draw.register(MyKernel)(function)`. Raises ValueError for a
    kernel with neither explicit features nor a spectral density.
    """
    if kernel.explicit_features() is not None:
        return features_draw(kernel, request, key)
    if isinstance(kernel, AbstractSpectral):
        point, _ = vectors(request.point, request.point)
        of_frequencies, of_amplitudes = jax.random.split(key)
        draws = math.prod(request.shape)

        def one(key: Array) -> tuple[Array, Array]:
            return kernel.sample_frequencies(request.frequencies, len(point), key=key)

        frequencies, weights = jax.vmap(one)(jax.random.split(of_frequencies, draws))
        normal = jax.random.normal(of_amplitudes, (2, *weights.shape), weights.dtype)
        # With c_j and s_j ~ N(0, weights_j) the covariance given the frequencies is
        # sum_j weights_j cos(2 pi w_j.(x - z)), and k(x, z) is its mean.
        amplitudes = safe_sqrt(weights)[None] * normal
        in_shape = lambda array: array.reshape(*request.shape, *array.shape[1:])
        return FourierDraw(in_shape(frequencies), in_shape(amplitudes[0]), in_shape(amplitudes[1]))
    raise ValueError(
        f"{type(kernel).__name__} has neither a known spectral density nor known explicit "
        f"features, so its draws cannot be functions of any point{request.advice}"
    )


def features_draw(
    kernel: AbstractKernel, request: DrawRequest, key: Key[Array, ""]
) -> AbstractDraw:
    """Draws from `GP(0, kernel)` for a kernel with explicit features."""
    phi = kernel.explicit_features()
    assert phi is not None
    form = eqx.filter_eval_shape(phi, request.point)
    shape = (*request.shape, *form.shape)
    # phi(x).c with c ~ N(0, I) has the covariance phi(x).phi(z).
    normal = jax.random.normal(key, shape, form.dtype)
    return FeatureDraw(kernel, normal)


@prior_draw.register
def _(kernel: Scaled, request: DrawRequest, key: Key[Array, ""]) -> AbstractDraw:
    # sqrt(scale) f has the covariance scale k.
    return ScaledDraw(safe_sqrt(kernel.scale), prior_draw(kernel.kernel, request, key))


@prior_draw.register
def _(kernel: Sum, request: DrawRequest, key: Key[Array, ""]) -> AbstractDraw:
    # The sum of independent draws of GP(0, k_i) is a draw of GP(0, sum_i k_i).
    keys = jax.random.split(key, len(kernel.terms))
    return SumDraw(tuple(prior_draw(term, request, k) for term, k in zip(kernel.terms, keys)))


@prior_draw.register
def _(kernel: On, request: DrawRequest, key: Key[Array, ""]) -> AbstractDraw:
    return mapped_draw(kernel.kernel, PartOf(kernel), request, key)


def mapped_draw(
    kernel: AbstractKernel, phi: Callable, request: DrawRequest, key: Key[Array, ""]
) -> AbstractDraw:
    """Draws of `f(phi(x))` with `f ~ GP(0, kernel)`."""
    return MappedDraw(phi, prior_draw(kernel, request.mapped(phi), key))
