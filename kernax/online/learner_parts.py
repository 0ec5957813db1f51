"""Checks of what learners are made of."""

from typing import Any


def kind_in_words(value: Any) -> str:
    """A value in a message: numbers and words as they are, a class as one, others by their type."""
    if isinstance(value, type):
        return f"the class {value.__name__}, not called"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    kind = type(value)
    return f"of type {kind.__module__}.{kind.__qualname__}"


def as_part(value: Any, kind: type, name: str, known: str) -> Any:
    """A part of a learner as it is. Raises ValueError for what is not of a kind.

    The message names the argument, and what is `known` to fit.
    """
    if isinstance(value, kind):
        return value
    raise ValueError(f"{name} must be {known}, but is {kind_in_words(value)}")
