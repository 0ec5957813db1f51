"""How a row is measured: both versions compiled, run once and compared, then timed in turn."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from benchmarks.against.first import call
from benchmarks.against.rows import Kind, Missing, Row, is_absent
from benchmarks.against.versions import Version, at_work
from benchmarks.harness import Program, difference, timed

SLOWER, HEAVIER = 1.1, 1.05  # the promise: no row above
ROUNDS, COSTLY_ROUNDS = 5, 3


@dataclass
class Attempt:
    """A row in one version: what to run, which gives seconds and an answer, and what is known
    before it runs. `bytes` are those of arguments, results and intermediate arrays together.
    """

    run: Callable[[], tuple[float, Any]]
    trace: float | None = None
    compile: float | None = None
    bytes: int | None = None
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def spread(self) -> float | None:
        """The interquartile range over the median."""
        if not self.seconds:
            return None
        low, high = np.quantile(self.seconds, [0.25, 0.75])
        return float(high - low) / statistics.median(self.seconds)

    def figures(self) -> dict[str, Any]:
        return {
            "median": self.median,
            "spread": self.spread,
            "seconds": self.seconds,
            "trace": self.trace,
            "compile": self.compile,
            "bytes": self.bytes,
        }


@dataclass
class Comparison:
    """A row in this checkout and in the other commit. `other` is None where the row is new there,
    `failure` says what went wrong where something did.
    """

    row: Row
    size: int
    this: Attempt | None = None
    other: Attempt | None = None
    difference: float | None = None
    failure: str | None = None

    @property
    def agrees(self) -> bool:
        """False for NaN."""
        return self.difference is None or self.difference <= self.row.tolerance

    @property
    def ratio(self) -> float | None:
        """Seconds of this checkout over those of the other commit."""
        return _over(self, "median")

    @property
    def memory_ratio(self) -> float | None:
        return _over(self, "bytes")

    @property
    def verdicts(self) -> list[str]:
        """What is to be said of it, wins as well as losses."""
        if self.failure is not None:
            return ["FAILED"]
        if self.other is None:
            return ["new"]
        if not self.agrees:
            return ["MISMATCH"]
        said = [
            *_beside(self.ratio, SLOWER, "SLOWER", "faster"),
            *_beside(self.memory_ratio, HEAVIER, "HEAVIER", "lighter"),
        ]
        if self.row.bar is not None and self.this.median > self.row.bar:
            said.append(f"OVER {self.row.bar:g} s")
        return said or ["level"]


def _over(comparison: Comparison, figure: str) -> float | None:
    """A figure of this checkout over that of the other commit."""
    if comparison.this is None or comparison.other is None:
        return None
    ours = getattr(comparison.this, figure)
    theirs = getattr(comparison.other, figure)
    return ours / theirs if ours and theirs else None


def _beside(ratio: float | None, bar: float, above: str, below: str) -> list[str]:
    if ratio is None or 1 / bar <= ratio <= bar:
        return []
    return [above if ratio > bar else below]


def compared(row: Row, this: Version, other: Version, quick: bool) -> Comparison:
    """Everything about a row; what raises is written down, so that the next row is measured."""
    found = Comparison(row, (quick and row.quick) or row.size)
    try:
        with jax.enable_x64(row.precision == "float64"):
            _compare(found, this, other, quick)
    except Exception as error:  # a version may fail in any way
        found.failure = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
    return found


def _compare(found: Comparison, this: Version, other: Version, quick: bool) -> None:
    found.this = prepared(found.row, this, found.size)
    seconds, answer = found.this.run()
    try:
        attempt = prepared(found.row, other, found.size)
        seconds_of_other, reference = attempt.run()
    except (Missing, AttributeError, TypeError) as error:
        if not is_absent(error, other.kernax):
            raise
        return  # new here
    found.other = attempt
    if answer is not None:
        found.difference = difference(_as_leaves(answer), _as_leaves(reference))
    if not found.agrees:
        return
    if found.row.kind in (Kind.FIRST, Kind.COMPILE):  # nothing is warmer the second time
        found.this.seconds.append(seconds)
        found.other.seconds.append(seconds_of_other)
        _time(found.other, found.this, 0 if quick else COSTLY_ROUNDS - 1)
    else:
        _time(found.this, found.other, ROUNDS)


def _time(first: Attempt, second: Attempt, rounds: int) -> None:
    """Both versions in every round, each of them first in turn."""
    for round in range(rounds):
        order = (first, second) if round % 2 == 0 else (second, first)
        for attempt in order:
            attempt.seconds.append(attempt.run()[0])


def _as_leaves(answer: Any) -> list[np.ndarray]:
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(answer)]


def prepared(row: Row, version: Version, size: int) -> Attempt:
    """A row in one version, ready to run."""
    if row.kind is Kind.FIRST:
        wide = row.precision == "float64"
        return Attempt(lambda: call(row.name, size, version.root, wide))
    with at_work(version) as kernax:
        program = row.program(kernax, size)
        if row.kind is Kind.COMPILED:
            return _compiled(program)
    if row.kind is Kind.EAGER:
        return Attempt(lambda: _called(program, version))
    attempt = Attempt(lambda: _compiled_again(attempt, program, version))
    return attempt


def _compiled(program: Program) -> Attempt:
    """Compiled ahead of time. JAX has to forget what it has traced, or of its own functions the
    second version would find traces that the first one has paid for.
    """
    jax.clear_caches()
    start = time.perf_counter()
    lowered = program.jitted.lower(*program.arguments)
    middle = time.perf_counter()
    compiled = lowered.compile()
    end = time.perf_counter()
    run = lambda: timed(lambda: compiled(*program.arguments))
    return Attempt(run, middle - start, end - middle, _bytes(compiled.compiled))


def _bytes(compiled: Any) -> int | None:
    """What the program holds while it runs: arguments, results and intermediate arrays."""
    memory = compiled.memory_analysis()
    if memory is None:
        return None
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes
    return held + memory.temp_size_in_bytes - memory.alias_size_in_bytes


def _called(program: Program, version: Version) -> tuple[float, Any]:
    with at_work(version):
        return timed(program)


def _compiled_again(attempt: Attempt, program: Program, version: Version) -> tuple[Any, None]:
    """Seconds of compiling, which the attempt keeps as well, beside those of tracing."""
    with at_work(version):
        new = _compiled(program)
    attempt.trace = new.trace
    attempt.compile = new.compile
    attempt.bytes = new.bytes
    return new.compile, None
