"""Large systems by products alone: preconditioned conjugate gradients, and evidence by stochastic
Lanczos quadrature, held to the answers of Cholesky's factor.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
import scipy.linalg
from conftest import DTYPE, X64, assert_close, check_derivatives, needs_x64
from hypothesis import given
from hypothesis import strategies as st

import kernax
from kernax.core.base.compiled import compiled
from kernax.core.base.weights import PointWeights, UnitWeights
from kernax.core.linalg.lanczos import AbstractLanczos, log_determinant_by_probes
from kernax.core.operators.blocked import BlockedGram
from kernax.core.operators.gram import gram_operator
from kernax.core.operators.operators import WeightedForm
from kernax.errors import MaxStepsError
from kernax.solvers import (
    ConjugateGradient,
    JitteredCholesky,
    NystromPreconditioner,
    PivotedCholesky,
    StochasticLanczos,
)

KEY = jax.random.key(0)
N = 64
ZERO = jnp.zeros(N, DTYPE)
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 3, (N, 2)).astype(DTYPE)
X[40:43] = X[7]  # copies
Y = (np.sin(X.sum(1)) + 0.1 * RNG.normal(size=N)).astype(DTYPE)
WEIGHTS = RNG.integers(0, 3, N).astype(DTYPE)
NEW = jnp.asarray(RNG.uniform(0, 3, (5, 2)), DTYPE)
KERNEL = 1.3 * kernax.Matern32(0.7)
NOISE = 0.1
PRECONDITIONERS = {
    "none": None,
    "nystrom": NystromPreconditioner(KEY),
    "pivots": PivotedCholesky(KEY, block_size=8),
    "all pivots": PivotedCholesky(KEY, rank=N),
}


class Hadamard(AbstractLanczos):
    """Probes `z` with `mean z z^T = I`, of which every trace is exact."""

    n_steps: int = eqx.field(static=True, default=N)

    def signs(self, n, dtype):
        return jnp.asarray(scipy.linalg.hadamard(n), dtype)


def exact(preconditioner=None):
    """A solver whose only errors are rounding and its tolerance."""
    return ConjugateGradient(preconditioner=preconditioner, determinant=Hadamard())


@compiled
def answers(kernel, weights, noise, solver):
    """The evidence, the posterior at new points, and draws of it."""
    process = kernax.GaussianProcess(kernel, 0.2)
    solution = kernax.condition(process, X, Y, noise, weights=weights, solver=solver, throw=False)
    posterior = solution.value
    at = jax.vmap(lambda x: (posterior.mean(x), posterior.variance(x)))(NEW)
    cross = posterior.covariance(NEW[0], NEW[1])
    paths = kernax.pathwise_sample(posterior, key=KEY, n_samples=2, n_features=20, throw=False)
    at_points = jax.tree.leaves((at, cross, jax.vmap(paths)(NEW)))
    return solution.stats["log_evidence"], jnp.concatenate([jnp.ravel(a) for a in at_points])


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["none", "nystrom", "pivots"])
def test_answers_by_products_are_those_of_cholesky(name):
    """Points in no order, copies, weights of 0, 1 and 2."""
    weights = WEIGHTS if name == "pivots" else None
    found = answers(KERNEL, weights, NOISE, exact(PRECONDITIONERS[name]))
    expected = answers(KERNEL, weights, NOISE, JitteredCholesky())
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        assert_close(a, b, 1e-8 if X64 else 2e-3)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unit", "weighted"])
def test_gradients_by_products_are_those_of_cholesky(weights):
    """In the kernel, the noise, the targets and the weights, those of zero as well."""

    def evidence(theta, solver):
        scale, noise, y, w = theta
        kernel = scale * kernax.Matern32(0.7 * scale)
        w = None if weights is None else w
        return kernax.log_marginal_likelihood(kernel, X, y, noise, weights=w, solver=solver)

    theta = (1.2, 0.1, jnp.asarray(Y), jnp.asarray(WEIGHTS))
    gradient = jax.jit(jax.grad(evidence))
    found = gradient(theta, exact(PRECONDITIONERS["pivots"]))
    expected = gradient(theta, JitteredCholesky())
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        assert_close(a, b, 1e-6)


@needs_x64
@pytest.mark.slow
def test_hessians_by_products_are_those_of_cholesky():
    def evidence(theta, solver):
        kernel = theta[0] * kernax.Matern32(theta[1])
        return kernax.log_marginal_likelihood(kernel, X, Y, theta[2], solver=solver)

    theta = jnp.asarray([1.3, 0.7, 0.1])
    hessian = jax.jit(jax.hessian(evidence))
    found = hessian(theta, exact(PRECONDITIONERS["pivots"]))
    assert_close(found, hessian(theta, JitteredCholesky()), 1e-6)


@pytest.mark.nightly
@needs_x64
def test_predictions_by_products_are_differentiable():
    def predicted(scale, noise, y):
        process = kernax.GaussianProcess(scale * kernax.Matern32(0.7))
        solver = ConjugateGradient(1e-13, preconditioner=PivotedCholesky(KEY, block_size=8))
        posterior = kernax.condition(process, X, y, noise, solver=solver, throw=False).value
        return jax.vmap(posterior.mean)(NEW), jax.vmap(posterior.variance)(NEW)

    check_derivatives(predicted, (1.3, 0.1, Y), rtol=1e-5, atol=1e-7)


@eqx.filter_jit
def of_diagonal(values, signs, steps):
    """The log determinant of a diagonal matrix; one program for each number of steps."""
    return log_determinant_by_probes(lambda v: values * v, signs, steps, jnp.min(values))


@pytest.mark.slow
@needs_x64
def test_the_standard_error_of_a_log_determinant_is_right():
    """L10, over 20 keys; and twice the same bits from one key."""
    Q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(100, 100)))
    K = jnp.asarray(Q @ np.diag(np.arange(1.0, 101)) @ Q.T)
    truth = np.sum(np.log(np.arange(1.0, 101)))

    @jax.jit
    def estimate(key):
        signs = StochasticLanczos(key, n_probes=64).signs(100, K.dtype)
        return log_determinant_by_probes(lambda v: K @ v, signs, 30)

    found = [estimate(key) for key in jax.random.split(KEY, 20)]
    off = np.array([abs(one.value - truth) for one in found])
    errors = np.array([one.standard_error for one in found])
    assert np.sum(off <= 3 * errors) >= 18
    assert np.all(off <= 5 * errors)
    assert 0.4 < np.sqrt(np.mean(off**2) / np.mean(errors**2)) < 1.6
    assert estimate(KEY).value == estimate(KEY).value
    whole = jax.jit(lambda Q: log_determinant_by_probes(lambda v: K @ v, Q, 100))(Q)
    by_probe = np.sum((Q.T @ scipy.linalg.logm(np.asarray(K))) * Q.T, 1)
    np.testing.assert_allclose(whole.value, np.mean(by_probe), rtol=1e-8)


@needs_x64
def test_the_errors_of_a_log_determinant_do_not_depend_on_units():
    values = jnp.asarray(np.logspace(0, 4, 100) * np.random.default_rng(0).uniform(1, 2, 100))
    signs = StochasticLanczos(KEY).signs(100, values.dtype)
    Q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(100, 100)))

    @jax.jit
    def estimate(unit):
        multiply = lambda v: unit * (Q @ (values * (Q.T @ v)))
        return log_determinant_by_probes(multiply, signs, 4, unit)

    one, other = estimate(1.0), estimate(1e6)
    assert_close(one.standard_error, other.standard_error, 1e-6)
    assert_close(one.bias_bound, other.bias_bound, 1e-6)


def test_a_multiple_of_the_identity_has_the_determinant_of_its_first_step():
    """Lanczos's method ends there: the next vector is zero."""
    signs = StochasticLanczos(KEY).signs(10, DTYPE)
    found = of_diagonal(jnp.full(10, 3, DTYPE), signs, 5)
    np.testing.assert_allclose(found.value, 10 * np.log(3), rtol=1e-6)


