"""Gaussian processes along a line, as state-space models: the same answers as by Cholesky's factor
of the whole matrix, in O(n).
"""

import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from conftest import DTYPE, X64, assert_close, marked, matrix, needs_x32, needs_x64
from references import process_by_numpy

import kernax
from kernax.core.base.compiled import compiled
from kernax.core.base.weights import UnitWeights
from kernax.core.kernel.state_space import Chain
from kernax.core.linalg.linear_solvers import factorise
from kernax.core.line.line import LineGram, OrderAlongLine, line_of_many_points
from kernax.core.line.parallel_recursions import ParallelRecursions
from kernax.core.line.recursions import SequentialRecursions
from kernax.solvers import JitteredCholesky, StateSpace

LINE = StateSpace()
SCANS = StateSpace(parallel=True)
WAYS = {"point after point": LINE, "by parallel scans": SCANS}
DENSE = JitteredCholesky()
KERNELS = {
    "matern 1/2": kernax.Matern12(1.3),
    "matern 3/2": kernax.Matern32([0.7]),
    "matern 5/2": kernax.Matern52(1.1),
    "cosine": kernax.kernels.Cosine(2.3),
    "periodic": kernax.Periodic(0.9, 3.1),
    "periodic about zero": kernax.kernels.ZeroMeanPeriodic(0.9, 3.1),
    "damped oscillator": kernax.kernels.DampedOscillator(2.3, 3.0),
    "overdamped": kernax.kernels.DampedOscillator(9.0, 0.2),
    "a sum": 2.0 * kernax.Matern32(0.7) + kernax.Matern52(3.0) + 0.3,
    "a product": kernax.Matern12(3.0) * kernax.kernels.Cosine(1.7),
    "a power": kernax.Matern32(2.0) ** 2,
}
N = 300
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 20, (N, 1))
X[40:43] = X[7]  # copies
Y = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=N)
NOISE = RNG.uniform(0.05, 0.2, N)
WEIGHTS = RNG.integers(0, 3, N).astype(float)
NEW = jnp.concatenate([jnp.linspace(-3.0, 23.0, 12), jnp.asarray(X[7])])[
    :, None
]  # beyond both ends


@compiled
def answers(kernel, weights, solver):
    """The evidence, and the posterior at new points."""
    process = kernax.GaussianProcess(kernel, 0.2)
    solution = kernax.condition(process, X, Y, NOISE, weights=weights, solver=solver, throw=False)
    posterior = solution.value
    at = jax.vmap(lambda x: (posterior.mean(x), posterior.variance(x)))(NEW)
    return solution.stats["log_evidence"], *at, posterior.covariance(NEW[0], NEW[1])


def assert_answers_are_those_of_the_whole_matrix(kernel, weights, solver=LINE):
    evidence, means, variances, cross = answers(kernel, weights, solver)
    K = matrix(kernel, np.concatenate([X, NEW]))
    w = np.ones(N) if weights is None else weights
    expected = process_by_numpy(K, Y[:, None], NOISE, w, 0.2)
    assert_close(evidence, expected[0], 1e-8)
    assert_close(means, expected[1][:, 0], 1e-8)
    assert_close(variances, np.diagonal(expected[2]), 1e-8)
    assert_close(cross, expected[2][0, 1], 1e-8)


@needs_x64
def test_the_refusal_names_every_kernel_with_a_state_space_model():
    with pytest.raises(ValueError, match="StateSpace needs a kernel with a state-space") as refused:
        kernax.condition(kernax.RBF(), X, Y, 0.1, solver=LINE)
    of_one = (kernel for name, kernel in KERNELS.items() if not name.startswith("a "))
    for kernel in (*of_one, kernax.Constant()):
        assert kernel.state_space(3) is not None
        assert type(kernel).__name__ in str(refused.value)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "name",
    marked(
        pytest.mark.nightly,
        KERNELS,
        "periodic about zero",
        "matern 3/2",
        "matern 5/2",
        "cosine",
        "a power",
    ),
)
def test_the_line_gives_the_answers_of_the_whole_matrix(name):
    """Points in no order, copies, weights of 0, 1 and 2, a noise for each point."""
    assert_answers_are_those_of_the_whole_matrix(KERNELS[name], WEIGHTS)


