"""Class labels as numbers: -1 and +1, or a column for each class."""

import numbers
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax._advice import OF_NUMBERS
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_targets
from kernax.core.base.numerics import expand_to, is_concrete, values_of
from kernax.core.base.weights import AbstractWeights

_MOST_CLASSES = 10  # that targets of few points may have without being taken for numbers


def signs(labels: Any) -> tuple[Float[Array, " n"], tuple[Any, Any]]:
    """Encodes the labels of two classes as -1 and +1.

    Returns the signs and the pair `classes`, in which `classes[0]` is the class encoded as -1.

    Labels are numbers, strings or booleans, shape (n,).

    Raises ValueError, naming the classes seen, unless there are exactly two.

    Examples:
        >>> y, classes = kernax.signs(["spam", "ham", "spam"])
        >>> y.tolist()
        [1.0, -1.0, 1.0]
        >>> classes
        ('ham', 'spam')
    """
    classes, places = _classes(labels)
    if len(classes) != 2:
        advice = ": one_hot takes any number" if len(classes) > 2 else ""
        raise ValueError(f"two classes are needed, but labels hold {_named(classes)}{advice}")
    y = np.where(places == 1, 1.0, -1.0)
    return jnp.asarray(y, dtype=float), (classes[0], classes[1])


def one_hot(labels: Any) -> tuple[Float[Array, "n c"], tuple[Any, ...]]:
    """Encodes labels as one column for each class, 1 for a label of that class and 0 elsewhere.

    Returns the matrix (n, classes), and the classes.

    `2 * one_hot(labels)[0] - 1` gives the targets of one-versus-rest classifiers. Raises ValueError
    for fewer than two classes.

    Examples:
        >>> Y, classes = kernax.one_hot(["red", "green", "red", "blue"])
        >>> classes
        ('blue', 'green', 'red')
        >>> Y.tolist()[0]  # red
        [0.0, 0.0, 1.0]
    """
    classes, places = _classes(labels)
    if len(classes) < 2:
        raise ValueError(f"at least two classes are needed, but labels hold {_named(classes)}")
    is_class = places[:, None] == np.arange(len(classes))
    return jnp.asarray(is_class, dtype=float), tuple(classes)


def _classes(labels: Any) -> tuple[list[Any], np.ndarray]:
    """The distinct labels, sorted, and the index of each label among them."""
    if not is_concrete(labels):
        raise ValueError(
            "labels must be concrete, because they determine the classes, but are traced: encode "
            "them outside of jit, grad and vmap"
        )
    array = _array_of(labels)
    if array.ndim != 1:
        is_column = array.shape[1:] == (1,)
        advice = "pass labels[:, 0]" if is_column else "columns of 0 and 1 are one-hot already"
        raise ValueError(
            f"labels must have shape (n,), one per point, but have shape {array.shape}: {advice}"
        )
    if array.dtype.kind not in "biufUSOT":
        raise ValueError(
            f"labels must be numbers, strings or booleans, but are of type {array.dtype}: "
            "convert them to strings"
        )
    if array.dtype.kind == "f" and not np.all(np.isfinite(array) & (array == np.round(array))):
        raise ValueError(
            "labels must be classes, but hold fractions, NaN or inf: is this a regression?"
        )
    classes, places = np.unique(array, return_inverse=True)
    return classes.tolist(), places


_MIXED = (
    "labels must be all of one kind, numbers or strings, but are mixed, or hold None or other "
    "objects: drop such rows, or convert all labels to strings"
)


def _array_of(labels: Any) -> np.ndarray:
    """Labels as an array of one kind. Raises ValueError for a mixture of numbers and strings."""
    if isinstance(labels, (list, tuple)) and len({isinstance(label, str) for label in labels}) == 2:
        raise ValueError(_MIXED)
    array = np.asarray(labels)
    if array.dtype.kind != "O" or array.ndim != 1 or _all_are(str, array):
        return array
    if _all_are((numbers.Real, np.bool_), array):
        return np.array(array.tolist())  # numbers in a column of objects, as in tables
    raise ValueError(_MIXED)


def _all_are(kinds: type | tuple[type, ...], labels: np.ndarray) -> bool:
    """Whether all labels are instances of a type, or of one of several."""
    return all(isinstance(label, kinds) for label in labels)


def as_signs(y: ArrayLike, n: int, dtype: Any, weights: AbstractWeights) -> Array:
    """Targets -1 and +1, (n,) or (n, problems). Each column must have both signs among the points
    of positive weight.

    Raises ValueError for concrete targets and weights that do not; traced ones become NaN.
    """
    targets = as_signs_of_any_class(y, n, dtype)
    kept = weights.kept()
    if not is_concrete(targets) or kept is None:
        of_weight = expand_to(weights.values > 0, targets)
        both = jnp.any((targets > 0) & of_weight, 0) & jnp.any((targets < 0) & of_weight, 0)
        return jnp.where(jnp.expand_dims(both, 0), targets, jnp.nan)
    values = values_of(targets)
    where = "" if np.all(kept) else " among the points of positive weight"
    for place, column in enumerate(values[kept].reshape(np.sum(kept), -1).T):
        if np.all(column == column[0]):
            if values.ndim > 1:
                raise ValueError(
                    f"column {place} of y holds one class only, {column[0]:+g}{where}: leave out "
                    "that column"
                )
            raise ValueError(f"y holds one class only, {column[0]:+g}{where}: two are needed")
    return targets


