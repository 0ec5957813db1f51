"""Checkpoints of a computation, from which it resumes."""

import dataclasses
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from kernax.core.base.deprecation import renamed
from kernax.core.base.parameters import check_count
from kernax.core.base.solution import warn
from kernax.core.base.whole_files import write_through
from kernax.core.checkpoint import sealed
from kernax.core.checkpoint.facts import check_same_call, differing_facts, facts_of, places_of
from kernax.core.checkpoint.stored import check_orbax, is_part, read_state, write_state
from kernax.errors import DamagedCheckpointWarning, KernaxFileError

_PIECES = 50  # the number of saved states of a run by default
_NOTHING = -1  # in place of a step: the folder has no checkpoint,
_ALL_DAMAGED = -2  # or only damaged ones
_NO_FACTS: Mapping[str, str] = MappingProxyType({})
_UNFINISHED = ".unfinished"
_REMOVED = ".removed"
_STEP = re.compile(r"0|[1-9]\d*", re.ASCII)  # not `isdigit`, which accepts digits of all scripts
_UNFINISHED_STEP = re.compile(rf"({_STEP.pattern})\.(unfinished|removed)", re.ASCII)


class SoundCheckpoint(NamedTuple):
    """A checkpoint that is not damaged."""

    step: int
    folder: Path
    facts: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A folder in which a computation saves its state, so that it can resume after it was killed.

    Functions that learn take one, or its path, as the argument `checkpoint`. A loop of your own
    saves its state with `steps`:

        checkpoint = kernax.Checkpoint("run", name="evidence of x.npy", every=10)
        for step, state in checkpoint.steps(advance, state, 200, args=(X, y)):
            print(step)

    The same program, started again, resumes from the last saved state, and ends where it would have
    ended without the interruption: bitwise on the same devices (on a GPU if XLA's algorithms are
    deterministic: `XLA_FLAGS=--xla_gpu_deterministic_ops=true`), and up to the order of sums on
    another number of devices or processes. A state is written completely or not at all.

    A checkpoint with a missing, truncated or changed file is never read: a
    `DamagedCheckpointWarning` is issued, and the previous checkpoint is used. If all are damaged,
    or the folder belongs to another call, a `KernaxFileError` says what differs and what to do.

    What identifies a call of `minimise` or `multi_start` are the values, shapes and structure of
    its models and arguments, what is trainable, the names of the loss and the optimiser, their
    compiled programs (with the hyperparameters and arrays that they close over), the validation,
    the precision, the kind of device, and the versions of JAX, Equinox, Lineax and Optax. This
    takes one more trace of the loss, and one of a step. Host computations inside the loss
    (`jax.pure_callback`) are not included.

    A state is any pytree, whose arrays may be spread over devices and processes. Several processes
    write it together, by orbax, into a folder that all of them see: `pip install
    'kernax-toolkit[cluster]'`. A state whose rows were padded to divide evenly over the devices can
    only resume on a number of devices that pads them to the same length.

    Arguments:
        path: the path of the folder, which is created if necessary. Two jobs must not use one
            folder at the same time.
        every: the number of steps between saved states; the last state is saved as well. Writing
            takes about twenty milliseconds, more for megabytes.
        name: a name for the call. Together with the facts that the function adds, it identifies the
            call.
        seconds: the seconds between saved states, by the clock of process 0; with `every`,
            whichever comes first. Without either, a run saves its state about fifty times.
        keep: how many of the newest checkpoints are kept. The default is two, so that one remains
            if the other is damaged.

    Raises ValueError for arguments of the wrong kind.
    """

    path: str | os.PathLike
    every: int | None = None
    name: str = dataclasses.field(default="", kw_only=True)
    seconds: float | int | None = dataclasses.field(default=None, kw_only=True)
    keep: int = dataclasses.field(default=2, kw_only=True)

    def __post_init__(self):
        if not isinstance(self.path, (str, os.PathLike)):
            raise ValueError(
                "checkpoint must be a path, or kernax.Checkpoint(path, every=10), but is of type "
                f"{type(self.path).__name__}"
            )
        if self.every is not None:
            check_count(self.every, "every of a Checkpoint")
        if not isinstance(self.name, str):
            raise ValueError(f"name of a Checkpoint must be a text, but is {self.name!r}")
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"seconds of a Checkpoint must be positive, but is {self.seconds!r}")
        check_count(self.keep, "keep of a Checkpoint")

    @renamed(count="n_steps")
    def steps(
        self,
        advance: Callable[..., Any],
        state: Any,
        n_steps: int | None,
        args: tuple = (),
        *,
        is_over: Callable[[Any], bool] | None = None,
        facts: Mapping[str, str] = _NO_FACTS,
    ) -> Iterator[tuple[int, Any]]:
        """Yields `(step, state)` at the start of the loop and after each step, up to `n_steps` or
        to the first state for which `is_over` is true.

        It begins at `(0, state)`, or at the last saved state, so that the last one yielded is
        always the result. If the loop is killed, or ended by `break`, the steps since the last
        saved state are lost. The call is identified by `name`, `facts` and the structure, shapes
        and dtypes of the state, not by the values of data: the name should describe these.

        Arguments:
            advance: makes the next state, `advance(state, *args)`, of the same structure, shapes
                and dtypes. It should be compiled by `jax.jit`.
            state: any pytree. Arrays that are not spread over devices, and numbers, must be the
                same in all processes.
            n_steps: the largest number of steps. With None only `is_over` ends the loop, and the
                state is saved after every step, unless `every` or `seconds` says otherwise.
            args: further arguments of `advance`. Arrays that are spread over processes must be
                passed here, because a compiled function cannot close over them.
            is_over: a function that says whether a state is the last one; its result must be the
                same in all processes.
            facts: texts that also identify the call, by their names in messages.

        Raises:
            ValueError: `advance` returns a state of another structure, shape or dtype, or a state
                is not the same in all processes; neither `n_steps` nor `is_over` is given.
            KernaxFileError: the folder belongs to another call or to more steps, all of its
                checkpoints are damaged, or something else in it has the name of a checkpoint.
        """
        n_steps = n_steps if n_steps is None else check_count(n_steps, "n_steps")
        if n_steps is None and is_over is None:
            raise ValueError("n_steps must be a number of steps if is_over is None, but is None")
        make_ready(self)
        given = _facts_of_state(state)
        step, state = self.latest(state, facts) or (0, state)
        if n_steps is not None and step > n_steps:
            check_same_call(self.path, [f"n_steps ({n_steps} in this call, {step} in the file)"])
        yield step, state
        clock = Clock(self, n_steps)
        is_last = lambda: step == n_steps or (is_over is not None and is_over(state))
        while not is_last():
            state = advance(state, *args)
            step += 1
            if clock.is_due(step) or is_last():
                returned = _facts_of_state(state)
                for name in given | returned:
                    before = given.get(name, "nothing")
                    after = returned.get(name, "nothing")
                    if before != after:
                        raise ValueError(
                            "advance must return a state of the same structure, shapes and dtypes "
                            f"as its argument, but {name} was {before} and is {after}"
                        )
                keep_state(self, step, state, {**facts, **given})
            yield step, state

    def latest(self, like: Any, facts: Mapping[str, str] = _NO_FACTS) -> tuple[int, Any] | None:
        """Returns `(step, state)` of the last state that `steps` saved, or None if there is none.

        Another job may use the folder at the same time.

        Arguments:
            like: a state of the same structure, shapes and dtypes; the result is on its devices.
            facts: the facts that were passed to `steps`.

        Raises KernaxFileError as `steps` does.
        """
        found = newest(self)
        if found is None:
            return None
        differing = differences(self, {**facts, **_facts_of_state(like)}, found)
        check_same_call(self.path, differing, _hint_for_rows(like, differing))
        return found.step, read_state(found.folder, like)


def as_checkpoint(checkpoint: Any) -> Checkpoint | None:
    """A path as a `Checkpoint`. Raises ValueError for anything else."""
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    return Checkpoint(checkpoint)


def make_ready(checkpoint: Checkpoint) -> None:
    """Creates the folder, and removes unfinished files of processes that were killed while writing.

    Raises, before anything is computed, the errors that writing into it would raise.
    """
    if jax.process_count() > 1:
        check_orbax()
    if jax.process_index() == 0:
        folder = Path(checkpoint.path)
        _check_is_no_file(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise KernaxFileError(f"{folder} cannot be created as a folder: {problem}") from problem
        by_effective_user = os.access in os.supports_effective_ids
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=by_effective_user):
            raise KernaxFileError(f"nothing can be written into {folder}: choose another folder")
        # Removes checkpoints that a killed process was writing or removing.
        for path in list(folder.iterdir()):
            is_unfinished = _UNFINISHED_STEP.fullmatch(path.name) is not None
            if not is_unfinished and not _STEP.fullmatch(path.name):
                continue
            if not _is_own(path):
                raise KernaxFileError(
                    f"{path} has the name of a checkpoint, but is something else, and is left "
                    "unchanged: rename it, or choose another path for the Checkpoint"
                )
            if is_unfinished:
                shutil.rmtree(path)


def newest(checkpoint: Checkpoint) -> SoundCheckpoint | None:
    """The newest undamaged checkpoint, or None. All processes find the same one.

    Raises KernaxFileError if all are damaged.
    """
    folder = Path(checkpoint.path).absolute()
    _check_is_no_file(folder)
    step = _agreed(lambda: _newest_step(folder))
    if step == _NOTHING:
        return None
    if step == _ALL_DAMAGED:
        newest_first = reversed(_steps_in(folder))
        damages = ", ".join(f"{s} ({sealed.damage(folder / str(s))})" for s in newest_first)
        raise KernaxFileError(
            f"every checkpoint in {checkpoint.path} is damaged, {damages}: remove that folder to "
            "start again"
        )
    return SoundCheckpoint(step, folder / str(step), sealed.facts_in(folder / str(step)))


def differences(
    checkpoint: Checkpoint, facts: Mapping[str, str], found: SoundCheckpoint
) -> list[str]:
    """Descriptions of the differences between this call and the one that saved a state."""
    return differing_facts({"name": checkpoint.name, **facts}, found.facts)


def keep_state(checkpoint: Checkpoint, step: int, state: Any, facts: Mapping[str, str]) -> None:
    """Writes a state, and removes all but the newest `keep` states; all processes call it.

    The call that resumes from it must have the same facts.

    Raises OSError, naming the folder, if the state cannot be written, as on a full disk.
    """
    folder = Path(checkpoint.path).absolute()
    unfinished = folder / f"{step}{_UNFINISHED}"
    try:
        if jax.process_index() == 0:
            unfinished.mkdir(parents=True, exist_ok=True)
        write_state(unfinished, state)
        if jax.process_index() == 0:
            sealed.seal(unfinished, {"name": checkpoint.name, **facts})
    except OSError as problem:
        shutil.rmtree(unfinished, ignore_errors=True)
        words = f"{problem.strerror}; step {step} is not saved, and the checkpoints before it are"
        raise OSError(problem.errno, words, str(folder)) from problem
    if jax.process_index() == 0:
        # Rename the checkpoint to its final name, replacing a damaged one.
        path = folder / str(step)
        if path.exists():
            _remove(path)
        os.replace(unfinished, path)
        write_through(folder)
        # Keep the newest up to this step; later ones are damaged.
        steps = _steps_in(folder)
        kept = [old for old in steps if old <= step][-checkpoint.keep :]
        for old in steps:
            if old not in kept:
                _remove(folder / str(old))
    _agreed(lambda: step)  # no process continues before it exists


class Clock:
    """Decides when a state is saved, in a run with a known or unknown number of steps."""

    def __init__(self, checkpoint: Checkpoint, count: int | None):
        self.every = checkpoint.every
        self.seconds = checkpoint.seconds
        if self.every is None and self.seconds is None:
            self.every = 1 if count is None else -(-count // _PIECES)
        self._last = time.monotonic()

    def is_due(self, step: int) -> bool:
        """Whether the state is saved after so many steps; the same in all processes."""
        due = self.every is not None and step % self.every == 0
        seconds = self.seconds
        if seconds is not None and not due:
            since = time.monotonic() - self._last
            due = bool(_agreed(lambda: int(since >= seconds)))
        if due:
            self._last = time.monotonic()
        return due


def _facts_of_state(state: Any) -> dict[str, str]:
    """The structure, shapes and dtypes of a state, with numbers as arrays."""
    is_number = lambda leaf: isinstance(leaf, (bool, int, float, complex))
    as_array = lambda leaf: np.asarray(leaf) if is_number(leaf) else leaf
    return facts_of("state", jax.tree.map(as_array, state))


def _agreed(number: Callable[[], int]) -> int:
    """A number that process 0 computes and sends to all others."""
    if jax.process_count() == 1:
        return number()
    own = number() if jax.process_index() == 0 else 0
    return int(multihost_utils.broadcast_one_to_all(np.asarray(own, np.int32)))


def _check_is_no_file(folder: Path) -> None:
    if folder.is_file():
        raise KernaxFileError(
            f"{folder} is a file, and a checkpoint is a folder: give another path. Checkpoints of "
            "kernax 0.2 that were files cannot be continued"
        )


def _is_own(path: Path) -> bool:
    """Whether a path is a folder, not a link, that only contains parts of a checkpoint."""
    if path.is_symlink() or not path.is_dir():
        return False
    return all(part.name == sealed.SEAL or is_part(part.name) for part in path.iterdir())


def _newest_step(folder: Path) -> int:
    """The step of the newest undamaged checkpoint."""
    if not folder.exists():
        return _NOTHING
    steps = _steps_in(folder)
    for step in reversed(steps):
        damage = sealed.damage(folder / str(step))
        if damage is None:
            return step
        warn(
            f"the checkpoint {folder / str(step)} is damaged ({damage}): the previous one is used "
            "instead, if there is one",
            DamagedCheckpointWarning,
        )
    return _ALL_DAMAGED if steps else _NOTHING


def _hint_for_rows(state: Any, differing: list[str]) -> str:
    """Advice if an array of a state has another number of rows, as may happen if it was spread over
    another number of devices.
    """
    is_spread = lambda leaf: isinstance(leaf, jax.Array) and not leaf.is_fully_replicated
    spread = [place for place, leaf in places_of("state", state) if is_spread(leaf)]
    if not any(text.startswith(f"{place} (") for place in spread for text in differing):
        return ""
    return (
        ". Rows are padded until devices share them evenly: a state with such rows can only be "
        "resumed on a number of devices that pads them to the same number"
    )


def _steps_in(folder: Path) -> list[int]:
    """The steps of all checkpoints in a folder, in order. Links, and names such as `²` and `007`,
    are ignored.
    """
    named = [path for path in folder.iterdir() if _STEP.fullmatch(path.name)]
    return sorted(int(path.name) for path in named if path.is_dir() and not path.is_symlink())


def _remove(path: Path) -> None:
    """Renames a checkpoint before removing it, so that it is never used half removed."""
    removed = path.with_name(f"{path.name}{_REMOVED}")
    os.replace(path, removed)
    shutil.rmtree(removed)
