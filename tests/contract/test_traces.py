"""Another number, of whatever kind, argument or solver, runs the program that is there."""

from collections import Counter
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, marked, needs_x64
from registry import LEARNERS, cases, options_of

import kernax
from kernax.solvers import (
    SMO,
    ConjugateGradient,
    EvidenceIteration,
    PivotedCholesky,
    ProjectedGradient,
    SketchAndProject,
    StochasticLanczos,
)

N = 24
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2)).astype(DTYPE)
Z = RNG.normal(size=(5, 2)).astype(DTYPE)
Y = np.sin(X[:, 0])
SIGNS = np.where(X[:, 1] > 0, 1.0, -1.0).astype(DTYPE)
CLASSES = np.eye(3, dtype=DTYPE)[np.arange(N) % 3]
COUNTS = np.floor(3 * np.abs(X[:, 0])).astype(DTYPE)
SHARES = np.asarray(jax.nn.softmax(np.arange(3 * N).reshape(N, 3) % 5.0, 1))
LINEAR = kernax.FeatureMap(jnp.asarray)
KEY = jax.random.key(0)
K = kernax.RBF()
TRACES = []


@jax.monitoring.register_event_duration_secs_listener
def _counted(event, seconds, fun_name="", **_):
    if event == "/jax/core/compile/jaxpr_trace_duration":
        TRACES.append(fun_name)


def key_of(s):
    return jax.random.key(int(1000 * s))


def process(s):
    return kernax.GaussianProcess(kernax.RBF(1 + s), 0.1 * s)


# What is no entry of the registry, or has other numbers: each takes a float s, and hands one that
# depends on it to every argument that is a number.
CALLS = {
    "gram": lambda s: kernax.gram(kernax.kernels.Scaled(kernax.RationalQuadratic(1 + s, s), s), X),
    "kernel_ridge by conjugate gradients": lambda s: kernax.kernel_ridge(
        K, X, Y, s, solver=ConjugateGradient(rtol=1e-3 * s)
    ),
    "kernel_ridge by sketches": lambda s: kernax.kernel_ridge(
        K, X, Y, s, solver=SketchAndProject(key_of(s), rtol=1e-3 * s)
    ),
    "variational of negative binomials": lambda s: kernax.variational(
        process(s), X, COUNTS, kernax.likelihoods.NegativeBinomial(s), rtol=1e-3 * s
    ),
    "recursive least squares": lambda s: kernax.online.run(
        kernax.online.KernelRecursiveLeastSquares(K, s, N, tolerance=1e-3 * s), X, Y
    ),
    "Adagrad": lambda s: kernax.online.run(
        kernax.online.Adagrad(kernax.losses.Squared(), LINEAR, s, s, 0.1 * s), X, Y
    ),
    "solve": lambda s: kernax.solvers.solve(
        kernax.gram_operator(K, X, ridge=s), Y, ConjugateGradient(rtol=1e-3 * s)
    ),
    "svm by projected gradients": lambda s: kernax.svm(
        K, X, SIGNS, s, solver=ProjectedGradient(rtol=1e-3 * s)
    ),
    "svm_leave_one_out": lambda s: kernax.calibration.svm_leave_one_out(
        K, X, SIGNS, s, solver=SMO(rtol=1e-3 * s)
    ),
    "relevance_vector_machine of all at once": lambda s: kernax.relevance_vector_machine(
        K, X, Y, noise=s, solver=EvidenceIteration(s, s, rtol=1e-3 * s, least=1e-6 * s)
    ),
    "condition by conjugate gradients": lambda s: kernax.condition(
        process(s), X, Y, s, solver=ConjugateGradient(rtol=1e-4 * s)
    ),
    "log_marginal_likelihood by Lanczos": lambda s: kernax.log_marginal_likelihood(
        K,
        X,
        Y,
        s,
        solver=ConjugateGradient(
            rtol=1e-6 * s,
            preconditioner=PivotedCholesky(key_of(s)),
            determinant=StochasticLanczos(key_of(s), n_steps=4),
        ),
    ),
    "warm_started": lambda s: kernax.solvers.warm_started(
        ConjugateGradient(rtol=1e-4 * s), kernax.GaussianProcess(kernax.RBF(s), s), X, Y, s
    ),
    "inducing_points": lambda s: kernax.inducing_points(K, X, 5, rtol=1e-3 * s),
    "jackknife_plus": lambda s: kernax.conformal.jackknife_plus(
        process(s), X, Y, s, Z, coverage=0.9 - 0.1 * s
    ),
    "conformal_radius": lambda s: kernax.conformal.conformal_radius(
        np.abs(Y), coverage=0.9 - 0.1 * s
    ),
    "conformal_set": lambda s: kernax.conformal.conformal_set(
        SHARES, CLASSES, SHARES[:5], coverage=0.9 - 0.1 * s
    ),
    "leverage scores": lambda s: kernax.choose_centres(
        K, X, 4, key=KEY, by=kernax.scale.LeverageScores(s)
    ),
    "pre_image": lambda s: kernax.pre_image(
        kernax.kernel_ridge(kernax.RBF(1 + s), X, Y, s).value, X[0], throw=False
    ),
    "interval_coverage": lambda s: kernax.metrics.interval_coverage(Y, Y - s, Y + s),
    "coverage_curve": lambda s: kernax.metrics.coverage_curve(Y, Y, np.full_like(Y, s)),
    "sample": lambda s: process(s).sample(X, key=KEY),
    "pathwise_sample": lambda s: kernax.pathwise_sample(
        process(s), key=KEY, n_samples=2, point=X[0]
    ),
    "online, in points": lambda s: kernax.online.run(
        kernax.online.DualLearner(
            kernax.online.StochasticGradient(
                kernax.losses.Huber(s), s, kernax.online.DecayingRate(s, 0.5 * s)
            ),
            kernax.RBF(s),
            kernax.online.Project(4, tolerance=1e-2 * s),
        ),
        X,
        Y,
    ),
    "online, in features": lambda s: kernax.online.run(
        kernax.online.SparseGradient(
            kernax.online.StochasticGradient(kernax.losses.Squared(), s, s), LINEAR, 0.1 * s
        ),
        X,
        Y,
    ),
    "Winnow": lambda s: kernax.online.run(kernax.online.Winnow(1 + s, s), X**2 / 10, SIGNS),
}


