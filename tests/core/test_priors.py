"""Priors of parameters: densities against SciPy's, which parameters they are of, and what they are
in a loss and in an unconstrained density.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.integrate
import scipy.stats
from conftest import DTYPE, TOLERANCE, needs_x64, untyped

import kernax
from kernax.priors import (
    AbstractPrior,
    Beta,
    Gamma,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    LogNormal,
    Normal,
    log_prior,
)

DENSITIES = [
    (Normal(0.3, 2.0), scipy.stats.norm(0.3, 2.0)),
    (LogNormal(0.3, 0.7), scipy.stats.lognorm(0.7, scale=np.exp(0.3))),
    (Gamma(2.5, 3.0), scipy.stats.gamma(2.5, scale=1 / 3.0)),
    (InverseGamma(2.5, 3.0), scipy.stats.invgamma(2.5, scale=3.0)),
    (HalfNormal(0.6), scipy.stats.halfnorm(scale=0.6)),
    (HalfCauchy(0.6), scipy.stats.halfcauchy(scale=0.6)),
    (Beta(2.0, 0.5), scipy.stats.beta(2.0, 0.5)),
]
MODEL = kernax.Model(0.7 * kernax.RBF([0.5, 2.0]) + kernax.Matern32(3.0), ridge=0.1)


def test_densities_are_those_of_scipy_also_outside_the_support():
    values = np.array([-1.0, 0.01, 0.4, 0.9, 3.0], DTYPE)
    for prior, peer in DENSITIES:
        with np.errstate(divide="ignore"):
            expected = peer.logpdf(values.astype(float))
        np.testing.assert_allclose(
            prior.log_density(values), expected, rtol=50 * TOLERANCE["value"]
        )


@pytest.mark.slow
@needs_x64
def test_derivatives_are_finite_outside_the_support_as_well():
    """Catches `0 * inf` behind a `where`, which ends a sampler's trajectory in NaN."""
    for prior, _ in DENSITIES:
        slopes = jax.vmap(jax.grad(prior.log_density))(jnp.array([-1.0, 0.0, 0.4, 3.0]))
        assert np.all(np.isfinite(slopes)), prior


def test_a_prior_is_of_the_parameters_whose_paths_end_like_its_key():
    """The longest key that fits counts; elements of a vector are independent."""
    priors = {
        "lengthscale": LogNormal(0.0, 1.0),
        "kernel.terms[1].lengthscale": Gamma(2.0, 1.0),
        "ridge": HalfNormal(1.0),
    }
    of_scales, of_one, of_ridge = (
        scipy.stats.lognorm.logpdf([0.5, 2.0], 1.0).sum(),
        scipy.stats.gamma.logpdf(3.0, 2.0),
        scipy.stats.halfnorm.logpdf(0.1),
    )
    by_ends = log_prior(MODEL, priors)
    np.testing.assert_allclose(by_ends, of_scales + of_one + of_ridge, rtol=20 * TOLERANCE["value"])
    by_function = log_prior(
        MODEL, lambda path, value: LogNormal([0.0, 0.0], 1.0) if value.ndim else None
    )
    np.testing.assert_allclose(by_function, of_scales, rtol=20 * TOLERANCE["value"])


@pytest.mark.slow
@needs_x64
def test_the_unconstrained_density_holds_the_same_probability():
    """Of a positive and of a bounded parameter: integrated over the whole line it is that of the
    prior; without the Jacobian it would not be.
    """

    class Bounded(eqx.Module):
        share: jax.Array = kernax.fields.interval(0.0, 1.0)

    cases = [
        (kernax.RBF(1.0), "lengthscale", Gamma(2.5, 3.0), 0.8, scipy.stats.gamma(2.5, scale=1 / 3)),
        (Bounded(0.5), "share", Beta(2.0, 3.0), 0.3, scipy.stats.beta(2.0, 3.0)),
    ]
    for model, path, prior, most, peer in cases:
        theta, density = kernax.selection.unconstrained_density(
            log_prior, model, args=({path: prior},)
        )
        end = np.log(most) if path == "lengthscale" else np.log(most / (1 - most))
        line = np.linspace(end - 30, end, 4001)
        heights = jnp.exp(jax.vmap(density)({path: jnp.asarray(line)}))
        assert density(theta).shape == ()
        probability = scipy.integrate.simpson(heights, x=line)
        np.testing.assert_allclose(probability, peer.cdf(most), rtol=1e-9)  # 6e-11 measured


@pytest.mark.slow
@needs_x64
def test_minimise_finds_the_mode_and_priors_may_be_arguments_of_a_loss():
    """The mode of `Gamma(3, 2)` is 1, in natural units: no Jacobian belongs in a loss."""

    def loss(model, priors):
        return -log_prior(model, priors)

    priors = {"lengthscale": Gamma(3.0, 2.0)}
    solution = kernax.minimise(loss, kernax.RBF(2.5), optax.lbfgs(), 30, args=(priors,))
    np.testing.assert_allclose(solution.value.lengthscale, 1.0, rtol=1e-9)  # 2e-13 measured
    slope = jax.grad(lambda rate: log_prior(kernax.RBF(2.5), {"lengthscale": Gamma(3.0, rate)}))(
        2.0
    )
    np.testing.assert_allclose(slope, 3 / 2 - 2.5, rtol=1e-12)
    batch = jax.vmap(lambda scale: log_prior(kernax.RBF(scale), priors))(jnp.array([0.5, 1.0]))
    expected = scipy.stats.gamma.logpdf([0.5, 1.0], 3.0, scale=0.5)
    np.testing.assert_allclose(batch, expected, rtol=1e-12)


@needs_x64
def test_what_is_no_prior_of_a_parameter_is_refused_by_name():
    refused = [
        ({"lengthscales": LogNormal()}, r"'lengthscales'\] matches no parameter.*terms\[0\]"),
        ({"scale": LogNormal(), "cale": LogNormal()}, r"'cale'\] matches no parameter"),
        ({}, "has no prior for any parameter"),
        (lambda path, value: None, "has no prior for any parameter"),
        ([LogNormal()], "dictionary"),
        ({"ridge": 2.0}, "kernel.ridge|ridge must be one of kernax.priors"),
        ({"ridge": LogNormal}, "the class LogNormal"),
        ({"ridge": LogNormal([0.0, 1.0])}, r"LogNormal.mean.*shape \(\)"),
        ({"ridge": Beta()}, r"may be anywhere in .*Beta is a density"),
    ]
    for priors, words in refused:
        with pytest.raises(ValueError, match=words):
            untyped(log_prior)(MODEL, priors)
    with pytest.raises(ValueError, match="anywhere on the real line, but Gamma"):
        log_prior(kernax.ConstantMean(2.0), {"value": Gamma()})
    with pytest.raises(ValueError, match="scale is 0, but LogNormal"):
        log_prior(0.0 * kernax.RBF(), {"scale": LogNormal()})
    with pytest.raises(ValueError, match=r"Gamma.rate must be in \(0, inf\)"):
        Gamma(1.0, -1.0)


@needs_x64
def test_a_prior_of_ones_own_is_a_log_density():
    class Exponential(AbstractPrior):
        rate: jax.Array = kernax.fields.positive(default=1.0)
        support = kernax.priors.Gamma.support

        def log_density(self, value):
            return jnp.log(self.rate) - self.rate * value

    np.testing.assert_allclose(log_prior(MODEL, {"ridge": Exponential(2.0)}), np.log(2) - 0.2)
