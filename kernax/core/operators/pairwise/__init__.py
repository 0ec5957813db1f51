"""Sums over all pairs of two stacks on a GPU, computed in registers: no entry of a Gram matrix is
ever written to memory. May import base and kernel.
"""
