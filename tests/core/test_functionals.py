"""Values, derivatives and integrals as points: against differences of the process, against f at the
nodes, through every kind of observation.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64, check_derivatives, needs_x64, untyped

import kernax
from kernax.core.functionals.linear_functionals import applied
from kernax.functionals import (
    derivatives_at,
    gradients_at,
    integrals_over,
    joined,
    values_at,
)

KERNEL = 1.5 * kernax.RBF([0.8, 1.2])
ALONG = np.array([1.0, -0.5], DTYPE)
EXACT = {"rtol": 1e-9, "atol": 1e-9} if X64 else {"rtol": 2e-3, "atol": 2e-3}


def points(seed, n=3):
    return np.random.default_rng(seed).uniform(-1, 1, (n, 2)).astype(DTYPE)


X, Z = points(0), points(1)
Y = np.random.default_rng(2).normal(size=9).astype(DTYPE)


@pytest.fixture(scope="module")
def observed():
    """Values at three points, slopes at three others and three integrals, of a process with a
    mean.
    """
    mean = kernax.LinearMean(jnp.asarray([0.3, -0.2], DTYPE), 1.0)
    prior = kernax.GaussianProcess(kernax.kernels.OfFunctionals(KERNEL), mean)
    few = joined(values_at(X), derivatives_at(Z, ALONG), integrals_over(X, X + 1, 2))
    return prior, few, kernax.condition(prior, few, Y, 0.01).value


@pytest.mark.nightly
def test_a_process_given_functionals_is_that_of_numpy_given_its_values_at_the_nodes(observed):
    """Independent: integrals are sums over the nodes of leggauss, derivatives are those of the
    formula of the RBF.
    """
    prior, few, process = observed
    K, mean, cross = by_hand(few)
    C = np.linalg.inv(K + 0.01 * np.eye(9))
    expected = 1 + Z @ [0.3, -0.2] + cross @ C @ (Y - mean)
    variances = 1.5 - np.einsum("ij,jk,ik->i", cross, C, cross)
    np.testing.assert_allclose(kernax.gram(prior.covariance, few), K, **EXACT)
    np.testing.assert_allclose(jax.vmap(prior.mean)(few), mean, **EXACT)
    np.testing.assert_allclose(jax.vmap(process.mean)(Z), expected, **EXACT)
    np.testing.assert_allclose(jax.vmap(process.variance)(values_at(Z)), variances, **EXACT)
    of_constant_mean = kernax.GaussianProcess(prior.covariance, 1.0)
    evidence = kernax.log_marginal_likelihood(of_constant_mean, few, Y, 0.01)
    constant = np.repeat([1.0, 0, 1], 3)
    assert np.isclose(evidence, log_normal(Y - constant, K + 0.01 * np.eye(9)), rtol=1e-4)


def log_normal(r, C):
    return -(r @ np.linalg.solve(C, r) + np.linalg.slogdet(2 * np.pi * C)[1]) / 2


def by_hand(few):
    """The covariance of the functionals, their means, and their covariance with f(Z), in NumPy."""
    scales = np.array([0.8, 1.2])
    nodes, weights, slopes = (np.asarray(part, float) for part in jax.tree.leaves(few))

    def covariance(a, b):
        """Of weights and slopes of one functional with those of another."""
        (x, v, s), (z, w, t) = a, b
        u = (x[:, None] - z[None]) / scales**2
        k = 1.5 * np.exp(-np.sum((x[:, None] - z[None]) ** 2 / scales**2, -1) / 2)
        of_x = -np.einsum("ijd,id->ij", u, s)
        of_z = np.einsum("ijd,jd->ij", u, t)
        both = (s / scales**2) @ t.T
        return np.sum(k * ((v[:, None] + of_x) * (w[None] + of_z) + both))

    rows = list(zip(nodes, weights, slopes))
    plain = [(z[None].astype(float), np.ones(1), np.zeros((1, 2))) for z in Z]
    K = np.array([[covariance(a, b) for b in rows] for a in rows])
    means = [w @ (1 + x @ [0.3, -0.2]) + np.sum(s @ [0.3, -0.2]) for x, w, s in rows]
    return K, np.array(means), np.array([[covariance(a, b) for b in rows] for a in plain])


@pytest.mark.nightly
@needs_x64
def test_the_posterior_of_a_slope_is_that_of_a_difference_of_values(observed):
    """The bar: mean and covariance of f and f', by differences of the process."""
    _, _, process = observed
    h = 3e-4
    both = joined(values_at(X), derivatives_at(X, ALONG))
    ahead, behind = values_at(X + h * ALONG), values_at(X - h * ALONG)
    near = joined(values_at(X), (ahead - behind) * (1 / (2 * h)))
    mean = jax.jit(jax.vmap(process.mean))
    np.testing.assert_allclose(mean(both), mean(near), atol=1e-6)  # 4e-7
    np.testing.assert_allclose(
        kernax.gram(process.covariance, both), kernax.gram(process.covariance, near), atol=1e-5
    )


