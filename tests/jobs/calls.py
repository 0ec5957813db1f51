"""What `agree.py` asks of spread rows, and its test of rows on one device.

Ridge by conjugate gradients, and the evidence with its gradient, are in examples/cluster.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import kernax

RBF = kernax.RBF(1.5)
NEW = np.random.default_rng(1).normal(size=(4, 2))
FEATURES = kernax.random_fourier_features(RBF, 4, 2, key=jax.random.key(0))


def norm_of_fit(x, y):
    return kernax.kernel_ridge(RBF, x[:, None], y * x, 0.1, throw=False).value.norm


CALLS = {
    "falkon": lambda X, y, w: kernax.falkon(
        RBF, X, y, 0.1, NEW, weights=w, throw=False
    ).value.values(NEW),
    "falkon in features": lambda X, y, w: kernax.falkon(
        FEATURES, X, jnp.sign(y), 0.1, weights=w, loss=kernax.losses.Logistic(), bias=True
    ).value.values(NEW),
    "ridge in features": lambda X, y, w: kernax.kernel_ridge(
        FEATURES, X, y, 0.1, weights=w
    ).value.values(NEW),
    "batched": lambda X, y, w: jnp.sum(  # of every row its own fit, where it is
        (1.0 if w is None else w) * kernax.batched(norm_of_fit)(X, y)
    ),
}


def distance(lengthscale, X, y, w):
    w = jnp.ones_like(y) if w is None else w
    return jnp.sum(w * (y - jnp.sum(X, 1) * lengthscale) ** 2)


ADAM = optax.adam(0.1)


def learned(X, y, w, **options):
    """A few steps of `minimise`."""
    return kernax.minimise(distance, jnp.asarray(0.5), ADAM, 6, args=(X, y, w), **options)


def advance(state):
    """A step of a loop that keeps spread rows, a key and a number."""
    return {
        "rows": 1.5 * state["rows"],
        "key": jax.random.fold_in(state["key"], state["count"]),
        "count": state["count"] + 1,
    }
