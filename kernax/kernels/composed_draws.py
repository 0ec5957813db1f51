"""Draws of Gaussian processes, as functions, for kernels that core does not know."""

from collections.abc import Callable

import jax
from jaxtyping import Array, Float, Key

from kernax.core.base.numerics import matmul, vectors
from kernax.core.base.parameters import data
from kernax.core.functionals.draws import AbstractDraw, DrawRequest, prior_draw
from kernax.core.kernel.on import On
from kernax.kernels.combinators import Modulated, Warped
from kernax.kernels.dot_product import Linear


class LinearDraw(AbstractDraw):
    """`c.x`, of `Linear`."""

    coefficients: Float[Array, "*draws d"] = data()

    def __call__(self, x):
        return matmul(self.coefficients, x)

    def chosen(self, place):
        return LinearDraw(self.coefficients[place])


@prior_draw.register
def _(kernel: Linear, request: DrawRequest, key: Key[Array, ""]) -> AbstractDraw:
    point, _ = vectors(request.point, request.point)
    return LinearDraw(jax.random.normal(key, (*request.shape, len(point)), point.dtype))


class MappedDraw(AbstractDraw):
    """`f(phi(x))`, of `On(k, where)` and `Warped(k, phi)`."""

    phi: Callable = data()
    draw: AbstractDraw = data()

    def __call__(self, x):
        return self.draw(self.phi(x))

    def chosen(self, place):
        return MappedDraw(self.phi, self.draw.chosen(place))


@prior_draw.register
def _(kernel: On, request: DrawRequest, key: Key[Array, ""]) -> AbstractDraw:
    return MappedDraw(kernel.part, prior_draw(kernel.kernel, request.mapped(kernel.part), key))


@prior_draw.register
def _(kernel: Warped, request: DrawRequest, key: Key[Array, ""]) -> AbstractDraw:
    return MappedDraw(kernel.phi, prior_draw(kernel.kernel, request.mapped(kernel.phi), key))


class ModulatedDraw(AbstractDraw):
    """`g(x) f(x)`, of `Modulated(k, g)`."""

    kernel: Modulated = data()
    draw: AbstractDraw = data()

    def __call__(self, x):
        return self.kernel.f(x) * self.draw(x)

    def chosen(self, place):
        return ModulatedDraw(self.kernel, self.draw.chosen(place))


@prior_draw.register
def _(kernel: Modulated, request: DrawRequest, key: Key[Array, ""]) -> AbstractDraw:
    return ModulatedDraw(kernel, prior_draw(kernel.kernel, request, key))
