"""Standard normal vectors from one random key: independent, orthogonal or quasi-random.

In all cases each vector alone is standard normal, so that a mean over the vectors is unbiased. They
differ in the dependence between vectors, and so in the variance of that mean.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, PRNGKeyArray

from kernax.core.base.batching import sequential_vmap

# A function of a key, a number of vectors, their length d, a number of further entries and a dtype,
# which returns (count, d + further).
NormalDraw = Callable[[PRNGKeyArray, int, int, int, Any], Float[Array, "count m"]]


def independent(
    key: PRNGKeyArray, count: int, dim: int, further: int, dtype: Any
) -> Float[Array, "count m"]:
    """Independent vectors."""
    of_vectors, of_further = jax.random.split(key)
    vectors = jax.random.normal(of_vectors, (count, dim), dtype)
    rest = jax.random.normal(of_further, (count, further), dtype)
    return jnp.concatenate([vectors, rest], 1)


def orthogonal(
    key: PRNGKeyArray, count: int, dim: int, further: int, dtype: Any
) -> Float[Array, "count m"]:
    """Vectors that are orthogonal, in groups of `dim`, in their first `dim` entries: rows of a
    uniformly drawn orthogonal matrix, times the lengths of independent normal vectors (Yu, Suresh,
    Choromanski, Holtmann-Rice & Kumar 2016, section 3). Further entries are independent.
    """
    if dim < 2:
        return independent(key, count, dim, further, dtype)

    def rotation(normal: Float[Array, "d d"]) -> Float[Array, "d d"]:
        # Q is uniformly distributed for a triangular factor with a positive diagonal (Mezzadri
        # 2007).
        Q, R = jnp.linalg.qr(normal)
        return Q * jnp.where(jnp.diagonal(R) < 0, -1, 1)[None, :]

    of_directions, of_lengths = jax.random.split(key)
    blocks = -(-count // dim)
    squares = jax.random.normal(of_directions, (blocks, dim, dim), dtype)
    directions = lax.map(lambda square: sequential_vmap(rotation, square), squares)
    plain = independent(of_lengths, count, dim, further, dtype)
    # |w| q with w normal and q a row of an orthogonal matrix.
    lengths = jnp.sqrt(jnp.sum(plain[:, :dim] ** 2, 1, keepdims=True))
    return plain.at[:, :dim].set(lengths * directions.reshape(-1, dim)[:count])


def quasi_random(
    key: PRNGKeyArray, count: int, dim: int, further: int, dtype: Any
) -> Float[Array, "count m"]:
    """Quantiles at the first points of a Sobol sequence, whose digits are scrambled by random
    triangular matrices and a random shift (Matousek 1998), so that each point is uniform.

    Use a power of two as the count for the best accuracy.
    """
    columns = dim + further
    if not columns:
        return jnp.zeros((count, 0), dtype)
    digits = jnp.asarray(_sobol_digits(count, columns))
    # The middle of the interval of numbers that share the digits of a float.
    kept = min(_DIGITS, jnp.finfo(dtype).nmant)
    # `L x + s` in the binary digits of each column: L lower triangular with ones on its diagonal,
    # its other entries and s random.
    of_matrices, of_shifts = jax.random.split(key)
    rows = jax.random.bits(of_matrices, (_DIGITS, columns), jnp.uint32)
    shift = jax.random.bits(of_shifts, (columns,), jnp.uint32)

    def with_digit(place, total):
        # Some of the digits above this one, and this one itself.
        place = jnp.asarray(place, jnp.uint32)
        one = jnp.left_shift(jnp.uint32(1), place)
        above = ~(one | (one - jnp.uint32(1)))
        mask = (rows[place] & above) | one
        parity = lax.population_count(digits & mask[None, :]) & jnp.uint32(1)
        return total | jnp.left_shift(parity, place)

    product = lax.fori_loop(0, _DIGITS, with_digit, jnp.zeros_like(digits))
    shortened = jnp.right_shift(product ^ shift[None, :], jnp.uint32(_DIGITS - kept))
    between_zero_and_one = (shortened.astype(dtype) + 0.5) * 2.0**-kept
    # Phi^-1(u) is standard normal for a uniform u.
    return ndtri(between_zero_and_one)


@functools.lru_cache(maxsize=4)  # sequences of a large problem need as much memory as its features
def _sobol_digits(count: int, columns: int) -> np.ndarray:
    """The first points of the sequence, as fractions of 2^32."""
    from scipy.stats import qmc  # importing it takes half a second

    exponent = max(count - 1, 0).bit_length()
    points = qmc.Sobol(columns, scramble=False).random_base2(exponent)[:count]
    return (points * 2.0**32).astype(np.uint32)


_DIGITS = 32


NORMAL_DRAWS: dict[str, NormalDraw] = {
    "independent": independent,
    "orthogonal": orthogonal,
    "quasi_random": quasi_random,
}


def normal_draw(name: Any) -> NormalDraw:
    """The draw with that name. Raises ValueError for any other name."""
    if not isinstance(name, str) or name not in NORMAL_DRAWS:
        names = ", ".join(map(repr, NORMAL_DRAWS))
        raise ValueError(f"draw must be one of {names}, but is {name!r}")
    return NORMAL_DRAWS[name]
