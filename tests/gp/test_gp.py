"""Gaussian processes: values against scikit-learn and closed forms, derivatives, conditioning,
samples, nasty inputs.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, check_derivatives, needs_x32, needs_x64, untyped
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import kernax
from kernax.core.base.boundary import as_noise, as_scalar, as_targets, as_weights
from kernax.core.base.intervals import NONNEGATIVE
from kernax.core.linalg import cholesky
from kernax.core.linalg.linear_solvers import factorise
from kernax.core.operators.operators import DenseGram
from kernax.errors import ConditionWarning, NonFiniteError, NotPSDError
from kernax.gp.means import as_mean

EXACT = {"rtol": 1e-9, "atol": 1e-9} if X64 else {"rtol": 2e-3, "atol": 2e-3}
SCALES = np.array([0.8, 1.7])
KERNEL = 1.5 * kernax.RBF(SCALES)


@pytest.fixture
def data(rng):
    X = rng.normal(size=(20, 2)).astype(DTYPE)
    return (
        X,
        (np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=20)).astype(DTYPE),
        rng.normal(size=(5, 2)).astype(DTYPE),
    )


def evidence(kernel, X, y, noise, **options):
    return kernax.log_marginal_likelihood(kernel, X, y, noise, **options)


def posterior(X, y, noise=0.1, mean=0.0, kernel=KERNEL, **options):
    return kernax.condition(kernax.GaussianProcess(kernel, mean), X, y, noise, **options)


def test_one_observation_in_closed_form():
    """G01."""
    solution = posterior([[0.0]], np.array([2.0]), kernel=kernax.RBF())
    process = solution.value
    at, far = jnp.zeros(1), jnp.full(1, 1e6)
    figures = [
        process.mean(at),
        process.variance(at),
        process.mean(far),
        process.variance(far),
        solution.stats["log_evidence"],
    ]
    expected = [20 / 11, 1 / 11, 0, 1, -2.7847754412886534]
    np.testing.assert_allclose(figures, expected, atol=1e-12 if X64 else 1e-6)
    np.testing.assert_allclose(
        evidence(kernax.RBF(), [[0.0]], np.array([2.0]), 0.1), expected[-1], rtol=1e-6
    )


@pytest.mark.slow
def test_predictions_and_evidence_are_those_of_scikit_learn(data):
    X, y, Z = data
    noise = np.linspace(0.05, 0.2, len(y))
    peer = GaussianProcessRegressor(1.5 * sk.RBF(SCALES), alpha=noise, optimizer=None).fit(X, y)
    mean, covariance = peer.predict(Z, return_cov=True)
    solution = posterior(X, y, noise)
    assert isinstance(solution.value.mean, kernax.KernelExpansion)
    np.testing.assert_allclose(jax.vmap(solution.value.mean)(Z), mean, **EXACT)
    np.testing.assert_allclose(kernax.gram(solution.value.covariance, Z), covariance, **EXACT)
    np.testing.assert_allclose(jax.vmap(solution.value.variance)(Z), np.diag(covariance), **EXACT)
    np.testing.assert_allclose(
        solution.stats["log_evidence"], peer.log_marginal_likelihood_value_, **EXACT
    )


@pytest.mark.nightly
@needs_x64
def test_conditioning_twice_is_conditioning_on_everything(data):
    X, y, Z = data
    prior = kernax.GaussianProcess(KERNEL, kernax.LinearMean([0.5, -1.0], 2.0))
    once = kernax.condition(prior, X, y, 0.1).value
    first = kernax.condition(prior, X[:8], y[:8], 0.1)
    second = kernax.condition(first.value, X[8:], y[8:], 0.1)
    np.testing.assert_allclose(jax.vmap(second.value.mean)(Z), jax.vmap(once.mean)(Z), **EXACT)
    np.testing.assert_allclose(
        kernax.gram(second.value.covariance, Z), kernax.gram(once.covariance, Z), **EXACT
    )
    whole = evidence(prior, X, y, 0.1)
    np.testing.assert_allclose(
        first.stats["log_evidence"] + second.stats["log_evidence"], whole, **EXACT
    )


@pytest.mark.slow
@needs_x64
def test_means_are_subtracted_and_added_back(data):
    X, y, Z = data
    line = kernax.LinearMean([0.5, -1.0], 2.0)
    residual = y - jax.vmap(line)(X)
    for mean, rest, back in (
        (line, residual, jax.vmap(line)(Z)),
        (3.0, y - 3, 3.0),
        (lambda x: x[0], y - X[:, 0], Z[:, 0]),
    ):
        expected = jax.vmap(posterior(X, rest).value.mean)(Z) + back
        np.testing.assert_allclose(
            jax.vmap(posterior(X, y, mean=mean).value.mean)(Z), expected, **EXACT
        )
        np.testing.assert_allclose(
            evidence(kernax.GaussianProcess(KERNEL, mean), X, y, 0.1),
            evidence(KERNEL, X, rest, 0.1),
            **EXACT,
        )


@needs_x64
def test_a_fixed_mean_is_not_learned_and_a_constant_mean_is():
    names = lambda process: [row[0] for row in kernax.describe(process).rows]
    assert names(kernax.GaussianProcess(kernax.RBF(), 2.0)) == ["covariance.lengthscale"]
    assert names(kernax.GaussianProcess(kernax.RBF(), kernax.ConstantMean(2.0))) == [
        "covariance.lengthscale",
        "mean.value",
    ]


@needs_x64
def test_nothing_in_a_posterior_covariance_is_learned(data):
    """Catches a kernel that moves without its factor, and one that the table leaves out."""
    X, y, _ = data
    process = posterior(X, y).value
    assert not kernax.unconstrain(process.covariance)[0]
    states = {row[0]: row[3] for row in kernax.describe(process).rows}
    assert states.pop("covariance.prior.kernel.lengthscale") == "fixed"
    assert states.pop("covariance.prior.scale") == "fixed"
    assert set(states) == set(kernax.unconstrain(process)[0])


@needs_x64
def test_a_column_of_targets_is_the_same_as_a_vector(data):
    """G05."""
    X, y, Z = data
    vector, column = posterior(X, y), posterior(X, y[:, None])
    np.testing.assert_allclose(
        evidence(KERNEL, X, y, 0.1), evidence(KERNEL, X, y[:, None], 0.1), rtol=1e-12
    )
    assert vector.value.mean(Z[0]).shape == ()
    assert column.value.mean(Z[0]).shape == (1,)
    np.testing.assert_allclose(column.value.mean(Z[0])[0], vector.value.mean(Z[0]), **EXACT)


@needs_x64
def test_several_outputs_are_independent(data):
    X, y, Z = data
    Y = np.stack([y, y**2], 1)
    np.testing.assert_allclose(
        evidence(KERNEL, X, Y, 0.1),
        evidence(KERNEL, X, y, 0.1) + evidence(KERNEL, X, y**2, 0.1),
        **EXACT,
    )
    both = posterior(X, Y).value
    np.testing.assert_allclose(
        jax.vmap(both.mean)(Z)[:, 1], jax.vmap(posterior(X, y**2).value.mean)(Z), **EXACT
    )
    assert both.sample(Z, key=jax.random.key(0), shape=(3,)).shape == (3, 5, 2)


@needs_x64
def test_without_noise_a_weight_is_present_or_absent(data):
    """Also where the noise is zero at some points only. Catches 0 / 0 in the variance of points
    that have a weight.
    """
    X, y, Z = data
    weights = np.ones(20, DTYPE)
    weights[3], weights[5] = 0, 0.5
    kept = weights > 0
    for noise in (np.zeros(20, DTYPE), np.where(np.arange(20) < 10, 0, 0.1).astype(DTYPE)):
        weighted, direct = (
            posterior(X, y, noise, weights=weights),
            posterior(X[kept], y[kept], noise[kept]),
        )
        np.testing.assert_allclose(
            jax.vmap(weighted.value.mean)(Z), jax.vmap(direct.value.mean)(Z), **EXACT
        )
        np.testing.assert_allclose(
            jax.vmap(weighted.value.variance)(Z), jax.vmap(direct.value.variance)(Z), **EXACT
        )


@pytest.mark.slow
@needs_x64
def test_the_evidence_has_exact_derivatives_of_both_orders_in_the_noise_of_each_point(data):
    X, y, _ = data

    def of(scales, scale, noise, X, y, weights):
        process = kernax.GaussianProcess(scale * kernax.RBF(scales), kernax.ConstantMean(0.3))
        return evidence(process, X, y, noise, weights=weights)

    noise, weights = np.linspace(0.05, 0.2, 20), np.linspace(0.2, 2.0, 20)
    arguments = jax.tree.map(jnp.asarray, (SCALES, 1.5, noise, X, y, weights))
    check_derivatives(of, arguments, rtol=1e-6, atol=1e-6)
    slope = lambda *arguments: jax.grad(of, argnums=(0, 2))(*arguments)
    check_derivatives(slope, arguments, rtol=1e-6, atol=1e-5)  # differences err by 2e-6


@pytest.mark.slow
@needs_x64
def test_predictions_have_exact_derivatives(data):
    X, y, Z = data

    def of(scales, noise, X, y, Z):
        process = posterior(X, y, noise, kernel=kernax.RBF(scales)).value
        return (
            jax.vmap(process.mean)(Z),
            jax.vmap(process.variance)(Z),
            process.sample(Z, key=jax.random.key(0)),
        )

    arguments = jax.tree.map(jnp.asarray, (SCALES, 0.1, X, y, Z))
    check_derivatives(of, arguments, rtol=1e-6, atol=1e-6)


@needs_x64
def test_prior_samples_have_the_moments_of_the_kernel(rng):
    """G2: Gaussian and exponential kernels, on a line and on a field."""
    line, field = (
        np.linspace(0, 3, 6)[:, None].astype(DTYPE),
        rng.uniform(size=(6, 2)).astype(DTYPE),
    )
    for kernel, X in ((kernax.RBF(), line), (kernax.Matern12(), line), (kernax.RBF(0.5), field)):
        draws = kernax.GaussianProcess(kernel, 1.0).sample(X, key=jax.random.key(1), shape=(20000,))
        assert draws.shape == (20000, 6)
        # 5 standard errors of 1/sqrt(20000).
        np.testing.assert_allclose(draws.mean(0), 1.0, atol=0.035)
        # 5 of sqrt(2/20000).
        np.testing.assert_allclose(np.cov(draws.T), kernax.gram(kernel, X), atol=0.05)


@needs_x64
def test_posterior_samples_have_the_moments_of_the_posterior(data):
    X, y, Z = data
    process = posterior(X, y).value
    draws = process.sample(Z, key=jax.random.key(2), shape=(20000,))
    K = kernax.gram(process.covariance, Z)
    np.testing.assert_allclose(
        draws.mean(0), jax.vmap(process.mean)(Z), atol=5 * float(jnp.sqrt(K.max() / 20000))
    )
    np.testing.assert_allclose(np.cov(draws.T), K, atol=5 * float(K.max()) * np.sqrt(2 / 20000))


@pytest.mark.slow
def test_samples_pass_through_noiseless_observations_and_singular_priors_can_be_drawn_from():
    X = np.linspace(0, 1, 200, dtype=DTYPE)[:, None]
    assert jnp.all(
        jnp.isfinite(kernax.GaussianProcess(kernax.RBF()).sample(X, key=jax.random.key(0)))
    )
    y = np.sin(6 * X[::50, 0])
    process = posterior(X[::50], y, 1e-6, kernel=kernax.RBF(0.3)).value
    draw = process.sample(X, key=jax.random.key(0))
    np.testing.assert_allclose(draw[::50], y, atol=0.01)


@needs_x64
def test_copies_with_hardly_any_noise_are_said_to_be_lost_in_rounding():
    """Catches a factor that exists by an accident of rounding and calls its evidence exact."""
    X = np.r_[np.linspace(0, 5, 15), np.linspace(0, 5, 15)[:8]][:, None]
    y = np.sin(1.2 * X[:, 0])
    for noise in (1e-14, 2e-15):
        with pytest.warns(ConditionWarning, match="rounding leaves .* of the evidence"):
            solution = posterior(X, y, noise, kernel=kernax.RBF(0.2))
        assert solution.stats["jitter"] == 0
        exact = log_evidence_of_copies(X, y, noise)
        error = abs(float(solution.stats["log_evidence"]) - exact)
        # 0.06 and 0.3 where errors are 0.04 and 0.2.
        assert error / 30 < float(solution.stats["rounding"]) < 3
        with pytest.warns(ConditionWarning, match="rounding leaves"):
            evidence(kernax.RBF(0.2), X, y, noise)
    assert posterior(X, y, 1e-8, kernel=kernax.RBF(0.2)).stats["rounding"] < 1e-6
    assert posterior(X[:15], y[:15], 0.0, kernel=kernax.RBF(0.2)).stats["rounding"] < 1e-10


def log_evidence_of_copies(X, y, noise):
    """In sixty digits."""
    import mpmath

    with mpmath.workdps(60):
        n = len(X)
        distance = lambda i, j: (
            (mpmath.mpf(float(X[i, 0])) - mpmath.mpf(float(X[j, 0]))) / mpmath.mpf(0.2)
        )
        C = mpmath.matrix(n, n)
        for i in range(n):
            for j in range(n):
                C[i, j] = mpmath.exp(-(distance(i, j) ** 2) / 2) + (
                    mpmath.mpf(noise) if i == j else 0
                )
        L, r = mpmath.cholesky(C), mpmath.matrix([mpmath.mpf(float(value)) for value in y])
        fit = mpmath.lu_solve(C, r)
        log_determinant = 2 * sum(mpmath.log(L[i, i]) for i in range(n))
        return float(
            -(sum(a * b for a, b in zip(fit, r)) + log_determinant + n * mpmath.log(2 * mpmath.pi))
            / 2
        )


@needs_x64
def test_duplicates_with_little_noise_are_averaged():
    """G02."""
    X, y = np.array([[0.0], [0.0], [1.0]]), np.array([0.0, 2.0, 5.0])
    if X64:
        np.testing.assert_allclose(
            posterior(X, y, 1e-10, kernel=kernax.RBF()).value.mean(X[0]), 1.0, atol=1e-5
        )
    with pytest.warns(ConditionWarning, match="was added to its diagonal"):
        solution = posterior(X, y, 0.0, kernel=kernax.RBF())
    assert solution.stats["jitter"] > 0
    np.testing.assert_allclose(solution.value.mean(X[0]), 1.0, atol=1e-3)


def test_a_smooth_kernel_on_a_fine_grid_takes_jitter_and_says_so():
    """L02."""
    X = np.linspace(0, 1, 200, dtype=np.float32)[:, None]
    y = np.sin(6 * X[:, 0])
    solution = jax.jit(lambda X: posterior(X, y, 0.0, kernel=kernax.RBF(), throw=False))(X)
    assert 0 < solution.stats["jitter"] <= 1e-4
    assert jnp.isfinite(solution.stats["log_evidence"])
    with pytest.warns(ConditionWarning) as caught:
        assert jnp.isfinite(evidence(kernax.RBF(), X, y, 0.0))
    assert len(caught) == 1


@pytest.mark.slow
def test_what_has_no_factor_is_an_error_a_status_or_nan():
    X, y = np.array([[1.0], [2.0]]), np.array([1.0, 2.0])
    indefinite = kernax.kernels.Tanh(1.0, -5.0, indefinite=True)
    with pytest.raises(
        NotPSDError,
        match=r"The smallest eigenvalue of K is -1\.88, the largest .*condition with Tanh",
    ):
        posterior(X, y, 0.0, kernel=indefinite)
    solution = posterior(X, y, 0.0, kernel=indefinite, throw=False)
    assert solution.result == kernax.RESULTS.not_psd
    assert jnp.isnan(solution.value.mean(X[0]))
    assert jnp.isnan(solution.stats["log_evidence"])
    assert jnp.isnan(solution.value.variance(X[0]))
    assert jnp.isnan(evidence(indefinite, X, y, 0.0))
    with pytest.raises((NotPSDError, NonFiniteError)):
        kernax.GaussianProcess(indefinite).sample(X, key=jax.random.key(0))
    assert jnp.all(
        jnp.isnan(kernax.GaussianProcess(indefinite).sample(X, key=jax.random.key(0), throw=False))
    )


@needs_x64
def test_a_negative_noise_of_a_point_is_named_by_its_place(data):
    X, y, _ = data
    with pytest.raises(ValueError, match=r"must not be negative, but noise\[3\] is -1"):
        posterior(X, y, noise=np.where(np.arange(20) == 3, -1.0, 0.1))


@needs_x64
@pytest.mark.parametrize(
    ("mean", "y", "message"),
    [
        (
            lambda x: x[:1],
            np.ones(20),
            r"mean must return a scalar to go with y of shape \(20,\), but returns shape \(1,\)",
        ),
        (
            lambda x: x[:1],
            np.ones((20, 2)),
            r"a scalar or shape \(2,\) to go with .* returns shape \(1,\)",
        ),
        (
            kernax.LinearMean(np.ones(3)),
            np.ones(20),
            r"slope has shape \(3,\), but points have shape \(2,\): pass one",
        ),
    ],
)
def test_a_mean_of_the_wrong_shape_is_refused(data, mean, y, message):
    with pytest.raises(ValueError, match=message):
        posterior(data[0], y, mean=mean)


def test_a_mean_that_is_not_finite_is_not_blamed_on_the_noise_alone(data):
    X, y, _ = data
    with pytest.raises(NonFiniteError, match="the mean must be finite at every point"):
        posterior(X, y, mean=lambda x: jnp.log(x[0] - 100))


def test_draws_about_a_mean_that_is_not_finite_are_no_success():
    process = kernax.GaussianProcess(kernax.RBF(), lambda x: jnp.log(x[0] - 1))
    points = np.array([[0.0, 1.0], [2.0, 1.0]], DTYPE)
    with pytest.raises(NonFiniteError, match=r"GaussianProcess\.sample"):
        process.sample(points, key=jax.random.key(0))
    assert np.all(np.isnan(process.sample(points, key=jax.random.key(0), throw=False)))


def test_a_mean_that_overflows_leaves_no_variance_either(data):
    """Catches a posterior that is half void: its covariance alone would be a plausible one beside
    `nonfinite`.
    """
    X, _, _ = data
    y = np.finfo(DTYPE).max * np.where(np.arange(20) % 2, 1, -1).astype(DTYPE)
    solution = posterior(X, y, 1e-3, throw=False)
    assert solution.result == kernax.RESULTS.nonfinite
    assert jnp.isnan(solution.value.mean(X[0]))
    assert jnp.isnan(solution.value.variance(X[0]))


@needs_x64
def test_what_is_no_mean_no_key_or_no_shape_is_refused_by_name():
    process, X = kernax.GaussianProcess(KERNEL), np.ones((3, 2), DTYPE)
    for mean in ("zero", None, [1.0, 2.0]):
        with pytest.raises(
            ValueError, match="mean must be a number or a function of a point, but is"
        ):
            as_mean(mean)
    for mean, words in ((np.nan, "mean must be finite, but is nan"), (np.ones(2), "be a scalar")):
        with pytest.raises(ValueError, match=words):
            kernax.GaussianProcess(KERNEL, mean)
    sample = untyped(type(process).sample)
    for key, came in (
        (0, "0"),
        (jax.random.split(jax.random.key(0)), r"an array of key<fry> of shape \(2,\)"),
    ):
        with pytest.raises(
            ValueError, match=rf"one random key, such as jax.random.key\(0\), but is {came}"
        ):
            sample(process, X, key=key)
    for shape in (5, (2.5,), (-1,)):
        with pytest.raises(ValueError, match="shape must be a tuple of integers, such as"):
            sample(process, X, key=jax.random.key(0), shape=shape)


@needs_x64
def test_lists_are_arrays_everywhere_and_none_is_refused_by_name():
    """JAX warns of lists, and a warning is an error here."""

    def weights(*args):
        return untyped(as_weights)(*args).values

    for enter in (untyped(as_targets), untyped(as_noise), weights):
        np.testing.assert_array_equal(enter([1, 2], 2, DTYPE), [1, 2])
        with pytest.raises(ValueError, match=r"shape \(3,\)"):
            enter([1, 2], 3, DTYPE)
    with pytest.raises(ValueError, match="y must be an array of real numbers"):
        untyped(as_targets)(None, 2, DTYPE)
    for value, came in ((None, "None"), ([0.1], r"\[0.1\]")):
        with pytest.raises(ValueError, match=f"ridge must be a real number, but is {came}"):
            untyped(as_scalar)(value, DTYPE, "ridge", NONNEGATIVE)


@needs_x64
def test_a_stack_for_a_variance_is_told_about_vmap(data):
    X, y, Z = data
    with pytest.raises(ValueError, match=r"use jax.vmap\(f\)\(X\)"):
        posterior(X, y).value.variance(Z)


@needs_x64
@pytest.mark.parametrize("n", [1, 128, 129, 256, 257, 512, 513])
def test_an_inverse_by_halves_is_the_inverse_on_both_sides_of_every_split(rng, n):
    A = rng.normal(size=(n, n + 20))
    A = jnp.asarray(A @ A.T / n + 0.1 * np.eye(n))
    inverse = jax.jit(lambda A: factorise(DenseGram(A)).inverse())
    np.testing.assert_allclose(inverse(A) @ A, np.eye(n), atol=1e-11)
    assert np.all(np.isnan(inverse(-A)))


@pytest.mark.parametrize("n", [7, 8, 9, 17, 33])
def test_a_cholesky_factor_by_halves_is_that_of_the_whole_on_both_sides_of_the_split(
    rng, n, monkeypatch
):
    A = rng.normal(size=(n, n + 5)).astype(DTYPE)
    A = jnp.asarray(A @ A.T / n) + 0.1 * jnp.eye(n)
    expected = np.linalg.cholesky(A)
    monkeypatch.setattr(cholesky, "_LONGEST_COLUMN", 8 * A.dtype.itemsize)
    found = factorise(DenseGram(A))
    assert isinstance(found, cholesky.CholeskyFactor)
    assert found.exists
    np.testing.assert_allclose(found.lower, expected, atol=TOLERANCE["value"])
    indefinite = A.at[-1, -1].add(-10)
    assert not factorise(DenseGram(indefinite)).exists


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("n", [48, 49])
def test_a_batch_of_evidence_gradients_is_right_on_both_sides_of_the_first_split(rng, n):
    """d/d noise log N(y | 0, C) = (|C^-1 y|^2 - tr C^-1) / 2, by NumPy."""
    X = rng.normal(size=(n, 2))
    y = rng.normal(size=n)
    K = np.asarray(kernax.gram(KERNEL, X))
    noises = np.array([0.1, 0.5])
    slopes = jax.vmap(jax.grad(lambda noise: evidence(KERNEL, X, y, noise)))(jnp.asarray(noises))
    inverses = np.linalg.inv(K + noises[:, None, None] * np.eye(n))
    expected = (np.sum((inverses @ y) ** 2, 1) - np.trace(inverses, axis1=1, axis2=2)) / 2
    np.testing.assert_allclose(slopes, expected, rtol=1e-8)


@needs_x32
def test_integers_and_lists_are_data():
    process = kernax.condition(
        kernax.GaussianProcess(kernax.RBF()), [[0], [1]], np.array([1, 2]), 1
    ).value
    assert process.mean([0]).dtype == jnp.float32


@needs_x64
def test_a_process_is_a_pytree_that_passes_through_jit(data):
    X, y, Z = data
    process = posterior(X, y).value
    np.testing.assert_allclose(
        eqx.filter_jit(lambda p, z: p.mean(z))(process, Z[0]),
        process.mean(Z[0]),
        rtol=TOLERANCE["value"],
    )


def test_the_evidence_is_in_range_where_its_terms_are_not():
    # Coefficients of +-50 sizes of y, whose products with y nearly cancel.
    X, y, noise = jnp.array([[0.0], [1e-3]]), np.array([1, 1.1]), 1e-3
    size = np.sqrt(float(jnp.finfo(X.dtype).max) / 20)
    value = kernax.log_marginal_likelihood(
        kernax.RBF(1.0), X, jnp.asarray(size * y, X.dtype), noise
    )
    C = np.asarray(kernax.gram(kernax.RBF(1.0), X), float) + noise * np.eye(2)
    np.testing.assert_allclose(value / size**2, -y @ np.linalg.solve(C, y) / 2, rtol=1e-3)
