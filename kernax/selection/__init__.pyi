"""The public names of kernax.selection, and the module that each comes from."""

from kernax.selection.choose.acquisition import log_expected_improvement
from kernax.selection.choose.alignment import aligned_sum, alignment
from kernax.selection.choose.bootstrap import bootstrap
from kernax.selection.choose.comparison import select
from kernax.selection.choose.cross_validation import CrossValidatedLoss
from kernax.selection.choose.datasets import stack_datasets
from kernax.selection.choose.folds import time_folds
from kernax.selection.choose.heuristics import median_lengthscale
from kernax.selection.choose.regularisation_path import regularisation_path
from kernax.selection.choose.search import random_search
from kernax.selection.compose.composition import compositional_search
from kernax.selection.optimise.callbacks import Callback
from kernax.selection.optimise.multi_start import random_starts, unconstrained_density
from kernax.selection.optimise.validation import Validation
from kernax.supervised.ridge.ridge import generalised_cross_validation
from kernax.supervised.ridge.ridge_path import leave_one_out_path, ridge_path

__all__ = [
    "select",
    "CrossValidatedLoss",
    "time_folds",
    "random_search",
    "compositional_search",
    "bootstrap",
    "ridge_path",
    "leave_one_out_path",
    "generalised_cross_validation",
    "regularisation_path",
    "alignment",
    "aligned_sum",
    "median_lengthscale",
    "random_starts",
    "unconstrained_density",
    "Validation",
    "Callback",
    "stack_datasets",
    "log_expected_improvement",
]
