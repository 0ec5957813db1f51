"""How long does a support vector machine take, and a batch of them, and logistic regression?

Overlapping classes, d = 10, RBF, against scikit-learn's `SVC` (LIBSVM, cache 2000 MB), both at a
violation of 1e-3, where kernax's duality gap is the smaller one; what is compared are the sums of
the dual coefficients. A batch of 200 SVMs of n = 200; logistic regression, n = 3000, against
`GaussianProcessClassifier` without optimisation; and the memory of an SVM that does not store K.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import MB, Bar, Case, Contender, Program, spread

GAMMA, D = 0.1, 10
ROUNDS = {300: 3, 2000: 5, 5000: 2, 10_000: 1}  # of each number of points
KERNEL = kx.RBF((0.5 / GAMMA) ** 0.5)


def cases(quick):
    with jax.enable_x64(True):
        for n in (300,) if quick else (2000, 5000, 10000):
            X, y = data(n)
            for dtype in ("float64", "float32"):
                for C in (1.0, 10.0, 100.0):
                    yield _svm(n, X.astype(dtype), y, C, ROUNDS[n])
        yield _batch(10 if quick else 200)
        yield _logistic(200 if quick else 3000)
        X, y = data(3000 if quick else 30000, 20, "float32")
        build = lambda: Program(
            lambda X, y: kx.svm(KERNEL, X, y, 1.0, block_size=128, throw=False).stats["dual"], X, y
        )
        name = f"SVM without K, n={len(y)}, d=20, float32"
        yield Case(
            name, [Contender("kernax", build)], [Bar(1000 * MB, figure="temporary")], rounds=0
        )


def data(n, d=D, dtype="float64", seed=0):
    """Two classes on either side of a curved boundary, one label in ten wrong."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3]
    y = np.where(f > 0, 1.0, -1.0) * np.where(rng.uniform(size=n) < 0.1, -1, 1)
    return jnp.asarray(X, dtype), jnp.asarray(y, dtype)


def _svm(n, X, y, C, rounds):
    def fit(X, y):
        return jnp.sum(abs(kx.svm(KERNEL, X, y, C, throw=False).value.coefficients))

    contenders = [
        Contender("kernax", lambda: Program(fit, X, y, jit=False)),
        Contender("scikit-learn", lambda: _svc(X, y, C)),
    ]
    bar = Bar(
        1.0,
        "scikit-learn",
        explanation="Where few steps are taken, most of the time goes to K, of which LIBSVM "
        "computes a part.",
    )
    return Case(f"SVM, n={n}, C={C:g}, {X.dtype}", contenders, [bar], 1e-3, rounds)


def _svc(X, y, C):
    from sklearn.svm import SVC

    learner, X, y = SVC(C=C, gamma=GAMMA, cache_size=2000), np.asarray(X), np.asarray(y)

    return lambda: np.abs(learner.fit(X, y).dual_coef_).sum()


def _batch(count):
    sets = [data(200, seed=seed) for seed in range(count)]
    X, y = (jnp.stack(parts) for parts in zip(*sets))
    fit = lambda X, y: jnp.sum(abs(kx.svm(KERNEL, X, y, 1.0, throw=False).value.coefficients))

    def loop():
        from sklearn.svm import SVC

        learner, pairs = SVC(C=1.0, gamma=GAMMA), list(zip(np.asarray(X), np.asarray(y)))
        return lambda: np.array([np.abs(learner.fit(*pair).dual_coef_).sum() for pair in pairs])

    contenders = [
        Contender("kernax, batched", lambda: partial(spread(fit), X, y)),
        Contender("kernax, vmap", lambda: Program(jax.vmap(fit), X, y)),
        Contender("scikit-learn, loop", loop),
    ]
    return Case(
        f"{count} SVMs, n=200, C=1, float64",
        contenders,
        [Bar(0.25, "scikit-learn, loop")],
        1e-3,
        5,
    )


def _logistic(n):
    X, y = data(n)

    def classifier():
        from sklearn.gaussian_process import GaussianProcessClassifier
        from sklearn.gaussian_process.kernels import RBF

        learner = GaussianProcessClassifier(RBF((0.5 / GAMMA) ** 0.5), optimizer=None)
        A, b, Z = np.asarray(X), np.asarray(y), np.asarray(X[:200])
        return lambda: np.asarray(learner.fit(A, b).base_estimator_.pi_[:200]) + 0 * Z[:, 0]  # pyright: ignore[reportAttributeAccessIssue]

    def fit(X, y):  # a ridge of one and no bias: the mode of the same posterior
        f = kx.kernel_logistic(KERNEL, X, y, 1.0, bias=False, throw=False).value
        return jax.nn.sigmoid(jax.vmap(f)(X[:200]))

    contenders = [
        Contender("kernax", lambda: Program(fit, X, y, jit=False)),
        Contender("scikit-learn", classifier),
    ]
    return Case(f"logistic, n={n}, float64", contenders, [Bar(0.5, "scikit-learn")], 1e-4, 3)
