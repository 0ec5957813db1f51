"""What does a step of learning by the evidence of many points take? `python -m benchmarks.exact
[N]`, and what the published tables say of processes of all points, without inducing points.

Matern 3/2 with a lengthscale for each dimension and variance one, of standardised targets. The
lengthscales and the noise, of 0.001 at least, are learned by the evidence of some thousand rows, in
float64; then the process is conditioned on every row by preconditioned conjugate gradients, in
float32, without holding K. As a command the parameters take a few more steps by the evidence of N
rows of kin40k, 20000 unless told, by Lanczos's method, each step warm started by the one before,
and by Cholesky's factor: seconds of a step, and the error afterwards. Needs the shared data.
"""

import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import kernax as kx
from kernax.solvers import (
    ConjugateGradient,
    JitteredCholesky,
    PivotedCholesky,
    StochasticLanczos,
    warm_started,
)

DATA = Path(__file__).parents[2] / "shared" / "data"
KEY = jax.random.key(0)
STEPS, LBFGS = 30, optax.lbfgs()
LEAST_NOISE = 1e-3  # with less, float32 does not tell K + noise from a singular matrix
RTOL, MOST = 1e-2, 500
# Rows to learn from, and columns of the preconditioner.
SETS = {"elevators": (2000, 400), "bike": (2000, 1000), "kin40k": (3000, 1000)}


def loss(model, X, y):
    """Minus the log evidence, a row."""
    noise = LEAST_NOISE + model.ridge
    return -kx.log_marginal_likelihood(model.kernel, X, y, noise) / len(y)


def split(name, fold):
    """Standardised points and targets, of training and of test."""
    with np.load(DATA / f"{name}.npz") as file:
        X, y, held_out = file["X"], file["y"].ravel(), file["test_fold"] == fold
    standard = []
    for values in (X, y):
        kept = values[~held_out]
        scaled = (values - kept.mean(0)) / np.maximum(kept.std(0), 1e-12)
        standard.append(scaled)
    X, y = standard
    return X[~held_out], y[~held_out], X[held_out], y[held_out]


@jax.jit
def learned(X, y):
    """Kernel and noise by the evidence of these rows."""
    start = kx.Model(kx.Matern32(jnp.full(X.shape[1], 3.0)), 0.1)
    return kx.minimise(loss, start, LBFGS, STEPS, args=(X, y), throw=False).value


@eqx.filter_jit
def predicted(model, X, y, X_new, rank):
    """Means at new points of the process of all rows, how the solve ended, and its figures."""
    near = PivotedCholesky(KEY, rank=rank)
    solver = ConjugateGradient(rtol=RTOL, max_steps=MOST, preconditioner=near)
    process = kx.GaussianProcess(model.kernel)
    noise = LEAST_NOISE + model.ridge
    solution = kx.condition(process, X, y, noise, solver=solver, throw=False)
    return jax.vmap(solution.value.mean)(X_new), solution.result, solution.stats


def in_single(*arrays):
    """The same in float32."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), arrays)


def figures(name, fold, most=None):
    """Error, steps, seconds to learn and to condition, of one fold, or of its first rows; NaN where
    a solve failed.
    """
    some, rank = SETS[name]
    X, y, X_new, y_new = split(name, fold)
    if most is not None:
        X, y, rank = X[:most], y[:most], min(rank, most // 2)
    rows = np.random.default_rng(0).permutation(len(y))[:some]
    start = time.perf_counter()
    model = jax.block_until_ready(learned(X[rows], y[rows]))
    middle = time.perf_counter()
    model, X, y, X_new = in_single(model, X, y, X_new)
    means, result, stats = jax.block_until_ready(predicted(model, X, y, X_new, rank))
    end = time.perf_counter()
    error = np.sqrt(np.mean((np.asarray(means) - y_new) ** 2))
    known = error if result == kx.RESULTS.successful else np.nan
    return known, int(stats["steps"]), middle - start, end - middle


MORE_STEPS, ADAM = 5, optax.adam(0.05)


def learn(n):
    """Prints what more steps take by either method, and what they reach."""
    X, y, X_new, y_new = split("kin40k", 0)
    rows = np.random.default_rng(0).permutation(len(y))[:n]
    start = learned(X[rows[:1000]], y[rows[:1000]])
    start, X, y, X_new = in_single(start, X[rows], y[rows], X_new)
    near = PivotedCholesky(KEY, rank=1000)
    probes = StochasticLanczos(key=KEY, n_steps=12)
    by_products = ConjugateGradient(RTOL, MOST, near, probes)
    print(f"{'kin40k':11}{n} rows: seconds of a step, evidence a row, error")
    for name, solver in (("Lanczos", by_products), ("Cholesky", JitteredCholesky())):
        model, seconds, evidence = more_steps(start, X, y, solver)
        means, result, _ = predicted(model, X, y, X_new, 1000)
        assert result == kx.RESULTS.successful
        error = np.sqrt(np.mean((np.asarray(means) - y_new) ** 2))
        print(f"{name:11}{seconds:9.1f}{evidence:10.4f}{error:9.4f}", flush=True)


def more_steps(model, X, y, solver):
    """The model after more steps, the median seconds of one, and the last evidence, a row."""
    free, constrained = kx.unconstrain(model)

    def loss(free, X, y, solver):
        model = constrained(free)
        noise = LEAST_NOISE + model.ridge
        evidence = kx.log_marginal_likelihood(model.kernel, X, y, noise, solver=solver)
        return -evidence / len(y)

    @eqx.filter_jit
    def started(solver, free, X, y):
        model = constrained(free)
        return warm_started(solver, model.kernel, X, y, LEAST_NOISE + model.ridge)

    @eqx.filter_jit
    def step(free, state, X, y, solver):
        value, slopes = jax.value_and_grad(loss)(free, X, y, solver)
        update, state = ADAM.update(slopes, state)
        return optax.apply_updates(free, update), state, value

    state = ADAM.init(free)
    seconds = []
    value = jnp.nan
    for _ in range(MORE_STEPS):
        before = time.perf_counter()
        if isinstance(solver, ConjugateGradient):
            solver = started(solver, free, X, y)
        free, state, value = jax.block_until_ready(step(free, state, X, y, solver))
        seconds.append(time.perf_counter() - before)
    return constrained(free), np.median(seconds), -float(value)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    learn(int(sys.argv[1]) if sys.argv[1:] else 20_000)
