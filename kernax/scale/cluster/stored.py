"""The arrays of a state as orbax writes and reads them, spread over devices and processes."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils


def check_orbax() -> Any:
    """The package orbax.checkpoint. Raises ImportError without it: it is optional."""
    try:
        import orbax.checkpoint
    except ImportError:
        raise ImportError(
            "kernax.scale.Checkpoints needs orbax: pip install 'kernax-toolkit[cluster]'"
        ) from None
    return orbax.checkpoint


def write_state(path: Path, state: Any) -> None:
    """Writes the arrays and numbers of a state into a new folder; all processes call it.

    Raises ValueError where an array that is not spread over the processes differs between them.
    """
    arrays = {name: _to_write(leaf) for name, leaf in _named(state)}
    _check_same({name: leaf for name, leaf in arrays.items() if isinstance(leaf, np.ndarray)})
    orbax = check_orbax()
    with orbax.Checkpointer(orbax.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(path, args=orbax.args.PyTreeSave(arrays))


def read_state(path: Path, like: Any) -> Any:
    """The state in a folder, its arrays on the devices where those of `like` are."""
    wanted = dict(_named(like))
    arrays = _read(path, wanted)
    leaves, structure = jax.tree.flatten(like)
    for name, leaf in wanted.items():
        leaves[int(name)] = _as_before(arrays[name], leaf)
    return jax.tree.unflatten(structure, leaves)


def _read(path: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """The arrays in a folder, by name, each where the leaf of that name is."""
    orbax = check_orbax()
    given = {name: _restore_args(orbax, leaf) for name, leaf in wanted.items()}
    places = dict.fromkeys(wanted, jax.ShapeDtypeStruct((), np.float32))  # only their names count
    with orbax.Checkpointer(orbax.PyTreeCheckpointHandler()) as checkpointer:
        return checkpointer.restore(path, args=orbax.args.PyTreeRestore(places, restore_args=given))


def _named(state: Any) -> list[tuple[str, Any]]:
    """Every array and number of a state that has a value, by its place among all leaves."""
    leaves = enumerate(jax.tree.leaves(state))
    return [(str(place), leaf) for place, leaf in leaves if _has_value(leaf)]


def _has_value(leaf: Any) -> bool:
    """Whether a leaf is a number, or an array that is not empty: orbax takes no empty ones."""
    kinds = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)
    return isinstance(leaf, kinds) and np.size(leaf) > 0


def _is_key(leaf: Any) -> bool:
    """Whether an array is of random keys."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _is_spread(leaf: Any) -> bool:
    """Whether an array is on more than one device."""
    return isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1


def _to_write(leaf: Any) -> jax.Array | np.ndarray:
    """A leaf as it is written: spread arrays as they are, all others as arrays of NumPy."""
    leaf = jax.random.key_data(leaf) if _is_key(leaf) else leaf
    return leaf if _is_spread(leaf) else np.asarray(leaf)


def _check_same(arrays: dict[str, np.ndarray]) -> None:
    """Raises ValueError for arrays that are not the same in all processes."""
    if jax.process_count() == 1:
        return
    bits = {name: array.reshape(-1).view(np.uint8) for name, array in arrays.items()}
    try:
        multihost_utils.assert_equal(bits)
    except AssertionError:
        raise ValueError(
            "state must hold arrays that are spread over the processes or the same in all of them, "
            "but some are neither: make global arrays of these, by "
            "jax.make_array_from_process_local_data"
        ) from None


def _restore_args(orbax: Any, leaf: Any) -> Any:
    """How an array is read."""
    if not _is_spread(leaf):
        return orbax.RestoreArgs(restore_type=np.ndarray)
    sharding = jax.random.key_data(leaf).sharding if _is_key(leaf) else leaf.sharding
    return orbax.ArrayRestoreArgs(sharding=sharding)


def _as_before(array: Any, leaf: Any) -> Any:
    """What was read, as the kind of array or number that the leaf is, and where that is."""
    if isinstance(leaf, jax.Array):
        return _as_array_before(array, leaf)
    if isinstance(leaf, np.ndarray):
        return np.asarray(array)
    return leaf.dtype.type(array) if isinstance(leaf, np.generic) else type(leaf)(array.item())


def _as_array_before(array: Any, leaf: jax.Array) -> jax.Array:
    """The same, for an array of JAX."""
    if _is_key(leaf):
        array = jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    if _is_spread(leaf):
        return array
    return jax.device_put(array, leaf.sharding) if leaf.committed else jnp.asarray(array)
