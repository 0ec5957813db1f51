"""What a row of the published tables is, and what is said of it."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parents[3] / "shared" / "data"


class Sense(enum.Enum):
    """How a figure is compared with the published one."""

    EQUAL = enum.auto()
    LOWER_IS_BETTER = enum.auto()
    HIGHER_IS_BETTER = enum.auto()
    SHOWN = enum.auto()


class Trust(enum.Enum):
    """Where a published figure was read."""

    PRIMARY = "V"
    SECONDARY = "S"
    COMPUTED = "C"
    RECALLED = "M"
    NONE = ""


@dataclass(frozen=True)
class Figure:
    """One number of a row.

    Attributes:
        name: its key in what `measure` returns.
        published, trust: the figure, None where there is none, and where it was read.
        within: how far from the published one, or how much worse, kernax's may be.
        sense: how both are compared.
        form: how they are printed.
        others: what else is published, in words.
    """

    name: str
    published: float | None = None
    trust: Trust = Trust.NONE
    within: float = 0.0
    sense: Sense = Sense.LOWER_IS_BETTER
    form: str = "g"
    others: str = ""

    def verdict(self, value: float) -> str:
        """In a word: `equal`, `as published`, `better`, `WORSE`, `DIFFERENT`; empty where nothing
        is published.
        """
        if self.published is None or self.sense is Sense.SHOWN:
            return ""
        excess = value - self.published
        if self.sense is Sense.EQUAL:
            return "equal" if abs(excess) <= self.within else "DIFFERENT"
        if self.sense is Sense.HIGHER_IS_BETTER:
            excess = -excess
        if excess > self.within or np.isnan(value):
            return "WORSE"
        return "as published" if excess >= 0 else "better"


@dataclass(frozen=True)
class Row:
    """One experiment.

    Attributes:
        name: by which it is asked for.
        section, what: where it stands in the table, and what it is.
        sets: the files that it needs.
        protocol, source: in words.
        figures: what is compared.
        measure: of a flag, whether sizes are small, the figures by their names.
        minutes: about how long it takes on two cores.
        explanation: why figures deviate, in words; also of a row that was not run in full.
        absent: why it cannot be run here at all.
        alike: whether model and protocol are the published ones; if not, the explanation says how
            they differ, and a better figure counts for nothing.
    """

    name: str
    section: str
    what: str
    sets: tuple[str, ...]
    protocol: str
    source: str
    figures: tuple[Figure, ...]
    measure: Callable[[bool], dict[str, float]] | None
    minutes: float = 0.1
    explanation: str = ""
    absent: str = ""
    alike: bool = True

    def missing(self) -> str:
        """Why the row cannot be run; empty if it can."""
        if self.absent:
            return self.absent
        absent = [name for name in self.sets if not (DATA / f"{name}.npz").exists()]
        return f"no data: {', '.join(absent)}" if absent else ""


def table(name: str) -> dict[str, Any]:
    """The arrays of a data set."""
    with np.load(DATA / f"{name}.npz") as file:
        return dict(file)


def exact(
    name: str,
    published: float,
    within: float,
    trust: Trust = Trust.COMPUTED,
    form: str = "g",
    others: str = "",
) -> Figure:
    """A figure that is to be equal."""
    return Figure(name, published, trust, within, Sense.EQUAL, form, others)


def shown(name: str, form: str = "g") -> Figure:
    """A figure with nothing to compare it with."""
    return Figure(name, sense=Sense.SHOWN, form=form)