@pytest.mark.nightly
@needs_x64
def test_a_mean_over_a_box_is_that_of_many_values_and_functionals_are_linear():
    low, high = np.zeros((1, 2)), np.array([[1.0, 0.5]])
    box = integrals_over(low, high, 12) * 2.0  # over its volume
    grid = (np.stack(np.meshgrid(*[np.arange(200) / 200 + 1 / 400] * 2), -1) * high[0]).reshape(
        -1, 2
    )
    kernel = kernax.kernels.OfFunctionals(KERNEL)
    row = kernax.gram(kernel, box, X)[0]
    np.testing.assert_allclose(row, np.mean(kernax.gram(KERNEL, grid, X), 0), rtol=1e-5)
    both = box - 3 * values_at(X[:1])
    np.testing.assert_allclose(
        kernax.gram(kernel, both, X)[0], row - 3 * kernax.gram(KERNEL, X)[0], rtol=1e-12
    )
    assert [len(gradients_at(X)), len(both), both[0].weights.shape] == [6, 1, (145,)]
    apart = kernax.gram(kernel, derivatives_at(X[:1], np.eye(2)[:1]), X)
    np.testing.assert_allclose(kernax.gram(kernel, gradients_at(X)[:1], X), apart, rtol=1e-12)


@needs_x64
@pytest.mark.nightly
def test_derivatives_of_the_evidence_and_weights_are_right(observed):
    prior, few, _ = observed

    def evidence(lengthscale, moved, y, weights):
        few = derivatives_at(moved, ALONG)
        kernel = kernax.kernels.OfFunctionals(kernax.RBF(lengthscale))
        return kernax.log_marginal_likelihood(kernel, few, y, 0.1, weights=weights)

    arguments = (jnp.array([0.8, 1.2]), jnp.asarray(X), jnp.asarray(Y[:3]), jnp.ones(3))
    check_derivatives(evidence, arguments, rtol=1e-6, atol=1e-8)
    several = jax.vmap(evidence, in_axes=(None, None, 0, None))(
        arguments[0], X, jnp.stack([Y[:3], Y[3:6]]), arguments[3]
    )
    np.testing.assert_allclose(several[1], evidence(*arguments[:2], Y[3:6], arguments[3]))
    twice = kernax.condition(prior, few[[0, 0, 4]], Y[[0, 0, 4]], 0.1).value
    weighted = kernax.condition(
        prior, few[[0, 4, 7]], Y[[0, 4, 7]], 0.1, weights=np.array([2.0, 1, 0])
    ).value
    np.testing.assert_allclose(jax.vmap(weighted.mean)(Z), jax.vmap(twice.mean)(Z), rtol=1e-9)
    np.testing.assert_allclose(
        jax.vmap(weighted.variance)(Z), jax.vmap(twice.variance)(Z), rtol=1e-9
    )


@needs_x64
@pytest.mark.nightly
def test_signs_of_slopes_make_a_process_rise():
    """Laplace takes functionals; a process given values, and then signs of its slopes, is the
    monotone regression of Riihimaki & Vehtari (2010).
    """
    x = np.linspace(0, 1, 6)[:, None]
    y = np.array([0.0, 0.5, 0.3, 0.6, 0.5, 1.0])
    process = kernax.condition(kernax.GaussianProcess(kernax.RBF(0.2)), x, y, 0.01).value
    extended = kernax.GaussianProcess(
        kernax.kernels.OfFunctionals(process.covariance), process.mean
    )
    slopes = derivatives_at(np.linspace(0, 1, 12)[:, None], np.full(1, 50.0))
    likelihood = kernax.likelihoods.Probit()
    rising = kernax.laplace(extended, slopes, np.ones(12), likelihood).value.process
    grid = np.linspace(0, 1, 41)[:, None]
    steps = lambda f: np.diff(jax.vmap(f.mean)(grid))
    assert steps(process).min() < -0.03  # -0.034
    assert steps(rising).min() > -0.004  # -0.0025, between the places of the signs
    assert np.abs(jax.vmap(rising.mean)(x) - y).max() < 0.2


@needs_x64
@pytest.mark.slow
def test_functionals_of_features_are_features():
    phi = kernax.bases.PolynomialBasis(3)
    kernel = kernax.kernels.OfFunctionals(kernax.FeatureMap(phi))
    few = joined(values_at(points(3, 6)), derivatives_at(points(4, 6), ALONG))
    y = np.sin(np.arange(12.0))
    solution = kernax.condition(kernax.GaussianProcess(kernel), few, y, 0.1)
    assert solution.stats["features"] == 7
    K = np.asarray(kernax.gram(kernel, few))
    row = np.asarray(kernax.gram(kernel, Z, few))
    expected = row @ np.linalg.solve(K + 0.1 * np.eye(12), y)
    np.testing.assert_allclose(jax.vmap(solution.value.mean)(Z), expected, rtol=1e-9)


