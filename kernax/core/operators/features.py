"""Explicit features of kernels: where they are few, solves with them are cheaper than with K."""

import functools
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.boundary import count, dtype_of
from kernax.core.base.functions import as_module
from kernax.core.base.numerics import dot
from kernax.core.kernel.kernel import AbstractKernel, Constant, Scaled, Sum
from kernax.core.operators.operators import LowRankGram


class FeatureMap(AbstractKernel):
    """`phi(x) . phi(z)`, summed over every entry of phi's output.

    phi is a module (a network) or a plain function of a point. Raises ValueError for anything else.
    """

    phi: Callable = eqx.field(converter=as_module)

    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        return dot(self.features(x), self.features(z))

    def features(self, x: PyTree) -> Float[Array, " D"]:
        """Every entry of `phi(x)` in one vector; numbers, integers and booleans as floats."""
        as_floats = lambda leaf: (
            leaf if eqx.is_inexact_array(leaf) else jnp.asarray(leaf).astype(dtype_of(x))
        )
        return jnp.concatenate([as_floats(leaf).ravel() for leaf in jax.tree.leaves(self.phi(x))])


Features = Callable[[PyTree], Float[Array, " D"]]


@functools.singledispatch
def explicit_features(kernel: AbstractKernel) -> Features | None:
    """A function phi of a point with `k(x, z) = phi(x) . phi(z)`, (D,); None where none is known.

    For kernels of one's own: `explicit_features.register(MyKernel)(function)`.
    """
    return None


@explicit_features.register
def _(kernel: FeatureMap) -> Features | None:
    return kernel.features


@explicit_features.register
def _(kernel: Constant) -> Features | None:
    return lambda x: jnp.sqrt(kernel.value)[None]


@explicit_features.register
def _(kernel: Scaled) -> Features | None:
    inner = explicit_features(kernel.kernel)
    if inner is None:
        return None
    return lambda x: jnp.sqrt(kernel.scale) * inner(x)


@explicit_features.register
def _(kernel: Sum) -> Features | None:
    parts = [explicit_features(term) for term in kernel.terms]
    if any(part is None for part in parts):
        return None
    return lambda x: jnp.concatenate([part(x) for part in parts if part is not None])


LowRank = Callable[[PyTree], LowRankGram]


@functools.singledispatch
def low_rank_gram(kernel: AbstractKernel) -> LowRank | None:
    """A function from a stack to its Gram matrix by explicit features; None where none are known.

    For kernels whose Gram matrix is that of features plus a diagonal, such as an approximation by
    inducing points that keeps the variances: `low_rank_gram.register(MyKernel)(function)`. Such a
    kernel adds its diagonal in `k(x, z)` where x and z are one object.
    """
    phi = explicit_features(kernel)
    if phi is None:
        return None

    def of_stack(X: PyTree) -> LowRankGram:
        features = jax.vmap(phi)(X).astype(dtype_of(X))
        return LowRankGram(features, jnp.zeros_like(features, shape=count(X)))

    return of_stack


@low_rank_gram.register
def _(kernel: Scaled) -> LowRank | None:
    inner = low_rank_gram(kernel.kernel)
    if inner is None:
        return None

    def of_stack(X: PyTree) -> LowRankGram:
        gram = inner(X)
        return LowRankGram(jnp.sqrt(kernel.scale) * gram.features, kernel.scale * gram.remainder)

    return of_stack


@low_rank_gram.register
def _(kernel: Sum) -> LowRank | None:
    parts = [low_rank_gram(term) for term in kernel.terms]
    if any(part is None for part in parts):
        return None

    def of_stack(X: PyTree) -> LowRankGram:
        grams = [part(X) for part in parts if part is not None]
        features = jnp.concatenate([gram.features for gram in grams], 1)
        return LowRankGram(
            features, sum((gram.remainder for gram in grams[1:]), grams[0].remainder)
        )

    return of_stack


def has_few_features(kernel: AbstractKernel, X: PyTree) -> bool:
    """Whether a kernel has fewer explicit features than there are points."""
    of_stack = low_rank_gram(kernel)
    if of_stack is None:
        return False
    return eqx.filter_eval_shape(of_stack, X).features.shape[1] < count(X)
