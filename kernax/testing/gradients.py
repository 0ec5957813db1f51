"""Are its gradients right? Forward against reverse mode, and both against central differences."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from kernax.core.boundary import cast, count, dtype_of
from kernax.core.parameters import parameters
from kernax.testing.assertions import closeness, point, require

_STEPS = (1e-3, 1e-4)  # of the size of an argument; the better one counts: the first loses to curvature, the second to rounding


def gradient_in_the_parameters(kernel, X, Z):
    """That of `sum_ij w_ij k(x_i, x_j)`, i = j included, is finite, and right: forward and reverse."""
    kernel, X = as_double(kernel, X)
    learned, rest = eqx.partition(kernel, eqx.is_inexact_array)
    supports = {entry.place: entry.support for entry in parameters(kernel)}
    scales = []
    for place, leaf in enumerate(jax.tree.leaves(kernel)):
        if eqx.is_inexact_array(leaf):
            size = np.abs(np.asarray(leaf))
            relative = place in supports and np.isfinite(supports[place].low)
            size = np.where(size > 0, size, 1.0) if relative else np.maximum(size, 1.0)
            scales.append(size if place in supports else None)
    if scales:
        weights = jnp.asarray(np.random.default_rng(0).uniform(0.5, 1.5, (count(X), count(X))), dtype_of(X))
        check_gradients(lambda learned: _of_parameters(learned, rest, X, weights), learned, scales)


@eqx.filter_jit
def _of_parameters(learned, rest, X, weights):
    def total(learned):
        kernel = eqx.combine(learned, rest)
        return jnp.sum(weights * jax.vmap(lambda x: jax.vmap(lambda z: kernel(x, z))(X))(X))

    return value_and_gradients(total, learned)


def gradient_in_the_points(kernel, X, Z):
    """That of `k(x, z)` in x and in z is finite, and right where x and z differ: forward and reverse."""
    kernel, X = as_double(kernel, X)
    spreads = [np.std(np.asarray(leaf)) or 1.0 for leaf in jax.tree.leaves(X) if eqx.is_inexact_array(leaf)] * 2
    for place in {0, count(X) // 2}:
        x, z = point(X, place), point(X, -1)
        arrays, rest = eqx.partition(Pair(kernel, x, z), eqx.is_inexact_array)
        scales = [np.full(leaf.shape, spread) for leaf, spread in zip(jax.tree.leaves((arrays.x, arrays.z)), spreads)]
        learned = [None] * len(jax.tree.leaves(arrays.kernel))
        if scales and not eqx.tree_equal(x, z):
            check_gradients(lambda arrays, rest=rest: _of_a_pair(arrays, rest), arrays, [*learned, *scales])


def gradient_where_points_coincide(kernel, X, Z):
    """That of `k(x, z)` in the parameters, in x and in z is finite, forward and reverse, also at x = z."""
    kernel, X = as_double(kernel, X)
    arrays, rest = eqx.partition(Pair(kernel, point(X), point(X)), eqx.is_inexact_array)
    if leaves := jax.tree.leaves(arrays):
        check_gradients(lambda arrays: _of_a_pair(arrays, rest), arrays, [None] * len(leaves))


class Pair(NamedTuple):
    """A kernel and two points."""

    kernel: Any
    x: Any
    z: Any


@eqx.filter_jit
def _of_a_pair(arrays, rest):
    def value(arrays):
        kernel, x, z = eqx.combine(arrays, rest)
        return kernel(x, z)

    return value_and_gradients(value, arrays)


def as_double(*trees: PyTree) -> tuple[PyTree, ...]:
    """Everything in float64 where there is float64."""
    return tuple(cast(tree, jnp.result_type(float)) for tree in trees)


def value_and_gradients(function: Callable, argument: PyTree) -> tuple[Array, PyTree, PyTree]:
    """A scalar function of inexact arrays, and its gradients in reverse and in forward mode."""
    return function(argument), jax.grad(function)(argument), jax.jacfwd(function)(argument)


def check_gradients(compiled: Callable, argument: PyTree, scales: list[np.ndarray | None]) -> None:
    """Asserts that gradients are finite, the same in reverse and forward mode and, where a scale is given, right.

    Right means that in float64 they agree with central differences to 1e-6 of the largest entry of each array.

    Arguments:
        compiled: from an argument to the three results of `value_and_gradients`.
        argument: a tree of inexact arrays.
        scales: for each leaf the sizes of its entries, which set the steps, or None for no comparison with differences.
    """
    value, *gradients = compiled(argument)
    reverse, forward = ([np.asarray(leaf) for leaf in jax.tree.leaves(gradient)] for gradient in gradients)
    paths, leaves = zip(*jax.tree_util.tree_flatten_with_path(argument)[0])
    for place, (path, leaf, scale) in enumerate(zip(paths, leaves, scales)):
        name = f"d/d{jax.tree_util.keystr(path).lstrip('.')}"
        for mode, gradient in (("reverse", reverse), ("forward", forward)):
            require(np.all(np.isfinite(gradient[place])), f"{name} is NaN or inf in {mode} mode")
        sizes = np.ones(leaf.shape) if scale is None else scale
        size = max(np.max(np.abs(reverse[place]) * sizes, initial=0.0), 1e-3 * abs(float(value)))
        apart = np.max(np.abs(reverse[place] - forward[place]) * sizes, initial=0.0)
        require(apart <= 10 * closeness(leaf.dtype) * size, f"{name} differs between reverse and forward mode by {apart:.3g}")
        if scale is not None and leaf.dtype == np.float64:
            _check_differences(compiled, argument, place, scale, reverse[place], size, name)


def _check_differences(compiled, argument, place, scale, gradient, size, name) -> None:
    for index in np.ndindex(gradient.shape):
        differences = [_difference(compiled, argument, place, index, step * scale[index]) for step in _STEPS]
        error = min(abs(difference - gradient[index]) for difference in differences) * scale[index]
        where = f"{name}{list(index) if index else ''}"
        require(error <= 1e-6 * size, f"{where} is {gradient[index]:.9g}, but by central differences {differences[0]:.9g}")


def _difference(compiled, argument, place, index, step) -> float:
    """Of fourth order: `(8 (f(+h) - f(-h)) - (f(+2h) - f(-2h))) / 12 h`."""
    leaves, structure = jax.tree.flatten(argument)

    def moved(multiple):
        array = np.array(leaves[place])
        array[index] += multiple * step
        return float(compiled(jax.tree.unflatten(structure, [*leaves[:place], jnp.asarray(array), *leaves[place + 1 :]]))[0])

    return (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * step)
