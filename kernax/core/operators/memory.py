"""Whether the dense matrices of a verb fit into memory, checked before anything is compiled."""

import math
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from kernax.core.base.boundary import count, dtype_of
from kernax.core.base.numerics import is_concrete
from kernax.errors import MemoryBudgetError

# How many matrices of n x n numbers a verb's compiled program holds at one time, as temporaries and
# results.
_MATRICES = {
    "gram": 1.0,
    "kernel_perceptron": 1.0,
    "svm": 2.2,
    "support_vector_regression": 2.2,
    "nu_svm": 2.2,
    "nu_support_vector_regression": 5.1,
    "one_class_svm": 2.2,
    "regularised_risk of a piecewise linear loss": 2.3,
    "kernel_ridge": 3.6,
    "kernel_logistic": 3.6,
    "regularised_risk": 3.6,
    "log_marginal_likelihood": 3.6,
    "leave_one_out": 5.0,
    "ridge_path": 3.6,
    "leave_one_out_path": 5.0,
    "generalised_cross_validation": 5.0,
    "eigenpairs": 2.1,
    "kernel_pca": 3.1,
    "kernel_cca": 10.1,
    "kernel_discriminant": 4.1,
    "kernel_kmeans": 1.3,
    "spectral_clustering": 3.3,
    "aligned_sum": 0.0,  # and for each kernel:
    "herding": 1.05,
    "thin": 1.6,
    "relevance_vector_machine": 6.4,
    "empirical_features": 3.1,
    "isotonic": 3.2,  # matrices of sums between two values
    "sample": 3.4,
    "import_vector_machine": 1.6,
    "kernel_softmax": 6.4,  # and for each class:
    "condition": 4.5,
    "laplace": 5.4,
    "expectation_propagation": 9.1,
    "variational": 9.7,
    "laplace of several classes": 5.6,  # and for each class:
    # Of n points and m inducing points, n x m:
    "sgpr": 3.1,
    "sgpr_bound": 3.1,
    "inducing_points": 1.05,
    # Of m inducing points, m x m:
    "svgp": 12.7,
    "svgp with an optimiser": 18.8,
    "svgp_bound": 5.5,
    # Of n points and observations along a line and p draws, n x p:
    "sample along a line": 5.2,
    # Of m centres, m x m:
    "nystrom": 6.5,
    "falkon": 10.5,
}
_OF_EACH_COLUMN = {"aligned_sum": 2.0, "kernel_softmax": 1.15, "laplace of several classes": 3.8}
_MORE_IN_FLOAT32 = {"sgpr": 1.0, "sgpr_bound": 1.0}  # whose factor is that of a QR
# For each verb, what does the same without such a matrix; for those that are not here there is
# nothing but fewer points. `m` is a number of centres, and `key` a random key.
_IN_FEATURES = "kernax.nystrom(kernel, X, m, key=key) as the kernel, for a fit in m features"
_IN_BLOCKS = "block_size=... (a number of rows) for a fit that holds blocks"
_OVER_CENTRES = "kernax.falkon(kernel, X, y, ridge, m, key=key{}) for a fit over m centres"
_SVGP = "kernax.svgp(process, X, y, likelihood, Z, ...) through inducing points Z"
_PRODUCTS = "solver=ConjugateGradient(preconditioner=PivotedCholesky(key){}) of kernax.solvers"
_LINE = "StateSpace() along a line, Grid() on a grid or at regular times"
_FEWER_CENTRES = "fewer centres"  # whose matrices are in float64 whatever the points are
_FEWER_INDUCING = "fewer inducing points"
_INSTEAD = {
    "gram": 'kernax.gram_operator(kernel, X, block_size="auto") for products that hold none of it',
    "kernel_perceptron": _IN_FEATURES,
    "svm": f"{_IN_FEATURES}, or {_IN_BLOCKS}",
    "support_vector_regression": f"{_IN_FEATURES}, or {_IN_BLOCKS}",
    "nu_svm": f"{_IN_FEATURES}, or {_IN_BLOCKS}",
    "nu_support_vector_regression": f"{_IN_FEATURES}, or {_IN_BLOCKS}",
    "one_class_svm": f"{_IN_FEATURES}, or {_IN_BLOCKS}",
    "import_vector_machine": _IN_BLOCKS,
    "regularised_risk of a piecewise linear loss": _IN_FEATURES,
    "kernel_ridge": 'block_size=... (a number of rows, or "auto") for a matrix-free solve, or '
    + _OVER_CENTRES.format(""),
    "kernel_logistic": _OVER_CENTRES.format(", loss=kernax.losses.Logistic(), bias=True"),
    "kernel_softmax": _IN_FEATURES,
    "regularised_risk": _OVER_CENTRES.format(", loss=loss"),
    "condition": f"{_PRODUCTS.format('')}, {_LINE}, or kernax.sgpr(process, X, y, noise, Z) "
    "through inducing points Z",
    "log_marginal_likelihood": _PRODUCTS.format(", determinant=StochasticLanczos(key)")
    + f", {_LINE}, or kernax.sgpr_bound(kernel, X, y, noise, Z) through inducing points Z",
    "leave_one_out": _IN_FEATURES,
    "generalised_cross_validation": _IN_FEATURES,
    "kernel_pca": _IN_FEATURES,
    "kernel_kmeans": _IN_FEATURES,
    "herding": _IN_BLOCKS,
    "laplace": _IN_FEATURES,
    "expectation_propagation": _SVGP,
    "variational": _SVGP,
    "sample": "kernax.pathwise_sample(process, key=key, count=..., point=x) for functions",
    "sample along a line": "fewer draws at a time",
    "nystrom": _FEWER_CENTRES,
    "falkon": _FEWER_CENTRES,
    "svgp": _FEWER_INDUCING,
    "svgp with an optimiser": _FEWER_INDUCING,
    "svgp_bound": _FEWER_INDUCING,
    "aligned_sum": "kernax.alignment(kernel, X, y) of one kernel at a time",
}
# Those whose alternatives `recommend` compares.
_COMPARED = ("condition", "log_marginal_likelihood", "kernel_ridge")
# How many numbers a program holds for each that is returned or kept, in float64 and in float32. Of
# tests, for each point of each permutation or set of signs, random bits and orders among them.
_HELD_FOR_EACH = {
    "a permutation test": (2.0, 4.2),
    "pathwise_sample": (3.5, 5.2),
    "random_fourier_features": (3.9, 5.8),
    "online.run": (2.0, 2.0),
    "Precomputed": (1.0, 1.0),
}
_SMALL = 2**30  # bytes that any machine has: for less, the check is left out
MOST_HELD = 8192  # points whose matrix is held where it need not be: half a GiB in float64


