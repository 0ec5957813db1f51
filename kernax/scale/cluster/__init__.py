"""Several processes and devices: rows over their mesh."""

# May import: kernax.core, kernax.scale.data.
