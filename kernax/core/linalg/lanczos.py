"""Matrix-free estimates of log determinants: stochastic Lanczos quadrature."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import eps_of, positive_or_one
from kernax.core.base.parameters import check_count

Multiply = Callable[[Float[Array, " n"]], Float[Array, " n"]]

_FEWEST_STEPS = 4  # so that half of them, three quarters and all differ (see `_truncation`)


class AbstractLanczos(eqx.Module):
    """Estimators of `log |M|`, and of traces of products with `M^-1`, by vectors z with `E[z z^T] =
    I`.

    Attributes:
        n_steps: the number of Lanczos steps for each vector, at most the number of points.
    """

    n_steps: eqx.AbstractVar[int]

    @abc.abstractmethod
    def signs(self, n: int, dtype: Any) -> Float[Array, "n probes"]:
        """The vectors z, at least two."""


@renamed(probes="n_probes", steps="n_steps")
class StochasticLanczos(AbstractLanczos):
    """`log |M| = E[z.log(M) z]` for vectors z of random signs, each term by Gauss quadrature from a
    few Lanczos steps (Ubaru, Chen & Saad 2017).

    The standard error is `sqrt(2 / n_probes)` times the Frobenius norm of `log M` without its
    diagonal. A preconditioner reduces it, because only the logarithm of the preconditioned matrix
    is estimated. Derivatives use the same vectors, so that for a fixed key the estimate is a smooth
    function. It needs `matfree` (`pip install kernax-toolkit[scale]`).

    Attributes:
        key: the key for the random signs.
        n_probes: the number of vectors, at least two.
        n_steps: the number of Lanczos steps for each vector, at least four. Each step of each
            vector needs n numbers in memory. The standard error includes the error of the
            quadrature. With a preconditioner and n = 3000, that is below the error of the signs
            from 12 steps on if the noise is a tenth of the variance, and from 24 on if it is a
            hundredth.

    Raises ValueError for fewer probes or steps, and ImportError if matfree is not installed.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> determinant = kernax.solvers.StochasticLanczos(jax.random.key(0), n_probes=8, n_steps=4)
        >>> solver = kernax.solvers.ConjugateGradient(determinant=determinant)
        >>> evidence = kernax.log_marginal_likelihood(kernax.RBF(0.3), X, y, 0.1, solver=solver)
        >>> bool(abs(evidence - kernax.log_marginal_likelihood(kernax.RBF(0.3), X, y, 0.1)) < 5.0)
        True
    """

    key: Key[Array, ""]
    n_probes: int = eqx.field(static=True, default=16)
    n_steps: int = eqx.field(static=True, default=24)

    def __check_init__(self):
        check_count(self.n_probes, "n_probes", 2)
        check_count(self.n_steps, "n_steps", _FEWEST_STEPS)

    def signs(self, n, dtype):
        return jax.random.rademacher(self.key, (n, self.n_probes), dtype)


class Estimate(eqx.Module):
    """A number and its standard error."""

    value: Float[Array, ""]
    standard_error: Float[Array, ""]


def log_determinant_by_probes(
    multiply: Multiply, Z: Float[Array, "n count"], steps: int
) -> Estimate:
    """`log |M|` for a positive definite M; NaN if M is not positive definite.

    The standard error includes the error of the quadrature, estimated from its values after half
    and three quarters of the steps; it is infinite for fewer than four steps, unless n is that
    small.
    """
    steps = min(steps, len(Z))
    T = jax.vmap(lambda z: _tridiagonal(multiply, z, steps), 1)(Z)
    # z.log(M) z is about |z|^2 e.log(T) e, T = Q^T M Q with Q e = z / |z|.
    squared_lengths = jnp.sum(Z**2, 0)
    values = squared_lengths * _first_entry_of_logarithm(T)
    # The variance of a mean of independent values.
    sampling = jnp.var(values, ddof=1) / Z.shape[1]

    whole = jnp.mean(values)
    # With as many steps as points T is M in another basis, and there is no truncation error.
    truncation = 0.0 if steps == len(Z) else _truncation(T, squared_lengths, whole)
    return Estimate(whole, jnp.sqrt(sampling + truncation**2))


def _truncation(
    T: Float[Array, "count k k"], squared_lengths: Float[Array, " count"], whole: Float[Array, ""]
) -> Float[Array, ""]:
    """The possible distance of the quadrature from its limit, from its values after half of the
    steps, after three quarters and after all.
    """

    def after(fewer: int) -> Float[Array, ""]:
        # The leading part of T is the T of fewer steps.
        return jnp.mean(squared_lengths * _first_entry_of_logarithm(T[:, :fewer, :fewer]))

    steps = T.shape[1]
    if steps < _FEWEST_STEPS:
        return jnp.full_like(whole, jnp.inf)
    # The possible distance of the last of three numbers from the limit of their sequence: the last
    # change, or more if changes decrease slowly, as in a geometric series.
    second = after((3 * steps) // 4)
    last = jnp.abs(whole - second)
    before = jnp.abs(second - after(steps // 2))
    ratio = jnp.where(last < 0.9 * before, last / positive_or_one(before), 0.9)
    # The changes d r, d r^2, ... after the last one, d, sum to d r / (1 - r).
    return last * jnp.maximum(1, ratio / (1 - ratio))


def _tridiagonal(multiply: Multiply, z: Float[Array, " n"], steps: int) -> Float[Array, "k k"]:
    """M in the orthonormal basis of `z, M z, M^2 z, ...`."""
    decompose = _matfree().hessenberg(steps, reortho="full", custom_vjp=False)
    with jax.default_matmul_precision("highest"):
        H = decompose(multiply, z).J_small
    # H is tridiagonal up to rounding. The space ends where a number below the diagonal is within
    # rounding; later entries are meaningless.
    diagonal = jnp.diagonal(H)
    off_diagonal = jnp.diagonal(H, -1)
    size = jnp.max(jnp.where(jnp.isfinite(diagonal), jnp.abs(diagonal), 0))
    goes_on = jnp.append(jnp.isfinite(diagonal[0]), off_diagonal > 32 * eps_of(H) * size)
    known = jnp.cumprod(goes_on).astype(bool)
    # Beyond the end T is replaced by the identity, with a logarithm of zero.
    beside_it = jnp.where(known[0], 1, jnp.nan)
    beside = jnp.where(known[1:], off_diagonal, 0)
    on_diagonal = jnp.where(known, diagonal, beside_it)
    return jnp.diag(on_diagonal) + jnp.diag(beside, 1) + jnp.diag(beside, -1)


def _first_entry_of_logarithm(T: Float[Array, "count k k"]) -> Float[Array, " count"]:
    """`e.log(T) e` for the first unit vector e; NaN if T is not positive definite."""
    values, vectors = jax.vmap(lambda T: sequential_vmap(jnp.linalg.eigh, T))(T)
    # T = V diag(l) V^T: e.log(T) e = sum_i V_1i^2 log l_i.
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
