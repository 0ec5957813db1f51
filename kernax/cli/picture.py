"""The picture of a fit: what is drawn depends on the model and on the number of columns."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kernax.cli.job import Split
from kernax.cli.predictor import GP, LOGISTIC, SVM, Classifier, Predictor, Regressor
from kernax.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(path: Path, predictor: Predictor, parts: Split) -> None:
    """Writes the picture, whole or not at all."""
    if isinstance(predictor, Classifier):
        ax = _classes(predictor, parts)
    else:
        assert isinstance(predictor, Regressor)
        ax = _numbers(predictor, parts)
    figure = ax.get_figure(root=True)
    assert figure is not None  # new axes have one
    write_whole(path, lambda unfinished: figure.savefig(unfinished, format=path.suffix.lower().lstrip(".")))


def _numbers(predictor: Regressor, parts: Split) -> "Axes":
    """The process over its one input; otherwise predictions against the truth."""
    from kernax.plot import posterior_band, predicted_against_true

    units = parts.inputs
    if len(units.columns) != 1 or units.text or predictor.kind != GP:
        predicted, _ = predictor.at(parts.X_held_out)
        return predicted_against_true(parts.y_held_out, predicted, name=units.target)
    back = lambda X: units.centre[0] + units.scale[0] * X[:, 0]
    everywhere = np.r_[parts.X, parts.X_held_out]
    grid = np.linspace(everywhere.min(), everywhere.max(), 400)[:, None]
    mean, deviation = predictor.at(grid)
    assert deviation is not None
    observed, held_out = (back(parts.X), parts.y), (back(parts.X_held_out), parts.y_held_out)
    return posterior_band(
        back(grid), mean, deviation, observed=observed, held_out=held_out, names=(units.columns[0], units.target)
    )


def _classes(predictor: Classifier, parts: Split) -> "Axes":
    """Regions of two inputs; otherwise, of the held-out rows, probabilities against frequencies or decision values."""
    from kernax.plot import decision_regions, reliability, values_of_classes

    units, classes = parts.inputs, parts.classes
    if len(units.columns) == 2 and not units.text:
        X, support = units.centre + units.scale * parts.X, predictor.support if predictor.kind == SVM else None
        f = lambda x: predictor.model(units.standardised(x))
        return decision_regions(f, X, parts.y, support=support, classes=classes, names=(units.columns[0], units.columns[1]))
    values, true = predictor.values(parts.X_held_out), parts.y_held_out
    if predictor.kind == LOGISTIC:
        p = np.exp(predictor.log_probabilities(values))
        if len(classes) == 2:
            return reliability(p[:, 1], true == classes[1], name=classes[1])
        return reliability(p.max(1), predictor.decide(values) == true, name="the likeliest class")
    if len(classes) == 2:
        return values_of_classes(values, true, name=f"decision value, positive for {classes[1]}")
    of_true = true[:, None] == np.array(classes)
    lead = values[of_true] - np.where(of_true, -np.inf, values).max(1)
    return values_of_classes(lead, true, name="decision value of the true class over the best of the others")
