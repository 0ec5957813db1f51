"""Will it work everywhere in kernax? One function per property that every kernel must have, and the loop over them.

Each property raises AssertionError, saying what it found, or returns. None needs a test runner.
"""

from collections.abc import Callable, Collection
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from kernax.core.boundary import count, dtype_of
from kernax.core.description import describe
from kernax.core.gram import gram, gram_diagonal
from kernax.core.kernel import AbstractKernel
from kernax.core.parameters import check_supports, interior, parameters, unconstrain
from kernax.core.preparation import prepare_stacks
from kernax.testing.assertions import point, require, require_close
from kernax.testing.gradients import gradient_in_the_parameters, gradient_in_the_points, gradient_where_points_coincide
from kernax.testing.positivity import check_kernel, pairs


def check_conformance(kernel: AbstractKernel, X: PyTree, *, Z: PyTree | None = None, without: Collection[str] = ()) -> None:
    """Raises AssertionError, naming every property that a kernel lacks, unless all of `PROPERTIES` hold on these points.

    Gradients are compared with finite differences in float64, and only tested for being finite in a process without
    64-bit mode.

    Arguments:
        kernel: any kernel, with its parameters inside their supports.
        X: a stack of at least two points, the first and the last of them different; a handful will do.
        Z: a second stack; X in another order by default.
        without: names of properties that this kernel is known and meant to lack, such as `gradient_in_the_points` for one
            that is piecewise constant.
    """
    names = [holds.__name__ for holds in PROPERTIES]
    if unknown := sorted(set(without) - set(names)):
        raise ValueError(f"without={unknown} names no property: choose from {', '.join(names)}")
    Z = jax.tree.map(lambda leaf: jnp.roll(leaf, 1, 0), X) if Z is None else Z
    kernel, X, Z = prepare_stacks(kernel, X, Z)
    if count(X) < 2:
        raise ValueError("X must hold at least two points")
    failures = []
    for holds in PROPERTIES:
        if holds.__name__ in without:
            continue
        try:
            holds(kernel, X, Z)
        except Exception as error:  # whatever a kernel raises is a failure of the property in question
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            failures.append(f"{holds.__name__}: {kind}{error}")
            if holds is one_number_in_the_precision_of_the_points:
                break  # nothing below makes sense
    if failures:
        raise AssertionError(f"{type(kernel).__name__} does not conform:\n" + "\n".join(failures))


def one_number_in_the_precision_of_the_points(kernel, X, Z):
    """`k(x, z)` is a scalar of the dtype of the points."""
    value = jax.eval_shape(kernel, point(X), point(Z))
    require(hasattr(value, "shape") and value.shape == (), f"k(x, z) is {value}, not a scalar")
    require(value.dtype == dtype_of(X), f"k(x, z) has dtype {value.dtype} for points of {dtype_of(X)}")


def symmetric_and_positive_semidefinite(kernel, X, Z):
    """So it is on X, with the parameters as they are and for others inside their supports."""
    report = check_kernel(kernel, X)
    require(report.passed, str(report))
    for moved in neighbours(kernel):
        report = check_kernel(moved, X)
        require(report.passed, f"{report}\nwith parameters inside their declared supports:\n{describe(moved)}")


def gram_with_the_diagonal_of_gram_diagonal(kernel, X, Z):
    """`diag(gram(k, X))` is `gram_diagonal(k, X)`, to the last bit."""
    K, diagonal = np.asarray(gram(kernel, X)), np.asarray(gram_diagonal(kernel, X))
    require(np.array_equal(np.diagonal(K), diagonal), f"they differ by {np.max(np.abs(np.diagonal(K) - diagonal)):.3g}")


def gram_symmetric_to_the_last_bit(kernel, X, Z):
    """`gram(k, X)` is its own transpose: a kernel that claims to be mirrored is."""
    K = np.asarray(gram(kernel, X))
    require(np.array_equal(K, K.T), f"they differ by {np.max(np.abs(K - K.T)):.3g}")


def gram_the_same_from_either_side(kernel, X, Z):
    """`gram(k, X, Z)` is the transpose of `gram(k, Z, X)`."""
    require_close(gram(kernel, X, Z), np.transpose(gram(kernel, Z, X)), "gram(X, Z) and gram(Z, X).T")


def values_the_same_compiled_or_not(kernel, X, Z):
    """`jit(k)(x, z)` is `k(x, z)`."""
    x, z = point(X), point(X, -1)
    require_close(_value(kernel, x, z), kernel(x, z), "compiled and eager values")


