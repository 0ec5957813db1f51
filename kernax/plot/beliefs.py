"""Pictures of kernels: their profile, draws from the prior, Gram matrices."""

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Key, PyTree

from kernax.core.gram import gram
from kernax.core.kernel import AbstractKernel
from kernax.gp.process import GaussianProcess
from kernax.plot.style import COLOURS, DOT, INK, columns, quieten, square_axes, two_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    (x,) = columns(x=np.sort(np.asarray(x, float)))
    points, (left, right) = jnp.asarray(x)[:, None], two_axes() if axes is None else axes
    middle = int(np.argmin(abs(x - (x[0] + x[-1]) / 2)))
    left.plot(x, np.asarray(gram(kernel, points, points[middle][None]))[:, 0], color=DOT, linewidth=1.4)
    left.set_title(f"k(x, {x[middle]:.3g})", color=INK, fontsize="medium", loc="left")
    samples = np.asarray(GaussianProcess(kernel).sample(points, key=key, shape=(draws,)))
    for i, sample in enumerate(samples):
        right.plot(x, sample, color=COLOURS[i % len(COLOURS)], linewidth=1.2)
    right.set_title("draws from the prior", color=INK, fontsize="medium", loc="left")
    for ax in (left, right):
        ax.set_xlabel("x", color=INK)
        quieten(ax)
    return left, right


def gram_picture(kernel: AbstractKernel, X: PyTree, *, ax: "Axes | None" = None) -> "Axes":
    """The Gram matrix of a stack as a picture, with a bar that tells its values. Sort the stack first."""
    K = np.asarray(gram(kernel, X))
    ax = square_axes() if ax is None else ax
    image = ax.imshow(K, cmap="magma", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, shrink=0.85)
    ax.set_title(f"{len(K)} points, k from {K.min():.3g} to {K.max():.3g}", color=INK, fontsize="medium", loc="left")
    ax.tick_params(colors="#6a6a74", labelsize="small", length=3)
    return ax
