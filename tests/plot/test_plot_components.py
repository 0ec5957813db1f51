"""Pictures of components, clusters and streams: the arrays behind them, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import needs_x64, untyped
from matplotlib.figure import Figure

import kernax
from kernax.plot import component_fields, decision_regions, embedding, mistakes_over_time

pytestmark = needs_x64  # once: no precision touches it

rng = np.random.default_rng(0)
POINTS = rng.normal(size=(12, 2))
LABELS = np.arange(12) % 3


def planes(x):
    """Two outputs that are linear, and zero on the diagonal and on the second axis."""
    return jnp.stack([x[0] - x[1], x[0]])


def test_a_field_is_drawn_for_each_output_with_a_line_where_it_is_zero():
    axes = component_fields(planes, POINTS, labels=LABELS, title="direction")
    assert [ax.get_title(loc="left") for ax in axes] == ["direction 1", "direction 2"]
    for ax, axis in zip(axes, ([1, -1], [1, 0])):
        zero = ax.collections[1].get_paths()[0].vertices
        np.testing.assert_allclose(zero @ np.array(axis), 0, atol=0.05)
    dots = np.concatenate([group.get_offsets() for group in axes[0].collections[2:]])
    np.testing.assert_allclose(np.sort(dots[:, 0]), np.sort(POINTS[:, 0]))
    assert len(component_fields(lambda x: jnp.concatenate([x, x, x]), POINTS)) == 4


def test_an_embedding_shows_each_group_at_its_points():
    ax = Figure().subplots()
    assert embedding(POINTS, labels=LABELS, names=("u", "v"), ax=ax) is ax
    for name, group in enumerate(ax.collections):
        np.testing.assert_allclose(group.get_offsets(), POINTS[name == LABELS])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0", "1", "2"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("u", "v")
    alone = embedding(POINTS)
    np.testing.assert_allclose(alone.collections[0].get_offsets(), POINTS)
    assert alone.get_legend() is None


def test_clusters_are_drawn_as_regions_with_marked_points():
    found = kernax.kernel_kmeans(kernax.RBF(), POINTS, 3, key=jax.random.key(0)).value
    marked = np.arange(12) < 4
    ax = decision_regions(
        found.function,
        POINTS,
        np.asarray(found.labels),
        classes=range(3),
        marked=marked,
        marked_as="first",
    )
    rings = next(group for group in ax.collections if group.get_label() == "first")
    np.testing.assert_allclose(rings.get_offsets(), POINTS[marked])
    with pytest.raises(ValueError, match=r"marked must be \(12,\) booleans"):
        decision_regions(found.function, POINTS, np.asarray(found.labels), marked=marked[:3])


def test_twelve_groups_have_a_mark_each_of_their_own():
    marks = embedding(POINTS, labels=np.arange(12)).collections
    colours = [tuple(mark.get_facecolor()[0]) for mark in marks]  # pyright: ignore
    shapes = [np.asarray(mark.get_paths()[0].vertices).tobytes() for mark in marks]
    assert len(set(zip(colours, shapes))) == 12


def test_mistakes_are_summed_from_the_first_point_on():
    wrong = np.array([1, 0, 1, 1, 0])
    ax = mistakes_over_time({"one": wrong, "none": wrong * 0}, bound=4.0, changes=[3])
    np.testing.assert_array_equal(
        ax.lines[0].get_xydata(), [[1, 1], [2, 1], [3, 2], [4, 3], [5, 3]]
    )
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), 0)
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), [4, 4])
    np.testing.assert_array_equal(ax.lines[3].get_xdata(), [3, 3])


def test_pictures_refuse_what_they_cannot_draw():
    with pytest.raises(ValueError, match=r"X must have shape \(n, 2\)"):
        component_fields(planes, POINTS[:, :1])
    with pytest.raises(ValueError, match=r"labels must have shape \(12,\)"):
        embedding(POINTS, labels=LABELS[:3])
    with pytest.raises(ValueError, match="must name at least one learner"):
        mistakes_over_time({})
    with pytest.raises(ValueError, match="mistakes of one must be zeros and ones"):
        untyped(mistakes_over_time)({"one": [0.5, 1.0]})
    with pytest.raises(ValueError, match="must have one shape"):
        mistakes_over_time({"one": np.ones(3), "two": np.ones(4)})
