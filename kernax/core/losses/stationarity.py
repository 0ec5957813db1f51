"""Values, slopes and stationarity residuals of smooth risks of one class and of several.

A stationarity residual is the residual of a condition of optimality, with a bound on its rounding
error.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.numerics import eps_of, matmul, positive_or_one, stop_gradient
from kernax.core.losses.newton import Stationarity
from kernax.core.operators.cancellation import extra_bits
from kernax.core.operators.operators import AbstractGram


def values_at_points(gram: AbstractGram, a: Float[Array, "n *c"]) -> Float[Array, "n *c"]:
    """`K a`, by `compensated_mv` if a third of the digits cancels and K is dense."""
    plain = gram.mv(a)
    if not gram.is_dense:
        return plain

    def compensated_where_needed(gram, a, plain):
        def careful(a):
            return gram.compensated_mv(a) if a.ndim == 1 else jax.vmap(gram.compensated_mv, 1, 1)(a)

        # Whether a third of the digits of f = K a is lost, from a bound on the terms of the sums.
        # As |K_ij| <= sqrt(K_ii K_jj), |K_ij a_j| sums to at most sqrt(K_ii) sum_j sqrt(K_jj)
        # |a_j|.
        root = jnp.sqrt(abs(gram.diagonal()))
        terms = jnp.max(root) * jnp.max(matmul(root, abs(a)))
        cancels = terms * eps_of(plain) ** (1 / 3) > jnp.max(abs(plain))
        return lax.cond(cancels, careful, lambda _: plain, a)

    # A batch is computed one by one, each with the product that it needs.
    value = sequential_vmap(compensated_where_needed, gram, a, plain)
    # The compensated value, with the derivative of the plain one.
    return plain + (value - stop_gradient(plain))


def unseen(gram: AbstractGram, dtype: Any) -> float:
    """The fraction of the bound `rounding_of_values` that the error of `values_at_points` may
    reach.

    It is 1/16 without the extra digits: errors add up like a random walk, and the bound like a sum.
    """
    return 2.0 ** -extra_bits(gram.in_size(), dtype) if gram.is_dense else 1 / 16


def slope_of_risk(
    gradient: Callable[[Array], Float[Array, "n *c"]],
    f: Float[Array, "n *c"],
    ridge: Float[Array, ""],
    a: Float[Array, "n *c"],
    d: Float[Array, "n *c"],
    Kd: Float[Array, "n *c"],
    d_b: Float[Array, "..."],
) -> Callable[[Array], Float[Array, ""]]:
    """The slope at t of `sum_i w_i L(f_i + t (Kd + d_b)) + ridge/2 (a + t d).K (a + t d)`.

    It is divided by the largest entry of the direction, because products would otherwise over- or
    underflow. `gradient` is that of the losses. Several classes are columns, and d_b a row.
    """
    # With v = Kd + d_b and g at f + t v the slope is g.v + ridge (a + t d).Kd
    # = (ridge (a + t d) + g).Kd + sum g d_b: near the minimum both terms are small.
    unit = jnp.max(abs(Kd)) + jnp.max(abs(d_b))
    unit = positive_or_one(unit)
    v = Kd + d_b
    Kd = Kd / unit
    d_b = d_b / unit

    def slope(t: Float[Array, ""]) -> Float[Array, ""]:
        g = gradient(f + t * v)
        of_norm = ridge * (a + t * d)
        of_coefficients = jnp.sum((of_norm + g) * Kd)
        return of_coefficients + jnp.sum(_over_points(g) * d_b)

    return slope


def rounding_of_values(
    root: Float[Array, "n ..."], a: Float[Array, "n *c"], b: Float[Array, "..."]
) -> Float[Array, "n *c"]:
    """The rounding error of `f = K a + b`: `eps (sqrt(K_ii) sum_j sqrt(K_jj) |a_j| + |b|)`.

    This is a bound, because `|K_ij| <= sqrt(K_ii K_jj)`; `root` is the root of K's diagonal.
    Several classes are columns; root is then a column, and b a row.
    """
    eps = eps_of(a)
    return eps * (root * _over_points(root * abs(a)) + abs(b))


def rounding_of_coefficients(ridge: Float[Array, ""]) -> Float[Array, ""]:
    """The error of `ridge a` if coefficients below the smallest normal float are zero."""
    return ridge * jnp.finfo(ridge.dtype).tiny


def _over_points(v: Float[Array, "n *c"]) -> Float[Array, "..."]:
    """The sum over points: a scalar, or a row with one for each class."""
    return jnp.sum(v, 0, keepdims=v.ndim == 2)


def stationarity_of(
    root: Float[Array, "n ..."],
    of_norm: Float[Array, "n *c"],
    of_loss: Float[Array, "n *c"],
    rounding: Float[Array, "n *c"],
    at_zero: Float[Array, "n *c"],
    bias: bool,
    unseen: float,
) -> Stationarity:
    """The stationarity residual of `of_norm + of_loss = 0` and, with a bias, of `sum of_loss = 0`.

    Each entry is multiplied by `root`, its effect on f. Newton's method accepts a residual of up to
    four times the rounding error, which is therefore limited to `eps^(1/3) / 12` of the terms and
    of the gradient at f = 0. If the `unseen` part of the error exceeds that limit, four times that
    part is added to the residual.
    """
    root = root / jnp.where(jnp.any(root > 0), jnp.max(root), 1)
    stationarity = Stationarity(
        left=jnp.max(root * abs(of_norm + of_loss))[None],
        size=jnp.max(root * (abs(of_norm) + abs(of_loss)))[None],
        rounding=jnp.max(root * rounding)[None],
    )
    if bias:
        # The stationarity residual of `sum of_loss = 0`.
        stationarity_of_sums = Stationarity(
            left=jnp.max(abs(jnp.sum(of_loss, 0))),
            size=jnp.max(jnp.sum(abs(of_loss), 0)),
            rounding=jnp.max(jnp.sum(rounding, 0)),
        )
        stationarity = jax.tree.map(jnp.append, stationarity, stationarity_of_sums)
    # The limits on the rounding of the largest entry and, with a bias, of the sum, which uses the
    # 2-norm of the terms instead of their maximum.
    terms = abs(of_loss) + at_zero
    largest = jnp.max(terms)
    most = eps_of(terms) ** (1 / 3) / 12 * largest
    if bias:
        in_units = terms / positive_or_one(largest)
        length = jnp.sqrt(jnp.sum(in_units**2))
        most = most * jnp.stack([jnp.ones_like(length), length])
    hidden = unseen * stationarity.rounding
    left = stationarity.left + jnp.where(hidden > most, 4 * hidden, 0)
    return Stationarity(left, stationarity.size, jnp.minimum(stationarity.rounding, most))
