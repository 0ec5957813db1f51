"""Samples as points of a kernel's space: their means, the distances between these, and permutation
tests of whether two samples come from one distribution and of whether pairs are independent.
"""

from kernax.unsupervised.embedding import (
    PermutationTest,
    hsic,
    independence_test,
    maximum_mean_discrepancy,
    mean_embedding,
    two_sample_test,
)

__all__ = [
    "mean_embedding",
    "maximum_mean_discrepancy",
    "two_sample_test",
    "hsic",
    "independence_test",
    "PermutationTest",
]
