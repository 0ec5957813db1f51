"""`python -m benchmarks [NAMES] [--list] [--json FILE] [--quick]`: answers questions, or compares
other rows (`--device gpu`, `--against COMMIT`); exits 1 on a mismatch.
"""

import argparse
import importlib
import json
import os
import signal
import sys
from pathlib import Path

import jax

from benchmarks import report
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
    return answer(modules, options.quick, options.json)


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


def answer(modules: dict, quick: bool, file: Path | None) -> int:
    """Prints each question's cases as they are measured; 1 if any two answers disagree."""
    records, agreed, environment = [], True, report.environment()
    for name, module in modules.items():
        print(f"== {name}: {module.__doc__.splitlines()[0]}", flush=True)
        for case, rows, verdicts in results(module, quick):
            print("\n" + report.table(case, rows, verdicts, quick), flush=True)
            records.append(report.record(name, case, rows, verdicts))
            agreed &= all(row.agrees for row in rows)
            if file is not None:  # after every case: a run that is stopped keeps what it has
                file.write_text(
                    json.dumps(environment | {"quick": quick, "cases": records}, indent=1) + "\n"
                )
        print()
    return 0 if agreed else 1


if __name__ == "__main__":
    # So that a run which is told to end removes its temporary directories as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)  # for batches over all cores
    sys.exit(main())
