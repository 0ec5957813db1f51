"""The state of learning, in a file from which a run that was killed goes on."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from kernax.core.base.archive import (
    Format,
    check_place,
    check_safetensors,
    holds,
    read_archive,
    remove_unfinished,
    write_archive,
)
from kernax.core.base.facts import check_same_call
from kernax.core.base.parameters import check_count
from kernax.errors import KernaxFileError
from kernax.selection.optimise.identity import Identity, differences
from kernax.selection.optimise.progress import Observer, Reached, some_steps

_CHECKPOINTS = Format("kernax checkpoint 1", "kernax checkpoint", ("identity", "progress"))


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A file in which `minimise` and `multi_start` keep the state of learning.

    The same call goes on from there: a run that was killed at any moment, and is started again,
    returns bitwise what it would have returned without the interruption, on the same machine (on a
    GPU where XLA's algorithms are deterministic: `XLA_FLAGS=--xla_gpu_deterministic_ops=true`). The
    file is written whole or not at all. A run that is over is not repeated: the call returns its
    result. A call with more `steps` goes on where fewer were used up; one that ended before, of
    itself or by a callback, stays ended.

    A file that is damaged, or belongs to another call, is refused by a `KernaxFileError`, which
    says what differs, and is left as it is. The call is identified by the values, shapes and
    structure of `model` and `args`, what is trainable, the names of `loss` and `optimiser`, the
    compiled programs that come of them, hyperparameters and arrays that they close over included,
    the validation, the precision, the kind of device, and the versions of JAX, Equinox, Lineax and
    Optax. What the host computes in a callback inside the loss (`jax.pure_callback`) is not seen.
    Identifying it takes one more trace of the loss, and one of a step.

    Two processes that use one file at a time overwrite each other's state: give each its own file.

    Arguments:
        path: a file in a folder that exists. `checkpoint=path` is `Checkpoint(path)`.
        every: after how many steps it is written; None for some fifty times in a run. It is
            written at the end as well. Writing takes milliseconds, more for megabytes of
            parameters. A run that is killed loses the steps since the file was last written.

    Raises ValueError for arguments of the wrong kind. Needs `pip install 'kernax-toolkit[files]'`.
    """

    path: str | os.PathLike
    every: int | None = None

    def __post_init__(self):
        if not isinstance(self.path, (str, os.PathLike)):
            raise ValueError(
                "checkpoint must be a path, or kernax.Checkpoint(path, every=10), but is of type "
                f"{type(self.path).__name__}"
            )
        if self.every is not None:
            check_count(self.every, "every of a Checkpoint")


def as_checkpoint(checkpoint: Any) -> Checkpoint:
    """A path as a `Checkpoint`."""
    return checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)


def check_file(checkpoint: Checkpoint) -> None:
    """Raises, before anything is learned, what reading or writing the file would raise.

    Removes what processes that were killed while they wrote it have left beside it.
    """
    check_safetensors()
    path = Path(checkpoint.path)
    check_place(path)
    remove_unfinished(path)
    if path.exists():
        read_archive(path, _CHECKPOINTS)


class _Progress(NamedTuple):
    """How far a run was."""

    steps: int  # that were asked for
    step: int
    ended: bool  # before all of them


class Keeper(NamedTuple):
    """A file, the identity of the call that it belongs to, and how many steps were asked for."""

    checkpoint: Checkpoint
    identity: Identity
    steps: int

    def resumed(self, reached: Reached) -> Reached:
        """What the file holds, or where there is none, what it is given: the start.

        Raises KernaxFileError for a file that is damaged, or of another call.
        """
        path = Path(self.checkpoint.path)
        if not path.exists():
            return reached
        texts, arrays = read_archive(path, _CHECKPOINTS)
        try:
            identity = Identity(**json.loads(texts["identity"]))
            progress = _Progress(**json.loads(texts["progress"]))
        except (ValueError, TypeError) as problem:
            raise KernaxFileError(f"{path} is no checkpoint of kernax: {problem}") from problem
        differing = differences(self.identity, identity)
        if not differing and self.steps < progress.steps:
            differing = [f"steps ({self.steps} in this call, {progress.steps} in the file)"]
        check_same_call(path, differing)
        state = _restored(arrays, reached.state)
        was_ended = progress.ended or not bool(state.running.any())
        return Reached(state, progress.step, was_ended or progress.step == self.steps)

    def observer(self) -> Observer:
        """An observer that writes the file."""
        every = self.checkpoint.every or some_steps(self.steps)
        return Observer(every, self._written)

    def _written(self, reached: Reached) -> bool:
        """Writes where learning stands; it never ends it."""
        was_ended = reached.stopped or (reached.over and reached.step < self.steps)
        progress = _Progress(self.steps, reached.step, was_ended)
        texts = {
            "identity": json.dumps(self.identity._asdict()),
            "progress": json.dumps(progress._asdict()),
        }
        write_archive(self.checkpoint.path, _CHECKPOINTS, texts, _arrays_of(reached.state))
        return False


def _arrays_of(state: Any) -> dict[str, np.ndarray]:
    """The arrays of a state by their numbers, as a file holds them."""
    leaves = jax.tree.leaves(eqx.filter(state, eqx.is_array))
    return {str(number): _plain(leaf) for number, leaf in enumerate(leaves)}


def _plain(leaf: jax.Array) -> np.ndarray:
    """An array of a dtype that files hold: random keys and bfloat16 as integers."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    array = np.asarray(leaf, order="C")
    return array if holds(array) else np.frombuffer(array.tobytes(), np.uint8)


def _restored(arrays: dict[str, np.ndarray], start: Any) -> Any:
    """The state that a file holds; `start` says how its arrays are laid out."""
    traced, rest = eqx.partition(start, eqx.is_array)
    leaves, structure = jax.tree.flatten(traced)
    restored = [_like(leaf, arrays[str(number)]) for number, leaf in enumerate(leaves)]
    return eqx.combine(jax.tree.unflatten(structure, restored), rest)


def _like(leaf: jax.Array, array: np.ndarray) -> jax.Array:
    """What a file holds for an array, on the device where that is."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    if array.dtype != leaf.dtype:
        array = np.frombuffer(array.tobytes(), leaf.dtype)
        array = array.reshape(*leaf.shape[:-1], -1) if leaf.ndim else array.reshape(())
    if array.shape != leaf.shape:
        # The losses of a run of fewer steps are followed by those of the start, which are NaN.
        start = np.array(leaf)
        start[..., : array.shape[-1]] = array
        array = start
    return jax.device_put(array, leaf.sharding) if leaf.committed else jnp.asarray(array)
