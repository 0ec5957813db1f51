"""Pictures of components and clusters: the arrays behind them, and what is refused."""

import jax
import numpy as np
import pytest
from conftest import needs_x64
from matplotlib.figure import Figure

import kernax
from kernax.plot import decision_regions, embedding

pytestmark = needs_x64  # once: no precision touches it

rng = np.random.default_rng(0)
POINTS = rng.normal(size=(12, 2))
LABELS = np.arange(12) % 3


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


@pytest.mark.slow
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


def test_pictures_refuse_what_they_cannot_draw():
    with pytest.raises(ValueError, match=r"X must have shape \(n, 2\)"):
        embedding(POINTS[:, :1])
    with pytest.raises(ValueError, match=r"labels must have shape \(12,\)"):
        embedding(POINTS, labels=LABELS[:3])
