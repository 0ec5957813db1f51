"""`python -m benchmarks.published [NAMES] [--list] [--quick] [--page]`: runs again what papers
report on the shared data, and writes PUBLISHED.md.

Each row is written to results/published.json as soon as it is known, and the page is made of all
that stands there; `--page` makes it and runs nothing. `--quick` runs everything in small sizes,
prints the figures and writes nothing. A row whose data are absent is skipped, with the reason.
Exits 1 where a row fails.
"""

import argparse
import sys
import traceback
import warnings

import jax

from benchmarks.published import page, record
from benchmarks.published.contents import ROWS
from benchmarks.published.rows import Row


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.published",
        description="What papers and toolboxes report, beside kernax.",
    )
    parser.add_argument("names", nargs="*", help="parts of the names of rows (default: all)")
    parser.add_argument("--list", action="store_true", help="list the rows, with their minutes")
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is written")
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args(arguments)
    named = lambda row: not options.names or any(name in row.name for name in options.names)
    rows = [row for row in ROWS if named(row)]
    if not rows:
        parser.error(f"no row has {' or '.join(options.names)} in its name: see --list")
    if options.list:
        for row in rows:
            print(f"{row.name:36}{row.minutes:6g} min  {row.missing()}")
        return 0
    failed = [] if options.page else run(rows, options.quick)
    if not options.quick:
        page.PAGE.write_text(page.written(ROWS, record.read()))
        print(f"written: benchmarks/{page.PAGE.name}")
    return int(bool(failed))


def run(rows: list[Row], quick: bool) -> list[str]:
    """Measures rows one after the other, and writes down what is found; the names of those that
    fail.
    """
    failed = []
    for row in rows:
        missing = row.missing()
        if missing:
            print(f"{row.name}: skipped, {missing}", flush=True)
            continue
        try:
            found = record.measured(row, quick)
        except Exception:  # the next rows are wanted all the same
            traceback.print_exc()
            failed.append(row.name)
            continue
        print(f"{row.name}, {found['seconds']} s: {_sentence(row, found, quick)}", flush=True)
        if not quick:
            record.update(row.name, found)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return failed


def _sentence(row: Row, found: dict, quick: bool) -> str:
    figures = ", ".join(f"{name} {value}" for name, value in found["figures"].items())
    words = [word for word in page.verdicts(row, found) if word]
    return figures if quick else f"{figures} ({', '.join(words)})"


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")  # of bounds that a lengthscale without meaning reaches
    sys.exit(main())