def traces_of(compute, *numbers):
    """How many functions are traced by a call."""
    before = len(TRACES)
    compute(*numbers)
    return len(TRACES) - before


def programs_traced_by(compute, *numbers):
    """The functions that a call traces, without single operations of JAX, which turn a number of a
    kind into an array and are traced once in a process.
    """
    before = len(TRACES)
    compute(*numbers)
    is_operation = lambda name: any(hasattr(part, name.lstrip("_")) for part in (jnp, jax.lax))
    return [name for name in TRACES[before:] if name != "stage" and not is_operation(name)]


def primitives(jaxpr, counts):
    """How often each primitive stands in a program, functions that it calls included."""
    for equation in jaxpr.eqns:
        counts[equation.primitive.name] += 1
        # Of a linear solve its transpose is another way to say the same, of which one is compiled.
        parts = equation.params
        if equation.primitive.name == "custom_linear_solve":
            parts = {"solve": parts["jaxprs"].solve}
        for part in jax.tree.leaves(
            list(parts.values()), is_leaf=lambda part: hasattr(part, "eqns")
        ):
            part = getattr(part, "jaxpr", part)
            if hasattr(part, "eqns"):
                primitives(part, counts)
    return counts


# The learners, and in their gradients the number of factors and of loops. A factor has one loop,
# over jitter. A machine has three of its own, besides its steps, which have a fixed number between
# two checks, and its derivative solves with the factor of the active set that made its solution
# exact.
ONCE = {
    "log_marginal_likelihood": (lambda s: kernax.log_marginal_likelihood(K, X, Y, s), 1, 1),
    "kernel_ridge": (
        lambda s: kernax.kernel_ridge(K, X, Y, s, throw=False).value.coefficients.sum(),
        1,
        1,
    ),
    "svm": (
        lambda s: kernax.svm(K, X, SIGNS, s, throw=False).value.coefficients.sum(),
        1,
        3 + 1,
    ),
}


