"""Points on a grid under a product kernel: Kronecker and Toeplitz operators, their factor, and what
is asked of the inverse.
"""

# May import: kernax.core.base, kernax.core.kernel, kernax.core.operators, kernax.core.linalg.
