"""Kernels on sets against the features they stand for, written out one by one."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, assert_close, needs_x64

import kernax
from kernax.errors import FeaturelessWarning, NonFiniteError
from kernax.testing import check_kernel

N = 5
CUBE = np.array(list(itertools.product((0.0, 1.0), repeat=N)), DTYPE)
SOFT = np.random.default_rng(0).uniform(size=(6, N)).astype(DTYPE)
WEIGHTS = np.array([0.5, 2.0, 0.0, 1.0, 0.3])
KINDS = {
    "AllSubsets": kernax.kernels.AllSubsets(WEIGHTS),
    "Monomials": kernax.kernels.Monomials(WEIGHTS),
    "Intersection": kernax.kernels.Intersection(),
    "Jaccard": kernax.kernels.Jaccard(),
    "Tanimoto": kernax.kernels.Tanimoto(),
}


def subsets(X, weights):
    """A feature for each of the 2^n subsets of the items."""
    weighted = np.sqrt(weights) * X
    chosen = itertools.chain.from_iterable(
        itertools.combinations(range(N), size) for size in range(N + 1)
    )
    return np.stack([np.prod(weighted[:, list(items)], 1) for items in chosen], 1)


def monomials(X, weights):
    """A feature for each of the 3^n conjunctions in which a variable stands as it is, negated, or
    not at all.
    """
    root = np.sqrt(weights)
    literals = (root * X, root * (1 - X), np.ones_like(X))
    signs = itertools.product(range(3), repeat=N)
    return np.stack(
        [np.prod([literals[s][:, a] for a, s in enumerate(sign)], 0) for sign in signs], 1
    )


@pytest.mark.parametrize("weights", [np.ones(N), WEIGHTS], ids=["of one", "of each item"])
@pytest.mark.parametrize(
    ("kind", "features"),
    [(kernax.kernels.AllSubsets, subsets), (kernax.kernels.Monomials, monomials)],
)
@pytest.mark.parametrize("X", [CUBE, SOFT], ids=["Boolean", "soft"])
def test_products_over_items_are_inner_products_of_all_their_features(kind, features, weights, X):
    """K11, K12."""
    phi = features(X.astype(np.float64), weights)
    assert phi.shape[1] == (2**N if kind is kernax.kernels.AllSubsets else 3**N)
    assert_close(kernax.gram(kind(weights), X), phi @ phi.T)


def test_on_boolean_points_the_count_is_exact():
    """K11, K12."""
    same = np.sum(CUBE[:, None] == CUBE[None], -1)
    assert np.array_equal(kernax.gram(kernax.kernels.Monomials(), CUBE), 2.0**same)
    assert np.array_equal(kernax.gram(kernax.kernels.AllSubsets(), CUBE), 2.0 ** (CUBE @ CUBE.T))
    assert kernax.kernels.Monomials()(jnp.array([0, 0, 1]), jnp.array([0, 1, 1])) == 4


def test_overlaps_are_those_of_python_sets():
    places = [set(np.flatnonzero(row)) for row in CUBE]
    common = np.array([[len(a & b) for b in places] for a in places], float)
    union = np.array([[len(a | b) for b in places] for a in places], float)
    ratio = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    assert_close(kernax.gram(kernax.kernels.Intersection(), CUBE.astype(bool)), common)
    for kernel in (kernax.kernels.Jaccard(), kernax.kernels.Tanimoto()):
        with pytest.warns(FeaturelessWarning, match="1 of 32 points have no features"):
            # The empty set.
            assert_close(kernax.gram(kernel, CUBE), ratio)


def test_overlaps_of_counts_are_those_of_numpy():
    X = np.random.default_rng(0).integers(0, 4, size=(7, 6))
    low, high = (function(X[:, None], X[None]).sum(-1) for function in (np.minimum, np.maximum))
    assert_close(kernax.gram(kernax.kernels.Intersection(), X), low)
    assert_close(kernax.gram(kernax.kernels.Jaccard(), X), low / high)


def test_tanimoto_is_defined_for_all_vectors():
    X = np.random.default_rng(0).normal(size=(7, 3)).astype(DTYPE)
    products = X.astype(float) @ X.T.astype(float)
    squares = np.diagonal(products)
    assert_close(
        kernax.gram(kernax.kernels.Tanimoto(), X),
        products / (squares[:, None] + squares[None] - products),
    )
    assert check_kernel(kernax.kernels.Tanimoto(), X).passed


@pytest.mark.parametrize("name", KINDS)
def test_gradients_are_finite_on_boolean_points_empty_sets_and_pairs_of_one_set_included(name):
    def gradients(mode):
        pairs = jax.vmap(
            lambda x, z: mode(lambda k, x, z: k(x, z), argnums=(0, 1, 2))(KINDS[name], x, z)
        )
        return jax.jit(pairs)(np.repeat(CUBE, len(CUBE), 0), np.tile(CUBE, (len(CUBE), 1)))

    for mode in (jax.grad, jax.jacfwd):
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradients(mode)))


@pytest.mark.parametrize("kernel", [kernax.kernels.Jaccard(), kernax.kernels.Tanimoto()])
def test_two_empty_sets_have_nothing_in_common_and_no_slope(kernel):
    empty = jnp.zeros(3)
    value, slope = jax.value_and_grad(kernel)(empty, empty)
    assert value == 0
    assert np.array_equal(slope, np.zeros(3))


def many_items():
    """A set, the set with some ten items changed, another set, the empty set; and weights."""
    rng = np.random.default_rng(0)
    X = (rng.uniform(size=(4, 1000)) < [[0.9], [0.01], [0.5], [0.0]]).astype(DTYPE)
    X[1] = np.abs(X[0] - X[1])
    return X, rng.uniform(0.5, 2, size=1000).astype(DTYPE)


@pytest.mark.parametrize("kind", [kernax.kernels.AllSubsets, kernax.kernels.Monomials])
def test_a_thousand_items_do_not_overflow_once_normalised(kind):
    """The reference adds logarithms in float64. The error is about eps times log2 k, here about
    1100.
    """
    X, weights = many_items()
    x, z = X[:, None].astype(float), X[None].astype(float)
    log_k = np.sum(np.log1p(weights.astype(float) * matches(kind, x, z)), -1)
    size = np.diagonal(log_k)
    expected = np.exp(log_k - (size[:, None] + size[None]) / 2)
    assert size.max() > 650
    assert 1e-7 < expected[0, 1] < 1e-2
    K = kernax.gram(kernax.Normalised(kind(weights)), X)
    # measured: 3e-13, 1.3e-4.
    np.testing.assert_allclose(K, expected, rtol=TOLERANCE["value"] if X64 else 4e-4, atol=1e-30)


def matches(kind, x, z):
    return x * z if kind is kernax.kernels.AllSubsets else x * z + (1 - x) * (1 - z)


def test_powers_of_two_are_exact_as_far_as_floats_reach_and_an_error_beyond():
    last = 1023 if X64 else 127
    X = np.tril(np.ones((last + 1, last + 1), DTYPE))
    assert np.array_equal(
        kernax.gram_diagonal(kernax.kernels.AllSubsets(), X[:-1]),
        np.ldexp(DTYPE(1), np.arange(1, last + 1)),
    )
    with pytest.raises(NonFiniteError, match="AllSubsets is NaN or inf"):
        kernax.gram(kernax.kernels.AllSubsets(), X[-1:])


@pytest.mark.parametrize("kind", [kernax.kernels.AllSubsets, kernax.kernels.Monomials])
def test_gradients_in_the_weights_are_those_of_the_product(kind):
    """d k / d weights_a = match_a k / (1 + weights_a match_a), at zero weights, too."""
    x, z = SOFT[:2]
    match = matches(kind, x.astype(float), z.astype(float))
    for weights in (WEIGHTS, np.zeros(N)):
        slope = jax.grad(lambda weights: kind(weights)(x, z))(weights.astype(DTYPE))
        assert_close(slope, match * np.prod(1 + weights * match) / (1 + weights * match))


def test_gradients_in_a_thousand_weights_are_right_once_normalised():
    """d log cosine / d weights_a = match(x, z) / (1 + ...) - half of the same for (x, x) and for
    (z, z).
    """
    X, weights = many_items()
    x, z, w = X[0].astype(float), X[1].astype(float), weights.astype(float)
    kernel = jax.jit(
        lambda weights: jnp.log(kernax.Normalised(kernax.kernels.Monomials(weights))(X[0], X[1]))
    )
    part = lambda a, b: (
        matches(kernax.kernels.Monomials, a, b) / (1 + w * matches(kernax.kernels.Monomials, a, b))
    )
    assert_close(jax.grad(kernel)(weights), part(x, z) - (part(x, x) + part(z, z)) / 2)


@needs_x64
def test_the_perceptron_over_monomials_makes_the_same_steps():
    """K11: mistake by mistake, in every pass over a random Boolean function."""
    y = np.where(np.random.default_rng(3).uniform(size=len(CUBE)) < 0.5, 1.0, -1.0).astype(DTYPE)
    phi = monomials(CUBE.astype(float), np.ones(N))
    w, mistakes = np.zeros(phi.shape[1]), np.zeros(len(y))
    for epoch in range(1, 5):
        for i in range(len(y)):
            if y[i] * (phi[i] @ w) <= 0:
                w += y[i] * phi[i]
                mistakes[i] += 1
        solution = kernax.kernel_perceptron(
            kernax.kernels.Monomials(), CUBE, y, max_epochs=epoch, throw=False
        )
        assert np.array_equal(solution.value.coefficients, mistakes * y)
    assert np.any(mistakes > 1)
    assert_close(jax.vmap(solution.value)(CUBE), phi @ w)  # pyright: ignore[reportPossiblyUnboundVariable]


@needs_x64
@pytest.mark.parametrize("name", ["AllSubsets", "Monomials", "Intersection", "Jaccard"])
def test_a_point_outside_the_domain_is_an_error_and_no_number(name):
    outside = np.array([[0.5, 0.5, 0.5, -0.1, 0.5]], DTYPE)
    assert np.isnan(KINDS[name](outside[0], SOFT[0]))
    with pytest.raises(NonFiniteError, match=f"{name} is NaN"):
        kernax.gram(KINDS[name], np.concatenate([SOFT, outside]))


def test_monomials_end_at_one_and_counts_do_not():
    x = jnp.full(N, 2.0)
    assert np.isnan(kernax.kernels.Monomials()(x, x))
    assert_close(kernax.kernels.AllSubsets()(x, x), 5**N)


@needs_x64
@pytest.mark.parametrize("kind", [kernax.kernels.AllSubsets, kernax.kernels.Monomials])
def test_bad_weights_are_refused_by_name(kind):
    with pytest.raises(
        ValueError, match=rf"{kind.__name__}.weights must be in \[0, inf\) and finite, but is -1"
    ):
        kind(-1.0)
    with pytest.raises(
        ValueError, match=r"a parameter has shape \(3,\), but points have shape \(5,\)"
    ):
        kernax.gram(kind(np.ones(3)), CUBE)
