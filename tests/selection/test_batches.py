"""Many fits in one program: each member is what its own data set alone would give."""

from dataclasses import replace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, assert_close, check_derivatives, marked, needs_x64
from registry import LEARNERS, options_of

import kernax
from kernax.core.operators.memory import available_memory
from kernax.selection.optimise.batches import _MemberFit, _members_within

RNG = np.random.default_rng(0)
LENGTHS = (9, 12, 9)
NEW = RNG.normal(size=(4, 2)).astype(DTYPE)
RBF = kernax.RBF(1.3)
KEY = jax.random.key(0)


def a_set(n):
    """Points, numbers, and weights of which one is zero and one is two."""
    X = RNG.normal(size=(n, 2)).astype(DTYPE)
    y = (np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=n)).astype(DTYPE)
    weights = RNG.uniform(0.5, 1.5, size=n).astype(DTYPE)
    weights[[2, 5]] = 0, 2
    return X, y, weights


SETS = [a_set(n) for n in LENGTHS]


def ridge(X, y, w):
    return kernax.kernel_ridge(RBF, X, y, 0.1, weights=w, throw=False)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "name",
    marked(pytest.mark.nightly, ["kernel_ridge", "svm", "condition"], "kernel_ridge", others=True),
)
def test_a_batch_of_data_sets_of_several_lengths_is_a_loop_over_them(name):
    """R03, S07: catches members that see their neighbours, or the rows that pad them."""
    entry = LEARNERS[name]

    def values(X, y, w):
        labels = jnp.where(y > 0, 1, 0)
        p = replace(entry.problem, X=X, y=y, labels=labels, weights=w)
        return entry.outputs(entry.fit(p, **options_of(entry)), p)

    sets = kernax.selection.stack_datasets(SETS)
    together = kernax.batched(values)(sets.X, sets.y, sets.weights)
    alone = [jax.jit(values)(*map(jnp.asarray, dataset)) for dataset in SETS]
    for found, *expected in zip(*map(jax.tree.leaves, (together, *alone)), strict=True):
        assert_close(found, np.stack(expected), 1e-10)


@pytest.mark.slow
def test_a_member_that_fails_leaves_its_neighbours_alone():
    """J02: the second has no point left, the third has NaN."""
    sets = kernax.selection.stack_datasets(SETS)
    weights = sets.weights.at[1].set(0)
    y = sets.y.at[2, 0].set(jnp.nan)
    solutions = kernax.batched(ridge)(sets.X, y, weights)
    expected = ["successful", "nonfinite", "nonfinite"]
    for i, word in enumerate(expected):
        assert jax.tree.map(lambda leaf, i=i: leaf[i], solutions.result) == getattr(
            kernax.RESULTS, word
        )
    alone = ridge(*SETS[0]).value.coefficients
    assert_close(solutions.value.coefficients[0, : LENGTHS[0]], alone, TOLERANCE["solve"])
    assert np.all(np.isnan(solutions.value.coefficients[1:]))

    def total(y):
        norms = kernax.batched(lambda X, y, w: ridge(X, y, w).value.norm)(sets.X, y, weights)
        return norms[0]

    assert np.all(np.isfinite(jax.grad(total)(y)[0]))


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("settings", [{"batch_size": 2}, {"batch_size": 5}, {"progress": True}])
@pytest.mark.parametrize("devices", [None, jax.devices()[:1]])
def test_how_members_are_computed_changes_no_result(settings, devices):
    sets = kernax.selection.stack_datasets(SETS)
    usual = kernax.batched(ridge)(sets.X, sets.y, sets.weights)
    other = kernax.batched(ridge, devices=devices, **settings)(sets.X, sets.y, sets.weights)
    assert isinstance(other.value, kernax.KernelExpansion)
    kernel: Any = other.value.kernel
    assert kernel.lengthscale.shape == (3,)
    assert_close(other.value.coefficients, usual.value.coefficients, TOLERANCE["solve"])
    assert np.all(other.result == kernax.RESULTS.successful)


@needs_x64
@pytest.mark.parametrize("size", [1, 49, 50, 51, 101])
def test_a_bar_counts_every_member_once(size, capsys):
    """Both sides of where a piece has one member more, and a last piece that is filled up."""
    numbers = jnp.arange(float(size))
    doubled = kernax.batched(lambda x: {"twice": 2 * x, "name": "same"}, progress=True)(numbers)
    np.testing.assert_array_equal(doubled["twice"], 2 * numbers)
    assert doubled["name"] == "same"
    assert f"{size}/{size}" in capsys.readouterr().err


