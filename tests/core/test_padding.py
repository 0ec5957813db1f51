"""`kernax.pad`: rows of weight zero give fits of similar sizes one program and change nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_close, needs_x64

import kernax

X = np.linspace(0, 1, 6)[:, None]
Y = np.sin(5 * X[:, 0])
WEIGHTS = np.asarray([1.0, 2.0, 0.0, 0.5, 1.0, 1.0])


def fitted(length, X, y, weights):
    solution = kernax.kernel_ridge(kernax.RBF(length), X, y, 0.1, weights=weights, throw=False)
    return solution.value.values(np.asarray([[0.25], [0.7]], X.dtype))


@pytest.mark.slow
@pytest.mark.parametrize("y", [Y, np.stack([Y, -(Y**2)], 1)], ids=["one column", "two columns"])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["ones", "weights"])
def test_a_padded_fit_has_the_values_and_the_derivative_of_the_fit_alone(y, weights):
    total = lambda length, *data: jnp.sum(fitted(length, *data) ** 2)
    padded = kernax.pad(X, y, weights, to=9)
    assert padded[1].shape == (9, *y.shape[1:])
    np.testing.assert_array_equal(padded[2][6:], 0)
    assert_close(fitted(0.3, *padded), fitted(0.3, X, y, weights))
    assert_close(jax.grad(total)(0.3, *padded), jax.grad(total)(0.3, X, y, weights))


@pytest.mark.slow
def test_derivatives_in_points_targets_and_weights_pass_through_the_padding():
    """Inside `jit` and `vmap`, where nothing is concrete."""
    alone = jax.grad(lambda *data: jnp.sum(fitted(0.3, *data) ** 2), argnums=(0, 1, 2))
    through = jax.grad(
        lambda *data: jnp.sum(fitted(0.3, *kernax.pad(*data, to=9)) ** 2), argnums=(0, 1, 2)
    )
    data = tuple(map(jnp.asarray, (X, Y, WEIGHTS)))
    stacked = jax.tree.map(lambda array: jnp.stack([array, array]), data)
    in_a_batch = jax.jit(jax.vmap(through))(*stacked)
    for one, several, expected in zip(jax.jit(through)(*data), in_a_batch, jax.jit(alone)(*data)):
        assert_close(one, expected)
        assert_close(several[1], expected)


def test_data_sets_of_several_sizes_share_one_program():
    traces = []

    @jax.jit
    def fit(X, y, weights):
        traces.append(len(y))
        return fitted(0.3, X, y, weights)

    for n in (6, 5, 3):
        fit(*kernax.pad(X[:n], Y[:n], to=6))
    assert traces == [6]


def test_strings_trees_and_tuples_are_padded_by_the_first_point():
    words = kernax.strings.encode(["abba", "ab", "bb"], "ab")
    points, y, weights = kernax.pad((words, X[:3]), None, to=5)
    assert y is None
    np.testing.assert_array_equal(weights, [1, 1, 1, 0, 0])
    K = kernax.gram(kernax.On(kernax.Spectrum(2), 0) + kernax.On(kernax.RBF(), 1), points)
    assert_close(K[3:], np.asarray(K)[[0, 0]])


@needs_x64
def test_too_few_rows_and_wrong_lengths_are_refused_with_their_names():
    with pytest.raises(ValueError, match=r"to must be an integer >= 6, but is 5: X has 6 rows"):
        kernax.pad(X, Y, to=5)
    with pytest.raises(ValueError, match=r"y must have shape \(6,\)"):
        kernax.pad(X, Y[:5], to=8)
    with pytest.raises(ValueError, match=r"weights must have shape \(6,\)"):
        kernax.pad(X, Y, WEIGHTS[:5], to=8)
    with pytest.raises(ValueError, match=r"weights must have shape \(6,\)"):
        jax.jit(lambda weights: kernax.pad(X, Y, weights, to=8))(WEIGHTS[:5])
    with pytest.raises(ValueError, match=r"weights must not be negative, but weights\[1\] is -2"):
        kernax.pad(X, Y, -WEIGHTS, to=8)
