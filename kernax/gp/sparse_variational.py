"""Stochastic variational inference with inducing points, for any likelihood, in minibatches."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import cast, check_key, count
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.intervals import Interval
from kernax.core.base.numerics import eps_of, stop_gradient, tree_where
from kernax.core.base.parameters import (
    Rebuild,
    Trainable,
    check_count,
    unconstrain,
    warn_of_undeclared_fields,
)
from kernax.core.base.solution import RESULTS, Solution, finish, first_that_holds
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.learner_problem import LearnerProblem
from kernax.core.linalg.centre_factor import factor_at
from kernax.core.losses.loss_functions import AbstractLikelihood
from kernax.core.operators.memory import Footprint, check_memory
from kernax.gp.approximation import ApproximatePosterior, check_observations
from kernax.gp.inducing import NormalAtInducing, check_inducing_points, process_of
from kernax.gp.inducing_normal import (
    Batch,
    BatchMarginals,
    InducingNormal,
    Natural,
    SparseModel,
    batch_loss,
    check_normal,
    marginals,
    stepped,
)
from kernax.gp.means import means_at
from kernax.gp.process import GaussianProcess

# Matrices of m x m.
_FEWER = "fewer inducing points"
_SVGP = Footprint("svgp", 12.7, fewer=_FEWER)
_LEARNED = Footprint("svgp with an optimiser", 20.0, fewer=_FEWER)
_BOUND = Footprint("svgp_bound", 5.1, fewer=_FEWER)

_STILL = optax.identity()
_RATE = Interval(0.0, 1.0, (False, True))


@renamed(steps="n_steps")
def svgp(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    likelihood: AbstractLikelihood,
    Z: PyTree,
    *,
    optimiser: optax.GradientTransformation | None,
    n_steps: int,
    key: Key[Array, ""],
    batch_size: int | None = None,
    rate: ArrayLike = 0.1,
    weights: ArrayLike | None = None,
    trainable: Trainable | None = None,
    throw: bool = True,
) -> Solution[ApproximatePosterior]:
    """Stochastic variational inference with m inducing points, for any likelihood, by minibatches.

    It maximises `sum_i w_i E[log p(y_i | f(x_i))] - KL(q(v) | N(0, I))`, a lower bound of the log
    evidence, over normal distributions q of the whitened values v at Z (Hensman, Matthews &
    Ghahramani 2015), and over the parameters of process and likelihood, and Z. A step estimates the
    sum from `batch_size` points, times n / batch_size. It updates q by a natural gradient step of
    length `rate` (Salimbeni, Eleftheriadis & Hensman 2018), and everything else by `optimiser`.
    With normal observations, all points in each batch and a rate of one, the first step gives the q
    of `sgpr`. A step takes O(batch_size m^2 + m^3) operations.

    Arguments:
        process, X, y, likelihood, weights: as for `laplace`. Learning starts from this process and
            this likelihood.
        Z: a batch of m inducing points, from which learning starts.
        optimiser: any optimiser of optax, created once; None keeps process, likelihood and Z fixed.
        n_steps: the number of steps; a different number compiles again.
        key: the key for the order of the points in batches, which is drawn anew for each pass.
        batch_size: the number of points in a batch, at most n. None means all points.
        rate: the length of a natural gradient step, in (0, 1]; q is an average over about 1 / rate
            batches.
        trainable: selects what the optimiser updates, as for `unconstrain`, by paths such as
            `process.covariance.lengthscale`, `likelihood.noise` and `Z`.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is an `ApproximatePosterior` with the learned parameters:
        `posterior.likelihood`, and the `prior` and the `points` Z of
        `posterior.process.covariance`; its `log_evidence` is the final bound on all data. The steps
        have no reverse-mode derivative. Stats: `log_evidence`; `losses` (n_steps,), minus the bound
        per point, of each batch; `steps`; `skipped`, the number of natural gradient steps without a
        valid distribution, which were skipped, as may happen if a likelihood is not log-concave. If
        a batch gives NaN the run stops with the status `nonfinite` and the last finite model as its
        value.

    Raises:
        ValueError: bad shapes or values.
        NonFiniteError: a bound or its gradient was not finite.
        DivergedError: the bound on all data is below that of the prior, from which it started, by
            more than rounding.
        BreakdownError: every natural gradient was skipped. Smaller steps may help.

    Examples:
        >>> import optax
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> prior = kernax.GaussianProcess(kernax.RBF(0.3))
        >>> bernoulli = kernax.likelihoods.Bernoulli()
        >>> settings = {"optimiser": optax.adam(0.01), "n_steps": 20, "key": jax.random.key(0)}
        >>> posterior = kernax.svgp(prior, X, y, bernoulli, X[::2], **settings).value
        >>> bool(posterior.probability(jnp.array([0.9])) > 0.5)
        True
    """
    problem, model = _checked("svgp", process, X, y, likelihood, Z, weights, throw=throw)
    check_key(key)
    length = problem.scalar(rate, "rate", _RATE, throw=throw)
    # The number of points in a batch.
    if batch_size is None:
        size = problem.n
    else:
        if check_count(batch_size, "batch_size") > problem.n:
            raise ValueError(
                f"batch_size must be at most {problem.n}, the number of points, but is {batch_size}"
            )
        size = int(batch_size)
    if optimiser is None:
        # Nothing is learned but the distribution.
        optimiser = _STILL
        trainable = lambda path, value: False
    if not (hasattr(optimiser, "init") and hasattr(optimiser, "update")):
        raise ValueError(
            f"optimiser must be None or one of optax, such as optax.adam(0.1), but is {optimiser!r}"
        )
    theta, rebuild = unconstrain(model, trainable)
    warn_of_undeclared_fields(model, theta)
    fit = _VariationalFit(problem, rebuild, optimiser, length, key, size)
    arguments = fit, theta, check_count(n_steps, "n_steps")
    learns = optimiser is not _STILL
    _check_memory(_LEARNED if learns else _SVGP, model, _svgp, arguments)
    solution = _svgp(*arguments)
    hint = f"svgp with {problem.kernel_name}: smaller steps of the optimiser may help."
    return finish(solution, throw, hint, quiet=True)


def _checked(
    function_name: str,
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    likelihood: AbstractLikelihood,
    Z: PyTree,
    weights: ArrayLike | None,
    *,
    throw: bool = False,
) -> tuple[LearnerProblem, SparseModel]:
    """The problem of a fit and its model, in one dtype. Raises ValueError for bad arguments."""
    problem, mean, likelihood = check_observations(
        function_name,
        process,
        X,
        y,
        likelihood,
        weights,
        convex=False,
        holds_gram=False,
        throw=throw,
    )
    jax.eval_shape(lambda: means_at(mean, problem))
    prior = GaussianProcess(problem.kernel, mean)
    Z = check_inducing_points(problem, Z)
    return problem, SparseModel(prior, likelihood, Z)


def _check_memory(
    footprint: Footprint, model: SparseModel, function: Callable, arguments: tuple
) -> None:
    """Raises MemoryBudgetError where m x m numbers do not fit into memory."""
    first = lambda: eqx.filter_eval_shape(function, *arguments)
    check_memory(model.Z, footprint=footprint, first=first)


def svgp_bound(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    likelihood: AbstractLikelihood,
    Z: PyTree,
    q: InducingNormal,
    *,
    weights: ArrayLike | None = None,
    total: int | None = None,
) -> Float[Array, ""]:
    """`(total / n) sum_i w_i E[log p(y_i | f(x_i))] - KL(q(v) | N(0, I))`, the bound that `svgp`
    maximises. It is an unbiased estimate if the n points are a random batch of `total`, for your
    own training loops.

    Arguments are those of `svgp`, and:
        q: the distribution of the whitened values at Z; its `mean` and `root` can be learned.
        total: the number of all points, by default n.

    It is differentiable in all arguments, and NaN if k(Z, Z) has no Cholesky factor. Raises
    ValueError for bad shapes or values.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> prior = kernax.GaussianProcess(kernax.RBF(0.3))
        >>> bernoulli = kernax.likelihoods.Bernoulli()
        >>> q = kernax.types.InducingNormal(mean=jnp.zeros(3), root=jnp.eye(3))
        >>> round(float(kernax.svgp_bound(prior, X, y, bernoulli, X[::2], q)), 2)
        -4.03
    """
    problem, model = _checked("svgp_bound", process, X, y, likelihood, Z, weights)
    check_normal(q, count(model.Z))
    total = problem.n if total is None else check_count(total, "total", problem.n)
    scale = jnp.asarray(total / problem.n, problem.dtype)
    batch = Batch(problem.X, problem.y, problem.weights.values)
    arguments = model, cast(q, problem.dtype), batch, scale
    _check_memory(_BOUND, model, _estimated_bound, arguments)
    return _estimated_bound(*arguments)


@compiled
def _estimated_bound(model, q, batch, scale):
    # (total / n) sum_i w_i E[log p(y_i | f_i)] - KL(q | N(0, I)).
    return -scale * batch_loss(model, marginals(model, q, batch.X), batch) - q.divergence()


class _VariationalFit(eqx.Module):
    """The data and the settings of a run, which are constant during it."""

    problem: LearnerProblem
    rebuild: Rebuild
    optimiser: optax.GradientTransformation
    rate: Float[Array, ""]
    key: Key[Array, ""]
    batch_size: int = eqx.field(static=True)

    def batch(self, indices: Int[Array, " b"]) -> Batch:
        X = points_at(self.problem.X, indices)
        return Batch(X, self.problem.y[indices], self.problem.weights.values[indices])

    @property
    def takes_all(self) -> bool:
        """Whether every batch contains all points."""
        return self.batch_size == self.problem.n

    @property
    def scale(self) -> float:
        """The factor by which the terms of a batch are multiplied."""
        return self.problem.n / self.batch_size


class _Known(eqx.Module):
    """The last parameters and distribution with a finite loss."""

    theta: list[Array]
    q: InducingNormal


class _VariationalState(eqx.Module):
    """The state of a run."""

    theta: list[Array]
    memory: Any
    natural: Natural
    q: InducingNormal
    order: Int[Array, " n"]
    losses: Float[Array, " steps"]
    step: Int[Array, ""]
    skipped: Int[Array, ""]
    sound: Bool[Array, ""]
    known: _Known


def _model(fit: _VariationalFit, theta: list[Array]) -> SparseModel:
    """The model with these parameters, which optax sees as a list in the order of their names."""
    paths = sorted(path for path, _, _ in fit.rebuild.entries)
    return fit.rebuild(dict(zip(paths, theta)))


def _advanced(fit: _VariationalFit, state: _VariationalState) -> _VariationalState:
    """The state after one step."""
    # The order of the points, drawn again once all were used, and the indices of a batch.
    if fit.takes_all:
        order = state.order
        indices = state.order
    else:
        turn = state.step % (fit.problem.n // fit.batch_size)
        key = jax.random.fold_in(fit.key, state.step)
        again = partial(jax.random.permutation, key)
        order = lax.cond(turn == 0, again, lambda order: order, state.order)
        first = turn * fit.batch_size
        indices = lax.dynamic_slice_in_dim(order, first, fit.batch_size)
    batch = fit.batch(indices)

    def objective(theta: list[Array]) -> tuple[Array, tuple[SparseModel, BatchMarginals]]:
        # (n / b) sum_i w_i E[-log p(y_i | f_i)] + KL(q | N(0, I)), i in the batch of b points, over
        # n; and the terms that it was computed from, as constants.
        model = _model(fit, theta)
        at = marginals(model, state.q, batch.X)
        loss = fit.scale * batch_loss(model, at, batch) + state.q.divergence()
        return loss / fit.problem.n, stop_gradient((model, at))

    (loss, (model, at)), gradient = jax.value_and_grad(objective, has_aux=True)(state.theta)
    # The parameters after a step of the optimiser, and the state of the optimiser.
    optimiser = optax.with_extra_args_support(fit.optimiser)
    of = lambda theta: objective(theta)[0]
    with jax.numpy_dtype_promotion("standard"):  # optax mixes float and integer counters
        updates, memory = optimiser.update(
            gradient, state.memory, state.theta, value=loss, grad=gradient, value_fn=of
        )
    theta: Any = optax.apply_updates(state.theta, updates)
    sound = jnp.isfinite(loss) & jnp.isfinite(optax.tree.norm(gradient))
    natural = stepped(state.natural, model, at, batch, fit.scale, fit.rate)
    # q stays unchanged if its step does not give a distribution.
    q = natural.normal()
    possible = jnp.all(jnp.isfinite(q.root)) & jnp.all(jnp.isfinite(q.mean))
    return _VariationalState(
        theta=tree_where(sound, theta, state.theta),
        memory=tree_where(sound, memory, state.memory),
        order=order,
        losses=state.losses.at[state.step].set(loss),
        step=state.step + 1,
        sound=sound,
        known=tree_where(sound, _Known(state.theta, state.q), state.known),
        natural=tree_where(sound & possible, natural, state.natural),
        q=tree_where(sound & possible, q, state.q),
        skipped=state.skipped + (sound & ~possible).astype(jnp.int32),
    )


@compiled
def _svgp(fit, theta, steps):
    """The posterior after all steps, with its bound on all data."""
    goes_on = lambda state: state.sound & (state.step < steps)
    # The initial state, in which q is the prior.
    values = [theta[path] for path in sorted(theta)]
    dtype = fit.problem.dtype
    q = InducingNormal.prior(count(fit.rebuild.model.Z), dtype)
    start = _VariationalState(
        theta=values,
        memory=fit.optimiser.init(values),
        natural=Natural(q.mean, q.root),
        q=q,
        order=jnp.arange(fit.problem.n, dtype=jnp.int32),
        losses=jnp.full(steps, jnp.nan, dtype),
        step=jnp.zeros((), jnp.int32),
        skipped=jnp.zeros((), jnp.int32),
        sound=jnp.array(True),
        known=_Known(values, q),
    )
    end = lax.while_loop(goes_on, partial(_advanced, fit), start)
    bound = _bound_of_all(fit, _model(fit, end.theta), end.q)
    sound = end.sound & jnp.isfinite(bound)
    kept = tree_where(sound, _Known(end.theta, end.q), end.known)
    model = _model(fit, kept.theta)
    # The posterior of f under q.
    kernel = model.process.covariance
    problem = eqx.tree_at(lambda problem: problem.kernel, fit.problem, kernel)
    # f(Z) = m(Z) + L v with v ~ q and L L^T = k(Z, Z).
    lower = factor_at(kernel, model.Z).lower
    values = NormalAtInducing(model.Z, lower, kept.q.mean[:, None], kept.q.root)
    # This is the last finite model if a batch has stopped the run.
    process = process_of(problem, model.process.mean, values, RESULTS.successful)
    posterior = ApproximatePosterior(process, model.likelihood, bound, None, None)
    stats = {
        "log_evidence": bound,
        "losses": end.losses,
        "steps": end.step,
        "skipped": end.skipped,
    }
    # The status of a run, from its last state and from whether the bound on all data has risen.
    before = _bound_of_all(fit, _model(fit, start.theta), start.q)
    # If the observations carry hardly any information, both are equal up to rounding.
    rounding = 32 * eps_of(bound) * abs(before)
    statuses = (
        (~sound, RESULTS.nonfinite),
        (end.skipped == end.step, RESULTS.stagnation),
        (bound < before - rounding, RESULTS.diverged),
    )
    return Solution(posterior, first_that_holds(statuses, RESULTS.successful), stats)


def _bound_of_all(fit: _VariationalFit, model: SparseModel, q: InducingNormal) -> Float[Array, ""]:
    """The bound on all data, computed batch by batch."""
    n = fit.problem.n
    b = fit.batch_size
    # ceil(n / b) batches of b indices.
    indices = jnp.arange(-(-n // b) * b, dtype=jnp.int32).reshape(-1, b)

    def of_batch(indices: Int[Array, " b"]) -> Float[Array, ""]:
        # The last batch repeats the last point, with weight zero.
        batch = fit.batch(jnp.minimum(indices, n - 1))
        weights = jnp.where(indices < n, batch.weights, 0)
        batch = Batch(batch.X, batch.y, weights)
        return batch_loss(model, marginals(model, q, batch.X), batch)

    # sum_i w_i E[log p(y_i | f_i)] - KL(q | N(0, I)).
    return -jnp.sum(lax.map(of_batch, indices)) - q.divergence()
