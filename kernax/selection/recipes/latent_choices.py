"""How a target is distributed given a latent process, and how the process is approximated."""

import enum


class Inference(enum.StrEnum):
    """How the posterior of the latent function is approximated."""

    LAPLACE = "laplace"
    EP = "ep"
    VARIATIONAL = "variational"


class Likelihood(enum.StrEnum):
    """How a target is distributed given the value of the process."""

    GAUSSIAN = "gaussian"
    BERNOULLI = "bernoulli"
    PROBIT = "probit"
    POISSON = "poisson"
    NEGATIVE_BINOMIAL = "negative-binomial"

    @property
    def of_classes(self) -> bool:
        """Whether targets are classes."""
        return self in (Likelihood.BERNOULLI, Likelihood.PROBIT)

    @property
    def of_counts(self) -> bool:
        """Whether targets are counts."""
        return self in (Likelihood.POISSON, Likelihood.NEGATIVE_BINOMIAL)
