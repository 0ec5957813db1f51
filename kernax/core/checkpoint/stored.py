"""The arrays of a state in a folder: in one NumPy file, which one process writes, or in the layout
of orbax, which several processes write together.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

_FILE = "state.npz"  # of NumPy
_FOLDER = "state"  # of orbax


def is_part(name: str) -> bool:
    """Whether the name of a file in a folder is one of those that writing a state uses."""
    return name in (_FILE, _FOLDER) or name.startswith(f"{_FOLDER}.orbax-checkpoint-tmp")


def check_orbax() -> Any:
    """The optional package orbax.checkpoint. Raises ImportError if it is not installed."""
    try:
        import orbax.checkpoint
    except ImportError:
        raise ImportError(
            "a checkpoint of several processes needs orbax: pip install 'kernax-toolkit[cluster]'"
        ) from None
    return orbax.checkpoint


def write_state(folder: Path, state: Any) -> None:
    """Writes the arrays and numbers of a state into a folder; all processes call it.

    Raises ValueError if an array that is not spread over the processes differs between them.
    """
    arrays = {name: _to_write(leaf) for name, leaf in _named(state)}
    if jax.process_count() == 1:
        whole: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
        np.savez(folder / _FILE, **whole)
        return
    copied = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    bits = {name: array.reshape(-1).view(np.uint8) for name, array in copied.items()}
    try:
        multihost_utils.assert_equal(bits)
    except AssertionError:
        raise ValueError(
            "state must hold arrays that are spread over the processes or the same in all of them, "
            "but some are neither: convert these to global arrays with "
            "jax.make_array_from_process_local_data"
        ) from None
    write_by_orbax(folder, arrays)


def write_by_orbax(folder: Path, arrays: dict[str, jax.Array | np.ndarray]) -> None:
    """Writes arrays that may be spread over processes; all processes call it."""
    orbax = check_orbax()
    with orbax.Checkpointer(orbax.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(folder / _FOLDER, args=orbax.args.PyTreeSave(arrays))


def read_state(folder: Path, like: Any) -> Any:
    """The state in a folder, with its arrays on the devices of those of `like`."""
    wanted = dict(_named(like))
    if (folder / _FILE).exists():
        with np.load(folder / _FILE, allow_pickle=False) as file:
            arrays = {name: file[name] for name in wanted}
        for name, array in arrays.items():
            if array.dtype.kind == "V":  # the file has only the size of bfloat16
                arrays[name] = array.view(wanted[name].dtype)
    else:
        arrays = _read_by_orbax(folder / _FOLDER, wanted)
    leaves, structure = jax.tree.flatten(like)
    for name, leaf in wanted.items():
        leaves[int(name)] = _as_before(arrays[name], leaf)
    return jax.tree.unflatten(structure, leaves)


def _read_by_orbax(path: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """The arrays in a folder by name, each on the devices of the leaf with that name."""
    orbax = check_orbax()
    given = {}
    for name, leaf in wanted.items():
        data = _data(leaf)
        given[name] = orbax.RestoreArgs(restore_type=np.ndarray)
        if _is_spread(data):
            given[name] = orbax.ArrayRestoreArgs(sharding=data.sharding)
    places = dict.fromkeys(wanted, jax.ShapeDtypeStruct((), np.float32))  # only the names matter
    with orbax.Checkpointer(orbax.PyTreeCheckpointHandler()) as checkpointer:
        return checkpointer.restore(path, args=orbax.args.PyTreeRestore(places, restore_args=given))


def _named(state: Any) -> list[tuple[str, Any]]:
    """Every number and nonempty array of a state, by its index among all leaves."""
    kinds = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)
    leaves = enumerate(jax.tree.leaves(state))
    # Orbax does not accept empty arrays.
    is_stored = lambda leaf: isinstance(leaf, kinds) and np.size(leaf) > 0
    return [(str(place), leaf) for place, leaf in leaves if is_stored(leaf)]


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _is_spread(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1


def _data(leaf: Any) -> Any:
    """A leaf as it is stored: random keys as integers."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _to_write(leaf: Any) -> jax.Array | np.ndarray:
    """A leaf as it is written: spread arrays unchanged, all others as NumPy arrays."""
    data = _data(leaf)
    return data if _is_spread(data) else np.asarray(data)


def _as_before(array: Any, leaf: Any) -> Any:
    """A value that was read, as the same kind of array or number as the leaf, on its devices."""
    if isinstance(leaf, jax.Array):
        data = _data(leaf)
        if _is_spread(data):
            if isinstance(array, np.ndarray):
                array = jax.make_array_from_callback(array.shape, data.sharding, array.__getitem__)
        else:
            array = jax.device_put(array, data.sharding) if data.committed else jnp.asarray(array)
        if _is_key(leaf):
            return jax.random.wrap_key_data(array, impl=jax.random.key_impl(leaf))
        return array
    if isinstance(leaf, np.ndarray):
        return np.asarray(array)
    return leaf.dtype.type(array) if isinstance(leaf, np.generic) else type(leaf)(array.item())
