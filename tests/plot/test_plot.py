"""Pictures: the arrays behind them, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import needs_x64, untyped
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure

import kernax
from kernax.plot import (
    coverage,
    decision_regions,
    intervals,
    kernel_profile,
    posterior_band,
    predicted_against_true,
    relevance,
    reliability,
    residual_quantiles,
    values_of_classes,
)

pytestmark = needs_x64  # once: no precision touches it


def test_a_band_is_two_deviations_wide_and_sorted():
    x, mean, deviation = (
        np.array([2.0, 0.0, 1.0]),
        np.array([5.0, 1.0, 3.0]),
        np.array([0.5, 0.1, 0.2]),
    )
    ax = Figure().subplots()
    assert (
        posterior_band(
            x, mean, deviation, observed=(np.array([0.0]), np.array([1.0])), names=("t", "$"), ax=ax
        )
        is ax
    )
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[0, 1], [1, 3], [2, 5]])
    edges = ax.collections[0].get_paths()[0].vertices
    assert {(0.0, 1.2), (2.0, 6.0), (2.0, 4.0)} <= {
        (float(a), round(float(b), 9)) for a, b in edges
    }
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "two sigma",
        "mean",
        "observed",
    ]
    assert ax.get_ylabel() == r"\$"
    with pytest.raises(ValueError, match="one shape"):
        posterior_band(x, mean[:2], deviation)
    with pytest.raises(ValueError, match="deviation must be finite"):
        posterior_band(x, mean, deviation * np.nan)
    for names in ("t", "ty", ("a", "b", "c")):
        with pytest.raises(
            ValueError, match="names must be two, of the input and the output, such as"
        ):
            untyped(posterior_band)(x, mean, deviation, names=names)


X = np.linspace(1960.0, 2000.0, 5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: untyped(posterior_band)(X, X, X, ax="a"),
            r"ax must be axes of matplotlib, .*plt\.subplots\(\), but is 'a'",
        ),
        (
            lambda: untyped(coverage)(X, X, X, ax=np.empty((2, 2), object)),
            r"ax must be axes of matplotlib.*an array of shape \(2, 2\)",
        ),
        (lambda: untyped(relevance)(kernax.RBF(jnp.ones(3)), 3), "columns must be the names .* 3$"),
        (
            lambda: untyped(relevance)(kernax.RBF(jnp.ones(1)), ["a"], ax=3),
            "ax must be axes of matplotlib, .* is 3$",
        ),
        (
            lambda: untyped(kernel_profile)(kernax.RBF(), X, key=jax.random.key(0), axes=3),
            "axes must be two axes of matplotlib, but is 3",
        ),
        (
            lambda: posterior_band(X[:, None], X, X),
            r"one shape \(n,\), n >= 1, but x has \(5, 1\), mean has .*: pass x\[:, 0\]$",
        ),
        (
            lambda: kernel_profile(kernax.RBF(), X[:, None], key=jax.random.key(0)),
            r"x has \(5, 1\): pass x\[:, 0\]$",
        ),
        (
            lambda: untyped(predicted_against_true)(X, kernax.Solution(None, None, {})),
            "predicted must be numbers, but is a Solution: pass its value",
        ),
    ],
)
def test_pictures_refuse_arguments_of_another_kind_by_name(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_profile_of_years_is_titled_by_the_year():
    left, _ = kernel_profile(kernax.RBF(), X, key=jax.random.key(0))
    assert left.get_title(loc="left") == "k(x, 1980)"


def test_a_profile_shows_the_kernel_and_draws():
    x = np.linspace(-2, 2, 41)
    left, right = kernel_profile(kernax.RBF(), x, key=jax.random.key(0), n_samples=2)
    np.testing.assert_allclose(left.lines[0].get_ydata(), np.exp(-(x**2) / 2), rtol=1e-5)
    assert len(right.lines) == 2
    assert not np.allclose(right.lines[0].get_ydata(), right.lines[1].get_ydata())
    for draws in (0, 2.0):
        with pytest.raises(ValueError, match="n_samples must be a positive integer, but is"):
            untyped(kernel_profile)(kernax.RBF(), x, key=jax.random.key(0), n_samples=draws)


def test_the_line_of_a_profile_is_in_order_whatever_the_order_of_the_places(rng):
    x = rng.permutation(np.linspace(-1, 3, 41))
    left, right = kernel_profile(kernax.RBF(), x, key=jax.random.key(0))
    places = np.sort(x)
    for line in (*left.lines, *right.lines):
        np.testing.assert_array_equal(line.get_xdata(), places)
    np.testing.assert_allclose(left.lines[0].get_ydata(), np.exp(-((places - 1) ** 2) / 2), 1e-5)


def test_regions_are_those_of_the_function_and_support_vectors_have_rings(rng):
    X = rng.normal(size=(12, 2))
    labels = np.where(X[:, 0] > 0, "right", "left")
    ax = decision_regions(lambda x: x[0], X, labels, support=abs(X[:, 0]) < 0.5, names=("a", "$"))
    mesh, *scatters = [part for part in ax.collections if not isinstance(part, ContourSet)]
    painted = np.asarray(mesh.get_array()).reshape(200, 200)
    assert np.all(np.diff(painted, axis=1) >= 0)
    assert set(painted.ravel()) == {0, 1}
    assert [len(scatter.get_offsets()) for scatter in scatters] == [
        np.sum(labels == "left"),
        np.sum(labels == "right"),
        np.sum(abs(X[:, 0]) < 0.5),
    ]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "left",
        "right",
        "support vector",
    ]
    assert ax.get_ylabel() == r"\$"


def test_a_machine_that_predicts_one_class_alone_is_drawn_without_a_boundary():
    """Catches a warning of matplotlib, which here is an error, of lines that are nowhere."""
    X = np.eye(4)[:, :2]
    support = np.ones(4, bool)
    ax = decision_regions(lambda x: 2 + x[0] ** 2, X, [0, 1, 0, 1], support=support)
    assert not [part for part in ax.collections if isinstance(part, ContourSet)]


def test_regions_of_several_classes_go_to_the_largest_value_in_the_order_of_the_classes(rng):
    X = rng.uniform(-1, 1, (9, 2))
    f = lambda x: jnp.stack([x[0], -x[0], x[0] * 0 - 5])
    ax = decision_regions(f, X, np.repeat([9, 10, 11], 3), classes=[10, 9, 11])
    painted = np.asarray(ax.collections[0].get_array()).reshape(200, 200)
    assert (painted[0, 0], painted[0, -1]) == (1, 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"X": np.ones((4, 3))}, r"X must have shape \(n, 2\)"),
        ({"labels": [0, 1, 1]}, r"labels must have shape \(4,\)"),
        ({"classes": [0, 2]}, "labels hold 1, which is not among the classes 0, 2"),
        ({"classes": [0, 1, 2]}, "a value for each of 3 classes, or one for two, but has 1"),
        ({"support": np.array([0, 1])}, "support must be"),
        ({"names": ("a",)}, "names must be two"),
    ],
)
def test_regions_refuse_what_does_not_fit(changes, words):
    arguments = {"X": np.eye(4)[:, :2], "labels": [0, 1, 0, 1]} | changes
    with pytest.raises(ValueError, match=words):
        untyped(decision_regions)(lambda x: x[0], **arguments)


def test_reliability_puts_a_dot_at_the_mean_of_each_bin_that_has_points():
    ax = reliability(np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 1, 1, 1]), n_bins=2)
    np.testing.assert_allclose(ax.collections[-1].get_offsets(), [[0.15, 0.5], [0.85, 1.0]])
    assert ax.get_title(loc="left") == "4 points, calibration error 0.25"
    low, high = ax.collections[0].get_segments()[1][:, 1]  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose([low, high], [0.3424, 1.0], atol=1e-4)  # Wilson, 2 of 2
    with pytest.raises(ValueError, match=r"between 0 and 1, but go from 0\.5 to 1\.2"):
        reliability(np.array([0.5, 1.2]), np.array([1.0, 1.0]))
    with pytest.raises(ValueError, match=r"outcomes must be 0 or 1, but hold 0\.5"):
        reliability(np.array([0.5]), np.array([0.5]))
    with pytest.raises(ValueError, match="n_bins must be a positive integer"):
        untyped(reliability)([0.5], [1], n_bins=0)


def test_a_histogram_of_each_class_counts_all_its_values():
    ax = values_of_classes(
        np.array([-2.0, -1.0, 0.5, 3.0, 3.0]), ["u", "u", "u", "v", "v"], n_bins=5
    )
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["u (3)", "v (2)"]
    assert sum(patch.get_height() for patch in ax.patches) == 5  # pyright: ignore[reportAttributeAccessIssue]
    ends = [patch.get_x() + patch.get_width() for patch in ax.patches]  # pyright: ignore[reportAttributeAccessIssue]
    assert max(ends) == pytest.approx(3.0)  # no empty bin beyond the last value
    assert len(values_of_classes(np.zeros(2), [1, 2]).patches) > 0
    with pytest.raises(ValueError, match="labels must have shape"):
        values_of_classes(np.array([1.0, 2.0]), ["u"])


def test_the_coverage_of_predictions_is_drawn_over_the_probability(rng):
    y = rng.normal(size=400)
    ax = coverage(y, np.zeros(400), np.full(400, 0.25))  # variances that are too small
    level, inside = np.asarray(ax.lines[1].get_xydata()).T
    assert (level[0], inside[0], level[-1], inside[-1]) == (0, 0, 1, 1)
    assert np.all(inside[1:-1] < level[1:-1])
    with pytest.raises(ValueError, match="one shape"):
        coverage(y, np.zeros(3), np.ones(400))


def test_standardised_residuals_are_drawn_over_normal_quantiles():
    y = np.array([3.0, -1.0, 1.0])
    ax = residual_quantiles(y, np.full(3, 1.0), np.full(3, 4.0))
    places = np.asarray(ax.collections[0].get_offsets())
    np.testing.assert_allclose(places[:, 1], [-1, 0, 1])
    np.testing.assert_allclose(places[1, 0], 0, atol=1e-6)
    assert ax.get_title(loc="left").startswith("3 points, standard deviation 0.816")


def test_targets_outside_of_their_intervals_are_marked_and_counted():
    y = np.array([0.0, 5.0, 1.0])
    ax = intervals(y, np.array([-1.0, 0, 0]), np.array([1.0, 1, 3]))
    assert ax.get_title(loc="left") == "3 points, 66.7 % inside"
    places = np.asarray(ax.collections[1].get_offsets())
    np.testing.assert_allclose(places[:, 1], [0, 5, 1])
    colours = np.asarray(ax.collections[1].get_facecolor())
    assert not np.allclose(colours[0], colours[1])
    np.testing.assert_allclose(colours[0], colours[2])


def test_infinite_intervals_are_drawn_just_beyond_the_rest():
    ax = intervals(np.zeros(2), np.array([-np.inf, -1]), np.array([1.0, np.inf]))
    assert ax.get_title(loc="left") == "2 points, 100.0 % inside"
    segments = ax.collections[0].get_segments()  # pyright: ignore[reportAttributeAccessIssue]
    for (_, low), (_, high) in segments:
        assert -1.2 < low < high < 1.2
    with pytest.raises(ValueError, match="low must be finite"):
        intervals(np.zeros(1), np.array([np.nan]), np.ones(1))


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e4, 1e-3])
def test_nothing_of_a_square_picture_is_cut_however_wide_its_tick_labels_are(rng, scale):
    """Constrained layout cut titles and names of axes of equal units by 0.04 inches at 1e3."""
    true = scale * (3 + rng.normal(size=30))
    predicted = true + 0.1 * scale * rng.normal(size=30)
    deviation = np.full(30, 0.1 * scale)
    title = "30 rows held out: RMSE 0.28998, NLPD 2.7495"
    assert_nothing_is_cut(predicted_against_true(true, predicted, deviation=deviation, title=title))
    assert_nothing_is_cut(predicted_against_true(true, predicted, title=title))


def assert_nothing_is_cut(ax):
    """All that is drawn lies inside the figure, in inches."""
    ax.figure.draw_without_rendering()
    drawn = ax.figure.get_tightbbox()
    width, height = ax.figure.get_size_inches()
    assert min(drawn.x0, drawn.y0, width - drawn.x1, height - drawn.y1) >= 0
