"""How long do 64 few-shot episodes take, forward and backward in one program?
`python -m benchmarks.episodes`.

Episodes of 5 ways and 5 shots: 25 support points with 64 features and 75 query points, in float64.
Each head of `kernax.nn` is fitted to the support points, and the cross-entropy at the query points,
or the negative log density of a process, is differentiated with respect to all features, the
lengthscale, and the ridge, C or noise. The SVM head is compared with `cvxpylayers` (Agrawal et al.
2019), which solves the same 320 quadratic programmes on the CPU, by Clarabel between two compiled
programs. All heads are compared with a loop over episodes of the same compiled head. The bars: a
tenth of the time of cvxpylayers, and 3 s of processor time to trace and to compile the whole step,
without a cache. Seconds are medians. Needs the package `cvxpylayers`.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.report import environment

EPISODES, WAYS, SHOTS, QUERIES, FEATURES = 64, 5, 5, 15, 64
LENGTHSCALE = 8.0
KERNEL = kx.RBF(LENGTHSCALE)
HEADS = {
    "svm": lambda: kx.nn.SVMHead(KERNEL, C=1.0),
    "ridge": lambda: kx.nn.RidgeHead(KERNEL, ridge=1.0),
    "logistic": lambda: kx.nn.LogisticHead(KERNEL, ridge=1.0),
    "process": lambda: kx.nn.ProcessHead(KERNEL, noise=1.0),
}
TIMES = 15
TIMES_OF_PEER = 5


def episodes() -> tuple[jax.Array, jax.Array]:
    """Features of the support and query points: classes around random centres."""
    centres, support, query = jax.random.split(jax.random.key(0), 3)
    around = jax.random.normal(centres, (EPISODES, WAYS, 1, FEATURES))
    X = around + jax.random.normal(support, (EPISODES, WAYS, SHOTS, FEATURES))
    X_new = around + jax.random.normal(query, (EPISODES, WAYS, QUERIES, FEATURES))
    return X.reshape(EPISODES, -1, FEATURES), X_new.reshape(EPISODES, -1, FEATURES)


def support_targets() -> jax.Array:
    """One-hot columns for the support points of an episode."""
    return jnp.repeat(jnp.eye(WAYS), SHOTS, axis=0)


def cross_entropy(logits: jax.Array) -> jax.Array:
    """The mean over queries of an episode, or of several."""
    targets = jnp.broadcast_to(jnp.repeat(jnp.eye(WAYS), QUERIES, axis=0), logits.shape)
    return -jnp.mean(jnp.sum(targets * jax.nn.log_softmax(logits), -1))


def loss_of(head: Any, X: jax.Array, X_new: jax.Array) -> jax.Array:
    """The loss of one episode."""
    values = head(X, support_targets(), X_new)
    if not isinstance(head, kx.nn.ProcessHead):
        return cross_entropy(values)
    mean, variance = values
    off = mean - jnp.repeat(jnp.eye(WAYS), QUERIES, axis=0)
    variance = (variance + head.noise)[:, None]
    return jnp.mean(off**2 / variance + jnp.log(variance)) / 2


def mean_loss(arguments: tuple) -> jax.Array:
    """The mean loss of all episodes; the arguments are what is differentiated."""
    head, X, X_new = arguments
    return jnp.mean(jax.vmap(lambda X, X_new: loss_of(head, X, X_new))(X, X_new))


def loss_of_episode(arguments: tuple) -> jax.Array:
    """The loss of one episode, of the arguments that are differentiated."""
    return loss_of(*arguments)


def step_of_kernax(head: Any, X: jax.Array, X_new: jax.Array) -> tuple[Callable, dict[str, float]]:
    """The value and gradient of the mean loss, compiled, and the seconds that this took."""
    before = time.perf_counter(), time.process_time()
    step = jax.jit(jax.value_and_grad(mean_loss)).lower((head, X, X_new)).compile()
    seconds = {
        "compile": time.perf_counter() - before[0],
        "processor_seconds_of_compile": time.process_time() - before[1],
    }
    return lambda: step((head, X, X_new)), seconds


def step_of_loop(head: Any, X: jax.Array, X_new: jax.Array) -> Callable:
    """The same by a loop over episodes of one compiled program."""
    step = jax.jit(jax.value_and_grad(loss_of_episode))

    def looped():
        of_each = [step((head, *pair)) for pair in zip(X, X_new)]
        value = jnp.mean(jnp.stack([value for value, _ in of_each]))
        slopes = jax.tree.map(
            lambda *leaves: jnp.stack(leaves) / EPISODES, *[s for _, s in of_each]
        )
        shared = jax.tree.map(lambda leaf: leaf.sum(0), slopes[0])
        return value, (shared, *slopes[1:])

    return looped


def step_of_cvxpylayers(head: Any, X: jax.Array, X_new: jax.Array) -> Callable:
    """The same SVMs by cvxpylayers: with K = L L^T and `f = k(., X) L^-T v + b` each minimises
    `|v|^2 / 2 + C sum_i xi_i` subject to `y_i ((L v)_i + b) >= 1 - xi_i` and `xi_i >= 0`.
    """
    import cvxpy as cp
    from cvxpylayers.jax import CvxpyLayer

    n = WAYS * SHOTS
    v, b, slack = cp.Variable(n), cp.Variable(), cp.Variable(n, nonneg=True)
    factor, y, C = cp.Parameter((n, n)), cp.Parameter(n), cp.Parameter(nonneg=True)
    objective = cp.Minimize(cp.sum_squares(v) / 2 + C * cp.sum(slack))
    problem = cp.Problem(objective, [factor @ v + cp.multiply(y, b) >= 1 - slack])
    # Its default solver is too inaccurate: gradients then differ by up to 0.36 of the largest.
    layer = CvxpyLayer(
        problem,
        parameters=[factor, y, C],
        variables=[v, b],
        solver_args={"solve_method": "Clarabel"},
    )
    columns = 2 * support_targets().T - 1  # (ways, n)
    of_all = jnp.tile(columns, (EPISODES, 1))

    @jax.jit
    def before(lengthscale, X):
        K = jax.vmap(lambda X: kx.gram(kx.RBF(lengthscale), X))(X)
        L = jnp.linalg.cholesky(K)
        return L, (columns[None, :, :, None] * L[:, None]).reshape(-1, n, n)

    @jax.jit
    def after(lengthscale, L, v, b, X, X_new):
        v = v.reshape(EPISODES, WAYS, n)
        rows = jax.vmap(lambda X_new, X: kx.gram(kx.RBF(lengthscale), X_new, X))(X_new, X)
        solved = jax.scipy.linalg.solve_triangular(L, v.mT, lower=True, trans=1)
        return cross_entropy(rows @ solved + b.reshape(EPISODES, 1, WAYS))

    def loss(arguments):
        head, X, X_new = arguments
        lengthscale = head.kernel.lengthscale
        L, signed = before(lengthscale, X)
        v, b = layer(signed, of_all, jnp.broadcast_to(head.C, len(of_all)))
        return after(lengthscale, L, v, b, X, X_new)

    return lambda: jax.value_and_grad(loss)((head, X, X_new))


def median_seconds(step: Callable, times: int) -> float:
    """After a first call, which may compile."""
    jax.block_until_ready(step())
    taken = []
    for _ in range(times):
        before = time.perf_counter()
        jax.block_until_ready(step())
        taken.append(time.perf_counter() - before)
    return statistics.median(taken)


def difference(found: Any, other: Any) -> float:
    """The largest relative difference of the values and of each part of the gradient."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(other), strict=True)
    return max(float(np.max(abs(a - b)) / np.max(abs(a))) for a, b in pairs)


