"""Checks of the parts of learners."""

from typing import Any


def kind_in_words(value: Any) -> str:
    """A value as messages name it: numbers and strings as they are, classes by name, anything else
    by its type.
    """
    if isinstance(value, type):
        return f"the class {value.__name__}, not called"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    kind = type(value)
    return f"of type {kind.__module__}.{kind.__qualname__}"


def as_part(value: Any, kind: type, name: str, known: str) -> Any:
    """A part of a learner, unchanged. Raises ValueError if it is not of the right kind.

    The message names the argument, and gives `known` as examples that are accepted.
    """
    if isinstance(value, kind):
        return value
    raise ValueError(f"{name} must be {known}, but is {kind_in_words(value)}")