def check_memory(
    X: PyTree,
    Z: PyTree | None = None,
    *,
    verb: str = "gram",
    columns: int = 1,
    dtype: Any = None,
    first: Callable[[], Any] | None = None,
) -> None:
    """Raises MemoryBudgetError if the dense matrices of a verb would not fit into memory.

    This counts what the verb itself computes, for one member of a `vmap`, without derivatives and
    predictions. Less than 1 GiB is not checked, nor are traced points. `dtype` is that of the
    matrices, by default that of X. Where they do not fit, `first` is called before that is said: it
    traces the program, so that shapes that do not go together are named instead.
    """
    n = count(X)
    m = n if Z is None else count(Z)
    dtype = np.dtype(dtype_of(X) if dtype is None else dtype)
    matrices = matrices_of(verb, dtype, columns)
    needed = matrices * n * m * dtype.itemsize
    if needed < _SMALL or not is_concrete(X, Z):
        return
    available = available_memory(jax.tree.leaves(X)[0].devices())
    if needed > available:
        if first is not None:
            first()
        in_single = dtype == jnp.float64 and needed / 2 <= available
        raise MemoryBudgetError(
            f"{in_gib(needed)} needed by {verb} for {_named(matrices, n, m)} in {dtype}, "
            f"{in_gib(available)} available; {_advice(verb, in_single)}"
        )


def check_numbers(
    numbers: int, dtype: Any, *, verb: str, what: str, instead: str, devices: Any = None
) -> None:
    """Raises MemoryBudgetError if so many numbers of a dtype, of which `what` takes most, would not
    fit into memory: of a verb that holds no n x n matrices.

    Arguments:
        numbers: as they are returned or kept; `_HELD_FOR_EACH` says how many each of them takes.
        instead: what to do, for the message.
        devices: where they would be; by default JAX's first.
    """
    dtype = np.dtype(dtype)
    needed = held_for_each(verb, dtype) * numbers * dtype.itemsize
    if needed < _SMALL:
        return
    available = available_memory(jax.local_devices()[:1] if devices is None else devices)
    if needed > available:
        raise MemoryBudgetError(
            f"{in_gib(needed)} needed by {verb} for {what} in {dtype}, {in_gib(available)} "
            f"available: {instead}"
        )


