"""The picture of a fit, which depends on the model and on the number of columns."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from kernax.cli.cluster import Clusters
from kernax.cli.job import Split
from kernax.files.container import write_whole
from kernax.preparation import GP, SVM, ClassPredictor, CountRegressor, Predictor, Regressor
from kernax.unsupervised.principal_components import kernel_pca

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID = 400  # points at which a process is drawn


def draw(path: Path, predictor: Predictor, parts: Split) -> None:
    """Writes the picture to a file, which is complete or not there."""
    if isinstance(predictor, ClassPredictor):
        ax = _picture_of_classes(predictor, parts)
    else:
        ax = _picture_of_numbers(predictor, parts)
    _write(path, ax)


def draw_clusters(path: Path, found: Clusters) -> None:
    """Writes the picture of clusters, in the plane of two inputs with the regions of k-means, or
    along their first two components in the space of the kernel.
    """
    from kernax.plot import decision_regions, embedding

    names = [str(label + 1) for label in found.labels]
    inputs = found.inputs
    if len(inputs.columns) == 2 and not inputs.texts:
        X = inputs.standards.restored(np.asarray(found.points))
        axes = (inputs.columns[0], inputs.columns[1])
        if not found.has_regions:
            return _write(path, embedding(X, labels=names, names=axes))
        ax = decision_regions(
            lambda x: found.function(inputs.standards.standardised(x)),
            X,
            names,
            classes=[str(c + 1) for c in range(found.function.bias.size)],
            names=axes,
        )
    else:
        components = kernel_pca(found.kernel, found.points, 2).value
        ax = embedding(np.asarray(components.function.values(found.points)), labels=names)
    _write(path, ax)


def _write(path: Path, ax: "Axes") -> None:
    """Writes the figure of axes to a file, which is complete or not there."""
    figure = ax.get_figure(root=True)
    assert figure is not None  # new axes have one
    kind = path.suffix.lower().lstrip(".")
    write_whole(path, lambda unfinished: figure.savefig(unfinished, format=kind))


def _picture_of_numbers(predictor: Regressor | CountRegressor, parts: Split) -> "Axes":
    """A process of numbers over its one input; otherwise predictions over true values."""
    from kernax.plot import predicted_against_true

    inputs = parts.inputs
    one_input = len(inputs.columns) == 1 and not inputs.texts
    if isinstance(predictor, Regressor) and predictor.kind == GP and one_input:
        return _process(predictor, parts)
    predicted, _ = predictor.at(parts.X_held_out)
    return predicted_against_true(parts.y_held_out, predicted, name=inputs.target)


def _process(predictor: Regressor, parts: Split) -> "Axes":
    """The process over its one input, in the units of both columns."""
    from kernax.plot import posterior_band

    inputs = parts.inputs
    in_units = lambda X: inputs.standards.restored(X)[:, 0]
    grid = _grid_over(parts)
    mean, deviation = predictor.at(grid)
    assert deviation is not None
    return posterior_band(
        in_units(grid),
        mean,
        deviation,
        observed=(in_units(parts.X), parts.y),
        held_out=(in_units(parts.X_held_out), parts.y_held_out),
        names=(inputs.columns[0], inputs.target),
    )


def _grid_over(parts: Split) -> Float[np.ndarray, "m 1"]:
    """Points in equal steps from the smallest to the largest of the one input."""
    everywhere = np.r_[parts.X, parts.X_held_out]
    return np.linspace(everywhere.min(), everywhere.max(), _GRID)[:, None]


def _picture_of_classes(predictor: ClassPredictor, parts: Split) -> "Axes":
    """Regions of two inputs; otherwise probabilities or decision values of the held-out rows."""
    is_plane = len(parts.inputs.columns) == 2 and not parts.inputs.texts
    if is_plane:
        return _regions(predictor, parts)
    values = predictor.values(parts.X_held_out)
    if predictor.kind == SVM:
        return _decision_values(predictor, values, parts.y_held_out)
    return _probabilities(predictor, values, parts.y_held_out)


def _regions(predictor: ClassPredictor, parts: Split) -> "Axes":
    """The regions of the classes in the plane of two inputs, and the rows to learn from."""
    from kernax.plot import decision_regions

    inputs = parts.inputs

    def value_at(x: Any) -> Any:
        return predictor.value(inputs.standards.standardised(x))

    return decision_regions(
        value_at,
        inputs.standards.restored(parts.X),
        parts.y,
        support=predictor.support if predictor.kind == SVM else None,
        classes=parts.classes,
        names=(inputs.columns[0], inputs.columns[1]),
    )


def _probabilities(predictor: ClassPredictor, values: np.ndarray, true: np.ndarray) -> "Axes":
    """Observed frequencies over predicted probabilities.

    They are those of the second of two classes, or of the likeliest of several.
    """
    from kernax.plot import reliability

    probabilities = np.exp(predictor.log_probabilities(values))
    if len(predictor.classes) == 2:
        second = predictor.classes[1]
        return reliability(probabilities[:, 1], true == second, name=second)
    right = predictor.decide(values) == true
    return reliability(probabilities.max(1), right, name="the likeliest class")


def _decision_values(predictor: ClassPredictor, values: np.ndarray, true: np.ndarray) -> "Axes":
    """Decision values of two classes; of several, that of the true class minus the best other."""
    from kernax.plot import values_of_classes

    classes = predictor.classes
    if len(classes) == 2:
        return values_of_classes(values, true, name=f"decision value, positive for {classes[1]}")
    of_true = true[:, None] == np.array(classes)
    best_of_others = np.where(of_true, -np.inf, values).max(1)
    name = "decision value of the true class over the best of the others"
    return values_of_classes(values[of_true] - best_of_others, true, name=name)
