"""From columns to points and targets, and from a model's values back to the user's units.

The command line, estimators and notebooks share this. Means, deviations and alphabets come from the
rows to learn from alone, and are kept with the model (`Regressor`, `Classifier`), so that new rows
are prepared in the same way.
"""

from kernax.preparation.classes import columns_of_classes
from kernax.preparation.inputs import Inputs, Text, Tokens, learned_text
from kernax.preparation.predictors import (
    GP,
    IVM,
    LOGISTIC,
    RIDGE,
    RVM,
    SVM,
    Classifier,
    CountRegressor,
    Predictor,
    Regressor,
    predictor_from_notes,
)
from kernax.preparation.standards import Standards, standards_of_columns, standards_of_target

__all__ = [
    "GP",
    "IVM",
    "LOGISTIC",
    "RIDGE",
    "RVM",
    "SVM",
    "Classifier",
    "CountRegressor",
    "Inputs",
    "Predictor",
    "Regressor",
    "Standards",
    "Text",
    "Tokens",
    "columns_of_classes",
    "learned_text",
    "predictor_from_notes",
    "standards_of_columns",
    "standards_of_target",
]
