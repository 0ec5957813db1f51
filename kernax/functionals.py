"""Values, derivatives and integrals of a function as points, for `kernax.kernels.OfFunctionals`:
observations and predictions of a process may be any of these, in one batch (`joined`).
"""

from kernax.core.functionals.linear_functionals import (
    Functionals,
    derivatives_at,
    gradients_at,
    integrals_over,
    joined,
    values_at,
)

__all__ = [
    "values_at",
    "derivatives_at",
    "gradients_at",
    "integrals_over",
    "joined",
    "Functionals",
]