def as_signs_of_any_class(y: ArrayLike, n: int, dtype: Any) -> Array:
    """Targets -1 and +1, possibly all of one sign."""
    targets = as_targets(y, n, dtype)
    if is_concrete(targets):
        values = values_of(targets)
        if not np.all(abs(values) == 1):
            distinct = np.unique(values)
            if _are_numbers(values, distinct):
                came = f"{len(distinct)} numbers from {distinct[0]:g} to {distinct[-1]:g}"
                raise ValueError(f"y must hold -1 and +1, but holds {came}: {OF_NUMBERS}")
            if values.ndim > 1:
                advice = "2 * Y - 1 converts one-hot columns to signs"
            elif len(distinct) > 2:
                advice = (
                    "2 * one_hot(labels)[0] - 1 has a column of signs for each class, to learn one "
                    "at a time where y must be a vector"
                )
            else:
                advice = "y, classes = signs(labels)"
            raise ValueError(
                f"y must hold -1 and +1, but holds {_named(distinct.tolist())}: {advice}"
            )
        return targets
    return jnp.where(abs(targets) == 1, targets, jnp.nan)


def _are_numbers(values: np.ndarray, distinct: np.ndarray) -> bool:
    """Whether targets look like numbers rather than classes: fractions, or many distinct values."""
    has_fractions = bool(np.any(distinct != np.round(distinct)))
    return has_fractions or len(distinct) > max(_MOST_CLASSES, values.size // 2)


def as_one_hot(Y: ArrayLike, n: int, dtype: Any, weights: AbstractWeights, every: bool) -> Array:
    """Targets (n, c) with one 1 in each row and 0 elsewhere.

    At least two columns, or with `every` all of them, must hold a 1 at a point of positive weight.
    Raises ValueError for concrete targets and weights that do not; traced ones become NaN.
    """
    targets = as_one_hot_of_any_class(Y, n, dtype, weights)
    kept = weights.kept()
    if not is_concrete(targets) or kept is None:
        present = jnp.any((targets > 0) & expand_to(weights.values > 0, targets), 0)
        return jnp.where(jnp.all(present) if every else jnp.sum(present) >= 2, targets, jnp.nan)
    present = np.any(values_of(targets)[kept] > 0, axis=0)
    if np.sum(present) < 2:
        raise ValueError(
            "Y holds one class only among the points of positive weight: two are needed"
        )
    if every and not present.all():
        raise ValueError(
            f"Y holds no point of positive weight in column {int(np.argmin(present))}, whose bias "
            "would be -inf: leave out the column, or pass bias=False"
        )
    return targets


def as_one_hot_of_any_class(Y: ArrayLike, n: int, dtype: Any, weights: AbstractWeights) -> Array:
    """Targets (n, c) with one 1 in each row and 0 elsewhere, possibly all of one class. The weights
    are not used; all checks of targets have the same arguments.
    """
    targets = as_targets(Y, n, dtype, "Y")
    if targets.ndim != 2 or targets.shape[1] < 2:
        raise ValueError(
            f"Y must have shape ({n}, classes), but has shape {targets.shape}: Y, classes = "
            "one_hot(labels)"
        )
    if is_concrete(targets):
        values = values_of(targets)
        if not (np.all(np.isin(values, (0, 1))) and np.all(values.sum(1) == 1)):
            raise ValueError(
                "each row of Y must hold one 1 and zeros, but some do not: Y, classes = "
                "one_hot(labels)"
            )
        return targets
    each_is_0_or_1 = jnp.all((targets == 0) | (targets == 1), 1, keepdims=True)
    sound = each_is_0_or_1 & (jnp.sum(targets, 1, keepdims=True) == 1)
    return jnp.where(sound, targets, jnp.nan)


def as_ordered(y: ArrayLike, n: int, dtype: Any, n_classes: int) -> Array:
    """Targets (n,) or (n, problems) that are classes 0, 1, ..., n_classes - 1.

    Raises ValueError for concrete targets that are not; traced ones become NaN.
    """
    targets = as_targets(y, n, dtype)
    if is_concrete(targets):
        values = values_of(targets)
        if not np.all(np.isin(values, np.arange(n_classes))):
            raise ValueError(
                f"y must hold classes 0, ..., {n_classes - 1}, one more than there are thresholds, "
                f"but holds {_named(np.unique(values).tolist())}: number the classes in their "
                "order, as in np.searchsorted(classes, labels), or pass other thresholds"
            )
        return targets
    is_class = (targets >= 0) & (targets < n_classes) & (targets == jnp.round(targets))
    return jnp.where(is_class, targets, jnp.nan)


def _named(classes: list[Any]) -> str:
    """The number of classes, and the first of them, for a message."""
    if not classes:
        return "no class"
    shown = ", ".join(map(repr, classes[:5])) + (", ..." if len(classes) > 5 else "")
    return f"{len(classes)} class{'' if len(classes) == 1 else 'es'}: {shown}"
