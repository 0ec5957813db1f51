"""Kernels with few explicit features: solves as large as the features are many, not as the points are."""

from collections.abc import Callable
from typing import TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, ArrayLike, Float, PyTree

from kernax.core.boundary import count
from kernax.core.kernel import AbstractKernel, as_module
from kernax.core.numerics import dot, is_concrete, product


class FeatureMap(AbstractKernel):
    """`phi(x) . phi(z)`, summed over every entry of phi's output; phi a module (a network) or a plain function of a point."""

    phi: Callable

    def __init__(self, phi: Callable):
        self.phi = as_module(phi)

    def __call__(self, x, z):
        return dot(self.phi(x), self.phi(z))


class FeatureOperator(lx.AbstractLinearOperator):
    """`F F^T + diag(shift)`, F (n, features): never a matrix of n^2 numbers."""

    features: Float[Array, "n d"]
    shift: Float[Array, " n"]

    def mv(self, vector):
        return product(self.features, product(vector, self.features)) + self.shift * vector

    def as_matrix(self):
        return product(self.features, self.features.T) + jnp.diag(self.shift)

    def transpose(self):
        return self

    def in_structure(self):
        return jax.ShapeDtypeStruct(self.shift.shape, self.shift.dtype)

    def out_structure(self):
        return self.in_structure()


def tell_lineax(operator: type[lx.AbstractLinearOperator], diagonal: Callable) -> None:
    """The facts about the operators of Gram matrices: symmetric and positive semidefinite, of no sparser structure."""
    for fact in (lx.is_symmetric, lx.is_positive_semidefinite):
        fact.register(operator)(lambda _: True)
    for fact in (
        lx.is_diagonal,
        lx.is_tridiagonal,
        lx.has_unit_diagonal,
        lx.is_lower_triangular,
        lx.is_upper_triangular,
        lx.is_negative_semidefinite,
    ):
        fact.register(operator)(lambda _: False)
    tag = lx.positive_semidefinite_tag
    lx.linearise.register(operator)(lambda operator: operator)
    lx.conj.register(operator)(lambda operator: operator)
    lx.materialise.register(operator)(lambda operator: lx.MatrixLinearOperator(operator.as_matrix(), tag))
    lx.diagonal.register(operator)(diagonal)


tell_lineax(FeatureOperator, lambda operator: jnp.sum(operator.features**2, 1) + operator.shift)


def feature_operator(kernel: FeatureMap, X: PyTree) -> FeatureOperator:
    """The Gram matrix of a `FeatureMap`, by its features."""
    leaves = jax.tree.leaves(jax.vmap(kernel.phi)(X))
    features = jnp.concatenate([leaf.reshape(count(X), -1) for leaf in leaves], 1)
    return FeatureOperator(features, jnp.zeros_like(features, shape=count(X)))


def has_few_features(kernel: AbstractKernel, X: PyTree, ridge: ArrayLike) -> TypeGuard[FeatureMap]:
    """Whether a solve is cheaper in features: a `FeatureMap` of fewer features than points, and a ridge that is not zero."""
    if not isinstance(kernel, FeatureMap) or (is_concrete(ridge) and not ridge):
        return False
    return eqx.filter_eval_shape(feature_operator, kernel, X).features.shape[1] < count(X)
