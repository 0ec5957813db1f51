"""Steps with penalties that make weights small, or exactly zero."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.numerics import positive_or_one, safe_sqrt, stop_gradient

Number = Float[Array, ""]
Weights = Float[Array, "*D"]


def soft_threshold(w: Weights, length: Array) -> Weights:
    """`sign(w) max(|w| - length, 0)`: the minimiser v of `1/2 |v - w|^2 + length |v|_1`."""
    return jnp.sign(w) * jnp.maximum(abs(w) - length, 0)


def grown_root(root: Weights, gradient: Weights) -> Weights:
    """`sqrt(root^2 + gradient^2)`, without overflow of the squares; its derivative at 0 is 0."""
    # sqrt(r^2 + g^2) = s sqrt((r / s)^2 + (g / s)^2) with s = max(r, |g|).
    scale = positive_or_one(stop_gradient(jnp.maximum(root, abs(gradient))))
    return scale * safe_sqrt((root / scale) ** 2 + (gradient / scale) ** 2)


def adaptive_step(
    w: Weights, gradient: Weights, root: Weights, rate: Number, ridge: Number, l1: Number
) -> Weights:
    """The minimiser over v of `g.v + l1 |v|_1 + ridge/2 |v|^2 + 1/(2 rate) (v - w).H (v - w)`.

    H is the diagonal matrix of `root`, the root of G. The minimiser (Duchi, Hazan & Singer 2011,
    eq. 4) is, element by element, `soft_threshold(h w - g, l1) / (h + ridge)` with `h = H / rate`.
    An element that never had a gradient is zero and stays so: 0 / 0 = 0.
    """
    # The minimum is where h w - g = (h + ridge) v + l1 sign(v), any number of [-1, 1] for sign(0).
    h = root / rate
    moved = soft_threshold(h * w - gradient, l1) / positive_or_one(h + ridge)
    return jnp.where(root == 0, 0, moved)
