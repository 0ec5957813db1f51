"""Strings of letters or words as points, for string kernels: `encode` makes a batch of them."""

from kernax.kernels.texts import Strings, encode

__all__ = ["encode", "Strings"]
