"""The relevance vector machine: a linear model in kernel functions with mostly zero weights."""

import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.batching import each
from kernax.core.base.compiled import compiled
from kernax.core.base.intervals import POSITIVE
from kernax.core.base.numerics import eps_of, is_concrete, stop_gradient
from kernax.core.base.parameters import check_count
from kernax.core.base.powers import exponent_of, times_power_of_two
from kernax.core.base.solution import (
    RESULTS,
    Solution,
    finish,
    first_that_holds,
    of_all,
    void_unless_known,
    warn,
)
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import check_problem
from kernax.core.losses.loss_functions import AbstractLikelihood
from kernax.core.losses.observation_likelihoods import Categorical, Gaussian
from kernax.core.operators.memory import Footprint
from kernax.errors import RelevanceWarning, RunawayWarning
from kernax.sparse.basis import ActiveFunctions, Basis
from kernax.sparse.checks import check_likelihood, checked_solver, targets_of
from kernax.sparse.conditions import Conditions, Root, evidence_at, root_near
from kernax.sparse.observations import Labels, NoisyObservations
from kernax.sparse.relevance_vectors import RelevanceVectors
from kernax.sparse.sequential import SequentialEvidence
from kernax.sparse.solver import AbstractRelevanceSolver, Noise, RelevanceChoice, RelevanceProblem

_FOOTPRINT = Footprint("relevance_vector_machine", 6.4)

_MOST_VECTORS = 200
# Indices that stand for the bias, and for a slot that holds no function.
_BIAS, _UNUSED = -1, -2
# The nats that functions hidden by rounding may add to the evidence of a successful fit.
_MOST_HIDDEN = 1.0