@needs_x64
@pytest.mark.parametrize("learner", ONCE)
def test_solver_and_factor_stand_once_in_a_gradient(learner):
    """They stood twice where the rule of a derivative solved again what its primal had solved."""
    function, n_factors, n_loops = ONCE[learner]
    counts = primitives(jax.make_jaxpr(jax.grad(function))(0.5).jaxpr, Counter())
    assert counts["cholesky"] == n_factors
    assert counts["while"] == n_loops


KINDS = {"float": float, "int": int, "NumPy": np.float64, "JAX": jnp.asarray}


@pytest.mark.slow
@needs_x64
@pytest.mark.filterwarnings("ignore::kernax.errors.RelevanceWarning")
@pytest.mark.parametrize("name", cases("tier"))
def test_a_number_of_any_kind_does_not_trace_again(name):
    """Of every number of a learner, of its kernel and of its solver, and of the predictions."""

    def compute(s, kind=float):
        entry = LEARNERS[name]
        p = entry.problem
        strength = s * float(p.strength)
        q = replace(
            p,
            scale=kind(1 + s),
            size=kind(2 * s),
            offset=kind(s),
            strength=kind(strength) if kind is not int else strength,
        )
        return entry.outputs(entry.fit(q, **options_of(entry), **entry.numbers(s)), q)

    compute(0.5)
    compute(1.0)  # the whole number below, of which some learners warn
    again = programs_traced_by(compute, 0.75)
    for kind in KINDS:
        s = 1 if kind == "int" else 0.875
        found = programs_traced_by(compute, s, KINDS[kind])
        assert len(found) <= len(again), (kind, found, again)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "call", marked(pytest.mark.nightly, CALLS, "variational of negative binomials")
)
def test_another_python_float_does_not_trace_again(call):
    """Of every number of a function and of its solver. Some calls trace shapes each time: the
    number before says how many.
    """
    compute = CALLS[call]
    compute(0.5)
    compute(0.75)
    again = traces_of(compute, 0.75)
    assert traces_of(compute, 0.875) == again


FITTED = kernax.kernel_ridge(K, X, Y, 0.5).value
OF_STEPS = {
    "kernel_kmeans": lambda steps: kernax.kernel_kmeans(
        K, X, 2, key=KEY, temperature=0.5, max_steps=steps
    ),
    "spectral_clustering": lambda steps: kernax.spectral_clustering(
        K, X, 2, key=KEY, rounding="discrete", max_steps=steps
    ),
    "kernel_pca": lambda steps: kernax.kernel_pca(K, X, 2, truncated=True, max_steps=steps),
    "pre_image": lambda steps: kernax.pre_image(FITTED, X[0], max_steps=steps, throw=False),
    "kernel_perceptron": lambda steps: kernax.kernel_perceptron(
        K, X, SIGNS, max_epochs=steps, throw=False
    ),
}


@needs_x64
@pytest.mark.slow
@pytest.mark.parametrize("call", OF_STEPS)
def test_another_number_of_steps_does_not_trace_again(call):
    compute = OF_STEPS[call]
    compute(200)
    compute(201)
    again = traces_of(compute, 201)
    assert traces_of(compute, 202) == again


def test_another_number_of_points_of_weight_zero_is_the_same_program():
    weights = np.ones((2, N), DTYPE)
    weights[0, :2] = weights[1, :5] = 0
    fits = lambda w: kernax.kernel_ridge(K, X, Y, 0.3, weights=w).value.coefficients
    fits(weights[0])
    TRACES.clear()
    fits(weights[1])
    assert not TRACES
