"""Batches of factorisations: one after the other on a CPU, together on other devices."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.extend.backend import backends
from jaxtyping import Array, Int, PyTree

from kernax.core.base.numerics import stop_gradient


def sequential_vmap(function: Callable, matrix: PyTree, *others: PyTree) -> Any:
    """`function(matrix, *others)`, which a `vmap` over `matrix` (any pytree) runs as a loop on a
    CPU.

    It is for functions that call LAPACK. XLA would pass the whole batch to LAPACK, and its members
    would wait for threads of the pool that runs the call itself. If a program has as many
    independent batches as there are cores, as in a line search under `vmap`, all threads wait
    forever (jaxlib 0.10.2). A loop cannot hang, is no slower on two cores (500 matrices of n = 100
    take 0.6 of the time), and lets each member stop iterating when it is done. A batch over
    `others` alone, such as right-hand sides, is still one call.

    Derivatives treat it as a constant, because its callers have their own derivative rules.
    """
    of_matrix = len(jax.tree.leaves(eqx.filter(matrix, eqx.is_array)))
    return _called_with_leaves(lambda f: _looped(f, of_matrix), function, matrix, *others)


def each_of_vmap(function: Callable, *args: PyTree) -> Any:
    """`function(*args)`, which the innermost `vmap` runs as `each` does: one member after the other
    on a CPU, together elsewhere. Batches outside of it are batches of that loop.

    Derivatives treat it as a constant, because its callers have their own derivative rules.
    """

    def in_a_loop(function: Callable) -> Callable:
        call = custom_vmap(function)

        @call.def_vmap
        def _(size, batched, *leaves):
            out = each(*_of_member(function, batched, leaves))
            return out, jax.tree.map(lambda _: True, out)

        return call

    return _called_with_leaves(in_a_loop, function, *args)


def _called_with_leaves(transformed: Callable, function: Callable, *args: PyTree) -> Any:
    """`function(*args)` by `transformed` of a function of the arrays in the arguments alone."""
    arrays, rest = eqx.partition(stop_gradient(args), eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    static: list[Any] = []  # the outputs of the function that are not arrays

    def of_leaves(*leaves):
        out = function(*eqx.combine(jax.tree.unflatten(structure, leaves), rest))
        out, other = eqx.partition(out, eqx.is_array)
        static.append(other)
        return out

    out = transformed(of_leaves)(*leaves)
    return eqx.combine(out, static[-1])


def _of_member(
    function: Callable, batched: Sequence[bool], leaves: Sequence[Array]
) -> tuple[Callable, list[Array]]:
    """`function` of the arrays that are batched, for one member of the batch, and these arrays."""

    def of_member(moving):
        parts = iter(moving)
        return function(*(next(parts) if yes else leaf for leaf, yes in zip(leaves, batched)))

    return of_member, [leaf for leaf, yes in zip(leaves, batched) if yes]


def _looped(function: Callable, of_matrix: int) -> Callable:
    """A function of arrays that loops on a CPU under a `vmap` over one of the first `of_matrix`."""
    call = custom_vmap(function)

    @call.def_vmap
    def _(size, batched, *leaves):
        together = jax.vmap(function, in_axes=tuple(0 if yes else None for yes in batched))
        if any(batched[:of_matrix]):
            # Member after member on a CPU, all together on an accelerator.
            member, moving = _of_member(call, batched, leaves)
            out = on_cpu_or_elsewhere(
                lambda moving: lax.map(member, moving), lambda _: together(*leaves), moving
            )
        else:
            # A batch over the others alone is one call; an outer vmap may still batch its matrix.
            out = _looped(together, of_matrix)(*leaves)
        return out, jax.tree.map(lambda _: True, out)

    return call


def each(function: Callable, batch: PyTree) -> Any:
    """`function` for every member of a batch: one after the other on a CPU, together elsewhere.

    It is for loops with members that need different numbers of steps, because a batch takes as many
    as its slowest member.
    """
    return on_cpu_or_elsewhere(lambda batch: lax.map(function, batch), jax.vmap(function), batch)


def on_cpu_or_elsewhere(cpu: Callable, elsewhere: Callable, operand: PyTree) -> Any:
    """`cpu(operand)` in programs for a CPU, `elsewhere(operand)` in those for accelerators.

    `lax.platform_dependent` traces, batches and differentiates both functions. If JAX has no
    accelerator, only the first is traced, and a program that is exported for accelerators contains
    it as well.
    """
    if list(backends()) == ["cpu"]:
        return cpu(operand)
    return lax.platform_dependent(operand, cpu=cpu, default=elsewhere)


@custom_vmap
def largest_of_batch(choice: Int[Array, ""]) -> Int[Array, ""]:
    """The same number, but under `vmap` the largest of the batch for all members.

    A `lax.switch` on it is therefore not batched; a batched switch would run every branch. It is
    for choices where a larger number is also correct, only slower.
    """
    return choice


@largest_of_batch.def_vmap
def _(size, batched, choice):
    return largest_of_batch(jnp.max(choice)), False


def in_smallest_size(
    function: Callable, sizes: Sequence[int], needed: Int[Array, ""], *operands: PyTree
) -> Any:
    """`function(size, *operands)` with the first of the ascending sizes that is at least `needed`.

    The last size must always be sufficient. A batch has one size, the largest that a member needs.
    """
    # The index of the first size >= needed; the last size is not compared.
    branches = [partial(function, size) for size in sizes]
    if len(sizes) == 1:
        return branches[0](*operands)
    which = largest_of_batch(jnp.searchsorted(jnp.asarray(sizes[:-1], needed.dtype), needed))
    return lax.switch(which, branches, *operands)
