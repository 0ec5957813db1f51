"""The properties that every kernel must have, one function for each.

A property returns nothing, or raises AssertionError with a description. None needs a test runner.
"""

from collections.abc import Callable, Collection
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from kernax.core.base.boundary import count, dtype_of
from kernax.core.base.parameters import check_intervals, interior, parameters, unconstrain
from kernax.core.kernel.description import FIXED, describe
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import prepare_stacks
from kernax.core.operators.gram import gram, gram_diagonal
from kernax.testing.assertions import largest, point, require, require_close, require_equal
from kernax.testing.gradients import (
    gradient_in_the_parameters,
    gradient_in_the_points,
    gradient_where_points_coincide,
)
from kernax.testing.positivity import check_kernel, pairs


def check_conformance(
    kernel: AbstractKernel, X: PyTree, *, Z: PyTree | None = None, without: Collection[str] = ()
) -> None:
    """Tests whether a kernel has all `PROPERTIES` on these points; raises AssertionError if not.

    The message of the AssertionError names every property that the kernel lacks. Gradients are
    compared with finite differences in float64; in a process without 64-bit mode they are only
    tested for being finite.

    Arguments:
        kernel: any kernel, with its parameters inside their intervals.
        X: at least two points, of which the first and the last differ; a handful is enough.
        Z: a second batch of points; by default X in another order.
        without: names of properties that this kernel intentionally lacks, such as
            `gradient_in_the_points` for one that is piecewise constant.

    Raises ValueError for other points, and for a name that is not the name of a property.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> kernax.testing.check_conformance(kernax.RBF(0.3), X)  # or it raises
    """
    names = [holds.__name__ for holds in PROPERTIES]
    if isinstance(without, str):
        raise ValueError(f"without must be a collection of names, such as [{without!r}]")
    unknown = sorted(set(without) - set(names))
    if unknown:
        known = ", ".join(names)
        raise ValueError(f"without holds {unknown}, but must hold names of properties: {known}")
    Z = jax.tree.map(lambda leaf: jnp.roll(leaf, 1, 0), X) if Z is None else Z
    kernel, X, Z = prepare_stacks(kernel, X, Z)
    if count(X) < 2:
        raise ValueError("X must hold at least two points, but holds 1")
    tested = [holds for holds in PROPERTIES if holds.__name__ not in without]
    has_derivatives = any(map(eqx.is_inexact_array, jax.tree.leaves(X)))
    differentiates = gradient_in_the_points in tested and has_derivatives
    if differentiates and eqx.tree_equal(point(X), point(X, -1)):
        raise ValueError(
            "the first and the last point of X must differ, as derivatives between them are "
            "tested: pass the points in another order"
        )
    failures = []
    for holds in tested:
        try:
            holds(kernel, X, Z)
        except Exception as error:
            # An exception of the kernel is a failure of the property that called it.
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            failures.append(f"{holds.__name__}: {kind}{error}")
            if holds is one_number_in_the_precision_of_the_points:
                break  # all others rely on it
    if failures:
        raise AssertionError(f"{type(kernel).__name__} does not conform:\n" + "\n".join(failures))


def one_number_in_the_precision_of_the_points(kernel, X, Z):
    """`k(x, z)` is a scalar of the dtype of the points."""
    value = jax.eval_shape(kernel, point(X), point(Z))
    require(hasattr(value, "shape") and value.shape == (), f"k(x, z) is {value}, not a scalar")
    require(
        value.dtype == dtype_of(X), f"k(x, z) has dtype {value.dtype} for points of {dtype_of(X)}"
    )


def symmetric_and_positive_semidefinite(kernel, X, Z):
    """`check_kernel` passes on X, for these parameters and for others inside their intervals."""
    report = check_kernel(kernel, X)
    require(report.passed, str(report))
    for moved in neighbours(kernel):
        report = check_kernel(moved, X)
        require(
            report.passed,
            f"{report}\nwith parameters inside their declared intervals:\n{describe(moved)}",
        )


def gram_with_the_diagonal_of_gram_diagonal(kernel, X, Z):
    """`diag(gram(k, X))` is `gram_diagonal(k, X)`, to the last bit."""
    diagonal = np.diagonal(np.asarray(gram(kernel, X)))
    require_equal(diagonal, np.asarray(gram_diagonal(kernel, X)))


def gram_symmetric_to_the_last_bit(kernel, X, Z):
    """`gram(k, X)` is its own transpose: a kernel that claims to be mirrored is."""
    K = np.asarray(gram(kernel, X))
    require_equal(K, K.T)


def gram_the_same_from_either_side(kernel, X, Z):
    """`gram(k, X, Z)` is the transpose of `gram(k, Z, X)`."""
    require_close(
        gram(kernel, X, Z), np.transpose(gram(kernel, Z, X)), "gram(X, Z) and gram(Z, X).T"
    )


def values_the_same_compiled_or_not(kernel, X, Z):
    """`jit(k)(x, z)` is `k(x, z)`."""
    x = point(X)
    z = point(X, -1)
    require_close(_value(kernel, x, z), kernel(x, z), "compiled and eager values")


def values_the_same_one_by_one(kernel, X, Z):
    """`vmap(vmap(k))` gives what a loop over the pairs gives, coincident points included."""
    few = min(4, count(X))
    loop = [[_value(kernel, point(X, i), point(X, j)) for j in range(few)] for i in range(few)]
    require_close(
        pairs(kernel, X, X)[0][:few, :few], np.array(loop), "values by vmap and by a loop"
    )


