"""Targets that are missing: with `missing="drop"` their rows are as rows that are not there."""

from typing import Any

import numpy as np
import pytest
from conftest import marked, needs_x64
from sklearn.base import clone

import kernax
import kernax.sklearn as ours

pytestmark = needs_x64  # estimators choose their precision by the data

ESTIMATORS = [
    ours.KernelRidge(kernel="rbf", alpha=0.1),
    ours.SVR(gamma=0.5),
    ours.GaussianProcessRegressor(1.0 * kernax.RBF(), alpha=0.1, normalize_y=True, learn=None),
    pytest.param(ours.RelevanceVectorRegressor(gamma=0.5), marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=40), np.arange(40) % 7 == 3


def copy_of(estimator) -> Any:
    return clone(estimator)


@pytest.mark.parametrize(
    "estimator",
    marked(pytest.mark.nightly, ESTIMATORS, "RelevanceVectorRegressor"),
    ids=lambda estimator: type(estimator).__name__,
)
def test_rows_whose_target_is_missing_are_as_rows_that_are_not_there(estimator, table):
    X, y, gone = table
    dropping = copy_of(estimator).set_params(missing="drop")
    assert dropping.get_params()["missing"] == "drop"
    weights = np.linspace(0.5, 2, 40)
    with_gaps = np.where(gone, np.nan, y)
    for given in (None, weights):
        kept = None if given is None else given[~gone]
        expected = copy_of(estimator).fit(X[~gone], y[~gone], kept).predict(X)
        found = dropping.fit(X, with_gaps, given).predict(X)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    # Without gaps there is nothing to drop.
    np.testing.assert_array_equal(dropping.fit(X, y).predict(X), estimator.fit(X, y).predict(X))
    with pytest.raises(ValueError, match="y contains NaN"):
        estimator.fit(X, with_gaps)


def test_a_row_is_dropped_where_one_of_several_outputs_is_missing(table):
    X, y, gone = table
    both = np.stack([y, -y], axis=1)
    with_gaps = both.copy()
    with_gaps[gone, 1] = np.nan
    ridge = ours.KernelRidge(kernel="rbf", alpha=0.1)
    expected = copy_of(ridge).fit(X[~gone], both[~gone]).predict(X)
    found = ridge.set_params(missing="drop").fit(X, with_gaps).predict(X)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_what_cannot_be_dropped_is_refused_in_words(table):
    X, y, gone = table
    ridge = ours.KernelRidge(missing="drop")
    with pytest.raises(ValueError, match="missing must be one of"):
        ours.KernelRidge(missing="ignore").fit(X, y)
    with pytest.raises(ValueError, match="missing='drop' leaves no row"):
        ridge.fit(X, np.full(40, np.nan))
    with pytest.raises(ValueError, match="missing='drop' leaves no row"):
        ridge.fit(X, np.where(gone, np.nan, y), sample_weight=gone)
    with pytest.raises(ValueError, match="infinity"):
        ridge.fit(X, np.where(gone, np.inf, y))
