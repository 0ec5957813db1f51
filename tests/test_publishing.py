"""Pictures to publish: error bars, forecasts, relevance, loss surfaces, titles."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import needs_x64, untyped
from matplotlib.figure import Figure
from scipy import stats

import kernax
from kernax.plot import (
    decision_regions,
    loss_surface,
    posterior_band,
    predicted_against_true,
    relevance,
    reliability,
    score_title,
    values_of_classes,
)
from kernax.plot.style import COLOURS, MARKERS

pytestmark = needs_x64  # once: no precision touches it

TRUE = np.array([0.0, 1.0, 2.0, 3.0])
MEAN = np.array([0.1, 1.5, 2.0, 5.0])
DEVIATION = np.array([0.1, 0.2, 0.5, 0.5])


def legend_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def title_of(ax):
    return ax.get_legend().get_title().get_text()


def offsets(artist):
    return np.asarray(artist.get_offsets())


def labelled(ax, label):
    return next(part for part in ax.collections if str(part.get_label()).startswith(label))


def test_error_bars_are_two_deviations_and_those_beyond_the_diagonal_are_counted():
    ax = Figure().subplots()
    assert predicted_against_true(TRUE, MEAN, deviation=DEVIATION, name="$", ax=ax) is ax
    assert legend_of(ax) == ["within two sigma (2)", "beyond two sigma (2)"]
    np.testing.assert_array_equal(offsets(labelled(ax, "within")), [[0, 0.1], [2, 2]])
    np.testing.assert_array_equal(offsets(labelled(ax, "beyond")), [[1, 1.5], [3, 5]])
    bars = np.concatenate([part.get_segments() for part in ax.collections[::2]])  # pyright: ignore[reportAttributeAccessIssue]
    ends = [[[0, -0.1], [0, 0.3]], [[2, 1], [2, 3]], [[1, 1.1], [1, 1.9]], [[3, 4], [3, 6]]]
    np.testing.assert_allclose(bars, ends, atol=1e-12)
    error = np.sqrt(np.mean((TRUE - MEAN) ** 2))
    density = -np.mean(stats.norm.logpdf(TRUE, MEAN, DEVIATION))
    assert title_of(ax) == f"4 points, RMSE {error:.4g}, NLPD {density:.4g}"
    assert ax.get_xlabel() == r"true \$"


def test_a_few_long_bars_do_not_squeeze_the_other_predictions():
    true = np.linspace(0, 1, 100)
    deviation = np.where(np.arange(100) < 4, 1e6, 0.1)
    ax = predicted_against_true(true, true, deviation=deviation)
    assert ax.get_ylim() == ax.get_xlim()
    assert ax.get_ylim()[1] < 2


@pytest.mark.parametrize(
    ("deviation", "words"),
    [
        (DEVIATION * 0, "deviation must be positive, but the least is 0"),
        (DEVIATION[:3], "true and deviation must have one shape"),
        (DEVIATION * np.nan, "deviation must be finite"),
    ],
)
def test_error_bars_refuse_what_is_no_deviation(deviation, words):
    with pytest.raises(ValueError, match=words):
        predicted_against_true(TRUE, MEAN, deviation=deviation)


def test_a_forecast_begins_at_a_line_and_stands_on_grey():
    x = np.linspace(0, 10, 11)
    ax = posterior_band(x, x, x * 0 + 1, learned_until=7, title="a $ title")
    assert title_of(ax) == r"a \$ title"
    left, right = ax.get_xlim()
    grey = ax.patches[0]
    assert (grey.get_x(), grey.get_x() + grey.get_width()) == (7, right)  # pyright: ignore[reportAttributeAccessIssue]
    assert left < 0
    assert right > 10
    np.testing.assert_array_equal(ax.lines[1].get_xdata(), [7, 7])
    assert [(text.get_text(), text.get_horizontalalignment()) for text in ax.texts] == [
        ("learned", "right"),
        ("forecast", "left"),
    ]
    for place in (0, 10.0, 12.0, np.nan):
        with pytest.raises(ValueError, match="learned_until must lie between the smallest and"):
            posterior_band(x, x, x * 0 + 1, learned_until=place)


def test_a_title_names_the_scores_and_the_rows_that_were_held_out():
    scores = {"RMSE": 53.0671, "NLPD": "5.3947", "AUC": jnp.asarray(0.5)}
    assert score_title(scores, 110) == "110 rows held out: RMSE 53.07, NLPD 5.3947, AUC 0.5"
    assert score_title({"accuracy": 1.0}, 1) == "1 row held out: accuracy 1"
    with pytest.raises(ValueError, match="scores must name at least one score"):
        score_title({}, 3)
    with pytest.raises(ValueError, match="rows must be a positive integer, but is 0"):
        score_title({"RMSE": 1.0}, 0)


def test_a_title_is_broken_between_scores_where_the_axes_are_narrow():
    text = score_title({"accuracy": "0.9400", "log loss": "0.2013", "AUC": "0.9983"}, 50)
    ax = Figure(figsize=(3.3, 3.3)).subplots()
    predicted_against_true(TRUE, MEAN, title=text, ax=ax)
    lines = ax.get_title(loc="left").split("\n")
    assert " ".join(lines) == text
    assert len(lines) > 1
    assert all(line.endswith((":", ",", "0.9983")) for line in lines)


def test_pictures_of_classes_take_a_title(rng):
    X = rng.normal(size=(6, 2))
    labels = [0, 1] * 3
    ax = decision_regions(lambda x: x[0], X, labels, title="a title")
    assert title_of(ax) == "a title"
    assert title_of(values_of_classes(X[:, 0], labels, title="a title")) == "a title"
    ax = reliability(np.array([0.5]), np.array([1]), title="a title")
    assert ax.get_title(loc="left") == "a title, calibration error 0.5"


def test_classes_have_shapes_of_their_own(rng):
    f = lambda x: jnp.stack([x[0], x[1], -x[0]])
    ax = decision_regions(f, rng.normal(size=(9, 2)), [0, 1, 2] * 3)
    dots, diamonds, squares = (
        np.asarray(labelled(ax, str(i)).get_paths()[0].vertices) for i in range(3)
    )
    assert dots.shape != diamonds.shape
    assert not np.allclose(diamonds, squares)
    assert len(set(MARKERS)) == len(set(COLOURS)) == len(COLOURS)


def bars_of(ax):
    return {
        group.get_label(): [bar.get_width() for bar in group]  # pyright: ignore[reportGeneralTypeIssues]
        for group in ax.containers
    }


def rows_of(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def test_relevance_is_the_inverse_lengthscale_sorted():
    kernel = 2.0 * kernax.RBF(jnp.array([4.0, 0.5, 2.0]))
    ax = relevance(kernax.Model(kernel), ["age", "$", "bmi"], title="learned")
    assert bars_of(ax) == {"RBF": [2, 0.5, 0.25]}
    assert rows_of(ax) == [r"\$", "bmi", "age"]
    assert [text.get_text() for text in ax.texts] == ["2", "0.5", "0.25"]
    assert ax.get_title(loc="left") == "learned"
    low, high = ax.get_ylim()
    assert low > high  # the most relevant on top


def test_terms_with_lengthscales_have_bars_of_their_own_over_the_columns_that_they_see():
    first = kernax.RBF(jnp.array([4.0, 0.5, 2.0]))
    some = kernax.On(kernax.RBF(jnp.array([1.0, 8.0])), (0, 2))
    turned = kernax.On(first, (2, 1, 0))
    kernel = first + 3.0 * some * kernax.Periodic(1.0, 1.0) + kernax.Linear() + turned
    ax = relevance(kernel, ["a", "b", "c"])
    assert rows_of(ax) == ["b", "a", "c"]
    assert bars_of(ax) == {
        "RBF (1)": [2, 0.25, 0.5],
        "RBF (2)": [0, 1, 0.125],
        "RBF (3)": [2, 0.5, 0.25],
    }
    assert legend_of(ax) == ["RBF (1)", "RBF (2)", "RBF (3)"]
    hatches = {group[0].get_hatch() for group in ax.containers}
    assert len(hatches) == 3


def test_relevance_in_a_metric_is_the_root_of_its_diagonal():
    metric = kernax.kernels.Mahalanobis(kernax.RBF(2.0), [[3.0, 0.0, 4.0], [4.0, 0.0, 0.0]])
    ax = relevance(metric, ["a", "b", "c"])
    assert rows_of(ax) == ["a", "c", "b"]
    assert bars_of(ax) == {"Mahalanobis": pytest.approx([2.5, 2.0, 0.0])}


def test_choices_of_choices_of_columns_are_followed():
    inner = kernax.On(kernax.RBF(0.25), 1)
    ax = relevance(kernax.On(inner, slice(1, 3)) + kernax.On(kernax.RBF(1.0), 0), ["a", "b", "c"])
    assert rows_of(ax) == ["c", "a", "b"]
    assert bars_of(ax) == {"RBF (1)": [4, 0, 0], "RBF (2)": [0, 1, 0]}


def test_the_most_relevant_of_many_columns_are_drawn_and_the_others_counted():
    lengths = {"rbf": np.arange(1.0, 31.0), "linear": np.full(30, np.nan)}
    lengths["linear"][29] = 0.1
    ax = relevance(lengths, [f"c{i}" for i in range(30)], max_columns=3, title="many")
    assert rows_of(ax) == ["c29", "c0", "c1"]
    assert title_of(ax) == "many, the 3 most relevant of 30 columns"


@pytest.mark.parametrize(
    ("model", "columns", "words"),
    [
        (kernax.RBF(1.0), ["a", "b"], "model must have lengthscales for each of 2 columns"),
        ({}, ["a"], "model must have lengthscales for each of 1 columns"),
        ({"k": np.ones(3)}, ["a", "b"], r"lengthscales of k must have shape \(2,\)"),
        (
            kernax.RBF(jnp.ones(3)),
            ["a", "b"],
            r"lengthscales of RBF must have shape \(2,\), one for",
        ),
        ({"k": np.array([1.0, 0.0])}, ["a", "b"], "lengthscales of k must be positive"),
        ({"k": np.full(2, np.nan)}, ["a", "b"], "lengthscales of k must be positive"),
        ({"k": np.ones(1)}, "a", "columns must be the names"),
        (
            kernax.On(kernax.RBF(1.0), 2),
            ["a", "b"],
            r"On\(kernel, 2\) chooses dimensions that 2 columns do",
        ),
    ],
)
def test_relevance_refuses_what_does_not_fit(model, columns, words):
    with pytest.raises(ValueError, match=words):
        untyped(relevance)(model, columns)


FIRST = np.geomspace(0.1, 10, 9)
SECOND = np.linspace(0, 3, 8)


def bowl():
    return np.log(FIRST)[:, None] ** 2 + (SECOND - SECOND[4]) ** 2


def test_a_surface_shows_each_loss_at_its_cell_with_the_best_and_the_path():
    losses = bowl()
    losses[0, :2] = (np.nan, np.inf)
    path = np.array([[0.2, 0.5], [0.5, 1.0], [1.0, 1.5], [np.nan, np.nan]])
    ax = loss_surface(
        FIRST, SECOND, losses, path=path, names=("l", "$"), log=(True, False), title="a title"
    )
    mesh = ax.collections[0]
    values = np.ma.masked_invalid(mesh.get_array()).reshape(8, 9)
    np.testing.assert_array_equal(values.mask.T, ~np.isfinite(losses))
    np.testing.assert_array_equal(values.compressed(), losses.T[np.isfinite(losses.T)])
    corners = mesh.get_coordinates()  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(corners[0, 1:-1, 0], np.sqrt(FIRST[1:] * FIRST[:-1]))
    np.testing.assert_allclose(corners[1:-1, 0, 1], (SECOND[1:] + SECOND[:-1]) / 2)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")
    np.testing.assert_array_equal(offsets(labelled(ax, "best cell, 0")), [[FIRST[4], SECOND[4]]])
    np.testing.assert_array_equal(offsets(labelled(ax, "start")), path[:1])
    np.testing.assert_array_equal(offsets(labelled(ax, "end of the path")), path[2:3])
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), path[:3])
    hatched = labelled(ax, "not finite")
    assert hatched.get_hatch()
    assert len(hatched.get_paths()) == 2
    assert ax.get_ylabel() == r"\$"
    assert title_of(ax) == "a title"


def test_bands_of_losses_are_quantiles_from_the_least_to_the_largest():
    losses = np.exp(bowl() * 3)
    ax = loss_surface(FIRST, SECOND, losses, log=(True, False))
    ends = ax.collections[0].norm.boundaries  # pyright: ignore[reportAttributeAccessIssue]
    assert (ends[0], ends[-1]) == (losses.min(), losses.max())
    shares = [np.mean(losses <= end) for end in ends[1:]]
    assert np.all(np.diff(shares) > 0)
    assert shares[0] < 0.1
    flat = loss_surface(np.arange(2), np.arange(2), np.full((2, 2), 3.0))
    assert len(flat.collections) == 2  # the cells and the best


def test_a_path_that_leaves_the_grid_is_shown_whole():
    path = np.array([[1.0, 1.0], [100.0, -2.0]])
    ax = loss_surface(FIRST, SECOND, bowl(), path=path, log=(True, False))
    assert ax.get_xlim()[1] > 100
    assert ax.get_ylim()[0] < -2
    assert ax.get_xlim()[0] < 0.1
    assert "end of the path" in legend_of(ax)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"first": FIRST[::-1]}, "first must be two or more increasing values"),
        ({"second": np.ones(1)}, "second must be two or more increasing values"),
        ({"second": SECOND, "log": True}, "second must be positive and finite on a logarithmic"),
        ({"first": np.r_[FIRST[:-1], np.inf]}, "first must be finite"),
        ({"losses": bowl().T}, r"losses must have shape \(9, 8\), a row for each value"),
        ({"losses": bowl() * np.nan}, "losses must hold a finite value"),
        ({"path": np.ones(3)}, r"path must have shape \(steps, 2\)"),
        ({"path": np.array([[np.nan, 1.0]])}, "path must hold a step without NaN"),
        (
            {"path": np.array([[-1.0, 1.0]]), "log": (True, False)},
            "positive values on logarithmic axes",
        ),
        ({"names": ("a",)}, "names must be two, of the two parameters"),
    ],
)
def test_a_surface_refuses_what_does_not_fit(changes, words):
    arguments = {"first": FIRST, "second": SECOND, "losses": bowl()} | changes
    with pytest.raises(ValueError, match=words):
        untyped(loss_surface)(**arguments)


# Colours as people see them who lack one kind of cones (Machado, Oliveira & Fernandes 2009, table
# of severity 1.0), in linear RGB.
LACKING = {
    "none": np.eye(3),
    "long": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "middle": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "short": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
) / np.array([[0.9505], [1.0], [1.089]])


def in_lab(colour, lacking):
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(np.asarray(LACKING[lacking]) @ linear, 0, 1)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("lacking", LACKING)
def test_people_who_lack_one_kind_of_cones_can_tell_the_colours_apart(lacking):
    seen = [in_lab(colour, lacking) for colour in COLOURS]
    distance = lambda some: min(
        np.linalg.norm(one - other) for one, other in itertools.combinations(some, 2)
    )
    assert distance(seen) >= 18
    assert distance(seen[:5]) >= 28
