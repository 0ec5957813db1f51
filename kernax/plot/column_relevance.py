"""The relevance of input columns: their inverse lengthscales."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.deprecation import renamed
from kernax.core.base.parameters import check_count
from kernax.core.kernel.kernel import AbstractKernel
from kernax.kernels import Mahalanobis, On
from kernax.plot.style import (
    INK,
    axes_or,
    colour_of,
    legend_above,
    plain,
    quieten,
    shortened,
    title_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo", "||||", "****")


@renamed(most="max_columns")
def relevance(
    model: PyTree | Mapping[str, ArrayLike],
    columns: Sequence[str],
    *,
    max_columns: int = 20,
    title: str | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws `1 / lengthscale` of each input column as bars (automatic relevance determination), the
    most relevant column on top.

    A kernel hardly changes along a column if its lengthscale is large compared with the range of
    the column; columns can be compared if they were standardised. If a kernel consists of several
    with lengthscales, each has bars of its own, and columns are sorted by their largest.

    Arguments:
        model: a kernel of vectors, or a module that contains one. Its lengthscales are those with a
            number for each column, those of kernels on some of the columns (`On`), and for a
            `Mahalanobis` kernel the inverse lengths of the columns of its factor. Or the
            lengthscales themselves, by the names of their terms: (d,) each, NaN where a term does
            not use a column.
        columns: the names of the d columns, in the order of the dimensions of a point.
        max_columns: the largest number of columns to draw; the title has the number of all.
        title: the title above the axes.
        ax: matplotlib axes to draw on; default, the axes of a new figure, which grows with the
            number of bars.

    Raises ValueError for names that are not a sequence, a model without such lengthscales, and
    lengthscales that have another shape or are not positive.
    """
    from matplotlib.figure import Figure

    if isinstance(columns, str) or not hasattr(columns, "__len__") or len(columns) == 0:
        raise ValueError(f"columns must be the names of the input columns, but is {columns!r}")
    check_count(max_columns, "max_columns")
    d = len(columns)
    named = model if isinstance(model, Mapping) else _lengthscales_of(model, d)
    if not named:
        raise ValueError(
            f"model must have lengthscales for each of {d} columns, but has none: learn a kernel "
            f"such as RBF(jnp.ones({d})), or pass lengthscales by name, {{'rbf': values}}"
        )
    # The lengthscales (d,) of each term, by its name.
    terms = {str(name): _checked(str(name), value, d) for name, value in named.items()}
    bars = 1 / np.stack(list(terms.values()))
    order = np.argsort(-np.nanmax(bars, axis=0, initial=0.0), kind="stable")[:max_columns]
    # A new figure has room for the bars.
    height = 1.1 + len(order) * max(0.26, 0.15 * len(bars) + 0.06)
    new = lambda: Figure(figsize=(4.6, height), dpi=160, layout="constrained").subplots()
    ax = axes_or(ax, new)
    _draw_bars(ax, dict(zip(terms, bars[:, order])))
    # The names of the columns stand on the left, the most relevant on top.
    names = [str(columns[place]) for place in order]
    ax.set_xlabel(plain("relevance, 1 / lengthscale"), color=INK)
    quieten(ax)
    ax.set_yticks(range(len(names)), [shortened(name) for name in names], color=INK)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(names) - 0.45, -0.55)
    ax.grid(visible=False, axis="y")
    if len(order) < d:
        shown = f"the {len(order)} most relevant of {d} columns"
        title = shown if title is None else f"{title}, {shown}"
    if len(terms) > 1:
        legend_above(ax, title)
    elif title is not None:
        title_axes(ax, title)
    return ax


def _checked(name: str, value: ArrayLike, d: int) -> np.ndarray:
    lengths = np.asarray(value, float)
    if lengths.shape != (d,):
        raise ValueError(
            f"the lengthscales of {name} must have shape ({d},), one for each column, but have "
            f"shape {lengths.shape}"
        )
    if np.all(np.isnan(lengths)) or np.any(lengths <= 0):
        raise ValueError(f"the lengthscales of {name} must be positive, but are {lengths}")
    return lengths


