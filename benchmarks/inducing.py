"""How long does the collapsed bound of inducing points take, with its gradient?

The bound of Titsias (2009) for an RBF kernel with 8 lengthscales, n = 10000 and m = 200, and its
gradient in the logarithms of the lengthscales, the variance and the noise, and in the inducing
points; float64. What the published tables say of kin40k with m = 512 (fold 0 of ten), by
minibatches and by the collapsed bound, is learned here as well.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import kernax as kx
from benchmarks.evidence import START, D, data
from benchmarks.harness import Bar, Case, Contender, Program
from benchmarks.restarts import DATA

_PRODUCTS = "Both are some products of a matrix of 200 rows with one of 10000 columns."
COUNT = 512
LBFGS = optax.lbfgs()
ADAM = optax.adam(0.01)


def cases(quick):
    n, m, rounds = (400, 20, 3) if quick else (10_000, 200, 15)
    with jax.enable_x64(True):
        X, y = data(n, "float64")
        builders = {"kernax": _kernax, "gpytorch": _gpytorch, "gpjax": _gpjax}
        contenders = [
            Contender(name, lambda build=build: build(X, y, X[:m]))
            for name, build in builders.items()
        ]
        bars = (Bar(0.7, "gpytorch", explanation=_PRODUCTS), Bar(0.7, "gpjax"))
        name = f"collapsed bound and gradient, n={n}, m={m}, d={D}, float64"
        # GPyTorch and GPJax add jitter of 1e-6 or so to k(Z, Z).
        yield Case(name, contenders, bars, 1e-4, rounds)


def _in_logarithms(bound, X, y, Z):
    """The program of the value and gradient of `bound(lengthscales, variance, noise, X, y, Z)`."""

    def of(theta, Z, X, y):
        scales, variance, noise = jnp.exp(theta[:D]), jnp.exp(theta[D]), jnp.exp(theta[D + 1])
        return bound(scales, variance, noise, X, y, Z)

    return Program(jax.value_and_grad(of, (0, 1)), jnp.asarray(START, X.dtype), Z, X, y)


def _kernax(X, y, Z):
    def bound(scales, variance, noise, X, y, Z):
        return kx.sgpr_bound(variance * kx.RBF(scales), X, y, noise, Z)

    return _in_logarithms(bound, X, y, Z)


def _gpjax(X, y, Z):
    import gpjax

    def bound(scales, variance, noise, X, y, Z):
        kernel = gpjax.kernels.RBF(lengthscale=scales, variance=variance, n_dims=D)
        prior = gpjax.gps.Prior(mean_function=gpjax.mean_functions.Zero(), kernel=kernel)
        posterior = prior * gpjax.likelihoods.Gaussian(obs_stddev=jnp.sqrt(noise))
        q = gpjax.variational_families.CollapsedVariationalGaussian(
            model=posterior, inducing_inputs=Z
        )
        return gpjax.objectives.collapsed_elbo(q, gpjax.Dataset(X, y[:, None]))

    return _in_logarithms(bound, X, y, Z)


def _gpytorch(X, y, Z):
    import gpytorch
    import torch

    X, y, Z = (torch.tensor(np.asarray(part)) for part in (X, y, Z))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(X)

    class Model(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=D))
            self.covar_module = gpytorch.kernels.InducingPointKernel(
                base, inducing_points=Z, likelihood=likelihood
            )

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model: Any = Model().to(X)
    kernel = model.covar_module.base_kernel
    values = [torch.tensor(np.exp(part)).to(X) for part in np.split(START, [D, D + 1])]
    kernel.base_kernel.lengthscale, kernel.outputscale, likelihood.noise = values
    raw = [kernel.base_kernel.raw_lengthscale, kernel.raw_outputscale, likelihood.raw_noise]
    slopes = [value / torch.sigmoid(part).detach().ravel() for value, part in zip(values, raw)]
    objective: Any = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train()
    likelihood.train()

    def run():
        model.zero_grad()
        value = len(y) * objective(model(X), y)
        value.backward()
        gradient = torch.cat([part.grad.ravel() * slope for part, slope in zip(raw, slopes)])
        return value.item(), (gradient.numpy(), model.covar_module.inducing_points.grad.numpy())

    return run


class Sparse(eqx.Module):
    """What is learned by the collapsed bound."""

    kernel: kx.AbstractKernel
    noise: jax.Array = kx.fields.positive(default=0.1)
    Z: jax.Array = kx.fields.real(default=None)


def minus_bound(model, X, y):
    """A row's share."""
    return -kx.sgpr_bound(model.kernel, X, y, model.noise, model.Z) / len(y)


def kin40k():
    """Points and targets of fold 0, standardised by training rows: train, then test."""
    file = np.load(DATA / "kin40k.npz")
    X, y, test = file["X"], file["y"].ravel(), file["test_fold"] == 0
    X = (X - X[~test].mean(0)) / X[~test].std(0)
    y = (y - y[~test].mean()) / y[~test].std()
    return X[~test], y[~test], X[test], y[test]


def scores(process, noise, X_new, y_new):
    """RMSE and mean negative log density of held-out targets."""
    mean = jax.vmap(process.mean)(X_new)
    variance = jax.vmap(process.variance)(X_new) + noise
    return (
        float(kx.metrics.root_mean_square_error(y_new, mean)),
        float(kx.metrics.negative_log_predictive_density(y_new, mean, variance)),
    )


def by_collapsed_bound(start, X, y, steps):
    """The process and the noise, learned by L-BFGS."""
    model = kx.minimise(minus_bound, start, LBFGS, steps, args=(X, y)).value
    process = kx.GaussianProcess(model.kernel)
    return kx.sgpr(process, X, y, model.noise, model.Z).value, model.noise


def by_minibatches(start, X, y, steps):
    """The same by Adam, with natural gradients of q."""
    posterior = kx.svgp(
        kx.GaussianProcess(start.kernel),
        X,
        y,
        kx.likelihoods.Gaussian(start.noise),
        start.Z,
        optimiser=ADAM,
        n_steps=steps,
        batch_size=1024,
        key=jax.random.key(0),
    ).value
    likelihood = posterior.likelihood
    assert isinstance(likelihood, kx.likelihoods.Gaussian)
    return posterior.process, likelihood.noise


WAYS = {"minibatches": by_minibatches, "collapsed": by_collapsed_bound}


def started(X, count):
    """The model to begin with: points chosen greedily."""
    kernel = 1.0 * kx.Matern32(np.full(X.shape[1], 2.0))
    return Sparse(kernel, 0.1, kx.inducing_points(kernel, X, count).value)