@pytest.mark.nightly
@needs_x64
def test_a_preconditioner_makes_the_standard_error_smaller():
    def errors(preconditioner):
        solver = ConjugateGradient(
            preconditioner=preconditioner, determinant=StochasticLanczos(KEY, n_steps=40)
        )
        process = kernax.GaussianProcess(KERNEL)
        stats = kernax.condition(process, X, Y, 0.01, solver=solver).stats
        truth = kernax.log_marginal_likelihood(KERNEL, X, Y, 0.01)
        return abs(stats["log_evidence"] - truth), stats["standard_error"]

    off, plain = errors(None)
    assert off < 4 * plain
    off, near = errors(PivotedCholesky(KEY, rank=48, block_size=8))
    assert off < 4 * near
    assert 3 * near < plain


def test_a_residual_that_is_rounding_ends_soon_and_is_no_success():
    """In float32, where all that is left is what the products themselves are off."""
    points = np.linspace(0, 1, 400, dtype=np.float32)[:, None]
    operator = kernax.gram_operator(kernax.Matern32(2.0), points, ridge=1e-4)
    solution = kernax.solvers.solve(
        operator, np.sin(6 * points[:, 0]), ConjugateGradient(), throw=False
    )
    assert solution.result == kernax.RESULTS.breakdown
    assert 100 < solution.stats["steps"] < 400  # measured: 210, and 1000 without an end of its own
    assert 2 * ConjugateGradient().tolerance(np.float32) < solution.stats["residual"] < 0.1


