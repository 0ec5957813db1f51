"""The process that measures: it is told a row and a precision, and answers with what it knows so
far, after every step.

Steps are in the order of their worth: compile and run at full size, time some more runs, compare
with the CPU. Who listens may stop the process at any time and keeps the last answer.
"""

import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.device.rows import COMPILE_BAR, PEERS, ROWS, Row
from benchmarks.harness import Program, difference
from benchmarks.report import environment

_MOST_ROUNDS = 7
_SHARE = 0.3  # of a row's budget, for repeated runs
_SHORT = 16  # numbers in an answer that is written down


def serve(connection: Any, quick: bool) -> None:
    """Answers with the environment, then for each `(name, precision)` that comes with records, the
    last one marked `done`.
    """
    jax.config.update("jax_enable_compilation_cache", False)  # or compilation would be a file read
    # Of rounding in float32; what learners say of themselves is among the facts.
    warnings.simplefilter("ignore")
    connection.send(environment() | {"driver": jax.devices()[0].client.platform_version})
    rows = {row.name: row for row in ROWS + PEERS}
    while True:
        name, precision = connection.recv()
        for record in attempted(rows[name], precision, quick):
            connection.send(record)


def attempted(row: Row, precision: str, quick: bool) -> Iterator[dict[str, Any]]:
    """The records of a row, whatever happens; the last one is marked `done`."""
    record: dict[str, Any] = {}
    try:
        with jax.enable_x64(precision == "float64"):
            for record in measured(row, precision, quick):
                yield record
        yield record | {"done": True}
    except ImportError as error:
        yield record | {"not_measured": f"not installed ({error})", "done": True}
    except Exception as error:  # out of memory, most of all: the next row may fit
        yield record | {"not_measured": _first_line(error), "done": True}


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:300]}".split("\n")[0]


def measured(row: Row, precision: str, quick: bool) -> Iterator[dict[str, Any]]:
    """What is known after each step."""
    size = row.quick if quick else row.size
    record: dict[str, Any] = {"size": size}
    yield record | {"step": "compiling and running"}
    run, compilation = prepared(row.program(size, precision), jax.devices()[0])
    answer, facts, first = timed(run)
    record |= (
        compilation
        | {"seconds": first, "rounds": 1, "finite": _is_finite(answer), "facts": facts}
        | _written_down(answer)
    )
    yield record | {"step": "timing"}
    checked = min(size, row.checked)
    answer = answer if checked == size else None  # it may be large
    record |= _timings(run, first, row.budget)
    if not quick:
        record |= _judged(row, record)
    if checked and jax.default_backend() != "cpu":
        yield record | {"step": "comparing with the CPU"}
        record |= _compared(row, precision, checked, answer)
    yield record


def _judged(row: Row, record: dict[str, Any]) -> dict[str, Any]:
    """Which bars of a row are met: its own, and that of all programs of kernax on compilation."""
    found: dict[str, Any] = {}
    if row.bar is not None:
        found |= {"bar": row.bar, "met": record["seconds"] <= row.bar}
    if "compile_seconds" in record and row.peer is None:
        found |= {"compile_met": record["compile_seconds"] <= COMPILE_BAR}
    return found


def _timings(run: Callable[[], Any], first: float, budget: float) -> dict[str, Any]:
    """As many rounds as a share of the budget allows."""
    rounds = max(1, min(_MOST_ROUNDS, math.floor(_SHARE * budget / max(first, 1e-9))))
    seconds = [timed(run)[2] for _ in range(rounds)]
    return {
        "seconds": statistics.median(seconds),
        "fastest": min(seconds),
        "slowest": max(seconds),
        "rounds": rounds,
    }


def _compared(row: Row, precision: str, size: int, ours: Any | None) -> dict[str, Any]:
    """The answers of both devices at a size that the CPU can do, and the CPU's seconds; `ours` if
    it is known already.
    """
    program = row.program(size, precision)
    ours = timed(prepared(program, jax.devices()[0])[0])[0] if ours is None else ours
    run, _ = prepared(program, jax.devices("cpu")[0])
    reference, _, seconds = timed(run)
    figures = agreement(jax.tree.leaves(ours), jax.tree.leaves(reference), row.tolerance(precision))
    return {"compared_at": size, "cpu_seconds": seconds} | figures


def agreement(answer: list[Any], reference: list[Any], tolerance: float) -> dict[str, Any]:
    """The largest difference over the leaves, relative to the largest entry of the reference, and
    whether it is tolerable.
    """
    apart = difference(
        *([np.asarray(leaf, np.float64) for leaf in leaves] for leaves in (answer, reference))
    )
    # False for NaN.
    return {
        "difference": apart,
        "tolerance": tolerance,
        "agrees": apart <= tolerance,
    }


def prepared(program: Any, device: Any) -> tuple[Callable[[], Any], dict[str, Any]]:
    """The program compiled for a device with its arguments there, and what compiling took; other
    libraries' as they are.
    """
    if not isinstance(program, Program):
        return program, {}
    arguments = jax.block_until_ready(
        jax.tree.map(lambda leaf: _placed(leaf, device), program.arguments)
    )
    start = time.perf_counter()
    compiled = program.jitted.lower(*arguments).compile()
    seconds = time.perf_counter() - start
    memory = compiled.compiled.memory_analysis()
    temporary = None if memory is None else memory.temp_size_in_bytes
    return lambda: compiled(*arguments), {"compile_seconds": seconds, "temporary_bytes": temporary}


def _placed(leaf: Any, device: Any) -> Any:
    return jax.device_put(leaf, device) if eqx.is_array_like(leaf) else leaf


def timed(run: Callable[[], Any]) -> tuple[Any, dict[str, Any], float]:
    """An answer, its facts as plain numbers, and the seconds until it was there."""
    start = time.perf_counter()
    answer, facts = jax.block_until_ready(run())
    seconds = time.perf_counter() - start
    return answer, {name: np.asarray(fact).item() for name, fact in facts.items()}, seconds


def _is_finite(answer: Any) -> bool:
    leaves = [
        leaf
        for leaf in jax.tree.leaves(answer)
        if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
    ]
    return all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)


def _written_down(answer: Any) -> dict[str, Any]:
    """A short answer as a list of numbers, with which another library's is compared."""
    leaves = jax.tree.leaves(answer)
    if sum(np.size(leaf) for leaf in leaves) > _SHORT:
        return {}
    return {
        "answer": np.concatenate(
            [np.ravel(np.asarray(leaf, np.float64)) for leaf in leaves]
        ).tolist()
    }
