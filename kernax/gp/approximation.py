"""Normal approximations of posteriors for any likelihood: shared checks, and their classes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_point, as_scalar, cast
from kernax.core.base.compiled import compiled, compiled_call
from kernax.core.base.intervals import REAL
from kernax.core.base.parameters import data
from kernax.core.base.printing import Printed, described
from kernax.core.base.solution import RESULTS, Solution, first_that_holds, void_unless_known
from kernax.core.base.weights import PointWeights, UnitWeights
from kernax.core.learner.learner_problem import LearnerProblem, check_problem
from kernax.core.linalg.factorisation import AbstractFactor, WeightedSystem
from kernax.core.losses.loss_functions import (
    NAMES_OF_LIKELIHOODS,
    AbstractLikelihood,
    as_targets_of,
    check_convex,
)
from kernax.core.losses.observation_likelihoods import Categorical, Shifted
from kernax.core.operators.memory import Footprint
from kernax.core.operators.operators import AbstractGram
from kernax.gp.held_out import HeldOut
from kernax.gp.heteroscedastic_likelihood import HeteroscedasticGaussian
from kernax.gp.means import means_at, updated_mean
from kernax.gp.posterior import point_for, posterior_kernel
from kernax.gp.process import GaussianProcess, as_process

ADVICE = "targets that the likelihood allows, a mean near them or a smaller variance"


class ApproximatePosterior(Printed):
    """An approximate posterior: a process over the latent function f, and a likelihood of y.

    Its methods take one point; `jax.vmap(posterior.predict)(X)` takes a batch of points. They
    integrate over f(x) in closed form or by the trapezoid rule, and are differentiable.

    Attributes:
        process: the approximation of the posterior of f, a `GaussianProcess`.
        likelihood: p(y | f).
        log_evidence: the approximation of `log p(y | X)`; maximise it to learn hyperparameters.
        precisions, slopes: the parameters of the normal factors (sites) that approximate the
            likelihoods of the n observations: minus the second derivative of a factor's logarithm,
            and its first derivative at the posterior mean. None after `svgp`, which has no factor
            for each observation.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> prior = kernax.GaussianProcess(4.0 * kernax.RBF(0.3))
        >>> posterior = kernax.laplace(prior, X, y, kernax.likelihoods.Bernoulli()).value
        >>> jax.vmap(posterior.probability)(X).shape
        (5,)
        >>> round(float(posterior.log_evidence), 2)
        -3.16
    """

    process: GaussianProcess
    likelihood: AbstractLikelihood
    log_evidence: Float[Array, ""] = data()
    precisions: Float[Array, " n"] | None = data()
    slopes: Float[Array, " n"] | None = data()

    def predict(self, x: PyTree) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mean and the variance of y at x; signs have the mean `p(+1) - p(-1)`, and ordered
        classes count from 0.
        """
        return compiled_call(self.likelihood.predicted_moments, *self._latent(x))

    def log_density(self, x: PyTree, y: ArrayLike) -> Float[Array, ""]:
        """`log p(y | x)`, the logarithm of the mean of p(y | f(x))."""
        mean, variance = self._latent(x)
        targets = jnp.asarray(as_scalar(y, mean.dtype, "y", REAL))[None]
        unit = UnitWeights(1, mean.dtype)
        y = as_targets_of(self.likelihood, targets, 1, mean.dtype, unit, both_signs=False)[0]
        return compiled_call(self.likelihood.log_normaliser, y, mean, variance)

    def probability(self, x: PyTree) -> Float[Array, "*c"]:
        """The probability of +1 at x; of ordered classes that of each class, (classes,). Raises
        ValueError where targets are neither signs nor classes.
        """
        if self.likelihood.targets == "ordered":
            return _probabilities(self.likelihood, *self._latent(x))
        if self.likelihood.targets != "signs":
            raise ValueError(
                f"{type(self.likelihood).__name__} is not a likelihood of -1 and +1 or of ordered "
                "classes: predict(x) returns the mean and the variance of y, log_density(x, y) its "
                "log density"
            )
        return jnp.exp(self.log_density(x, 1.0))

    def leave_one_out(self, y: ArrayLike) -> HeldOut:
        """The mean, the variance and the log density of each y_i, given the other observations.

        The normal factor of a point is removed from the posterior, and the other factors are held
        fixed (Vehtari et al. 2016, sections 3.2 and 3.3). For `Gaussian` this is exact, otherwise
        close to a refit where no other factor depends much on the point. y are the targets that the
        posterior was fitted to; signs have the mean `p(+1) - p(-1)`. Raises ValueError after
        `svgp`.
        """
        if self.precisions is None:
            raise ValueError(
                "leave_one_out removes the normal factor of each observation, but svgp has no such "
                "factors: use laplace, expectation_propagation or variational"
            )
        dtype = self.precisions.dtype
        n = len(self.precisions)
        unit = UnitWeights(n, dtype)
        y = as_targets_of(self.likelihood, y, n, dtype, unit, both_signs=False)
        return _leave_one_out(self, y)

    def _latent(self, x: PyTree) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mean and the variance of f(x)."""
        x = point_for(self.process.covariance, as_point(x))
        return self.process.mean(x), self.process.variance(x)


@compiled
def _probabilities(likelihood, mean, variance):
    # p(y = c) = E p(c | f) for each class c.
    classes = jnp.arange(likelihood.n_classes, dtype=mean.dtype)
    return jnp.exp(jax.vmap(lambda y: likelihood.log_normaliser(y, mean, variance))(classes))


@compiled
def _leave_one_out(posterior, y):
    # Let m and v be the mean and the variance of f_i, and t and a the precision and the slope of
    # its factor. Without the factor the variance is v' = v / (1 - t v), and the mean m - v' a.
    points = posterior.process.covariance.points
    variance = jax.vmap(posterior.process.variance)(points)
    # 1 - t v = v / v' is positive except for rounding. Where it is not, v' does not exist.
    left = 1 - posterior.precisions * variance
    without = jnp.where(left > 0, variance / left, jnp.nan)
    mean = jax.vmap(posterior.process.mean)(points) - without * posterior.slopes
    # log p(y_i | the others) = log E p(y_i | f_i) for f_i ~ N(m - v' a, v').
    log_density = posterior.likelihood.log_normaliser(y, mean, without)
    of_y, variance_of_y = posterior.likelihood.predicted_moments(mean, without)
    return HeldOut(of_y, variance_of_y, log_density)


def check_observations(
    function_name: str,
    process: Any,
    X: PyTree,
    y: ArrayLike,
    likelihood: Any,
    weights: ArrayLike | None,
    *,
    footprint: Footprint | None = None,
    convex: bool = True,
    in_features: bool = False,
    holds_gram: bool = True,
    throw: bool = False,
) -> tuple[LearnerProblem, Callable, AbstractLikelihood]:
    """The checked problem of a fit, and the mean and the likelihood in its dtype.

    Raises ValueError, naming the argument, where arguments do not fit together; with `convex` also
    for a likelihood that is not log-concave.
    """
    process = as_process(process)
    if isinstance(likelihood, Categorical):
        raise ValueError("likelihood is Categorical(), of several classes: only laplace accepts it")
    if isinstance(likelihood, HeteroscedasticGaussian):
        raise ValueError(
            "likelihood is HeteroscedasticGaussian(...), of two latent functions: only variational "
            "accepts it"
        )
    if not isinstance(likelihood, AbstractLikelihood):
        raise ValueError(
            "likelihood must be one of kernax.likelihoods, such as Bernoulli(), but is "
            f"{described(likelihood, NAMES_OF_LIKELIHOODS)}"
        )
    if convex:
        check_convex(
            function_name, likelihood, ": kernax.variational and kernax.svgp accept StudentT()"
        )
    problem = check_problem(
        function_name,
        process.covariance,
        X,
        y,
        weights,
        footprint=footprint,
        targets=partial(as_targets_of, likelihood, both_signs=False),
        one_column="one process for each column, or jax.vmap over them",
        in_features=in_features,
        holds_gram=holds_gram,
        throw=throw,
    )
    likelihood = problem.module(likelihood, throw=throw)
    return problem, cast(process.mean, problem.dtype), likelihood


def shifted(likelihood: AbstractLikelihood, mean: Callable, problem: LearnerProblem) -> Shifted:
    """The likelihood of the targets given f - m(X), the process without its mean."""
    return Shifted(likelihood, means_at(mean, problem)[:, 0])


class NormalAtPoints(eqx.Module):
    """A normal distribution of f at the points: the prior given observations of precisions W.

    Attributes:
        system: `W K + I`.
        factor: the factor of its symmetric form.
        coefficients: a, with the mean `m + K a`.
    """

    system: WeightedSystem
    factor: AbstractFactor
    coefficients: Float[Array, " n"]


def system_of_precisions(gram: AbstractGram, precisions: Float[Array, " n"]) -> WeightedSystem:
    """`W K + I`."""
    return WeightedSystem.of(gram, PointWeights(precisions), jnp.ones_like(precisions[0]))


def status_of(result: Any, log_evidence: Float[Array, ""], jitter: Float[Array, ""]) -> Any:
    """The status of a fit, from the status of its iteration and from its results."""
    statuses = (
        (result != RESULTS.successful, result),
        (~jnp.isfinite(log_evidence), RESULTS.nonfinite),
        # Jitter acts like noise that is not part of the model.
        (jitter > 0, RESULTS.inaccurate),
    )
    return first_that_holds(statuses, RESULTS.successful)


def posterior_process(
    problem: LearnerProblem, mean: Callable, normal: NormalAtPoints, result: Any
) -> GaussianProcess:
    """The process given the distribution of its values at the points; NaN after a failure."""
    coefficients = void_unless_known(normal.coefficients, result)
    covariance = posterior_kernel(normal.factor, problem.kernel, problem.X, normal.system, result)
    return GaussianProcess(covariance, updated_mean(mean, problem, coefficients))


def solution_of(
    problem: LearnerProblem,
    mean: Callable,
    likelihood: AbstractLikelihood,
    normal: NormalAtPoints,
    log_evidence: Float[Array, ""],
    result: Any,
    stats: dict[str, Array],
) -> Solution[ApproximatePosterior]:
    """The solution: the posterior process of the normal approximation."""
    result = status_of(result, log_evidence, normal.factor.jitter)
    log_evidence, coefficients = void_unless_known((log_evidence, normal.coefficients), result)
    process = posterior_process(problem, mean, normal, result)
    # The density of the normal distribution is stationary at its mean, so the slopes of the factors
    # there are a = K^-1 (mean - m).
    precisions = normal.system.weights.values
    posterior = ApproximatePosterior(process, likelihood, log_evidence, precisions, coefficients)
    return Solution(posterior, result, stats | {"log_evidence": log_evidence})
