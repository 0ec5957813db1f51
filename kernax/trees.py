"""Labelled, ordered trees, such as parse trees, as points: `encode` makes a batch of them, for
`kernax.SubsetTree`.
"""

from kernax.kernels.tree_points import Trees, encode

__all__ = ["encode", "Trees"]
