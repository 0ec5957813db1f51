"""How long does the evidence of a Gaussian process take on a grid, with its gradient?

An image of 256 x 256 pixels, RBF with a lengthscale for each axis, also with some pixels missing,
and 10^6 regular times, RBF, 40 times a lengthscale, float64: the value and the gradient in the
logarithms of the lengthscales, the variance and the noise. At small n the peer is Cholesky's factor
of the whole matrix.
"""

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import Bar, Case, Contender, Program
from kernax.solvers import Grid, JitteredCholesky


def cases(quick):
    side, times, rounds = (24, 2000, 2) if quick else (256, 1_000_000, 5)
    with jax.enable_x64(True):
        for missing in (0, side * side // 330):
            words = f", {missing} missing" if missing else ""
            bars = [] if missing else [Bar(1.0)]
            yield _alone(f"{side} x {side} pixels{words}", *image(side, missing), bars, rounds)
        yield _alone(f"{times} regular times", *regular(times), [], rounds)
        small = 12 if quick else 48
        yield _beside_dense(f"{small} x {small} pixels", *image(small, 3), rounds)
        few = 200 if quick else 2000
        yield _beside_dense(f"{few} regular times", *regular(few), rounds)


def _alone(what, X, y, bars, rounds):
    contenders = [Contender("kernax", lambda: _program(Grid(), X, y))]
    return Case(f"evidence and gradient, {what}, float64", contenders, bars, 1e-6, rounds)


def _beside_dense(what, X, y, rounds):
    contenders = [
        Contender("kernax", lambda: _program(Grid(), X, y)),
        Contender("dense", lambda: _program(JitteredCholesky(), X, y)),
    ]
    return Case(
        f"evidence and gradient, {what}, float64", contenders, [Bar(0.2, "dense")], 1e-6, rounds
    )


def image(side, missing):
    rng = np.random.default_rng(0)
    places = np.linspace(0, 10, side)
    X = np.stack(np.meshgrid(places, places, indexing="ij"), -1).reshape(-1, 2)
    y = np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.2 * rng.normal(size=len(X))
    kept = np.sort(rng.permutation(len(X))[missing:])
    return X[kept], jnp.asarray(y[kept])


def regular(n):
    rng = np.random.default_rng(0)
    x = 0.02 * np.arange(n)
    return x[:, None], jnp.asarray(np.sin(x) + 0.2 * rng.normal(size=n))


def _program(solver, X, y):
    start = np.log([0.8] * X.shape[1] + [1.3, 0.05])

    def evidence(theta, y):
        *lengthscales, variance, noise = jnp.exp(theta)
        kernel = variance * kx.RBF(jnp.stack(lengthscales))
        return kx.log_marginal_likelihood(kernel, X, y, noise, solver=solver)

    return Program(jax.value_and_grad(evidence), jnp.asarray(start), y)
