"""How a batch of factorisations runs: on a CPU one after the other, elsewhere all together."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Int, PyTree

from kernax.core.base.numerics import stop_gradient


def sequential_vmap(function: Callable, matrix: PyTree, *others: PyTree) -> Any:
    """`function(matrix, *others)`, under a `vmap` over `matrix` (any pytree) a loop on a CPU.

    For functions that call LAPACK: XLA would hand LAPACK the whole batch, whose members then wait
    for threads of the pool that runs the call itself: with as many independent batches in a program
    as there are cores, a line search under `vmap`, say, all threads wait forever (jaxlib 0.10.2). A
    loop cannot hang, is no slower on two cores (500 matrices of n = 100 take 0.6 of the time), and
    lets each member stop iterating when it is done. A batch of `others` alone, such as right-hand
    sides, is still one call.

    Differentiated, it is a constant: its callers have derivative rules of their own.
    """
    arrays, rest = eqx.partition(stop_gradient((matrix, others)), eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    of_matrix = len(jax.tree.leaves(arrays[0]))
    static: list[Any] = []  # what the function returns besides arrays

    def of_leaves(*leaves):
        matrix, others = eqx.combine(jax.tree.unflatten(structure, leaves), rest)
        out, other = eqx.partition(function(matrix, *others), eqx.is_array)
        static.append(other)
        return out

    out = _looped(of_leaves, of_matrix)(*leaves)
    return eqx.combine(out, static[-1])


def _looped(function: Callable, of_matrix: int) -> Callable:
    """A function of arrays, a loop on a CPU under a `vmap` over one of the first `of_matrix`."""
    call = custom_vmap(function)

    @call.def_vmap
    def _(size, batched, *leaves):
        together = jax.vmap(function, in_axes=tuple(0 if yes else None for yes in batched))
        if any(batched[:of_matrix]):
            out = _one_after_the_other(call, together, batched, leaves)
        else:
            # A batch of the others alone is one call, whose matrix an outer vmap may still batch.
            out = _looped(together, of_matrix)(*leaves)
        return out, jax.tree.map(lambda _: True, out)

    return call


def _one_after_the_other(
    call: Callable, together: Callable, batched: Sequence[bool], leaves: Sequence[Any]
) -> Any:
    """`call` for each member of a batch in a loop on a CPU, `together` on an accelerator."""
    moving = [leaf for leaf, yes in zip(leaves, batched) if yes]

    def member(moving):
        parts = iter(moving)
        return call(*(next(parts) if yes else leaf for leaf, yes in zip(leaves, batched)))

    return lax.platform_dependent(
        moving,
        cpu=lambda moving: lax.map(member, moving),
        default=lambda _: together(*leaves),
    )


def each(function: Callable, batch: PyTree) -> Any:
    """`function` of every member of a stack, on a CPU one after the other, elsewhere together.

    For loops whose members need different numbers of steps: a batch takes as many as its slowest
    member.
    """
    return lax.platform_dependent(
        batch, cpu=lambda batch: lax.map(function, batch), default=jax.vmap(function)
    )


@custom_vmap
def largest_of_batch(choice: Int[Array, ""]) -> Int[Array, ""]:
    """The same number; under `vmap` the largest of the batch, one for all members.

    So a `lax.switch` on it is not batched: a batched one would run every branch. It is for choices
    where a larger number is as right, and only slower.
    """
    return choice


@largest_of_batch.def_vmap
def _(size, batched, choice):
    return largest_of_batch(jnp.max(choice)), False


def in_smallest_size(
    function: Callable, sizes: Sequence[int], needed: Int[Array, ""], *operands: PyTree
) -> Any:
    """`function(size, *operands)` with the first of the ascending sizes that is at least `needed`.

    The last size must always be enough. A batch has one size: that of the member that needs most.
    """
    branches = [partial(function, size) for size in sizes]
    if len(sizes) == 1:
        return branches[0](*operands)
    which = largest_of_batch(jnp.searchsorted(jnp.asarray(sizes[:-1], needed.dtype), needed))
    return lax.switch(which, branches, *operands)
