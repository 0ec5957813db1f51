"""How long kernax takes to compile, and to run, with the version of JAX that is installed.

`python -m benchmarks.jax_versions`, in the environment of each version, prints a row for each
function of `benchmarks.program_sizes` and its gradient in the lengthscale: the seconds of tracing
and lowering and those of XLA's compilation for 100 points, and the milliseconds of a run for 1000.
No compilation cache is used.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax

import kernax as kx
from benchmarks import program_sizes
from benchmarks.program_sizes import table

_HEADER = ("gradient of", "trace and lower, s", "compile, s", "run for 1000 points, ms")
_RUNS = 9


def seconds(function: Callable, *arguments) -> tuple[float, Any]:
    start = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))
    return time.perf_counter() - start, result


def row(function: Callable) -> tuple[str, str, str]:
    gradient = jax.jit(jax.grad(function), static_argnums=1)
    of_trace, lowered = seconds(gradient.lower, 1.0, 100)
    of_compilation, _ = seconds(lowered.compile)
    program = gradient.lower(1.0, 1000).compile()
    program(1.0)
    run = statistics.median(seconds(program, 1.0)[0] for _ in range(_RUNS))
    return f"{of_trace:.2f}", f"{of_compilation:.2f}", f"{1000 * run:.1f}"


def main() -> int:
    for name in kx.__all__:  # so that no row has the imports of kernax
        getattr(kx, name)
    print(f"Python {sys.version.split()[0]}, JAX {jax.__version__}, float64\n")
    rows = [(name, *row(function)) for name, function in program_sizes.FUNCTIONS.items()]
    print(table(rows, _HEADER))
    return 0


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    sys.exit(main())
