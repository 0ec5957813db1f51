"""Where to evaluate an expensive function next: acquisition functions of a process."""

import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.numerics import positive_or_one
from kernax.core.base.printing import described
from kernax.core.losses.observation_likelihoods import excess_of_hazard
from kernax.gp.process import GaussianProcess


def log_expected_improvement(
    process: GaussianProcess, x: PyTree, best: ArrayLike
) -> Float[Array, ""]:
    """`log E[max(f(x) - best, 0)]`: the logarithm of the expected improvement on the best value so
    far, for a function that is maximised.

    With `u = (mean - best) / s` and the standard deviation s of f(x) the expectation is `s (phi(u)
    + u Phi(u))` (Jones, Schonlau & Welch 1998, eq. 15). Far from the best point it underflows, and
    so does its gradient, but not its logarithm (Ament et al. 2023): below u = -5 it is `log s + log
    Phi(u) + log(phi(u) / Phi(u) + u)`, whose last term is a continued fraction. It is -inf where s
    is zero and the mean no improvement. To minimise a function, maximise its negative.

    Arguments:
        process: a process that is conditioned on the values so far, such as
            `kernax.condition(...).value`.
        x: one point; use `jax.vmap` over a batch.
        best: the largest value so far, or the largest posterior mean if values are noisy.

    Raises:
        ValueError: the process is not a `GaussianProcess`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> process = kernax.condition(kernax.RBF(0.3), X, y, noise=1e-6).value
        >>> improvement = kernax.selection.log_expected_improvement
        >>> found = jax.vmap(lambda x: improvement(process, x, jnp.max(y)))(X + 0.05)
        >>> int(jnp.argmax(found))  # beside the largest value, that of X[1]
        1
    """
    if not isinstance(process, GaussianProcess):
        raise ValueError(
            "process must be a GaussianProcess, such as the value of kernax.condition(...), but is "
            f"{described(process)}"
        )
    variance = process.variance(x)
    mean = process.mean(x)
    is_random = variance > 0
    s = jnp.sqrt(jnp.where(is_random, variance, 1))
    # log E[max(f(x) - best, 0)] = log s + log(phi(u) + u Phi(u)), u = (mean - best) / s.
    gain = mean - jnp.asarray(best, mean.dtype)
    u = gain / s
    # log(phi(u) + u Phi(u)), whose terms cancel in the tail.
    far = u < -5
    near = jnp.where(far, 0, u)
    of_near = jnp.log(norm.pdf(near) + near * norm.cdf(near))
    # log Phi(u) + log(h + u) with h = phi(u) / Phi(u), the hazard of -u. Here log Phi(u) is
    # log phi(u) - log h: the derivatives of `norm.logcdf` lose their digits where u^2 is large.
    t = -jnp.where(far, u, -5)
    excess = excess_of_hazard(t)
    of_far = norm.logpdf(t) - jnp.log(t + excess) + jnp.log(excess)
    # Where s = 0 the improvement is max(mean - best, 0) itself.
    known = jnp.where(gain > 0, jnp.log(positive_or_one(gain)), -jnp.inf)
    return jnp.where(is_random, jnp.log(s) + jnp.where(far, of_far, of_near), known)
