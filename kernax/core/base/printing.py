"""Modules that are printed with their numbers, and a progress bar on standard error."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np

from kernax.core.base.numerics import is_concrete

_MOST_PRINTED = 8  # numbers of an array
_ITEM: type = type(lx.RESULTS.successful)  # of an enumeration, which has a text of its own


class Printed(eqx.Module):
    """A module whose text has its numbers, and the shapes of arrays of more than eight."""

    def __repr__(self) -> str:
        shown = jax.tree.map(_as_printed, self, is_leaf=lambda node: isinstance(node, _ITEM))
        return eqx.tree_pformat(shown)


def missing(module: eqx.Module, name: str, advice: str) -> AttributeError:
    """The error for an attribute that a module lacks, with advice on where it is."""
    came = f"{type(module).__name__!r} object has no attribute {name!r}"
    return AttributeError(f"{came}: {advice}", name=name, obj=module)


def _as_printed(leaf: Any) -> Any:
    """A known number, or a few of them, with six digits; anything else as it is."""
    if not _is_of_few_numbers(leaf):
        return leaf
    values = np.asarray(leaf)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        return values.tolist()
    digits = [float(f"{value:.6g}") for value in np.ravel(values)]
    return np.reshape(digits, values.shape).tolist()


def _is_of_few_numbers(leaf: Any) -> bool:
    """Whether a leaf is an array of at most eight real numbers, known and all in this process."""
    if not eqx.is_array(leaf) or not is_concrete(leaf) or leaf.size > _MOST_PRINTED:
        return False
    kinds = (jnp.floating, jnp.integer, jnp.bool_)
    here = getattr(leaf, "is_fully_addressable", True)  # an array of NumPy is
    return here and any(jnp.issubdtype(leaf.dtype, kind) for kind in kinds)


@contextlib.contextmanager
def bar_of(title: str, total: int, done: int = 0) -> Iterator[Callable[..., None]]:
    """Draws a progress bar, by the package `rich`, and gives a function `show(done, total,
    words="")` that redraws it.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    counts = TextColumn("{task.completed}/{task.total}  {task.fields[words]}")
    columns = (TextColumn(title), BarColumn(), counts, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as drawn:
        task = drawn.add_task("", total=total, completed=done, words="")

        def show(done: int, total: int, words: str = "") -> None:
            drawn.update(task, completed=done, total=total, words=words)

        yield show
