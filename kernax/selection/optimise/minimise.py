"""Learning the parameters of a model by gradients."""

import inspect
import os
from collections.abc import Callable
from typing import Any, TypeVar

import optax
from jax.tree_util import Partial
from jaxtyping import Array

from kernax.core.base.boundary import as_arrays
from kernax.core.base.deprecation import renamed
from kernax.core.base.functions import accepts, with_call
from kernax.core.base.parameters import (
    Rebuild,
    Trainable,
    check_count,
    check_trainable,
    unconstrain,
    warn_of_undeclared_fields,
)
from kernax.core.base.printing import described
from kernax.core.base.solution import Solution
from kernax.core.checkpoint.checkpoint import Checkpoint
from kernax.selection.optimise.callbacks import Callback
from kernax.selection.optimise.kept_learning import Call
from kernax.selection.optimise.learning import finish_learning, run_watched, watchers
from kernax.selection.optimise.progress import LearningRun
from kernax.selection.optimise.steps import LearningProblem, advance, close, start
from kernax.selection.optimise.validation import Validation, check_validation

Model = TypeVar("Model")


@renamed(steps="n_steps")
@with_call("kernax.minimise(loss, model, optimiser, n_steps, args=(X, y))")
def minimise(
    loss: Callable[..., Array],
    model: Model,
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
    """Minimises `loss(model, *args)` over the parameters of a model, by any optimiser of optax.

    It optimises the unconstrained form of the parameters (`unconstrain`), so that positive ones
    stay positive, and returns the best model seen, which never has a loss of NaN. The program is
    compiled once for given `loss` and `optimiser` objects and shapes: reuse them, and other arrays
    and floats in `args` do not compile again; an integer or a string there is static. The result
    has no reverse-mode derivative: JAX refuses `jax.grad` through the steps. Forward mode is
    supported. For many data sets use `kernax.batched`: under `jax.vmap` all members run as long as
    the slowest, and wait for each other in the line searches of L-BFGS.

    Arguments:
        loss: `loss(model, *args)`, a scalar. Define it once, at module level; pass data through
            `args`.
        model: a pytree of modules and arrays: a kernel, or a module of your own with a kernel and a
            `positive()` ridge.
        optimiser: any optimiser of optax, `optax.lbfgs()` included. Make it once, at module level
            as well: written inline it is a new object in every call, which compiles again. Line
            searches run as optax defines them; `optax.lbfgs()` runs in a unit of the loss in which
            the first gradient has a length of one to two, so that it takes the same steps for 1e-30
            times the loss. Other optimisers get the unscaled loss: Adam hardly moves if gradients
            are below its `eps` of 1e-8.
        n_steps: the number of updates; another number compiles again. Learning stops early if the
            gradient is zero up to rounding: its norm is at most eps^(2/3) |loss|.
        trainable: as for `unconstrain`: freezes whole parameters or single elements, which are
            returned unchanged bit by bit.
        validation: `kernax.selection.Validation(loss, args=(X, y), patience=20)`, a loss on
            held-out data: learning returns the model that is best there, and stops early.
        progress: draw a bar on standard error (needs `rich`; not under a transformation).
        callback: `callback(solution)` after every step, with the solution as it would be returned
            there; True ends learning. `kernax.selection.Callback(function, every=10)` is called
            less often. Not under a transformation.
        checkpoint: the path of a folder for the state of learning, which is saved about fifty times
            in a run. If the process is killed, the same call resumes from there, with the same
            result. `kernax.Checkpoint(path, every=100)` is written after every 100 steps; with
            `seconds=` every step is a call of its own. A finished run is not repeated: the call
            returns its result. With more `n_steps`, a run that had used up its steps continues; one
            that ended earlier, by itself or by a callback, does not. `kernax.Checkpoint` says what
            identifies a call. Not under a transformation.
        throw: raise `NonFiniteError` if the loss or its gradient becomes NaN or inf,
            `DivergedError` if the steps were too long, `BreakdownError` if no step was long enough
            to move a parameter; otherwise look at `result`.

    Returns:
        A `Solution`: the model with the lowest finite loss, or validation loss where there is one.
        The status is `successful` unless one of the statuses below applies, also if all `n_steps`
        were used up: it does not mean that learning has converged. Fewer `steps` than `n_steps`, or
        a small `gradient_norm`, show that. It is `nonfinite` if the loss or gradient stopped being
        finite, in which case `value` is the best before that, or if the validation loss never was.
        Stats: `loss` (of `value`, computed once more at the end: where rounding is large, that of
        the steps may differ), `losses` (n_steps + 1,) with NaN where not reached, `steps` taken,
        `gradient_norm` at the last step, with respect to the unconstrained parameters, with a
        validation `validation_loss` (of `value`) and `validation_losses` (n_steps + 1,), and
        `runaways`: for each parameter, by name, whether it is at a bound. A positive parameter may
        move eight powers of ten from its start, a parameter in an interval as far in logits; one
        that gets there is stopped, and a warning names it. The status is `diverged` if the run
        stopped at a bound and no step improved on the start, which is then `value`: the gradient is
        zero at a bound, but nothing was learned. It is `stagnation` if no step moved a parameter,
        although the gradient is not zero.

    Raises:
        ValueError: nothing to learn, no steps, a loss that is not a scalar, or `progress`,
            `callback` or `checkpoint` under a transformation.
        KernaxFileError: the folder of the checkpoint belongs to another call, or all of its
            checkpoints are damaged.

    Examples:
        >>> import optax
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> def loss(model, X, y):
        ...     return -kernax.log_marginal_likelihood(model.kernel, X, y, model.ridge)
        ...
        >>> start = kernax.Model(kernax.RBF(1.0), 0.1)
        >>> solution = kernax.minimise(loss, start, optax.adam(0.1), 50, args=(X, y))
        >>> bool(solution.stats["loss"] < loss(start, X, y))
        True
        >>> solution.stats["losses"].shape
        (51,)
    """
    if inspect.isfunction(model):
        raise ValueError(
            "model must hold parameters, such as a kernel, but is a function: the order is "
            "kernax.minimise(loss, model, optimiser, n_steps, args=(X, y))"
        )
    n_steps = check_arguments(loss, optimiser, n_steps, args, trainable)
    check_validation(validation)
    watching = watchers(progress, callback, checkpoint)
    theta, rebuild = unconstrained(model, trainable)
    args, validation = as_arrays((args, validation))
    # min over theta of L(theta) = loss(rebuild(theta), *args), without constraints: rebuild maps
    # theta into the intervals of the parameters (`Interval.constrain`).
    problem = LearningProblem(loss, rebuild, theta, args, optimiser, validation)
    search = LearningRun(
        Partial(start, problem), Partial(advance, problem), Partial(close, problem)
    )
    call = Call("minimise", loss, [model], rebuild.free, optimiser, n_steps, args, validation)
    solution = run_watched(search, call, watching)
    return finish_learning(solution, throw, "minimise")


def check_arguments(loss: Any, optimiser: Any, steps: Any, args: Any, trainable: Any) -> int:
    """The number of steps as a Python integer, which is static under `jit`.

    Raises ValueError for arguments of the wrong kind, before anything is traced.
    """
    steps = check_count(steps, "n_steps")
    if not (hasattr(optimiser, "init") and hasattr(optimiser, "update")):
        raise ValueError(
            "optimiser must be an optimiser of optax, already called, such as optax.adam(0.1), but "
            f"is {described(optimiser)}"
        )
    check_loss(loss, args)
    check_trainable(trainable)
    return steps


def check_loss(loss: Any, args: Any) -> None:
    """Raises ValueError for anything but a function and a tuple of its arguments."""
    if not callable(loss):
        raise ValueError(
            f"loss must be a function of a model, but is of type {type(loss).__name__}"
        )
    if not isinstance(args, tuple):
        raise ValueError(
            "args must be a tuple of the arguments of loss after the model, such as (X, y), but "
            f"is of type {type(args).__name__}"
        )
    if not accepts(loss, None, *args):
        raise ValueError(
            "loss must have a signature for loss(model, *args), but has "
            f"{inspect.signature(loss)}, and args has length {len(args)}: pass data as args=(X, y)"
        )


def unconstrained(model: Any, trainable: Trainable | None) -> tuple[dict[str, Array], Rebuild]:
    """`unconstrain` of a model with at least one free parameter."""
    theta, rebuild = unconstrain(model, trainable)
    if not theta:
        raise ValueError(
            "the model has no free parameters: everything is frozen, or no field is declared "
            "kernax.fields.positive() or real()"
        )
    warn_of_undeclared_fields(model, theta)
    return theta, rebuild