def compared(name: str) -> dict[str, Any]:
    """The figures of one head."""
    head = HEADS[name]()
    X, X_new = episodes()
    step, compilation = step_of_kernax(head, X, X_new)
    steps = {"loop": step_of_loop(head, X, X_new)}
    if name == "svm":
        steps["cvxpylayers"] = step_of_cvxpylayers(head, X, X_new)
    row = {"set": name, "seconds": median_seconds(step, TIMES)} | compilation
    for peer, other in steps.items():
        row[f"seconds_of_{peer}"] = median_seconds(other, TIMES_OF_PEER)
        row[f"difference_of_{peer}"] = difference(step(), other())
    peer = "cvxpylayers" if name == "svm" else "loop"
    row["time_ratio"] = row["seconds"] / row[f"seconds_of_{peer}"]
    quick = row["processor_seconds_of_compile"] <= 3
    row["met"] = quick and (name != "svm" or row["time_ratio"] <= 0.1)
    return row


def main() -> None:
    """Prints a row for each head as soon as it is known, and writes all figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.episodes", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--heads", nargs="*", default=list(HEADS), choices=HEADS, metavar="HEAD")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    found = environment() | {"sets": []}
    with jax.enable_x64(True):
        for name in options.heads:
            row = compared(name)
            found["sets"].append(row)
            print(json.dumps({key: _short(value) for key, value in row.items()}), flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps(found, indent=1) + "\n")


def _short(value):
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
