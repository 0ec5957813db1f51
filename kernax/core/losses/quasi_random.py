"""Integrals over a normal distribution of several values, by quasi-random nodes."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.base.numerics import matmul

NODES = 1024


@functools.cache
def _standard_nodes(dimension: int, nodes: int, dtype: Any) -> np.ndarray:
    """Nodes (nodes, dimension) of the standard normal distribution, of equal weight: a Sobol
    sequence, shifted away from zero by half of its resolution.
    """
    from scipy.special import ndtri  # these imports take 0.1 and 0.5 s
    from scipy.stats import qmc

    # The inverse of the normal distribution function maps uniform nodes to normal ones. It is
    # infinite at zero, where the Sobol sequence begins.
    uniform = qmc.Sobol(dimension, scramble=False).random_base2(nodes.bit_length() - 1)
    return ndtri(uniform + 0.5 / nodes).astype(dtype)


def expectation_over_vectors(
    function: Callable[[Float[Array, " c"]], Any],
    mean: Float[Array, " c"],
    root: Float[Array, "c c"],
    nodes: int = NODES,
) -> Any:
    """`E g(f)` for `f ~ N(mean, root root^T)`, for a function g of one vector that returns any
    arrays.

    Errors of softmax probabilities were measured for 20 covariances: with 1024 nodes their median
    is 8e-5 for three classes and 3e-4 for ten, and they are at most 5e-3; with 4096 nodes they are
    half as large.
    """
    points = jnp.asarray(_standard_nodes(len(mean), nodes, mean.dtype))
    values = jax.vmap(lambda z: function(mean + matmul(root, z)))(points)
    return jax.tree.map(lambda value: jnp.mean(value, 0), values)


def checked_nodes(nodes: Any) -> int:
    """A number of nodes. Raises ValueError unless it is a power of two."""
    is_number = isinstance(nodes, (int, np.integer)) and not isinstance(nodes, bool)
    if not is_number or nodes <= 0 or nodes & (nodes - 1):
        raise ValueError(f"n_nodes must be a power of two, such as {NODES}, but is {nodes!r}")
    return int(nodes)
