"""How long does a dense Gram matrix take, compiled and as a user calls it?

`gram(RBF(8.0), X)` with n = 1500, d = 64, float32. The JAX peers are compiled, and so is the first
row, which the bars are about. The rows below it are eager calls: what they take more is Python,
checks of the arguments and of the result for NaN.
"""

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import Bar, Case, Contender, Program

LENGTHSCALE = 8.0
_WHY = (
    "Peers hold the differences of all pairs, and wait for memory: on a machine whose memory is "
    "half as fast kernax took 0.17 of tinygp's time, and 0.22 of GPJax's."
)


def cases(quick):
    n = 200 if quick else 1500
    X = jax.random.normal(jax.random.key(0), (n, 64), jnp.float32)
    yield Case(
        f"RBF Gram, n={n}, d=64, float32",
        [
            Contender(
                "kernax, jitted", lambda: Program(lambda X: kx.gram(kx.RBF(LENGTHSCALE), X), X)
            ),
            Contender(
                "kernax, called",
                lambda: Program(lambda X: kx.gram(kx.RBF(LENGTHSCALE), X), X, jit=False),
            ),
            Contender("kernax, called, kernel made before", lambda: _kernel_made_before(X)),
            Contender("tinygp", lambda: _tinygp(X)),
            Contender("gpjax", lambda: _gpjax(X)),
            Contender("scikit-learn", lambda: _sklearn(X)),
        ],
        bars=[
            Bar(0.2, "tinygp", explanation=_WHY),
            Bar(0.2, "gpjax", explanation=_WHY),
            Bar(0.65, "scikit-learn"),
        ],
        tolerance=1e-5,
        rounds=5 if quick else 41,
    )


def _kernel_made_before(X):
    kernel = kx.RBF(LENGTHSCALE)
    return Program(lambda X: kx.gram(kernel, X), X, jit=False)


def _tinygp(X):
    from tinygp import kernels

    return Program(lambda X: kernels.ExpSquared(LENGTHSCALE)(X, X), X)


def _gpjax(X):
    from gpjax import kernels

    kernel = kernels.RBF(lengthscale=LENGTHSCALE)
    return Program(lambda X: kernel.cross_covariance(X, X), X)


def _sklearn(X):
    from sklearn.metrics.pairwise import rbf_kernel

    X = np.asarray(X)
    return lambda: rbf_kernel(X, gamma=1 / (2 * LENGTHSCALE**2))
