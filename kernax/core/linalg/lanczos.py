"""Matrix-free estimates of log determinants: stochastic Lanczos quadrature."""

import abc
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.batching import sequential_vmap
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import eps_of, stop_gradient
from kernax.core.base.parameters import check_count

Multiply = Callable[[Float[Array, " n"]], Float[Array, " n"]]

_FEWEST_STEPS = 4  # so that rounding can be estimated (see `_rounding`)


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
    """`log |M| = E[z.log(M) z]` for vectors z of random signs, each term by quadrature from a few
    Lanczos steps (Ubaru, Chen & Saad 2017).

    Gauss quadrature is above each term, and Gauss-Radau quadrature with a node below all
    eigenvalues is below it (Golub & Meurant 2010, chapter 6). The estimate is their middle. Half of
    their distance, with rounding, is `bias_bound` in the stats of a process: the exact mean over
    the same vectors is that close. It is infinite if no positive lower bound of the eigenvalues is
    known, because there is no noise, or because the noise is within rounding.

    The `standard_error` beside it is that of the random signs alone: for `log |M|`, `sqrt(2 /
    n_probes)` times the Frobenius norm of `log M` without its diagonal. A preconditioner reduces
    it, because only the logarithm of the preconditioned matrix is estimated. Derivatives use the
    same vectors, so that for a fixed key the estimate is a smooth function. It needs `matfree`
    (`pip install kernax-toolkit[scale]`).

    Attributes:
        key: the key for the random signs.
        n_probes: the number of vectors, at least two.
        n_steps: the number of Lanczos steps for each vector, at least four. Each step of each
            vector needs n numbers in memory. More steps reduce `bias_bound`. With a preconditioner
            and n = 3000, the error of the quadrature is below the error of the signs from 12 steps
            on if the noise is a tenth of the variance, and from 24 on if it is a hundredth.

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
    """A mean over random vectors, computed by quadrature, with its two errors.

    Attributes:
        value: the estimate.
        standard_error: the standard error of the mean over random vectors, without the error of the
            quadrature.
        bias_bound: a bound of the error of the quadrature: the exact mean over the same vectors
            lies in `value +- bias_bound`.
    """

    value: Float[Array, ""]
    standard_error: Float[Array, ""]
    bias_bound: Float[Array, ""]

    def plus(self, known: Float[Array, ""]) -> "Estimate":
        """The estimate of a sum of this number and a known one."""
        return Estimate(known + self.value, self.standard_error, self.bias_bound)


class _Krylov(eqx.Module):
    """`T = Q^T M Q` for an orthonormal basis Q of the span of `z, M z, M^2 z, ...`.

    Attributes:
        T: tridiagonal; beyond the end of the space a diagonal of numbers between its eigenvalues.
        next_entry: the entry of T below its last one, after one more step; zero if the space ended.
        omitted: the entry below the diagonal that was set to zero at the end of the space.
        asymmetry: the sum of squares of the entries of `Q^T M Q - T` above the diagonal, which are
            rounding errors.
        pairs: the number of these entries.
    """

    T: Float[Array, "k k"]
    next_entry: Float[Array, ""]
    omitted: Float[Array, ""]
    asymmetry: Float[Array, ""]
    pairs: Float[Array, ""]


def log_determinant_by_probes(
    multiply: Multiply, Z: Float[Array, "n count"], steps: int, least: ArrayLike = 0.0
) -> Estimate:
    """`log |M|` for a positive definite M; NaN if M is not positive definite.

    The logarithm has negative derivatives of even order and positive ones of odd order. Therefore
    Gauss quadrature is above `z.log(M) z`, and Gauss-Radau quadrature with a node below all
    eigenvalues is below it (Golub & Meurant 2010, chapter 6). The value is their middle, which is
    nearer than Gauss quadrature if `least` is close. `bias_bound` includes rounding, to first
    order.

    Arguments:
        least: a lower bound of the eigenvalues of M. If it is zero or within rounding,
            `bias_bound` is infinite and the value is that of Gauss quadrature, unless the steps
            exhaust the space.
    """
    n, count = Z.shape
    steps = min(steps, n)
    krylov = jax.vmap(lambda z: _krylov(multiply, z, steps), 1)(Z)
    squared_lengths = jnp.sum(Z**2, 0)
    # z.log(M) z is about |z|^2 e.log(T) e, T = Q^T M Q with Q e = z / |z|.
    nodes, weights = _quadrature(krylov.T)
    above = squared_lengths * jnp.sum(weights * jnp.log(nodes), 1)

    # T is exact for a matrix M + E. Entries of a random E have the size of its asymmetric part, and
    # |E| is at most about 2 sqrt(n) times that. It is also at least a few eps |M|, and at least the
    # difference if an eigenvalue of T is below all eigenvalues of M.
    entries = jnp.sqrt(jnp.sum(krylov.asymmetry) / jnp.maximum(jnp.sum(krylov.pairs), 1))
    within_eps = 8 * eps_of(nodes) * jnp.max(nodes)
    beyond = jnp.maximum(least - jnp.min(nodes), 0)
    error = 2 * math.sqrt(n) * entries + within_eps + jnp.max(krylov.omitted) + 2 * beyond
    rounding = stop_gradient(error)
    end = least - rounding
    # Without a lower end any number below the nodes serves, because the result is not used.
    node = jnp.where(end > 0, end, stop_gradient(jnp.min(nodes)) / 2)
    extended = jax.vmap(_with_last_node, (0, None))(krylov, node)
    nodes, weights = _quadrature(extended)
    known = (end > 0) | (krylov.next_entry == 0)
    below = squared_lengths * jnp.sum(weights * jnp.log(nodes), 1)
    below = jnp.where(known & ~jnp.isnan(below), below, -jnp.inf)
    # |z.log(M + E) z - z.log(M) z| <= |E| z.M^-1 z, to first order, because the derivative of log
    # is the integral of (M + t)^-1 E (M + t)^-1 over t > 0.
    inverses = jnp.where(known, squared_lengths * jnp.sum(weights / nodes, 1), jnp.inf)
    slack = rounding * inverses + 8 * eps_of(Z) * jnp.abs(above)

    middle = jnp.where(jnp.isfinite(below), (above + below) / 2, above)
    half_widths = jnp.where(jnp.isnan(above), jnp.nan, (above - below) / 2 + slack)
    # The variance of a mean of independent values.
    standard_error = jnp.sqrt(jnp.var(middle, ddof=1) / count)
    return Estimate(jnp.mean(middle), standard_error, jnp.mean(half_widths))


def _krylov(multiply: Multiply, z: Float[Array, " n"], steps: int) -> _Krylov:
    """The result of Lanczos's method, with full reorthogonalisation."""
    decompose = _matfree().hessenberg(steps, reortho="full", custom_vjp=False)
    with jax.default_matmul_precision("highest"):
        found = decompose(multiply, z)
        # With as many steps as points nothing is left.
        whole = steps == len(z)
        last = jnp.zeros_like(z[0]) if whole else jnp.linalg.norm(found.residual)
    # H is tridiagonal up to rounding. The space ends where a number below the diagonal is within
    # rounding; later entries are meaningless.
    H = found.J_small
    diagonal = jnp.diagonal(H)
    off_diagonal = jnp.append(jnp.diagonal(H, -1), last)
    size = jnp.max(jnp.where(jnp.isfinite(diagonal), jnp.abs(diagonal), 0))
    goes_on = jnp.append(jnp.isfinite(diagonal[0]), off_diagonal > 32 * eps_of(H) * size)
    reached = jnp.cumprod(goes_on).astype(bool)
    known = reached[:-1]
    subdiagonal = jnp.where(reached[1:], off_diagonal, 0)
    # Beyond the end the diagonal repeats z.M z / |z|^2, which has no weight in the quadrature.
    T = jnp.diag(jnp.where(known, diagonal, jnp.where(known[0], diagonal[0], jnp.nan)))
    T = T + jnp.diag(subdiagonal[:-1], 1) + jnp.diag(subdiagonal[:-1], -1)
    both_known = jnp.triu(known[:, None] & known[None, :], 1)
    return _Krylov(
        T=T,
        next_entry=subdiagonal[-1],
        omitted=jnp.sum(jnp.where(known & ~reached[1:], off_diagonal, 0)),
        asymmetry=jnp.sum(jnp.where(both_known, H - T, 0) ** 2),
        pairs=jnp.sum(both_known, dtype=H.dtype),
    )


