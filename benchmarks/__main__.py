"""`python -m benchmarks [NAMES] [--list] [--json FILE] [--quick]`: answers questions, or compares
other rows (`--device gpu`, `--against COMMIT`); exits 1 on a mismatch.
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from benchmarks import bars, report, speed_page
from benchmarks.harness import results

NAMES = (
    "gram_dense",
    "gradient_memory",
    "ridge",
    "batch",
    "evidence",
    "line",
    "large",
    "grid",
    "inducing",
    "falkon",
    "mesh",
    "processes",
    "classification",
    "matrix_free",
    "svm",
    "streaming",
    "strings",
    "components",
    "samples",
    "selection",
    "startup",
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Speed and memory of kernax next to its peers."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAMES", help="questions to answer (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="list the questions")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the records there")
    parser.add_argument(
        "--record",
        action="store_true",
        help="write the figures to results/bars.json and the tables of README.md and docs/speed.md",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small sizes and few rounds, to see that everything runs",
    )
    parser.add_argument(
        "--device",
        choices=("gpu", "cpu"),
        help="rows of an accelerator instead, and tests on it, in one call",
    )
    parser.add_argument(
        "--seconds", type=float, default=520.0, help="all that such a call may take (default: 520)"
    )
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help="rows of this checkout next to those of another commit instead",
    )
    options = parser.parse_args()
    if options.against is not None:
        return against(parser, options)
    if options.device is not None:
        return on_device(options)
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))} (choose from {', '.join(NAMES)})")
    names = options.names or NAMES
    if options.list:
        for name in names:
            print(f"{name:16}{_module(name).__doc__.splitlines()[0]}")
        return 0
    if options.record and options.quick:
        parser.error("--record: figures of --quick are none")
    if len(names) == 1:
        return answer(names[0], options.quick, options.json, options.record)
    return answer_each(names, options.quick, options.json, options.record)


def on_device(options: argparse.Namespace) -> int:
    from benchmarks.device.run import ROWS, main

    if options.list:
        for row in ROWS:
            print(f"{row.name:48}{row.size:>9}  {', '.join(row.precisions)}")
        return 0
    return main(options.device, options.names, options.quick, options.seconds, options.json)


def against(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from benchmarks.against.run import ROWS, main
    from benchmarks.against.versions import NoSuchCommit

    if options.list:
        for row in ROWS:
            print(f"{row.name:54}{row.size:>7}  {row.precision}, {row.kind.value}")
        return 0
    try:
        return main(options.against, options.names, options.quick, options.json)
    except NoSuchCommit as error:
        parser.error(f"--against {options.against}: {error}")


def answer_each(names: Sequence[str], quick: bool, file: Path | None, recorded: bool) -> int:
    """Asks each question in a process of its own, since one may slow the next ones down: after
    KeOps has run, the same programs take up to twice as long. 1 if any of them exits with 1.
    """
    flags = ["--quick"] * quick + ["--record"] * recorded
    right = True
    records = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            its_own = Path(folder) / f"{name}.json"
            command = [sys.executable, "-m", "benchmarks", name, *flags, "--json", str(its_own)]
            try:
                right &= _waited_for(subprocess.Popen(command)) == 0
            finally:
                if its_own.exists():
                    found = json.loads(its_own.read_text())
                    records += found["cases"]
                    _write(file, found | {"cases": records})
    return 0 if right else 1


def _waited_for(process: subprocess.Popen) -> int:
    """The exit code of a process, which is told to end where this one is."""
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def answer(name: str, quick: bool, file: Path | None, recorded: bool) -> int:
    """Prints the cases of a question as they are measured; 1 if any two answers disagree, or a case
    fails.
    """
    module = _module(name)
    asks = module.__doc__.split("\n\n")[0].replace("\n", " ")
    environment = report.environment()
    before = time.perf_counter()
    records = []
    right = True
    print(f"== {name}: {asks}", flush=True)
    for case, rows, verdicts in results(module, quick):
        print("\n" + report.table(case, rows, verdicts, quick), flush=True)
        records.append(report.record(name, case, rows, verdicts))
        right &= all(row.agrees for row in rows)
        # After every case: a run that is stopped keeps what it has.
        _write(file, environment | {"quick": quick, "cases": records})
    seconds = round(time.perf_counter() - before, 1)
    print(f"\n{name}: {seconds:g} s\n", flush=True)
    if recorded:
        bars.update(name, environment | {"asks": asks, "seconds": seconds, "cases": records})
        bars.write_page(NAMES)
        speed_page.write()
    return 0 if right else 1


def _module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{name}")


def _write(file: Path | None, found: dict) -> None:
    if file is not None:
        file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    # So that a run which is told to end removes its temporary directories as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)  # for batches over all cores
    sys.exit(main())
