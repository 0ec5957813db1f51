"""Modules that print their numbers, and a progress bar on standard error."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np

from kernax.core.base.numerics import is_concrete

_MOST_PRINTED = 8  # numbers of an array
_ITEM: type = type(lx.RESULTS.successful)  # an item of an enumeration, with its own text


class Printed(eqx.Module):
    """A module that prints its numbers, but only the shapes of arrays of more than eight, and of a
    batch of statuses how often each occurs.

    `_instead` says in messages what to pass instead, where such a module is the wrong argument.
    """

    _instead: ClassVar[str] = ""

    def __repr__(self) -> str:
        shown = jax.tree.map(_as_printed, self, is_leaf=lambda node: isinstance(node, _ITEM))
        return eqx.tree_pformat(shown)


def described(value: Any, names: Mapping[type, str] | None = None) -> str:
    """A description of an argument for messages: the shape of an array, and advice for a class.

    `names` has classes with another public name than their own.
    """
    if isinstance(value, type):
        name = (names or {}).get(value, value.__name__)
        return f"the class {name}: call it, as in {name}()"
    if getattr(value, "shape", ()):
        return f"an array of shape {value.shape}"
    return misplaced(value) or repr(value)


def typed(value: Any, advice: str = "") -> str:
    """The type of an argument for messages, with advice on what to pass instead."""
    return misplaced(value) or f"of type {type(value).__name__}{advice}"


def misplaced(value: Any) -> str:
    """The type of an argument that stands for another one, and which: the value of a `Solution`.
    Empty for any other argument.
    """
    advice = value._instead if isinstance(value, Printed) else ""
    return f"a {type(value).__name__}: {advice}" if advice else ""


def missing(module: eqx.Module, name: str, advice: str) -> AttributeError:
    """The error for a missing attribute of a module, with advice on where to find it."""
    came = f"{type(module).__name__!r} object has no attribute {name!r}"
    return AttributeError(f"{came}: {advice}", name=name, obj=module)


def _as_printed(leaf: Any) -> Any:
    """A concrete number, or up to eight in an array, with six digits; counts for a batch of
    statuses; anything else unchanged.
    """
    if isinstance(leaf, _ITEM):
        return _StatusCounts(leaf) if np.ndim(leaf._value) and is_concrete(leaf._value) else leaf
    if not eqx.is_array(leaf) or not is_concrete(leaf) or leaf.size > _MOST_PRINTED:
        return leaf
    kinds = (jnp.floating, jnp.integer, jnp.bool_)
    in_this_process = getattr(leaf, "is_fully_addressable", True)  # NumPy arrays are
    if not in_this_process or not any(jnp.issubdtype(leaf.dtype, kind) for kind in kinds):
        return leaf
    values = np.asarray(leaf)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        return values.tolist()
    digits = [float(f"{value:.6g}") for value in np.ravel(values)]
    return np.reshape(digits, values.shape).tolist()


class _StatusCounts:
    """A batch of statuses, printed as `kernax.RESULTS[10]<8 successful, 2 diverged>`."""

    def __init__(self, statuses: Any):
        self.statuses = statuses

    def __repr__(self) -> str:
        kind = self.statuses._enumeration
        values = np.asarray(self.statuses._value)
        names = {int(item._value): name for name, item in kind._name_to_item.items()}
        indices, counts = np.unique(values, return_counts=True)
        listed = [f"{number} {names[int(index)]}" for index, number in zip(indices, counts)]
        shape = ", ".join(map(str, values.shape))
        return f"{kind.__module__}.{kind.__qualname__}[{shape}]<{', '.join(listed)}>"


@contextlib.contextmanager
def bar_of(title: str, total: int, done: int = 0) -> Iterator[Callable[..., None]]:
    """A context with a progress bar of the package `rich`; it gives a function `show(done, total,
    words="")` that redraws the bar.
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
