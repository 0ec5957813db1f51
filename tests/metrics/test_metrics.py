"""Scores against scikit-learn, SciPy and sums by hand; weights; traces; what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, check_derivatives, needs_x64
from scipy.special import expit, softmax
from scipy.stats import norm
from sklearn.metrics import (
    accuracy_score,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.metrics import log_loss as log_loss_of_probabilities

from kernax import metrics

RTOL = TOLERANCE["value"]
n = 40


@pytest.fixture
def numbers(rng):
    """Targets, predictions, variances and weights, one of them zero."""
    y = 3 + 2 * rng.normal(size=n)
    weights = rng.uniform(size=n)
    weights[3] = 0
    return y, y + rng.normal(size=n), rng.uniform(0.5, 2, n), weights


@pytest.fixture
def signs(rng):
    """Two classes, values with ties, and weights."""
    y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    return y, (y + 2 * rng.normal(size=n)).round(1), rng.integers(0, 3, n).astype(float)


@pytest.fixture
def columns(rng):
    """Three classes, values, and weights."""
    Y = np.eye(3)[np.arange(n) % 3]
    return Y, Y + rng.normal(size=(n, 3)), rng.integers(0, 3, n).astype(float)


def close(score, expected):
    assert score.shape == ()
    assert score.dtype == DTYPE
    np.testing.assert_allclose(score, expected, rtol=RTOL)


def test_the_root_mean_square_error_is_that_of_scikit_learn_weighted_or_not(numbers):
    y, mean, _, weights = numbers
    ours = metrics.root_mean_square_error
    close(ours(y, mean), root_mean_squared_error(y, mean))
    expected = root_mean_squared_error(y, mean, sample_weight=weights)
    close(ours(y, mean, weights=weights), expected)
    close(ours(y, 3.0), root_mean_squared_error(y, np.full(n, 3.0)))


@pytest.mark.parametrize("power", [-0.7, 0.7])
def test_errors_in_units_whose_squares_leave_the_range_of_floats_are_those_in_others(
    numbers, power
):
    y, mean, _, weights = numbers
    unit = float(np.finfo(DTYPE).tiny) ** power
    score = metrics.root_mean_square_error
    found = score(unit * y, unit * mean, weights=weights)
    expected = unit * score(y, mean, weights=weights)
    np.testing.assert_allclose(found, expected, rtol=20 * RTOL, atol=0)


def test_the_predictive_density_is_that_of_normal_distributions(numbers):
    y, mean, variance, weights = numbers
    surprise = -norm.logpdf(y, mean, np.sqrt(variance))
    density = metrics.negative_log_predictive_density
    close(density(y, mean, variance), surprise.mean())
    expected = np.average(surprise, weights=weights)
    close(density(y, mean, variance, weights=weights), expected)
    close(density(y, 0.0, 4.0), -norm.logpdf(y, 0, 2).mean())


def test_coverage_counts_targets_inside_both_ends_of_their_intervals():
    y = np.arange(4)
    close(metrics.interval_coverage(y, 0.0, 2.0), 0.75)
    high = np.array([1, 1, 1, 9])
    close(metrics.interval_coverage(y, np.ones(4), high, weights=np.array([1, 1, 0, 2])), 0.75)
    low = jnp.array([-jnp.inf, 0.5, -jnp.inf, jnp.inf])
    close(metrics.interval_coverage(y, low, jnp.inf), 0.75)
    close(metrics.interval_coverage(y, np.float32(-np.inf), np.float64(np.inf)), 1.0)
    with pytest.raises(ValueError, match="low holds NaN"):
        metrics.interval_coverage(y, low * jnp.nan, jnp.inf)


def test_scores_of_two_classes_are_those_of_scikit_learn_weighted_or_not(signs):
    y, f, weights = signs
    assert len(set(f)) < n  # ties
    for w in (None, weights):
        close(metrics.accuracy(y, f, weights=w), accuracy_score(y > 0, f > 0, sample_weight=w))
        expected = log_loss_of_probabilities(y > 0, expit(f), sample_weight=w)
        close(metrics.log_loss(y, f, weights=w), expected)
        close(metrics.area_under_curve(y, f, weights=w), roc_auc_score(y, f, sample_weight=w))


def test_scores_of_three_classes_are_those_of_scikit_learn_weighted_or_not(columns):
    Y, F, weights = columns
    labels = Y.argmax(1)
    for w in (None, weights):
        expected = accuracy_score(labels, F.argmax(1), sample_weight=w)
        close(metrics.accuracy(Y, F, weights=w), expected)
        expected = log_loss_of_probabilities(labels, softmax(F, 1), sample_weight=w)
        close(metrics.log_loss(Y, F, weights=w), expected)


def test_log_loss_of_a_wrong_class_with_large_log_odds_is_their_size():
    """Would catch logarithms of probabilities that are rounded to zero."""
    close(metrics.log_loss(np.array([-1, 1]), np.array([800.0, -400.0])), 600.0)
    close(metrics.log_loss(np.array([[1, 0]]), np.array([[0.0, 800.0]])), 800.0)


def test_of_classes_that_tie_the_first_counts_as_chosen():
    close(metrics.accuracy(np.array([-1, 1]), np.zeros(2)), 0.5)
    close(metrics.accuracy(np.eye(2), np.zeros((2, 2))), 0.5)


def test_the_area_depends_on_the_order_of_values_alone(signs):
    y, f, _ = signs
    close(metrics.area_under_curve(y, np.exp(f / 4)), metrics.area_under_curve(y, f))
    apart = np.array([0.0, 1.0, 2.0, -1.0])
    close(metrics.area_under_curve(np.array([-1, 1, 1, -1]), apart), 1.0)
    close(metrics.area_under_curve(np.array([-1, 1]), np.full(2, 3.0)), 0.5)


def test_calibration_is_counted_in_bins_of_equal_width_of_which_the_last_holds_one():
    p = np.array([0.0, 0.2, 0.5, 0.9, 1.0])
    came = np.array([0, 1, 1, 1, 0])
    curve = metrics.calibration_curve(came, p, n_bins=4)
    np.testing.assert_allclose(curve.probability, [0.1, np.nan, 0.5, 0.95], rtol=RTOL)
    np.testing.assert_array_equal(curve.frequency, [0.5, np.nan, 1, 0.5])
    np.testing.assert_array_equal(curve.weight, [2, 0, 1, 2])
    close(curve.error, (2 * 0.4 + 0.5 + 2 * 0.45) / 5)
    close(metrics.calibration_error(came, p, n_bins=4), curve.error)
    # 100 * 0.29 is less than 29 in float64, but 0.29 is where bin 29 begins.
    of_one = metrics.calibration_curve(np.ones(1), np.array([0.29]), n_bins=100)
    np.testing.assert_array_equal(of_one.weight, np.arange(100) == 29)


def test_a_perfect_calibration_has_no_error_and_a_reversed_one_the_largest():
    came = np.array([True, False])
    close(metrics.calibration_error(came, np.array([1.0, 0.0])), 0.0)
    close(metrics.calibration_error(came, np.array([0.0, 1.0])), 1.0)


def scores(y, f, binary, p, weights):
    """Every score of one set of rows; targets of any kind are made of signs."""
    Y = jnp.stack([y < 0, y > 0], 1).astype(f.dtype)
    return {
        "rmse": metrics.root_mean_square_error(y, f, weights=weights),
        "nlpd": metrics.negative_log_predictive_density(y, f, 1 + f**2, weights=weights),
        "coverage": metrics.interval_coverage(y, f - 1, f + 1, weights=weights),
        "accuracy": metrics.accuracy(y, f, weights=weights),
        "accuracy of columns": metrics.accuracy(Y, Y * f[:, None], weights=weights),
        "log loss": metrics.log_loss(y, f, weights=weights),
        "log loss of columns": metrics.log_loss(Y, Y * f[:, None], weights=weights),
        "area": metrics.area_under_curve(y, f, weights=weights),
        "calibration": metrics.calibration_error(binary, p, weights=weights),
    }


@pytest.fixture
def rows(signs, rng):
    y, f, weights = signs
    p = rng.uniform(size=n)
    arrays = (y, f, (y > 0).astype(float), p, weights)
    return tuple(jnp.asarray(array, DTYPE) for array in arrays)


@pytest.mark.nightly
def test_weight_two_is_the_row_repeated_and_weight_zero_the_row_removed(rows):
    *arrays, weights = rows
    repeated = np.repeat(np.arange(n), np.asarray(weights).astype(int))
    weighted = scores(*arrays, weights)
    plain = scores(*(array[repeated] for array in arrays), None)
    for name, score in weighted.items():
        np.testing.assert_allclose(score, plain[name], rtol=10 * RTOL, err_msg=name)


@pytest.mark.slow
def test_scores_are_the_same_compiled_and_for_a_batch_of_folds_in_one_program(rows):
    *arrays, weights = rows
    masks = jnp.stack([weights, jnp.ones_like(weights)])
    batch = jax.jit(jax.vmap(scores, (None, None, None, None, 0)))(*arrays, masks)
    for place, mask in enumerate(masks):
        alone = scores(*arrays, mask)
        for name, score in alone.items():
            np.testing.assert_allclose(batch[name][place], score, rtol=10 * RTOL, err_msg=name)


@needs_x64
def test_gradients_of_smooth_scores_match_differences(rows):
    y, f, _, _, weights = rows

    def smooth(f, weights):
        found = scores(y, f, (y > 0).astype(f.dtype), jnp.full_like(f, 0.5), weights)
        return [found[name] for name in ("rmse", "nlpd", "log loss", "log loss of columns")]

    check_derivatives(smooth, (f, weights + 0.5), rtol=1e-6, atol=1e-7)


def test_a_row_of_weight_zero_is_removed_however_large_its_error_is():
    """Its square was inf, and the score NaN."""
    y = jnp.asarray([0.0, 1.0, jnp.finfo(DTYPE).max], DTYPE)
    mean = jnp.asarray([0.5, 3.0, -jnp.finfo(DTYPE).max], DTYPE)
    weights = jnp.asarray([1.0, 1.0, 0.0], DTYPE)
    variance = jnp.asarray([1.0, 2.0, 0.5], DTYPE)

    def both(y, mean, variance, weights):
        rmse = metrics.root_mean_square_error(y, mean, weights=weights)
        return rmse + metrics.negative_log_predictive_density(y, mean, variance, weights=weights)

    value, slopes = jax.value_and_grad(both, (0, 1, 2, 3))(y, mean, variance, weights)
    plain = both(y[:2], mean[:2], variance[:2], weights[:2])
    np.testing.assert_allclose(value, plain, rtol=RTOL)
    assert all(np.isfinite(slope).all() for slope in slopes)


@needs_x64
def test_scores_of_numbers_have_their_derivative_in_a_weight_at_zero(numbers):
    """That of the root mean square error lacked the error of the row."""
    y, mean, variance, weights = map(jnp.asarray, numbers)
    for score in (
        lambda w: metrics.root_mean_square_error(y, mean, weights=w),
        lambda w: metrics.negative_log_predictive_density(y, mean, variance, weights=w),
    ):
        # One-sided differences of the second order at the weight that is zero.
        none, one, two = (score(weights.at[3].set(step)) for step in (0.0, 1e-5, 2e-5))
        expected = (4 * one - two - 3 * none) / 2e-5
        np.testing.assert_allclose(jax.grad(score)(weights)[3], expected, rtol=1e-6)


def test_a_bin_of_rows_of_weight_zero_alone_leaves_calibration_its_gradient():
    """The mean of no rows is 0 / 0, and its derivatives were NaN."""
    outcomes, p = jnp.asarray([1.0, 0.0, 1.0]), jnp.asarray([0.2, 0.4, 0.9], DTYPE)
    score = lambda p, w: metrics.calibration_error(outcomes, p, weights=w)
    of_p, of_weights = jax.grad(score, (0, 1))(p, jnp.asarray([1.0, 1.0, 0.0], DTYPE))
    np.testing.assert_allclose(of_p, [-0.5, 0.5, 0.0], rtol=RTOL)
    assert np.isfinite(of_weights).all()


def test_the_gradient_of_the_root_mean_square_error_is_zero_where_there_is_no_error():
    gradient = jax.grad(lambda mean: metrics.root_mean_square_error(jnp.ones(3), mean))
    np.testing.assert_array_equal(gradient(jnp.ones(3)), 0)


ONES = np.ones(3)
SIGNS = np.array([1.0, -1.0, 1.0])
REFUSED = [
    (metrics.root_mean_square_error, (1.0, 1.0), {}, r"y must have shape \(n,\) with n >= 1"),
    (metrics.root_mean_square_error, ([], []), {}, r"y must have shape \(n,\) with n >= 1"),
    (metrics.root_mean_square_error, (np.ones((3, 2)), ONES), {}, r"y must have shape \(n,\), but"),
    (metrics.root_mean_square_error, (ONES, np.ones(2)), {}, "mean must have shape"),
    (
        metrics.root_mean_square_error,
        (ONES, np.ones((3, 1))),
        {},
        r"mean must have shape \(3,\), but",
    ),
    (metrics.root_mean_square_error, (ONES, [1, np.nan, 1]), {}, "mean holds NaN or inf"),
    (metrics.root_mean_square_error, (["a", "b"], ONES[:2]), {}, "y must be an array of real"),
    (metrics.root_mean_square_error, (ONES, ONES), {"weights": -ONES}, "weights must not be neg"),
    (metrics.root_mean_square_error, (ONES, ONES), {"weights": 0 * ONES}, "not all be zero"),
    (
        metrics.negative_log_predictive_density,
        (ONES, ONES, [1, 0, 1]),
        {},
        r"variance must be in \(0, inf\), but variance\[1\] is 0",
    ),
    (metrics.accuracy, ([0.0, 1.0], [1.0, 1.0]), {}, "but row 0 is 0.0: see kernax.signs"),
    (metrics.accuracy, ([[1, 1], [0, 1]], np.ones((2, 2))), {}, r"row 0 is \[1. 1.\]"),
    (metrics.log_loss, (SIGNS, np.ones((3, 2))), {}, "y and values must have one shape"),
    (metrics.accuracy, (SIGNS[:, None], np.ones((3, 1))), {}, r"pass y\[:, 0\] and values"),
    (metrics.log_loss, (["u", "v"], np.ones(2)), {}, "see kernax.signs and kernax.one_hot"),
    (metrics.area_under_curve, (np.eye(3), np.eye(3)), {}, "take one column of 2"),
    (metrics.area_under_curve, (ONES, ONES), {}, r"y holds one class only, \+1: two are needed"),
    (metrics.area_under_curve, (SIGNS, ONES), {"weights": [1, 0, 1]}, "y holds one class only"),
    (metrics.calibration_error, ([0, 1, 2], ONES), {}, r"outcomes\[2\] is 2"),
    (
        metrics.calibration_error,
        ([0, 1], [0.5, 1.5]),
        {},
        r"probabilities must be in \[0, 1\], but",
    ),
    (metrics.calibration_error, (ONES, ONES), {"n_bins": 0}, "n_bins must be a positive integer"),
]


@needs_x64
@pytest.mark.parametrize(("score", "arguments", "options", "words"), REFUSED)
def test_what_cannot_be_scored_is_refused_by_name(score, arguments, options, words):
    as_array = lambda part: np.asarray(part) if isinstance(part, list) else part
    arguments = [as_array(part) for part in arguments]
    options = {name: as_array(part) for name, part in options.items()}
    with pytest.raises(ValueError, match=words):
        score(*arguments, **options)


@needs_x64
@pytest.mark.parametrize(
    ("score", "y", "values", "instead"),
    [
        (metrics.log_loss, [1, -1, 1], [0.9, 0.1, 0.6], r"log\(p / \(1 - p\)\)"),
        (metrics.accuracy, [1, -1, 1], [0.9, 0.1, 0.6], "p - 1/2"),
        (metrics.log_loss, [[1, 0, 0], [0, 0, 1]], [[0.7, 0.2, 0.1], [0, 0, 1]], r"log\(p\)"),
    ],
)
def test_probabilities_in_place_of_log_odds_are_told(score, y, values, instead):
    y, values = jnp.asarray(y, float), jnp.asarray(values, float)
    with pytest.warns(UserWarning, match=f"look like probabilities.* pass {instead} in place"):
        score(y, values)
    score(y, 2 * values)  # no warning, which would be an error


@pytest.mark.parametrize(
    ("score", "bad"),
    [
        (lambda v: metrics.negative_log_predictive_density(jnp.ones(3), 0.0, v), [1.0, 0.0, 1.0]),
        (lambda y: metrics.root_mean_square_error(y, 0.0), [1.0, np.inf, 1.0]),
        (lambda y: metrics.interval_coverage(y, 0.0, jnp.inf), [1.0, np.nan, 1.0]),
        (lambda y: metrics.interval_coverage(y, 0.0, jnp.inf), [1.0, np.inf, 1.0]),
        (lambda low: metrics.interval_coverage(jnp.ones(3), low, 2.0), [0.0, np.nan, 0.0]),
        (lambda v: metrics.coverage_curve(jnp.ones(3), 0.0, v).error, [1.0, 0.0, 1.0]),
        (lambda f: metrics.log_loss(jnp.ones(3), f), [1.0, np.inf, 1.0]),
        (lambda y: metrics.accuracy(y, jnp.ones(3)), [1.0, 0.0, -1.0]),
        (lambda y: metrics.log_loss(y, jnp.ones(3)), [1.0, 2.0, -1.0]),
        (lambda y: metrics.area_under_curve(y, jnp.arange(3.0)), [1.0, 2.0, -1.0]),
        (lambda y: metrics.area_under_curve(y, jnp.arange(3.0)), [1.0, 1.0, 1.0]),
        (lambda p: metrics.calibration_error(jnp.ones(3), p), [1.0, 0.5, -1.0]),
        (lambda y: metrics.calibration_error(y, jnp.ones(3)), [1.0, 0.5, 0.0]),
        (lambda w: metrics.accuracy(jnp.ones(3), jnp.ones(3), weights=w), [1.0, -1.0, 1.0]),
    ],
)
def test_what_would_be_refused_makes_the_score_nan_while_tracing(score, bad):
    bad = jnp.asarray(bad)
    with pytest.raises(ValueError, match=r"must|holds"):
        score(bad)
    assert np.isnan(jax.jit(score)(bad))
