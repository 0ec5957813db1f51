"""A warning about fields of users' modules that are learned without a declaration of values."""

import functools
from collections.abc import Iterable

from jaxtyping import PyTree

from kernax.core.base.parameters import undeclared_fields
from kernax.core.base.solution import warn
from kernax.errors import UndeclaredFieldWarning

# Their modules hold weights of networks, and may be anywhere on the line.
_KNOWN = ("equinox", "kernax")


def warn_of_undeclared_fields(model: PyTree, learned: Iterable[str]) -> None:
    """Warns, once in a process, of each field whose arrays are learned, among the `learned` paths,
    as numbers anywhere on the line because no declaration says otherwise.
    """
    fields = undeclared_fields(model)
    for path in learned:
        if path in fields:
            kind, name = fields[path]
            if kind.__module__.partition(".")[0] not in _KNOWN:
                _warn_of_field(kind, name)


@functools.cache
def _warn_of_field(kind: type, name: str) -> None:
    """Warns of one field of a class."""
    warn(
        f"{kind.__name__}.{name} is learned as a number anywhere on the line, because nothing "
        f"declares where it may lie: write {name}: jax.Array = kernax.fields.positive() in the "
        "class, or nonnegative(), above() or interval(); real() keeps it as it is without this "
        "warning, and data() keeps it from being learned",
        UndeclaredFieldWarning,
    )
