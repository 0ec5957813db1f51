"""Points on a grid with a product kernel: Kronecker and Toeplitz operators, their factor and its
inverse.
"""

# May import: kernax.core.base, kernax.core.kernel, kernax.core.operators, kernax.core.linalg.
