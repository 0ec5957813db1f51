"""Pictures of kernels: their profile, and samples from the prior."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.deprecation import renamed
from kernax.core.base.parameters import check_count
from kernax.core.base.printing import described
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.operators.gram import gram
from kernax.gp.process import GaussianProcess
from kernax.plot.style import (
    DOT,
    INK,
    axes_or,
    colour_of,
    columns,
    quieten,
    title_axes,
    two_axes,
    wide_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@renamed(draws="n_samples")
def kernel_profile(
    kernel: AbstractKernel,
    x: ArrayLike,
    *,
    key: Key[Array, ""],
    n_samples: int = 3,
    axes: "tuple[Axes, Axes] | None" = None,
) -> "tuple[Axes, Axes]":
    """Draws `k(x, z)` with z in the middle of the range, next to samples from the prior.

    Together they show which functions are likely under the prior.

    Arguments:
        kernel: a kernel of one-dimensional points.
        x: shape (n,), the points to draw at; a few hundred make smooth lines.
        key: a random key, for the samples.
        n_samples: the number of samples, one or more.
        axes: two matplotlib axes; default, those of a new figure.

    Raises ValueError for x of another shape, an argument that is not a key, and a number of samples
    below one.
    """
    check_count(n_samples, "n_samples")
    (x,) = columns(x=x)
    x = np.sort(x)
    given = tuple(axes) if isinstance(axes, Iterable) else ()
    if axes is not None and len(given) != 2:
        raise ValueError(f"axes must be two axes of matplotlib, but is {described(axes)}")
    left, right = two_axes() if axes is None else (axes_or(ax, wide_axes) for ax in given)
    # On the left is the kernel between every point and the one in the middle of the range.
    points = jnp.asarray(x)[:, None]
    middle = int(np.argmin(abs(x - (x[0] + x[-1]) / 2)))
    values = gram(kernel, points, points[middle][None])
    left.plot(x, np.asarray(values)[:, 0], color=DOT, linewidth=1.4)
    # As many digits as three of the range.
    span = x[-1] - x[0]
    decimals = 2 - int(np.floor(np.log10(span))) if span > 0 else 2
    title_axes(left, f"k(x, {np.round(x[middle], max(0, decimals)) + 0.0:.12g})")
    # On the right are samples from the prior.
    samples = GaussianProcess(kernel).sample(points, key=key, shape=(n_samples,))
    for i, sample in enumerate(np.asarray(samples)):
        right.plot(x, sample, color=colour_of(i), linewidth=1.2)
    title_axes(right, "draws from the prior")
    for ax in (left, right):
        ax.set_xlabel("x", color=INK)
        quieten(ax)
    return left, right
