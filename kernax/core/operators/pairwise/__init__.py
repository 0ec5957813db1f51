"""Sums over all pairs of two batches in the registers of a GPU, without writing entries of a Gram
matrix to memory.
"""

# May import: kernax.core.base, kernax.core.kernel.
