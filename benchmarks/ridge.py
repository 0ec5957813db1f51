"""How long does one kernel ridge fit take, and prediction with it?

n = 3000, d = 10, RBF, against scikit-learn's `KernelRidge`, in float64 and float32; then
predictions at 1000 new points.
"""

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import Bar, Case, Contender, Program

LENGTHSCALE, RIDGE, D = 3.0, 0.1, 10


def cases(quick):
    n, m, rounds = (300, 100, 3) if quick else (3000, 1000, 15)
    for dtype, tolerance in (("float64", 1e-9), ("float32", 1e-3)):
        with jax.enable_x64(dtype == "float64"):
            X, y, Z = data(n, m, dtype)
            yield _fits(f"n={n}, d={D}, {dtype}", X, y, tolerance, rounds)
            yield _predictions(f"{m} points, n={n}, d={D}, {dtype}", X, y, Z, tolerance, rounds)


def _fits(name, X, y, tolerance, rounds):
    kernax = Contender(
        "kernax", lambda: Program(lambda X, y: fit(X, y).value.coefficients, X, y, jit=False)
    )
    sklearn = Contender("scikit-learn", lambda: _sklearn_fit(X, y))
    return Case(
        f"ridge fit, {name}", [kernax, sklearn], [Bar(0.65, "scikit-learn")], tolerance, rounds
    )


def _predictions(name, X, y, Z, tolerance, rounds):
    def predict(f, Z):
        return jax.vmap(f)(Z)

    f = fit(X, y).value
    contenders = [
        Contender("kernax", lambda: Program(predict, f, Z, jit=False)),
        Contender("kernax, jitted", lambda: Program(predict, f, Z)),
        Contender("scikit-learn", lambda: _sklearn_predict(X, y, Z)),
    ]
    return Case(f"ridge predictions at {name}", contenders, tolerance=tolerance, rounds=rounds)


def data(n, m, dtype):
    """Noisy values of a smooth function at n points, and m more points."""
    points, noise, more = jax.random.split(jax.random.key(0), 3)
    X = jax.random.normal(points, (n, D), dtype)
    y = jnp.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * jax.random.normal(noise, (n,), dtype)
    return X, y, jax.random.normal(more, (m, D), dtype)


def fit(X, y):
    return kx.kernel_ridge(kx.RBF(LENGTHSCALE), X, y, RIDGE)


def _learner():
    from sklearn.kernel_ridge import KernelRidge

    return KernelRidge(alpha=RIDGE, kernel="rbf", gamma=1 / (2 * LENGTHSCALE**2))


def _sklearn_fit(X, y):
    learner, X, y = _learner(), np.asarray(X), np.asarray(y)
    return lambda: learner.fit(X, y).dual_coef_


def _sklearn_predict(X, y, Z):
    learner, Z = _learner().fit(np.asarray(X), np.asarray(y)), np.asarray(Z)
    return lambda: learner.predict(Z)
