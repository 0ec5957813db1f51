"""Whether the dense matrices of a verb fit into memory, asked before anything is compiled."""

import os

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from kernax.core.boundary import count, dtype_of
from kernax.core.numerics import is_concrete
from kernax.errors import MemoryBudgetError

_MATRICES = {  # of n x n numbers that a verb's compiled program holds at one time, temporaries and results
    "gram": 1.0,
    "kernel_perceptron": 1.0,
    "svm": 2.2,
    "support_vector_regression": 2.2,
    "one_class_svm": 2.2,
    "regularised_risk of a piecewise linear loss": 2.3,
    "kernel_ridge": 3.6,
    "kernel_logistic": 3.6,
    "regularised_risk": 3.6,
    "log_marginal_likelihood": 3.6,
    "leave_one_out": 4.0,
    "eigenpairs": 2.1,
    "empirical_features": 3.1,
    "isotonic": 3.2,  # of sums between two values
    "sample": 3.4,
    "kernel_softmax": 6.4,  # and for each class:
    "condition": 4.5,
}
_OF_EACH_COLUMN = {"kernel_softmax": 1.15}
_BLOCKED = ("kernel_ridge", "svm", "support_vector_regression", "one_class_svm")  # these take block_size
_SMALL = 2**30  # bytes that any machine has: below, it is not asked


def check_memory(X: PyTree, Z: PyTree | None = None, *, verb: str = "gram", columns: int = 1) -> None:
    """Raises MemoryBudgetError, before anything is compiled, if what a verb holds of dense matrices would not fit into memory.

    Counted is the verb's own program; not its derivative, nor predictions, nor what else a `vmap` holds.
    """
    n = count(X)
    m = n if Z is None else count(Z)
    dtype = dtype_of(X)
    matrices = _MATRICES[verb] + _OF_EACH_COLUMN.get(verb, 0) * columns
    needed = matrices * n * m * dtype.itemsize
    if needed < _SMALL or not is_concrete(X, Z):
        return
    available = _available_memory(jax.tree.leaves(X)[0])
    if needed > available:
        held = f"a dense ({n}, {m}) matrix" if matrices == 1 else f"{matrices:g} dense ({n}, {m}) matrices"
        advice = "use block_size=... (a number of rows) for a matrix-free solve" if verb in _BLOCKED else "take fewer points"
        smaller = ", or float32" if dtype == jnp.float64 else ""
        raise MemoryBudgetError(
            f"{needed / 2**30:.0f} GiB needed by {verb} for {held} in {dtype}, "
            f"{available / 2**30:.1f} GiB available; {advice}{smaller}"
        )


def _available_memory(array: Array) -> int:
    """Bytes free on the devices of an array; on a CPU, in the machine."""
    total = 0
    for device in array.devices():
        figures = device.memory_stats() or {}
        if "bytes_limit" in figures:
            total += figures["bytes_limit"] - figures.get("bytes_in_use", 0)
        else:
            return _free_host_memory()
    return total


def _free_host_memory() -> int:
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
