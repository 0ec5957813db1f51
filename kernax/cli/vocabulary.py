"""The names that a kernel expression may use, and whether kernels compare numbers or text."""

import difflib

from kernax.core.kernel.kernel import AbstractKernel, Constant, parts_of
from kernax.kernels import KERNELS as REGISTERED
from kernax.kernels import On
from kernax.kernels.entry import Points
from kernax.preparation.cells import short

_IN_EXPRESSIONS = [entry for entry in REGISTERED if entry.in_expressions]
KERNELS: dict[str, type[AbstractKernel]] = {
    entry.word: entry.kind for entry in _IN_EXPRESSIONS if entry.points != Points.STRINGS
}
STRING_KERNELS: dict[str, type[AbstractKernel]] = {
    entry.word: entry.kind for entry in _IN_EXPRESSIONS if entry.points == Points.STRINGS
}
NORMALISED = "normalised"  # takes a kernel, not numbers
OF_COLUMN = "text"  # takes the name of a column and a string kernel
ON = "on"  # takes a kernel and the number of a column
NUMBERS = "numbers"
TEXT = "text"
# Functions of a kernel that are not kernels, and that someone may write nevertheless.
_FUNCTIONS = ("log", "sqrt", "abs", "sin", "cos", "tan", "tanh", "min", "max", "round", "sum")


def kernel_class(name: str, called: bool = False) -> type[AbstractKernel]:
    """The class of that name. Raises ValueError, with a hint, for any other word."""
    if name in KERNELS or name in STRING_KERNELS:
        return (KERNELS | STRING_KERNELS)[name]
    if name in _FORMS:
        raise ValueError(_FORMS[name])
    if called and name == "exp":
        raise ValueError(
            "exp of a kernel is a kernel, but not one that an expression can write: use "
            "kernax.ExpOf in Python"
        )
    if called and name in _FUNCTIONS:
        raise ValueError(
            f"{name} of a kernel is not a kernel in general, and no function has a meaning in a "
            "kernel expression"
        )
    raise ValueError(f"there is no kernel called {short(name)}: {_hint(name)}")


def _hint(name: str) -> str:
    """The kernels of names like this one, or else all of them."""
    near = difflib.get_close_matches(name.lower(), [*KERNELS, *STRING_KERNELS, *_FORMS], n=3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"the kernels are {', '.join(KERNELS)}; of text spectrum, ..."


NO_PLACE = "on takes one kernel and the number of a column, as in on(rbf, 2)"
NO_OPERAND = "normalised takes one kernel, as in normalised(spectrum(3))"
NO_COLUMN = (
    "text takes the name of a column in quotes and a string kernel, as in text('name', spectrum(3))"
)
_FORMS = {NORMALISED: NO_OPERAND, OF_COLUMN: NO_COLUMN, ON: NO_PLACE}


def compared(kernel: AbstractKernel) -> frozenset[str]:
    """What a kernel compares: `NUMBERS`, `TEXT`, both, or neither if it is made of constants."""
    inner = parts_of(kernel)
    if inner:
        return frozenset().union(*map(compared, inner))
    if isinstance(kernel, Constant):
        return frozenset()
    of_strings = isinstance(kernel, tuple(STRING_KERNELS.values()))
    return frozenset([TEXT if of_strings else NUMBERS])


def is_named(kernel: object) -> bool:
    """Whether a kernel is one of a column of text, which the expression names."""
    return isinstance(kernel, On) and isinstance(kernel.where, str)


def text_names(kernel: AbstractKernel) -> list[str]:
    """The names of all columns that a kernel's expression names."""
    own = [kernel.where] if isinstance(kernel, On) and is_named(kernel) else []
    return own + [name for part in parts_of(kernel) for name in text_names(part)]


def bare_text(kernel: AbstractKernel) -> bool:
    """Whether a string kernel in it names no column."""
    if is_named(kernel):
        return False
    inner = parts_of(kernel)
    return any(map(bare_text, inner)) if inner else TEXT in compared(kernel)
