"""Samples as points in the space of a kernel: mean embeddings and their distances; tests of two
samples, of goodness of fit and of independence; subsamples that represent many points.
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