@needs_x64
@pytest.mark.parametrize("size", [3, 17, 50, 120])
def test_a_bar_computes_no_member_more_than_fills_up_the_last_piece(size):
    """A batch size far above the number of members, as that of an accelerator's memory may be."""
    computed = []

    def counted(x):
        jax.debug.callback(lambda value: computed.append(np.size(value)), x)
        return 2 * x

    kernax.batched(counted, batch_size=1000, progress=True)(jnp.arange(float(size)))
    jax.effects_barrier()
    assert size <= sum(computed) < 2 * size


@needs_x64
def test_what_is_the_same_in_all_members_is_given_once():
    fit = lambda X, y, ridge: kernax.kernel_ridge(RBF, X, y, ridge, throw=False).value.norm
    X, y, _ = SETS[0]
    ridges = np.array([0.1, 1.0, 10.0])
    together = kernax.batched(fit, in_axes=(None, None, 0))(X, y, ridges)
    assert_close(together, [float(fit(X, y, ridge)) for ridge in ridges])


@pytest.mark.nightly
@needs_x64
def test_a_batch_is_differentiated_and_mapped_as_any_function():
    sets = kernax.selection.stack_datasets([dataset[:2] for dataset in SETS])

    def total(lengthscale, y):
        kernel = kernax.RBF(lengthscale)
        fit = lambda X, y, w: kernax.kernel_ridge(kernel, X, y, 0.3, weights=w, throw=False)
        norms = kernax.batched(lambda X, y, w: fit(X, y, w).value.norm)(sets.X, y, sets.weights)
        return jnp.sum(norms)

    check_derivatives(total, (jnp.asarray(1.3), sets.y), rtol=1e-5, atol=1e-7)
    scales = jnp.array([0.7, 1.3])
    mapped = jax.vmap(jax.grad(total), in_axes=(0, None))(scales, sets.y)
    assert_close(mapped, [float(jax.grad(total)(scale, sets.y)) for scale in scales], 1e-9)


@needs_x64
def test_other_members_of_the_same_shape_are_not_compiled_again():
    """J01."""
    traced = chex.assert_max_traces(lambda X, y, w, ridge: fitted(X, y, w, ridge), 1)
    fitted = lambda X, y, w, ridge: (
        kernax.kernel_ridge(RBF, X, y, ridge, weights=w, throw=False).value.coefficients
    )
    fit = kernax.batched(traced, in_axes=(0, 0, 0, None))
    sets = kernax.selection.stack_datasets(SETS)
    for ridge in (1.0, 2.0, np.float64(3), jnp.asarray(4.0)):
        fit(sets.X, ridge * sets.y, sets.weights, ridge)


