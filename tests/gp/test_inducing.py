"""Inducing points: the collapsed bound, its posterior, minibatches for any likelihood, and how
points are chosen: values, gradients, jit, vmap, weights, traces, bad input.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import DTYPE, FUSED, TOLERANCE, X64, check_derivatives, needs_x64, real_data, untyped
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

import kernax
from kernax.gp.posterior import InducedPosteriorKernel
from kernax.likelihoods import Bernoulli, CustomLikelihood, Gaussian, Poisson

RNG = np.random.default_rng(0)
N, M = 14, 4
X = RNG.normal(size=(N, 2)).astype(DTYPE)
Z = RNG.normal(size=(M, 2)).astype(DTYPE)
NEW = RNG.normal(size=(3, 2)).astype(DTYPE)
Y = np.sin(2 * X[:, 0]).astype(DTYPE)
SIGNS = np.where(X[:, 0] > 0, 1, -1).astype(DTYPE)
WEIGHTS = np.r_[2.0, 0.0, np.ones(N - 2)].astype(DTYPE)
REPEATED = np.r_[0, 0, 2:N]
NOISE = 0.1
KERNEL = 1.5 * kernax.Matern32(0.9)
PROCESS = kernax.GaussianProcess(KERNEL, 0.2)
KEY = jax.random.key(0)
RTOL = TOLERANCE["solve"]


def latent(process, points=NEW):
    """Means and variances of f."""
    return jax.vmap(process.mean)(points), jax.vmap(process.variance)(points)


def dense(X, Z, kernel=KERNEL):
    """K, Q and `k(Z, Z)^-1 k(Z, NEW)` in NumPy."""
    K, C, S = (np.asarray(kernax.gram(kernel, *of), float) for of in ((X,), (Z, X), (Z,)))
    return K, C.T @ np.linalg.solve(S, C)


@pytest.fixture(scope="module")
def solution():
    return kernax.sgpr(PROCESS, X, Y, NOISE, Z)


@pytest.mark.slow
def test_with_all_points_inducing_it_is_exact_regression():
    found = kernax.sgpr(PROCESS, X, Y, NOISE, X)
    exact = kernax.condition(PROCESS, X, Y, NOISE)
    assert found.stats["jitter"] == 0
    np.testing.assert_allclose(found.stats["bound"], exact.stats["log_evidence"], rtol=RTOL)
    for a, b in zip(latent(found.value), latent(exact.value)):
        np.testing.assert_allclose(a, b, rtol=RTOL, atol=RTOL)


@pytest.mark.slow
def test_the_bound_and_the_posterior_are_those_of_the_paper(solution):
    """Titsias 2009, eqs. 6, 9 and 10, with inverses."""
    K, Q = dense(X, Z)
    bound = multivariate_normal.logpdf(Y, np.full(N, 0.2), Q + NOISE * np.eye(N))
    bound -= np.trace(K - Q) / (2 * NOISE)
    np.testing.assert_allclose(solution.stats["bound"], bound, rtol=RTOL)
    np.testing.assert_allclose(solution.stats["trace"], np.trace(K - Q), rtol=RTOL)
    np.testing.assert_allclose(
        kernax.sgpr_bound(kernax.GaussianProcess(KERNEL, 0.2), X, Y, NOISE, Z), bound, rtol=RTOL
    )
    S, C, R = (np.asarray(kernax.gram(KERNEL, *of), float) for of in ((Z,), (Z, X), (Z, NEW)))
    inner = np.linalg.inv(S + C @ C.T / NOISE)
    mean, variance = latent(solution.value)
    np.testing.assert_allclose(mean, 0.2 + R.T @ inner @ C @ (Y - 0.2) / NOISE, rtol=RTOL)
    expected = 1.5 - np.einsum("ij,ij->j", R, (np.linalg.inv(S) - inner) @ R)
    np.testing.assert_allclose(variance, expected, rtol=RTOL)
    assert isinstance(solution.value.mean, kernax.KernelExpansion)
    assert solution.stats["residual"] < RTOL


@pytest.mark.slow
@needs_x64
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), scale=st.floats(-1.0, 1.0), noise=st.floats(-3.0, 1.0))
def test_the_bound_is_below_the_evidence(seed, scale, noise):
    """Also where Z is nowhere near X, and where k(Z, Z) needs jitter."""
    rng = np.random.default_rng(seed)
    kernel = kernax.RBF(10.0**scale)
    points = rng.normal(size=(N, 2))
    y = rng.normal(size=N)
    near = np.where(rng.uniform(size=(M, 1)) < 0.5, points[:M], 3 * rng.normal(size=(M, 2)))
    Z = np.concatenate([near, near[:1]])  # one of them twice
    bound = kernax.sgpr_bound(kernel, points, y, 10.0**noise, Z)
    evidence = kernax.log_marginal_likelihood(kernel, points, y, 10.0**noise)
    assert bound <= evidence + 1e-8 * abs(evidence)


SCALES = jnp.asarray([1.3, 0.8, 0.2, 0.3], DTYPE)


@pytest.mark.slow
@needs_x64
def test_the_bounds_of_several_outputs_are_summed():
    columns = kernax.sgpr(PROCESS, X, np.stack([Y, SIGNS], 1), NOISE, Z)
    alone = [kernax.sgpr(PROCESS, X, y, NOISE, Z) for y in (Y, SIGNS)]
    np.testing.assert_allclose(
        columns.stats["bound"], sum(one.stats["bound"] for one in alone), rtol=1e-12
    )
    means = jax.vmap(columns.value.mean)(NEW)
    for i in range(2):
        np.testing.assert_allclose(means[:, i], latent(alone[i].value)[0], rtol=1e-10)


class Sparse(eqx.Module):
    """What users write to learn inducing points: they are a field like any other."""

    kernel: kernax.AbstractKernel
    noise: jax.Array = kernax.fields.positive(default=0.1)
    Z: jax.Array = kernax.fields.real(default=None)


def minus_bound(model, X, y):
    return -kernax.sgpr_bound(model.kernel, X, y, model.noise, model.Z)


@pytest.mark.nightly
@needs_x64
def test_inducing_points_are_learned_as_a_field():
    start = Sparse(KERNEL, 0.1, Z)
    solution = kernax.minimise(minus_bound, start, optax.lbfgs(), 30, args=(X, Y))
    learned = solution.value
    fixed = kernax.minimise(
        minus_bound, start, optax.lbfgs(), 30, args=(X, Y), trainable=lambda p, _: p != "Z"
    )
    assert solution.stats["loss"] < fixed.stats["loss"] - 0.1
    assert np.array_equal(fixed.value.Z, Z)
    assert np.max(abs(learned.Z - Z)) > 0.1


def greedy(K, count):
    """The places by the definition, with a solve for each."""
    places = []
    for _ in range(count):
        C = K[places]
        explained = np.einsum("ij,ij->j", C, np.linalg.solve(K[np.ix_(places, places)], C))
        places.append(int(np.argmax(np.diagonal(K) - explained)))
    return places


@pytest.mark.nightly
@needs_x64
def test_points_are_chosen_by_their_conditional_variance():
    K = np.asarray(kernax.gram(KERNEL, X)) * 1.0
    solution = kernax.inducing_points(KERNEL, X, 6)
    places = np.asarray(solution.stats["places"])
    assert places.tolist() == greedy(K, 6)
    np.testing.assert_array_equal(solution.value, X[places])
    _, Q = dense(X, X[places])
    np.testing.assert_allclose(solution.stats["trace"], np.trace(K - Q) / np.trace(K), rtol=1e-9)
    half = kernax.inducing_points(KERNEL, X, N, rtol=0.3)
    number = int(half.stats["number"])
    assert half.stats["trace"] <= 0.3
    assert kernax.inducing_points(KERNEL, X, number - 1, rtol=0).stats["trace"] > 0.3
    assert len(half.value) == number
    inside = jax.jit(lambda X: kernax.inducing_points(KERNEL, X, N, rtol=0.3).value)(X)
    np.testing.assert_array_equal(inside[:number], half.value)
    assert len(np.unique(inside, axis=0)) == N


@pytest.mark.nightly
def test_choosing_stops_where_more_points_would_be_singular():
    """Strings, of which some are copies; and then k(Z, Z) needs no jitter."""
    points = kernax.strings.encode(["TATAAT", "TACGAT", "TATAAT", "GATTACA", "TACGAT"])
    kernel = kernax.Normalised(kernax.Spectrum(2))
    solution = kernax.inducing_points(kernel, points, 5)
    assert solution.stats["number"] == 3
    process = kernax.GaussianProcess(kernel)
    y = jnp.asarray([1.0, 2, 1, 3, 2], DTYPE)
    found = kernax.sgpr(process, points, y, 0.1, solution.value)
    exact = kernax.condition(process, points, y, 0.1)
    assert found.stats["jitter"] == 0
    rtol = TOLERANCE["solve"]
    np.testing.assert_allclose(found.stats["bound"], exact.stats["log_evidence"], rtol=rtol)


def with_gaussian(**settings):
    settings = {"optimiser": None, "n_steps": 1, "rate": 1.0, "key": KEY} | settings
    return kernax.svgp(PROCESS, X, Y, Gaussian(NOISE), Z, **settings)


@pytest.mark.slow
def test_one_natural_gradient_of_all_points_finds_the_collapsed_bound(solution):
    found = with_gaussian()
    np.testing.assert_allclose(found.value.log_evidence, solution.stats["bound"], rtol=RTOL)
    for a, b in zip(latent(found.value.process), latent(solution.value)):
        np.testing.assert_allclose(a, b, rtol=RTOL, atol=RTOL)


@pytest.mark.nightly
@needs_x64
def test_with_all_points_inducing_it_is_variational_inference():
    settings = {"optimiser": None, "n_steps": 200, "rate": 0.5, "key": KEY}
    for likelihood, y in ((Bernoulli(), SIGNS), (Poisson(), np.arange(N) % 4.0)):
        found = kernax.svgp(PROCESS, X, y, likelihood, X, **settings, weights=WEIGHTS)
        exact = kernax.variational(PROCESS, X, y, likelihood, weights=WEIGHTS).value
        np.testing.assert_allclose(found.value.log_evidence, exact.log_evidence, rtol=1e-9)
        for a, b in zip(latent(found.value.process), latent(exact.process)):
            np.testing.assert_allclose(a, b, rtol=1e-7)
        assert found.stats["skipped"] == 0


@pytest.mark.slow
@needs_x64
def test_the_bound_of_minibatches_is_unbiased_and_that_of_its_definition():
    rng = np.random.default_rng(1)
    mean, root = rng.normal(size=M), np.tril(rng.normal(size=(M, M))) + 2 * np.eye(M)
    q = kernax.types.InducingNormal(mean, root + np.triu(np.ones((M, M)), 1))
    likelihood = Gaussian(NOISE)
    bound = lambda X, y, **given: kernax.svgp_bound(PROCESS, X, y, likelihood, Z, q, **given)
    whole = bound(X, Y)
    parts = [bound(X[i::2], Y[i::2], total=N) for i in range(2)]
    np.testing.assert_allclose(np.mean(parts), whole, rtol=1e-12)
    K, Q = dense(X, Z)
    L = np.linalg.cholesky(np.asarray(kernax.gram(KERNEL, Z)))
    U = np.linalg.solve(L, np.asarray(kernax.gram(KERNEL, Z, X)))
    S = root @ root.T
    means, variances = 0.2 + U.T @ mean, np.diagonal(K - Q + U.T @ S @ U)
    losses = ((Y - means) ** 2 + variances) / NOISE + np.log(2 * np.pi * NOISE)
    divergence = np.trace(S) + mean @ mean - M - np.linalg.slogdet(S)[1]
    np.testing.assert_allclose(whole, -(losses.sum() + divergence) / 2, rtol=1e-12)
    np.testing.assert_allclose(
        bound(X, Y, weights=WEIGHTS), bound(X[REPEATED], Y[REPEATED]), rtol=1e-12
    )
    best = kernax.sgpr_bound(kernax.GaussianProcess(KERNEL, 0.2), X, Y, NOISE, Z)
    assert whole < best


@pytest.mark.slow
@needs_x64
def test_gradients_of_the_bound_of_minibatches_are_those_of_differences():
    q = kernax.types.InducingNormal(jnp.linspace(-1, 1, M), 0.5 * jnp.eye(M))

    def of(scales, X, Z, q, weights):
        process = kernax.GaussianProcess(scales[0] * kernax.Matern32(scales[1]))
        given = {"weights": weights, "total": 100}
        return kernax.svgp_bound(process, X, SIGNS, Bernoulli(), Z, q, **given)

    arguments = (SCALES, jnp.asarray(X), jnp.asarray(Z), q, jnp.ones(N))
    check_derivatives(of, arguments, rtol=1e-6, atol=1e-7)


@pytest.mark.nightly
def test_minibatches_learn_everything_that_is_free():
    traces = []

    def counted(_, x, z):
        traces.append(1)
        return jnp.exp(-jnp.sum((x - z) ** 2))

    process = kernax.GaussianProcess(1.5 * kernax.Custom(counted), kernax.ConstantMean(0.2))
    optimiser = optax.adam(0.03)
    free = lambda path, _: not path.endswith("mean.value")
    settings = {"optimiser": optimiser, "batch_size": 5, "rate": 0.2, "trainable": free}
    learn = lambda process, y, key: kernax.svgp(
        process, X, y, Gaussian(0.5), Z, n_steps=150, key=key, **settings
    )
    solution = learn(process, Y, KEY)
    once = len(traces)
    posterior = solution.value
    start = kernax.sgpr_bound(process, X, Y, 0.5, Z)
    assert posterior.log_evidence > start + 1
    assert isinstance(posterior.likelihood, Gaussian)
    assert posterior.likelihood.noise != 0.5
    covariance = posterior.process.covariance
    assert isinstance(covariance, InducedPosteriorKernel)
    assert np.all(covariance.points != Z)
    bound = kernax.sgpr_bound(
        kernax.GaussianProcess(covariance.prior, 0.2),
        X,
        Y,
        posterior.likelihood.noise,
        covariance.points,
    )
    slack = 1e-5 * abs(bound)
    assert posterior.log_evidence <= bound + slack
    assert solution.stats["steps"] == 150
    assert np.all(np.isfinite(solution.stats["losses"]))
    before = len(traces)
    again = learn(process, -Y, jax.random.key(1))
    assert len(traces) == before >= once
    assert again.value.log_evidence != posterior.log_evidence
    same = learn(process, Y, KEY)
    assert same.value.log_evidence == posterior.log_evidence


def bound_in_numpy(points, y, m, noise, jitter):
    """Titsias' bound of an RBF of lengthscale 1 with the first m points inducing, in float64."""
    X, y = np.asarray(points, np.float64), np.asarray(y, np.float64)
    K = np.exp(-np.sum((X[:, None] - X[None]) ** 2, -1) / 2)
    Q = K[:, :m] @ np.linalg.solve(K[:m, :m] + jitter * np.eye(m), K[:m])
    C = Q + noise * np.eye(len(X))
    fit = y @ np.linalg.solve(C, y) + np.linalg.slogdet(2 * np.pi * C)[1]
    return -(fit + np.trace(K - Q) / noise) / 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::kernax.errors.ConditionWarning")
