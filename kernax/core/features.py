"""Kernels that are products of features; few of them make solves as large as they are many, not as the points are."""

from collections.abc import Callable
from typing import ClassVar, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PyTree

from kernax.core.boundary import count, dtype_of
from kernax.core.functions import as_module
from kernax.core.kernel import AbstractKernel
from kernax.core.numerics import dot, is_concrete
from kernax.core.operators import FeatureOperator


class FeatureMap(AbstractKernel):
    """`phi(x) . phi(z)`, summed over every entry of phi's output; phi a module (a network) or a plain function of a point."""

    phi: Callable = eqx.field(converter=as_module)

    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        return dot(self.features(x), self.features(z))

    def features(self, x: PyTree) -> Float[Array, " D"]:
        """Every entry of `phi(x)` in one vector; numbers, integers and booleans as floats."""
        as_floats = lambda leaf: leaf if eqx.is_inexact_array(leaf) else jnp.asarray(leaf).astype(dtype_of(x))
        return jnp.concatenate([as_floats(leaf).ravel() for leaf in jax.tree.leaves(self.phi(x))])


def feature_operator(kernel: FeatureMap, X: PyTree) -> FeatureOperator:
    """The Gram matrix of a `FeatureMap`, by its features."""
    features = jax.vmap(kernel.features)(X)
    return FeatureOperator(features, jnp.zeros_like(features, shape=count(X)))


def has_few_features(kernel: AbstractKernel, X: PyTree, ridge: ArrayLike) -> TypeGuard[FeatureMap]:
    """Whether a solve is cheaper in features: a `FeatureMap` of fewer features than points, and a ridge that is not zero."""
    if not isinstance(kernel, FeatureMap) or (is_concrete(ridge) and not ridge):
        return False
    return eqx.filter_eval_shape(feature_operator, kernel, X).features.shape[1] < count(X)
