"""Files of predictors: models with the columns that they expect and their units."""

import os

from kernax.errors import KernaxFileError
from kernax.files.container import load, load_notes, save
from kernax.files.field_checks import check_shapes
from kernax.preparation.predictors import Predictor, check_outputs, predictor_from_notes


def save_predictor(path: str | os.PathLike, predictor: Predictor) -> None:
    """Writes a predictor to one file: its model, and the rest as notes. Raises as `save` does."""
    save(path, predictor.model, notes=predictor.notes())


def load_predictor(path: str | os.PathLike) -> Predictor:
    """Reads a predictor from a file that `save_predictor` or `kernax fit --out` wrote.

    Raises KernaxFileError for any other file, and for arrays with shapes that do not fit each other
    or the columns. Otherwise it raises as `load` does.
    """
    model = load(path)
    notes = load_notes(path)
    if not {"kind", "inputs"} <= set(notes):
        raise KernaxFileError(
            f"{path} holds a model, but not one that 'kernax fit --out' wrote: load it with "
            "kernax.load"
        )
    try:
        check_shapes(model)
        predictor = predictor_from_notes(model, notes)
        check_outputs(predictor)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise KernaxFileError(
            f"{path} is not what 'kernax fit --out' writes: {problem}"
        ) from problem
    return predictor
