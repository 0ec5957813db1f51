"""Likelihoods `p(y | f)` of one observation given the value f of a process, for `kernax.laplace`,
`kernax.expectation_propagation`, `kernax.variational` and `kernax.svgp`.

Each is a smooth loss, its negative logarithm, for `kernax.regularised_risk` as well. A likelihood
of your own is `CustomLikelihood(log_density)`, or a class derived from `AbstractLikelihood`.
"""

from kernax.core.losses.loss_functions import AbstractLikelihood, Bernoulli, Poisson
from kernax.core.losses.observation_likelihoods import (
    Categorical,
    CustomLikelihood,
    Gaussian,
    NegativeBinomial,
    Probit,
    StudentT,
)
from kernax.core.losses.ordinal_likelihood import Ordinal
from kernax.core.losses.quadrature import expectation
from kernax.gp.heteroscedastic_likelihood import HeteroscedasticGaussian

__all__ = [
    "Bernoulli",
    "Categorical",
    "CustomLikelihood",
    "Gaussian",
    "HeteroscedasticGaussian",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Probit",
    "StudentT",
    "AbstractLikelihood",
    "expectation",
]
