"""Pictures of learners that see one point after another."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import ArrayLike

from kernax.plot.style import (
    INK,
    colour_of,
    columns,
    legend_inside,
    name_axes,
    plain,
    quieten,
    wide_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def mistakes_over_time(
    mistakes: Mapping[str, ArrayLike],
    *,
    bound: float | None = None,
    changes: Sequence[float | int] = (),
    ax: "Axes | None" = None,
) -> "Axes":
    """How many mistakes learners had made after each point of a stream.

    Arguments:
        mistakes: for each learner, by its name, whether it was wrong about each point, (n,) zeros
            and ones or booleans.
        bound: a number of mistakes that is never exceeded, as a dashed line.
        changes: places in the stream, such as those of a drift, as dotted lines.
        ax: matplotlib axes to draw on; default, the axes of a new figure.

    Raises ValueError for no learner, streams of different lengths, and entries that are neither
    zero nor one.
    """
    curves = _checked(mistakes)
    ax = wide_axes() if ax is None else ax
    for i, (name, wrong) in enumerate(curves.items()):
        colour = colour_of(i)
        seen = 1 + np.arange(len(wrong))
        ax.plot(seen, np.cumsum(wrong), lw=1.6, color=colour, label=plain(name))
        ax.set_xlim(1, max(2, len(wrong)))
    if bound is not None:
        ax.axhline(bound, linestyle="dashed", linewidth=0.9, color=INK, label="bound")
    for place in changes:
        ax.axvline(float(place), linestyle="dotted", linewidth=0.9, color=INK)
    ax.set_ylim(bottom=0)
    name_axes(ax, "points seen", "mistakes")
    quieten(ax)
    legend_inside(ax)
    return ax


def _checked(mistakes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The mistakes as zeros and ones. Raises ValueError for anything else."""
    if not mistakes:
        raise ValueError("mistakes must name at least one learner, but is empty")
    curves = columns(**{name: np.asarray(wrong, float) for name, wrong in mistakes.items()})
    for name, wrong in zip(mistakes, curves):
        if not np.all((wrong == 0) | (wrong == 1)):
            raise ValueError(f"mistakes of {name} must be zeros and ones, one for each point")
    return dict(zip(mistakes, curves))
