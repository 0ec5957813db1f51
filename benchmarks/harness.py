"""How a question is measured: contenders in one process, their results compared first, then timed
in turn.

A module of questions has a docstring and `cases(quick)`, a generator of `Case`. A case is measured
while its generator waits at the `yield`, so that a `with jax.enable_x64(True):` around the `yield`
holds for its contenders.
"""

import os
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np

MB = 2**20
_PATIENCE = 600.0  # seconds that a process has


class Program:
    """A JAX function with its arguments: called jitted (or as it is, `jit=False`), and its
    temporary memory read off XLA.
    """

    def __init__(self, function: Callable, *arguments: Any, jit: bool = True):
        self.function, self.arguments = function, arguments
        self.jitted = eqx.filter_jit(function)
        self.called = self.jitted if jit else function
        self.ahead: Any = None

    def __call__(self) -> Any:
        return self.called(*self.arguments)

    def compile_ahead(self) -> float:
        """Compiles what is called from now on, and gives the seconds that this takes."""
        start = time.perf_counter()
        self.ahead = self.jitted.lower(*self.arguments).compile()
        self.called = self.ahead
        return time.perf_counter() - start

    def temporary(self) -> int:
        """Peak bytes of intermediate arrays, arguments and results not counted."""
        if self.ahead is None:
            self.ahead = self.jitted.lower(*self.arguments).compile()
        return self.ahead.compiled.memory_analysis().temp_size_in_bytes


def spread(function: Callable) -> Callable:
    """A function over batches that are divided among all cores."""
    import kernax

    return kernax.batched(function, devices=jax.devices())


