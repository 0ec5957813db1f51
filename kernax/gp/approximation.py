"""The posterior of a process whose observations are not normal, as a normal approximation."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PyTree

from kernax.core.boundary import as_point, as_scalar
from kernax.core.intervals import REAL
from kernax.core.losses import AbstractLikelihood
from kernax.core.parameters import data
from kernax.core.quadrature import log_normaliser, predicted_moments
from kernax.core.sharding import compiled
from kernax.gp.posterior import point_for
from kernax.gp.process import GaussianProcess


class ApproximatePosterior(eqx.Module):
    """A process over the latent function f, and the likelihood of y given f: what `laplace`
    returns.

    Its methods take one point; `jax.vmap(posterior.predict)(X)` takes a stack. They integrate over
    f(x) in closed form, or by quadrature with 64 nodes, and can be differentiated.

    Attributes:
        process: the approximation of the posterior of f, a `GaussianProcess`.
        likelihood: p(y | f).
        log_evidence: the approximation of `log p(y | X)`; maximise it to learn hyperparameters.
    """

    process: GaussianProcess
    likelihood: AbstractLikelihood
    log_evidence: Float[Array, ""] = data()

    def predict(self, x: PyTree) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mean and the variance of y at x; signs have the mean `p(+1) - p(-1)`."""
        return _moments(self.likelihood, *self._latent(x))

    def log_density(self, x: PyTree, y: ArrayLike) -> Float[Array, ""]:
        """`log p(y | x)`, the logarithm of the mean of p(y | f(x))."""
        mean, variance = self._latent(x)
        return _log_density(self.likelihood, as_scalar(y, mean.dtype, "y", REAL), mean, variance)

    def probability(self, x: PyTree) -> Float[Array, ""]:
        """The probability of +1 at x. Raises ValueError where targets are not signs."""
        if self.likelihood.targets != "signs":
            raise ValueError(
                f"{type(self.likelihood).__name__} is no likelihood of -1 and +1: predict(x) gives "
                "the mean and the variance of y, log_density(x, y) the logarithm of its density"
            )
        return jnp.exp(self.log_density(x, 1.0))

    def _latent(self, x: PyTree) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mean and the variance of f(x)."""
        x = point_for(self.process.covariance, as_point(x))
        return self.process.mean(x), self.process.variance(x)


@compiled
def _moments(likelihood, mean, variance):
    return predicted_moments(likelihood, mean, variance)


@compiled
def _log_density(likelihood, y, mean, variance):
    return log_normaliser(likelihood, y, mean, variance)
