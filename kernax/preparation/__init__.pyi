"""The public names of kernax.preparation, and the module that each comes from."""

from kernax.preparation.classifier import Classifier, fit_classes
from kernax.preparation.standardised import Standardised, standardised_fit
from kernax.preparation.standards import Standards, standards_of

__all__ = [
    "Classifier",
    "Standardised",
    "Standards",
    "fit_classes",
    "standardised_fit",
    "standards_of",
]
