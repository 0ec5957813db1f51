"""How long does the evidence of a Gaussian process take along a line, with its gradient?

Matern kernels at n = 100000 sorted points, float64: the value, and the gradient in the logarithms
of the lengthscale, the variance and the noise. The peer is tinygp's quasiseparable solver. On a CPU
kernax goes from point to point, elsewhere by parallel scans; the other way is a row of its own. And
what a process holds that does the same of 1000000 points.
"""

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import MB, Bar, Case, Contender, Process, Program

START = np.log([0.8, 1.3, 0.05])  # lengthscale, variance, noise
SMOOTHNESS = {"3/2": "Matern32", "5/2": "Matern52"}


def cases(quick):
    n, rounds = (2000, 3) if quick else (100_000, 9)
    for words, name in SMOOTHNESS.items():
        for derivative, bar in ((False, 1.0), (True, 0.3)):
            what = "evidence and gradient" if derivative else "evidence"
            with jax.enable_x64(True):
                yield Case(
                    f"{what} along a line, Matern {words}, n={n}, float64",
                    contenders(name, n, derivative),
                    [Bar(bar, "tinygp")],
                    1e-6,
                    rounds,
                )
    n = 3000 if quick else 1_000_000
    code = f"from benchmarks.line import run_once; run_once({n})"
    yield Case(
        f"a process: evidence and gradient along a line, Matern 3/2, n={n}, float64",
        [Contender("kernax", lambda: Process(code))],
        [Bar(2000 * MB, figure="held")],
        once=True,
    )


def run_once(n):
    """In a process of its own."""
    jax.config.update("jax_enable_x64", True)
    jax.block_until_ready(with_kernax("Matern32", *data(n), True)())


def contenders(name, n, derivative):
    x, y = data(n)
    other = jax.default_backend() == "cpu"
    words = "parallel scans" if other else "point after point"
    return [
        Contender("kernax", lambda: with_kernax(name, x, y, derivative)),
        Contender(f"kernax, {words}", lambda: with_kernax(name, x, y, derivative, other)),
        Contender("tinygp", lambda: _tinygp(name, x, y, derivative)),
    ]


def data(n):
    """Noisy values of a smooth function, fifty points a lengthscale."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, n / 50, n))
    return jnp.asarray(x), jnp.asarray(np.sin(x) + 0.2 * rng.normal(size=n))


def _program(evidence, x, y, derivative):
    """That of `evidence(lengthscale, variance, noise, x, y)`, in logarithms."""
    of = lambda theta, x, y: evidence(*jnp.exp(theta), x, y)
    return Program(jax.value_and_grad(of) if derivative else of, jnp.asarray(START), x, y)


def with_kernax(name, x, y, derivative, parallel=None):
    solver = kx.solvers.StateSpace(parallel=parallel)

    def evidence(lengthscale, variance, noise, x, y):
        kernel = variance * getattr(kx, name)(lengthscale)
        return kx.log_marginal_likelihood(kernel, x[:, None], y, noise, solver=solver)

    return _program(evidence, x, y, derivative)


def _tinygp(name, x, y, derivative):
    import tinygp

    def evidence(lengthscale, variance, noise, x, y):
        kernel = getattr(tinygp.kernels.quasisep, name)(lengthscale, jnp.sqrt(variance))
        return tinygp.GaussianProcess(kernel, x, diag=noise).log_probability(y)

    return _program(evidence, x, y, derivative)
