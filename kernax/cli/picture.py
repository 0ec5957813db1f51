"""The picture of a fit, which depends on the model and on the number of columns."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernax.cli.cluster import Clusters
from kernax.cli.job import FitReport, Split, in_digits
from kernax.core.base.whole_files import write_whole
from kernax.preparation.predictors import GP, SVM, ClassPredictor, Regressor
from kernax.unsupervised.principal_components import kernel_pca

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID = 400  # points at which a process is drawn


def draw(path: Path, report: FitReport, parts: Split) -> None:
    """Writes the picture to a file, either completely or not at all."""
    from kernax.plot import score_title

    predictor = report.predictor
    *_, learned = report.scores.values()
    printed = {measure: in_digits(measure, score) for measure, score in learned.items()}
    title = score_title(printed, len(parts.y_held_out))
    if isinstance(predictor, ClassPredictor):
        ax = _picture_of_classes(predictor, parts, title)
    else:
        # A process of numbers over its one input; otherwise predictions over true values, with
        # error bars where the model predicts deviations of numbers.
        from kernax.plot import predicted_against_true

        inputs = parts.inputs
        one_input = len(inputs.columns) == 1 and not inputs.texts
        are_numbers = isinstance(predictor, Regressor)
        if are_numbers and predictor.kind == GP and one_input:
            ax = _process(predictor, parts, title)
        else:
            predicted, deviation = predictor.at(parts.X_held_out)
            ax = predicted_against_true(
                parts.y_held_out,
                predicted,
                # Counts are not normally distributed: two deviations on either side say little.
                deviation=deviation if are_numbers else None,
                name=inputs.target,
                title=title,
            )
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
    figure = ax.get_figure(root=True)
    assert figure is not None  # new axes have one
    kind = path.suffix.lower().lstrip(".")
    write_whole(path, lambda unfinished: figure.savefig(unfinished, format=kind))


def _process(predictor: Regressor, parts: Split, title: str) -> "Axes":
    """The process over its one input, in the units of both columns."""
    from kernax.plot import posterior_band

    inputs = parts.inputs
    in_units = lambda X: inputs.standards.restored(X)[:, 0]
    # Points in equal steps from the smallest to the largest of the one input.
    everywhere = np.r_[parts.X, parts.X_held_out]
    grid = np.linspace(everywhere.min(), everywhere.max(), _GRID)[:, None]
    mean, deviation = predictor.at(grid)
    assert deviation is not None
    return posterior_band(
        in_units(grid),
        mean,
        deviation,
        observed=(in_units(parts.X), parts.y),
        held_out=(in_units(parts.X_held_out), parts.y_held_out),
        names=(inputs.columns[0], inputs.target),
        title=title,
    )


def _picture_of_classes(predictor: ClassPredictor, parts: Split, title: str) -> "Axes":
    """Regions if there are two inputs; otherwise, for the held-out rows, the confusion matrix of
    several classes, or the probabilities or decision values of two classes.
    """
    from kernax.plot import reliability, values_of_classes

    if len(parts.inputs.columns) == 2 and not parts.inputs.texts:
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
            title=title,
        )
    classes = list(predictor.classes)
    name = parts.inputs.target
    true = parts.y_held_out
    values = predictor.values(parts.X_held_out)
    if len(classes) > 2:
        decided = predictor.decide(values)
        return _confusion(true, decided, classes, name, title)
    _, second = classes
    if predictor.kind == SVM:
        what = f"decision value, positive for {second}"
        return values_of_classes(values, true, name=what, title=title)
    probabilities = np.exp(predictor.log_probabilities(values))
    return reliability(probabilities[:, 1], true == second, name=second, title=title)


def _confusion(true: Any, decided: Any, classes: list[Any], name: str, title: str) -> "Axes":
    """The confusion matrix: how many rows of each class are predicted as each; the colour is the
    share of the row.
    """
    from matplotlib.figure import Figure

    from kernax.plot.style import INK, name_axes, shortened, title_axes

    count = len(classes)
    places = {label: place for place, label in enumerate(classes)}
    cells = np.zeros((count, count), int)
    for label, prediction in zip(true, decided):
        cells[places[label], places[prediction]] += 1
    sizes = cells.sum(1)
    shares = cells / np.maximum(1, sizes[:, None])
    side = float(np.clip(2.4 + 0.36 * count, 4.6, 10.0))  # inches
    letters = min(8.3, 0.35 * 72 * side / count)  # points: three digits fit into a cell
    ax = Figure(figsize=(side, side), dpi=160, layout="compressed").subplots()
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, j in np.argwhere(cells):
        ink = "white" if shares[i, j] > 0.55 else INK
        ax.text(j, i, str(cells[i, j]), ha="center", va="center", fontsize=letters, color=ink)
    names = [shortened(str(label)) for label in classes]
    ax.set_xticks(range(count), names, fontsize=letters, rotation=90)
    rows = [f"{label} ({size})" for label, size in zip(names, sizes)]
    ax.set_yticks(range(count), rows, fontsize=letters)
    name_axes(ax, f"predicted {name}", f"true {name}")
    title_axes(ax, title)
    return ax