@pytest.mark.slow
@needs_x64
def test_the_line_gives_the_answers_of_the_whole_matrix_without_weights():
    assert_answers_are_those_of_the_whole_matrix(KERNELS["a sum"], None)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("name", ["matern 3/2", "a sum"])  # of few states, and of more
def test_parallel_scans_give_the_answers_of_the_whole_matrix(name):
    assert_answers_are_those_of_the_whole_matrix(KERNELS[name], WEIGHTS, SCANS)


APART = np.delete(np.arange(N), [40, 41, 42])[:60]


def evidence_of(solver):
    def evidence(arguments):
        kernel, X, y, noise, weights = arguments
        return kernax.log_marginal_likelihood(
            kernax.GaussianProcess(kernel, 0.2), X, y, noise, weights=weights, solver=solver
        )

    return evidence


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "name",
    marked(
        pytest.mark.nightly,
        ["matern 1/2", "matern 5/2", "periodic", "a sum", "a product"],
        "matern 5/2",
        "a sum",
    ),
)
def test_the_evidence_and_its_gradient_are_those_of_the_whole_matrix(name):
    """In the kernel, points, two columns of targets, noises, and weights, which may be zero."""
    y = np.stack([Y, np.cos(X[:, 0])], 1)
    arrays = [jnp.asarray(values[APART]) for values in (X, y, NOISE, WEIGHTS)]
    arguments = (KERNELS[name], *arrays)
    found = eqx.filter_jit(eqx.filter_value_and_grad(evidence_of(LINE)))(arguments)
    expected = eqx.filter_jit(eqx.filter_value_and_grad(evidence_of(DENSE)))(arguments)
    assert len(jax.tree.leaves(found)) >= 6
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        assert_close(a, b, 1e-6)


@pytest.mark.nightly
@needs_x64
def test_by_parallel_scans_the_gradients_of_a_batch_are_those_point_after_point():
    """In traced points, in no order, of a number that is no multiple of a block."""

    def gradients(solver):
        def evidence(scale, points, weights, noise):
            kernel = kernax.Matern52(scale)
            return evidence_of(solver)((kernel, points, Y[APART], noise, weights))

        of_batch = jax.vmap(jax.value_and_grad(evidence, (0, 1, 2, 3)), (0, None, None, None))
        scales = jnp.asarray([0.5, 1.1])
        return jax.jit(of_batch)(scales, X[APART], WEIGHTS[APART], NOISE[APART])

    for a, b in zip(*(jax.tree.leaves(gradients(solver)) for solver in WAYS.values())):
        assert_close(a, b, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1.0, 1e-3, 1e-6, 0.0])
@pytest.mark.parametrize("gap", [1.0, 1e-2, 1e-5])
def test_parallel_scans_find_the_pivots_or_as_surely_none(gap, noise, rng):
    """Within what `rounding` says; copies without noise have none in either way."""
    n = 300
    x = jnp.asarray(np.sort(gap * rng.uniform(0, n, n)), DTYPE)
    x = jnp.sort(x.at[:2].set(x[7])) if gap == 1 else x
    one, other = (_pivots(x, jnp.asarray(noise, DTYPE), way) for way in WAYS.values())
    assert one[0] == other[0]
    assert not one[0] or abs(one[1] - other[1]) <= 3 * (one[2] + other[2])


@eqx.filter_jit
def _pivots(x, noise, solver):
    """Whether there is a factor without jitter, `log |K + noise|` and its rounding."""
    gram = LineGram(
        kernax.Matern32(), x[:, None], OrderAlongLine.of(x[:, None], 0, 0, solver.parallel)
    )
    weights = UnitWeights(len(x), x.dtype)
    factor = factorise(gram.symmetric_form(weights, weights.shift_of(noise)))
    diagonal = gram.diagonal() + noise + factor.jitter
    exact = factor.exists & (factor.jitter == 0)
    return exact, factor.log_determinant(), factor.rounding(diagonal)


@pytest.mark.slow
@needs_x64
def test_the_second_derivative_of_the_evidence_is_that_of_the_whole_matrix():
    def curvature(solver):
        def of_log(theta):
            kernel = jnp.exp(theta[0]) * kernax.Matern32(jnp.exp(theta[1]))
            arguments = kernel, X[APART], Y[APART], jnp.exp(theta[2]), None
            return evidence_of(solver)(arguments)

        return jax.jit(jax.hessian(of_log))(jnp.array([0.2, -0.3, -2.0]))

    assert_close(curvature(LINE), curvature(DENSE), 1e-6)


