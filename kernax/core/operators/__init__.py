"""Gram matrices as operators: dense, computed a tile at a time, in features, over a mesh of
devices; `gram` and `gram_operator`.
"""

# May import: kernax._advice, kernax.core.base, kernax.core.kernel.
