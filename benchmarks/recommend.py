"""How far are the times that `recommend` gives from those that its calls take?

Each call at two sizes, float64, against the seconds of the cost model, with rates measured beside
it; within a factor of three either way is what is promised.
"""

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import Bar, Case, Contender, Process
from kernax.scale.routes import CENTRES, INDUCING, LINE, PRODUCTS, RANDOM, WHOLE

# Of each route the columns, the accuracy asked for and two sizes.
SIZES = {
    WHOLE: (4, 0.05, (2000, 4000)),
    PRODUCTS: (4, 0.05, (2000, 10_000)),
    CENTRES: (4, 0.05, (10_000, 50_000)),
    INDUCING: (4, 0.05, (10_000, 50_000)),
    RANDOM: (4, 0.07, (5000, 20_000)),
    LINE: (1, 0.05, (20_000, 100_000)),
}
QUICK = {name: (d, 0.2, (400,)) for name, (d, _, _) in SIZES.items()}


class Predicted(Process):
    """A contender whose time is that of the cost model."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self):
        return self.seconds


def cases(quick):
    for name, (d, accuracy, sizes) in (QUICK if quick else SIZES).items():
        for n in sizes:
            with jax.enable_x64(True):
                route = route_of(name, n, d, accuracy)
                call = called(route, *data(n, d))
                yield Case(
                    f"{name}, n={n}, d={d}, float64",
                    [
                        Contender("kernax", lambda call=call: call),
                        Contender("cost model", lambda route=route: Predicted(route.seconds)),
                    ],
                    [Bar(3.0, "cost model", least=1 / 3)],
                    None,
                    2,
                )


def kernel():
    """A rough kernel, whose lengthscale is half of the range of the points."""
    return kx.Matern32(1.0)


def route_of(name, n, d, accuracy):
    (route,) = [
        route
        for route in kx.recommend(kernel(), n, d, accuracy=accuracy).routes
        if route.name == name
    ]
    return route


def data(n, d):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 2 if d > 1 else n / 50, (n, d))
    return jnp.asarray(X), jnp.asarray(np.sin(X[:, 0]) + 0.3 * rng.normal(size=n))


def called(route, X, y):
    """The call of a route, which gives its mean's coefficients."""
    known = {
        "kernax": kx,
        "kernel": kernel(),
        "X": X,
        "y": y,
        "noise": 0.1,
        "key": jax.random.key(0),
    }
    code = compile(route.call, route.name, "eval")

    def call():
        value = eval(code, known).value
        mean = value.mean if isinstance(value, kx.GaussianProcess) else value
        return jax.block_until_ready(mean.coefficients)

    return call
