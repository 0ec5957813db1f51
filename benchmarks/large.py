"""What do preconditioners save, and stochastic estimates of the evidence?

On elevators (fold 0, standardised by its training rows; drawn at random where the shared data are
absent), float32, with a Matern 3/2 kernel of learned lengthscales: the weights of a process at a
noise variance of 0.001, and the evidence with its gradient in three logarithms, next to that of
Cholesky's factor. Neither holds the matrix.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import Bar, Case, Contender, Program
from kernax.solvers import (
    ConjugateGradient,
    JitteredCholesky,
    NystromPreconditioner,
    PivotedCholesky,
    StochasticLanczos,
)

DATA = Path(__file__).parent.parent.parent / "shared" / "data" / "elevators.npz"
KEY = jax.random.key(0)
# Lin et al. 2023, for fold 0.
LENGTHSCALES = np.array(
    [5.46848, 6.72242, 5.22939, 6.45296, 6.85702, 1.2667, 6.695, 1.43197, 8.19383, 1.92804]
    + [3.44366, 3.44369, 1.21759, 7.48396, 0.693147, 8.49535, 0.693147, 1.21711],
    np.float32,
)
VARIANCE = 0.708366**2
NOISE = 0.31428**2
MOST = 1000
PLAIN = f"kernax, plain, {MOST} steps at most"
SOLVERS = {
    "kernax, pivots": PivotedCholesky(KEY),
    "kernax, Nystrom": NystromPreconditioner(KEY),
    PLAIN: None,
}

_SIZE = (
    "Cholesky's factor grows with the cube: a step of learning by 20000 rows of kin40k takes 0.28 "
    "of its time (`python -m benchmarks.exact`)."
)


def cases(quick):
    X, y = data(600 if quick else None)
    yield Case(
        f"weights of a process by conjugate gradients, noise 0.001, n={len(y)}, d=18, float32",
        [Contender(name, lambda p=p: _weights(X, y, p)) for name, p in SOLVERS.items()],
        bars=[Bar(1 / 3, PLAIN)],
        tolerance=jnp.inf,  # a solve that was stopped is shown with how far off it is
        once=True,
    )
    yield Case(
        f"evidence and gradient, n={len(y)}, d=18, float32",
        [
            Contender("kernax, Lanczos", lambda: _evidence(X, y, _lanczos())),
            Contender("kernax, Cholesky", lambda: _evidence(X, y, JitteredCholesky())),
        ],
        bars=[Bar(0.3, "kernax, Cholesky", explanation=_SIZE)],
        tolerance=0.05,
        once=True,
    )


def data(most):
    """Standardised points and targets."""
    if DATA.exists():
        with np.load(DATA) as file:
            kept = file["test_fold"] != 0
            X = file["X"][kept][:most]
            y = file["y"].ravel()[kept][:most]
    else:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(most or 15000, 18))
        y = np.sin(X.sum(1)) + 0.3 * rng.normal(size=len(X))
    spread = np.maximum(X.std(0), 1e-12)
    standard = ((X - X.mean(0)) / spread, (y - y.mean()) / y.std())
    return tuple(jnp.asarray(part, jnp.float32) for part in standard)


def _weights(X, y, preconditioner):
    solver = ConjugateGradient(rtol=1e-2, max_steps=MOST, preconditioner=preconditioner)

    def predicted(X, y):
        kernel = VARIANCE * kx.Matern32(LENGTHSCALES)
        solution = kx.kernel_ridge(kernel, X, y, 1e-3, solver=solver, block_size=128, throw=False)
        return kx.gram(kernel, X[:500], X) @ solution.value.coefficients

    return Program(predicted, X, y)


def _lanczos():
    # Twelve steps are off by 0.06 nats here, signs by 10.
    probes = StochasticLanczos(key=KEY, n_steps=12)
    return ConjugateGradient(rtol=1e-2, preconditioner=PivotedCholesky(KEY), determinant=probes)


def _evidence(X, y, solver):
    def evidence(theta, X, y):
        scale, variance, noise = jnp.exp(theta)
        kernel = variance * kx.Matern32(scale * LENGTHSCALES)
        return kx.log_marginal_likelihood(kernel, X, y, noise, solver=solver)

    theta = jnp.log(jnp.asarray([1.0, VARIANCE, NOISE], jnp.float32))
    return Program(jax.value_and_grad(evidence), theta, X, y)