@needs_x64
@pytest.mark.parametrize("name", KERNELS)
def test_the_covariance_of_the_states_is_the_kernel(name):
    kernel = KERNELS[name]

    @jax.jit
    @jax.vmap
    def both(step):
        model = kernel.state_space(16)
        h = model.observation()
        covariance = h @ model.transition(step) @ model.stationary() @ h
        return covariance, kernel(step[None], jnp.zeros(1))

    steps = jnp.append(jnp.geomspace(1e-9, 30.0, 40), 0.0)
    np.testing.assert_allclose(*both(steps), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_points_of_one_column_of_several_are_a_line():
    both = jnp.asarray(RNG.normal(size=(20, 2)), DTYPE)
    y = both[:, 0]
    kernel = kernax.On(kernax.Matern12(), -1) * kernax.On(kernax.kernels.Cosine(), [1]) + 0.5
    assert kernel.sufficient_columns(2) == {1}
    found = kernax.log_marginal_likelihood(kernel, both, y, 0.1, solver=LINE)
    assert_close(found, kernax.log_marginal_likelihood(kernel, both, y, 0.1), 1e-4)


@pytest.mark.parametrize(
    ("kernel", "columns", "words"),
    [
        (kernax.RBF(), 1, "RBF has none that is known"),
        (kernax.Matern32() + kernax.Linear(), 1, "Sum has none that is known"),
        (kernax.Matern32(), 2, "X has .*2.* depends on more than one column"),
        (kernax.On(kernax.Matern32(), 0) + kernax.On(kernax.Matern32(), 1), 2, "one column"),
        (kernax.Matern32([1.0, 2.0]), 2, "has none that is known"),
    ],
)
def test_what_is_no_line_is_refused_with_words(kernel, columns, words):
    points = jnp.ones((5, columns), DTYPE)
    with pytest.raises(ValueError, match=words):
        kernax.log_marginal_likelihood(kernel, points, points[:, 0], 0.1, solver=LINE)
    with pytest.raises(ValueError, match=words):
        kernax.condition(
            kernax.GaussianProcess(kernel), points, points[:, 0], 0.1, solver=LINE, throw=False
        )


def test_numbers_alone_are_told_to_stand_in_a_column():
    times = jnp.arange(5, dtype=DTYPE)
    with pytest.raises(ValueError, match=r"of shape \(5,\): pass X\[:, None\], which has a column"):
        kernax.log_marginal_likelihood(kernax.Matern32(), times, times, 0.1, solver=LINE)


def test_a_solver_that_knows_no_determinant_is_refused():
    arguments = kernax.Matern32(), jnp.ones((5, 1), DTYPE), jnp.ones(5, DTYPE), 0.1
    with pytest.raises(ValueError, match="solver must be None or one of"):
        kernax.log_marginal_likelihood(*arguments, solver=lx.CG(1e-6, 1e-6))
    with pytest.raises(ValueError, match="with points along a line"):
        kernax.kernel_ridge(*arguments, solver=LINE)


@pytest.mark.slow
def test_a_series_that_is_cut_off_too_early_fails_instead_of_being_slightly_wrong():
    arguments = jnp.asarray(X[:20], DTYPE), jnp.asarray(Y[:20], DTYPE), 0.1
    process = kernax.GaussianProcess(kernax.Periodic(0.9, 3.1))
    short = kernax.condition(process, *arguments, solver=StateSpace(n_harmonics=2), throw=False)
    assert short.result == kernax.RESULTS.nonfinite
    assert jnp.isnan(short.stats["log_evidence"])
    with pytest.raises(kernax.errors.NonFiniteError, match=r"StateSpace\(n_harmonics=4\)"):
        kernax.condition(process, *arguments, solver=StateSpace(n_harmonics=2))
    with pytest.raises(ValueError, match="harmonics"):
        StateSpace(n_harmonics=0)


def test_a_long_lengthscale_leaves_one_harmonic_about_zero():
    """One less the mean over a period lost its digits, and the series was called cut off."""
    lengthscale = 3000.0 if X64 else 100.0
    model: Any = kernax.kernels.ZeroMeanPeriodic(lengthscale, 2.0).state_space(24)
    np.testing.assert_allclose(model.variances[0], 1, rtol=1e-4)
    np.testing.assert_allclose(np.sum(model.variances), 1, rtol=1e-5)


@pytest.mark.slow
def test_many_points_take_the_line_by_themselves_and_few_do_not():
    points = jnp.linspace(0, 10, 1000, dtype=DTYPE)[:, None]
    y = jnp.sin(points[:, 0])
    process = kernax.GaussianProcess(kernax.Matern32())
    many = kernax.condition(process, points, y, 0.1)
    assert many.stats["states"] == 2
    assert many.stats["solver"].name == "StateSpace"
    few = kernax.condition(process, points[:20], y[:20], 0.1)
    assert "states" not in few.stats
    series = kernax.GaussianProcess(kernax.Periodic())  # of more states than are worth it
    assert "states" not in jax.eval_shape(
        lambda y: kernax.condition(series, points, y, 0.1, throw=False).stats, y
    )


def test_an_accelerator_takes_parallel_scans_of_more_points(monkeypatch):
    points = np.linspace(0, 10, 10_000, dtype=DTYPE)[:, None]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    line = line_of_many_points(kernax.Matern32(), points)
    assert isinstance(line, OrderAlongLine)
    assert isinstance(line.recursions, ParallelRecursions)
    assert line_of_many_points(kernax.Matern32(), points[1:]) is None
    forced = StateSpace(parallel=False).structure_for(kernax.Matern32(), points[:9], None)
    assert isinstance(forced, OrderAlongLine)
    assert isinstance(forced.recursions, SequentialRecursions)


@pytest.mark.slow
@needs_x64
def test_slopes_of_variances_at_the_points_themselves_are_those_of_the_whole_matrix():
    """Where a maximum with zero would leave half of them."""
    points = jnp.linspace(0.0, 10.0, 64)[:, None]
    at = points[jnp.asarray([0, 10, 63])]

    @jax.jit
    def slopes(points, solver):
        prior = kernax.GaussianProcess(kernax.Matern52(1.0))
        process = kernax.condition(prior, points, jnp.sin(points[:, 0]), 0.1, solver=solver).value
        return jax.vmap(jax.grad(process.variance))(at)

    expected = slopes(points, DENSE)
    assert float(jnp.max(abs(expected))) > 0.1
    assert_close(slopes(points, LINE), expected, 1e-10)


@pytest.mark.nightly
@needs_x64
def test_parallel_scans_of_whole_blocks_have_a_derivative_without_noise():
    """What their loop over blocks does not take is computed all the same."""
    points = jnp.linspace(0.0, 10.0, 64)[:, None]
    place = jnp.asarray([3.3])

    def mean_and_variance(lengthscale, solver):
        prior = kernax.GaussianProcess(kernax.Matern12(lengthscale))
        process = kernax.condition(prior, points, jnp.sin(points[:, 0]), 0.0, solver=solver).value
        return process.mean(place) + process.variance(place)

    slope = jax.jit(jax.grad(mean_and_variance))
    assert_close(slope(1.0, SCANS), slope(1.0, LINE), 1e-8)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "n", marked(pytest.mark.nightly, [1, 31, 32, 33, 64, 65], "33", "65", "1", "64")
)
def test_recursions_by_blocks_are_those_point_after_point_on_both_sides_of_a_block(n):
    """With gradients, in a batch."""
    places = jnp.asarray(np.sort(RNG.uniform(0, 10, n)))
    V = jnp.asarray(RNG.normal(size=(n, 1)))
    ones = jnp.ones(n)

    def of(recursions):
        def total(scale):
            model = kernax.Matern32(scale).state_space(0)
            assert model is not None
            chain = Chain.of(model, places)
            found = recursions.gains(chain, ones, 0.1 * ones)
            A = 0.9 * chain.transitions
            back = recursions.readings(A, found.gains, V, found.gains, back=True)
            covariances = recursions.covariances(A, found.gains, found.variances)
            return jnp.sum(jnp.log(found.variances)) + jnp.sum(back) + jnp.sum(covariances)

        return jax.jit(jax.vmap(jax.value_and_grad(total)))(jnp.asarray([0.7, 1.4]))

    for a, b in zip(of(ParallelRecursions()), of(SequentialRecursions())):
        assert_close(a, b, 1e-11)


