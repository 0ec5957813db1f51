"""Batches of points: selection of points, and concatenation."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from kernax.core.base.numerics import is_concrete


def points_at(stack: PyTree, indices: Any) -> PyTree:
    """The points at `indices`: a batch for an array of indices, a slice or a mask, and one point
    for a single index.
    """
    return jax.tree.map(lambda leaf: leaf[indices], stack)


def joined(stacks: Sequence[PyTree]) -> PyTree:
    """Several batches of points of one kind, concatenated.

    Encoded strings and trees, and functionals, have a method `joined`, which pads them to one
    shape.
    """

    def is_encoded(node: Any) -> bool:
        return hasattr(node, "joined")

    def of_parts(*parts: Any) -> Any:
        if is_encoded(parts[0]):
            return reduce(lambda one, other: one.joined(other), parts)
        if is_concrete(parts):  # a program of thousands of arguments would take long to compile
            return jnp.asarray(np.concatenate([np.asarray(part) for part in parts]))
        return jnp.concatenate(parts)

    return jax.tree.map(of_parts, *stacks, is_leaf=is_encoded)