def test_the_rounding_of_a_bound_counts_the_entries_between_inducing_points_and_all_outputs():
    """k(Z, Z) of condition 1e9: in float32 the bound is up to 25 nats off, and says so; where that
    has no factor on some machine, with the jitter that is reported (1.2e-6, by 193 nats).
    """
    rng = np.random.default_rng(1)
    points = rng.normal(size=(800, 2)).astype(np.float32)
    y = (np.sin(points[:, 0]) + 0.01 * rng.normal(size=800)).astype(np.float32)
    process = kernax.GaussianProcess(kernax.RBF(1.0))
    points, y = points.astype(DTYPE), y.astype(DTYPE)
    stats = kernax.sgpr(process, points, y, 0.01, points[:30], throw=False).stats
    expected = bound_in_numpy(points, y, 30, 0.01, float(stats["jitter"]))
    assert abs(stats["bound"] - expected) <= stats["rounding"] + 1e-6
    twice = kernax.sgpr(process, points, np.stack([y, y], 1), 0.01, points[:30], throw=False).stats
    np.testing.assert_allclose(twice["rounding"], 2 * stats["rounding"], rtol=0.1)


def test_a_bound_that_nothing_can_raise_has_not_diverged():
    """With that much noise the bound of the posterior is that of the prior, up to rounding."""
    settings = {"optimiser": None, "n_steps": 1, "rate": 1.0, "key": KEY}
    for power in range(4, 20):
        found = kernax.svgp(PROCESS, X, Y, Gaussian(10.0**power), Z, **settings, throw=False)
        assert found.result == kernax.RESULTS.successful


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::kernax.errors.ConditionWarning")
def test_natural_gradients_that_were_all_skipped_are_no_success():
    heavy = CustomLikelihood(lambda _, y, f: -3.0 * jnp.log1p(20 * (y - f) ** 2))
    settings = {"optimiser": None, "n_steps": 5, "rate": 1.0, "key": KEY}
    kept = kernax.svgp(PROCESS, X, Y + 5, heavy, Z, **settings, throw=False)
    assert kept.stats["skipped"] == 5
    assert kept.result == kernax.RESULTS.stagnation


