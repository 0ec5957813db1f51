"""Several processes and devices: rows over their mesh, and checkpoints that they write together."""

# May import: kernax.core, kernax.scale.data.
