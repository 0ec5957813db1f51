"""Grids, random search and comparisons of learners, against loops over single fits."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import assert_close, check_derivatives, marked, needs_x64, real_data, untyped
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV

import kernax
from kernax.errors import NonFiniteError
from kernax.selection import random_search, select, time_folds

pytestmark = needs_x64  # once: what is searched is the same program in either precision

RNG = np.random.default_rng(0)
N = 24
X = RNG.normal(size=(N, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=N)
KEY = jax.random.key(0)
FOLDS = kernax.k_folds(N, 3)
START = kernax.Model(kernax.RBF(jnp.ones(2)), 0.1)
SCALES = np.geomspace(0.3, 3.0, 3)
RIDGES = np.geomspace(1e-3, 1.0, 4)
VALUES = {"lengthscale": SCALES, "ridge": RIDGES}


def fit(model, X, y, weights):
    return kernax.kernel_ridge(model.kernel, X, y, model.ridge, weights=weights, throw=False).value


def error(f, X, y, weights):
    return jnp.average((f.values(X) - y) ** 2, weights=weights)


LOSS = kernax.selection.CrossValidatedLoss(fit, error)


def search(values=VALUES, **settings):
    return kernax.grid_search(LOSS, START, values, args=(X, Y, FOLDS), **settings)


def test_a_grid_has_the_losses_and_the_choice_of_scikit_learn():
    found = search()
    peer = GridSearchCV(
        KernelRidge(kernel="rbf"),
        {"gamma": 1 / (2 * SCALES**2), "alpha": RIDGES},
        cv=[
            (np.asarray(learn), np.asarray(score)) for learn, score in zip(FOLDS.learn, FOLDS.score)
        ],
        scoring="neg_mean_squared_error",
    ).fit(X, Y)
    of_gammas = -peer.cv_results_["mean_test_score"].reshape(len(RIDGES), len(SCALES)).T
    assert_close(found.stats["losses"], of_gammas, 1e-9)
    assert_close(found.value.ridge, peer.best_params_["alpha"])
    assert found.stats["loss"] == jnp.min(found.stats["losses"])
    assert found.result == kernax.RESULTS.successful


@pytest.mark.slow
def test_a_grid_of_vectors_is_tried_row_by_row():
    rows = jnp.array([[0.5, 2.0], [1.0, 1.0], [2.0, 0.5]])
    found = search({"kernel.lengthscale": rows})
    expected = [float(LOSS(kernax.Model(kernax.RBF(row), 0.1), X, Y, FOLDS)) for row in rows]
    assert_close(found.stats["losses"], expected)


@pytest.mark.slow
def test_an_index_is_one_element_and_everything_else_stays():
    second = search({"lengthscale[1]": SCALES, "lengthscale[0]": [0.5, 1.0]})
    expected = [
        [
            float(LOSS(kernax.Model(kernax.RBF([first, scale]), 0.1), X, Y, FOLDS))
            for first in (0.5, 1.0)
        ]
        for scale in SCALES
    ]
    assert_close(second.stats["losses"], expected, 1e-9)


def test_losses_of_a_grid_are_differentiated_by_its_values_and_by_the_data():
    def total(ridges, y):
        found = kernax.grid_search(LOSS, START, {"ridge": ridges}, args=(X, y, FOLDS), throw=False)
        return jnp.sum(found.stats["losses"])

    check_derivatives(total, (jnp.asarray(RIDGES), jnp.asarray(Y)), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_a_random_search_draws_inside_its_ranges_and_keeps_the_best():
    ranges = {"lengthscale": (jnp.array([0.1, 1.0]), 5.0), "ridge": (1e-3, 1.0)}
    found = random_search(LOSS, START, ranges, 40, key=KEY, args=(X, Y, FOLDS))
    table = found.stats["table"]
    scales = np.asarray(table.columns["kernel.lengthscale"])
    assert scales.shape == (40, 2)
    assert scales[:, 0].min() > 0.1
    assert scales[:, 0].min() < 0.3  # logarithms are even: a tenth of the draws is below 0.15
    assert scales[:, 1].min() > 1.0
    assert scales.max() < 5.0
    assert np.all((table.columns["ridge"] > 1e-3) & (table.columns["ridge"] < 1.0))
    best = int(jnp.argmin(table.columns["loss"]))
    kernel: Any = found.value.kernel
    assert_close(kernel.lengthscale, scales[best])
    alone = LOSS(found.value, X, Y, FOLDS)
    assert_close(found.stats["loss"], alone)
    again = random_search(LOSS, START, ranges, 40, key=KEY, args=(X, Y, FOLDS))
    np.testing.assert_array_equal(again.stats["losses"], found.stats["losses"])


def nan_at_large_ridges(model, X, y, folds):
    return jnp.where(model.ridge > 0.05, jnp.nan, LOSS(model, X, y, folds))


def always_nan(model):
    return model.ridge * jnp.nan


def test_candidates_that_fail_are_never_chosen():
    found = kernax.grid_search(nan_at_large_ridges, START, VALUES, args=(X, Y, FOLDS))
    assert found.value.ridge < 0.05
    assert np.isnan(found.stats["losses"]).sum() == 2 * len(SCALES)
    assert found.stats["loss"] == np.nanmin(found.stats["losses"])
    lost = kernax.grid_search(always_nan, START, {"ridge": RIDGES}, throw=False)
    assert lost.result == kernax.RESULTS.nonfinite
    assert np.isnan(lost.stats["loss"])
    with pytest.raises(NonFiniteError, match="no candidate has a finite loss"):
        kernax.grid_search(always_nan, START, {"ridge": RIDGES})


def test_a_grid_is_traced_once_for_other_data_and_values():
    """J01."""
    counted = chex.assert_max_traces(error, 1)
    loss = kernax.selection.CrossValidatedLoss(fit, counted)
    for shift in (0.0, 1.0, 2.0):
        values = {"lengthscale": SCALES + shift, "ridge": RIDGES}
        kernax.grid_search(loss, START, values, args=(X, Y + shift, FOLDS))


@pytest.mark.nightly
def test_a_grid_runs_under_vmap_and_over_devices():
    targets = jnp.stack([Y, -2 * Y + X[:, 1]])
    both = jax.vmap(
        lambda y: kernax.grid_search(LOSS, START, VALUES, args=(X, y, FOLDS)).stats["losses"]
    )
    expected = [
        kernax.grid_search(LOSS, START, VALUES, args=(X, y, FOLDS)).stats["losses"] for y in targets
    ]
    assert_close(both(targets), np.stack(expected), 1e-9)
    shared = search(devices=jax.devices()[:1])
    assert_close(shared.stats["losses"], expected[0], 1e-9)


@pytest.mark.nightly
def test_gradients_find_a_lower_loss_than_the_grid_they_start_from():
    found = search()
    learned = kernax.minimise(LOSS, found.value, optax.adam(0.1), 15, args=(X, Y, FOLDS))
    assert learned.stats["loss"] < 0.8 * found.stats["loss"]


# Comparisons.


def candidate(kernel, ridge=0.1):
    def of_rows(X, y, weights):
        return fit(kernax.Model(kernel, ridge), X, y, weights)

    return of_rows


@pytest.mark.slow
def test_differences_have_the_standard_errors_of_paired_folds():
    """The correction of Nadeau & Bengio (2003) for folds that share rows, written out."""
    folds = kernax.k_folds(N, 4, key=KEY, n_repeats=2)
    candidates = {"wide": candidate(kernax.RBF(30.0)), "fit": candidate(kernax.RBF(1.0))}
    found = select(candidates, error, X, Y, folds)
    losses = np.stack(
        [kernax.cross_validate(each, error, X, Y, folds).scores for each in candidates.values()]
    )
    assert_close(found.losses, losses)
    gaps = losses[0] - losses[1]
    assert found.chosen == "fit"
    assert_close(found.difference, [gaps.mean(), 0.0])
    assert_close(found.standard_error, [np.sqrt((1 / 8 + 1 / 3) * gaps.var(ddof=1)), 0.0])
    np.testing.assert_array_equal(found.as_good, [False, True])


def test_candidates_within_a_standard_error_are_said_to_be_as_good():
    losses = jnp.array([[1.0, 2.0, 3.0], [1.5, 1.5, 3.1], [1.2, jnp.nan, 3.0], [4.0, 4.0, 6.0]])
    names = ("one", "two", "broken", "bad")
    found = kernax.types.Selection(names, losses, jnp.asarray(1 / 3 + 1 / 2))
    np.testing.assert_array_equal(found.as_good, [True, True, False, False])
    lines = str(found).splitlines()
    assert lines[0].split() == [
        "loss",
        "difference",
        "standard",
        "error",
        "as",
        "good",
        "as",
        "the",
        "best",
    ]
    assert [line.split()[0] for line in lines[1:-1]] == ["one", "two", "bad", "broken"]
    assert lines[-1] == "best: one, and within one standard error of it two"


@pytest.mark.slow
def test_a_candidate_that_fails_is_not_chosen():
    candidates = {
        "broken": lambda X, y, w: candidate(kernax.RBF(1.0))(X, y * jnp.nan, w),
        "constant": candidate(kernax.Constant()),
    }
    found = select(candidates, error, X, Y, FOLDS)
    assert found.chosen == "constant"
    assert np.isnan(found.mean[0])
    none = kernax.types.Selection(("a", "b"), jnp.full((2, 3), jnp.nan), jnp.ones(()))
    assert str(none).endswith("no candidate has a finite mean loss")
    with pytest.raises(ValueError, match="no candidate has a finite mean loss"):
        _ = none.chosen


@pytest.mark.slow
@pytest.mark.parametrize("name", marked(pytest.mark.nightly, ["concrete", "kin8nm"], "concrete"))
def test_learners_are_told_apart_on_real_data(name):
    """M9: smooth functions beat linear ones, on rows that had no part in either."""
    data = real_data(name)
    rows = np.random.default_rng(0).permutation(len(data["y"]))[:300]
    X, y = data["X"][rows], data["y"][rows]
    X, y = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    folds = kernax.k_folds(len(y), 5, key=KEY)
    found = select(
        {"linear": candidate(kernax.Linear(), 1.0), "smooth": candidate(kernax.RBF(3.0), 0.05)},
        error, X, y, folds,
    )  # fmt: skip
    assert found.chosen == "smooth"
    assert not found.as_good[0]


# Tables.


def test_a_table_is_text_and_a_frame_of_pandas():
    table = search({"lengthscale": SCALES}).stats["table"]
    frame = table.sorted_by("loss").to_pandas()
    assert list(frame) == ["kernel.lengthscale[0]", "kernel.lengthscale[1]", "loss"]
    assert_close(frame["loss"].to_numpy(), np.sort(table.columns["loss"]))
    assert len(table) == 3
    assert str(table).splitlines()[1].split()[0] == "0.3"
    long = kernax.types.Table({"x": jnp.arange(21)}, tuple(map(str, range(21))))
    assert str(long).splitlines()[-1] == "... and 1 more row"
    assert "more rows" not in str(kernax.types.Table({"x": jnp.arange(20)}))


def drawn(ranges):
    return random_search(LOSS, START, ranges, 3, key=KEY, args=(X, Y, FOLDS))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: search({}), "values must be a dictionary from parameters"),
        (lambda: search({"scale": [1.0]}), "no parameter ends in 'scale': the model's"),
        (lambda: search({"ridge": [-1.0]}), r"values\['ridge'\] must be in \(0, inf\)"),
        (lambda: search({"ridge": []}), r"values\['ridge'\] must hold at least one value"),
        (
            lambda: search({"lengthscale": np.ones((2, 3))}),
            r"must have shape \(k,\) or \(k, 2\), one value of kernel.lengthscale",
        ),
        (lambda: search({"lengthscale[2]": [1.0]}), "kernel.lengthscale has 2 elements"),
        (
            lambda: search({"lengthscale": [1.0], "lengthscale[0]": [1.0]}),
            r"values names kernel.lengthscale\[0\] and kernel.lengthscale, which overlap",
        ),
        (lambda: drawn({"ridge": (2.0, 1.0)}), "but 2.0 is above 1.0"),
        (lambda: drawn({"ridge": (0.0, 1.0)}), r"ranges\['ridge'\] must be in \(0, inf\)"),
        (lambda: drawn({"ridge": 1.0}), r"must be a pair \(low, high\), but is 1.0"),
        (lambda: drawn({"ridge": (np.ones(2), 3.0)}), "or arrays of the shape"),
        (
            lambda: kernax.grid_search(
                lambda model: model.kernel.terms[0].lengthscale,
                kernax.Model(kernax.RBF() + kernax.RBF()),
                {"lengthscale": [1.0]},
            ),
            "several parameters end in 'lengthscale'",
        ),
        (
            lambda: kernax.grid_search(
                lambda model: model.kernel.lengthscale, START, {"ridge": [1.0]}
            ),
            r"loss must return a scalar, but returns shape \(2,\)",
        ),
        (
            lambda: untyped(kernax.grid_search)(None, START, {"ridge": [1.0]}),
            "loss must be a function of a model",
        ),
        (
            lambda: untyped(kernax.grid_search)(LOSS, START, {"ridge": [1.0]}, args=X),
            "args must be a tuple of the arguments of loss",
        ),
        (lambda: select({}, error, X, Y, FOLDS), "candidates must be a dictionary"),
        (
            lambda: select({"a": fit}, error, X, Y, time_folds(N, 1)),
            "folds must be two at least",
        ),
        (
            lambda: untyped(select)({"a": fit}, error, X, Y, [1, 2]),
            "folds must come from k_folds or time_folds, .* of type list",
        ),
        (
            lambda: select({"a": lambda *_: 0}, lambda *_: jnp.asarray(Y), X, Y, FOLDS),
            "loss must return one number, but that of 'a' does not",
        ),
        (
            lambda: kernax.cross_validate(
                lambda *_: 0, lambda *_: 0, X, np.where(np.arange(N) == 3, np.nan, Y), FOLDS
            ),
            "y must be finite, but row 3 is nan",
        ),
        (
            lambda: untyped(kernax.cross_validate)(lambda *_: 0, lambda *_: 0, X, Y, 5),
            "folds must come from k_folds or time_folds, .* of type int",
        ),
        (
            lambda: kernax.cross_validate(
                lambda X, y, w: kernax.kernel_ridge(START.kernel, X, y, 0.1, weights=w),
                lambda *_: 0,
                X,
                Y,
                FOLDS,
            ),
            "fit must return the object to score: the .value of its Solution",
        ),
        (lambda: kernax.types.Table({"a": Y, "b": jnp.ones(3)}), "columns must have one length"),
        (lambda: kernax.types.Table({}), "at least one column"),
        (lambda: kernax.types.Table({"a": np.array(["x"])}), "columns must hold numbers, but 'a'"),
        (lambda: kernax.types.Table({"a": jnp.ones(2)}).sorted_by("b"), "there is no column 'b'"),
    ],
)  # fmt: skip
def test_what_cannot_be_searched_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
