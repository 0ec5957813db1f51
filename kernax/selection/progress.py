"""A bar while something is learned.

It is drawn between pieces of the run, so that the steps themselves know nothing of it.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from kernax.core.numerics import is_concrete

_CHUNKS = 50  # how often the bar is redrawn


def run(advance: Callable[[Any, Array], Any], state: Any, steps: int, progress: bool) -> Any:
    """All steps at once, or in some fifty pieces with a bar redrawn between them."""
    if not progress:
        return advance(state, jnp.asarray(steps))
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    if not is_concrete(state):
        raise ValueError(
            "progress=True needs concrete values: leave it out under jit, grad and vmap"
        )
    counts = TextColumn("{task.completed}/{task.total}  {task.fields[shown]}")
    columns = (TextColumn("learning"), BarColumn(), counts, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=steps, shown="")
        for piece in range(1, _CHUNKS + 1):
            state = advance(state, jnp.asarray(steps * piece // _CHUNKS))
            bar.update(
                task,
                completed=int(state.step.max()),
                shown=f"loss {float(state.best_loss.min()):.6g}",
            )
            if not state.running.any():
                bar.update(task, total=int(state.step.max()))  # an early end fills the bar
                break
    return state
