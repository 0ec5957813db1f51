"""How much memory, and time, does a gradient through a Gram matrix take?

The gradient of `sum(gram(kernel, X) ** 2)` in 64 ARD lengthscales and in X, n = 2000, d = 64,
float32. The bar is 3 n^2 floats at the peak, 5 n^2 for kernels that are not smooth at zero
distance.
"""

import jax
import jax.numpy as jnp

import kernax as kx
from benchmarks.harness import Bar, Case, Contender, Program

D = 64
ROUGH = ("Matern12", "GammaExponential")
KERNELS = {  # as kernax calls them; gamma and alpha are the same everywhere
    "RBF": lambda scale: kx.RBF(scale),
    "Matern52": lambda scale: kx.Matern52(scale),
    "Matern32": lambda scale: kx.Matern32(scale),
    "Matern12": lambda scale: kx.Matern12(scale),
    "GammaExponential": lambda scale: kx.kernels.GammaExponential(scale, gamma=1.5),
    "RationalQuadratic": lambda scale: kx.RationalQuadratic(scale, alpha=1.0),
}


def cases(quick):
    n = 200 if quick else 2000
    X = jax.random.normal(jax.random.key(0), (n, D), jnp.float32)
    scale = jnp.linspace(6.0, 10.0, D, dtype=jnp.float32)
    for name, kernel in KERNELS.items():
        grams = {"kernax": lambda kernel=kernel: lambda scale, X: kx.gram(kernel(scale), X)}
        grams |= {
            "tinygp": lambda name=name: _tinygp(name),
            "gpjax": lambda name=name: _gpjax(name),
        }
        yield Case(
            f"gradient of sum(K^2) in lengthscales and X, {name}, n={n}, d={D}, float32",
            [
                Contender(peer, lambda gram=gram: _gradient(gram(), scale, X))
                for peer, gram in grams.items()
            ],
            bars=[Bar((5 if name in ROUGH else 3) * 4 * n * n, figure="temporary")],
            tolerance=1e-3,
            once=True,
        )


def _gradient(gram, scale, X):
    return Program(
        jax.grad(lambda scale, X: jnp.sum(gram(scale, X) ** 2), argnums=(0, 1)), scale, X
    )


def _tinygp(name):
    from tinygp import kernels

    of = {
        "RBF": lambda: kernels.ExpSquared(),
        "Matern52": lambda: kernels.Matern52(distance=kernels.L2Distance()),
        "Matern32": lambda: kernels.Matern32(distance=kernels.L2Distance()),
        "Matern12": lambda: kernels.Exp(distance=kernels.L2Distance()),
        "RationalQuadratic": lambda: kernels.RationalQuadratic(
            alpha=1.0, distance=kernels.L2Distance()
        ),
    }
    if name not in of:
        raise ImportError(f"tinygp has no {name}")
    return lambda scale, X: of[name]()(X / scale, X / scale)


def _gpjax(name):
    from gpjax import kernels

    more = {"GammaExponential": {"power": 1.5}, "RationalQuadratic": {"alpha": 1.0}}.get(name, {})
    of = getattr(kernels, {"GammaExponential": "PoweredExponential"}.get(name, name))
    return lambda scale, X: of(lengthscale=1.0, **more).cross_covariance(X / scale, X / scale)
