"""Pictures of classifiers: regions, losses over the margin, probabilities against frequencies, values of each class."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from kernax.core.losses import Hinge, Logistic, Squared, SquaredHinge
from kernax.core.parameters import check_count
from kernax.plot.style import COLOURS, DOT, INK, LINE, check_names, columns, name_axes, plain, quieten, square_axes, wide_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID = 200  # points along each axis at which a classifier is asked


def decision_regions(
    f: Callable[[Array], Array],
    X: ArrayLike,
    labels: Any,
    *,
    support: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    names: tuple[str, str] = ("x1", "x2"),
    ax: "Axes | None" = None,
) -> "Axes":
    """Which class a machine says where, in two dimensions, and the points that it has learned from.

    Arguments:
        f: a function of one point, such as a `KernelExpansion`: a number, whose sign tells two classes apart, or one number for
            each class, of which the largest decides.
        X: shape (n, 2).
        labels: (n,), numbers or strings.
        support: (n,) booleans, which points are support vectors: they get rings, and `f = -1` and `f = 1` dashed lines.
        classes: all classes in the order in which f knows them; default, sorted, as `signs` and `one_hot` sort.
        names: of the two inputs.
        ax: matplotlib axes to draw on; default, the axes of a new square figure.

    Raises ValueError for other shapes, labels that are not among the classes, and a function of another number of classes.
    """
    check_names(names, "of the two inputs")
    a, b = columns(**dict(zip(("x1", "x2"), _two_columns(X).T)))
    labels = _labels(labels, len(a))
    classes = list(np.unique(labels)) if classes is None else list(classes)
    strangers = sorted(set(labels.tolist()) - set(classes), key=str)
    if strangers:
        raise ValueError(f"labels hold {strangers[0]!r}, which is not among the classes {', '.join(map(str, classes))}")
    ax = square_axes() if ax is None else ax
    grid = np.linspace(*_range(a), _GRID), np.linspace(*_range(b), _GRID)
    values = _values_on(f, grid, len(classes))
    _paint(ax, grid, values, margins=support is not None)
    for i, name in enumerate(classes):
        of_class = labels == name
        ax.scatter(a[of_class], b[of_class], s=_size(len(a)), color=_colour(i), edgecolors="white", linewidths=0.5, zorder=3,
                   label=plain(str(name)))  # fmt: skip
    if support is not None:
        ringed = _mask(support, len(a))
        ax.scatter(a[ringed], b[ringed], s=3.2 * _size(len(a)), facecolors="none", edgecolors=INK, linewidths=0.9, zorder=4,
                   label="support vector")  # fmt: skip
    ax.set(xlim=_range(a), ylim=_range(b))
    name_axes(ax, *names)
    quieten(ax)
    ax.grid(visible=False)
    _legend_above(ax)
    return ax


def losses_over_margin(*, ax: "Axes | None" = None) -> "Axes":
    """Losses of two classes over the margin `m = y f`, -3 <= m <= 3: what an error costs, and what a success still does.

    Zero-one is what is meant; hinge, squared `(1 - m)^2`, squared hinge and logistic, divided by ln 2 so that it is 1 at m = 0
    like the others, are convex and above it.
    """
    m, ax = jnp.linspace(-3.0, 3.0, 601), wide_axes() if ax is None else ax
    one = jnp.ones_like(m)
    ax.step([-3, 0, 3], [1, 1, 0], where="pre", color=INK, linewidth=1.6, label="zero-one")
    curves = {
        "hinge": Hinge()(one, m),
        "squared": 2 * Squared()(one, m),
        "squared hinge": SquaredHinge()(one, m),
        "logistic / ln 2": Logistic()(one, m) / np.log(2),
    }
    dashes = {"squared hinge": (0, (5, 2.5))}  # on top of the squared loss, left of m = 1
    for i, (name, loss) in enumerate(curves.items()):
        ax.plot(m, loss, color=_colour(i), linewidth=1.8, linestyle=dashes.get(name, "-"), zorder=3 + i, label=name)
    ax.set(xlim=(-3, 3), ylim=(-0.1, 6))
    name_axes(ax, "margin y f(x)", "loss")
    quieten(ax)
    ax.legend(frameon=False, fontsize="small", labelcolor=INK)
    return ax


def reliability(
    probabilities: ArrayLike, outcomes: ArrayLike, *, bins: int = 10, name: str | None = None, ax: "Axes | None" = None
) -> "Axes":
    """How often what was given a probability came true: a dot for each bin of probabilities, on the diagonal if calibrated.

    Bars are Wilson's intervals of 95 %, dots grow with the number of points. The title has the expected calibration error, the
    mean distance from the diagonal over the points.

    Arguments:
        probabilities: (n,), between 0 and 1.
        outcomes: (n,), 1 or True where it came true, otherwise 0.
        bins: how many, of equal width.
        name: of what is said to be probable, for the axes.
        ax: matplotlib axes to draw on; default, the axes of a new square figure.

    Raises ValueError for shapes that differ, and for other values.
    """
    check_count(bins, "bins")
    p, y = columns(probabilities=probabilities, outcomes=outcomes)
    if np.any((p < 0) | (p > 1)) or not np.all(np.isin(y, (0, 1))):
        raise ValueError("probabilities must lie between 0 and 1, and outcomes be 0 or 1")
    place = np.minimum((p * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins)
    kept = count > 0
    n = count[kept]
    said, came = (np.bincount(place, weights=value, minlength=bins)[kept] / n for value in (p, y))
    ax = square_axes() if ax is None else ax
    ax.plot([0, 1], [0, 1], color=LINE, linewidth=1.2, zorder=1)
    ax.vlines(said, *_wilson(came, n), color=DOT, linewidth=1.4, alpha=0.55, zorder=2)
    sizes = np.clip(160 * np.sqrt(n / n.max()), 14, None)
    ax.scatter(said, came, s=sizes, color=DOT, edgecolors="white", linewidths=0.6, zorder=3)
    ax.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), aspect="equal")
    of = "" if name is None else f" of {name}"
    name_axes(ax, f"predicted probability{of}", f"observed frequency{of}")
    error = float(np.sum(n * abs(said - came)) / len(p))
    ax.set_title(f"{len(p)} points, calibration error {error:.3g}", color=INK, fontsize="medium", loc="left")
    quieten(ax)
    return ax


def values_of_classes(
    values: ArrayLike, labels: Any, *, bins: int = 24, name: str = "decision value", ax: "Axes | None" = None
) -> "Axes":
    """How the values of a machine are spread: histograms of the classes, stacked; zero, where it decides, is a line.

    Arguments:
        values: (n,).
        labels: (n,), numbers or strings.
        bins: how many, or one more: zero is an edge of one.
        name: of the values.
        ax: matplotlib axes to draw on; default, the axes of a new figure.

    Raises ValueError for shapes that differ, or values that are not finite.
    """
    check_count(bins, "bins")
    (values,) = columns(values=values)
    labels = _labels(labels, len(values))
    ax = wide_axes() if ax is None else ax
    width = (max(values.max(), 0.0) - min(values.min(), 0.0)) / bins or 1.0  # zero is an edge: no bar is on both sides
    first, last = np.floor(values.min() / width), np.ceil(values.max() / width)
    edges = width * np.arange(first, max(last, first + 1) + 0.5)
    names = np.unique(labels)
    groups = [values[labels == label] for label in names]
    texts = [f"{plain(str(label))} ({len(group)})" for label, group in zip(names, groups)]
    colours = [_colour(i) for i in range(len(names))]
    ax.hist(groups, edges.tolist(), stacked=True, color=colours, alpha=0.75, edgecolor="white", linewidth=0.6, label=texts)
    ax.axvline(0, color=INK, linewidth=1.2)
    name_axes(ax, name, "points")
    quieten(ax)
    _legend_above(ax)
    return ax


def _values_on(f: Callable, grid: tuple[np.ndarray, np.ndarray], classes: int) -> np.ndarray:
    """f at every point of a grid: (rows, columns), or (rows, columns, classes)."""
    points = jnp.asarray(np.stack(np.meshgrid(*grid), -1).reshape(-1, 2))
    values = np.asarray(jax.lax.map(f, points, batch_size=1000)).reshape(_GRID, _GRID, -1)
    if values.shape[-1] == 1 and classes == 2:
        return values[..., 0]
    if values.shape[-1] != classes or classes < 2:
        raise ValueError(f"f must have a value for each of {classes} classes, or one for two, but has {values.shape[-1]}")
    return values


def _paint(ax: "Axes", grid: tuple[np.ndarray, np.ndarray], values: np.ndarray, margins: bool) -> None:
    """Tinted regions, a line between them, and for two classes the margins."""
    from matplotlib.colors import ListedColormap

    place = (values > 0).astype(int) if values.ndim == 2 else values.argmax(-1)
    count = 2 if values.ndim == 2 else values.shape[-1]
    tints = ListedColormap([_colour(i) for i in range(count)])
    ax.pcolormesh(*grid, place, cmap=tints, vmin=-0.5, vmax=count - 0.5, alpha=0.16, shading="nearest", rasterized=True,
                  linewidth=0)  # fmt: skip
    if values.ndim == 2:
        ax.contour(*grid, values, levels=[0.0], colors=[INK], linewidths=1.3)
        if margins:
            ax.contour(*grid, values, levels=[-1.0, 1.0], colors=[INK], linewidths=0.8, linestyles="dashed")
        return
    for i in range(count):  # each class against the best of the others
        lead = values[..., i] - np.delete(values, i, axis=-1).max(-1)
        if lead.min() < 0 < lead.max():
            ax.contour(*grid, lead, levels=[0.0], colors=[INK], linewidths=0.9)


def _wilson(rate: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The interval of probabilities under which a rate among n is no surprise at 95 % (Wilson 1927)."""
    z = 1.96
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return centre - half, centre + half


def _two_columns(X: ArrayLike) -> np.ndarray:
    X = np.asarray(X, float)
    if X.ndim != 2 or X.shape[1] != 2:
        raise ValueError(f"X must have shape (n, 2), two inputs a point, but has shape {X.shape}")
    return X


def _labels(labels: Any, n: int) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.shape != (n,):
        raise ValueError(f"labels must have shape ({n},), one per point, but have shape {labels.shape}")
    return labels


def _mask(support: ArrayLike, n: int) -> np.ndarray:
    mask = np.asarray(support)
    if mask.shape != (n,) or mask.dtype != bool:
        raise ValueError(f"support must be ({n},) booleans, one per point, but is {mask.dtype} of shape {mask.shape}")
    return mask


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def _size(n: int) -> float:
    return float(np.clip(2400 / n, 8, 30))


def _range(values: np.ndarray) -> tuple[float, float]:
    margin = 0.08 * float(np.ptp(values)) or 1.0
    return float(values.min()) - margin, float(values.max()) + margin


def _legend_above(ax: "Axes") -> None:
    style: dict[str, Any] = {"frameon": False, "fontsize": "small", "labelcolor": INK}
    ax.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2, handletextpad=0.3, columnspacing=1.2, **style
    )
