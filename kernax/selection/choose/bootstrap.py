"""The bootstrap: how much the result of a fit would vary with other rows."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from kernax.core.base import boundary
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import is_concrete
from kernax.core.base.parameters import check_count
from kernax.core.base.printing import Printed
from kernax.core.base.ranks import checked_coverage
from kernax.selection.optimise.batches import Devices, batched

Bounds = tuple[PyTree[Array], PyTree[Array]]


class Bootstrap(Printed):
    """The result of a bootstrap: a statistic of the fit to all rows, and of fits to rows drawn with
    replacement.

    Intervals are pairs `(low, high)` of pytrees like the estimate, one interval for each number. A
    resample that failed makes them and the standard error NaN: `without_failed()` leaves it out.

    Attributes:
        estimate: the statistic of all rows.
        resampled: the statistic of each resample, along a first axis.
        acceleration: how fast the standard error changes with the estimate, for `bca`; None without
            a jackknife.

    Examples:
        >>> values = jnp.array([1.0, 2.0, 3.0])
        >>> result = kernax.types.Bootstrap(jnp.array(2.0), values, acceleration=None)
        >>> round(float(result.standard_error), 2)
        1.0
    """

    estimate: PyTree[Array]
    resampled: PyTree[Array]
    acceleration: PyTree[Array] | None

    @property
    def failed(self) -> Bool[Array, " resamples"]:
        """Which resamples hold a number that is not finite."""
        leaves = jax.tree.leaves(self.resampled)
        finite = [jnp.all(jnp.isfinite(leaf), tuple(range(1, leaf.ndim))) for leaf in leaves]
        return ~jnp.all(jnp.stack(finite), 0)

    def without_failed(self) -> "Bootstrap":
        """The same without the failed resamples; not under `jit`, since their number is a shape. If
        failure depends on the rows, the others are a biased sample: look at `failed`.

        Raises ValueError if fewer than two remain.
        """
        if not is_concrete(self.resampled):
            raise ValueError("without_failed needs concrete values: call it outside jit and vmap")
        kept = np.flatnonzero(~np.asarray(self.failed))
        if len(kept) < 2:
            raise ValueError(
                f"{len(self.failed) - len(kept)} of {len(self.failed)} resamples failed: look at "
                "the result of one fit, with weights that repeat rows"
            )
        resampled = jax.tree.map(lambda leaf: leaf[kept], self.resampled)
        return Bootstrap(self.estimate, resampled, self.acceleration)

    @property
    def standard_error(self) -> PyTree[Array]:
        """The standard deviation over the resamples."""
        # sqrt(sum_b (t_b - mean)^2 / (B - 1)).
        return jax.tree.map(lambda leaf: jnp.std(leaf, 0, ddof=1), self.resampled)

    @property
    def bias(self) -> PyTree[Array]:
        """The mean over the resamples minus the estimate."""
        return jax.tree.map(
            lambda of_all, leaf: jnp.mean(leaf, 0) - of_all, self.estimate, self.resampled
        )

    def percentile(self, coverage: float = 0.95) -> Bounds:
        """The percentile interval, which contains the central `coverage` of the resamples."""
        # [t_(q), t_(1 - q)], the quantiles of the resampled statistics t*.
        return self._between(lambda leaf, level: jnp.full_like(leaf[0], level), coverage)

    def basic(self, coverage: float = 0.95) -> Bounds:
        """The basic interval, `(2 estimate - high, 2 estimate - low)` of the percentile interval:
        right if the error of the estimate has the same distribution in resamples, rather than its
        value.
        """
        # t* - t has about the distribution of t - truth, so that [t_(q), t_(1-q)] becomes [2 t -
        # t_(1-q), 2 t - t_(q)].
        low, high = self.percentile(coverage)
        mirrored = lambda of_all, bound: 2 * of_all - bound
        return (
            jax.tree.map(mirrored, self.estimate, high),
            jax.tree.map(mirrored, self.estimate, low),
        )

    def bca(self, coverage: float = 0.95) -> Bounds:
        """The bias-corrected and accelerated interval (BCa): percentiles at `Phi(z + (z + q) / (1 -
        a (z + q)))` in place of `Phi(q)`, with `Phi(z)` the share of resamples below the estimate
        (Efron 1987, equation 2.3).

        The error of its coverage is of order 1 / n, that of the others 1 / sqrt(n). It is NaN where
        all resamples are on one side of the estimate. Regularised fits are often biased: like the
        others, this is an interval for the expected fit, not for the truth.

        Raises ValueError without a jackknife.
        """
        if self.acceleration is None:
            raise ValueError("bca needs bootstrap(..., jackknife=True), which makes n more fits")
        return self._between(_corrected, coverage, self.estimate, self.acceleration)

    def _between(self, level_of: Callable[..., Array], coverage: float, *others: PyTree) -> Bounds:
        """Quantiles of the resamples, at levels that may differ for each number of a leaf."""
        # Quantiles at q = (1 - coverage) / 2 and at 1 - q.
        tail = (1 - checked_coverage(coverage)) / 2

        def bound(level: float) -> PyTree[Array]:
            at = lambda leaf, *rest: _quantile(leaf, level_of(leaf, level, *rest))
            return jax.tree.map(at, self.resampled, *others)

        return bound(tail), bound(1 - tail)


def _corrected(leaf: Array, level: float, estimate: Array, acceleration: Array) -> Array:
    """The corrected level, at which the quantile of the resamples is taken."""
    # Phi(z + (z + q) / (1 - a (z + q))), q = Phi^-1(level); equal resamples count one half in z.
    below = (leaf < estimate[None]).astype(leaf.dtype)
    equal = (leaf == estimate[None]).astype(leaf.dtype)
    z = ndtri(jnp.mean(below + equal / 2, 0))
    shifted = z + ndtri(jnp.asarray(level, leaf.dtype))
    corrected = ndtr(z + shifted / (1 - acceleration * shifted))
    return jnp.where(jnp.isfinite(z), corrected, jnp.nan)


def _quantile(leaf: Array, level: Array) -> Array:
    """The quantile at a separate level for each number, linear between order statistics; NaN where
    the level, or any resample, is not finite.
    """
    # t_j + (h - j) (t_(j+1) - t_j) with h = level (B - 1), j = floor(h), t_0 <= ... <= t_(B-1)
    # (Hyndman & Fan 1996, definition 7).
    ordered = jnp.sort(leaf, 0)
    place = level * (len(leaf) - 1)
    below = jnp.floor(jnp.nan_to_num(place))
    first = below.astype(int)
    second = jnp.minimum(first + 1, len(leaf) - 1)
    low, high = (jnp.take_along_axis(ordered, at[None], 0)[0] for at in (first, second))
    value = low + (place - below) * (high - low)
    return jnp.where(jnp.all(jnp.isfinite(leaf), 0), value, jnp.nan)


@renamed(resamples="n_resamples")
def bootstrap(
    fit: Callable[[PyTree, Array, Array], Any],
    statistic: Callable[[Any], PyTree[Array]],
    X: PyTree,
    y: ArrayLike,
    *,
    n_resamples: int,
    key: PRNGKeyArray,
    weights: ArrayLike | None = None,
    jackknife: bool = False,
    devices: Devices | None = None,
    progress: bool = False,
) -> Bootstrap:
    """The bootstrap: a statistic of the fit to all rows, and of fits to rows drawn with
    replacement.

    A row drawn k times gets k times its weight, which equals k rows. All fits therefore have the
    same shapes, and `batched` makes one program of them.

    Arguments:
        fit: `fit(X, y, weights)`, as for `cross_validate`. Define it, and `statistic`, once, at
            module level: new functions are compiled again.
        statistic: `statistic(fitted)`, a number, an array or a pytree of them, such as `lambda f:
            f.values(X_new)`.
        X: a batch of n points of any kind.
        y: (n,) or (n, outputs).
        n_resamples: the number of resamples, at least two: hundreds for a standard error, a
            thousand or more for an interval.
        key: a random key, for the draws.
        weights: (n,) >= 0. Rows of positive weight are drawn, as many as there are, with equal
            probability; a row keeps its weight. Repeat rows that represent several observations,
            since a row is drawn as one.
        jackknife: also fit n times without each row in turn, for the intervals of `bca`.
        devices, progress: as in `batched`.

    Returns:
        A `Bootstrap`, with standard errors and intervals. Rows are drawn as if independent: if rows
        of one time or group are alike, intervals are too short. A fit that fails raises for all;
        with `throw=False` it is NaN, and counted in `failed`. `jax.jit` of a function that calls
        it, without `progress`, makes one program of all.

    Raises:
        ValueError: bad shapes, fewer than two resamples, a statistic that holds no array.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 6)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> def fit(X, y, weights):
        ...     return kernax.kernel_ridge(kernax.RBF(0.3), X, y, ridge=0.1, weights=weights).value
        ...
        >>> def value(f):
        ...     return f(jnp.array([0.4]))
        ...
        >>> key = jax.random.key(0)
        >>> result = kernax.selection.bootstrap(fit, value, X, y, n_resamples=20, key=key)
        >>> bool(result.standard_error > 0)
        True
        >>> result.resampled.shape
        (20,)
    """
    X = boundary.as_stack(X, "X")
    n = boundary.count(X)
    y = jnp.asarray(y)
    if not y.ndim or len(y) != n:
        raise ValueError(f"y must have n = {n} rows, as X has, but has shape {y.shape}")
    n_resamples = check_count(n_resamples, "n_resamples", 2)
    boundary.check_key(key)
    of_rows = boundary.as_weights(weights, n, boundary.dtype_of(X)).values
    # The weights of all fits, one after another: of all rows, of the resamples, and of all rows
    # but one for each row.
    members = [of_rows[None], _drawn(of_rows, n_resamples, key)]
    if jackknife:
        members.append(jnp.where(jnp.eye(n, dtype=bool), 0, of_rows[None]))
    of_member = batched(
        _Statistic(fit, statistic), in_axes=(None, None, 0), devices=devices, progress=progress
    )
    values = of_member(X, y, jnp.concatenate(members))
    estimate = jax.tree.map(lambda leaf: leaf[0], values)
    resampled = jax.tree.map(lambda leaf: leaf[1 : n_resamples + 1], values)
    acceleration = None
    if jackknife:
        of_rest = lambda leaf: _acceleration(leaf[n_resamples + 1 :], of_rows > 0)
        acceleration = jax.tree.map(of_rest, values)
    return Bootstrap(estimate, resampled, acceleration)


def _drawn(weights: Float[Array, " n"], resamples: int, key: PRNGKeyArray) -> Float[Array, "b n"]:
    """The weights of each resample: those of the rows, times how often each row was drawn."""
    n = len(weights)
    known = jnp.sum(weights > 0)
    first_known = jnp.argsort(weights <= 0, stable=True)
    drawn = first_known[jax.random.randint(key, (resamples, n), 0, jnp.maximum(known, 1))]
    # As many draws are left out as there are rows of weight zero.
    taken = (jnp.arange(n) < known).astype(weights.dtype)
    # w_i c_i for row i, c_i the number of times that it was drawn.
    of_resample = lambda rows: jnp.zeros_like(weights).at[rows].add(taken)
    return jax.vmap(of_resample)(drawn) * weights[None]


def _acceleration(left_out: Array, known: Bool[Array, " n"]) -> Array:
    """`sum_i d_i^3 / (6 (sum_i d_i^2)^(3/2))`, `d_i` the mean over the fits without each row minus
    that without row i (Efron 1987, equation 7.3).
    """
    # d_i = mean_j t_(j) - t_(i), t_(i) the statistic without row i, over rows of positive weight.
    column = known.reshape(-1, *[1] * (left_out.ndim - 1))
    mean = jnp.sum(jnp.where(column, left_out, 0), 0) / jnp.sum(known).astype(left_out.dtype)
    d = jnp.where(column, mean[None] - left_out, 0)
    # The quotient has no unit: in units of the largest d no power leaves the range of floats.
    largest = jnp.max(abs(d), 0)
    d = d / jnp.where(largest > 0, largest, 1)[None]
    spread = jnp.sum(d**2, 0)
    return jnp.sum(d**3, 0) / (6 * jnp.where(spread > 0, spread, 1) ** 1.5)


class _Statistic(eqx.Module):
    """The statistic of one fit, as a function of its weights: equal for equal functions, so that it
    is compiled once.
    """

    fit: Callable[[PyTree, Array, Array], Any]
    statistic: Callable[[Any], PyTree[Array]]

    def __call__(self, X: PyTree, y: Array, weights: Array) -> PyTree[Array]:
        value = self.statistic(self.fit(X, y, weights))
        leaves = jax.tree.leaves(value)
        if not leaves or not all(eqx.is_inexact_array(leaf) for leaf in leaves):
            kinds = [str(getattr(leaf, "dtype", type(leaf).__name__)) for leaf in leaves]
            shown = ", ".join(kinds) or "nothing"
            raise ValueError(
                "statistic must return an array of floats, or a pytree of such arrays, such as "
                f"f.values(X_new), but returns {shown}"
            )
        return value