def relevance_vector_machine(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    *,
    noise: ArrayLike | None = None,
    likelihood: AbstractLikelihood | Categorical | None = None,
    weights: ArrayLike | None = None,
    bias: bool = True,
    solver: AbstractRelevanceSolver | None = None,
    max_vectors: int | None = None,
    throw: bool = True,
) -> Solution[RelevanceVectors]:
    """The relevance vector machine `f(x) = sum_j w_j k(x, x_j) + b`: a Bayesian linear model, `w_j
    ~ N(0, 1 / alpha_j)`, with the precisions alpha that maximise the evidence `p(y | alpha,
    noise)`.

    The evidence (marginal likelihood) is `integral p(y | f) p(w | alpha) dw`. At the maximum most
    precisions are infinite and their weights zero (Tipping 2001). For numbers `y = f(x) + e`, `e ~
    N(0, noise)`, it is `N(y | 0, noise I + Phi A^-1 Phi^T)`, where Phi holds the functions `k(.,
    x_j)`, and 1 for the bias, at the points, and A is the diagonal matrix of alpha; the noise
    maximises it as well unless it is given. For labels it is Laplace's approximation. The evidence
    has many local maxima; the result is the one that `solver` reaches.

    Arguments:
        kernel: any kernel, also one that is not positive semidefinite, since the `k(., x_j)` are
            only basis functions.
        X: a batch of n points.
        y: numbers, or targets of the likelihood, (n,). With shape (n, outputs) each column has its
            own model with its own noise, evidence and relevant functions; for columns of signs that
            is one-versus-rest. `Categorical()` takes one-hot rows (n, classes): one model gives the
            values of all classes, and a function is added for one class at a time.
        noise: variance > 0, in units of y^2; learned by default.
        likelihood: None for numbers, else one of `kernax.likelihoods` with a concave logarithm,
            such as `Bernoulli()` for labels -1 and +1.
        weights: (n,) >= 0, powers of the likelihood terms. Two is the point repeated; zero is the
            point removed together with its function.
        bias: whether the constant 1 is one of the functions; it has a precision as the others do.
        solver: `kernax.solvers.SequentialEvidence()`, which adds and deletes one function at a time
            (Tipping & Faul 2003), or `EvidenceIteration()`, the original, which starts from all.
        max_vectors: the largest number of active functions, the bias included. Default: 200, or all
            if there are fewer. Memory and time grow with it.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `RelevanceVectors`: the mean as a `KernelExpansion`, which
        points are relevant, precisions (units of 1 / w^2), the covariance of the weights, the noise
        and the log evidence. Stats, for each model: `steps`; `left_out`, by how many nats the
        evidence would rise with one function more than `max_vectors` (1 for `EvidenceIteration`);
        `residual`, how far the conditions of the maximum are from zero; `reproduced`, whether the
        noise was stopped at its lower bound.

        The solution is differentiable in the kernel, X, y, noise and weights, to any order, by the
        implicit function theorem at the maximum, with the active set held fixed. Where the set
        changes, value and derivative jump. Functions outside the set contribute no derivative.

    Raises:
        ValueError: bad shapes or values, noise together with a likelihood, a likelihood with a
            logarithm that is not concave.
        BreakdownError: more than `max_vectors` functions are relevant, or rounding is too coarse.
            It is too coarse, too, where it hides functions that would add more than a nat.
        MaxStepsError, NonFiniteError: the computation failed.
        MemoryBudgetError: the dense matrices would not fit.

    Warns `RelevanceWarning` if no function is relevant, as for y = 0, so that the model is zero;
    `RunawayWarning` if the learned noise goes to zero.

    Far from the relevant vectors the variance of predictions falls to the noise, where that of a
    Gaussian process rises (Rasmussen & Quinonero-Candela 2005).

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 8)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> machine = kernax.relevance_vector_machine(kernax.RBF(0.3), X, y, noise=0.01).value
        >>> mean, variance = machine.predict(jnp.array([0.4]))
        >>> round(float(mean), 2)
        0.69
    """
    check_likelihood(likelihood, noise)
    solver = checked_solver(solver)
    problem = check_problem(
        "relevance_vector_machine",
        kernel,
        X,
        y,
        weights,
        targets=targets_of(likelihood),
        throw=throw,
        footprint=_FOOTPRINT,
    )
    if noise is not None:
        noise = problem.scalar(noise, "noise", POSITIVE, throw=throw)
    if likelihood is not None:
        likelihood = problem.module(likelihood, throw=throw)
    classes = problem.y.shape[1] if isinstance(likelihood, Categorical) else 1
    most = (problem.n + bool(bias)) * classes
    size = min(most, _MOST_VECTORS)
    if max_vectors is not None:
        size = min(most, check_count(max_vectors, "max_vectors"))
    solution = _relevance_vector_machine(problem, noise, likelihood, bool(bias), solver, size)
    stats = solution.stats
    places = solution.value.places
    if is_concrete(solution.result, places):
        is_empty = np.all(np.asarray(places) == _UNUSED)
        if is_empty and np.all(solution.result == RESULTS.successful):
            warn(
                "relevance_vector_machine: no function is relevant, not even the bias: the model "
                "is zero everywhere",
                RelevanceWarning,
            )
        if np.any(np.asarray(stats["reproduced"])):
            warn(
                "relevance_vector_machine: the targets are reproduced, and the evidence rises "
                "without bound as the noise goes to zero: it was stopped at a bound; pass noise=",
                RunawayWarning,
            )
    hint = "relevance_vector_machine: more steps of its solver, or another kernel, may help."
    left_out = stats["left_out"]
    if is_concrete(left_out) and np.any(np.asarray(left_out) > 0):
        hint = (
            f"relevance_vector_machine: all {size} slots are used, and more functions are "
            "relevant: a larger max_vectors, or a smoother kernel, may help."
        )
    return finish(solution, throw, hint)


