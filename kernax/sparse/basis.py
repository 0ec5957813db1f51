"""The basis functions at the points, and the active ones among them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.numerics import matmul, positive_or_one, stop_gradient


class Basis(eqx.Module):
    """The values of m functions at n points, each divided by its norm over the weighted points.

    With a flat hyperprior the evidence does not depend on that norm, but rounding does.

    Attributes:
        columns: `phi_j(x_i) / scale_j`.
        scales: `sqrt(sum_i w_i phi_j(x_i)^2)`, treated as constants by derivatives; one where it is
            0.
        allowed: which functions may become active: not those that are zero at all points that
            count, nor those of removed points.
        has_bias: whether the first function is the constant 1. The others are `k(., x_j)`.
    """

    columns: Float[Array, "n m"]
    scales: Float[Array, " m"]
    allowed: Bool[Array, " m"]
    has_bias: bool = eqx.field(static=True)

    @staticmethod
    def of(K: Float[Array, "n n"], weights: Float[Array, " n"], has_bias: bool) -> "Basis":
        """The functions `k(., x_j)` of the points, preceded by the constant 1 if there is a
        bias.
        """
        present = weights > 0
        functions = K
        if has_bias:
            functions = jnp.append(jnp.ones_like(K[:, :1]), K, 1)
            present = jnp.append(jnp.array([True]), present)
        # The norms, one for a function that is zero, and which functions are zero.
        values = stop_gradient(functions)
        # In units of the largest value: its square, such as that at a removed point, may overflow.
        counted = weights[:, None] > 0
        sizes = positive_or_one(jnp.max(abs(values), 0, where=counted, initial=0))
        parts = jnp.where(counted, values / sizes[None, :], 0)
        norms = jnp.sqrt(matmul(weights, parts**2))
        scales = sizes * positive_or_one(norms)
        is_zero = ~(norms > 0)
        return Basis(functions / scales[None, :], scales, present & ~is_zero, has_bias)


class ActiveFunctions(eqx.Module):
    """The active functions of a relevance vector machine, in M slots, a static number.

    With several classes, a function is active for one of them.

    Attributes:
        column: the column of the basis; 0 where a slot is not used.
        output: the class, 0 if there is only one.
        used: whether the slot holds a function.
        precisions: alpha, the precision of the normal prior of the weight; 1 where not used.
        weights: the posterior means; 0 where not used.
    """

    column: Int[Array, " M"]
    output: Int[Array, " M"]
    used: Bool[Array, " M"]
    precisions: Float[Array, " M"]
    weights: Float[Array, " M"]

    @staticmethod
    def empty(size: int, like: Array) -> "ActiveFunctions":
        """Slots without functions."""
        nothing = jnp.zeros(size, jnp.int32)
        zeros = jnp.zeros(size, like.dtype)
        return ActiveFunctions(nothing, nothing, jnp.zeros(size, bool), zeros + 1, zeros)

    @property
    def deviations(self) -> Float[Array, " M"]:
        """`alpha^-1/2`, the standard deviations of the priors; 0 where not used."""
        return jnp.where(self.used, 1 / jnp.sqrt(self.precisions), 0)

    def at(self, slot: Int[Array, ""]) -> Bool[Array, " M"]:
        """Whether each slot is the one with this number."""
        return jnp.arange(len(self.used), dtype=slot.dtype) == slot

    def candidates(self, outputs: int) -> Int[Array, " M"]:
        """The numbers of the functions among all pairs of columns and classes."""
        return self.column * outputs + self.output

    def design(self, basis: Basis, outputs: int) -> Float[Array, "n c M"]:
        """The derivative of the values of all classes in the weights; 0 where not used."""
        chosen = jnp.where(self.used[None, :], basis.columns[:, self.column], 0)
        classes = jax.nn.one_hot(self.output, outputs, dtype=chosen.dtype)
        return chosen[:, None, :] * classes.T[None]


def values(design: Float[Array, "n c M"], weights: Float[Array, " M"]) -> Float[Array, "n c"]:
    """The values of all classes at the points."""
    return matmul(design, weights)


def slopes(design: Float[Array, "n c M"], residuals: Float[Array, "n c"]) -> Float[Array, " M"]:
    """The derivative in the weights, from that in the values."""
    n, c, size = design.shape
    return matmul(residuals.reshape(-1), design.reshape(n * c, size))


def curved(curvatures: Float[Array, "n c c"], design: Float[Array, "n c M"]) -> Array:
    """`B J` for the blocks B of a second derivative, of shape (n, c, M)."""
    if design.shape[1] == 1:
        return curvatures * design
    return matmul(curvatures, design)


def second_derivative(
    curvatures: Float[Array, "n c c"], design: Float[Array, "n c M"]
) -> Float[Array, "M M"]:
    """`J^T B J`."""
    n, c, size = design.shape
    flat = design.reshape(n * c, size)
    return matmul(flat.T, curved(curvatures, design).reshape(n * c, size))
