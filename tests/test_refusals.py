"""Functions whose matrices do not fit name another way, and that way is there."""

import resource
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import footprints, marked, needs_x32, needs_x64, untyped
from stored_matrices import (
    AMONG_INDUCING,
    CALLS,
    CENTRES,
    KEY,
    PRIOR,
    RBF,
    aligned_sum,
    log_density,
)

import kernax
from kernax.core.operators import memory
from kernax.errors import MemoryBudgetError
from kernax.likelihoods import Bernoulli
from kernax.losses import Absolute, Huber, Logistic
from kernax.samples import herding, stein_thin
from kernax.solvers import ConjugateGradient, PivotedCholesky, StochasticLanczos

FOOTPRINTS = footprints()
N, M = 512, 12
# A dense matrix in float64 takes 2 MiB; n x m numbers take 48 kiB.
BYTES = 2**20


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    return X, np.sin(X[:, 0]), np.sign(X[:, 0] + X[:, 1])


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(memory, "_SMALL", 0)
    monkeypatch.setattr(memory, "available_memory", lambda devices: BYTES)


def in_features(X):
    return kernax.nystrom(RBF, X, M, key=KEY)


def one_hot(signs):
    return np.stack([signs > 0, signs <= 0], 1).astype(float)


def first_column(X):
    """Of a stack; a vector of numbers as it is."""
    return X[:, :1] if X.ndim == 2 else X


def along_a_line(X, y):
    process = kernax.GaussianProcess(kernax.Matern32())
    line = X.reshape(N, -1)[:, :1]
    return kernax.condition(process, line, y, 0.1, solver=kernax.solvers.StateSpace()).value


def svgp(X, y, Z, optimiser):
    return kernax.svgp(PRIOR, X, y, Bernoulli(), Z, optimiser=optimiser, n_steps=5, key=KEY)


