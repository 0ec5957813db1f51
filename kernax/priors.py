"""Prior densities of parameters, for `log_prior(model, priors)`, a term of a loss or of the log
density that a sampler uses. To write your own, derive from `AbstractPrior`.
"""

from kernax.core.kernel.prior_densities import (
    AbstractPrior,
    Beta,
    Gamma,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    LogNormal,
    Normal,
    log_prior,
)

__all__ = [
    "log_prior",
    "Normal",
    "LogNormal",
    "Gamma",
    "InverseGamma",
    "HalfNormal",
    "HalfCauchy",
    "Beta",
    "AbstractPrior",
]