def held_for_each(verb: str, dtype: Any) -> float:
    """How many numbers a verb holds for each that `check_numbers` counts."""
    in_double, in_single = _HELD_FOR_EACH[verb]
    return in_double if dtype == jnp.float64 else in_single


def check_held_by_each(n: int, verb: str, devices: int) -> None:
    """Raises ValueError for more rows over a mesh than `MOST_HELD`, for a verb that needs dense
    matrices whole, on each device.
    """
    if n <= MOST_HELD:
        return
    instead = _INSTEAD.get(verb, "fewer points")
    raise ValueError(
        f"{verb} needs dense ({n}, {n}) matrices whole, but X is on a mesh, its rows over "
        f"{devices} devices, and each holds only those of up to {MOST_HELD} points: use {instead}, "
        "or X on one device"
    )


def matrices_of(verb: str, dtype: Any, columns: int = 1) -> float:
    """How many dense matrices a verb holds."""
    more = 0 if dtype == jnp.float64 else _MORE_IN_FLOAT32.get(verb, 0)
    return _MATRICES[verb] + more + _OF_EACH_COLUMN.get(verb, 0) * columns


def in_gib(size: float | int) -> str:
    """A number of bytes in GiB, below a hundred with a digit after the point."""
    gib = size / 2**30
    return f"{gib:.1f} GiB" if gib < 100 else f"{gib:.0f} GiB"


def _named(matrices: float, n: int, m: int) -> str:
    """How many dense matrices there are, in words."""
    if matrices == 1:
        return f"a dense ({n}, {m}) matrix"
    return f"{matrices:g} dense ({n}, {m}) matrices"


def _advice(verb: str, in_single: bool) -> str:
    """What to do if a verb's matrices do not fit, and whether they would in single precision."""
    instead = _INSTEAD.get(verb)
    if instead in (_FEWER_CENTRES, _FEWER_INDUCING):
        return f"take {instead}"
    fewer = "take fewer points" + (", or float32" if in_single else "")
    if instead is None:
        return fewer
    compared = "; kernax.recommend(kernel, n, d) compares these" if verb in _COMPARED else ""
    return f"use {instead}, or {fewer}{compared}"


def available_memory(devices: Iterable[Any]) -> int:
    """Bytes free on all of the devices; on a CPU, in the machine, or in the container that this
    process runs in. Devices of other processes are assumed to have as much free as its own.
    """
    devices = list(devices)
    own = [device for device in devices if device.process_index == jax.process_index()]
    own = own or jax.local_devices()[:1]
    total = 0
    for device in own:
        figures = device.memory_stats() or {}
        if "bytes_limit" in figures:
            total += figures["bytes_limit"] - figures.get("bytes_in_use", 0)
        else:
            in_groups = [_free_in_group(*names) for names in _GROUPS]
            return int(max(0, min(_free_host_memory(), *in_groups)))
    return total * len(devices) // len(own)


def _free_host_memory() -> int:
    """Bytes free in the machine; all of its memory where the system says no more than that, and
    without a bound where it says nothing, as on Windows.
    """
    try:
        with open("/proc/meminfo") as lines:
            return next(
                int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
            )
    except (OSError, StopIteration):
        pages = getattr(os, "sysconf_names", {}).get("SC_PHYS_PAGES")
        return sys.maxsize if pages is None else os.sysconf("SC_PAGE_SIZE") * os.sysconf(pages)


# Where Linux says how much memory a container may use, how much it does, and, among other figures,
# how much of that holds copies of files: control groups of version 2, and of version 1.
_ROOT = Path("/sys/fs/cgroup")
_GROUPS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def _free_in_group(limit: str, used: str, figures: str, of_files: str) -> float:
    """Bytes that the container of this process may still take; infinite where there is no limit."""
    try:
        most = int((_ROOT / limit).read_text())  # no number, but "max", without a limit
        taken = int((_ROOT / used).read_text())
        named = dict(line.split() for line in (_ROOT / figures).read_text().splitlines())
        # Copies of files are given up when memory is short.
        return float(most - taken + int(named.get(of_files, 0)))
    except (OSError, ValueError):
        return math.inf
