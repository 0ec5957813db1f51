"""How long do 64 runs of Bayesian optimisation take as one program, and how good are they?
`python -m benchmarks.bayesian_optimisation`.

The six-dimensional function of Hartmann is maximised by 50 evaluations after 10 random ones, with
the logarithm of the expected improvement under a process whose nine hyperparameters are learned
again at each step. Three ways: 64 runs by `jax.vmap` in one program, the same step called from a
loop in Python (one run), and BoTorch's usual loop (one run for each of two seeds), if it is
installed. Seconds are for one run, without compilation; the regret is the distance to the maximum,
3.32237.
"""

import argparse
import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import kernax as kx
from benchmarks.report import environment

FIRST, STEPS, D = 10, 50, 6
MAXIMUM = 3.32237
SHAPES = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
PLACES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
HEIGHTS = np.array([1, 1.2, 3, 3.2])


def hartmann(x):
    return jnp.dot(HEIGHTS, jnp.exp(-jnp.sum(SHAPES * (x[None, :] - PLACES) ** 2, 1)))


START = kx.Model(1.0 * kx.Matern52(jnp.full(D, 0.5)), 1e-3)


def learned(theta, rebuild, X, y, weights):
    """Hyperparameters after 20 steps of Adam on the evidence and a weak prior."""
    optimiser = optax.adam(0.1)

    def loss(theta):
        model = rebuild(theta)
        prior = 0.05 * sum(jnp.sum(value**2) for value in theta.values())
        evidence = kx.log_marginal_likelihood(model.kernel, X, y, model.ridge, weights=weights)
        return prior - evidence

    def step(carry, _):
        theta, state = carry
        updates, state = optimiser.update(jax.grad(loss)(theta), state)
        return (optax.apply_updates(theta, updates), state), None

    (theta, _), _ = jax.lax.scan(step, (theta, optimiser.init(theta)), length=20)
    return theta


def climbed(acquisition, x):
    """A candidate after 20 steps of Adam inside the box."""
    optimiser = optax.adam(0.02)

    def step(carry, _):
        x, state = carry
        updates, state = optimiser.update(-jax.grad(acquisition)(x), state)
        return (jnp.clip(optax.apply_updates(x, updates), 0.0, 1.0), state), None

    (x, _), _ = jax.lax.scan(step, (x, optimiser.init(x)), length=20)
    return x


def stepped(carry, i_and_key):
    """The data with one more evaluation: a weight goes from zero to one."""
    theta, X, y, weights = carry
    i, key = i_and_key
    _, rebuild = kx.unconstrain(START)
    mean = jnp.average(y, weights=weights)
    z = (y - mean) / jnp.sqrt(jnp.average((y - mean) ** 2, weights=weights))
    theta = learned(theta, rebuild, X, z, weights)
    model = rebuild(theta)
    kernel, noise = model.kernel, model.ridge
    process = kx.condition(kernel, X, z, noise, weights=weights, throw=False).value
    best = jnp.argmax(jnp.where(weights > 0, z, -jnp.inf))

    def acquisition(x):
        return kx.selection.log_expected_improvement(process, x, z[best])

    anywhere, near = jax.random.split(key)
    everywhere = jax.random.uniform(anywhere, (256, D))
    around = jnp.clip(X[best] + 0.1 * jax.random.normal(near, (256, D)), 0.0, 1.0)
    candidates = jnp.concatenate([everywhere, around])
    _, leaders = jax.lax.top_k(jax.vmap(acquisition)(candidates), 4)
    climbers = jax.vmap(lambda x: climbed(acquisition, x))(candidates[leaders])
    x = climbers[jnp.argmax(jax.vmap(acquisition)(climbers))]
    value = hartmann(x)
    return (theta, X.at[i].set(x), y.at[i].set(value), weights.at[i].set(1.0)), value


def begun(key):
    X = jax.random.uniform(key, (FIRST + STEPS, D))
    weights = jnp.where(jnp.arange(len(X)) < FIRST, 1.0, 0.0)
    theta, _ = kx.unconstrain(START)
    return theta, X, jax.vmap(hartmann)(X), weights


def in_one_program(runs: int) -> dict[str, Any]:
    def run(key):
        first, rest = jax.random.split(key)
        carry = begun(first)
        places = jnp.arange(FIRST, FIRST + STEPS)
        _, values = jax.lax.scan(stepped, carry, (places, jax.random.split(rest, STEPS)))
        return jnp.maximum(jnp.max(values), jnp.max(carry[2][:FIRST]))

    keys = jax.random.split(jax.random.key(0), runs)
    before = time.perf_counter()
    program = jax.jit(jax.vmap(run)).lower(keys).compile()
    compiled = time.perf_counter()
    best = np.asarray(program(keys))
    seconds = (time.perf_counter() - compiled) / runs
    return row("one program", runs, best, seconds) | {"compilation": compiled - before}


def from_python() -> dict[str, Any]:
    step = jax.jit(stepped)
    first, rest = jax.random.split(jax.random.key(0))
    carry = begun(first)
    keys = jax.random.split(rest, STEPS)
    jax.block_until_ready(step(carry, (FIRST, keys[0])))  # compiles
    best = float(jnp.max(carry[2][:FIRST]))
    before = time.perf_counter()
    for i, key in enumerate(keys):
        carry, value = step(carry, (FIRST + i, key))
        best = max(best, float(value))
    return row("a loop in Python", 1, np.array([best]), time.perf_counter() - before)


def with_botorch(runs: int = 2) -> dict[str, Any]:
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Standardize
    from botorch.optim import optimize_acqf
    from botorch.test_functions import Hartmann
    from gpytorch.mlls import ExactMarginalLogLikelihood

    function = Hartmann(dim=D, negate=True)
    box = torch.stack([torch.zeros(D), torch.ones(D)]).double()
    best = []
    before = time.perf_counter()
    for seed in range(runs):
        torch.manual_seed(seed)
        X = torch.rand(FIRST, D).double()
        y = function(X)[:, None]
        for _ in range(STEPS):
            model = SingleTaskGP(X, y, outcome_transform=Standardize(1))
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            improvement = LogExpectedImprovement(model, best_f=y.max())
            x, _ = optimize_acqf(improvement, box, q=1, num_restarts=4, raw_samples=512)
            X = torch.cat([X, x])
            y = torch.cat([y, function(x)[:, None]])
        best.append(float(y.max()))
    return row("BoTorch", runs, np.array(best), (time.perf_counter() - before) / runs)


def row(way: str, runs: int, best, seconds: float) -> dict[str, Any]:
    regrets = MAXIMUM - best
    return {
        "way": way,
        "runs": runs,
        "seconds_of_a_run": seconds,
        "median_regret": float(np.median(regrets)),
        "largest_regret": float(np.max(regrets)),
    }


def main() -> None:
    """Prints a row for each way, and writes all figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bayesian_optimisation", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    rows = []
    ways = [lambda: in_one_program(options.runs), from_python]
    if importlib.util.find_spec("botorch") is not None:
        ways.append(with_botorch)
    for way in ways:
        rows.append(way())
        print(json.dumps(rows[-1]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(environment() | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
