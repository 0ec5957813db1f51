"""Sums over all pairs of two stacks on a GPU, computed in registers: no entry of a Gram matrix is
written to memory.
"""

# May import: kernax.core.base, kernax.core.kernel.
