"""How long do many small ridge fits take, in one batch?

500 fits of n = 100, d = 5, float64, against a loop over scikit-learn's `KernelRidge`.
"""

from functools import partial

import jax
import numpy as np

import kernax as kx
from benchmarks.harness import Bar, Case, Contender, Program, spread

LENGTHSCALE, RIDGE = 2.0, 0.1


def cases(quick):
    fits, n, d = (20 if quick else 500), 100, 5
    with jax.enable_x64(True):
        X = jax.random.normal(jax.random.key(0), (fits, n, d))
        y = jax.numpy.sin(X[..., 0]) + X[..., 1]
        yield Case(
            f"{fits} ridge fits, n={n}, d={d}, float64",
            [
                Contender("kernax, batched", lambda: partial(spread(_coefficients), X, y)),
                Contender("kernax, vmap", lambda: Program(jax.vmap(_coefficients), X, y)),
                Contender(
                    "kernax, loop",
                    lambda: lambda: np.stack([_coefficients(*pair) for pair in zip(X, y)]),
                ),
                Contender("scikit-learn, loop", lambda: _sklearn(X, y)),
            ],
            bars=[Bar(0.15, "scikit-learn, loop")],
            tolerance=1e-9,
            rounds=3 if quick else 11,
        )


def _coefficients(X, y):
    return kx.kernel_ridge(kx.RBF(LENGTHSCALE), X, y, RIDGE, throw=False).value.coefficients


def _sklearn(X, y):
    from sklearn.kernel_ridge import KernelRidge

    learner, X, y = (
        KernelRidge(alpha=RIDGE, kernel="rbf", gamma=1 / (2 * LENGTHSCALE**2)),
        np.asarray(X),
        np.asarray(y),
    )
    return lambda: np.stack([learner.fit(*pair).dual_coef_ for pair in zip(X, y)])
