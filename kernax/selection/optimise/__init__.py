"""Learning parameters by gradients: `minimise` and `multi_start`, their compiled steps, observers
and checkpoints; many fits at once.
"""

# May import: kernax.core.