@needs_x64
@pytest.mark.parametrize(("m", "is_taken"), [(249, False), (250, True)])
def test_values_take_the_line_where_a_matrix_takes_longer(m, is_taken, monkeypatch):
    """From `m n = 200 (m + n)` on, here of 1000 points; in a batch of gradients as well."""
    taken = []
    module = sys.modules["kernax.core.learner.expansion"]
    real = module._sums_by

    def noted(*arguments):
        taken.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(module, "_sums_by", noted)
    points = jnp.asarray(RNG.uniform(0, 20, (1000, 1)))
    at = jnp.asarray(RNG.uniform(0, 20, (m, 1)))

    def total(scale, of):
        f = kernax.KernelExpansion(
            kernax.Matern32(scale), points, jnp.sin(points[:, 0]), jnp.zeros(())
        )
        return jnp.sum(of(f) ** 2)

    scales = jnp.asarray([0.7, 1.4])
    slopes = lambda of: jax.jit(jax.vmap(jax.grad(lambda scale: total(scale, of))))(scales)
    found = slopes(lambda f: f.values(at))
    assert bool(taken) == is_taken
    assert_close(found, slopes(lambda f: jax.vmap(f)(at)), 1e-9)


@needs_x64
def test_values_of_many_points_are_one_product_along_the_line():
    """With the derivatives of the values point by point, of two outputs, at points and copies."""
    points = jnp.asarray(RNG.uniform(0, 20, (1200, 1)))
    at = jnp.concatenate([jnp.asarray(RNG.uniform(-2, 22, (297, 1))), points[:3]])
    coefficients = jnp.asarray(RNG.normal(size=(1200, 2)))
    weights = jnp.asarray(RNG.normal(size=(300, 2)))

    def total(of):
        def along(scale, at, points, coefficients):
            kernel = 2.0 * kernax.Matern32(scale) + kernax.Matern52(3.0)
            f = kernax.KernelExpansion(kernel, points, coefficients, jnp.ones(2))
            values = of(f, at)
            return jnp.sum(weights * values), values

        gradient = jax.jit(jax.value_and_grad(along, (0, 1, 2, 3), has_aux=True))
        return gradient(jnp.asarray(0.7), at, points, coefficients)

    found = total(lambda f, at: f.values(at))
    expected = total(lambda f, at: jax.vmap(f)(at))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        assert_close(a, b, 1e-8)