def values_the_same_one_by_one(kernel, X, Z):
    """`vmap(vmap(k))` gives what a loop over the pairs gives, coincident points included."""
    few = min(4, count(X))
    loop = [[_value(kernel, point(X, i), point(X, j)) for j in range(few)] for i in range(few)]
    require_close(pairs(kernel, X, X)[0][:few, :few], np.array(loop), "values by vmap and by a loop")


@eqx.filter_jit
def _value(kernel, x, z):
    return kernel(x, z)


def a_pytree_of_arrays_compiled_once(kernel, X, Z):
    """A kernel is an argument of compiled functions: its leaves are arrays, and other values do not compile again."""
    foreign = lambda node: isinstance(node, eqx.Module) and not isinstance(node, AbstractKernel)
    for keys, leaf in jax.tree_util.tree_flatten_with_path(kernel, is_leaf=foreign)[0]:
        path = jax.tree_util.keystr(keys)
        hint = "make it static, or an array" if not callable(leaf) else "pass it through Custom, or make the field static"
        require(eqx.is_array(leaf) or foreign(leaf), f"{path} is a {type(leaf).__name__}, not an array: {hint}")
    traces = []

    def value(kernel, x, z):
        traces.append(kernel)
        return kernel(x, z)

    compiled: Any = eqx.filter_jit(value)
    for other in neighbours(kernel) or [kernel]:
        compiled.lower(other, point(X), point(X, -1))  # traced only: what it computes is compared elsewhere
    require(len(traces) == 1, "compiled again for other values of the parameters")


def facts_that_hold(kernel, X, Z):
    """What claims to be stationary does not change under translations, nor what claims to be homogeneous under rotations."""
    require(kernel.is_stationary or not kernel.is_homogeneous, "is_homogeneous without is_stationary")
    rng, reference, dtype = np.random.default_rng(0), pairs(kernel, X, X)[0], dtype_of(X)
    looseness = np.sqrt(np.finfo(dtype).eps)  # the moved points are rounded, and that is magnified

    def require_same(moved, motion, claim):
        error = np.max(np.abs(pairs(kernel, moved, moved)[0] - reference))
        size = np.max(np.abs(reference))
        require(error <= looseness * size, f"{claim} is claimed, but a {motion} changes values by {error:.3g}")

    if kernel.is_stationary:
        require_same(jax.tree.map(lambda leaf: translated(leaf, rng), X), "translation", "is_stationary")
    if kernel.is_homogeneous and eqx.is_inexact_array(X) and np.ndim(X) == 2:
        rotation = np.linalg.qr(rng.normal(size=(X.shape[1], X.shape[1])))[0] * rng.choice([-1, 1])
        rotated = np.sum(np.asarray(X)[:, None, :] * rotation[None], -1)  # duplicates stay duplicates to the last bit
        require_same(jnp.asarray(rotated, dtype), "rotation", "is_homogeneous")


def parameters_that_round_trip(kernel, X, Z):
    """Parameters lie in their supports, are listed by `describe`, and come back from `unconstrain`."""
    check_supports(kernel)
    paths = [row[0] for row in describe(kernel).rows]
    require(paths == [entry.path for entry in parameters(kernel)], "describe does not list every parameter")
    theta, rebuild = unconstrain(kernel, interior(kernel))
    rebuilt = rebuild(theta)
    check_supports(rebuilt)
    require(jax.tree.structure(rebuilt) == jax.tree.structure(kernel), "rebuild gives a tree of another structure")
    for entry, again in zip(parameters(kernel), parameters(rebuilt)):
        require_close(again.value, entry.value, f"{entry.path} rebuilt and")


def translated(leaf: Any, rng: np.random.Generator) -> Any:
    """A stack of vectors, all moved by one random vector of their own size; anything else as it is."""
    if not eqx.is_inexact_array(leaf):
        return leaf
    shift = rng.normal(size=leaf.shape[1:]) * (np.std(np.asarray(leaf)) or 1.0)
    return leaf + jnp.asarray(shift, leaf.dtype)[None]


def neighbours(kernel: AbstractKernel) -> list[AbstractKernel]:
    """Two kernels, every parameter moved by up to one on its unconstrained line, to either side; none without parameters."""
    theta, rebuild = unconstrain(kernel, interior(kernel))
    if not theta:
        return []
    rng = np.random.default_rng(1)
    draw = lambda shape: rng.choice([-1, 1], shape) * rng.uniform(0.5, 1, shape)
    shifts = {path: jnp.asarray(draw(np.shape(value)), value.dtype) for path, value in theta.items()}
    return [rebuild({path: value + sign * shifts[path] for path, value in theta.items()}) for sign in (1, -1)]


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
