"""From columns to points and targets, and from a model's values back to the user's units.

Functions between raw points and the units of the data are `Standardised`, by `standardised_fit`;
decision values become classes and probabilities in a `Classifier`, by `fit_classes`. Columns of a
table, as the command line reads them, become points by an encoder each (`Inputs`). Means,
deviations, medians, categories and alphabets come from the training rows alone, and are saved with
the model (`Regressor`, `ClassPredictor`), so that new rows are prepared in the same way.
"""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale, kernax.selection, kernax.metrics.

from kernax.preparation.cells import Column
from kernax.preparation.classifier import Classifier, fit_classes
from kernax.preparation.dates import Date
from kernax.preparation.encoders import (
    AbstractEncoder,
    Category,
    FilledNumber,
    Number,
    Text,
    Tokens,
    learned_text,
)
from kernax.preparation.inputs import Inputs, learned_inputs
from kernax.preparation.kinds import kind_of
from kernax.preparation.one_hot import columns_of_classes
from kernax.preparation.predictors import (
    GP,
    IVM,
    LOGISTIC,
    RIDGE,
    RVM,
    SVM,
    ClassPredictor,
    CountRegressor,
    Predictor,
    Regressor,
    check_outputs,
    predictor_from_notes,
)
from kernax.preparation.standardised import Standardised, standardised_fit
from kernax.preparation.standards import (
    Standards,
    standards_of,
    standards_of_columns,
    standards_of_target,
)

__all__ = [
    "GP",
    "IVM",
    "LOGISTIC",
    "RIDGE",
    "RVM",
    "SVM",
    "AbstractEncoder",
    "Category",
    "ClassPredictor",
    "Classifier",
    "Column",
    "CountRegressor",
    "Date",
    "FilledNumber",
    "Inputs",
    "Number",
    "Predictor",
    "Regressor",
    "Standardised",
    "Standards",
    "Text",
    "Tokens",
    "check_outputs",
    "columns_of_classes",
    "fit_classes",
    "kind_of",
    "learned_inputs",
    "learned_text",
    "predictor_from_notes",
    "standardised_fit",
    "standards_of",
    "standards_of_columns",
    "standards_of_target",
]