@needs_x64
def test_a_hard_system_whose_residual_stands_for_long_is_solved():
    """At a condition of 1e10 some hundred steps in a row may gain nothing."""
    Q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(60, 60)))
    A = jnp.asarray((Q * np.logspace(0, -10, 60)) @ Q.T)
    b = A @ np.random.default_rng(5).normal(size=60)
    operator = lx.MatrixLinearOperator(A, lx.positive_semidefinite_tag)
    solution = kernax.solvers.solve(operator, b, ConjugateGradient(max_steps=20000))
    assert solution.stats["steps"] > 1000  # measured: 4218
    assert solution.stats["residual"] < 2 * ConjugateGradient().tolerance(float)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nystrom", "pivots"])
def test_a_preconditioner_saves_steps_and_changes_no_solution(name):
    operator = kernax.gram_operator(KERNEL, X, ridge=1e-2, block_size=8)
    plain = kernax.solvers.solve(operator, Y, ConjugateGradient())
    fewer = kernax.solvers.solve(
        operator, Y, ConjugateGradient(preconditioner=PRECONDITIONERS[name])
    )
    assert 1.5 * int(fewer.stats["steps"]) < int(plain.stats["steps"])
    assert_close(fewer.value, plain.value, 1e-7 if X64 else 5e-3)


def test_all_pivots_leave_hardly_a_step():
    operator = kernax.gram_operator(KERNEL, X, ridge=1e-2)
    solver = ConjugateGradient(preconditioner=PRECONDITIONERS["all pivots"])
    assert kernax.solvers.solve(operator, Y, solver).stats["steps"] <= 10


@eqx.filter_jit
def features_of(preconditioner, form):
    features, _ = preconditioner.features(form)
    return features


@needs_x64
def test_pivots_stop_where_less_than_the_shift_is_left():
    """The rank that is needed, not the one that is allowed."""

    def features(noise):
        weights = PointWeights(jnp.ones(N))
        form = WeightedForm(BlockedGram(KERNEL, jnp.asarray(X), 8), weights, jnp.full(N, noise))
        F = features_of(PivotedCholesky(KEY, rank=N, block_size=8), form)
        return F, np.trace(kernax.gram(KERNEL, X) - F @ F.T)

    for noise in (1.0, 1e-2):
        F, left = features(noise)
        assert left <= N * noise
    few = np.sum(np.any(np.asarray(features(1.0)[0]) != 0, 0))
    assert few < np.sum(np.any(np.asarray(F) != 0, 0)) <= N


@pytest.mark.parametrize(("rank", "block"), [(33, 32), (5, 2), (3, 8)])
def test_pivots_make_no_more_columns_than_they_are_allowed(rank, block):
    form = WeightedForm(BlockedGram(KERNEL, jnp.asarray(X), 8), UnitWeights(N, DTYPE), ZERO)
    features = features_of(PivotedCholesky(KEY, rank=rank, block_size=block), form)
    assert features.shape[1] == min(rank, N)
    assert jnp.all(jnp.any(features != 0, 0))


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("name", ["nystrom", "pivots"])
def test_a_batch_of_gradients_is_the_loop(name):
    """Also where each of the batch makes a preconditioner of its own."""

    def evidence(scale):
        kernel = kernax.Matern32(scale)
        solver = exact(PRECONDITIONERS[name])
        return kernax.log_marginal_likelihood(kernel, X, Y, NOISE, solver=solver)

    both = jax.jit(jax.value_and_grad(evidence))
    scales = jnp.asarray([0.5, 0.9])
    batch = jax.vmap(both)(scales)
    for found, expected in zip(batch, zip(*[both(scale) for scale in scales])):
        assert_close(found, jnp.stack(expected), 1e-8)