@needs_x64
def test_as_many_members_are_computed_together_as_memory_has_room_for():
    """What decides it on an accelerator; the bound from both sides."""
    points = jnp.zeros((7, 100, 2))
    fit = _MemberFit(lambda X: kernax.gram(RBF, X), (None,))
    matrix = 100 * 100 * 8
    held = next(
        count for count in range(1, 50) if _members_within(count * matrix, fit, (points,)) > 1
    )
    assert _members_within((held - 1) * matrix, fit, (points,)) == 1
    assert held in range(2, 8)
    assert _members_within(50 * matrix, fit, (points,)) == 4  # a power of two of at most seven
    assert _members_within(matrix // 2, fit, (points,)) == 1
    assert available_memory(jax.devices()) > 2**26


@needs_x64
def test_weights_of_a_data_set_are_refused_by_its_place():
    X, y, weights = SETS[1]
    with pytest.raises(ValueError, match=r"the weights of datasets\[1\] must not be negative"):
        kernax.selection.stack_datasets([SETS[0], (X, y, -weights)])


@needs_x64
def test_how_many_members_fit_is_found_under_a_transformation_and_of_keys():
    points = jnp.zeros((7, 10, 2))
    fit = lambda scale: _MemberFit(lambda X: kernax.gram(kernax.RBF(scale), X), (None,))

    def traced(points, scale):
        assert _members_within(10**9, fit(scale), (points,)) == 4
        return jnp.sum(points) * scale

    jax.vmap(jax.grad(traced), (None, 0))(points, jnp.ones(2))
    keys = jax.random.split(KEY, 3)
    assert _members_within(10**9, _MemberFit(jax.random.normal, (None,)), (keys,)) == 2


# Stacks of data sets.


@needs_x64
def test_a_data_set_that_holds_nan_fails_alone():
    broken = (SETS[1][0], np.where(np.arange(LENGTHS[1]) == 3, np.nan, SETS[1][1]))
    sets = kernax.selection.stack_datasets([SETS[0], broken, SETS[2]])
    solutions = kernax.batched(ridge)(sets.X, sets.y, sets.weights)
    failed = np.flatnonzero(solutions.result != kernax.RESULTS.successful)
    np.testing.assert_array_equal(failed, [1])


def test_data_sets_keep_their_rows_and_are_padded_by_their_first_row():
    sets = kernax.selection.stack_datasets(SETS, length=13)
    assert sets.X.shape == (3, 13, 2)
    for i, (X, y, weights) in enumerate(SETS):
        n = len(y)
        np.testing.assert_array_equal(sets.X[i, :n], X)
        np.testing.assert_array_equal(sets.y[i, :n], y)
        np.testing.assert_array_equal(sets.weights[i], np.pad(weights, (0, 13 - n)))
        np.testing.assert_array_equal(sets.X[i, n:], np.tile(X[0], (13 - n, 1)))
        assert np.all(sets.y[i, n:] == y[0])


@pytest.mark.slow
@needs_x64
def test_mixed_points_of_strings_are_padded_alike():
    short = kernax.strings.encode(["ab", "ba"], "ab")
    long = kernax.strings.encode(["abbab", "a", ""], "ab")
    kernel = kernax.On(kernax.RBF(), 0) * kernax.On(kernax.Spectrum(2), 1)
    stacks = [(RNG.normal(size=(len(texts), 1)), texts) for texts in (short, long)]
    targets = [np.arange(len(texts), dtype=float) for texts in (short, long)]
    sets = kernax.selection.stack_datasets(list(zip(stacks, targets)))
    fit = lambda X, y, w: kernax.kernel_ridge(kernel, X, y, 0.1, weights=w, throw=False)
    together = kernax.batched(fit)(sets.X, sets.y, sets.weights).value.coefficients
    for i, (X, y) in enumerate(zip(stacks, targets)):
        alone = kernax.kernel_ridge(kernel, X, y, 0.1).value.coefficients
        assert_close(together[i, : len(y)], alone)


@needs_x64
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: kernax.selection.stack_datasets([]),
            "datasets must be a list of at least one pair",
        ),
        (lambda: kernax.selection.stack_datasets([NEW]), r"datasets\[0\] must be a pair \(X, y\)"),
        (
            lambda: kernax.selection.stack_datasets([SETS[0], (NEW, NEW[:3, 0])]),
            r"the y of datasets\[1\] must have shape \(4,\)",
        ),
        (
            lambda: kernax.selection.stack_datasets([SETS[0], (NEW[:, :1], NEW[:, 0])]),
            r"datasets\[1\] has rows of points float64\[1\]",
        ),
        (
            lambda: kernax.selection.stack_datasets([SETS[0], ((NEW, NEW), NEW[:, 0])]),
            r"the X of datasets\[1\] holds another kind of points",
        ),
        (
            lambda: kernax.selection.stack_datasets(SETS, length=11),
            "length must be an integer >= 12",
        ),
        (
            lambda: kernax.selection.stack_datasets([SETS[0], ((NEW.astype("f4")), NEW[:, 0])]),
            "give all the same shape and dtype",
        ),
        (lambda: kernax.batched(ridge, in_axes=1), "in_axes must be 0, or a tuple"),
        (lambda: kernax.batched(ridge, in_axes=(None,)), "in_axes must be 0, or a tuple"),
        (lambda: kernax.batched(ridge, batch_size=0), "batch_size must be a positive integer"),
        (lambda: kernax.batched(ridge, devices=()), "devices must be a list of devices"),
        (lambda: kernax.batched(abs)(jnp.ones(())), "must have the same number of members"),
        (lambda: kernax.batched(abs, in_axes=(0, None))(NEW), "in_axes has 2 entries, but"),
        (
            lambda: kernax.batched(lambda a, b: a)(jnp.ones(3), jnp.ones(2)),
            r"but holds \(3,\), \(2,\)",
        ),
        (
            lambda: jax.jit(kernax.batched(abs, progress=True))(NEW),
            "progress=True needs concrete values",
        ),
    ],
)
def test_what_is_no_batch_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
