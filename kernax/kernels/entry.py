"""The entry that registers a kernel."""

import enum
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kernax.core.kernel.kernel import AbstractKernel


class Points(enum.Enum):
    """The kind of points that a kernel compares."""

    VECTORS = "vectors"
    NONZERO = "vectors other than zero"  # at zero the kernel or a derivative jumps
    PLACES = "numbers between 0 and 1"
    SETS = "vectors of an entry for each item"
    INTEGERS = "integers"
    STRINGS = "strings"
    TREES = "trees"
    SERIES = "time series"
    FUNCTIONALS = "linear functionals of functions of vectors"


class Entry(NamedTuple):
    """A kernel's row in the table.

    Attributes:
        kind: the class.
        points: the kind of points that its examples compare. Vectors have length two.
        examples: makes one or more instances, to be tested for conformance; each is of that class
            or contains an instance of it.
        in_expressions: whether the command line knows it, by its `word`.
    """

    kind: type[AbstractKernel]
    points: Points
    examples: Callable[[], Sequence[AbstractKernel]]
    in_expressions: bool = False

    @property
    def name(self) -> str:
        """The name under which it is exported: `RationalQuadratic`."""
        return self.kind.__name__

    @property
    def word(self) -> str:
        """Its name in an expression: `rational_quadratic`."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).lower()
