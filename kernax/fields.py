"""Declarations of a module's fields: `lengthscale: ParameterArray = kernax.fields.positive()`.

`positive`, `nonnegative`, `above`, `interval` and `real` declare parameters, which are learned,
with the interval of their values. `integer` declares a whole number, which is static and not
learned; `data` declares arrays and numbers that are not learned. `ParameterArray` is `jax.Array`,
but tells type checkers that the constructor of the module takes numbers and lists as well.
"""

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.parameters import above, data, integer, interval, nonnegative, positive, real

__all__ = [
    "positive",
    "nonnegative",
    "above",
    "interval",
    "real",
    "integer",
    "data",
    "ParameterArray",
]