def test_inducing_points_that_a_kernel_does_not_take_are_refused():
    kernel = kernax.On(kernax.RBF(), 0) * kernax.On(
        kernax.kernels.Coregionalisation(np.eye(2), np.ones(2)), 1
    )
    points = (X, np.arange(N) % 2)
    with pytest.raises(ValueError, match="a task must be one of 0"):
        kernax.sgpr_bound(kernel, points, Y, NOISE, (Z, np.full(M, 7)))


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::kernax.errors.ConditionWarning")
def test_a_bad_ending_is_no_success():
    settings = {"optimiser": optax.sgd(1e6), "n_steps": 20, "key": KEY}
    lost = kernax.svgp(PROCESS, X, Y, Gaussian(NOISE), Z, **settings, throw=False)
    assert lost.result == kernax.RESULTS.nonfinite
    assert np.all(np.isfinite(latent(lost.value.process)[0]))  # of the last finite model
    with pytest.raises(kernax.errors.NonFiniteError):
        kernax.svgp(PROCESS, X, Y, Gaussian(NOISE), Z, **settings)
    # Of curvatures below zero: Student's t, in a step too long for its outlier.
    heavy = CustomLikelihood(lambda _, y, f: -3.0 * jnp.log1p(20 * (y - f) ** 2))
    kept = kernax.svgp(
        PROCESS, X, Y, heavy, Z, optimiser=None, n_steps=5, rate=1.0, key=KEY, throw=False
    )
    assert np.isfinite(kept.value.log_evidence)
    steps = {"optimiser": optax.adam(50.0), "n_steps": 30, "key": KEY}
    errors = (kernax.errors.DivergedError, kernax.errors.NonFiniteError)  # in float32 the second
    with pytest.raises(errors, match="smaller steps"):
        kernax.svgp(PROCESS, X, Y, Gaussian(NOISE), Z, **steps)
    huge = kernax.sgpr(kernax.GaussianProcess(1e38 * KERNEL), 1e3 * X, Y, 1e-30, Z, throw=False)
    assert (huge.result == kernax.RESULTS.successful) == X64
    assert np.isfinite(huge.stats["bound"]) == X64


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kernax.sgpr(PROCESS, X, Y, 0.0, Z), "noise must be positive"),
        (lambda: kernax.sgpr(PROCESS, X, Y, NOISE, Z[:, :1]), "points must be vectors of one"),
        (lambda: kernax.sgpr(PROCESS, X, Y, NOISE, Z * np.nan), "Z holds NaN"),
        (lambda: untyped(kernax.sgpr)(kernax.RBF, X, Y, NOISE, Z), "process must be"),
        (lambda: kernax.inducing_points(KERNEL, X, N + 1), "n_points must be at most"),
        (lambda: kernax.inducing_points(KERNEL, X, 0), "n_points must be a positive"),
        (lambda: kernax.inducing_points(KERNEL, X, 2, rtol=-1.0), "rtol must be"),
        (lambda: with_gaussian(batch_size=N + 1), "batch_size must be at most"),
        (lambda: with_gaussian(rate=0.0), "rate must be in"),
        (lambda: with_gaussian(n_steps=0), "n_steps must be"),
        (lambda: untyped(kernax.svgp)(
            PROCESS, X, Y, Gaussian(), Z, optimiser=0.1, n_steps=1, key=KEY
        ), "optimiser must be None or one of optax"),
        (lambda: untyped(kernax.svgp)(
            PROCESS, X, Y, Gaussian(), Z, optimiser=None, n_steps=1, key=1
        ), "key must be"),
        (lambda: kernax.svgp_bound(
            PROCESS, X, Y, Gaussian(), Z, kernax.types.InducingNormal.prior(3)
        ), "q must have shapes"),
        (lambda: untyped(kernax.svgp_bound)(
            PROCESS, X, Y, Gaussian(), Z, (jnp.zeros(M), jnp.eye(M))
        ), "q must be an InducingNormal"),
        (lambda: kernax.svgp_bound(
            PROCESS, X, Y, Gaussian(), Z, kernax.types.InducingNormal.prior(M), total=3
        ), "total must be"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.slow
def test_memory_is_of_n_m():
    """Value and gradient: n = 20000 and m = 50, of which n x n would be 3.2 GB in float64."""
    n, m = 20_000, 50
    shapes = [jax.ShapeDtypeStruct(shape, DTYPE) for shape in ((n, 2), (n,), (m, 2))]
    of = lambda X, y, Z: kernax.sgpr_bound(KERNEL, X, y, NOISE, Z)
    program = jax.jit(jax.value_and_grad(of, (0, 2))).lower(*shapes).compile(compiler_options=FUSED)
    held = program.memory_analysis().temp_size_in_bytes / (n * m * shapes[0].dtype.itemsize)
    assert held < 8, held
    choose = lambda X: kernax.inducing_points(KERNEL, X, m).value
    program = jax.jit(choose).lower(shapes[0]).compile(compiler_options=FUSED)
    held = program.memory_analysis().temp_size_in_bytes / (n * m * shapes[0].dtype.itemsize)
    assert held < 3, held


@pytest.mark.nightly
@needs_x64
def test_snelson_by_few_points_is_close_to_the_exact_evidence():
    """Fifteen learned points: measured 89.83 against 89.8103 of exact regression."""
    data = real_data("snelson")
    X, y = data["x_train"].reshape(-1, 1), data["y_train"].ravel()
    X, y = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    Z = kernax.inducing_points(kernax.RBF(0.5), X, 15).value
    solution = kernax.minimise(
        minus_bound, Sparse(1.0 * kernax.RBF(0.5), 0.1, Z), optax.lbfgs(), 200, args=(X, y)
    )
    assert 89.81 < solution.stats["loss"] < 89.9
