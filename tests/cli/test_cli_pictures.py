"""Which picture a fit has: by its model, the number of inputs and the number of classes."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import needs_x64

import kernax
from kernax.cli.job import FitReport, Split
from kernax.cli.picture import _confusion, draw
from kernax.core.learner.expansion import KernelExpansion
from kernax.preparation.encoders import Number
from kernax.preparation.inputs import Inputs
from kernax.preparation.predictors import GP, LOGISTIC, RIDGE, SVM, ClassPredictor, Regressor
from kernax.preparation.standards import standards_of_columns, standards_of_target

pytestmark = needs_x64  # once: no precision touches it
KERNEL = kernax.RBF(1.0)


def split(rng, d, y, classes=()):
    """Twelve rows to learn from and four held out."""
    names = tuple("abc"[:d])
    X = rng.normal(size=(16, d))
    inputs = Inputs(tuple(map(Number, names)), "$t", standards_of_columns(X, names))
    return Split(X[:12], y[:12], X[12:], y[12:], inputs, classes)


def numbers(rng, d, kind):
    parts = split(rng, d, rng.normal(size=16))
    target = standards_of_target(parts.y, "$t")
    X = jnp.asarray(parts.X)
    y = jnp.asarray(target.standardised(parts.y))
    if kind == GP:
        model = kernax.condition(kernax.GaussianProcess(KERNEL), X, y, 0.1).value
    else:
        model = KernelExpansion(KERNEL, X, y, jnp.zeros(()))
    return parts, Regressor(parts.inputs, kind, model, 0.1, target)


def classes(rng, d, count, kind):
    names = ("first", "second", "third")[:count]
    parts = split(rng, d, np.resize(names, 16), names)
    shape = (count,) if count > 2 else ()
    coefficients = jnp.asarray(rng.normal(size=(12, *shape)))
    function = KernelExpansion(KERNEL, jnp.asarray(parts.X), coefficients, jnp.zeros(shape))
    return parts, ClassPredictor(parts.inputs, kind, function, 1.0, names)


def texts_of(path, parts, predictor):
    """What stands in a picture; SVG has its texts as comments."""
    scores = {"as written": {"score": 0.1111}, "learned": {"score": 0.2345}}
    draw(path, FitReport("", scores, (), predictor), parts)
    picture = path.read_text()
    assert "4 rows held out: score 0.2345" in picture
    return picture


@pytest.mark.parametrize(
    ("d", "kind", "present", "absent"),
    [
        (1, GP, ("observed", "mean", "$t"), "predicted $t"),
        (2, GP, ("within two sigma", "beyond two sigma", "predicted $t"), "mean"),
        (2, RIDGE, ("predicted $t",), "two sigma"),
        (1, RIDGE, ("predicted $t",), "two sigma"),
    ],
)
def test_numbers_have_the_process_over_one_input_or_predictions_with_its_error_bars(
    tmp_path, rng, d, kind, present, absent
):
    picture = texts_of(tmp_path / "fit.svg", *numbers(rng, d, kind))
    for text in present:
        assert f"<!-- {text}" in picture
    assert f"<!-- {absent}" not in picture


@pytest.mark.parametrize(
    ("d", "count", "kind", "present"),
    [
        (2, 3, LOGISTIC, ("third", "a", "b")),
        (1, 3, SVM, ("true $t", "first (2)")),
        (3, 3, LOGISTIC, ("true $t", "third (1)")),
        (3, 2, LOGISTIC, ("observed frequency of second",)),
        (1, 2, SVM, ("decision value, positive for second",)),
    ],
)
def test_classes_have_regions_a_confusion_matrix_or_what_is_known_of_two(
    tmp_path, rng, d, count, kind, present
):
    picture = texts_of(tmp_path / "fit.svg", *classes(rng, d, count, kind))
    for text in present:
        assert f"<!-- {text}" in picture
    assert ("true $t" in picture) == (count == 3 and d != 2)


def test_the_confusion_of_classes_counts_rows_and_colours_their_shares():
    true = ["cat", "cat", "cat", "dog", "owl"]
    decided = ["cat", "cat", "dog", "dog", "dog"]
    ax = _confusion(true, decided, ["owl", "ant", "dog", "cat"], "$t", "a title")
    shares = [[0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1 / 3, 2 / 3]]
    np.testing.assert_allclose(np.asarray(ax.images[0].get_array()), shares)
    numbers = {text.get_position(): text.get_text() for text in ax.texts}
    assert numbers == {(2, 0): "1", (2, 2): "1", (2, 3): "1", (3, 3): "2"}
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["owl (1)", "ant (0)", "dog (1)", "cat (3)"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 20, 60])
def test_names_and_numbers_of_a_confusion_fit_however_many_classes_there_are(rng, count):
    names = [f"a long name of a class, the {i}th" for i in range(count)]
    labels = np.repeat(names, 120 if count == 3 else 2)
    ax = _confusion(labels, rng.permutation(labels), names, "class", "40 rows held out")
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    cell = ax.get_window_extent().width / count
    assert all(text.get_window_extent().width < cell for text in ax.texts)
    for labels in (ax.get_xticklabels(), ax.get_yticklabels()):
        boxes = [label.get_window_extent() for label in labels]
        assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))
    drawn = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert min(drawn.x0, drawn.y0, width - drawn.x1, height - drawn.y1) >= 0