@pytest.mark.slow
@needs_x64
def test_points_of_several_parts_have_derivatives_in_those_that_are_numbers():
    """A slope of one output of two."""
    tasks = kernax.kernels.Coregionalisation(np.array([[1.0], [0.5]]), np.array([0.1, 0.2]))
    kernel = kernax.kernels.OfFunctionals(kernax.On(kernax.RBF(0.7), 0) * kernax.On(tasks, 1))
    slopes = derivatives_at((X, np.array([0, 1, 1])), (ALONG, None))
    apart = (X[:, None] - Z[None]) / 0.7
    rbf = np.exp(-np.sum(apart**2, -1) / 2)
    expected = -apart @ ALONG / 0.7 * rbf * np.asarray(tasks.matrix)[np.ix_([0, 1, 1], [1, 1, 0])]
    few = kernax.gram(kernel, slopes, (Z, np.array([1, 1, 0])))
    np.testing.assert_allclose(few, expected, rtol=1e-12)


@needs_x64
def test_what_is_no_functional_or_has_no_derivative_is_refused():
    few = derivatives_at(X, ALONG)
    rough = (kernax.Matern12(), kernax.RBF() * kernax.Matern(0.8), kernax.kernels.ArcCosine(0))
    for kernel in rough:
        with pytest.raises(ValueError, match="no derivatives"):
            kernax.gram(kernax.kernels.OfFunctionals(kernel), few)
    value = values_at(X)[0]
    for kernel, point in ((kernax.Matern12(), value), (kernax.Matern(1.5), few[0])):
        assert jax.eval_shape(kernax.kernels.OfFunctionals(kernel), point, value).shape == ()
    known = untyped(joined)
    for call, message in [
        (lambda: derivatives_at(X, np.ones(3)), "directions must have shape"),
        (lambda: derivatives_at((X, np.arange(3)), ALONG), "structure of X"),
        (lambda: derivatives_at((X, np.arange(3)), (ALONG, np.ones(3))), "integers have no"),
        (lambda: integrals_over(X, X), "low must be below high"),
        (lambda: integrals_over(X, X[:2]), "have one shape"),
        (lambda: integrals_over(X, X + 1, 0), "nodes must be"),
        (lambda: gradients_at(X[0]), "batch of vectors"),
        (lambda: known(values_at(X), X), "joined takes batches"),
        (lambda: joined(values_at(X), values_at(X)[0]), "is a single functional"),
        (lambda: derivatives_at(X, None), "all are None"),
        (lambda: values_at(X) + values_at(X[:2]), "cannot be added"),
        (lambda: values_at(X) * np.ones(2), "scaled by a number"),
        (lambda: values_at(X)[3], "out of bounds"),
        (lambda: len(few[0]), "not a batch"),
        (lambda: kernax.kernels.OfFunctionals(KERNEL)(few, few[0]), "use jax.vmap"),
    ]:
        with pytest.raises((ValueError, IndexError), match=message):
            call()


def test_numbers_of_numpy_scale_functionals_from_either_side():
    F = values_at(X)
    several = np.arange(len(F), dtype=DTYPE)
    np.testing.assert_array_equal((np.float64(2.0) * F).weights, (F * 2.0).weights)
    np.testing.assert_array_equal((several * F).weights, F.weights * several[:, None])
    with pytest.raises(ValueError, match="scaled by a number"):
        _ = integrals_over(X[:1], X[:1] + 1, 2)[0] * np.ones(2)


def test_a_mean_beside_scaled_and_summed_functionals_is_a_functional():
    """Of a constant the slope is zero and an integral over a box of two units is two times it."""
    few = joined(derivatives_at(X[:1], ALONG), integrals_over(X[:1], X[:1] + [1, 2], 2))
    sums = kernax.kernels.OfFunctionals(KERNEL) + 2.0 * kernax.kernels.OfFunctionals(kernax.RBF())
    for kernel in (2.0 * kernax.kernels.OfFunctionals(KERNEL), sums):
        process = kernax.GaussianProcess(kernel, 1.5)
        np.testing.assert_allclose(jax.vmap(process.mean)(few), [0, 3], atol=1e-6)


def test_parts_that_do_not_move_join_with_parts_that_do():
    pairs = (X, Z)
    along_first = derivatives_at(pairs, (ALONG, None))
    along_second = derivatives_at(pairs, (None, ALONG))
    f = lambda pair: jnp.sum(pair[0] ** 2) + jnp.sum(pair[1] ** 3)
    everything = joined(values_at(pairs), along_first, along_second)
    found = jax.vmap(lambda functional: applied(functional, f))(everything)
    values = np.sum(X**2, 1) + np.sum(Z**3, 1)
    expected = np.concatenate([values, 2 * X @ ALONG, 3 * Z**2 @ ALONG])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
