"""A program as users write it, which pyright and mypy accept: `make lint` asks both.

Where a line is wrong on purpose, the comment that silences it fails the check once it is no longer
needed.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

import jax
import jax.numpy as jnp
import numpy as np
import optax

import kernax
from kernax import losses, solvers

X = np.linspace(0.0, 1.0, 20)[:, None]
y = np.sin(6 * X[:, 0])
kernel = 2.0 * kernax.RBF(0.3) + kernax.Matern32([0.5])
wrong = kernax.RBF("short")  # type: ignore[arg-type]
lengthscale: jax.Array = kernax.RBF(0.3).lengthscale

solution = kernax.kernel_ridge(kernel, X, y, 0.1)
f: kernax.KernelExpansion = solution.value
prediction: jax.Array = f(jnp.array([0.5]))
predictions: jax.Array = f.values(X)
machine = kernax.svm(kernax.RBF(1), X, jnp.sign(y), C=1.0, solver=solvers.SMO())
risk = kernax.regularised_risk(kernax.RBF(), X, y, 0.1, loss=losses.Huber(1.0))

process = kernax.GaussianProcess(kernel, mean=0.5)
posterior = kernax.condition(process, X, y, 0.1).value
mean, variance = posterior.mean(X[0]), posterior.variance(X[0])
evidence: jax.Array = kernax.log_marginal_likelihood(kernel, X, y, 0.1)


class Cauchy(kernax.AbstractStationary):
    """A kernel of one's own."""

    lengthscale: kernax.fields.ParameterArray = kernax.fields.positive(default=1.0)

    def of_squared_distance(self, s: jax.Array) -> jax.Array:
        return 1 / (1 + s)


def loss(model: kernax.Model, X: jax.Array, y: jax.Array) -> jax.Array:
    return -kernax.log_marginal_likelihood(model.kernel, X, y, model.ridge)


learned = kernax.minimise(loss, kernax.Model(Cauchy(0.5)), optax.adam(0.05), 10, args=(X, y))
gradient = jax.grad(lambda length: kernax.gram(kernax.RBF(length), X).sum())(1.0)
