"""Facts that identify a call, as texts by name, and messages about how two calls differ.

The name of a function does not identify its code or the numbers that it closes over. A call may
therefore also be identified by the text of its programs before XLA optimises them, which is the
same in every process.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from kernax.errors import KernaxFileError

_LONGEST = 60  # characters of a text that a message shows
_MOST_SHOWN = 4  # differences in a message
_VALUES = "the values of "  # the beginning of names of digests of arrays,
_PROGRAM = "what "  # and of digests of programs


def facts_of(name: str, tree: Any) -> dict[str, str]:
    """The structure of a pytree, and each leaf as a text: an array by its dtype and shape."""
    facts = {f"structure of {name}": _without_addresses(str(jax.tree.structure(tree)))}
    return facts | {place: _in_words(leaf) for place, leaf in places_of(name, tree)}


def facts_with_values(name: str, tree: Any) -> dict[str, str]:
    """The facts of a pytree, and a digest of the values of each array."""
    arrays = [(place, leaf) for place, leaf in places_of(name, tree) if _is_array(leaf)]
    values = {f"{_VALUES}{place}": _digest_of_array(leaf) for place, leaf in arrays}
    return facts_of(name, tree) | values


def fact_of_program(name: str, function: Callable, *args: Any) -> dict[str, str]:
    """A digest of a function as passed to XLA, including the arrays that it closes over."""
    # Equinox treats the shapes of arrays as constants here.
    has_shape = lambda leaf: _is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)
    traced, rest = eqx.partition((function, args), has_shape)

    def of_arrays(traced):
        function, args = eqx.combine(traced, rest)
        return eqx.filter(function(*args), eqx.is_array)

    lowered = jax.jit(of_arrays).lower(traced)
    return {f"{_PROGRAM}{name} computes": _digest(lowered.as_text().encode())}


def places_of(name: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """The path of each leaf, such as `model.kernel.lengthscale`, and the leaf."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        keys = [jax.tree_util.keystr((key,), simple=True) for key in path]
        yield ".".join([name, *keys]), leaf


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic))


def _digest_of_array(array: Any) -> str:
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        array = multihost_utils.process_allgather(array, tiled=True)
    flat = np.ascontiguousarray(array).reshape(-1)
    return _digest(flat.view(np.uint8).data)


def _digest(contents: bytes | memoryview) -> str:
    return hashlib.sha256(contents).hexdigest()


def _in_words(leaf: Any) -> str:
    if _is_array(leaf):
        return f"{leaf.dtype}{list(leaf.shape)}"
    if callable(leaf) and hasattr(leaf, "__qualname__"):
        return f"{leaf.__module__}.{leaf.__qualname__}"
    return _without_addresses(repr(leaf))


def _without_addresses(text: str) -> str:
    """A text without addresses in memory, which differ between processes."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def differing_facts(asked: dict[str, str], found: dict[str, str]) -> list[str]:
    """Descriptions of the facts that differ between a call (`asked`) and a checkpoint (`found`)."""
    names = [name for name in asked | found if asked.get(name) != found.get(name)]
    # Values differ wherever a shape or a dtype does, which is more informative.
    names = [name for name in names if name.removeprefix(_VALUES) not in {*names} - {name}]
    # Programs differ wherever anything else does, and each is more informative than the next.
    programs = [name for name in names if name.startswith(_PROGRAM)]
    others = [name for name in names if name not in programs]
    described = []
    for name in others or programs[:1]:
        here = asked.get(name)
        there = found.get(name)
        is_short = max(len(str(here)), len(str(there))) <= _LONGEST
        both = f" ({here or 'nothing'} in this call, {there or 'nothing'} in the file)"
        described.append(name + both if is_short else name)
    return described


def check_same_call(path: Any, differing: Sequence[str], hint: str = "") -> None:
    """Raises KernaxFileError for the checkpoint of another call, that is, if any facts differ. The
    message ends with the hint.
    """
    if not differing:
        return
    shown = [*differing[:_MOST_SHOWN]]
    if len(differing) > _MOST_SHOWN:
        shown.append(f"and {len(differing) - _MOST_SHOWN} more")
    raise KernaxFileError(
        f"{path} is the checkpoint of another call, and is left unchanged. "
        f"What differs: {'; '.join(shown)}. Repeat that call, or choose another path{hint}"
    )
