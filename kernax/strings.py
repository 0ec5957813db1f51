"""Strings of letters or words as points, for the kernels of strings: `encode` makes a stack."""

from kernax.kernels.texts import Strings, encode

__all__ = ["encode", "Strings"]