@needs_x64
@pytest.mark.parametrize("wrong", [jnp.nan, jnp.inf])
def test_a_value_at_a_place_that_is_none_spoils_no_other(wrong):
    points = jnp.asarray(RNG.uniform(0, 20, (1200, 1)))
    f = kernax.KernelExpansion(kernax.Matern32(0.7), points, jnp.ones(1200), jnp.asarray(0.0))
    values = jax.jit(lambda at: f.values(at))
    found = np.asarray(values(points[:300].at[5].set(wrong)))
    assert np.isnan(found[5])
    assert_close(np.delete(found, 5), np.delete(np.asarray(values(points[:300])), 5), 1e-12)


@needs_x64
@pytest.mark.parametrize("function_name", ["condition", "log_marginal_likelihood", "values"])
def test_memory_is_linear_in_the_number_of_points(function_name):
    n = 20_000
    points = jnp.linspace(0, 10, n)[:, None]

    def value(y):
        kernel = kernax.Matern32()
        if function_name == "values":
            f = kernax.KernelExpansion(kernel, points, y, jnp.zeros(()))
            return jnp.sum(f.values(points + 0.1))
        if function_name == "log_marginal_likelihood":
            return kernax.log_marginal_likelihood(kernel, points, y, 0.1)
        process = kernax.GaussianProcess(kernel)
        return kernax.condition(process, points, y, 0.1, throw=False).stats["log_evidence"]

    analysis = jax.jit(jax.grad(value)).lower(points[:, 0]).compile().memory_analysis()
    assert analysis.temp_size_in_bytes < 150 * 8 * n


def matern_evidence(x, y, noise):
    """That of Matern 3/2 with lengthscale one, by NumPy in double precision."""
    r = np.sqrt(3) * np.abs(x[:, None] - x[None, :]).astype(float)
    C = (1 + r) * np.exp(-r) + noise * np.eye(len(x))
    sign, determinant = np.linalg.slogdet(C)
    assert sign == 1
    return -(y @ np.linalg.solve(C, y) + determinant + len(x) * np.log(2 * np.pi)) / 2


