"""Gram matrices as operators: dense, matrix-free in tiles, in explicit features, and over a mesh of
devices; `gram` and `gram_operator`.
"""

# May import: kernax._advice, kernax.core.base, kernax.core.kernel.
