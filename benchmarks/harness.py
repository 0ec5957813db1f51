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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np

MB = 2**20


class Program:
    """A JAX function with its arguments: called jitted (or as it is, `jit=False`), and its
    temporary memory read off XLA.
    """

    def __init__(self, function: Callable, *arguments: Any, jit: bool = True):
        self.function, self.arguments = function, arguments
        self.jitted = eqx.filter_jit(function)
        self.called = self.jitted if jit else function

    def __call__(self) -> Any:
        return self.called(*self.arguments)

    def temporary(self) -> int:
        """Peak bytes of intermediate arrays, arguments and results not counted."""
        return (
            self.jitted.lower(*self.arguments)
            .compile()
            .compiled.memory_analysis()
            .temp_size_in_bytes
        )


def spread(function: Callable) -> Callable:
    """A function over batches that are divided among all cores."""
    import kernax

    return kernax.batched(function, devices=jax.devices())


class Process:
    """Python code run from a cold start, in a process of its own that takes its time itself, from
    its first line on.
    """

    def __init__(self, code: str):
        self.code = (
            f"import time; start = time.perf_counter()\n{code}\nprint(time.perf_counter() - start)"
        )

    def __call__(self) -> float:
        cold = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
        done = subprocess.run(
            [sys.executable, "-c", self.code], env=cold, capture_output=True, text=True, check=True
        )
        return float(done.stdout.split()[-1])


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
    that of `against` if a contender is named.
    """

    limit: float
    against: str | None = None
    figure: str = "seconds"
    least: float = 0.0


@dataclass(frozen=True)
class Case:
    """Contenders for one answer. The first is kernax, the reference for the others and the subject
    of the bars.

    `tolerance` bounds `max |a - b| / max |b|` over the leaves of two answers; None where there is
    nothing to compare. With `rounds=0` nothing is run, only compiled for its memory.
    """

    name: str
    contenders: Sequence[Contender]
    bars: Sequence[Bar] = ()
    tolerance: float | None = None
    rounds: int = 15


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
    if case.rounds:
        _compare(running, case.tolerance)
        _time(running, case.rounds)
    for program, row in running:
        row.temporary = program.temporary() if isinstance(program, Program) else None
    return rows, [_judge(bar, rows) for bar in case.bars]


def _built(contender: Contender, row: Row, required: bool) -> Callable[[], Any] | None:
    try:
        return contender.build()
    except Exception as error:  # a peer may break in any way while it is imported
        if required:
            raise
        row.note = f"not installed ({error})"
        return None


def _compare(running: list[tuple[Callable, Row]], tolerance: float | None) -> None:
    """Runs everything once, and takes the time: the median is subtracted from it later."""
    reference = None
    for program, row in running:
        row.compile, answer = timed(program)
        leaves = [np.asarray(leaf, dtype=np.float64) for leaf in jax.tree.leaves(answer)]
        reference = leaves if reference is None else reference
        if tolerance is not None:
            row.difference = difference(leaves, reference)
            row.agrees = row.difference <= tolerance  # false for NaN


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
    them alike.
    """
    times = [[] for _ in running]
    for round in range(rounds):
        for k in range(len(running)):
            k = (k + round) % len(running)
            times[k].append(timed(running[k][0])[0])
    for (program, row), seconds in zip(running, times):
        row.seconds = statistics.median(seconds)
        low, high = np.quantile(seconds, [0.25, 0.75])
        row.spread = (high - low) / row.seconds
        row.compile = max(0.0, row.compile - row.seconds) if isinstance(program, Program) else None
        row.ratio = running[0][1].seconds / row.seconds


def _judge(bar: Bar, rows: list[Row]) -> Verdict:
    value = getattr(rows[0], bar.figure)
    if bar.against is not None:
        other = next(getattr(row, bar.figure) for row in rows if row.contender == bar.against)
        value = value / other if other else None
    return Verdict(bar, value, None if value is None else bar.least <= value <= bar.limit)


def results(module: Any, quick: bool) -> Iterator[tuple[Case, list[Row], list[Verdict]]]:
    """Every case of a module, measured while the module's generator holds its settings."""
    for case in module.cases(quick):
        yield case, *measure(case)
