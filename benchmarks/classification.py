"""How long does Gaussian-process classification take, for one evidence with its gradient, and for
many small data sets in one batch?

Laplace's approximation with the logistic likelihood, RBF kernel, n = 1000, float64, against
scikit-learn's `GaussianProcessClassifier`; expectation propagation and variational inference beside
it; and 50 fits of n = 200, in one batch over the cores and in one `vmap`, against a loop.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import Bar, Case, Contender, Program, spread

D = 5
START = np.array([0.5, 0.3])  # the logarithms of variance and lengthscale
_FACTORS = (
    "Six steps of Newton's method, a last factor, one for the derivative and an inverse are two "
    "thirds of the time, and 0.3 of scikit-learn's by themselves. The inverse by its symmetric "
    "form saved a sixth; a transposed matrix for LAPACK nothing."
)
_FACTORS_OF_MANY = "The factors of small matrices take two thirds of the time."
INFERENCES = ("laplace", "expectation_propagation", "variational")


def cases(quick):
    n, fits, size = (100, 5, 50) if quick else (1000, 50, 200)
    with jax.enable_x64(True):
        X, y = data(n, 0)
        yield Case(
            f"Laplace evidence and gradient, n={n}, d={D}, float64",
            [
                Contender("kernax", lambda: with_kernax("laplace", X, y)),
                Contender("scikit-learn", lambda: _sklearn(X, y)),
            ],
            bars=[Bar(0.3, "scikit-learn", explanation=_FACTORS)],
            tolerance=1e-6,
            rounds=3 if quick else 7,
        )
        for inference in INFERENCES[1:]:
            yield Case(
                f"{inference} evidence and gradient, n={n}, d={D}, float64",
                [Contender("kernax", lambda inference=inference: with_kernax(inference, X, y))],
                bars=[],
                tolerance=1e-6,
                rounds=3,
            )
        sets = [data(size, seed) for seed in range(fits)]
        many = tuple(jnp.stack(parts) for parts in zip(*sets))
        yield Case(
            f"{fits} Laplace classifiers, n={size}, d={D}, float64",
            [
                Contender("kernax, batched", lambda: partial(spread(_evidence_of_laplace), *many)),
                Contender("kernax, vmap", lambda: Program(jax.vmap(_evidence_of_laplace), *many)),
                Contender("scikit-learn, loop", lambda: _sklearn_loop(*many)),
            ],
            bars=[Bar(0.3, "scikit-learn, loop", explanation=_FACTORS_OF_MANY)],
            tolerance=1e-6,
            rounds=3 if quick else 7,
        )


def data(n, seed):
    """Noisy classes of a smooth function at n points."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    value = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)
    return jnp.asarray(X), jnp.asarray(np.where(value > 0, 1.0, -1.0))


def _evidence(inference, theta, X, y):
    process = kx.GaussianProcess(jnp.exp(theta[0]) * kx.RBF(jnp.exp(theta[1])))
    likelihood = kx.likelihoods.Bernoulli()
    return getattr(kx, inference)(process, X, y, likelihood, throw=False).value.log_evidence


def _evidence_of_laplace(X, y):
    return _evidence("laplace", jnp.asarray(START), X, y)


def with_kernax(inference, X, y):
    of = lambda theta, X, y: _evidence(inference, theta, X, y)
    return Program(jax.value_and_grad(of), jnp.asarray(START), X, y)


def _classifier():
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    kernel = ConstantKernel(np.exp(START[0])) * RBF(np.exp(START[1]))
    return GaussianProcessClassifier(kernel, optimizer=None)


def _sklearn(X, y):
    fitted = _classifier().fit(np.asarray(X), np.asarray(y))
    return lambda: fitted.log_marginal_likelihood(START, eval_gradient=True)


def _sklearn_loop(X, y):
    classifier, X, y = _classifier(), np.asarray(X), np.asarray(y)
    return lambda: np.array(
        [classifier.fit(*pair).log_marginal_likelihood_value_ for pair in zip(X, y)]
    )
