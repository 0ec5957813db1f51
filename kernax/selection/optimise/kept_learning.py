"""Learning with a checkpoint: what identifies the call, how a run resumes, and what is written."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optax

from kernax.core.checkpoint.checkpoint import (
    Checkpoint,
    Clock,
    differences,
    keep_state,
    make_ready,
    newest,
)
from kernax.core.checkpoint.facts import check_same_call, fact_of_program, facts_with_values
from kernax.core.checkpoint.stored import read_state
from kernax.selection.optimise.progress import LearningRun, Observer, Reached
from kernax.selection.optimise.validation import Validation


class Call(NamedTuple):
    """The arguments of a call."""

    function_name: str
    loss: Callable
    models: Sequence[Any]
    free: dict[str, Any]  # the free elements of each learned parameter, or None
    optimiser: Any
    steps: int
    args: tuple
    validation: Validation | None


class _Progress(NamedTuple):
    """The state of a run that is saved."""

    state: Any
    steps: int  # that were asked for
    ended: bool  # before all of them


def facts_of_call(call: Call, search: LearningRun) -> dict[str, str]:
    """Everything that a run depends on, except for the number of its steps."""
    # Versions, precision and device.
    libraries = {"jax": jax, "equinox": eqx, "lineax": lx, "optax": optax}
    facts = {f"version of {name}": of.__version__ for name, of in libraries.items()}
    x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    facts |= {"precision": "float64" if x64 else "float32", "device": jax.default_backend()}
    facts |= {"function": call.function_name, "number of starts": str(len(call.models))}
    # The free elements follow the name of a parameter that is partly frozen.
    learned = []
    for path, indices in call.free.items():
        elements = "" if indices is None else str(np.asarray(indices).tolist())
        learned.append(path + elements)
    facts |= {"trainable": ", ".join(learned)}
    # The arguments of the function. A single model is not wrapped in a list.
    model = call.models[0]
    facts |= facts_with_values("model", model if len(call.models) == 1 else list(call.models))
    facts |= facts_with_values("args", call.args)
    facts |= facts_with_values("loss", call.loss)
    facts |= facts_with_values("optimiser", call.optimiser)
    facts |= facts_with_values("validation", call.validation)
    # The programs of the losses, and of a step of the optimiser; its state does not know `steps`.
    facts |= fact_of_program("the loss", call.loss, model, *call.args)
    if call.validation is not None:
        facts |= {"validation.patience": str(call.validation.patience)}
        of_validation = call.validation.loss, model, *call.validation.args
        facts |= fact_of_program("the validation loss", *of_validation)
    state = eqx.filter_eval_shape(search.start, 1)
    step = search.advance, state, jnp.asarray(1)
    return facts | fact_of_program("a step of the optimiser", *step)


def resumed(checkpoint: Checkpoint, facts: dict[str, str], steps: int, state: Any) -> Reached:
    """Where a run of so many steps begins: at its start state, or at the saved state.

    Raises KernaxFileError for the folder of another call, or if all its checkpoints are damaged.
    """
    make_ready(checkpoint)
    found = newest(checkpoint)
    if found is None:
        return Reached(state, 0, over=False)
    check_same_call(checkpoint.path, differences(checkpoint, facts, found))
    kept = read_state(found.folder, _Progress(state, steps, ended=False))
    if steps < kept.steps:
        fewer = f"steps ({steps} in this call, {kept.steps} in the file)"
        check_same_call(checkpoint.path, [fewer])

    # The losses of a run of fewer steps, extended by those of the start state, which are NaN.
    def lengthened(kept: Any, start: Any) -> Any:
        if not eqx.is_array(start) or kept.shape == start.shape:
            return kept
        return start.at[..., : kept.shape[-1]].set(kept)

    state = jax.tree.map(lengthened, kept.state, state)
    is_over = kept.ended or found.step == steps or not bool(state.running.any())
    return Reached(state, found.step, is_over)


def keeper(checkpoint: Checkpoint, facts: dict[str, str], steps: int) -> Observer:
    """An observer that saves the state of learning; it never ends learning."""
    clock = Clock(checkpoint, steps)

    def told(reached: Reached) -> bool:
        if reached.over or clock.is_due(reached.step):
            ended = reached.stopped or (reached.over and reached.step < steps)
            keep_state(checkpoint, reached.step, _Progress(reached.state, steps, ended), facts)
        return False

    # With `seconds` the clock is checked after every step.
    every = clock.every if clock.seconds is None else None
    return Observer(every or 1, told)