@compiled
def _relevance_vector_machine(problem, noise, likelihood, bias, solver, size):
    """The model; one for each column of y unless the columns are classes."""
    K = problem.gram().as_matrix()
    weights = problem.weights.values
    basis = Basis.of(K, weights, bias)
    setting = _Setting(basis, weights, noise, likelihood, solver, size)
    of_classes = isinstance(likelihood, Categorical)
    # Fits along the first axis: one for each column of y, or one of all classes.
    if of_classes:
        fits = jax.tree.map(lambda leaf: leaf[None], _fitted(setting, problem.columns))
    else:
        fits = each(lambda y: _fitted(setting, y[:, None]), problem.columns.T)
    # The slots of all fits in one row. Unless columns are classes, the output of each fit is the
    # number of its column.
    active = fits.active
    if not of_classes:
        numbers = jnp.arange(len(active.used), dtype=jnp.int32)
        outputs = jnp.broadcast_to(numbers[:, None], active.used.shape)
        active = eqx.tree_at(lambda active: active.output, active, outputs)
    active = jax.tree.map(lambda leaf: leaf.reshape(-1), active)
    places = jnp.where(active.used, active.column - int(basis.has_bias), _UNUSED)
    # Coefficients and biases of the outputs; the weight of the bias is not a coefficient.
    by_output = jax.nn.one_hot(active.output, problem.columns.shape[1], dtype=active.weights.dtype)
    by_output = by_output * active.weights[:, None]
    is_bias = (places == _BIAS)[:, None]
    coefficients = jnp.where(is_bias, 0, by_output)
    constant = jnp.sum(jnp.where(is_bias, by_output, 0), 0)
    result = of_all(fits.result)
    known = coefficients, constant, fits.covariance, fits.noise, fits.log_evidence
    coefficients, constant, covariance, noise, log_evidence = void_unless_known(known, result)
    # One number for each model, or the only one.
    shape = problem.y.shape[1:]
    by_fit = partial(jnp.reshape, shape=() if of_classes else shape)
    function = KernelExpansion(
        problem.kernel,
        points_at(problem.X, jnp.maximum(places, 0)),
        coefficients.reshape(len(places), *shape),
        constant.reshape(shape),
    )
    value = RelevanceVectors(
        function=function,
        places=places,
        outputs=active.output,
        precisions=active.precisions,
        covariance=jax.scipy.linalg.block_diag(*covariance),
        likelihood=Gaussian(by_fit(noise)) if likelihood is None else likelihood,
        log_evidence=by_fit(log_evidence),
    )
    return Solution(value, result, jax.tree.map(by_fit, fits.stats))


class _Setting(eqx.Module):
    """The settings that all outputs share."""

    basis: Basis
    weights: Float[Array, " n"]
    noise: Float[Array, ""] | None
    likelihood: AbstractLikelihood | Categorical | None
    solver: AbstractRelevanceSolver
    size: int = eqx.field(static=True)


class _RelevanceFit(eqx.Module):
    """The fit of one model, in the units of the user.

    Attributes:
        active: the functions, with precisions and weights.
        covariance: that of the weights.
        noise: the variance of the noise.
        log_evidence: the log evidence.
        result: the status.
        stats: figures about the fit.
    """

    active: ActiveFunctions
    covariance: Float[Array, "M M"]
    noise: Float[Array, ""]
    log_evidence: Float[Array, ""]
    result: Any
    stats: dict[str, Array]


