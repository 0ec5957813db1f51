"""How much nearer are orthogonal and quasi-random features to the kernel than independent ones?
`python -m benchmarks.features [--quick]`.

Variance of an entry of the Gram matrix of 500 rows over ten keys, pairs of different rows, times
the number of frequencies: about 1/2 for independent draws of pairs that are far from each other.
Beside it the ratios to independent draws. Rows of kin8nm (8 columns, lengthscale 2) and elevators
(18 columns, lengthscale 4), standardised. Needs the shared data.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.restarts import DATA

DRAWS = ("independent", "orthogonal", "quasi_random")
SETS = {"kin8nm": 2.0, "elevators": 4.0}
KERNELS = {
    "RBF": kx.RBF,
    "Matern32": kx.Matern32,
    "RBF on half x Matern32": lambda lengthscale: (
        kx.On(kx.RBF(lengthscale), slice(0, 4)) * kx.Matern32(lengthscale)
    ),
}


def rows_of(name, n):
    """Standardised rows of a data set."""
    X = np.load(DATA / f"{name}.npz")["X"]
    X = (X - X.mean(0)) / X.std(0)
    return jnp.asarray(np.random.default_rng(0).permutation(X)[:n])


def variance(kernel, X, count, draw, keys):
    """The mean square of the error of an entry off the diagonal, times `count`."""
    K = kx.gram(kernel, X)
    dim = X.shape[1]

    @jax.jit
    def error(key):
        features = kx.random_fourier_features(kernel, count, dim, key=key, draw=draw)
        return jnp.sum((kx.gram(features, X) - K) ** 2) / (len(X) * (len(X) - 1))

    return count * float(np.mean([error(key) for key in keys]))


def main() -> None:
    """Prints a table, a row for each set, kernel and count, as soon as it is known."""
    jax.config.update("jax_enable_x64", True)
    quick = "--quick" in sys.argv
    n, counts, repeats = (50, (64,), 2) if quick else (500, (128, 512, 2048), 10)
    keys = jax.random.split(jax.random.key(0), repeats)
    heading = f"{'data':11}{'kernel':24}{'count':>6}"
    print(heading + f"{'independent':>13}{'orthogonal':>18}{'quasi-random':>20}")
    for name, lengthscale in SETS.items():
        X = rows_of(name, n)
        for words, make in KERNELS.items():
            for count in counts:
                found = [variance(make(lengthscale), X, count, draw, keys) for draw in DRAWS]
                cells = "".join(f"{v:12.4f} ({v / found[0]:.2f})" for v in found[1:])
                print(f"{name:11}{words:24}{count:6}{found[0]:13.4f}{cells}", flush=True)


if __name__ == "__main__":
    main()