@pytest.mark.nightly
@needs_x64
def test_a_value_with_its_gradient_or_its_process_takes_one_solve():
    """Their programs have as many loops as that of the value alone."""
    solver = exact(PRECONDITIONERS["pivots"])

    def evidence(scale):
        kernel = scale * kernax.Matern32(0.7)
        return kernax.log_marginal_likelihood(kernel, X, Y, NOISE, weights=WEIGHTS, solver=solver)

    def conditioned(scale):
        process = kernax.GaussianProcess(scale * kernax.Matern32(0.7))
        solution = kernax.condition(
            process, X, Y, NOISE, weights=WEIGHTS, solver=solver, throw=False
        )
        return solution.stats["log_evidence"], jax.vmap(solution.value.mean)(NEW)

    functions = (evidence, jax.value_and_grad(evidence), conditioned)
    programs = [jax.jit(function).lower(1.3).compile() for function in functions]
    loops = [program.as_text().count(" while(") for program in programs]
    assert loops == [loops[0]] * 3
    value = programs[0](1.3)
    for program in programs[1:]:
        assert_close(program(1.3)[0], value, 1e-10)


@pytest.mark.slow
@needs_x64
def test_a_removed_point_changes_nothing_and_a_doubled_one_is_two():
    weights = np.ones(N)
    weights[:5] = 0
    weights[5:9] = 2
    rows = np.repeat(np.arange(N), weights.astype(int))
    solver = ConjugateGradient(1e-12, preconditioner=PivotedCholesky(KEY, block_size=8))
    process = kernax.GaussianProcess(KERNEL)
    weighted = kernax.condition(process, X, Y, NOISE, weights=weights, solver=solver).value
    repeated = kernax.condition(process, X[rows], Y[rows], NOISE, solver=solver).value
    for f in ("mean", "variance"):
        a = jax.vmap(getattr(weighted, f))(NEW)
        assert_close(a, jax.vmap(getattr(repeated, f))(NEW), 1e-8)


@pytest.mark.nightly
def test_variances_are_solved_for_to_the_default_tolerance_at_least():
    """A variance is a difference, of which the tolerance of a mean leaves nothing."""
    process = kernax.GaussianProcess(kernax.RBF(2.0))
    loose = ConjugateGradient(rtol=3e-2)
    found = kernax.condition(process, X, Y, 1e-2, solver=loose).value
    known = kernax.condition(process, X, Y, 1e-2).value
    variances = jax.vmap(found.variance)(NEW)
    # Float32 leaves 1e-5 of k(x, x): measured 0.008; of the tolerance of the mean 0.1 to 0.2.
    np.testing.assert_allclose(variances, jax.vmap(known.variance)(NEW), rtol=1e-3 if X64 else 0.02)


@pytest.mark.slow
def test_solves_that_do_not_end_leave_no_number():
    """Neither an evidence, nor a variance, nor a gradient, and a status that says so."""
    few = ConjugateGradient(max_steps=2, determinant=StochasticLanczos(KEY))
    process = kernax.GaussianProcess(KERNEL)
    assert jnp.isnan(kernax.log_marginal_likelihood(KERNEL, X, Y, 1e-3, solver=few))
    of_scale = lambda scale: kernax.log_marginal_likelihood(scale * KERNEL, X, Y, 1e-3, solver=few)
    assert jnp.isnan(jax.jit(jax.grad(of_scale))(1.0))
    solution = kernax.condition(process, X, Y, 1e-3, solver=few, throw=False)
    assert solution.result == kernax.RESULTS.max_steps_reached
    assert jnp.isnan(solution.value.variance(NEW[0]))
    with pytest.raises(MaxStepsError, match="condition"):
        kernax.condition(process, X, Y, 1e-3, solver=few)


@pytest.mark.nightly
@given(
    st.sampled_from(["nystrom", "pivots"]),
    st.floats(-4, 4),
    st.floats(-8, 1),
    st.floats(-2, 1),
    st.integers(0, 3),
)
def test_no_success_leaves_a_residual_that_an_independent_computation_does_not_confirm(
    name, scale, noise, lengthscale, seed
):
    size = 10.0**scale
    result, x, kernel, ridge = fuzzed(
        PRECONDITIONERS[name], size, size * 10.0**noise, 10.0**lengthscale, seed
    )
    rng = np.random.default_rng(seed)
    b = rng.normal(size=N)
    K = np.asarray(kernax.gram(kernel, jnp.asarray(X)), float) + float(ridge) * np.eye(N)
    succeeded = bool(result == kernax.RESULTS.successful)
    assert succeeded or noise < -2
    if succeeded:
        b = b.astype(DTYPE).astype(float)
        left = np.linalg.norm(b - K @ np.asarray(x, float)) / np.linalg.norm(b)
        tolerance = ConjugateGradient().tolerance(DTYPE)
        # In float32 the entries of K themselves are rounded: by the residual's own products.
        assert left <= 3 * tolerance + 20 * np.finfo(DTYPE).eps * N