FAST = ConjugateGradient(preconditioner=PivotedCholesky(KEY))
WITH_EVIDENCE = ConjugateGradient(
    preconditioner=PivotedCholesky(KEY), determinant=StochasticLanczos(KEY)
)
IN_FEATURES = "kernax.nystrom(kernel, X, m, key=key) as the kernel"
# Words of the way out of a refusal, and that way; of points, numbers and signs.
WAYS = {
    "gram": (
        'gram_operator(kernel, X, block_size="auto")',
        lambda X, y, s: kernax.gram_operator(RBF, X, block_size=64).mv(jnp.asarray(y)),
    ),
    "kernel_ridge": (
        "kernax.falkon(kernel, X, y, ridge, m, key=key) for",
        lambda X, y, s: kernax.falkon(RBF, X, y, 0.1, M, key=KEY),
    ),
    "condition": (
        "solver=ConjugateGradient(preconditioner=PivotedCholesky(key))",
        lambda X, y, s: kernax.sgpr(PRIOR, X, y, 0.1, X[:M]),
    ),
    "log_marginal_likelihood": (
        "(preconditioner=PivotedCholesky(key), determinant=StochasticLanczos(key))",
        lambda X, y, s: kernax.sgpr_bound(RBF, X, y, 0.1, X[:M]),
    ),
    "kernel_logistic": (
        "(kernel, X, y, ridge, m, key=key, loss=kernax.losses.Logistic(), bias=True)",
        lambda X, y, s: kernax.falkon(RBF, X, s, 0.1, M, key=KEY, loss=Logistic(), bias=True),
    ),
    "regularised_risk": (
        "kernax.falkon(kernel, X, y, ridge, m, key=key, loss=loss)",
        lambda X, y, s: kernax.falkon(RBF, X, y, 0.1, M, key=KEY, loss=Huber()),
    ),
    "regularised_risk of a piecewise linear loss": (
        IN_FEATURES,
        lambda X, y, s: kernax.regularised_risk(in_features(X), X, y, 1.0, loss=Absolute()),
    ),
    "svm": (
        IN_FEATURES,
        lambda X, y, s: kernax.svm(in_features(X), X, s, 1.0),
    ),
    "support_vector_regression": (
        "block_size=...",
        lambda X, y, s: kernax.support_vector_regression(RBF, X, y, 1.0, 0.1, block_size=64),
    ),
    "nu_svm": (
        "block_size=...",
        lambda X, y, s: kernax.nu_svm(RBF, X, s, 0.1, block_size=64),
    ),
    "nu_support_vector_regression": (
        "block_size=...",
        lambda X, y, s: kernax.nu_support_vector_regression(RBF, X, y, 1.0, 0.1, block_size=64),
    ),
    "one_class_svm": (
        "block_size=...",
        lambda X, y, s: kernax.one_class_svm(RBF, X, 0.1, block_size=64),
    ),
    "import_vector_machine": (
        "block_size=...",
        lambda X, y, s: kernax.import_vector_machine(
            RBF, X, s, 0.1, block_size=64, max_vectors=5, throw=False
        ),
    ),
    "kernel_perceptron": (
        IN_FEATURES,
        lambda X, y, s: kernax.kernel_perceptron(in_features(X), X, s, throw=False),
    ),
    "kernel_pca": (
        IN_FEATURES,
        lambda X, y, s: kernax.kernel_pca(in_features(X), X, 2),
    ),
    "kernel_kmeans": (
        IN_FEATURES,
        lambda X, y, s: kernax.kernel_kmeans(in_features(X), X, 2, key=KEY),
    ),
    "kernel_softmax": (
        IN_FEATURES,
        lambda X, y, s: kernax.kernel_softmax(in_features(X), X, one_hot(s), 0.1),
    ),
    "leave_one_out": (
        IN_FEATURES,
        lambda X, y, s: kernax.leave_one_out(in_features(X), X, y, 0.1),
    ),
    "leave_one_out_predictions": (
        IN_FEATURES,
        lambda X, y, s: kernax.leave_one_out_predictions(
            kernax.GaussianProcess(in_features(X)), X, y, 0.1
        ),
    ),
    "generalised_cross_validation": (
        IN_FEATURES,
        lambda X, y, s: kernax.selection.generalised_cross_validation(in_features(X), X, y, 0.1),
    ),
    "laplace": (
        IN_FEATURES,
        lambda X, y, s: kernax.laplace(kernax.GaussianProcess(in_features(X)), X, s, Bernoulli()),
    ),
    "expectation_propagation": (
        "kernax.svgp(process, X, y, likelihood, Z, ...)",
        lambda X, y, s: kernax.svgp(
            PRIOR, X, s, Bernoulli(), X[:M], optimiser=None, n_steps=5, key=KEY
        ),
    ),
    "variational": (
        "kernax.svgp(process, X, y, likelihood, Z, ...)",
        lambda X, y, s: kernax.svgp(
            PRIOR, X, s, Bernoulli(), X[:M], optimiser=None, n_steps=5, key=KEY
        ),
    ),
    "herding": (
        "block_size=...",
        lambda X, y, s: herding(RBF, X, 4, block_size=16),
    ),
    "stein_thin": (
        "block_size=...",
        lambda X, y, s: stein_thin(RBF, X, log_density, 4, block_size=4),
    ),
    "sample": (
        "kernax.pathwise_sample(process, key=key, n_samples=..., point=x)",
        lambda X, y, s: kernax.pathwise_sample(PRIOR, key=KEY, n_samples=2, point=X[0]),
    ),
    "sample along a line": (
        "fewer draws at a time",
        lambda X, y, s: along_a_line(X, y).sample(first_column(X), key=KEY, shape=(2,)),
    ),
    "falkon": (
        "take fewer centres",
        lambda X, y, s: kernax.falkon(RBF, X, y, 0.1, X[:M]),
    ),
    "svgp": (
        "take fewer inducing points",
        lambda X, y, s: svgp(X, s, X[:M], None),
    ),
    "svgp with an optimiser": (
        "take fewer inducing points",
        lambda X, y, s: svgp(X, s, X[:M], optax.sgd(0.01)),
    ),
    "svgp_bound": (
        "take fewer inducing points",
        lambda X, y, s: kernax.svgp_bound(
            PRIOR, X, s, Bernoulli(), X[:M], kernax.types.InducingNormal.prior(M)
        ),
    ),
    "aligned_sum": (
        "kernax.selection.alignment(kernel, X, y) of one kernel",
        lambda X, y, s: kernax.selection.alignment(RBF, X[:100], y[:100]),
    ),
    "nystrom": (
        "take fewer centres",
        lambda X, y, s: kernax.nystrom(RBF, X, X[:M]),
    ),
}
# Calls with classes in columns, or along a line.
OWN_CALLS = {
    "kernel_softmax": lambda X, y, s: kernax.kernel_softmax(RBF, X, one_hot(s), 0.1),
    "sample along a line": lambda X, y, s: along_a_line(X, y).sample(
        first_column(X), key=KEY, shape=(4000,)
    ),
}
# Functions for which there is nothing but fewer points.
WITHOUT_A_WAY = [name for name in CALLS if name not in WAYS]
OF_FEW = CENTRES | AMONG_INDUCING


def refused(name, X, y, s):
    """The call that does not fit."""
    if name in OWN_CALLS:
        return OWN_CALLS[name](X, y, s)
    if name in OF_FEW:
        return OF_FEW[name](X, s, X[:200])
    return (CALLS | {"aligned_sum": aligned_sum(2)})[name](X, s, None)


