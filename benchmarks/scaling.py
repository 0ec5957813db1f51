"""Writes `benchmarks/SCALING.md`: how fits over a mesh scale, measured and on paper.

`python -m benchmarks.scaling` compiles three fits for 1, 2, 4 and 8 virtual devices and runs them,
runs one in 1, 2 and 4 processes, and adds what a cost model says of accelerators. Virtual devices
share the cores of one machine: results, what devices pass to each other, what each holds and how
evenly they share the arithmetic are what is measured, and no speed.
"""

import argparse
import functools
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

import kernax as kx
from benchmarks.cost_model import sections
from benchmarks.mesh import in_processes, rows_from

FILE = Path(__file__).parent / "SCALING.md"
DEVICES = (1, 2, 4, 8)
PROCESSES = (1, 2, 4)
BYTES = {"pred": 1, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
LENGTHSCALE = 3.0  # no kernel: an array would start JAX before its devices are numbered
CENTRES = 200
_HEADER = "| devices | rows | difference | exchanged, bytes | memory, MB | seconds | efficiency |"
_NAMES = "all-gather|all-reduce|collective-permute|all-to-all|reduce-scatter"


def product(X, y):
    """A product with the Gram matrix, which is never held."""
    return kx.gram_operator(kx.RBF(LENGTHSCALE), X, block_size=128).mv(y)


def over_centres(X, y):
    """Squares over 200 centres: the Hessian of all rows, and sums over rows."""
    f = kx.falkon(
        kx.RBF(LENGTHSCALE), X, y, 0.1, jnp.asarray(rows_from(0, CENTRES)[0], X.dtype), throw=False
    )
    return f.value.coefficients


def in_features(X, y):
    """Squares in 200 random features, which are held."""
    kernel = kx.RBF(LENGTHSCALE)
    features = kx.random_fourier_features(kernel, 100, X.shape[1], key=jax.random.key(0))
    return kx.kernel_ridge(features, X, y, 0.1, throw=False).value.values(X[:8])


FITS = {
    "a product with K": product,
    f"`falkon`, {CENTRES} centres": over_centres,
    "`kernel_ridge`, 200 features": in_features,
}


@dataclass(frozen=True)
class Measured:
    """What one program does on each of its devices."""

    devices: int
    rows: int
    values: np.ndarray
    passed_on: dict[str, int]  # bytes of the results of each kind of collective
    held: int  # bytes, beside arguments and results
    seconds: float  # of all cores, for all devices together

    def off(self, other: "Measured") -> float:
        """The largest difference of values, relative to the largest value."""
        return float(np.max(np.abs(self.values - other.values)) / np.max(np.abs(other.values)))


@functools.cache
def measured(name: str, devices: int, n: int) -> Measured:
    """Compiles a fit for so many devices, and runs it."""
    mesh = jax.make_mesh(
        (devices,), ("rows",), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices]
    )
    X, y, _ = kx.scale.rows_over(mesh, *(part.astype(float) for part in rows_from(0, n)))
    program = jax.jit(FITS[name]).lower(X, y).compile()
    values = np.asarray(program(X, y))
    seconds = min(_seconds_of_cores(program, X, y) for _ in range(3))
    held = program.memory_analysis().temp_size_in_bytes
    return Measured(devices, n, values, _passed_on(program.as_text()), held, seconds)


def _seconds_of_cores(program: Any, *arguments: Any) -> float:
    """How long a run keeps cores busy, all of them added up."""
    before = time.process_time()
    jax.block_until_ready(program(*arguments))
    return time.process_time() - before


def _passed_on(text: str) -> dict[str, int]:
    """The bytes of the results of all collectives in a program, by their kind."""
    found: dict[str, int] = {}
    for shapes, name in re.findall(rf"= (.*?) ({_NAMES})(?:-start)?\(", text):
        for dtype, shape in re.findall(r"([a-z]+\d*)\[([\d,]*)\]", shapes):
            numbers = np.prod([int(size) for size in shape.split(",") if size], initial=1)
            found[name] = found.get(name, 0) + int(numbers) * BYTES[dtype]
    return found


def scaling_tables(n: int) -> Iterator[str]:
    """Strong and weak scaling of every fit, as Markdown."""
    for name in FITS:
        for title, rows_of in (("strong", lambda p: n), ("weak", lambda p: n // 8 * p)):
            yield f"\n**{name}, {title} scaling**\n"
            yield _HEADER
            yield "|---|---|---|---|---|---|---|"
            for devices in DEVICES:
                yield _row(measured(name, devices, rows_of(devices)), name)


def _row(found: Measured, name: str) -> str:
    """One line of a table; `shared` is 1 where no device does what another does as well."""
    alone = measured(name, 1, found.rows)
    shared = alone.seconds / found.seconds
    passed = ", ".join(f"{kind} {size}" for kind, size in found.passed_on.items()) or "nothing"
    return (
        f"| {found.devices} | {found.rows} | {found.off(alone):.0e} | {passed} | "
        f"{found.held / 1e6:.2f} | {found.seconds:.2g} | {shared:.2f} |"
    )


def process_table(n: int) -> Iterator[str]:
    """A fit over centres in several processes of this machine."""
    yield "| processes | time and memory | difference |"
    yield "|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        values = f"{folder}/values.npy"
        for processes in PROCESSES:
            other = ["--values", values] if processes == 1 else ["--against", values]
            said = in_processes(processes, ["centres", "--rows", str(n), "--size", "500", *other])
            took = re.search(r"devices of .*?: (.*?) here", said)
            off = re.search(r"off by (\S+)", said)
            yield f"| {processes} | {took and took.group(1)} | {off.group(1) if off else '-'} |"


def page(n: int, in_processes: int) -> str:
    """The whole page."""
    lines = [
        "# How fits over a mesh scale",
        "",
        "`python -m benchmarks.scaling` writes this page.",
        "",
        "## Virtual devices",
        "",
        "Float64, d = 10. *Difference*: from the result of the same call on one device, relative "
        "to the largest value. *Exchanged*: the bytes of the results of all collectives of the "
        "program; those inside a loop count once. *Memory*: of each device, without arguments and "
        "results. *Seconds*: core seconds of all devices together. *Efficiency*: the core seconds "
        "of one device divided by these; it is 1 if no work is repeated on several devices. Tiles "
        "that fit into a cache, or a core that waits, change it by a tenth.",
        *scaling_tables(n),
        "",
        "## Processes",
        "",
        f"Ridge regression over 500 centres of {in_processes} rows, in float32. The processes "
        "share the cores of one machine. The memory is the peak of a process, with Python and JAX.",
        "",
        *process_table(in_processes),
        "",
        *sections(),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rows, and print the page")
    options = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", max(DEVICES))
    jax.config.update("jax_enable_x64", True)
    if options.quick:
        print(page(512, 2000))
    else:
        FILE.write_text(page(8192, 200_000))


if __name__ == "__main__":
    main()
