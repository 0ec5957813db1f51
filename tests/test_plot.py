"""Pictures: the arrays behind them, and what is refused."""

import jax
import numpy as np
import pytest
from matplotlib.figure import Figure

import kernax
from kernax.plot import gram_picture, kernel_profile, learning_curve, posterior_band


def test_a_band_is_two_deviations_wide_and_sorted():
    x, mean, deviation = np.array([2.0, 0.0, 1.0]), np.array([5.0, 1.0, 3.0]), np.array([0.5, 0.1, 0.2])
    ax = Figure().subplots()
    assert posterior_band(x, mean, deviation, observed=([0.0], [1.0]), names=("t", "$"), ax=ax) is ax
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[0, 1], [1, 3], [2, 5]])
    edges = ax.collections[0].get_paths()[0].vertices
    assert {(0.0, 1.2), (2.0, 6.0), (2.0, 4.0)} <= {(float(a), round(float(b), 9)) for a, b in edges}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["two sigma", "mean", "observed"]
    assert ax.get_ylabel() == r"\$"
    with pytest.raises(ValueError, match="one shape"):
        posterior_band(x, mean[:2], deviation)
    with pytest.raises(ValueError, match="deviation must be finite"):
        posterior_band(x, mean, deviation * np.nan)
    for names in ("t", "ty", ("a", "b", "c")):
        with pytest.raises(ValueError, match="names must be two, of the input and the output, such as"):
            untyped(posterior_band)(x, mean, deviation, names=names)


def untyped(function):
    """A function without the type checks of the tests."""
    return getattr(function, "__wrapped__", function)


def test_a_profile_shows_the_kernel_and_draws():
    x = np.linspace(-2, 2, 41)
    left, right = kernel_profile(kernax.RBF(), x, key=jax.random.key(0), draws=2)
    np.testing.assert_allclose(left.lines[0].get_ydata(), np.exp(-(x**2) / 2), rtol=1e-5)
    assert len(right.lines) == 2
    assert not np.allclose(right.lines[0].get_ydata(), right.lines[1].get_ydata())
    for draws in (0, 2.0):
        with pytest.raises(ValueError, match="draws must be a positive integer, but is"):
            untyped(kernel_profile)(kernax.RBF(), x, key=jax.random.key(0), draws=draws)


def test_a_gram_picture_is_the_matrix(rng):
    X = rng.normal(size=(5, 2))
    ax = gram_picture(kernax.RBF(), X)
    np.testing.assert_allclose(ax.images[0].get_array(), kernax.gram(kernax.RBF(), X))
    assert ax.get_title(loc="left").startswith("5 points")


def test_a_learning_curve_leaves_out_what_was_not_reached():
    ax = learning_curve([3.0, 1.0, 2.0, np.nan], name="loss")
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [3, 1, 2])
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), [3, 1, 1])
    with pytest.raises(ValueError, match="hold a finite one"):
        learning_curve([np.nan])
