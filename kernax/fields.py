"""What the fields of a module hold: `lengthscale: jax.Array = kernax.fields.positive(default=1.0)`.

`positive`, `nonnegative`, `above`, `interval` and `real` declare parameters, which are learned, by
where they may lie; `integer` a whole number, which is not learned and fixed while tracing; `data`
arrays and numbers that are not learned.
"""

from kernax.core.base.parameters import above, data, integer, interval, nonnegative, positive, real

__all__ = ["positive", "nonnegative", "above", "interval", "real", "integer", "data"]
