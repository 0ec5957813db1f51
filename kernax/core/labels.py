"""Class labels of any kind as the numbers that learners take: -1 and +1, or a column for each class."""

import numbers
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from kernax.core.boundary import as_targets
from kernax.core.numerics import is_concrete


def signs(labels: Any) -> tuple[Float[Array, " n"], tuple[Any, Any]]:
    """Two classes as -1 and +1, and which is which: `classes[0]` is -1. Labels are numbers, strings or booleans, shape (n,).

    Raises ValueError, naming the classes seen, unless there are exactly two.
    """
    classes, places = _classes(labels)
    if len(classes) != 2:
        raise ValueError(f"two classes are needed, but labels hold {_named(classes)}: one_hot takes any number")
    return jnp.where(places == 1, 1.0, -1.0), (classes[0], classes[1])


def one_hot(labels: Any) -> tuple[Float[Array, "n c"], tuple[Any, ...]]:
    """A column for each class, one where the label is that class and zero elsewhere, and the classes in order.

    `2 * one_hot(labels)[0] - 1` are the targets of one machine against the rest for each class. Raises ValueError for fewer
    than two classes.
    """
    classes, places = _classes(labels)
    if len(classes) < 2:
        raise ValueError(f"at least two classes are needed, but labels hold {_named(classes)}")
    return jnp.where(places[:, None] == np.arange(len(classes)), 1.0, 0.0), tuple(classes)


def _classes(labels: Any) -> tuple[list[Any], np.ndarray]:
    if not is_concrete(labels):
        raise ValueError("labels are looked at to find the classes: encode them outside of jit, grad and vmap")
    if isinstance(labels, (list, tuple)) and len({isinstance(label, str) for label in labels}) == 2:
        raise ValueError("labels must be all of one kind, numbers or strings, but are mixed")
    array = np.asarray(labels)
    if array.ndim != 1:
        advice = "pass labels[:, 0]" if array.shape[1:] == (1,) else "columns of 0 and 1 are one-hot already"
        raise ValueError(f"labels must have shape (n,), one per point, but have shape {array.shape}: {advice}")
    if array.dtype.kind not in "biufUSO":
        raise ValueError(f"labels must be numbers, strings or booleans, but are of type {array.dtype}")
    if array.dtype.kind == "O" and all(isinstance(label, numbers.Real) for label in array):
        array = np.array(array.tolist())  # as a column of a table may hold them
    if array.dtype.kind == "O" and not all(isinstance(label, str) for label in array):
        raise ValueError("labels must be all of one kind, numbers or strings, but are mixed")
    if array.dtype.kind == "f" and (not np.all(np.isfinite(array)) or np.any(array != np.round(array))):
        raise ValueError("labels must be classes, but hold fractions, NaN or inf: is this a regression?")
    classes, places = np.unique(array, return_inverse=True)
    return classes.tolist(), places


def as_signs(y: ArrayLike, n: int, dtype: Any, weights: Array | None) -> Array:
    """Targets -1 and +1, (n,) or (n, machines), of which each kind has a positive weight in each column."""
    targets = as_targets(y, n, dtype)
    values = np.asarray(targets) if is_concrete(targets) else None
    if values is not None and not np.all(abs(values) == 1):
        advice = "y, classes = signs(labels)" if values.ndim == 1 else "2 * Y - 1 makes signs of one-hot columns"
        raise ValueError(f"y must hold -1 and +1, but holds {_named(np.unique(values).tolist())}: {advice}")
    if values is None or not is_concrete(weights):
        w = jnp.ones_like(targets, shape=n) if weights is None else weights
        of_weight = (w > 0).reshape(n, *[1] * (targets.ndim - 1))
        both = jnp.any((targets > 0) & of_weight, 0) & jnp.any((targets < 0) & of_weight, 0)
        return jnp.where((abs(targets) == 1) & jnp.expand_dims(both, 0), targets, jnp.nan)
    kept = values if weights is None else values[np.asarray(weights) > 0]
    for column in kept.reshape(len(kept), -1).T:
        if np.all(column == column[0]):
            where = "" if weights is None else " among the points of positive weight"
            raise ValueError(f"y holds one class only, {column[0]:+g}{where}: two are needed")
    return targets


def as_one_hot(Y: ArrayLike, n: int, dtype: Any, weights: Array | None, every: bool) -> Array:
    """Targets (n, c), one in each row and zero elsewhere, of which at least two columns, or `every` one, weigh something."""
    targets = as_targets(Y, n, dtype, "Y")
    if targets.ndim != 2 or targets.shape[1] < 2:
        raise ValueError(f"Y must have shape ({n}, classes), but has shape {targets.shape}: Y, classes = one_hot(labels)")
    values = np.asarray(targets) if is_concrete(targets) else None
    if values is not None and (not np.all(np.isin(values, (0, 1))) or not np.all(values.sum(1) == 1)):
        raise ValueError("each row of Y must hold one 1 and zeros, but some do not: Y, classes = one_hot(labels)")
    if values is None or not is_concrete(weights):
        kept = targets > 0 if weights is None else (targets > 0) & (weights[:, None] > 0)
        present = jnp.any(kept, 0)
        return jnp.where(jnp.all(present) if every else jnp.sum(present) >= 2, targets, jnp.nan)
    kept = values if weights is None else values[np.asarray(weights) > 0]
    present = kept.any(0)
    if np.sum(present) < 2:
        raise ValueError("Y holds one class only among the points of positive weight: two are needed")
    if every and not present.all():
        raise ValueError(
            f"Y holds no point of positive weight in column {int(np.argmin(present))}, whose bias would be -inf: "
            "leave the column away, or take bias=False"
        )
    return targets


def _named(classes: list[Any]) -> str:
    shown = ", ".join(map(repr, classes[:5])) + (", ..." if len(classes) > 5 else "")
    return f"{len(classes)} class{'' if len(classes) == 1 else 'es'}: {shown}"
