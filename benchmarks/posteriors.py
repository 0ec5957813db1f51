"""What do Laplace's approximation, expectation propagation and variational inference predict on
real classes? `python -m benchmarks.posteriors`.

On each set at most 300 rows are drawn to learn from, and up to 1000 of the others are held out. A
variance, a lengthscale and a constant mean are learned by Laplace's evidence, once; all three
approximations then predict with the same hyperparameters, so that their differences are those of
the inference. For each: log loss, error and calibration error (10 bins) on the held-out rows, the
mean leave-one-out log loss of the rows learned from, the evidence, how it ended, and the seconds of
an evidence when compiled. The bars: expectation propagation succeeds on every set, and its log loss
is at most that of Laplace's + 0.01. Needs the shared data; breast cancer is scikit-learn's.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import kernax as kx
from benchmarks.learning import SETS, split, table_of
from benchmarks.report import environment

INFERENCES = ("laplace", "expectation_propagation", "variational")
LIKELIHOOD = kx.likelihoods.Bernoulli()
ROWS = 300
HELD_OUT = 1000
MARGIN = 0.01
_OPTIMISER = optax.lbfgs()


class Model(kx.Model):
    """A kernel, and the mean of the process, the logarithm of the number of a `Model`."""

    def process(self):
        return kx.GaussianProcess(self.kernel, kx.ConstantMean(jnp.log(self.ridge)))


def loss(model, X, y):
    posterior = kx.laplace(model.process(), X, y, LIKELIHOOD, throw=False).value
    return -posterior.log_evidence / len(y)


def rows_of(name):
    """Standardised points and signs, to learn from and held out."""
    parts = split(table_of(name), 0, ROWS)
    signs = [np.where(part == parts.classes[1], 1.0, -1.0) for part in (parts.y, parts.y_held_out)]
    points = [np.asarray(part) for part in (parts.X, parts.X_held_out[:HELD_OUT])]
    return *map(jnp.asarray, points), jnp.asarray(signs[0]), jnp.asarray(signs[1][:HELD_OUT])


def figures(inference, process, X, y, X_new, y_new):
    """The scores of one approximation."""
    approximate = getattr(kx, inference)
    fit = jax.jit(lambda X, y: approximate(process, X, y, LIKELIHOOD, throw=False))
    solution = jax.block_until_ready(fit(X, y))
    times = []
    for _ in range(3):
        before = time.perf_counter()
        jax.block_until_ready(fit(X, y))
        times.append(time.perf_counter() - before)
    posterior = solution.value
    p = jax.jit(jax.vmap(posterior.probability))(X_new)
    values = jnp.log(p) - jnp.log1p(-p)
    found = {
        "log loss": kx.metrics.log_loss(y_new, values),
        "error": 1 - kx.metrics.accuracy(y_new, values),
        "calibration": kx.metrics.calibration_error(y_new > 0, p),
        "left out": -jnp.mean(posterior.leave_one_out(y).log_density),
        "evidence": posterior.log_evidence,
        "seconds": np.median(times),
    }
    ended = bool(solution.result == kx.RESULTS.successful)
    rounded = {k: round(float(v), 4) for k, v in found.items()}
    return {"verb": inference, "successful": ended} | rounded


def rows(name):
    """The scores of all approximations on a set, with the hyperparameters of Laplace's evidence."""
    X, X_new, y, y_new = rows_of(name)
    start = Model(1.0 * kx.RBF(float(np.sqrt(X.shape[1]))), 1.0)
    model = kx.minimise(loss, start, _OPTIMISER, 30, args=(X, y)).value
    kept = [figures(inference, model.process(), X, y, X_new, y_new) for inference in INFERENCES]
    parameters, _ = kx.unconstrain(model)
    learned = {path: round(float(np.exp(theta)), 4) for path, theta in parameters.items()}
    laplace, ep, _ = kept
    met = ep["successful"] and ep["log loss"] <= laplace["log loss"] + MARGIN
    return {"set": name, "n": len(y), "held out": len(y_new), **learned, "rows": kept, "met": met}


def main():
    """Prints a row for each set and approximation as soon as it is known."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.posteriors", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS, metavar="SET")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    found = environment() | {"sets": []}
    names = ("log loss", "error", "calibration", "left out", "evidence", "seconds")
    print(f"{'set':14}{'approximation':26}" + "".join(f"{name:>12}" for name in names))
    for name in options.sets:
        row = rows(name)
        found["sets"].append(row)
        for one in row["rows"]:
            cells = "".join(f"{one[key]:12.4f}" for key in names)
            print(f"{name:14}{one['verb']:26}{cells}", "" if one["successful"] else "failed")
        print(f"{'':14}{'bar met' if row['met'] else 'bar missed'}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
