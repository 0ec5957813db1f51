"""How long does it take to choose a ridge, a C and a lengthscale by cross-validation?

5 folds of n = 500 for 20 lengthscales times 20 ridges, and times 20 prices C of an SVM, against
scikit-learn's `GridSearchCV(n_jobs=2)` on the same folds. kernax takes all ridges of a fold from
one factorisation, starts each SVM from that of the C before, and spreads the lengthscales over
the cores. float64; what is compared are the mean scores.
"""

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import Bar, Case, Contender

FOLDS, D = 5, 8


def cases(quick):
    n, count = (60, 4) if quick else (500, 20)
    with jax.enable_x64(True):
        X, f, noise = _data(n)
        folds = kx.k_folds(n, FOLDS, key=jax.random.key(0))
        scales = np.geomspace(0.5, 10.0, count)
        rounds = 1 if quick else 2
        yield _of_ridges(X, f + 0.3 * noise, folds, scales, np.geomspace(1e-3, 10, count), rounds)
        y = np.where(f + 0.3 * noise > np.median(f), 1.0, -1.0)
        yield _of_svms(X, y, folds, scales, np.geomspace(0.1, 100, count), rounds)


def _data(n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3], rng.normal(size=n)


def _pairs(folds):
    """The folds as scikit-learn takes them; of n rows that FOLDS divides none is padded."""
    return list(zip(np.asarray(folds.learn), np.asarray(folds.score)))


def _of_ridges(X, y, folds, scales, ridges, rounds):
    def squares(f, X, y, weights):
        return jnp.mean((f.values(X) - y[:, None]) ** 2, 0)

    def losses(scale):
        def fit(X, y, weights):
            return kx.selection.ridge_path(kx.RBF(scale), X, y, ridges, throw=False).value

        return kx.cross_validate(fit, squares, X, y, folds).mean

    def sequential_vmap(scale, ridge):
        def fit(X, y, weights):
            return kx.kernel_ridge(kx.RBF(scale), X, y, ridge, throw=False).value

        def error(f, X, y, weights):
            return jnp.mean((f.values(X) - y) ** 2)

        return kx.cross_validate(fit, error, X, y, folds).mean

    def peer():
        from sklearn.kernel_ridge import KernelRidge
        from sklearn.model_selection import GridSearchCV

        values = {"gamma": 1 / (2 * scales**2), "alpha": ridges}
        search = GridSearchCV(
            KernelRidge(kernel="rbf"), values, cv=_pairs(folds), n_jobs=2, refit=False,
            scoring="neg_mean_squared_error",
        )  # fmt: skip
        shape = len(ridges), len(scales)
        return lambda: -search.fit(X, y).cv_results_["mean_test_score"].reshape(shape).T

    search = kx.batched(losses, devices=jax.devices())
    every = kx.batched(sequential_vmap, devices=jax.devices())
    pairs = [axis.ravel() for axis in np.meshgrid(scales, ridges, indexing="ij")]
    contenders = [
        Contender("kernax, paths of ridges", lambda: lambda: search(scales)),
        Contender(
            "kernax, every fit by itself",
            lambda: lambda: every(*pairs).reshape(len(scales), len(ridges)),
        ),
        Contender("scikit-learn, GridSearchCV(n_jobs=2)", peer),
    ]
    bars = [Bar(0.1, "scikit-learn, GridSearchCV(n_jobs=2)")]
    title = f"ridge: {FOLDS} folds x {len(scales) * len(ridges)} (ridge, lengthscale), n={len(y)}"
    return Case(title, contenders, bars, 1e-6, rounds)


def _of_svms(X, y, folds, scales, prices, rounds):
    def shares(functions, X, y, weights):
        return jnp.mean(functions.values(X) * y[:, None] > 0, 0, dtype=y.dtype)

    def accuracies(scale):
        def fit(X, y, weights):
            kernel = kx.RBF(scale)

            def next_svm(price, start):
                return kx.svm(kernel, X, y, price, start=start, throw=False)

            return kx.selection.regularisation_path(next_svm, jnp.asarray(prices)).value

        return kx.cross_validate(fit, shares, X, y, folds).mean

    def peer():
        from sklearn.model_selection import GridSearchCV
        from sklearn.svm import SVC

        values = {"gamma": 1 / (2 * scales**2), "C": prices}
        search = GridSearchCV(SVC(), values, cv=_pairs(folds), n_jobs=2, refit=False)
        shape = len(prices), len(scales)
        return lambda: search.fit(X, y).cv_results_["mean_test_score"].reshape(shape).T

    search = kx.batched(accuracies, devices=jax.devices())
    contenders = [
        Contender("kernax, paths of C", lambda: lambda: search(scales)),
        Contender("scikit-learn, GridSearchCV(n_jobs=2)", peer),
    ]
    bars = [Bar(0.5, "scikit-learn, GridSearchCV(n_jobs=2)")]
    title = f"SVM: {FOLDS} folds x {len(scales) * len(prices)} (C, lengthscale), n={len(y)}"
    # A tolerance of 1e-3 leaves signs of values near zero open: a few rows of 500.
    return Case(title, contenders, bars, 0.02, rounds)
