"""Bases of explicit features: the kernels, and the ridge regression, of their columns."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, assert_close, explicit, matrix, needs_x64

import kernax
from kernax.errors import NonFiniteError

UNIT = np.array([[0.1, 0.75], [0.29, 0.5], [0.0, 0.99], [0.6, 0.74]], DTYPE)


def bases():
    x = UNIT.astype(float)
    mu = np.array([[0.2, 0.3], [0.6, 0.9], [0.5, 0.5]])
    t = (x[:, None] - mu[None]) / [0.4, 0.7]
    polynomial = np.stack(
        [np.ones(4), x[:, 0], x[:, 0] ** 2, x[:, 0] ** 3, x[:, 1], x[:, 1] ** 2, x[:, 1] ** 3], 1
    )
    line = (x[:, :1] - mu[:, 0]) / 0.4
    return {
        "polynomial": (kernax.bases.PolynomialBasis(3), UNIT, polynomial),
        "gaussian": (
            kernax.bases.GaussianBasis(mu, np.array([0.4, 0.7])),
            UNIT,
            np.exp(-(t**2).sum(-1) / 2),
        ),
        "gaussian on the line": (
            kernax.bases.GaussianBasis(mu[:, 0], 0.4),
            UNIT[:, :1],
            np.exp(-(line**2) / 2),
        ),
        "sigmoid": (
            kernax.bases.SigmoidBasis(mu, np.array([0.4, 0.7])),
            UNIT,
            (1 / (1 + np.exp(-t))).reshape(4, -1),
        ),
        "sigmoid on the line": (
            kernax.bases.SigmoidBasis(mu[:, 0], 0.4),
            UNIT[:, :1],
            1 / (1 + np.exp(-line)),
        ),
    }


def in_dtype(tree):
    return jax.tree.map(lambda leaf: leaf.astype(DTYPE), tree)


@pytest.mark.parametrize("name", bases())
def test_bases_are_their_formulas_and_kernels_their_products(name):
    """K10."""
    basis, X, reference = bases()[name]
    assert_close(explicit(in_dtype(basis), X), reference)
    assert_close(matrix(kernax.FeatureMap(basis), X), reference @ reference.T)


@needs_x64
@pytest.mark.parametrize("order", [1, 2, 3])
def test_bins_count_the_components_that_share_one(order):
    """K10."""
    kernel = kernax.FeatureMap(kernax.bases.IndicatorBins(4, order))
    same = sum(
        (np.floor(4 * UNIT[:, None, a]) == np.floor(4 * UNIT[None, :, a])).astype(float)
        for a in range(2)
    )
    np.testing.assert_array_equal(matrix(kernel, UNIT), same**order)
    features = explicit(kernax.bases.IndicatorBins(4, order), UNIT)
    assert features.shape == (4, 8**order)
    first = explicit(kernax.bases.IndicatorBins(4), UNIT)
    monomials = [
        np.prod([first[:, a] for a in chosen], 0)
        for chosen in itertools.product(range(8), repeat=order)
    ]
    np.testing.assert_array_equal(features, np.stack(monomials, 1))


@pytest.mark.slow
@needs_x64
def test_bins_are_closed_below_open_above_and_nan_outside_with_gradient_zero():
    """K10: the edge 29/100 belongs to its own bin, though 100 * 0.29 rounds below 29."""
    bins, numbers = kernax.bases.IndicatorBins(100), (1, 29, 58, 99)
    edges = np.array([[m / 100] for m in numbers], DTYPE)
    for X, shift in ((edges, 0), (np.nextafter(edges, DTYPE(0)), 1)):
        assert np.argmax(explicit(bins, X), 1).tolist() == [m - shift for m in numbers]
        np.testing.assert_array_equal(explicit(bins, X).sum(1), 1)
    assert np.isnan(explicit(bins, np.array([[-0.01], [1.0], [1.5]], DTYPE))).all()
    with pytest.raises(NonFiniteError):
        kernax.gram(kernax.FeatureMap(bins), np.array([[0.5, 0.5], [0.5, 1.0]], DTYPE))
    kernel = kernax.FeatureMap(kernax.bases.IndicatorBins(3, 2))
    np.testing.assert_array_equal(jax.grad(kernel)(jnp.asarray(UNIT[0]), jnp.asarray(UNIT[1])), 0)


@needs_x64
@pytest.mark.parametrize("name", ["polynomial", "gaussian", "sigmoid"])
def test_kernel_ridge_on_features_is_ridge_on_the_features_themselves(name):
    """K10, the push-through identity `Phi^T (Phi Phi^T + r)^-1 = (Phi^T Phi + r)^-1 Phi^T`."""
    basis, X, Phi = bases()[name]
    y, ridge = np.array([0.3, -1.0, 0.7, 2.0]), 0.05
    w = np.linalg.solve(Phi.T @ Phi + ridge * np.eye(Phi.shape[1]), Phi.T @ y)
    f = kernax.kernel_ridge(kernax.FeatureMap(basis), X, y.astype(DTYPE), ridge).value
    new = (0.9 * X + 0.05).astype(DTYPE)
    assert_close(
        jax.vmap(f)(jnp.asarray(new)), explicit(in_dtype(basis), new) @ w, TOLERANCE["solve"]
    )


@needs_x64
def test_bad_bases_are_refused_by_name():
    for make in (
        lambda: kernax.bases.PolynomialBasis(0),
        lambda: kernax.bases.IndicatorBins(-2),
        lambda: kernax.bases.IndicatorBins(3, 0),
    ):
        with pytest.raises(ValueError, match="must be a positive integer"):
            make()
    with pytest.raises(ValueError, match=r"GaussianBasis\.width must be in \(0, inf\)"):
        kernax.bases.GaussianBasis(np.ones(3), 0.0)
    with pytest.raises(ValueError, match=r"centres must have shape \(m, d\)"):
        kernax.bases.SigmoidBasis(np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match="points must be vectors of one length"):
        kernax.gram(kernax.FeatureMap(kernax.bases.GaussianBasis(np.ones((3, 2)))), UNIT[:, :1])


@needs_x64
def test_centres_and_widths_are_learned_and_can_be_frozen():
    kernel = kernax.FeatureMap(kernax.bases.GaussianBasis(np.ones((3, 2)), 0.4))
    theta, _ = kernax.unconstrain(kernel)
    assert set(theta) == {"phi.centres", "phi.width"}
    assert set(kernax.unconstrain(kernel, lambda path, _: path.endswith("width"))[0]) == {
        "phi.width"
    }
