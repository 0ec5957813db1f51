"""`python -m benchmarks [NAMES] [--list] [--json FILE] [--quick]`: answers questions, or compares
other rows (`--device gpu`, `--against COMMIT`); exits 1 on a mismatch.
"""

import argparse
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import jax

from benchmarks import bars, report
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
    "recommend",
    "processes",
    "classification",
    "matrix_free",
    "machines",
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
        help="write the figures to results/bars.json and the table of README.md",
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
    modules = {
        name: importlib.import_module(f"benchmarks.{name}") for name in options.names or NAMES
    }
    if options.list:
        for name, module in modules.items():
            print(f"{name:16}{module.__doc__.splitlines()[0]}")
        return 0
    if options.record and options.quick:
        parser.error("--record: figures of --quick are none")
    return answer(modules, options.quick, options.json, options.record)


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


def answer(modules: dict, quick: bool, file: Path | None, recorded: bool) -> int:
    """Prints each question's cases as they are measured; 1 if any two answers disagree, or a case
    fails.
    """
    records = []
    right = True
    environment = report.environment()
    for name, module in modules.items():
        before = time.perf_counter()
        asks = module.__doc__.split("\n\n")[0].replace("\n", " ")
        print(f"== {name}: {asks}", flush=True)
        answered = []
        for case, rows, verdicts in results(module, quick):
            print("\n" + report.table(case, rows, verdicts, quick), flush=True)
            answered.append(report.record(name, case, rows, verdicts))
            right &= all(row.agrees for row in rows)
            # After every case: a run that is stopped keeps what it has.
            _write(file, environment | {"quick": quick, "cases": records + answered})
        records += answered
        seconds = round(time.perf_counter() - before, 1)
        print(f"\n{name}: {seconds:g} s\n", flush=True)
        if recorded:
            of_question = {"asks": asks, "seconds": seconds, "cases": answered}
            bars.update(name, environment | of_question)
            bars.write_page(NAMES)
    return 0 if right else 1


def _write(file: Path | None, found: dict) -> None:
    if file is not None:
        file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    # So that a run which is told to end removes its temporary directories as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)  # for batches over all cores
    sys.exit(main())
