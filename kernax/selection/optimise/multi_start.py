"""Learning from many starts at once: likelihoods of hyperparameters have many local maxima."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial
from jaxtyping import Array, Key, PyTree

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.boundary import as_arrays, check_key
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.parameters import (
    Rebuild,
    Trainable,
    check_count,
    unconstrain,
    warn_of_undeclared_fields,
)
from kernax.core.base.solution import RESULTS, Solution
from kernax.core.checkpoint.checkpoint import Checkpoint
from kernax.selection.optimise.callbacks import Callback
from kernax.selection.optimise.kept_learning import Call
from kernax.selection.optimise.learning import finish_learning, run_watched, watchers
from kernax.selection.optimise.minimise import check_arguments, unconstrained
from kernax.selection.optimise.progress import LearningRun
from kernax.selection.optimise.steps import LearningProblem, OptimiserState, advance, close, start
from kernax.selection.optimise.validation import Validation, check_validation

Model = TypeVar("Model")


@renamed(steps="n_steps")
def multi_start(
    loss: Callable[..., Array],
    models: Sequence[Model],
    optimiser: optax.GradientTransformation,
    n_steps: int,
    *,
    args: tuple = (),
    trainable: Trainable | None = None,
    validation: Validation | None = None,
    progress: bool = False,
    callback: Callback | Callable[[Solution], Any] | None = None,
    checkpoint: Checkpoint | str | os.PathLike | None = None,
    throw: bool = True,
) -> Solution[Model]:
    """Runs `minimise` from each of `models`, in one program, and returns the best result.

    The best model is the one with the lowest finite loss, or with a `validation` the lowest finite
    validation loss; each start has its own patience. A callback receives the solution as it would
    be returned at that step.

    Arguments are those of `minimise`, except `models`: starts of one structure, such as
    `random_starts(model, 8, key=key)`. On a CPU the starts run one after another, elsewhere as one
    `vmap`, in which all take as long as the slowest. `jax.grad` treats the learned model as a
    constant.

    Returns:
        A `Solution`: the best model; `nonfinite` only if no start ever had a finite loss,
        `diverged` or `stagnation` only if the best one did. Stats: those of `minimise` for the best
        start, and for all starts `start_losses`, `start_steps` and `failed` (k,), which of them
        diverged, never moved, or stopped at NaN or inf; with a validation also
        `start_validation_losses`.

    Raises:
        ValueError: no start, starts of different structures, or bad arguments as for `minimise`.
        NonFiniteError, DivergedError, BreakdownError (`throw=True`): every start failed, or the
            best one diverged or never moved.

    Examples:
        >>> import optax
        >>> def loss(model):
        ...     return (model.lengthscale - 2.0) ** 2
        ...
        >>> starts = kernax.selection.random_starts(kernax.RBF(1.0), 4, key=jax.random.key(0))
        >>> solution = kernax.multi_start(loss, starts, optax.adam(0.1), 200)
        >>> round(float(solution.value.lengthscale), 1)
        2.0
    """
    n_steps = check_arguments(loss, optimiser, n_steps, args, trainable)
    check_validation(validation)
    watching = watchers(progress, callback, checkpoint)
    if not isinstance(models, Sequence):
        raise ValueError(
            "models must be a list of starts, such as random_starts(model, 8, key=key), but is of "
            f"type {type(models).__name__}"
        )
    if not models:
        raise ValueError("models must hold at least one start")
    if len({_form(model) for model in models}) > 1:
        raise ValueError(
            "models must differ in the values of their parameters alone, not in structure, shapes "
            "or dtypes"
        )
    # All starts as one module whose arrays have a leading axis.
    members = []
    for one in models:
        theta, rebuild = unconstrained(one, trainable)
        members.append(_Members(rebuild, theta))
    if len({_form(member) for member in members}) > 1:
        raise ValueError(
            "trainable must free the same number of elements of each parameter in all models: let "
            "it depend on the path, not on values that differ between them"
        )
    stacked = lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0]
    members = jax.tree.map(stacked, *members)
    args, validation = as_arrays((args, validation))
    problem = _Shared(loss, args, optimiser, validation), members
    search = LearningRun(
        Partial(_start, *problem), Partial(_advance, *problem), Partial(_end, *problem)
    )
    free = members.rebuild.free
    call = Call("multi_start", loss, models, free, optimiser, n_steps, args, validation)
    solution = run_watched(search, call, watching)
    return finish_learning(solution, throw, "multi_start")


def _form(model: PyTree) -> tuple:
    """Everything in a model except the values of its arrays."""
    leaves, structure = jax.tree.flatten(model)
    forms = [(leaf.shape, str(leaf.dtype)) if eqx.is_array(leaf) else leaf for leaf in leaves]
    return structure, *forms


class _Members(eqx.Module):
    """The parts that differ between the starts, stacked."""

    rebuild: Rebuild
    origin: dict[str, Array]


class _Shared(eqx.Module):
    """The parts that all starts share."""

    loss: Callable
    args: tuple
    optimiser: optax.GradientTransformation
    validation: Validation | None

    def problem(self, member: _Members) -> LearningProblem:
        return LearningProblem(
            self.loss, member.rebuild, member.origin, self.args, self.optimiser, self.validation
        )


@compiled
def _start(shared: _Shared, members: _Members, steps: int) -> OptimiserState:
    return eqx.filter_vmap(lambda member: start(shared.problem(member), steps))(members)


@compiled
def _advance(
    shared: _Shared, members: _Members, state: OptimiserState, until: Array
) -> OptimiserState:
    # Not in lockstep on a CPU, where every line search would take as long as the longest.
    of_one = lambda start, shared, until: advance(shared.problem(start[0]), start[1], until)
    return eqx.filter_vmap(
        lambda member, state: sequential_vmap(of_one, (member, state), shared, until)
    )(members, state)


@compiled
def _end(shared: _Shared, members: _Members, state: OptimiserState) -> Solution:
    of_one = lambda member, state: close(shared.problem(member), state)
    solutions = eqx.filter_vmap(of_one)(members, state)
    # The best start is the one with the lowest loss, or validation loss where there is one.
    judged = "loss" if "validation_loss" not in solutions.stats else "validation_loss"
    judgements = solutions.stats[judged]
    best = jnp.argmin(jnp.where(jnp.isnan(judgements), jnp.inf, judgements))
    winner = jax.tree.map(lambda leaf: leaf[best] if eqx.is_array(leaf) else leaf, solutions)
    of_all = {
        "start_losses": solutions.stats["loss"],
        f"start_{judged}es": judgements,
        "start_steps": solutions.stats["steps"],
        "failed": solutions.result != RESULTS.successful,
    }
    lost = (winner.result == RESULTS.diverged) | (winner.result == RESULTS.stagnation)
    learned = RESULTS.where(lost, winner.result, RESULTS.successful)
    result = RESULTS.where(jnp.isfinite(judgements[best]), learned, RESULTS.nonfinite)
    return Solution(winner.value, result, winner.stats | of_all)


@renamed(count="n_starts")
def random_starts(
    model: Model,
    n_starts: int,
    *,
    key: Key[Array, ""],
    spread: float = 1.0,
    trainable: Trainable | None = None,
) -> list[Model]:
    """Random starts: the model itself and `n_starts - 1` copies of it with normal noise of standard
    deviation `spread` on their free parameters.

    The noise is on the unconstrained parameters: with spread 1, a lengthscale is multiplied by a
    factor that lies between 1/7 and 7 nineteen times out of twenty.

    Arguments:
        model: the first start.
        n_starts: the number of starts.
        key: a random key, for the noise.
        spread: the deviation of the noise, the same for all parameters.
        trainable: as for `minimise`: frozen parameters have no noise.

    Raises ValueError for a count that is not positive, and for anything but a key.

    Examples:
        >>> starts = kernax.selection.random_starts(kernax.RBF(1.0), 3, key=jax.random.key(0))
        >>> len(starts)
        3
        >>> float(starts[0].lengthscale)  # the first one is the model itself
        1.0
    """
    check_count(n_starts, "n_starts")
    check_key(key)
    theta, rebuild = unconstrain(model, trainable)
    models = [model]
    for key_of_copy in jax.random.split(key, n_starts)[1:]:
        # There is a key for each parameter; a model without parameters is its own copy.
        keys = jax.random.split(key_of_copy, max(len(theta), 1))
        moved = {}
        for key_of_one, (path, value) in zip(keys, theta.items()):
            # theta + spread e, e ~ N(0, I).
            noise = jax.random.normal(key_of_one, value.shape, value.dtype)
            moved[path] = value + spread * noise
        models.append(rebuild(moved))
    return models


def unconstrained_density(
    log_density: Callable[..., Array],
    model: PyTree,
    *,
    args: tuple = (),
    trainable: Trainable | None = None,
) -> tuple[dict[str, Array], Callable[[dict[str, Array]], Array]]:
    """Transforms a log density of a model's parameters into one of their unconstrained values, for
    samplers such as Hamiltonian Monte Carlo.

    Arguments:
        log_density: `log_density(model, *args)`, up to a constant: a log marginal likelihood plus
            log priors (`kernax.priors.log_prior`).
        model: the model to start from.
        args: the arguments of `log_density` after the model.
        trainable: as for `minimise`: frozen parameters keep their values, and are not in `theta`.

    Returns:
        `theta`, the unconstrained parameters of the model (`unconstrain`), and the function
        `theta -> log_density(rebuild(theta), *args) + log |d parameters / d theta|`.

    Examples:
        >>> def log_density(kernel):
        ...     return -(kernel.lengthscale - 1.0) ** 2
        ...
        >>> theta, log_p = kernax.selection.unconstrained_density(log_density, kernax.RBF(2.0))
        >>> list(theta)
        ['lengthscale']
        >>> round(float(log_p(theta)), 3)  # -1 + log 2
        -0.307
    """
    theta, rebuild = unconstrain(model, trainable)
    warn_of_undeclared_fields(model, theta)
    # log p(theta) = log p(x(theta)) + log |dx / dtheta|.
    return theta, lambda theta: log_density(rebuild(theta), *args) + rebuild.log_jacobian(theta)