def _with_last_node(krylov: _Krylov, end: Float[Array, ""]) -> Float[Array, "m m"]:
    """T with one more row, such that it has the eigenvalue `end`, which is below its others."""
    T = krylov.T
    # The last entry is end + d, (T - end I) x = next_entry^2 e_k and d = x_k. With the Cholesky
    # factor C of T - end I that is (next_entry / C_kk)^2.
    C = jnp.linalg.cholesky(T - end * jnp.eye(len(T), dtype=T.dtype))
    d = (krylov.next_entry / C[-1, -1]) ** 2
    # If the space ended before, the row adds nothing.
    last = jnp.where(krylov.next_entry > 0, end + d, T[0, 0])
    extended = jnp.pad(T, (0, 1)).at[-1, -1].set(last)
    return extended.at[-1, -2].set(krylov.next_entry).at[-2, -1].set(krylov.next_entry)


def _quadrature(
    T: Float[Array, "count k k"],
) -> tuple[Float[Array, "count k"], Float[Array, "count k"]]:
    """Nodes l and weights w with `e.f(T) e = sum_i w_i f(l_i)` for the first unit vector e. Nodes
    that are not positive are NaN.
    """
    values, vectors = jax.vmap(lambda T: sequential_vmap(jnp.linalg.eigh, T))(T)
    # T = V diag(l) V^T: e.f(T) e = sum_i V_1i^2 f(l_i).
    return jnp.where(values > 0, values, jnp.nan), vectors[:, 0, :] ** 2


def _matfree() -> Any:
    try:
        from matfree import decomp
    except ImportError:
        raise ImportError(
            "StochasticLanczos needs matfree: pip install 'kernax-toolkit[scale]'"
        ) from None
    return decomp
