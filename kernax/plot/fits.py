"""Pictures. Needs matplotlib (`pip install 'kernax-toolkit[plot]'`), which is imported when a picture is drawn, not before.

Every function draws on the `ax` it is given, or on a figure of its own that no global state knows of, and returns the axes:
`predicted_against_true(y, f).figure.savefig("fit.png")`.
"""

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Key, PyTree

from kernax.core.gram import gram
from kernax.core.kernel import AbstractKernel
from kernax.gp.process import GaussianProcess

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _DOT, _LINE = "#2b2b33", "#3a6ea5", "#c8553d"
_COLOURS = ("#3a6ea5", "#c8553d", "#4f9d69", "#8a5a9e", "#c79a3b")


def predicted_against_true(true: ArrayLike, predicted: ArrayLike, *, name: str = "target", ax: "Axes | None" = None) -> "Axes":
    """Predictions over true values, with the diagonal on which perfect ones lie and the root mean square error as the title.

    Arguments:
        true, predicted: shape (n,), n >= 1, in the same units.
        name: what the values are, for the labels of both axes.
        ax: matplotlib axes to draw on; default, the axes of a new square figure.

    Raises ValueError for shapes that differ or values that are not finite.
    """
    true, predicted = _columns(true=true, predicted=predicted)
    ax = _square_axes() if ax is None else ax
    low, high = _limits(true, predicted)
    ax.plot([low, high], [low, high], color=_LINE, linewidth=1.2, zorder=1)
    size = float(np.clip(2400 / len(true), 6, 32))
    ax.scatter(true, predicted, s=size, color=_DOT, alpha=0.65, edgecolors="white", linewidths=0.5, zorder=2)
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    error = np.sqrt(np.mean((predicted - true) ** 2))
    ax.set_xlabel(f"true {_plain(name)}", color=_INK)
    ax.set_ylabel(f"predicted {_plain(name)}", color=_INK)
    ax.set_title(f"{len(true)} points, RMSE {error:.4g}", color=_INK, fontsize="medium", loc="left")
    _quieten(ax)
    return ax


def posterior_band(
    x: ArrayLike,
    mean: ArrayLike,
    deviation: ArrayLike,
    *,
    observed: tuple[ArrayLike, ArrayLike] | None = None,
    held_out: tuple[ArrayLike, ArrayLike] | None = None,
    names: tuple[str, str] = ("x", "y"),
    ax: "Axes | None" = None,
) -> "Axes":
    """A mean over one input, with a band of two standard deviations on either side.

    Arguments:
        x, mean, deviation: shape (n,), x in any order. For targets the deviation is `sqrt(variance + noise)`.
        observed, held_out: pairs (x, y) of points to draw: what was learned from, and what was not.
        names: of the input and the output, for the axes.
        ax: matplotlib axes to draw on; default, the axes of a new figure.

    Raises ValueError for shapes that differ or values that are not finite.
    """
    if isinstance(names, str) or len(names) != 2:
        raise ValueError(f"names must be two, of the input and the output, such as ('x', 'y'), but is {names!r}")
    x, mean, deviation = _columns(x=x, mean=mean, deviation=deviation)
    order = np.argsort(x)
    x, mean, deviation = x[order], mean[order], deviation[order]
    ax = _wide_axes() if ax is None else ax
    ax.fill_between(x, mean - 2 * deviation, mean + 2 * deviation, color=_DOT, alpha=0.18, linewidth=0, label="two sigma")
    ax.plot(x, mean, color=_DOT, linewidth=1.4, label="mean")
    for points, colour, label in ((observed, _INK, "observed"), (held_out, _LINE, "held out")):
        if points is not None:
            a, b = _columns(x=points[0], y=points[1])
            ax.scatter(a, b, s=float(np.clip(1200 / len(a), 3, 20)), color=colour, linewidths=0, zorder=3, label=label)
    ax.set_xlabel(_plain(names[0]), color=_INK)
    ax.set_ylabel(_plain(names[1]), color=_INK)
    ax.legend(frameon=False, fontsize="small", labelcolor=_INK)
    _quieten(ax)
    return ax


