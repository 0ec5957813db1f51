"""How long do Gaussian processes take to predict, and many small ones to learn?

Means and variances at 2000 points from 2000, against scikit-learn; then 200 data sets of n = 100,
each learned by 100 steps of Adam on the evidence, in one batch over the cores, against a loop that
takes the same steps with scikit-learn's value and gradient. float64.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

import kernax as kx
from benchmarks.harness import Bar, Case, Contender, Program, spread

D, NOISE, STEPS, RATE = 4, 0.1, 100, 0.1
START = np.zeros(3)  # logarithms of lengthscale, variance and noise

_SOLVE = (
    "One triangular solve with all columns is most of both. A recursion over blocks, transposed "
    "storage and an explicit inverse took no less."
)


def cases(quick):
    with jax.enable_x64(True):
        n = 200 if quick else 2000
        X, Z = jax.random.normal(jax.random.key(0), (2, n, D))
        y = jnp.sin(X[:, 0]) + X[:, 1]
        sklearn = Contender("scikit-learn", lambda: _sklearn_prediction(X, y, Z))
        contenders = [Contender("kernax", lambda: _prediction(X, y, Z)), sklearn]
        yield Case(
            f"mean and variance at {n} points, n={n}, d={D}",
            contenders,
            [Bar(0.5, "scikit-learn", explanation=_SOLVE)],
            1e-6,
            9,
        )
    with jax.enable_x64(True):
        sets, n = (5 if quick else 200), 100
        X = jax.random.normal(jax.random.key(1), (sets, n, D))
        y = jnp.sin(X[..., 0]) + 0.3 * jax.random.normal(jax.random.key(2), (sets, n))
        contenders = [
            Contender("kernax, batched", lambda: partial(spread(learned), X, y)),
            Contender("kernax, vmap", lambda: Program(jax.vmap(learned), X, y)),
            Contender(
                "scikit-learn, loop",
                lambda: lambda: np.stack([_sklearn_learned(*pair) for pair in zip(X, y)]),
            ),
        ]
        bars = [Bar(0.2, "scikit-learn, loop")]
        yield Case(
            f"{sets} processes of n={n}, {STEPS} steps of Adam",
            contenders,
            bars,
            1e-6,
            1,
        )


def _prediction(X, y, Z):
    process = kx.condition(kx.GaussianProcess(kx.RBF(1.5)), X, y, NOISE).value
    return Program(
        lambda process, Z: (jax.vmap(process.mean)(Z), jax.vmap(process.variance)(Z)), process, Z
    )


def _sklearn_prediction(X, y, Z):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    learner = GaussianProcessRegressor(RBF(1.5), alpha=NOISE, optimizer=None).fit(
        np.asarray(X), np.asarray(y)
    )
    Z = np.asarray(Z)

    def run():
        mean, deviation = learner.predict(Z, return_std=True)
        return mean, deviation**2

    return run


def loss(theta, X, y):
    scale, variance, noise = jnp.exp(theta)
    return -kx.log_marginal_likelihood(variance * kx.RBF(scale), X, y, noise)


def learned(X, y):
    optimiser = optax.adam(RATE)

    def step(carry, _):
        theta, memory = carry
        updates, memory = optimiser.update(jax.grad(loss)(theta, X, y), memory)
        return (optax.apply_updates(theta, updates), memory), None

    theta = jnp.asarray(START)
    return jax.lax.scan(step, (theta, optimiser.init(theta)), None, length=STEPS)[0][0]


def _sklearn_learned(X, y):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel() * RBF() + WhiteKernel()
    learner = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(
        np.asarray(X), np.asarray(y)
    )
    theta, first, second = START[[1, 0, 2]].copy(), np.zeros(3), np.zeros(3)
    for t in range(1, STEPS + 1):  # Adam as optax has it
        _, gradient = learner.log_marginal_likelihood(theta, eval_gradient=True, clone_kernel=False)
        first, second = 0.9 * first - 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        theta -= RATE * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
    return theta[[1, 0, 2]]
