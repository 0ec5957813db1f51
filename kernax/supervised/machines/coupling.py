"""Class probabilities from the probabilities of pairs of classes."""

import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jaxtyping import Array, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_stack, as_targets, dtype_of
from kernax.core.base.compiled import compiled
from kernax.core.base.numerics import eps_of, is_concrete


def pairwise_coupling(r: ArrayLike) -> Float[Array, " c"]:
    """Class probabilities from pairwise ones: the p that minimises `sum_{i < j} (r_ji p_i - r_ij
    p_j)^2` subject to `sum_i p_i = 1`.

    `r[i, j]`, of shape (c, c), is the probability of class i given that the class is i or j, so
    that `r[i, j] + r[j, i] = 1`; the diagonal is ignored. For `r_ij = p_i / (p_i + p_j)` the
    minimiser is p; where pairs contradict each other it is a compromise. This is the second method
    of Wu, Lin & Weng (2004), Probability estimates for multi-class classification by pairwise
    coupling. It is differentiable in r. For many matrices use `jax.vmap`.

    Raises ValueError for another shape, and for values that are not probabilities of pairs. Traced
    values are not checked.

    Examples:
        >>> r = jnp.array([[0.5, 0.6, 0.75], [0.4, 0.5, 2 / 3], [0.25, 1 / 3, 0.5]])
        >>> jnp.round(kernax.calibration.pairwise_coupling(r), 3)
        Array([0.5  , 0.333, 0.167], dtype=float64)
    """
    shape = np.shape(r)
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 2:
        raise ValueError(
            "r must hold the probabilities of pairs of at least two classes, shape (c, c), but has "
            f"shape {shape}: use jax.vmap for many matrices"
        )
    dtype = dtype_of(as_stack(r, "r", finite=False))
    given = as_targets(r, shape[0], dtype, "r", finite=False)
    # The matrix with zeros on its diagonal.
    r = jnp.where(jnp.eye(len(given), dtype=bool), 0, given)
    if is_concrete(r):
        values = np.asarray(r)
        off = ~((values >= 0) & (values <= 1)) | ~(np.abs(values + values.T - 1) <= 8 * eps_of(r))
        np.fill_diagonal(off, False)
        if off.any():
            i, j = np.argwhere(off)[0]
            raise ValueError(
                "r[i, j] and r[j, i] must be probabilities that sum to one, but "
                f"r[{i}, {j}] is {values[i, j]:g} and r[{j}, {i}] is {values[j, i]:g}"
            )
    return _coupled(r)


@compiled
def _coupled(r):
    # The objective is p' Q p. It vanishes only where no two entries of p have opposite signs, and
    # there the sum is not zero, so that Q + 1 1' is positive definite, and p is the multiple of
    # (Q + 1 1')^-1 1 of sum one.
    Q = jnp.diag(jnp.sum(r * r, axis=0)) - r * r.T
    p = jax.scipy.linalg.solve(Q + 1, jnp.ones_like(r, shape=len(r)), assume_a="pos")
    # The minimiser is non-negative (theorem 2 there): clip negative rounding.
    p = jnp.where(p < 0, 0, p)
    return p / jnp.sum(p)