def kernel_profile(
    kernel: AbstractKernel, x: ArrayLike, *, key: Key[Array, ""], draws: int = 3, axes: "tuple[Axes, Axes] | None" = None
) -> "tuple[Axes, Axes]":
    """`k(x, z)` with z in the middle of the range, and beside it draws from the prior: what a kernel believes.

    Arguments:
        kernel: a kernel of one-dimensional points.
        x: shape (n,), where to look; n of a few hundred makes smooth lines.
        key: for the draws.
        draws: how many, one or more.
        axes: two matplotlib axes; default, those of a new figure.

    Raises ValueError for x of another shape, and for what is no key or no number of draws.
    """
    if not isinstance(draws, (int, np.integer)) or draws < 1:
        raise ValueError(f"draws must be a positive integer, but is {draws!r}")
    (x,) = _columns(x=np.sort(np.asarray(x, float)))
    points, (left, right) = jnp.asarray(x)[:, None], _two_axes() if axes is None else axes
    middle = int(np.argmin(abs(x - (x[0] + x[-1]) / 2)))
    left.plot(x, np.asarray(gram(kernel, points, points[middle][None]))[:, 0], color=_DOT, linewidth=1.4)
    left.set_title(f"k(x, {x[middle]:.3g})", color=_INK, fontsize="medium", loc="left")
    samples = np.asarray(GaussianProcess(kernel).sample(points, key=key, shape=(draws,)))
    for i, sample in enumerate(samples):
        right.plot(x, sample, color=_COLOURS[i % len(_COLOURS)], linewidth=1.2)
    right.set_title("draws from the prior", color=_INK, fontsize="medium", loc="left")
    for ax in (left, right):
        ax.set_xlabel("x", color=_INK)
        _quieten(ax)
    return left, right


def gram_picture(kernel: AbstractKernel, X: PyTree, *, ax: "Axes | None" = None) -> "Axes":
    """The Gram matrix of a stack as a picture, with a bar that tells its values. Sort the stack first."""
    K = np.asarray(gram(kernel, X))
    ax = _square_axes() if ax is None else ax
    image = ax.imshow(K, cmap="magma", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, shrink=0.85)
    ax.set_title(f"{len(K)} points, k from {K.min():.3g} to {K.max():.3g}", color=_INK, fontsize="medium", loc="left")
    ax.tick_params(colors="#6a6a74", labelsize="small", length=3)
    return ax


def learning_curve(losses: ArrayLike, *, name: str = "loss", ax: "Axes | None" = None) -> "Axes":
    """The loss at every step, and the best so far: `solution.stats["losses"]` of `minimise`, NaN where not reached."""
    losses = np.asarray(losses, float)
    if losses.ndim != 1 or not np.any(np.isfinite(losses)):
        raise ValueError(f"losses must have shape (steps,) and hold a finite one, but have shape {losses.shape}")
    ax = _wide_axes() if ax is None else ax
    steps = np.flatnonzero(np.isfinite(losses))
    ax.plot(steps, losses[steps], ".", color=_DOT, markersize=4, label="each step")
    ax.plot(steps, np.minimum.accumulate(losses[steps]), color=_LINE, linewidth=1.2, label="best so far")
    ax.set_xlabel("step", color=_INK)
    ax.set_ylabel(_plain(name), color=_INK)
    ax.legend(frameon=False, fontsize="small", labelcolor=_INK)
    _quieten(ax)
    return ax


def _columns(**values: ArrayLike) -> tuple[np.ndarray, ...]:
    """Vectors of one length, finite."""
    arrays = {name: np.asarray(value, float) for name, value in values.items()}
    if len({array.shape for array in arrays.values()}) > 1 or any(a.ndim != 1 or not len(a) for a in arrays.values()):
        shapes = ", ".join(f"{name} has {array.shape}" for name, array in arrays.items())
        raise ValueError(f"{' and '.join(arrays)} must have one shape (n,), n >= 1, but {shapes}")
    for name, array in arrays.items():
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{name} must be finite")
    return tuple(arrays.values())


def _plain(text: str) -> str:
    return text.replace("$", r"\$")  # a column's name is not mathematics


def _wide_axes() -> "Axes":
    from matplotlib.figure import Figure

    return Figure(figsize=(7.2, 3.6), dpi=160, layout="constrained").subplots()


def _two_axes() -> "tuple[Axes, Axes]":
    from matplotlib.figure import Figure

    return tuple(Figure(figsize=(7.6, 3.0), dpi=160, layout="constrained").subplots(1, 2))


def _square_axes() -> "Axes":
    from matplotlib.figure import Figure

    return Figure(figsize=(4.6, 4.6), dpi=160, layout="constrained").subplots()


def _limits(true: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """One range for both axes, with a margin; wider than nothing even for a single perfect prediction."""
    low, high = min(true.min(), predicted.min()), max(true.max(), predicted.max())
    margin = 0.06 * (high - low) or 0.06 * abs(high) or 1.0
    return float(low - margin), float(high + margin)


def _quieten(ax: "Axes") -> None:
    """The same round ticks on both axes, a faint grid, no box."""
    from matplotlib.ticker import MaxNLocator

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    ax.grid(color="#e6e6ea", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#a0a0a8")
    ax.tick_params(colors="#6a6a74", labelsize="small", length=3)
