"""Kernels by explicit features, for many points."""