def _fitted(setting: _Setting, y: Float[Array, "n c"]) -> _RelevanceFit:
    likelihood = setting.likelihood
    dtype = y.dtype
    # Numbers in a unit 2^exponent near the largest, because their squares may overflow.
    exponent = jnp.zeros((), jnp.int32)
    if likelihood is None:
        exponent = exponent_of(jnp.max(abs(y), where=setting.weights[:, None] > 0, initial=0))
    # A precision of a column is that of its function over scale^2, and 2^(2 exponent) times as
    # large as in the units of the user: rate alpha stays the same.
    shape, rate = setting.solver.hyperprior(dtype)
    given = jnp.ones((), dtype) if setting.noise is None else setting.noise
    rates, variance = times_power_of_two((rate * setting.basis.scales**2, given), -2 * exponent)
    if likelihood is None:
        observations = NoisyObservations(times_power_of_two(y, -exponent), setting.weights)
    else:
        observations = Labels(y, setting.weights, likelihood)
        variance = given
    if setting.noise is None and likelihood is None:
        fixed = stop_gradient(observations)
        noise = Noise.to_learn(fixed.y[:, 0], fixed.weights)
    else:
        noise = Noise.given(variance)
    problem = RelevanceProblem(setting.basis, observations, noise, shape, rates, setting.size)
    choice = setting.solver.solve(stop_gradient(problem))
    # The solution of the conditions near what a solver chose, with its derivative.
    active = choice.active
    conditions = Conditions(
        design=problem.design(active),
        used=active.used,
        observations=observations,
        log_noise=jnp.log(choice.noise if noise.learned else noise.variance),
        learns_noise=jnp.array(noise.learned) & (choice.noise > noise.least),
        shape=shape,
        rates=rates[active.column],
    )
    log_precisions = jnp.where(active.used, jnp.log(active.precisions), 0)
    start = Root(active.weights, log_precisions, jnp.log(choice.noise))
    root, left = root_near(start, conditions)
    return _fit_of(setting, choice, root, conditions, left, exponent)


def _fit_of(
    setting: _Setting,
    choice: RelevanceChoice,
    root: Root,
    conditions: Conditions,
    left: Float[Array, ""],
    exponent: Int[Array, ""],
) -> _RelevanceFit:
    """The fit in the units of the user, and its status."""
    is_numbers = setting.likelihood is None
    active = choice.active
    # With phi_j = scale_j times the column and y times 2^-exponent: w and alpha of phi_j are
    # w 2^exponent / scale_j and alpha scale_j^2 2^(-2 exponent).
    scales = setting.basis.scales[active.column]
    sizes = root.weights / scales, conditions.deviations(root) / scales
    weights, deviations = times_power_of_two(sizes, exponent)
    precisions = times_power_of_two(jnp.exp(root.log_precisions) * scales**2, -2 * exponent)
    noise = times_power_of_two(jnp.exp(root.log_noise), 2 * exponent)
    active = ActiveFunctions(
        active.column,
        active.output,
        active.used,
        jnp.where(active.used, precisions, jnp.inf),
        jnp.where(active.used, weights, 0),
    )
    stationary = is_numbers and isinstance(setting.solver, SequentialEvidence)
    evidence = evidence_at(root, conditions, stationary=stationary)
    if is_numbers:
        # p(y) = 2^(-exponent sum w) p(2^-exponent y).
        nats = exponent.astype(evidence.dtype) * math.log(2)
        evidence = evidence - jnp.sum(setting.weights) * nats
    # The covariance A^-1/2 P A^-1/2 of the weights.
    P = conditions.covariance(root)
    covariance = deviations[:, None] * P * deviations[None, :]
    variances = 1 / jnp.where(active.used, active.precisions, 1)  # of the priors
    data = setting.basis.columns, conditions.observations.y
    figures = *data, evidence, active.weights, variances, P, covariance
    known = jnp.all(jnp.array([jnp.all(jnp.isfinite(figure)) for figure in figures]))
    learned = setting.noise is None and is_numbers
    stats = {
        "steps": choice.steps,
        "left_out": choice.left_out,
        "residual": left,
        "reproduced": jnp.array(learned) & ~conditions.learns_noise,
    }
    # The status, in order of precedence.
    statuses = (
        (~known, RESULTS.nonfinite),
        (choice.left_out > 0, RESULTS.stagnation),
        (~choice.finished, RESULTS.max_steps_reached),
        (~(left <= eps_of(left) ** (1 / 3)), RESULTS.inaccurate),
        (jnp.asarray(choice.hidden) > _MOST_HIDDEN, RESULTS.inaccurate),
    )
    status = first_that_holds(statuses, RESULTS.successful)
    return _RelevanceFit(active, covariance, noise, evidence, status, stats)
