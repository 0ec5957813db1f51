"""The logarithm of a determinant by products alone: stochastic Lanczos quadrature."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from kernax.core.batching import one_by_one
from kernax.core.numerics import eps_of, positive_or_one
from kernax.core.parameters import check_count

Multiply = Callable[[Float[Array, " n"]], Float[Array, " n"]]

_FEWEST_STEPS = 4  # of which the parts differ by which a quadrature is judged


class AbstractLanczos(eqx.Module):
    """`log |M|`, and traces of products with `M^-1`, by vectors z with `E[z z^T] = I`.

    Attributes:
        steps: of Lanczos's method from each, or as many as there are points.
    """

    steps: eqx.AbstractVar[int]

    @abc.abstractmethod
    def signs(self, n: int, dtype: Any) -> Float[Array, "n probes"]:
        """The vectors z, at least two."""


class StochasticLanczos(AbstractLanczos):
    """`log |M| = E[z.log(M) z]` for vectors z of random signs, each by Gauss quadrature from a few
    steps of Lanczos's method (Ubaru, Chen & Saad 2017).

    The standard error is `sqrt(2 / probes)` times the Frobenius norm of what of `log M` is off its
    diagonal. A preconditioner makes it smaller: only the logarithm of what it leaves is estimated.
    Derivatives use the same vectors, so that with one key the estimate is a smooth function. Takes
    `matfree` (`pip install kernax-toolkit[scale]`).

    Attributes:
        key: the signs depend on it.
        probes: how many vectors.
        steps: of Lanczos's method from each, at least four; n numbers of memory for each of these
            and each vector. With a preconditioner and a noise of a tenth of the variance 12 leave
            less than the signs do (n = 3000), of a hundredth 24; what they leave is in the
            standard error.
    """

    key: Key[Array, ""]
    probes: int = eqx.field(static=True, default=16)
    steps: int = eqx.field(static=True, default=24)

    def __check_init__(self):
        check_count(self.probes, "probes", 2)
        check_count(self.steps, "steps", _FEWEST_STEPS)

    def signs(self, n, dtype):
        return jax.random.rademacher(self.key, (n, self.probes), dtype)


class Estimate(eqx.Module):
    """A number and its standard error."""

    value: Float[Array, ""]
    standard_error: Float[Array, ""]


def log_determinant_by_probes(
    multiply: Multiply, Z: Float[Array, "n count"], steps: int
) -> Estimate:
    """`log |M|` of a positive definite M; NaN where it is not.

    The error counts what the quadrature is off as well, as two quarters of the steps tell; of fewer
    than four steps, which are not all, it is infinite.
    """
    steps = min(steps, len(Z))
    T = jax.vmap(lambda z: _tridiagonal(multiply, z, steps), 1)(Z)
    lengths = jnp.sum(Z**2, 0)
    values = lengths * _first_entry_of_logarithm(T)
    sampling = jnp.var(values, ddof=1) / Z.shape[1]

    whole = jnp.mean(values)
    truncation = 0.0 if steps == len(Z) else _truncation(T, lengths, whole)
    return Estimate(whole, jnp.sqrt(sampling + truncation**2))


def _truncation(
    T: Float[Array, "count k k"], lengths: Float[Array, " count"], whole: Float[Array, ""]
) -> Float[Array, ""]:
    """How far the quadrature may be from its limit, as two quarters of the steps tell."""

    def after(fewer: int) -> Float[Array, ""]:
        return jnp.mean(lengths * _first_entry_of_logarithm(T[:, :fewer, :fewer]))

    steps = T.shape[1]
    if steps < _FEWEST_STEPS:
        return jnp.full_like(whole, jnp.inf)
    return _error_of_limit(after(steps // 2), after((3 * steps) // 4), whole)


def _error_of_limit(first: Array, second: Array, third: Array) -> Float[Array, ""]:
    """How far the third of three numbers is from their limit: at least by the last change, and
    more where changes become smaller slowly, as a geometric series does.
    """
    last = jnp.abs(third - second)
    before = jnp.abs(second - first)
    ratio = jnp.where(last < 0.9 * before, last / positive_or_one(before), 0.9)
    return last * jnp.maximum(1, ratio / (1 - ratio))


def _tridiagonal(multiply: Multiply, z: Float[Array, " n"], steps: int) -> Float[Array, "k k"]:
    """M in the orthonormal basis of `z, M z, M^2 z, ...`."""
    decompose = _matfree().hessenberg(steps, reortho="full", custom_vjp=False)
    with jax.default_matmul_precision("highest"):
        H = decompose(multiply, z).J_small
    # H is tridiagonal up to rounding. Its lower part alone says where the space ends: there a
    # length below the diagonal is nothing but rounding, and all that follows means nothing.
    diagonal = jnp.diagonal(H)
    lengths = jnp.diagonal(H, -1)
    size = jnp.max(jnp.where(jnp.isfinite(diagonal), jnp.abs(diagonal), 0))
    goes_on = jnp.append(jnp.isfinite(diagonal[0]), lengths > 32 * eps_of(H) * size)
    known = jnp.cumprod(goes_on).astype(bool)
    beside_it = jnp.where(known[0], 1, jnp.nan)
    beside = jnp.where(known[1:], lengths, 0)
    on_diagonal = jnp.where(known, diagonal, beside_it)
    return jnp.diag(on_diagonal) + jnp.diag(beside, 1) + jnp.diag(beside, -1)


def _first_entry_of_logarithm(T: Float[Array, "count k k"]) -> Float[Array, " count"]:
    """`e.log(T) e`, e the first unit vector; NaN where T is not positive definite."""
    values, vectors = jax.vmap(lambda T: one_by_one(jnp.linalg.eigh, T))(T)
    logarithms = jnp.log(jnp.where(values > 0, values, jnp.nan))
    return jnp.sum(vectors[:, 0, :] ** 2 * logarithms, 1)


def _matfree() -> Any:
    try:
        from matfree import decomp
    except ImportError:
        raise ImportError(
            "StochasticLanczos needs matfree: pip install 'kernax-toolkit[scale]'"
        ) from None
    return decomp