def _lengthscales_of(model: PyTree, d: int) -> dict[str, np.ndarray]:
    """The lengthscales of all kernels that have one for each column; kernels with the same name are
    numbered.
    """
    found = [
        (type(kernel).__name__, lengths)
        for kernel, indices in _kernels_of(model, np.arange(d))
        if (lengths := _over_columns(kernel, indices, d)) is not None
    ]
    names = [name for name, _ in found]
    terms = {}
    for i, (name, lengths) in enumerate(found):
        number = f" ({names[: i + 1].count(name)})" if names.count(name) > 1 else ""
        terms[name + number] = lengths
    return terms


def _kernels_of(node: PyTree, indices: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
    """The kernels that have lengthscales, each with the columns that it uses."""
    is_leaf = lambda part: isinstance(part, On) or _has_lengthscale(part)
    for part in jax.tree.leaves(node, is_leaf=is_leaf):
        if isinstance(part, On):
            # The columns that it chooses; the key of a part leaves all of them.
            where = part.where if isinstance(part.where, (str, slice)) else np.asarray(part.where)
            try:
                inside = indices if isinstance(where, str) else np.atleast_1d(indices[where])
            except IndexError:
                raise ValueError(
                    f"On(kernel, {part.where!r}) chooses dimensions that {len(indices)} columns do "
                    "not have"
                ) from None
            yield from _kernels_of(part.kernel, inside)
        elif _has_lengthscale(part):
            yield part, indices


def _has_lengthscale(part: Any) -> bool:
    is_named = hasattr(part, "lengthscale") or isinstance(part, Mahalanobis)
    return isinstance(part, AbstractKernel) and is_named


def _over_columns(kernel: Any, indices: np.ndarray, d: int) -> np.ndarray | None:
    """Lengthscales (d,), NaN for columns that a kernel does not use; None if it has one for all
    columns. Raises ValueError for another number of them.
    """
    if isinstance(kernel, Mahalanobis):
        # k(A x, A z) changes along column j by |A_j / lengthscale|.
        inner = np.asarray(getattr(kernel.kernel, "lengthscale", 1.0), float).reshape(-1, 1)
        with np.errstate(divide="ignore"):
            lengths = 1 / np.linalg.norm(np.asarray(kernel.factor, float) / inner, axis=0)
    else:
        lengths = np.asarray(kernel.lengthscale, float)
    if lengths.size == 1 and len(indices) == d > 1:
        return None
    if lengths.shape not in ((), (1,), (len(indices),)):
        raise ValueError(
            f"the lengthscales of {type(kernel).__name__} must have shape ({len(indices)},), one "
            f"for each column that it uses, but have shape {lengths.shape}"
        )
    everywhere = np.full(d, np.nan)
    everywhere[indices] = lengths
    return everywhere


def _draw_bars(ax: "Axes", terms: dict[str, np.ndarray]) -> None:
    """The bars of each term, those of one column below each other."""
    thick = 0.78 / len(terms)
    for i, (name, values) in enumerate(terms.items()):
        rows = np.arange(len(values)) + (i - (len(terms) - 1) / 2) * thick
        ax.barh(
            rows,
            np.nan_to_num(values),
            0.92 * thick,
            color=colour_of(i),
            hatch=_HATCHES[i % len(_HATCHES)],
            edgecolor="white",
            linewidth=0,
            label=shortened(name),
        )
        if len(terms) == 1:
            # The value of each bar stands behind its end.
            for row, value in zip(rows, values):
                ax.annotate(
                    "" if np.isnan(value) else f"{value:.2g}",
                    (np.nan_to_num(value), row),
                    xytext=(3, 0),
                    textcoords="offset points",
                    verticalalignment="center",
                    fontsize="x-small",
                    color=INK,
                )
            ax.set_xlim(0, 1.12 * float(np.nanmax(values)))