@needs_x32
@pytest.mark.parametrize(("gap", "noise"), [(0.05, 1e-2), (0.01, 1e-4), (1e-5, 1e-4)])
def test_in_single_precision_the_rounding_says_how_far_the_evidence_may_be_off(gap, noise):
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.exponential(gap, 400)).astype(np.float32)
    y = (np.sin(x) + np.sqrt(noise) * rng.normal(size=400)).astype(np.float32)
    process = kernax.GaussianProcess(kernax.Matern32())
    stats = compiled_condition(process, x[:, None], y, noise).stats
    off = abs(float(stats["log_evidence"]) - matern_evidence(x, y.astype(float), noise))
    assert stats["jitter"] == 0
    assert off <= 3 * float(stats["rounding"]) + 1e-6 * abs(float(stats["log_evidence"]))


@needs_x32
def test_points_too_close_for_single_precision_do_not_count_as_solved():
    x = (1e-6 * jnp.arange(20_000.0))[:, None]
    y = jax.random.normal(jax.random.key(0), (20_000,))
    solution = compiled_condition(kernax.GaussianProcess(kernax.Matern32()), x, y, 1e-4)
    assert solution.result == kernax.RESULTS.inaccurate
    assert solution.stats["rounding"] > 1


@eqx.filter_jit
def compiled_condition(process, x, y, noise):
    return kernax.condition(process, x, y, noise, solver=LINE, throw=False)


def slopes_by_longdouble(x, y, lengthscale, variance, noise):
    """Those of the evidence of Matern 3/2 in the logarithms of all three, by an inverse of C."""
    x, y = x.astype(np.longdouble), y.astype(np.longdouble)
    r = np.sqrt(np.longdouble(3)) * np.abs(x[:, None] - x) / np.longdouble(lengthscale)
    K = np.longdouble(variance) * (1 + r) * np.exp(-r)
    in_lengthscale = np.longdouble(variance) * r**2 * np.exp(-r)
    in_noise = np.longdouble(noise) * np.eye(len(x), dtype=np.longdouble)
    C = K + in_noise
    # Gauss-Jordan elimination, which a positive definite C needs no pivots for.
    both = np.concatenate([C, np.eye(len(x), dtype=np.longdouble)], 1)
    for i in range(len(x)):
        both[i] /= both[i, i]
        others = np.arange(len(x)) != i
        both[others] -= both[others, i, None] * both[i]
    P = both[:, len(x) :]
    a = P @ y
    slopes = [(a @ dC @ a - np.sum(P * dC)) / 2 for dC in (in_lengthscale, K, in_noise)]
    return np.array(slopes, float)


@pytest.mark.slow
@pytest.mark.parametrize("gap", ["even", "drawn", "copies"])
def test_rounding_says_how_far_slopes_of_the_evidence_may_be_off_where_the_signal_is_large(gap):
    """In the logarithms of parameters. Of the whole matrix they are further off, not less."""
    rng = np.random.default_rng(0)
    n = 40
    x = np.arange(n) / n if gap == "even" else np.sort(rng.uniform(0, 1, n))
    if gap == "copies":
        x[1::2] = x[::2]
    x = x.astype(DTYPE)

    def evidence(theta, y):
        lengthscale, variance, noise = jnp.exp(theta)
        kernel = variance * kernax.Matern32(lengthscale)
        return kernax.log_marginal_likelihood(kernel, x[:, None], y, noise, solver=LINE)

    slopes_of = jax.jit(jax.grad(evidence))
    for ratio in (1e3, 1e5, 1e9) if X64 else (1e1, 1e3):
        for lengthscale in (0.3, 3.0):
            theta = np.log([lengthscale, ratio, 1.0]).astype(DTYPE)
            parameters = [float(number) for number in jnp.exp(theta)]
            r = np.sqrt(3) * np.abs(x[:, None] - x) / parameters[0]
            C = parameters[1] * (1 + r) * np.exp(-r) + parameters[2] * np.eye(n)
            y = (np.linalg.cholesky(C.astype(float)) @ rng.normal(size=n)).astype(DTYPE)
            process = kernax.GaussianProcess(parameters[1] * kernax.Matern32(parameters[0]))
            stats = compiled_condition(process, x[:, None], y, parameters[2]).stats
            off = np.abs(slopes_of(theta, y) - slopes_by_longdouble(x, y, *parameters))
            assert stats["jitter"] == 0
            # Measured at most 4.4 times, of 150 draws.
            assert np.max(off) <= 10 * float(stats["rounding"])