def fuzzed(preconditioner, size, ridge, lengthscale, seed):
    b = np.random.default_rng(seed).normal(size=N).astype(DTYPE)
    return _fuzzed(preconditioner, *(jnp.asarray(v, DTYPE) for v in (size, ridge, lengthscale)), b)


@jax.jit
def _solved(preconditioner, size, ridge, lengthscale, b):
    kernel = size * kernax.Matern32(lengthscale)
    operator = gram_operator(kernel, X, ridge=ridge)
    solver = ConjugateGradient(preconditioner=preconditioner)
    solution = kernax.solvers.solve(operator, b, solver, throw=False)
    return solution.result, solution.value, kernel


def _fuzzed(preconditioner, size, ridge, lengthscale, b):
    return *_solved(preconditioner, size, ridge, lengthscale, b), ridge


@needs_x64
@pytest.mark.parametrize(
    ("solver", "words"),
    [
        (ConjugateGradient(), "ConjugateGradient with determinant=StochasticLanczos"),
        (lx.CG(1e-5, 1e-5), "solver must be None or one of"),
    ],
)
def test_an_evidence_needs_a_solver_that_knows_the_determinant(solver, words):
    with pytest.raises(ValueError, match=words):
        kernax.log_marginal_likelihood(KERNEL, X, Y, NOISE, solver=solver)


def test_bad_arguments_are_refused_by_name():
    with pytest.raises(ValueError, match=r"one of kernax\.solvers, such as"):
        kernax.condition(kernax.GaussianProcess(KERNEL), X, Y, NOISE, solver=lx.CG(1e-5, 1e-5))
    with pytest.raises(ValueError, match="rank must be a positive integer, but is 0"):
        PivotedCholesky(KEY, rank=0)
    for near in (PivotedCholesky(KEY), NystromPreconditioner(KEY)):
        with pytest.raises(ValueError, match=r"key must be one random key, .* but is 0"):
            eqx.tree_at(lambda near: near.key, near, 0).__check_init__()
    with pytest.raises(ValueError, match="probes must be an integer >= 2, but is 1"):
        StochasticLanczos(KEY, n_probes=1)
    with pytest.raises(ValueError, match="steps must be an integer >= 4, but is 3"):
        StochasticLanczos(KEY, n_steps=3)
    with pytest.raises(ValueError, match="max_steps must be a positive integer, but is 0"):
        ConjugateGradient(max_steps=0)
    with pytest.raises(ValueError, match=r"rtol must be positive, but is -1\.0"):
        ConjugateGradient(rtol=-1.0)
    solver = ConjugateGradient(preconditioner=PivotedCholesky(KEY))
    operator = lx.MatrixLinearOperator(jnp.eye(3), lx.positive_semidefinite_tag)
    with pytest.raises(ValueError, match="PivotedCholesky is for Gram matrices"):
        lx.linear_solve(operator, jnp.ones(3), solver)
    with pytest.raises(ValueError, match=r"block_size must be a positive integer, .*or \"auto\""):
        kernax.gram_operator(KERNEL, X, block_size="some")


@needs_x64
def test_without_matfree_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matfree", None)
    solver = ConjugateGradient(determinant=StochasticLanczos(KEY, n_probes=3))
    with pytest.raises(ImportError, match=r"pip install 'kernax-toolkit\[scale\]'"):
        kernax.log_marginal_likelihood(KERNEL, X, Y, NOISE, solver=solver)


@pytest.mark.slow
def test_a_warning_of_a_loose_tolerance_names_it():
    process = kernax.GaussianProcess(KERNEL)
    solver = ConjugateGradient(rtol=0.1, determinant=Hadamard())
    words = r"rtol=0\.1, with so little noise leaves no digit of the evidence"
    with pytest.warns(kernax.errors.ConditionWarning, match=words):
        kernax.condition(process, X, Y, 1e-3, solver=solver)
