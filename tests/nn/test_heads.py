"""Heads of networks: their learners' values, episodes in a batch, bad input and failed solves."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, TYPED, assert_close, needs_x64

import kernax
from kernax.nn import LogisticHead, ProcessHead, RidgeHead, SVMHead

RBF = kernax.RBF(1.5)
HEADS = {
    "ridge": RidgeHead(RBF, 0.3, bias=True),
    "logistic": LogisticHead(RBF, 0.3),
    "svm": SVMHead(RBF, 0.7),
    "process": ProcessHead(1.2 * RBF, 0.3),
}
LABELS = np.array([0, 0, 1, 1, 2, 2, 0])
Y = np.eye(3, dtype=DTYPE)[LABELS]
EPISODES = 4
every_head = pytest.mark.parametrize("name", HEADS)


@pytest.fixture
def episodes(rng):
    """Support and query points of four episodes, and weights of their support points."""
    centres = 1.5 * rng.normal(size=(EPISODES, 3, 2))
    X = centres[:, LABELS] + rng.normal(size=(EPISODES, 7, 2))
    X_new = rng.normal(size=(EPISODES, 4, 2))
    weights = np.ones((EPISODES, 7))
    weights[1, 6] = 0
    weights[2, [0, 5]] = 0, 2
    return X.astype(DTYPE), X_new.astype(DTYPE), weights.astype(DTYPE)


def by_the_learner(name, X, X_new, weights):
    """What the head of that name computes, by the learner that a user would call."""
    options = {"weights": weights}
    if name == "ridge":
        return kernax.kernel_ridge(RBF, X, Y, 0.3, bias=True, **options).value.values(X_new)
    if name == "logistic":
        return kernax.kernel_softmax(RBF, X, Y, 0.3, **options).value.values(X_new)
    if name == "svm":
        return kernax.svm(RBF, X, 2 * Y - 1, 0.7, **options).value.values(X_new)
    process = kernax.condition(1.2 * RBF, X, Y, 0.3, **options).value
    return jax.vmap(process.mean)(X_new), jax.vmap(process.variance)(X_new)


def all_close(a, b, tolerance=TOLERANCE["value"]):
    jax.tree.map(lambda x, z: assert_close(x, z, tolerance), a, b)


@pytest.mark.slow
@every_head
def test_a_head_gives_the_values_of_its_learner(name, episodes):
    X, X_new, weights = (part[2] for part in episodes)
    values = HEADS[name](X, Y, X_new, weights=weights)
    all_close(values, by_the_learner(name, X, X_new, weights))
    assert all(leaf.dtype == DTYPE for leaf in jax.tree.leaves(values))


@pytest.mark.slow
@needs_x64
def test_signs_of_two_classes_have_one_value_a_point(episodes):
    X, X_new, weights = (part[0] for part in episodes)
    y = 2 * Y[:, 0] - 1
    log_odds = kernax.kernel_logistic(RBF, X, y, 0.3, weights=weights).value.values(X_new)
    assert_close(HEADS["logistic"](X, y, X_new, weights=weights), log_odds)
    one_of_three = HEADS["svm"](X, Y, X_new, weights=weights)[:, 0]
    assert_close(HEADS["svm"](X, y, X_new, weights=weights), one_of_three)


@pytest.mark.slow
@needs_x64
@every_head
def test_episodes_in_a_batch_have_the_gradients_of_a_loop_and_a_failure_stays_alone(name, episodes):
    """Of the value and of the gradients for the head, the features and the weights."""
    episodes[0][3, 0] = np.nan
    theta, rebuild = kernax.unconstrain(HEADS[name])

    def loss(theta, X, X_new, weights):
        values = rebuild(theta)(X, Y, X_new, weights=weights)
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(values))

    gradients = jax.value_and_grad(loss, argnums=(0, 1, 2, 3))
    together = jax.jit(jax.vmap(gradients, (None, 0, 0, 0)))(theta, *episodes)
    one = jax.jit(gradients)
    for i in range(3):
        alone = one(theta, *(part[i] for part in episodes))
        all_close(jax.tree.map(lambda leaf, i=i: leaf[i], together), alone, TOLERANCE["solve"])
        assert all(np.any(leaf != 0) for leaf in jax.tree.leaves(alone))
    value, (_, *of_points, _) = together
    assert all(np.isnan(leaf[3]).all() for leaf in (value, *of_points))


@pytest.mark.slow
@needs_x64
def test_a_solve_that_is_not_accurate_is_nan_and_the_status_says_so(episodes):
    X, X_new, weights = (part[0] for part in episodes)
    head = LogisticHead(RBF, 1e-18)
    solution = head.solve(X, Y, weights=weights)
    assert solution.result != kernax.RESULTS.successful
    assert np.isfinite(solution.value.coefficients).all()
    assert np.isnan(head(X, Y, X_new, weights=weights)).all()


@pytest.mark.slow
@needs_x64
@every_head
def test_bad_input_is_named(name, episodes):
    X, X_new, _ = episodes
    head = HEADS[name]
    with pytest.raises(ValueError, match=r"y must have shape .*jax.vmap\(head\)"):
        head(X, np.stack([Y] * EPISODES), X_new)
    with pytest.raises(ValueError, match=r"[yY] must have shape \(7,\)"):
        head(X[0], Y[:5], X_new[0])
    with pytest.raises(ValueError, match="points must be vectors of one length"):
        head(X[0], Y, X_new[0, :, :1])
    with pytest.raises(ValueError, match="X holds NaN or inf"):
        head(X[0] * np.inf, Y, X_new[0])
    with pytest.raises(ValueError, match="weights"):
        head(X[0], Y, X_new[0], weights=-np.ones(7))


@needs_x64
def test_bad_classes_are_named(episodes):
    X, X_new, _ = episodes
    for name in ("logistic", "svm"):
        with pytest.raises(ValueError, match="one_hot"):
            HEADS[name](X[0], 2 * Y - 1, X_new[0])
        with pytest.raises(ValueError, match="y must hold -1 and \\+1"):
            HEADS[name](X[0], LABELS, X_new[0])
    with pytest.raises(ValueError, match="column 0 of y holds one class only"):
        HEADS["svm"](X[0][2:6], Y[2:6], X_new[0])
    # Under jit values are not known, and no class is made of another number.
    signs = jnp.asarray(2 * Y - 1)
    assert np.isnan(jax.jit(lambda Y: HEADS["svm"](X[0], Y, X_new[0]))(signs)).all()


@needs_x64
def test_bad_parameters_are_named():
    with pytest.raises(ValueError, match=r"RidgeHead.ridge must be in"):
        RidgeHead(RBF, -1.0)
    with pytest.raises(ValueError, match=r"SVMHead.C must be in"):
        SVMHead(RBF, 0.0)
    with pytest.raises(ValueError, match=r"ProcessHead.noise must be in"):
        ProcessHead(RBF, 0.0)


@needs_x64
def test_the_parameters_of_a_network_and_its_head_are_one_dictionary():
    network = eqx.nn.Linear(3, 2, key=jax.random.key(0))
    theta, rebuild = kernax.unconstrain((network, HEADS["svm"]))
    paths = ["[0].weight", "[0].bias", "[1].kernel.lengthscale", "[1].C"]
    assert list(theta) == paths
    _, head = rebuild(theta | {"[1].C": theta["[1].C"] + 1})
    assert_close(head.C, 0.7 * np.e)


@pytest.mark.parametrize(
    ("head", "solver"),
    [
        (RidgeHead, kernax.solvers.ConjugateGradient()),
        (ProcessHead, kernax.solvers.JitteredCholesky()),
        (SVMHead, kernax.solvers.SMO(rtol=1e-2)),
    ],
)
def test_a_head_hands_its_solver_to_its_learner_and_learns_nothing_in_it(head, solver, rng):
    X = rng.normal(size=(6, 2)).astype(DTYPE)
    y = np.where(X[:, 0] > np.median(X[:, 0]), 1, -1).astype(DTYPE)
    made = head(RBF, 0.3, solver=solver)
    solve = {
        RidgeHead: functools.partial(kernax.kernel_ridge, throw=False),
        ProcessHead: functools.partial(kernax.condition, throw=False),
        SVMHead: functools.partial(kernax.svm, throw=False),
    }[head]
    found, expected = made.solve(X, y).stats, solve(RBF, X, y, 0.3, solver=solver).stats
    assert str(found.get("solver")) == str(expected.get("solver"))
    assert found.get("steps") == expected.get("steps")
    learned = kernax.unconstrain(made)[0]
    assert set(learned) == set(kernax.unconstrain(head(RBF, 0.3))[0])


@pytest.mark.skipif(TYPED, reason="beartype checks annotations first")
def test_a_bias_that_is_no_boolean_is_refused():
    with pytest.raises(ValueError, match="bias must be True or False, but is 'no'"):
        LogisticHead(RBF, 1.0, bias="no")
