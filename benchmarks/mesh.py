"""Is a fit whose rows are shared by several devices the same as on one, and what does it cost?

A ridge over 2000 centres (with sums in float64) and one in 2000 random features, by `falkon`,
n = 200000, d = 10, float32, next to the same call on one device. Virtual devices share the cores of
the machine: of the time only what sharing adds is shown. And what each of four processes holds that
fit 1000000 rows together.

`python -m benchmarks.mesh centres` (or `features`) fits once in a process of its own, over all of
its devices, and prints the time and the most memory that it held; with `--values FILE` it writes
predictions, and with `--against FILE` it compares them with those of another run. With
`--processes 4` it does so in as many processes, each of which makes the rows of its own devices.
"""

import argparse
import resource
import socket
import subprocess
import sys
import time
from functools import partial

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import kernax as kx
from benchmarks.harness import MB, Bar, Case, Contender, Process

RIDGE = 25.0
# The longer it is, the more terms cancel, and with them the digits of coefficients in float32: of
# 40000 rows, 1000 centres and a ridge of 1, fits on one and four devices differ by 1.9e-6 at 1.5,
# 1.4e-5 at 2 and 1.7e-4 at 3.
LENGTHSCALE = 1.5
ROWS = 1_000_000
COLUMNS = 10
SIZES = {"centres": 2000, "features": 5000}
KINDS = tuple(SIZES)
# Whether small matrices and sums are in float64; those of features are half as large in float32,
# and well conditioned.
IN_DOUBLE = {"centres": True, "features": False}
_BLOCK = 1000  # rows that are drawn together, wherever they are
_PREDICTED = 200
_IN_FOUR = """
from benchmarks.mesh import in_processes
in_processes(4, ["centres", "--rows", "{rows}", "--size", "{size}"])
"""


def cases(quick):
    yield from on_devices(quick)
    n, size = (8000, 60) if quick else (ROWS, SIZES["centres"])
    yield Case(
        f"each of 4 processes: ridge over {size} centres, n={n}, d={COLUMNS}, float32",
        [Contender("kernax", lambda: Process(_IN_FOUR.format(rows=n, size=size)))],
        [Bar(1500 * MB, figure="held")],
        once=True,
    )


def on_devices(quick):
    """The cases of one process."""
    n, size = (8000, 60) if quick else (200_000, 2000)
    devices = jax.device_count()
    for kind in KINDS:
        with jax.enable_x64(IN_DOUBLE[kind]):
            yield Case(
                f"ridge over {size} {kind}, n={n}, d={COLUMNS}, float32",
                [
                    Contender(f"kernax, {devices} devices", partial(fit, kind, n, size)),
                    Contender("kernax, one device", partial(fit, kind, n, size, 1)),
                ],
                [Bar(1.5, "kernax, one device")],
                1e-5,
                rounds=1,
            )


def fit(kind, n, size, devices=None):
    """A call that fits and predicts; of rows that are laid out already."""
    mesh = jax.make_mesh(
        (devices or jax.device_count(),),
        ("rows",),
        axis_types=(AxisType.Auto,),
        devices=jax.devices()[:devices],
    )
    X, y = laid_out(n, mesh)
    kernel = kx.RBF(LENGTHSCALE)
    Z = None
    if kind == "centres":
        Z = jax.device_put(rows_from(n, n + size)[0], NamedSharding(mesh, PartitionSpec()))
    else:
        kernel = kx.random_fourier_features(kernel, size // 2, COLUMNS, key=jax.random.key(0))
    new = rows_from(n + size, n + size + _PREDICTED)[0]

    def run():
        return kx.falkon(kernel, X, y, RIDGE, Z).value.values(new)

    return run


def laid_out(n, mesh):
    """X and y over the devices of a mesh; each process makes the rows of its own."""
    rows = NamedSharding(mesh, PartitionSpec("rows"))
    of = lambda part, index: rows_from(*index[0].indices(n)[:2])[part]
    X = jax.make_array_from_callback((n, COLUMNS), rows, lambda index: of(0, index))
    y = jax.make_array_from_callback((n,), rows, lambda index: of(1, index))
    return X, y


def rows_from(start, stop):
    """A smooth function with noise: the rows of these numbers, the same whoever makes them."""
    blocks = range(start // _BLOCK, -(-stop // _BLOCK))
    direction = np.random.default_rng(0).normal(size=COLUMNS) / np.sqrt(COLUMNS)
    parts = []
    for block in blocks:
        drawn = np.random.default_rng([1, block]).normal(size=(_BLOCK, COLUMNS + 1))
        X = drawn[:, :COLUMNS]
        parts.append((X, np.sin(3 * X @ direction) + 0.2 * drawn[:, COLUMNS]))
    X, y = (np.concatenate(part).astype(np.float32) for part in zip(*parts))
    kept = slice(start - blocks.start * _BLOCK, stop - blocks.start * _BLOCK)
    return X[kept], y[kept]


def in_processes(count, arguments):
    """What this script prints in so many processes of this machine. Raises RuntimeError where one
    of them fails.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.mesh",
                *arguments,
                "--of",
                address,
                str(count),
                str(process),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for process in range(count)
    ]
    said = [process.communicate(timeout=1800)[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError("".join(said))
    return "".join(said)


def main() -> None:
    """Fits once over all devices of all processes, and says what it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--size", type=int, help="centres or features")
    parser.add_argument("--values", metavar="FILE", help="write predictions there")
    parser.add_argument("--against", metavar="FILE", help="compare predictions with those there")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--of",
        nargs=3,
        metavar=("ADDRESS", "COUNT", "NUMBER"),
        help="compute as one of several processes: the address of process 0, how many, which one",
    )
    options = parser.parse_args()
    if options.processes > 1:
        arguments = [*sys.argv[1:], "--processes", "1"]
        print(in_processes(options.processes, arguments), end="")
        return
    jax.config.update("jax_enable_x64", IN_DOUBLE[options.kind])
    if options.of:
        address, count, number = options.of
        jax.distributed.initialize(address, int(count), int(number))
    size = options.size or SIZES[options.kind]
    run = fit(options.kind, options.rows, size)
    before = time.perf_counter()
    values = np.asarray(jax.block_until_ready(run()))
    seconds = time.perf_counter() - before
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{options.kind}: {options.rows} rows, {size}, {jax.device_count()} devices of "
        f"{jax.process_count()} processes: {seconds:.1f} s with compilation, {most:.0f} MB here",
        flush=True,
    )
    if options.values and jax.process_index() == 0:
        np.save(options.values, values)
    if options.against:
        other = np.load(options.against)
        off = np.max(np.abs(values - other)) / np.max(np.abs(other))
        print(f"off by {off:.1e}", flush=True)
        sys.exit(0 if off <= 1e-5 else 1)


if __name__ == "__main__":
    main()
