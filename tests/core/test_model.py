"""A kernel and one positive number: what it is to learners, to JAX, to `minimise` and in files."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import DTYPE, TOLERANCE, assert_close, check_derivatives, needs_x64, untyped

import kernax

LBFGS = optax.lbfgs()


@pytest.fixture
def problem(rng):
    X = rng.normal(size=(12, 2)).astype(DTYPE)
    return X, (np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=12)).astype(DTYPE)


def evidence(model, X, y):
    return kernax.log_marginal_likelihood(model.kernel, X, y, model.ridge)


def minus_evidence(model, X, y):
    return -evidence(model, X, y)


def test_the_number_is_one_unless_given_and_has_any_shape():
    assert kernax.Model(kernax.RBF()).ridge == 1.0
    model = kernax.Model(kernax.RBF(), ridge=np.array([0.1, 0.2]))
    np.testing.assert_array_equal(model.ridge, np.asarray([0.1, 0.2], DTYPE))
    assert kernax.Model(kernax.RBF(), 2).ridge.dtype == DTYPE
    assert [row[0] for row in kernax.describe(model).rows] == ["kernel.lengthscale", "ridge"]


def test_the_ridge_of_a_fit_is_the_noise_of_the_process_with_that_mean(problem):
    X, y = problem
    model = kernax.Model(kernax.RBF(1.3), 0.2)
    f = kernax.kernel_ridge(model.kernel, X, y, model.ridge).value
    process = kernax.condition(kernax.GaussianProcess(model.kernel), X, y, model.ridge).value
    assert_close(process.mean.coefficients, f.coefficients, TOLERANCE["solve"])  # pyright: ignore[reportFunctionMemberAccess]


@pytest.mark.nightly
@needs_x64
def test_the_machine_of_one_over_the_ridge_minimises_the_risk_of_that_ridge(problem, rng):
    """`sum hinge + ridge/2 |f|^2`, written out, beside the machine and nowhere less around it."""
    X, y = problem
    signs = np.sign(y)
    model = kernax.Model(kernax.RBF(1.3), 0.5)
    K = np.asarray(kernax.gram(model.kernel, X))
    solver = kernax.solvers.SMO(rtol=1e-9)
    a = kernax.svm(model.kernel, X, signs, 1 / model.ridge, bias=False, solver=solver).value
    a = np.asarray(a.coefficients)

    def risk(a):
        return np.sum(np.maximum(0, 1 - signs * (K @ a))) + model.ridge / 2 * a @ K @ a

    for direction in (a, -a, *rng.normal(size=(20, len(a)))):
        assert risk(a) < risk(a + 1e-3 * direction)


@pytest.mark.slow
@needs_x64
def test_gradients_are_models_and_agree_with_differences(problem):
    X, y = problem
    model = kernax.Model(2.0 * kernax.RBF(jnp.array([1.0, 2.0])), 0.3)
    gradient = jax.jit(jax.grad(evidence))(model, X, y)
    assert jax.tree.structure(gradient) == jax.tree.structure(model)
    check_derivatives(
        lambda model: evidence(model, X, y), (model,), rtol=TOLERANCE["gradient"], atol=1e-8
    )


@needs_x64
def test_a_noise_for_each_point_has_its_own_gradient(problem):
    X, y = problem
    model = kernax.Model(kernax.RBF(), jnp.linspace(0.1, 0.5, len(y)))
    gradient = jax.grad(evidence)(model, X, y).ridge
    step = 1e-5 * jnp.eye(len(y))[3]
    moved = [eqx.tree_at(lambda m: m.ridge, model, model.ridge + s) for s in (step, -step)]
    slope = (evidence(moved[0], X, y) - evidence(moved[1], X, y)) / 2e-5
    np.testing.assert_allclose(gradient[3], slope, rtol=TOLERANCE["gradient"])


def test_a_stack_of_models_under_vmap_is_each_of_them(problem):
    X, y = problem
    ridges = jnp.asarray([0.1, 0.5, 2.0], DTYPE)
    models = jax.vmap(lambda ridge: kernax.Model(kernax.RBF(ridge + 1), ridge))(ridges)
    assert models.ridge.shape == (3,)
    values = jax.vmap(evidence, (0, None, None))(models, X, y)
    alone = [evidence(kernax.Model(kernax.RBF(ridge + 1), ridge), X, y) for ridge in ridges]
    assert_close(values, jnp.stack(alone))


@pytest.mark.slow
@needs_x64
def test_minimise_learns_both_parts_to_where_no_neighbour_is_better(problem):
    X, y = problem
    start = kernax.Model(kernax.RBF(3.0), 1.0)
    learned = kernax.minimise(minus_evidence, start, LBFGS, 40, args=problem).value
    best = evidence(learned, X, y)
    assert best > evidence(start, X, y) + 0.5
    for factor in (0.9, 1.1):
        other = eqx.tree_at(lambda m: m.ridge, learned, factor * learned.ridge)
        assert evidence(other, X, y) < best
        other = kernax.Model(kernax.RBF(factor * learned.kernel.lengthscale), learned.ridge)  # pyright: ignore[reportAttributeAccessIssue]
        assert evidence(other, X, y) < best


def test_a_frozen_ridge_stays_and_random_starts_vary_it():
    model = kernax.Model(kernax.RBF(), 0.7)
    theta, rebuild = kernax.unconstrain(model, lambda path, _: path != "ridge")
    assert set(theta) == {"kernel.lengthscale"}
    assert rebuild({"kernel.lengthscale": jnp.asarray(1.0, DTYPE)}).ridge == model.ridge
    starts = kernax.selection.random_starts(model, 3, key=jax.random.key(0))
    assert len({float(start.ridge) for start in starts}) == 3


@pytest.mark.parametrize("ridge", [0.25, np.array([0.1, 0.2, 3.0])])
def test_a_model_comes_back_from_a_file_bitwise(ridge, tmp_path):
    model = kernax.Model(2.0 * kernax.Matern52(np.array([0.1, 0.3])) + kernax.Linear(), ridge)
    kernax.save(tmp_path / "model", model)
    again = kernax.load(tmp_path / "model")
    assert type(again) is kernax.Model
    assert bool(eqx.tree_equal(again, model, typematch=True))


@needs_x64
@pytest.mark.parametrize("ridge", [-1.0, 0.0, np.nan, np.inf, [0.1, -0.2]])
def test_a_number_that_is_not_positive_and_finite_is_refused_by_name(ridge):
    with pytest.raises(ValueError, match=r"Model\.ridge must be in \(0, inf\) and finite, but is"):
        kernax.Model(kernax.RBF(), ridge)


@needs_x64
@pytest.mark.parametrize("ridge", [None, "one", 1j])
def test_what_is_no_number_is_refused(ridge):
    with pytest.raises(ValueError, match="ridge must be"):
        kernax.Model(kernax.RBF(), ridge)


@needs_x64
def test_what_is_no_kernel_is_refused():
    check = untyped(kernax.Model.__check_init__)
    for kernel, words in ((kernax.RBF, "RBF: call it"), (1.0, "kernel must be a kernel")):
        model = object.__new__(kernax.Model)
        object.__setattr__(model, "kernel", kernel)
        with pytest.raises(ValueError, match=words):
            check(model)
