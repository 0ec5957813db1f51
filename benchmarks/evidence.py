"""How long does a Gaussian process's evidence take, with its gradient?

Log marginal likelihood of an RBF kernel with 8 lengthscales, and its gradient in the logarithms of
the lengthscales, the variance and the noise; n = 1000, 2000, 4000, float64; then float32 against
float64.
"""

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import Bar, Case, Contender, Program

D = 8
START = np.log(np.r_[np.linspace(1.5, 3.0, D), 1.3, 0.1])  # lengthscales, variance, noise
COMPILED = Bar(1.0, figure="compile")
PEERS = (Bar(0.6, "tinygp"), Bar(0.6, "gpjax"), Bar(0.5, "scikit-learn"), Bar(1.1, "gpytorch"))


def cases(quick):
    sizes = ((200, 3),) if quick else ((1000, 9), (2000, 5), (4000, 2))
    for n, rounds in sizes:
        with jax.enable_x64(True):
            X, y = data(n, "float64")
            yield Case(
                f"evidence and gradient, n={n}, d={D}, float64",
                contenders(X, y),
                PEERS if n < 4000 else (*PEERS, COMPILED),
                1e-6,
                rounds,
            )
    for n, rounds in sizes:
        with jax.enable_x64(True):
            both = [_in_precision(n, dtype) for dtype in ("float32", "float64")]
            yield Case(
                f"evidence and gradient, n={n}, d={D}, float32",
                both,
                [Bar(0.6, "kernax, float64")],
                1e-2,
                rounds,
            )


def _in_precision(n, dtype):
    return Contender(f"kernax, {dtype}", lambda: with_kernax(*data(n, dtype)))


def contenders(X, y):
    builders = {
        "kernax": with_kernax,
        "tinygp": with_tinygp,
        "gpjax": _gpjax,
        "scikit-learn": _sklearn,
        "gpytorch": with_gpytorch,
    }
    return [Contender(name, lambda build=build: build(X, y)) for name, build in builders.items()]


def data(n, dtype):
    """Noisy values of a smooth function at n points."""
    points, noise = jax.random.split(jax.random.key(0))
    X = jax.random.normal(points, (n, D), "float64")
    y = jnp.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * jax.random.normal(noise, (n,), "float64")
    return X.astype(dtype), y.astype(dtype)


def _in_logarithms(evidence, X, y):
    """The program of the value and gradient of `evidence(lengthscales, variance, noise, X, y)`."""
    of = lambda theta, X, y: evidence(
        jnp.exp(theta[:D]), jnp.exp(theta[D]), jnp.exp(theta[D + 1]), X, y
    )
    return Program(jax.value_and_grad(of), jnp.asarray(START, X.dtype), X, y)


def with_kernax(X, y):
    def evidence(scales, variance, noise, X, y):
        return kx.log_marginal_likelihood(variance * kx.RBF(scales), X, y, noise)

    return _in_logarithms(evidence, X, y)


def with_tinygp(X, y):
    import tinygp

    def evidence(scales, variance, noise, X, y):
        kernel = variance * tinygp.transforms.Linear(1 / scales, tinygp.kernels.ExpSquared())
        return tinygp.GaussianProcess(kernel, X, diag=noise).log_probability(y)

    return _in_logarithms(evidence, X, y)


def _gpjax(X, y):
    import gpjax

    def evidence(scales, variance, noise, X, y):
        kernel = gpjax.kernels.RBF(lengthscale=scales, variance=variance, n_dims=D)
        prior = gpjax.gps.Prior(
            mean_function=gpjax.mean_functions.Zero(), kernel=kernel, jitter=0.0
        )
        posterior = prior * gpjax.likelihoods.Gaussian(obs_stddev=jnp.sqrt(noise))
        return gpjax.objectives.conjugate_mll(posterior, gpjax.Dataset(X, y[:, None]))

    return _in_logarithms(evidence, X, y)


def _sklearn(X, y):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel() * RBF(np.ones(D)) + WhiteKernel()
    learner = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(
        np.asarray(X), np.asarray(y)
    )
    order = np.r_[D, np.arange(D), D + 1]  # its theta begins with the variance

    def run():
        value, gradient = learner.log_marginal_likelihood(
            START[order], eval_gradient=True, clone_kernel=False
        )
        return value, gradient[np.argsort(order)]

    return run


def with_gpytorch(X, y, device="cpu"):
    import gpytorch
    import torch

    X, y = (torch.tensor(np.asarray(part), device=device) for part in (X, y))
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=D)).to(X)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(X)
    scales, variance, noise = (
        torch.tensor(np.exp(part)).to(X) for part in np.split(START, [D, D + 1])
    )
    kernel.base_kernel.lengthscale, kernel.outputscale, likelihood.noise = (
        scales,
        variance[0],
        noise,
    )
    raw = [kernel.base_kernel.raw_lengthscale, kernel.raw_outputscale, likelihood.raw_noise]
    slopes = [
        value / torch.sigmoid(part).detach().ravel()
        for value, part in zip((scales, variance, noise), raw)
    ]
    exact = gpytorch.settings.fast_computations(
        covar_root_decomposition=False, log_prob=False, solves=False
    )

    def run():
        for part in raw:
            part.grad = None
        with exact:
            prior = gpytorch.distributions.MultivariateNormal(torch.zeros_like(y), kernel(X))
            value = likelihood(prior).log_prob(y)
        value.backward()
        gradient = torch.cat([part.grad.ravel() * slope for part, slope in zip(raw, slopes)])
        return value.item(), gradient.cpu().numpy()

    return run