def test_every_advice_is_tried():
    with_advice = {
        name
        for name, footprint in FOOTPRINTS.items()
        if footprint.instead or footprint.fewer != "fewer points"
    }
    assert set(WAYS) == with_advice


@needs_x64
@pytest.mark.parametrize("name", WAYS)
def test_a_refusal_names_the_function_and_the_way_out(name, data, little_memory):
    words, _ = WAYS[name]
    with pytest.raises(MemoryBudgetError) as error:
        refused(name, *data)
    assert f"needed by {name} for " in str(error.value)
    assert words in str(error.value)
    assert ("take fewer points" in str(error.value)) != (name in OF_FEW)


@needs_x64
@pytest.mark.parametrize("name", WITHOUT_A_WAY)
def test_a_refusal_without_a_way_out_names_the_function_and_fewer_points(name, data, little_memory):
    """Catches the name of another function, and an argument that this one does not take."""
    with pytest.raises(MemoryBudgetError) as error:
        refused(name, *data)
    assert f"needed by {name} for " in str(error.value)
    assert str(error.value).endswith(" available; take fewer points")


@needs_x64
@pytest.mark.parametrize("name", WAYS)
def test_a_vector_of_numbers_is_told_that_it_is_no_stack_before_memory_is_spoken_of(
    name, data, little_memory
):
    """What is missing is `t[:, None]`, and not memory."""
    X, y, s = data
    with pytest.raises(ValueError, match=r"must\s+have shape \(n, 1\); pass X\[:, None\]"):
        refused(name, X[:, 0], y, s)


OTHER_FAULTS = {
    "ridge must": lambda X, y: kernax.kernel_ridge(RBF, X, y, -0.1),
    "noise must": lambda X, y: kernax.condition(PRIOR, X, y, -0.1),
    "C must": lambda X, y: kernax.svm(RBF, X, np.sign(y), -1.0),
    "epsilon must": lambda X, y: kernax.support_vector_regression(RBF, X, y, 1.0, -0.1),
    "nu must": lambda X, y: kernax.one_class_svm(RBF, X, 2.0),
    "components must": lambda X, y: kernax.kernel_pca(RBF, X, 0),
    "rtol must": lambda X, y: kernax.inducing_points(RBF, X, 300, rtol=-1.0),
    "delta must": lambda X, y: kernax.samples.thin(RBF, X, 1, key=KEY, delta=2.0),
    "loss must be smooth": lambda X, y: untyped(kernax.falkon)(
        RBF, X, y, 0.1, X[:200], loss=Absolute()
    ),
    "steps must": lambda X, y: kernax.svgp(
        PRIOR, X, np.sign(y), Bernoulli(), X[:200], optimiser=None, n_steps=0, key=KEY
    ),
    "q must have shapes": lambda X, y: kernax.svgp_bound(
        PRIOR, X, np.sign(y), Bernoulli(), X[:200], kernax.types.InducingNormal.prior(3)
    ),
}


@needs_x64
@pytest.mark.parametrize("words", OTHER_FAULTS)
def test_a_parameter_is_checked_before_memory(words, data, little_memory):
    with pytest.raises(ValueError, match=words):
        OTHER_FAULTS[words](*data[:2])


MANY = np.zeros((12_000, 2))
# Each asks for more than the 8 GiB of the test, and none of it may be allocated.
LARGE = {
    "aligned_sum": lambda: kernax.selection.aligned_sum(12 * [RBF], MANY, np.arange(12_000.0)),
    "two_sample_test": lambda: kernax.samples.two_sample_test(
        RBF, MANY[:3000], MANY[:3000], n_permutations=300_000, key=KEY
    ),
    "independence_test": lambda: kernax.samples.independence_test(
        RBF, RBF, MANY[:6000], MANY[:6000], n_permutations=300_000, key=KEY
    ),
    "goodness_of_fit_test": lambda: kernax.samples.goodness_of_fit_test(
        RBF, MANY[:6000], lambda x: -jnp.sum(x**2), n_resamples=300_000, key=KEY
    ),
    "svgp": lambda: kernax.svgp(
        PRIOR,
        np.zeros((50_000, 1)),
        np.ones(50_000),
        Bernoulli(),
        np.zeros((50_000, 1)),
        optimiser=None,
        n_steps=1,
        key=KEY,
    ),
    "KernelRecursiveLeastSquares": lambda: kernax.online.run(
        kernax.online.KernelRecursiveLeastSquares(RBF, 0.1, 50_000), MANY[:2], np.zeros(2)
    ),
    "DualLearner": lambda: kernax.online.run(
        kernax.online.DualLearner(kernax.online.Perceptron(), RBF, kernax.online.Project(50_000)),
        MANY[:2],
        np.ones(2),
    ),
    "pathwise_sample": lambda: kernax.pathwise_sample(
        PRIOR, key=KEY, n_samples=1000, point=np.zeros(2), n_features=2_000_000
    ),
    "Precomputed": lambda: kernax.Precomputed(np.broadcast_to(1.0, (50_000, 50_000))),
    "random_fourier_features": lambda: kernax.random_fourier_features(RBF, 500_000_000, 3, key=KEY),
}


