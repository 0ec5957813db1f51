"""Products of Gram matrices with vectors, computed in the registers of a GPU."""

import importlib
import os
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.boundary import count
from kernax.core.base.numerics import expand_to
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import diagonal_of
from kernax.core.operators.pairwise.pairwise_sum import is_arithmetic, sum_over_pairs
from kernax.core.operators.pairwise.triton_kernel import SWITCH

# With more vectors than these, matrix products with tiles of K are faster.
_MOST_VECTORS = 8
# Coordinates and parameters; the derivative in a parameter is stored for each row.
_MOST_NUMBERS = 128


def mode() -> str:
    """The method for sums over pairs: "registers" on a GPU for which Triton compiles; "tiles"
    elsewhere, and if the environment variable KERNAX_PAIRS_IN_REGISTERS is 0.
    """
    is_on = os.environ.get(SWITCH, "1") != "0"
    has_registers = is_on and jax.default_backend() == "gpu" and _compiles_for(jax.devices()[0])
    return "registers" if has_registers else "tiles"


@cache
def _compiles_for(device: Any) -> bool:
    """Whether JAX has Triton and this is an NVIDIA device of compute capability 8 or more."""
    is_of_nvidia = "cuda" in device.client.platform_version
    if not is_of_nvidia or int(device.compute_capability.split(".")[0]) < 8:
        return False
    try:
        triton = importlib.import_module("jax.experimental.pallas.triton")
    except ImportError:
        return False
    return hasattr(triton, "CompilerParams") and hasattr(triton, "elementwise_inline_asm")


def product_in_registers(
    kernel: AbstractKernel, X: PyTree, Z: PyTree | None, V: Float[Array, "m p"]
) -> Float[Array, "n p"] | None:
    """`k(X, Z) V`, or `k(X, X) V` with the exact diagonal if Z is None; None if the kernel, its
    points or the device are not suitable.

    A kernel is suitable if it is arithmetic on a few numbers of two vectors of floats.
    """
    how = mode()
    columns = X if Z is None else Z
    (parameters, static) = eqx.partition(kernel, eqx.is_array)
    if how == "tiles" or not _suit(parameters, X, columns, V):
        return None

    def term(theta, row, column):
        (i, x) = row
        (j, z, v) = column
        k = eqx.combine(theta, static)(x, z)
        # The value of a point with itself is exactly k(x, x), which is added below.
        return (jnp.where(i == j, 0, k) if Z is None else k) * v

    # Whole numbers that floats represent exactly.
    places = partial(jnp.arange, dtype=V.dtype)
    rows = (places(count(X)), X)
    others = (places(count(columns)), columns, V)
    if not is_arithmetic(term, parameters, rows, others):
        return None
    # (k(X, Z) V)_i = sum_j k(x_i, z_j) V_j, without the terms i = j if Z is X.
    product = sum_over_pairs(term, parameters, rows, others, interpret=how == "interpreter")
    return product if Z is not None else product + expand_to(diagonal_of(kernel, X), V) * V


def _suit(parameters: PyTree, X: PyTree, Z: PyTree, V: Array) -> bool:
    """Whether points are vectors of floats like V, and a pair is computed from few numbers."""
    leaves = jax.tree.leaves((X, Z))
    if V.dtype not in (jnp.float32, jnp.float64) or V.ndim != 2:
        return False
    if any(leaf.dtype != V.dtype or leaf.ndim != 2 for leaf in leaves):
        return False
    # Indices of points are floats, and those of all numbers of the points are int32.
    n_most = max(count(X), count(Z))
    n_exact = 2 ** (jnp.finfo(V.dtype).nmant + 1)
    n_coordinates = sum(leaf.shape[1] for leaf in jax.tree.leaves(X))
    n_numbers = n_coordinates + sum(leaf.size for leaf in jax.tree.leaves(parameters))
    return (
        min(count(X), count(Z)) > 0
        and n_most < n_exact
        and n_most * (n_coordinates + _MOST_VECTORS) < 2**30
        and 0 < n_numbers <= _MOST_NUMBERS
        and 0 < V.shape[1] <= _MOST_VECTORS
    )
