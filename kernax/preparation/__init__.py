"""Prepares columns as points and targets, and returns predictions in the user's units.

`standardised_fit` returns a `Standardised` function, from raw points to targets in the units of the
data. `fit_classes` returns a `Classifier`, which turns decision values into classes and
probabilities. Means and deviations (`Standards`) come from the training rows alone and are saved
with the model, so that new rows are prepared in the same way. A model that the command line wrote
contains the encoding of the columns of its table; `kernax.files.load_predictor` returns both.
"""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale, kernax.selection, kernax.metrics.

from kernax import _lazy
from kernax.core.base.deprecation import moved

_TYPES = ("ClassPredictor", "CountRegressor", "Regressor")
_PRIVATE = {
    "cells": ("Column",),
    "dates": ("Date",),
    "encoders": (
        "AbstractEncoder",
        "Category",
        "FilledNumber",
        "Number",
        "Text",
        "Tokens",
        "learned_text",
    ),
    "inputs": ("Inputs", "learned_inputs"),
    "kinds": ("kind_of",),
    "one_hot": ("columns_of_classes",),
    "predictors": (
        "GP",
        "IVM",
        "LOGISTIC",
        "RIDGE",
        "RVM",
        "SVM",
        "Predictor",
        "check_outputs",
        "predictor_from_notes",
    ),
    "standards": ("standards_of_columns", "standards_of_target"),
}
_moved = moved(
    __name__,
    {name: f"kernax.types.{name}" for name in _TYPES}
    | {
        name: f"kernax.preparation.{module}.{name}"
        for module, names in _PRIVATE.items()
        for name in names
    },
)

# A name is imported when it is first used; `__init__.pyi` has the names.
__getattr__, __dir__ = _lazy(__name__, __file__, otherwise=_moved)
