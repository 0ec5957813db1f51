"""Strings of letters or words as points, for string kernels: `encode` makes a batch of them, and
`from_graphs` one of graphs.
"""

from kernax.kernels.texts import Strings, encode, from_graphs

__all__ = ["encode", "from_graphs", "Strings"]
