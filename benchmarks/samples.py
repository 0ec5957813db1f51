"""How long does it take to choose a few points that stand for many?

500 of 5000 by herding, and 512 of 4096 by kernel thinning (three halvings and the refinement), of
normal numbers in two dimensions with an RBF, the Gram matrix included, beside plain NumPy: the same
formulas and uniform numbers, a Python loop over the steps, and BLAS for what is a product. The
choices are compared, all of them.
"""

import jax
import numpy as np

import kernax as kx
from benchmarks.harness import Bar, Case, Contender

DELTA = 0.5
KERNEL = kx.RBF(1.0)
KEY = jax.random.key(0)

_THREADS = "With one BLAS thread it takes 0.77 of NumPy's time, with two as long."


def cases(quick):
    n, count = (400, 40) if quick else (5000, 500)
    few, halvings = (256, 3) if quick else (4096, 3)
    rounds = 3 if quick else 9
    with jax.enable_x64(True):
        X = np.random.default_rng(0).normal(size=(n, 2))
        yield Case(
            f"herding, n={n}, {count} chosen, float64",
            [
                Contender("kernax", lambda: lambda: kx.samples.herding(KERNEL, X, count).value),
                Contender("NumPy", lambda: lambda: herding(X, count)),
            ],
            bars=[Bar(1.0, "NumPy", explanation=_THREADS)],
            tolerance=1e-9,
            rounds=rounds,
        )
        X = X[:few] if quick else np.random.default_rng(1).normal(size=(few, 2))
        uniforms = [
            np.asarray(jax.random.uniform(key, (2**level, few // 2 ** (level + 1))))
            for level, key in enumerate(jax.random.split(KEY, halvings))
        ]
        thin = lambda X: kx.samples.thin(KERNEL, X, halvings, key=KEY, delta=DELTA).value
        yield Case(
            f"thinning, n={few}, {halvings} halvings, float64",
            [
                Contender("kernax", lambda: lambda: thin(X)),
                Contender("NumPy", lambda: lambda: thinning(X, uniforms)),
            ],
            bars=[Bar(1.0, "NumPy")],
            tolerance=1e-9,
            rounds=rounds,
        )


def gram(X):
    norms = np.sum(X * X, 1)
    s = X @ (2 * X.T)
    np.subtract(norms[:, None], s, out=s)
    s += norms
    np.maximum(s, 0, out=s)
    s *= -0.5
    return np.exp(s, out=s)


def discrepancy(K, chosen):
    apart = np.bincount(chosen, minlength=len(K)) / len(chosen) - 1 / len(K)
    return max(apart @ (K @ apart), 0)


def herding(X, count):
    K = gram(X)
    means = K.mean(1)
    sums = np.zeros(len(K))
    chosen = np.empty(count, int)
    halves = np.diagonal(K) / 2
    for t in range(count):
        chosen[t] = np.argmin(sums + halves - (t + 1) * means)
        sums += K[chosen[t]]
    return chosen, discrepancy(K, chosen)


def thinning(X, uniforms):
    K = gram(X)
    means = K.mean(1)
    parts = [np.arange(len(K))]
    for level, of_level in enumerate(uniforms):
        failure = DELTA * 2**level / (len(K) * len(uniforms))
        parts = [
            half for part, draws in zip(parts, of_level) for half in halved(K, part, draws, failure)
        ]
    step = 2 ** len(uniforms)
    candidates = [np.arange(step - 1, len(K), step), *parts]
    best = min(candidates, key=lambda part: discrepancy(K, part)).copy()
    sums = K[best].sum(0)
    halves = np.diagonal(K) / 2 - len(best) * means
    for i, old in enumerate(best):
        sums -= K[old]
        best[i] = np.argmin(sums + halves)
        sums += K[best[i]]
    return best, discrepancy(K, best)


def halved(K, part, uniforms, failure):
    first, second = part[0::2], part[1::2]
    rows = K[first] - K[second]
    D = rows[:, first] - rows[:, second]
    signs = np.zeros(len(D))
    variance, stray = 0.0, 2 * np.log(2 / failure)
    for p in range(len(D)):
        square = D[p, p]
        reach = max(np.sqrt(square * variance * stray), square)
        alpha = -D[p, :p] @ signs[:p]
        signs[p] = -1 if uniforms[p] < (1 - alpha / reach) / 2 else 1
        variance += square * max(1 + (square - 2 * reach) * variance / reach**2, 0)
    kept = signs > 0
    return np.where(kept, first, second), np.where(kept, second, first)
