"""Checks of gradients: forward against reverse mode, and both against central differences."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from kernax.core.base.boundary import cast, count, dtype_of
from kernax.core.base.parameters import parameters
from kernax.core.operators.pairs import all_pairs
from kernax.testing.assertions import closeness, largest, point, require

# Steps of differences, relative to the size of an argument. The better result counts: the first has
# mainly a truncation error, the second a rounding error.
_STEPS = (1e-3, 1e-4)


def gradient_in_the_parameters(kernel, X, Z):
    """The gradient of `sum_ij w_ij k(x_i, x_j)`, i = j included, is finite and correct.

    It is computed in forward and in reverse mode.
    """
    kernel, X = as_double(kernel, X)
    learned, rest = eqx.partition(kernel, eqx.is_inexact_array)
    # The size of each inexact leaf, to which steps of differences are relative.
    intervals = {entry.leaf_index: entry.interval for entry in parameters(kernel)}
    scales = []
    for leaf_index, leaf in enumerate(jax.tree.leaves(kernel)):
        if not eqx.is_inexact_array(leaf):
            continue
        size = np.abs(np.asarray(leaf))
        if leaf_index not in intervals:
            scales.append(None)
        elif np.isfinite(intervals[leaf_index].low):
            scales.append(np.where(size > 0, size, 1.0))
        else:
            scales.append(np.asarray(np.maximum(size, 1.0)))
    if scales:
        draw = np.random.default_rng(0).uniform(0.5, 1.5, (count(X), count(X)))
        weights = jnp.asarray(draw, dtype_of(X))
        check_gradients(lambda learned: _of_parameters(learned, rest, X, weights), learned, scales)


@eqx.filter_jit
def _of_parameters(learned, rest, X, weights):
    """The weighted sum over all pairs, and its gradients in the learned leaves."""

    def total(learned):
        kernel = eqx.combine(learned, rest)
        return jnp.sum(weights * all_pairs(kernel, X, X))

    return value_and_gradients(total, learned)


def gradient_in_the_points(kernel, X, Z):
    """The gradient of `k(x, z)` in x and in z is finite, and correct where x and z differ.

    It is computed in forward and in reverse mode.
    """
    kernel, X = as_double(kernel, X)
    # The scale of each inexact leaf, in the shape of a point, is its spread over X.
    inexact = [np.asarray(leaf) for leaf in jax.tree.leaves(X) if eqx.is_inexact_array(leaf)]
    scales = [np.full(leaf.shape[1:], np.std(leaf) or 1.0) for leaf in inexact]
    middle = count(X) // 2
    for index in {0, middle}:
        x = point(X, index)
        z = point(X, -1)
        if scales and not eqx.tree_equal(x, z):
            arrays, rest = eqx.partition(Pair(kernel, x, z), eqx.is_inexact_array)
            # Gradients in the kernel must only be finite here.
            of_kernel = [None] * len(jax.tree.leaves(arrays.kernel))
            value = functools.partial(_of_a_pair, rest=rest)
            check_gradients(value, arrays, [*of_kernel, *scales, *scales])


def gradient_where_points_coincide(kernel, X, Z):
    """The gradient of `k(x, z)` is finite also at x = z.

    It is taken in the parameters, in x and in z, in forward and in reverse mode.
    """
    kernel, X = as_double(kernel, X)
    arrays, rest = eqx.partition(Pair(kernel, point(X), point(X)), eqx.is_inexact_array)
    if leaves := jax.tree.leaves(arrays):
        value = functools.partial(_of_a_pair, rest=rest)
        check_gradients(value, arrays, [None] * len(leaves))


class Pair(NamedTuple):
    """A kernel and two points."""

    kernel: Any
    x: Any
    z: Any


@eqx.filter_jit
def _of_a_pair(arrays, rest):
    """`k(x, z)`, and its gradients in all inexact arrays."""

    def value(arrays):
        kernel, x, z = eqx.combine(arrays, rest)
        return kernel(x, z)

    return value_and_gradients(value, arrays)


def as_double(*trees: PyTree) -> tuple[PyTree, ...]:
    """All arrays in float64, if 64-bit mode is on."""
    return tuple(cast(tree, jnp.result_type(float)) for tree in trees)


def value_and_gradients(function: Callable, argument: PyTree) -> tuple[Array, PyTree, PyTree]:
    """A scalar function of inexact arrays, and its gradients in reverse and in forward mode."""
    return function(argument), jax.grad(function)(argument), jax.jacfwd(function)(argument)


def check_gradients(compiled: Callable, argument: PyTree, scales: list[Any]) -> None:
    """Asserts that gradients are finite, equal in reverse and forward mode, and correct.

    Correct means that in float64 they agree with central differences to 1e-6 of the largest entry
    of each array, which is tested if a scale is given.

    Arguments:
        compiled: a function of an argument, with the three results of `value_and_gradients`.
        argument: a tree of inexact arrays.
        scales: for each leaf the sizes of its entries, which determine the steps, or None for no
            comparison with differences.
    """
    value, *gradients = compiled(argument)
    reverse, forward = map(jax.tree.leaves, gradients)
    least = 1e-3 * abs(float(value))
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(argument)[0]]
    for leaf_index, scale in enumerate(scales):
        line = _Line(compiled, argument, leaf_index, jax.tree_util.keystr(paths[leaf_index]))
        gradient = np.asarray(reverse[leaf_index])
        sizes = np.ones(gradient.shape) if scale is None else scale
        # A gradient that is zero up to rounding is compared with `least`.
        size = max(largest(gradient * sizes), least)
        # Both modes are finite, and agree to rounding.
        for mode, of_mode in (("reverse", gradient), ("forward", forward[leaf_index])):
            require(np.all(np.isfinite(of_mode)), f"{line.name} is NaN or inf in {mode} mode")
        apart = largest((gradient - forward[leaf_index]) * sizes)
        require(
            apart <= 10 * closeness(gradient.dtype) * size,
            f"{line.name} differs between reverse and forward mode by {apart:.3g}",
        )
        if scale is not None and gradient.dtype == np.float64:
            # Asserts that every entry of a gradient agrees with central differences.
            for index in np.ndindex(gradient.shape):
                differences = [
                    line.difference(index, float(step * scale[index])) for step in _STEPS
                ]
                error = (
                    min(abs(difference - gradient[index]) for difference in differences)
                    * scale[index]
                )
                where = f"{line.name}{list(index) if index else ''}"
                require(
                    error <= 1e-6 * size,
                    f"{where} is {gradient[index]:.9g}, but by central differences "
                    f"{differences[0]:.9g}",
                )


class _Line(NamedTuple):
    """A compiled function along the entries of one array of its argument."""

    compiled: Callable
    argument: PyTree
    leaf_index: int
    path: str

    @property
    def name(self) -> str:
        """The derivative, for messages."""
        return f"d/d{self.path.lstrip('.')}"

    def value(self, index: tuple[int, ...], shift: float) -> float:
        leaves, structure = jax.tree.flatten(self.argument)
        array = np.array(leaves[self.leaf_index])
        array[index] += shift
        leaves[self.leaf_index] = jnp.asarray(array)
        value, *_ = self.compiled(jax.tree.unflatten(structure, leaves))
        return float(value)

    def difference(self, index: tuple[int, ...], h: float) -> float:
        """The derivative in one entry: `(8 (f(+h) - f(-h)) - (f(+2h) - f(-2h))) / 12 h`."""
        near = self.value(index, h) - self.value(index, -h)
        far = self.value(index, 2 * h) - self.value(index, -2 * h)
        return (8 * near - far) / (12 * h)