@eqx.filter_jit
def _value(kernel, x, z):
    return kernel(x, z)


def a_pytree_of_arrays_compiled_once(kernel, X, Z):
    """All leaves of a kernel are arrays, and other values of them do not compile anything again."""
    # All leaves are arrays, except inside of a user's module.
    foreign = lambda node: isinstance(node, eqx.Module) and not isinstance(node, AbstractKernel)
    for keys, leaf in jax.tree_util.tree_flatten_with_path(kernel, is_leaf=foreign)[0]:
        path = jax.tree_util.keystr(keys)
        hint = "make it static, or an array"
        if callable(leaf):
            hint = "pass it through Custom, or make the field static"
        require(
            eqx.is_array(leaf) or foreign(leaf),
            f"{path} is a {type(leaf).__name__}, not an array: {hint}",
        )
    traces = []

    def value(kernel, x, z):
        traces.append(kernel)
        return kernel(x, z)

    compiled: Any = eqx.filter_jit(value)
    for other in neighbours(kernel) or [kernel]:
        # Only the trace is needed here; values are compared elsewhere.
        compiled.lower(other, point(X), point(X, -1))
    require(len(traces) == 1, "compiled again for other values of the parameters")


def facts_that_hold(kernel, X, Z):
    """Kernels that claim to be stationary do not change under translations.

    Kernels that claim to be homogeneous do not change under rotations, either.
    """
    require(
        kernel.is_stationary or not kernel.is_homogeneous, "is_homogeneous without is_stationary"
    )
    rng = np.random.default_rng(0)
    if kernel.is_stationary:
        moved = jax.tree.map(lambda leaf: translated(leaf, rng), X)
        _require_unchanged(kernel, X, moved, "is_stationary is claimed, but a translation")
    if kernel.is_homogeneous and eqx.is_inexact_array(X) and np.ndim(X) == 2:
        moved = rotated(X, rng)
        _require_unchanged(kernel, X, moved, "is_homogeneous is claimed, but a rotation")


def _require_unchanged(kernel, X, moved, claim) -> None:
    """Raises AssertionError unless the values of all pairs are the same for the moved points."""
    before = pairs(kernel, X, X)[0]
    after = pairs(kernel, moved, moved)[0]
    error = largest(after - before)
    size = largest(before)
    # The moved points are rounded, and a kernel may magnify that.
    tolerance = np.sqrt(np.finfo(dtype_of(X)).eps)
    require(error <= tolerance * size, f"{claim} changes values by {error:.3g}")


def parameters_that_round_trip(kernel, X, Z):
    """`rebuild(theta)` of `unconstrain` returns the parameters, all inside their intervals.

    `describe` lists all of them.
    """
    check_intervals(kernel)
    paths = [path for path, _, _, state in describe(kernel).rows if state != FIXED]
    require(
        paths == [entry.path for entry in parameters(kernel)],
        "describe does not list every parameter",
    )
    theta, rebuild = unconstrain(kernel, interior(kernel))
    rebuilt = rebuild(theta)
    check_intervals(rebuilt)
    require(
        jax.tree.structure(rebuilt) == jax.tree.structure(kernel),
        "rebuild gives a tree of another structure",
    )
    for entry, again in zip(parameters(kernel), parameters(rebuilt)):
        require_close(again.value, entry.value, f"{entry.path} rebuilt and")


def translated(leaf: Any, rng: np.random.Generator) -> Any:
    """A batch of vectors, plus one random vector of their size; anything else is unchanged."""
    if not eqx.is_inexact_array(leaf):
        return leaf
    shift = rng.normal(size=leaf.shape[1:]) * (np.std(np.asarray(leaf)) or 1.0)
    return leaf + jnp.asarray(shift, leaf.dtype)[None]


def rotated(X: Any, rng: np.random.Generator) -> Any:
    """A batch of vectors (n, d), times one random orthogonal matrix."""
    d = X.shape[1]
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0] * rng.choice([-1, 1])
    # A matrix product would not guarantee bitwise equal results for equal rows.
    return jnp.asarray(np.sum(np.asarray(X)[:, None, :] * rotation[None], -1), X.dtype)


def neighbours(kernel: AbstractKernel) -> list[AbstractKernel]:
    """Two kernels, whose unconstrained parameters are moved by at most one, in opposite directions.

    None for a kernel without parameters.
    """
    theta, rebuild = unconstrain(kernel, interior(kernel))
    if not theta:
        return []
    rng = np.random.default_rng(1)
    ahead = {}
    behind = {}
    for path, value in theta.items():
        shape = np.shape(value)
        draw = rng.choice([-1, 1], shape) * rng.uniform(0.5, 1, shape)
        shift = jnp.asarray(draw, value.dtype)
        ahead[path] = value + shift
        behind[path] = value - shift
    return [rebuild(ahead), rebuild(behind)]


PROPERTIES: tuple[Callable, ...] = (
    one_number_in_the_precision_of_the_points,
    symmetric_and_positive_semidefinite,
    gram_with_the_diagonal_of_gram_diagonal,
    gram_symmetric_to_the_last_bit,
    gram_the_same_from_either_side,
    values_the_same_compiled_or_not,
    values_the_same_one_by_one,
    a_pytree_of_arrays_compiled_once,
    gradient_in_the_parameters,
    gradient_in_the_points,
    gradient_where_points_coincide,
    facts_that_hold,
    parameters_that_round_trip,
)