@needs_x64
@pytest.mark.parametrize("name", LARGE)
def test_what_would_take_tens_of_gigabytes_is_refused_at_once(name, monkeypatch):
    """The process may not grow by more than 200 MiB, nor take more than ten seconds."""
    monkeypatch.setattr(memory, "available_memory", lambda devices: 8 * 2**30)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    with pytest.raises(MemoryBudgetError, match=name):
        LARGE[name]()
    assert time.perf_counter() - begin < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most < 200 * 1024


@needs_x64
@pytest.mark.parametrize("share", [0.45, 0.55])
def test_float32_is_advised_where_it_fits(data, monkeypatch, share):
    needed = FOOTPRINTS["kernel_ridge"].matrices_in(np.float64) * 8 * N**2
    monkeypatch.setattr(memory, "_SMALL", 0)
    monkeypatch.setattr(memory, "available_memory", lambda devices: int(share * needed))
    with pytest.raises(MemoryBudgetError) as refused:
        kernax.kernel_ridge(RBF, *data[:2], 0.1)
    assert ("or float32" in str(refused.value)) == (share > 0.5)


@needs_x64
@pytest.mark.parametrize("name", CENTRES)
def test_matrices_of_centres_are_counted_in_double_precision_whatever_the_points_are(
    name, data, monkeypatch
):
    monkeypatch.setattr(memory, "_SMALL", 0)
    X, y, s = (array.astype(np.float32) for array in data)
    needed = FOOTPRINTS[name].matrices * 200**2 * 8
    monkeypatch.setattr(memory, "available_memory", lambda devices: int(0.9 * needed))
    with pytest.raises(MemoryBudgetError, match=r"in float64, .* take fewer centres"):
        refused(name, X, y, s)


@needs_x64
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    marked(
        pytest.mark.nightly,
        WAYS,
        "nu_svm",
        "nu_support_vector_regression",
        "kernel_logistic",
        "regularised_risk",
        "regularised_risk of a piecewise linear loss",
        "support_vector_regression",
        "one_class_svm",
        "import_vector_machine",
        "kernel_softmax",
        "sample along a line",
        "svgp with an optimiser",
    ),
)
def test_the_way_out_works_in_the_memory_that_there_is(name, data, little_memory):
    """Catches an advice that is refused in its turn."""
    value = WAYS[name][1](*data)
    leaves = [leaf for leaf in jax.tree.leaves(value) if hasattr(leaf, "dtype")]
    assert all(
        np.all(np.isfinite(leaf)) for leaf in leaves if np.issubdtype(leaf.dtype, np.floating)
    )


@needs_x64
@pytest.mark.nightly
def test_conjugate_gradients_take_the_place_of_the_whole_matrix(data, monkeypatch):
    """Their limit of points to hold K for lies above the number here, and is lowered."""
    from kernax.core.operators import gram

    X, y, _ = data
    exact = kernax.condition(PRIOR, X, y, 0.1)
    monkeypatch.setattr(gram, "MOST_HELD", N - 1)
    monkeypatch.setattr(memory, "_SMALL", 0)
    monkeypatch.setattr(memory, "available_memory", lambda devices: BYTES)
    fast = kernax.condition(PRIOR, X, y, 0.1, solver=FAST)
    difference = fast.value.mean.coefficients - exact.value.mean.coefficients
    assert float(jnp.max(abs(difference))) < 1e-7 * float(jnp.max(abs(y)))
    told = kernax.condition(PRIOR, X, y, 0.1, solver=WITH_EVIDENCE).stats
    known = float(exact.stats["log_evidence"])
    error = float(told["standard_error"])
    bias = float(told["bias_bound"])
    assert abs(float(told["log_evidence"]) - known) < 3 * error + bias
    assert bias < error
    assert error < 0.02 * abs(known)


@needs_x32
def test_a_refusal_takes_less_than_a_second():
    """J04: nothing is allocated or compiled before."""
    X = np.zeros((200_000, 2), np.float32)
    kernax.gram(RBF, X[:2])
    for call in (
        lambda: kernax.gram(RBF, X),
        lambda: kernax.condition(PRIOR, X, X[:, 0], 0.1),
        lambda: kernax.kernel_ridge(RBF, X, X[:, 0], 0.1),
    ):
        with pytest.raises(MemoryBudgetError, match=r"GiB needed .*available; use"):
            call()
        begin = time.perf_counter()
        with pytest.raises(MemoryBudgetError):
            call()
        assert time.perf_counter() - begin < 1
