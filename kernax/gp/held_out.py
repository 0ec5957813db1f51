"""Leave-one-out predictions of a process, without refits."""

import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PyTree

from kernax._advice import IN_FEATURES
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_noise, cast
from kernax.core.base.compiled import compiled
from kernax.core.base.numerics import eps_of
from kernax.core.base.printing import Printed
from kernax.core.base.solution import Digits, Solution, finish
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.learner_problem import check_problem, nan_where_unknown
from kernax.core.linalg.density import factor_of, rounding_of_inverse
from kernax.core.linalg.factorisation import WeightedSystem
from kernax.core.operators.memory import Footprint
from kernax.gp.means import means_at
from kernax.gp.process import GaussianProcess, as_process

_FOOTPRINT = Footprint("leave_one_out_predictions", 5.0, IN_FEATURES)


class HeldOut(Printed):
    """Leave-one-out predictions: each target given all the others. All arrays have shape (n,).

    Attributes:
        mean: the mean of y_i given the other observations.
        variance: the variance of y_i, noise included.
        log_density: `log p(y_i | the others)`. Its sum is the log pseudo-likelihood, by which
            models can be learned and compared (Rasmussen & Williams 2006, section 5.4.2).

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> prior = kernax.GaussianProcess(kernax.RBF(0.3))
        >>> held_out = kernax.leave_one_out_predictions(prior, X, y, noise=0.01)
        >>> held_out.mean.shape, held_out.variance.shape, held_out.log_density.shape
        ((5,), (5,), (5,))
    """

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    log_density: Float[Array, " n"]


def leave_one_out_predictions(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    noise: ArrayLike,
    *,
    weights: ArrayLike | None = None,
) -> HeldOut:
    """The mean, variance and log density of each y_i under the process conditioned on the others.

    They come from one factorisation. With `P = (W K + noise I)^-1`, W the weights, the mean is `y_i
    - (P^T (y - m))_i / P_ii` and the variance `(K P)_ii / P_ii + noise_i`, which is `1 / P_ii`
    without weights (Rasmussen & Williams 2006, eqs. 5.10-5.12). The weight of a point has no effect
    on its own prediction, so the predictions of points of weight zero are those of held-out points.
    If their targets are NaN, so are their log densities, but not their means and variances.
    For approximate posteriors see `posterior.leave_one_out(y)`.

    Arguments are those of `condition`, with one column of targets. The predictions are
    differentiable in the process, X, y, noise and weights. They are NaN if there is no Cholesky
    factor. A warning is issued if jitter was needed, or if fewer than four digits (two in float32)
    are accurate.

    Raises ValueError for bad shapes or values, and MemoryBudgetError if the matrices do not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> prior = kernax.GaussianProcess(kernax.RBF(0.3))
        >>> held_out = kernax.leave_one_out_predictions(prior, X, y, noise=0.01)
        >>> jnp.round(held_out.mean, 2)
        Array([ 0.64,  0.63,  0.1 , -0.57, -0.82], dtype=float64)
        >>> round(float(held_out.log_density.sum()), 2)
        -2.56
    """
    process = as_process(process)
    problem = check_problem(
        "leave_one_out_predictions",
        process.covariance,
        X,
        y,
        weights,
        one_column="one process for each column, or jax.vmap over them",
        in_features=True,
        diagonal=noise,
        footprint=_FOOTPRINT,
    )
    noise = as_noise(noise, problem.n, problem.dtype)
    solution = _held_out(problem, cast(process.mean, problem.dtype), noise)
    hint = "leave_one_out_predictions: more noise avoids this."
    digits = Digits("the predictions", eps_of(problem.dtype) ** (1 / 4))
    predictions = finish(solution, throw=False, hint=hint, digits=digits).value
    log_density = nan_where_unknown(predictions.log_density, y, problem)
    return HeldOut(predictions.mean, predictions.variance, log_density)


@compiled
def _held_out(problem, mean, noise):
    """The predictions, with the status and stats of the factorisation."""
    system = WeightedSystem.of(problem.gram(), problem.weights, noise)
    factor, result, stats = factor_of(system)
    stats = stats | {"rounding": rounding_of_inverse(system, factor)}
    P = factor.inverse_of(system)
    # y_i - mean_i = (P^T (y - m))_i / P_ii. Without weights K P = I - noise P, so that the variance
    # below, (K P)_ii / P_ii + noise_i, is 1 / P_ii.
    residuals = P.transposed_mv(problem.columns - means_at(mean, problem))[:, 0] / P.diagonal()
    variance = P.diagonal_of_product(system) / P.diagonal() + noise
    return Solution(held_out(problem.y, problem.y - residuals, variance), result, stats)


def held_out(
    y: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
) -> HeldOut:
    """The normal predictions of y."""
    return HeldOut(mean, variance, norm.logpdf(y, mean, jnp.sqrt(variance)))
