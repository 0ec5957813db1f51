"""Kernels with explicit features; if there are few, solves with them are cheaper than with K."""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.boundary import count, dtype_of
from kernax.core.base.functions import function_field
from kernax.core.base.numerics import dot
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.operators.operators import LowRankGram


class FeatureMap(AbstractKernel):
    """`phi(x) . phi(z)`, summed over all entries of phi's output.

    phi is a module (a network) or a plain function of a point. Raises ValueError for anything else.

    Examples:
        >>> k = kernax.FeatureMap(lambda x: jnp.array([1.0, x[0], x[0] ** 2]))
        >>> float(k(jnp.array([2.0]), jnp.array([3.0])))  # 1 + 6 + 36
        43.0
    """

    phi: Callable = function_field()

    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        return dot(self.features(x), self.features(z))

    def features(self, x: PyTree) -> Float[Array, " D"]:
        """All entries of `phi(x)` in one vector; numbers, integers and booleans as floats."""
        as_floats = lambda leaf: (
            leaf if eqx.is_inexact_array(leaf) else jnp.asarray(leaf).astype(dtype_of(x))
        )
        return jnp.concatenate([as_floats(leaf).ravel() for leaf in jax.tree.leaves(self.phi(x))])

    def explicit_features(self):
        return self.features


def low_rank_gram(kernel: AbstractKernel) -> Callable[[PyTree], LowRankGram] | None:
    """A function from a batch to its Gram matrix by features; None without known features."""
    of_stack = kernel.low_rank()
    return None if of_stack is None else lambda X: LowRankGram(*of_stack(X))


def has_few_features(kernel: AbstractKernel, X: PyTree) -> bool:
    """Whether a kernel has fewer explicit features than there are points."""
    # Looked up in the class, as equinox would make a module of a method of a kernel in every call.
    of_stack = type(kernel).low_rank(kernel)
    if of_stack is None:
        return False
    features, _ = eqx.filter_eval_shape(of_stack, X)
    return features.shape[1] < count(X)
