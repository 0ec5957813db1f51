"""Samples as points of a kernel's space: their means, the distances between these, tests of whether
two samples come from one distribution, a sample from a density, and whether pairs are independent,
and few points that stand for many.
"""

from kernax.unsupervised.goodness_of_fit import goodness_of_fit_test, stein_discrepancy
from kernax.unsupervised.herding import herding, stein_thin
from kernax.unsupervised.mean_embedding import (
    PermutationTest,
    hsic,
    independence_test,
    maximum_mean_discrepancy,
    mean_embedding,
    two_sample_test,
)
from kernax.unsupervised.subsample import Subsample
from kernax.unsupervised.thinning import thin

__all__ = [
    "mean_embedding",
    "maximum_mean_discrepancy",
    "two_sample_test",
    "hsic",
    "independence_test",
    "stein_discrepancy",
    "goodness_of_fit_test",
    "herding",
    "thin",
    "stein_thin",
    "PermutationTest",
    "Subsample",
]