class Process:
    """Python code run from a cold start, in a process of its own that takes its time itself, from
    its first line on. `held` are the bytes that it, or a process that it started, held at most.
    """

    held: int | None = None

    def __init__(self, code: str):
        self.code = "\n".join(
            (
                "import time; start = time.perf_counter()",
                code,
                "seconds = time.perf_counter() - start",
                "from pathlib import Path",
                "from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage",
                # Linux counts in ru_maxrss what the process held that started this one.
                "status = Path('/proc/self/status')",
                "lines = status.read_text().splitlines() if status.exists() else ()",
                "own = [int(line.split()[1]) for line in lines if line.startswith('VmHWM')]",
                "own = own or [getrusage(RUSAGE_SELF).ru_maxrss]",
                "print(seconds, 1024 * max(*own, getrusage(RUSAGE_CHILDREN).ru_maxrss))",
            )
        )

    def __call__(self) -> float:
        cold = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
        cold.pop("PYTHONDONTWRITEBYTECODE", None)  # as an installed package has its bytecode
        done = subprocess.run(
            [sys.executable, "-c", self.code],
            env=cold,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        seconds, held = done.stdout.split()[-2:]
        self.held = max(self.held or 0, int(held))
        return float(seconds)


@dataclass(frozen=True)
class Contender:
    """One way to the answer. `build()` imports what it needs and returns what to call: a `Program`,
    `Process` or function.
    """

    name: str
    build: Callable[[], Callable[[], Any]]


@dataclass(frozen=True)
class Bar:
    """`figure` of the case's first contender is to be at most `limit`, and at least `least`, times
    that of `against` if a contender is named. Figures are the names of fields of `Row`.
    `explanation` says why the bar is missed, where it is known to be.
    """

    limit: float
    against: str | None = None
    figure: str = "seconds"
    least: float = 0.0
    explanation: str = ""


@dataclass(frozen=True)
class Case:
    """Contenders for one answer. The first is kernax, the reference for the others and the subject
    of the bars.

    `tolerance` bounds `max |a - b| / max |b|` over the leaves of two answers; None where there is
    nothing to compare. With `rounds=0` nothing is run, only compiled for its memory. With `once`
    programs are compiled ahead and everything is run a single time, which is what takes minutes.
    """

    name: str
    contenders: Sequence[Contender]
    bars: Sequence[Bar] = ()
    tolerance: float | None = None
    rounds: int = 15
    once: bool = False


@dataclass
class Row:
    """What was found out about one contender; None where it was not measured."""

    contender: str
    note: str = ""
    difference: float | None = None
    agrees: bool = True
    seconds: float | None = None
    spread: float | None = None
    compile: float | None = None
    temporary: int | None = None
    held: int | None = None
    ratio: float | None = None


@dataclass(frozen=True)
class Verdict:
    """A bar and what came of it; `met` is None where the other contender is missing."""

    bar: Bar
    value: float | None
    met: bool | None


def measure(case: Case) -> tuple[list[Row], list[Verdict]]:
    """Builds, compares and times the contenders of a case."""
    rows = [Row(contender.name) for contender in case.contenders]
    programs = [
        _built(contender, row, required=row is rows[0])
        for contender, row in zip(case.contenders, rows)
    ]
    running = [(program, row) for program, row in zip(programs, rows) if program is not None]
    if case.once:
        _compile_ahead(running)
    if case.rounds:
        running = _compare(running, case.tolerance)
    if case.rounds and not case.once:
        _time(running, case.rounds)
    for program, row in running:
        row.temporary = program.temporary() if isinstance(program, Program) else None
        row.held = program.held if isinstance(program, Process) else None
        row.ratio = running[0][1].seconds / row.seconds if row.seconds else None
    return rows, [_judge(bar, rows) for bar in case.bars]


def _built(contender: Contender, row: Row, required: bool) -> Callable[[], Any] | None:
    try:
        return contender.build()
    except Exception as error:  # a peer may break in any way while it is imported
        if required:
            raise
        row.note = f"not installed ({error})"
        return None


def _compile_ahead(running: list[tuple[Callable, Row]]) -> None:
    for program, row in running:
        if isinstance(program, Program):
            row.compile = program.compile_ahead()


def _compare(
    running: list[tuple[Callable, Row]], tolerance: float | None
) -> list[tuple[Callable, Row]]:
    """Runs everything once, and takes the time; those that ran. A peer may fail, kernax may not."""
    reference = None
    ran = []
    for program, row in running:
        try:
            row.seconds, answer = timed(program)
        except Exception as error:
            if reference is None:
                raise
            row.note = f"failed ({error})"
            continue
        leaves = [np.asarray(leaf, dtype=np.float64) for leaf in jax.tree.leaves(answer)]
        reference = leaves if reference is None else reference
        ran.append((program, row))
        if tolerance is not None:
            row.difference = difference(leaves, reference)
            row.agrees = row.difference <= tolerance  # false for NaN
    return ran


def difference(answer: list[np.ndarray], reference: list[np.ndarray]) -> float:
    """The largest `max |a - b| / max |b|` over the leaves; infinite where shapes differ."""
    if [leaf.shape for leaf in answer] != [leaf.shape for leaf in reference]:
        return np.inf
    return float(
        np.max(
            [np.max(np.abs(a - b)) / (np.max(np.abs(b)) or 1) for a, b in zip(answer, reference)]
        )
    )


def timed(program: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds until the result is there, and the result."""
    if isinstance(program, Process):
        return program(), None
    start = time.perf_counter()
    answer = jax.block_until_ready(program())
    return time.perf_counter() - start, answer


def _time(running: list[tuple[Callable, Row]], rounds: int) -> None:
    """Rounds in which every contender runs once, first in turn: what disturbs the machine disturbs
    them alike. What a first call took beyond the median is what compilation takes.
    """
    times = [[] for _ in running]
    for round in range(rounds):
        for k in range(len(running)):
            k = (k + round) % len(running)
            times[k].append(timed(running[k][0])[0])
    for (program, row), seconds in zip(running, times):
        first = row.seconds
        row.seconds = statistics.median(seconds)
        low, high = np.quantile(seconds, [0.25, 0.75])
        row.spread = (high - low) / row.seconds
        row.compile = max(0.0, first - row.seconds) if isinstance(program, Program) else None


def _judge(bar: Bar, rows: list[Row]) -> Verdict:
    value = getattr(rows[0], bar.figure)
    if bar.against is not None:
        other = next(getattr(row, bar.figure) for row in rows if row.contender == bar.against)
        value = value / other if other else None
    return Verdict(bar, value, None if value is None else bar.least <= value <= bar.limit)


def results(module: Any, quick: bool) -> Iterator[tuple[Case, list[Row], list[Verdict]]]:
    """Every case of a module, measured while the module's generator holds its settings. A case that
    fails has rows without figures, which do not agree.
    """
    for case in module.cases(quick):
        try:
            yield case, *measure(case)
        except Exception as error:  # the next cases are wanted all the same
            traceback.print_exc()
            note = f"failed ({error})"
            rows = [Row(contender.name, note, agrees=False) for contender in case.contenders]
            yield case, rows, [Verdict(bar, None, None) for bar in case.bars]
