"""Every learner, how it is called on a small problem, and what it promises: the one list that a new
learner joins. `tests/contract` holds each entry to its promises.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64

import kernax
from kernax.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Ordinal,
    Poisson,
)
from kernax.losses import EpsilonInsensitive, Huber, Squared

KEY = jax.random.key(0)
NEW = np.random.default_rng(1).normal(size=(4, 2)).astype(DTYPE)
SMO = kernax.solvers.SMO(rtol=1e-10 if X64 else 1e-5)
N = 10
SOLVED = {"solver": SMO}


class Problem(eqx.Module):
    """Points, targets and numbers. All that a learner depends on is an array, so that a batch of
    problems is one problem with a leading axis.
    """

    scale: Any  # the lengthscale of the kernel
    size: Any  # the factor before it
    X: Any
    y: Any
    labels: Any  # 0, 1 or 2: classes, and signs of which label 1 is the positive one
    weights: Any
    offset: Any  # the mean of the process
    Z: Any  # centres or inducing points
    strength: Any  # the ridge, noise, C, nu, temperature, ... of the learner
    target: str = eqx.field(static=True)

    @property
    def kernel(self):
        return kernax.kernels.Scaled(kernax.RBF(self.scale), self.size)

    @property
    def process(self):
        return kernax.GaussianProcess(self.kernel, kernax.ConstantMean(self.offset))

    @property
    def signs(self):
        return jnp.where(self.labels == 1, 1, -1).astype(self.y.dtype)

    @property
    def classes(self):
        return jax.nn.one_hot(self.labels, 3, dtype=self.y.dtype)

    @property
    def counts(self):
        return self.labels.astype(self.y.dtype)

    @property
    def levels(self):
        return self.labels.astype(self.y.dtype)

    @property
    def targets(self):
        return getattr(self, self.target)

    @property
    def present(self):
        return self.weights > 0


def problem(strength: float, target: str) -> Problem:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2)).astype(DTYPE)
    y = (np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=N)).astype(DTYPE)
    weights = rng.uniform(0.5, 1.5, size=N).astype(DTYPE)
    labels = np.arange(N) % 3
    number = partial(jnp.asarray, dtype=DTYPE)
    return Problem(
        scale=number(1.3),
        size=number(1.0),
        X=X,
        y=y,
        labels=labels,
        weights=weights,
        offset=number(0.2),
        Z=NEW[::-1] / 2,
        strength=number(strength),
        target=target,
    )


# What a learner learned, as numbers that do not depend on how its points are written down: of
# functions their values at new points.


def values(found, p):
    return found.value.values(NEW)


def function_values(found, p):
    return found.value.function.values(NEW)


def mean_and_variance(posterior):
    return jax.vmap(posterior.mean)(NEW), jax.vmap(posterior.variance)(NEW)


def regression(found, p):
    return mean_and_variance(found.value)


def latent(found, p):
    return (*mean_and_variance(found.value.process), found.value.log_evidence)


def itself(found, p):
    return found


def squares(residuals, p):
    """Of a residual for each row, or a column of them."""
    return jnp.sum(p.weights[:, None] * residuals.reshape(len(p.weights), -1) ** 2, 0)


# The same problem in other units, in which what was learned is known.


def kernel_and_ridge(p, c):
    return replace(p, size=c * p.size, strength=c * p.strength)


def kernel_and_penalty(p, c):
    """Of a penalty of the loss, which is one over a ridge."""
    return replace(p, size=c * p.size, strength=p.strength / c)


def kernel_alone(p, c):
    return replace(p, size=c * p.size)


def kernel_noise_and_targets(p, c):
    root = jnp.sqrt(c)
    return replace(
        p, size=c * p.size, strength=c * p.strength, y=root * p.y, offset=root * p.offset
    )


def unchanged(outputs, p, c):
    return outputs


def times(outputs, p, c):
    return jax.tree.map(lambda output: c * output, outputs)


def mean_times_root(outputs, p, c):
    mean, variance = outputs
    return jnp.sqrt(c) * mean, c * variance


def density_in_units(outputs, p, c):
    return outputs - jnp.sum(p.weights) * jnp.log(c) / 2


def no_numbers(s):
    return {}


def a_tolerance(s):
    return {"rtol": 1e-3 * s}


def a_solver(s):
    return {"solver": kernax.solvers.SMO(rtol=1e-3 * s)}


@dataclass(frozen=True)
class Learner:
    """An entry: a call, its outputs, and promises.

    Attributes:
        name: of the entry.
        fit: the call on a problem, with options such as `throw=False`.
        outputs: what was learned as numbers, of what the call returned and the problem.
        target: what the targets are, a property of the problem; "" where there are none.
        number: the argument that is the strength of the problem; "" where that is none.
        strength: the ridge, noise, C, ... of the small problem.
        kernel, points: whether the call has a kernel, and points beside its targets.
        learner: of a stream, in which points come one by one and weights are whether they come:
            what learns it, made of the problem.
        has_status: whether the call returns a `Solution`.
        weights: "repeat" where a weight of two is a repetition and one of zero a removal, "remove"
            where there is only the latter, "" where points have no weights.
        numbers: options that are numbers, or hold some, made of a float.
        order: of how many derivatives are right.
        at_zero: whether there is a derivative in a weight of zero: not where a set of points is
            chosen, which a point without a weight does not join.
        in_units: the problem with its kernel c times as large; None where nothing is known of it.
        of_units: what is learned then, of what is learned in the units of the problem.
        tolerance: of outputs computed in two ways, in float64.
        single: the same in float32.
        slope: of derivatives against differences.
        fixed: fields of the problem that have no derivative.
        takes: faults of a problem that this learner does not have or takes as they are.
        shards: the tier of its test over devices; "" where its loops and solvers are another's.
        tier: "quick", "slow" or "nightly": of the values.
        tier_of_slopes: of the derivatives.
    """

    name: str
    fit: Callable[..., Any]
    outputs: Callable[..., Any] = values
    target: str = "y"
    number: str = "ridge"
    kernel: bool = True
    points: bool = True
    learner: Callable[[Problem], Any] | None = None
    strength: float = 0.3
    has_status: bool = True
    weights: str = "repeat"
    numbers: Callable[[float], dict[str, Any]] = no_numbers
    order: int = 1
    at_zero: bool = True
    in_units: Callable[..., Problem] | None = kernel_and_ridge
    of_units: Callable[..., Any] = unchanged
    tolerance: float = 1e-8
    single: float = 2e-3
    slope: float = 1e-5
    fixed: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    shards: str = ""
    tier: str = "slow"
    tier_of_slopes: str = "slow"

    @property
    def problem(self) -> Problem:
        return problem(self.strength, self.target)

    @property
    def of_stream(self) -> bool:
        return self.learner is not None

    @property
    def close(self) -> float:
        """How close two ways to compute the outputs are, in the precision of this process."""
        return self.tolerance if X64 else self.single


def options_of(entry: Learner) -> dict[str, Any]:
    return {"throw": False} if entry.has_status else {}


def stacked(members) -> Problem:
    """Problems of one shape as a batch."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *members)


def cases(tier: str, of: Callable[[Learner], Any] = lambda entry: True) -> list:
    """Names of the learners of which something is true, each with the mark of its tier."""
    marks: dict[str, tuple] = {
        "quick": (),
        "slow": (pytest.mark.slow,),
        "nightly": (pytest.mark.nightly,),
    }
    return [
        pytest.param(entry.name, marks=marks[getattr(entry, tier)])
        for entry in ENTRIES
        if of(entry)
    ]


def of_kernel(function, **settings):
    """A function of a kernel, points, targets and a number."""

    def fit(p, **options):
        given = {"weights": p.weights} | settings | options
        return function(p.kernel, p.X, p.targets, p.strength, **given)

    return fit


def of_process(function, **settings):
    def fit(p, **options):
        given = {"weights": p.weights} | settings | options
        return function(p.process, p.X, p.targets, p.strength, **given)

    return fit


def of_likelihood(function, likelihood):
    def fit(p, **options):
        return function(p.process, p.X, p.targets, likelihood, weights=p.weights, **options)

    return fit


def laplace_of_ordered_classes(p, **options):
    """The strength is the distance between the two thresholds."""
    likelihood = Ordinal(-0.4, jnp.reshape(p.strength, (1,)), 0.8)
    return kernax.laplace(p.process, p.X, p.levels, likelihood, weights=p.weights, **options)


def kernel_ridge_in_features(p, **options):
    features = kernax.FeatureMap(kernax.bases.PolynomialBasis(2))
    return kernax.kernel_ridge(
        p.size * features, p.X, p.y, p.strength, weights=p.weights, **options
    )


def path(function, **settings):
    def fit(p, **options):
        ridges = p.strength * jnp.asarray([1.0, 3.0, 0.1], p.X.dtype)
        return function(p.kernel, p.X, p.y, ridges, weights=p.weights, **settings, **options)

    return fit


def regularised_risk(loss, **settings):
    """Of a loss with a parameter, which is a number of the problem."""

    def fit(p, **options):
        given = {"loss": loss(p.offset), "weights": p.weights} | settings | options
        return kernax.regularised_risk(p.kernel, p.X, p.y, p.strength, **given)

    return fit


def support_vector_regression(p, **options):
    return kernax.support_vector_regression(
        p.kernel, p.X, p.y, p.strength, 0.1, weights=p.weights, **SOLVED | options
    )


def nu_support_vector_regression(p, **options):
    return kernax.nu_support_vector_regression(
        p.kernel, p.X, p.y, p.strength, 0.4, weights=p.weights, **SOLVED | options
    )


def nu_svm(p, **options):
    return kernax.nu_svm(p.kernel, p.X, p.signs, p.strength, weights=p.weights, **SOLVED | options)


def one_class_svm(p, **options):
    return kernax.one_class_svm(p.kernel, p.X, p.strength, weights=p.weights, **SOLVED | options)


def kernel_perceptron(p, **options):
    return kernax.kernel_perceptron(p.kernel, p.X, p.signs, rate=p.strength, **options)


def relevance_vector_machine(p, **options):
    return kernax.relevance_vector_machine(
        p.kernel, p.X, p.y, noise=p.strength, weights=p.weights, **options
    )


def relevance_vector_machine_of(likelihood):
    def fit(p, **options):
        given = {"likelihood": likelihood, "weights": p.weights} | options
        return kernax.relevance_vector_machine(p.kernel, p.X, p.targets, **given)

    return fit


def values_and_evidence(found, p):
    return function_values(found, p), found.value.log_evidence


def import_vector_machine(p, **options):
    """Of all points, which ones come first says nothing."""
    given = {"rtol": 0.0, "max_vectors": len(p.y), "weights": p.weights} | options
    return kernax.import_vector_machine(p.kernel, p.X, p.targets, p.strength, **given)


def falkon(p, **options):
    return kernax.falkon(p.kernel, p.X, p.y, p.strength, p.Z, weights=p.weights, **options)


def lasso(p, **options):
    return kernax.lasso(p.X, p.y, p.strength, weights=p.weights, **SOLVED | options)


def kernel_pca(p, **options):
    return kernax.kernel_pca(p.kernel, p.X, 2, weights=p.weights, **options)


def components(found, p):
    return found.value.variances, found.value.function.values(NEW) ** 2


def kernel_cca(p, **options):
    Z = jnp.stack([p.y, p.X[:, 0] * p.y], 1)
    return kernax.kernel_cca(
        p.kernel, p.kernel, p.X, Z, 2, p.strength, weights=p.weights, **options
    )


def correlations(found, p):
    first, second = found.value.first, found.value.second
    return found.value.correlations, first.values(NEW) ** 2, second.values(NEW) ** 2


def discriminants(found, p):
    """The mean of a class without points is inf."""
    value = found.value
    means = jnp.where(jnp.isfinite(value.class_means), value.class_means, jnp.nan)
    return value.separations, value.function.values(NEW) ** 2, means**2


def kernel_kmeans(p, **options):
    return kernax.kernel_kmeans(
        p.kernel,
        p.X,
        2,
        key=KEY,
        temperature=p.strength,
        n_starts=2,
        max_steps=3000,
        weights=p.weights,
        **options,
    )


def means_of_clusters(found, p):
    """In no order."""
    return jnp.sum(found.value.function.values(NEW), -1)


def evidence(p):
    return kernax.log_marginal_likelihood(p.process, p.X, p.y, p.strength, weights=p.weights)


def sgpr(p, **options):
    return kernax.sgpr(p.process, p.X, p.y, p.strength, p.Z, weights=p.weights, **options)


def inducing(found, p):
    return mean_and_variance(found.value), found.stats["bound"]


def inducing_in_units(outputs, p, c):
    posterior, bound = outputs
    return mean_times_root(posterior, p, c), density_in_units(bound, p, c)


def sgpr_bound(p):
    return kernax.sgpr_bound(p.process, p.X, p.y, p.strength, p.Z, weights=p.weights)


def svgp_bound(p):
    q = kernax.types.InducingNormal.prior(len(p.Z))
    return kernax.svgp_bound(p.process, p.X, p.y, Gaussian(p.strength), p.Z, q, weights=p.weights)


def out_of_sample(found, p):
    return [squares(part, p) for part in jax.tree.leaves(found)]


def alignment(p):
    return kernax.selection.alignment(p.kernel, p.X, p.y, weights=p.weights)


def discrepancy(p):
    return kernax.samples.maximum_mean_discrepancy(p.kernel, p.X, p.Z)


def dependence(p):
    return kernax.samples.hsic(p.kernel, p.kernel, p.X, p.y[:, None])


def herding(p, **options):
    return kernax.samples.herding(p.kernel, p.X, 3, weights=p.weights, **options)


def subsample(found, p):
    """Its points, which are not known where no index is."""
    indices = found.value.indices
    points = jnp.where(indices[:, None] < 0, jnp.nan, p.X[indices])
    return points, found.value.discrepancy


def subsample_in_units(outputs, p, c):
    points, discrepancy = outputs
    return points, c * discrepancy


def log_normal(mean, x):
    return -jnp.sum((x - mean) ** 2) / 2


def density(p):
    return kernax.Custom(log_normal, jnp.asarray(p.offset, p.X.dtype))


def stein_discrepancy(p):
    return kernax.samples.stein_discrepancy(p.kernel, p.X, density(p), weights=p.weights)


def goodness_of_fit(p):
    return kernax.samples.goodness_of_fit_test(
        p.kernel, p.X, density(p), n_resamples=5, flip=p.strength, key=KEY
    )


def two_samples(p):
    return kernax.samples.two_sample_test(p.kernel, p.X, p.Z, n_permutations=5, key=KEY)


def two_variables(p):
    return kernax.samples.independence_test(
        p.kernel, p.kernel, p.X, p.y[:, None], n_permutations=5, key=KEY
    )


def statistics(found, p):
    """The p-value, a count, has no digits to compare: it is checked by being known."""
    return found.statistic, found.null, jnp.where(jnp.isnan(found.p_value), jnp.nan, 1)


def null_statistics(found, p):
    return statistics(found, p)[1:]


def statistics_times(power):
    def of_units(outputs, p, c):
        statistic, null, known = outputs
        return c**power * statistic, c**power * null, known

    return of_units


def thin(p, **options):
    return kernax.samples.thin(p.kernel, p.X, 1, key=KEY, delta=p.strength, **options)


def stein_thin(p, **options):
    return kernax.samples.stein_thin(p.kernel, p.X, density(p), 3, **options)


def eigenpairs(p):
    return kernax.bases.eigenpairs(p.kernel, p.X, 3)


def eigenvalues_and_functions(found, p):
    return found.values, jax.vmap(found.functions)(NEW) ** 2


def empirical_features(p):
    return kernax.bases.empirical_features(p.kernel, p.X)


def distances_in_features(found, p):
    """Of new points, which no rotation of the features changes."""
    features = found.values(NEW)
    return features @ features.T


def spectral_clustering(normalised):
    def fit(p, **options):
        return kernax.spectral_clustering(
            p.kernel,
            p.X,
            2,
            key=KEY,
            temperature=p.strength,
            n_starts=2,
            max_steps=3000,
            weights=p.weights,
            normalised=normalised,
            **options,
        )

    return fit


def eigenvectors_of_graph(found, p):
    """Up to their signs, and the means of soft clusters, in no order; of none they are inf. Without
    memberships nothing is known.
    """
    value = found.value
    known = jnp.where(jnp.isnan(jnp.sum(value.memberships)), jnp.nan, 1)
    means = jnp.sum(jnp.where(jnp.isfinite(value.means), value.means, jnp.nan) ** 2, 0)
    return known * jax.vmap(value.embed)(NEW) ** 2, means, known * value.values


def eigenvectors_over_degrees(outputs, p, c):
    """The sum of their squares, weighted by the degrees, is one."""
    squares, means, values = outputs
    return squares / c, means / c, values


def eigenvalues_in_units(outputs, p, c):
    squares, means, values = outputs
    return squares, means, c * values


def robust_regression(p, **options):
    likelihood = kernax.likelihoods.StudentT(p.strength, 0.1 * p.strength)
    return kernax.variational(p.process, p.X, p.y, likelihood, weights=p.weights, **options)


def growing_noise(p, **options):
    """The strength is the median of the variance of the noise."""
    mean = kernax.ConstantMean(jnp.log(p.strength))
    kernel = 0.3 * kernax.RBF(2 * p.scale)
    likelihood = HeteroscedasticGaussian(kernax.GaussianProcess(kernel, mean))
    return kernax.variational(p.process, p.X, p.y, likelihood, weights=p.weights, **options)


def two_functions(found, p):
    posterior = found.value
    of_f, of_g = map(mean_and_variance, (posterior.process, posterior.log_noise))
    return *of_f, *of_g, posterior.log_evidence


def two_functions_in_units(outputs, p, c):
    *of_f, mean, variance, evidence = outputs
    of_units = mean_times_root(of_f, p, c)
    return *of_units, mean + jnp.log(c), variance, density_in_units(evidence, p, c)


def head(kind, **settings):
    """The values of a head of a network at query points, in which they have derivatives too."""

    def fit(p):
        return kind(p.kernel, p.strength, **settings)(p.X, p.targets, p.Z, weights=p.weights)

    return fit


def standardised_ridge(p):
    def fit(X, y, weights):
        given = {"weights": weights, "throw": False}
        return kernax.kernel_ridge(p.kernel, X, y, p.strength, **given).value

    return kernax.preparation.standardised_fit(fit, p.X, p.y, p.weights)


def platt(p, **options):
    return kernax.calibration.platt(p.y, p.signs, weights=p.weights, **options)


def probabilities(found, p):
    return found.value(NEW[:, 0])


def isotonic(p):
    return kernax.calibration.isotonic(p.y, p.signs, weights=p.weights)


def steps(found, p):
    return found(NEW[:, 0])


def stream(learner):
    """A learner of a stream, in which a point of weight zero is not present."""

    def fit(p, **options):
        return kernax.online.run(learner(p), p.X, p.targets, present=p.present, **options)

    return fit


def of_stream(name, learner, **promises):
    return Learner(
        name,
        stream(learner),
        progress,
        number="",
        weights="remove",
        in_units=None,
        learner=learner,
        **promises,
    )


def progress(found, p):
    seen = jnp.sum(jnp.where(p.present, found.value.losses, 0))
    return found.value.function.values(NEW), seen


def of_gradients(p):
    return kernax.online.StochasticGradient(Huber(0.5), 0.1, p.strength)


def dual_learner(p, budget, **settings):
    return kernax.online.DualLearner(of_gradients(p), p.kernel, budget, **settings)


LINEAR = kernax.FeatureMap(kernax.bases.PolynomialBasis(1))
# A call on points alone, which have no weights.
of_points = partial(Learner, target="", weights="", in_units=kernel_alone)
of_head = partial(Learner, outputs=itself, has_status=False, slope=1e-6)

ENTRIES = [
    Learner("kernel_ridge", of_kernel(kernax.kernel_ridge), order=2, tier="quick", shards="slow"),
    Learner("kernel_ridge with a bias", of_kernel(kernax.kernel_ridge, bias=True), order=2),
    Learner(
        "kernel_ridge in blocks",
        of_kernel(
            kernax.kernel_ridge,
            bias=True,
            block_size=4,
            solver=kernax.solvers.ConjugateGradient(rtol=1e-13 if X64 else 1e-5),
        ),
        shards="nightly",
        tier_of_slopes="nightly",
    ),
    Learner(
        "kernel_ridge in features",
        kernel_ridge_in_features,
        kernel=False,
        takes=("points that are a vector",),
        order=2,
        in_units=None,
        shards="nightly",
    ),
    Learner(
        "leave_one_out",
        of_kernel(kernax.leave_one_out),
        squares,
        has_status=False,
        weights="remove",
        order=2,
    ),
    Learner(
        "generalised_cross_validation",
        of_kernel(kernax.selection.generalised_cross_validation),
        itself,
        has_status=False,
        order=2,
    ),
    Learner(
        "ridge_path",
        path(kernax.selection.ridge_path, bias=True),
        number="ridges",
        order=2,
        takes=("a number for each point",),
    ),
    Learner(
        "leave_one_out_path",
        path(kernax.selection.leave_one_out_path),
        squares,
        number="ridges",
        takes=("a number for each point",),
        has_status=False,
        weights="remove",
    ),
    Learner(
        "recursive_feature_machine",
        of_kernel(kernax.recursive_feature_machine, max_rounds=3, rtol=0.0),
        weights="remove",
    ),
    Learner(
        "kernel_logistic",
        of_kernel(kernax.kernel_logistic),
        target="signs",
        order=2,
        numbers=a_tolerance,
        shards="slow",
        tier_of_slopes="nightly",
    ),
    Learner(
        "kernel_softmax",
        of_kernel(kernax.kernel_softmax),
        target="classes",
        order=2,
        numbers=a_tolerance,
        tier_of_slopes="nightly",
    ),
    Learner(
        "svm",
        of_kernel(kernax.svm, solver=SMO),
        target="signs",
        number="C",
        strength=1.0,
        order=2,
        in_units=kernel_and_penalty,
        numbers=a_solver,
        shards="slow",
        tier_of_slopes="nightly",
    ),
    Learner(
        "support_vector_regression",
        support_vector_regression,
        number="C",
        strength=1.0,
        order=2,
        in_units=kernel_and_penalty,
        numbers=a_solver,
        shards="nightly",
    ),
    Learner(
        "nu_svm",
        nu_svm,
        target="signs",
        number="nu",
        order=2,
        in_units=kernel_alone,
        numbers=a_solver,
        shards="nightly",
        tier_of_slopes="nightly",
    ),
    Learner(
        "nu_support_vector_regression",
        nu_support_vector_regression,
        number="C",
        strength=0.05,
        order=2,
        in_units=kernel_and_penalty,
        numbers=a_solver,
        shards="nightly",
        tier_of_slopes="nightly",
    ),
    Learner(
        "one_class_svm",
        one_class_svm,
        target="",
        number="nu",
        order=2,
        in_units=kernel_alone,
        of_units=times,
        numbers=a_solver,
    ),
    Learner(
        "regularised_risk of Huber's loss",
        regularised_risk(Huber, bias=True),
        order=2,
        numbers=lambda s: {"loss": Huber(s), "rtol": 1e-3 * s},
    ),
    Learner(
        "regularised_risk of a piecewise linear loss",
        regularised_risk(EpsilonInsensitive, solver=SMO),
        order=2,
        numbers=lambda s: {"loss": EpsilonInsensitive(0.1 * s), **a_solver(s)},
    ),
    Learner(
        "lasso",
        lasso,
        lambda found, p: found.value,
        number="penalty",
        kernel=False,
        strength=0.05,
        in_units=None,
        takes=("points that are a vector",),
        numbers=a_solver,
    ),
    Learner(
        "kernel_perceptron",
        kernel_perceptron,
        target="signs",
        number="rate",
        weights="",
        order=0,
        in_units=None,
        numbers=lambda s: {"threshold": 0.1 * s},
    ),
    Learner(
        "relevance_vector_machine",
        relevance_vector_machine,
        function_values,
        number="noise",
        tolerance=1e-7,
        in_units=kernel_alone,
        numbers=lambda s: {"solver": kernax.solvers.SequentialEvidence(atol=1e-3 * s)},
        at_zero=False,
        tier="nightly",
        tier_of_slopes="nightly",
    ),
    *(
        Learner(
            f"relevance_vector_machine of {target}",
            relevance_vector_machine_of(likelihood),
            values_and_evidence,
            target=target,
            number="",
            tolerance=1e-6,
            fixed=("strength",),
            in_units=kernel_alone,
            at_zero=False,
            tier="nightly",
            tier_of_slopes="nightly",
        )
        for target, likelihood in (("signs", Bernoulli()), ("classes", Categorical()))
    ),
    Learner(
        "import_vector_machine",
        import_vector_machine,
        function_values,
        target="signs",
        order=2,
        tolerance=1e-7,
        numbers=lambda s: {"rtol": 1e-2 * s, "max_vectors": 5},
        shards="nightly",
        at_zero=False,
        tier="nightly",
        tier_of_slopes="nightly",
    ),
    Learner(
        "import_vector_machine of classes",
        import_vector_machine,
        function_values,
        target="classes",
        tolerance=1e-7,
        numbers=lambda s: {"rtol": 1e-2 * s, "max_vectors": 5},
        at_zero=False,
        tier="nightly",
        tier_of_slopes="nightly",
    ),
    Learner("falkon", falkon, numbers=a_tolerance, shards="slow", tier_of_slopes="nightly"),
    Learner(
        "condition",
        of_process(kernax.condition),
        regression,
        number="noise",
        order=2,
        in_units=kernel_noise_and_targets,
        of_units=mean_times_root,
        shards="slow",
    ),
    Learner(
        "log_marginal_likelihood",
        evidence,
        itself,
        number="noise",
        has_status=False,
        order=2,
        in_units=kernel_noise_and_targets,
        of_units=density_in_units,
        shards="slow",
    ),
    Learner(
        "leave_one_out_predictions",
        of_process(kernax.leave_one_out_predictions),
        out_of_sample,
        number="noise",
        has_status=False,
        weights="remove",
        in_units=None,
    ),
    Learner(
        "laplace",
        of_likelihood(kernax.laplace, Bernoulli()),
        latent,
        target="signs",
        number="",
        order=2,
        in_units=None,
        fixed=("strength",),
        takes=("one class",),
        numbers=a_tolerance,
        shards="slow",
        tier_of_slopes="nightly",
    ),
    Learner(
        "laplace of several classes",
        of_likelihood(kernax.laplace, Categorical()),
        target="classes",
        number="",
        outputs=lambda found, p: found.value.log_evidence,
        order=2,
        in_units=None,
        fixed=("strength",),
        takes=("one class",),
        numbers=a_tolerance,
        tier_of_slopes="nightly",
    ),
    Learner(
        "laplace of ordered classes",
        laplace_of_ordered_classes,
        latent,
        target="levels",
        number="",
        order=2,
        in_units=None,
        numbers=a_tolerance,
        tier_of_slopes="nightly",
    ),
    Learner(
        "expectation_propagation",
        of_likelihood(kernax.expectation_propagation, kernax.likelihoods.Probit()),
        latent,
        target="signs",
        number="",
        weights="remove",
        order=2,
        in_units=None,
        fixed=("strength",),
        takes=("one class",),
        numbers=a_tolerance,
        tier="nightly",
        tier_of_slopes="nightly",
    ),
    Learner(
        "variational",
        of_likelihood(kernax.variational, Poisson()),
        latent,
        target="counts",
        number="",
        order=2,
        in_units=None,
        fixed=("strength",),
        numbers=a_tolerance,
        tier="nightly",
        tier_of_slopes="nightly",
    ),
    Learner(
        "variational of Student's t",
        robust_regression,
        latent,
        number="degrees",
        strength=3.0,
        order=2,
        in_units=None,
        takes=("a number for each point",),
        numbers=a_tolerance,
        tier="nightly",
        tier_of_slopes="nightly",
    ),
    Learner(
        "variational of growing noise",
        growing_noise,
        two_functions,
        number="",
        order=2,
        in_units=kernel_noise_and_targets,
        of_units=two_functions_in_units,
        numbers=a_tolerance,
        tier="nightly",
        tier_of_slopes="nightly",
    ),
    Learner(
        "sgpr",
        sgpr,
        inducing,
        number="noise",
        order=2,
        in_units=kernel_noise_and_targets,
        of_units=inducing_in_units,
        tier_of_slopes="nightly",
    ),
    Learner(
        "sgpr_bound",
        sgpr_bound,
        itself,
        number="noise",
        has_status=False,
        order=2,
        in_units=kernel_noise_and_targets,
        of_units=density_in_units,
    ),
    Learner("svgp_bound", svgp_bound, itself, number="", has_status=False, in_units=None),
    Learner(
        "kernel_pca", kernel_pca, components, target="", number="", in_units=None, shards="nightly"
    ),
    Learner(
        "kernel_cca",
        kernel_cca,
        correlations,
        target="",
        takes=("points that are a vector",),
        tier_of_slopes="nightly",
    ),
    Learner(
        "kernel_discriminant",
        of_kernel(kernax.kernel_discriminant),
        discriminants,
        target="classes",
    ),
    Learner(
        "kernel_kmeans",
        kernel_kmeans,
        means_of_clusters,
        target="",
        number="temperature",
        strength=0.1,
        tolerance=1e-7,
        of_units=times,
        tier_of_slopes="nightly",
    ),
    Learner("alignment", alignment, itself, number="", has_status=False, in_units=kernel_alone),
    Learner(
        "maximum_mean_discrepancy",
        discrepancy,
        itself,
        target="",
        number="",
        has_status=False,
        weights="",
        in_units=kernel_alone,
        of_units=times,
        takes=("points that are a vector",),
    ),
    Learner(
        "hsic",
        dependence,
        itself,
        target="",
        number="",
        has_status=False,
        weights="",
        in_units=kernel_alone,
        of_units=lambda outputs, p, c: c * c * outputs,
    ),
    Learner(
        "herding",
        herding,
        subsample,
        target="",
        number="",
        in_units=kernel_alone,
        of_units=subsample_in_units,
        at_zero=False,
    ),
    Learner(
        "stein_discrepancy",
        stein_discrepancy,
        itself,
        target="",
        number="",
        has_status=False,
        in_units=kernel_alone,
        of_units=times,
    ),
    of_points(
        "goodness_of_fit_test",
        goodness_of_fit,
        null_statistics,
        number="flip",
        has_status=False,
        of_units=lambda outputs, p, c: (c * outputs[0], outputs[1]),
    ),
    of_points(
        "two_sample_test",
        two_samples,
        statistics,
        number="",
        has_status=False,
        of_units=statistics_times(1),
        takes=("points that are a vector",),
    ),
    of_points(
        "independence_test",
        two_variables,
        statistics,
        number="",
        has_status=False,
        of_units=statistics_times(2),
    ),
    of_points(
        "thin",
        thin,
        subsample,
        number="delta",
        of_units=subsample_in_units,
    ),
    of_points(
        "stein_thin",
        stein_thin,
        subsample,
        number="",
        of_units=subsample_in_units,
    ),
    of_points(
        "eigenpairs",
        eigenpairs,
        eigenvalues_and_functions,
        number="",
        has_status=False,
        of_units=lambda outputs, p, c: (c * outputs[0], outputs[1]),
    ),
    of_points(
        "empirical_features",
        empirical_features,
        distances_in_features,
        number="",
        has_status=False,
        of_units=times,
    ),
    Learner(
        "spectral_clustering",
        spectral_clustering(normalised=True),
        eigenvectors_of_graph,
        target="",
        number="temperature",
        strength=0.1,
        tolerance=1e-7,
        in_units=kernel_alone,
        of_units=eigenvectors_over_degrees,
        tier_of_slopes="nightly",
    ),
    Learner(
        "spectral_clustering of the trace",
        spectral_clustering(normalised=False),
        eigenvectors_of_graph,
        target="",
        number="temperature",
        strength=0.1,
        tolerance=1e-7,
        in_units=kernel_alone,
        of_units=eigenvalues_in_units,
        tier_of_slopes="nightly",
    ),
    Learner(
        "standardised ridge",
        standardised_ridge,
        lambda found, p: found.values(NEW),
        has_status=False,
        slope=1e-6,
        takes=("points that are not finite", "targets that are not finite"),
    ),
    of_head("ridge head", head(kernax.nn.RidgeHead, bias=True)),
    of_head("logistic head", head(kernax.nn.LogisticHead), target="classes"),
    of_head(
        "SVM head",
        head(kernax.nn.SVMHead, solver=SMO),
        target="classes",
        number="C",
        strength=0.7,
        in_units=kernel_and_penalty,
    ),
    of_head(
        "process head",
        head(kernax.nn.ProcessHead),
        number="noise",
        in_units=kernel_noise_and_targets,
        of_units=mean_times_root,
    ),
    Learner(
        "platt",
        platt,
        probabilities,
        target="signs",
        number="",
        kernel=False,
        points=False,
        in_units=None,
    ),
    Learner(
        "isotonic",
        isotonic,
        steps,
        target="signs",
        number="",
        kernel=False,
        points=False,
        has_status=False,
        order=0,
        in_units=None,
    ),
    of_stream("stream that merges", lambda p: dual_learner(p, kernax.online.Merge(4))),
    of_stream(
        "stream that projects",
        lambda p: dual_learner(p, kernax.online.Project(4, 0.2), averaging=0),
        shards="slow",
    ),
    of_stream(
        "stream in features",
        lambda p: kernax.online.PrimalLearner(of_gradients(p), p.size * LINEAR),
        kernel=False,
        takes=("points that are a vector",),
    ),
    of_stream(
        "recursive least squares",
        lambda p: kernax.online.KernelRecursiveLeastSquares(p.kernel, p.strength, N),
    ),
    of_stream(
        "Adagrad",
        lambda p: kernax.online.Adagrad(Squared(), LINEAR, p.strength),
        kernel=False,
        takes=("points that are a vector",),
    ),
    of_stream(
        "sparse gradient",
        lambda p: kernax.online.SparseGradient(of_gradients(p), LINEAR, 0.01),
        kernel=False,
        takes=("points that are a vector",),
    ),
    of_stream(
        "stream without the oldest", lambda p: dual_learner(p, kernax.online.RemoveOldest(4))
    ),
    of_stream(
        "dual Adagrad",
        lambda p: kernax.online.DualAdagrad(Squared(), p.kernel, kernax.online.Merge(4)),
    ),
    of_stream(
        "Winnow in bumps",
        lambda p: kernax.online.Winnow(p.strength, features=kernax.bases.GaussianBasis(p.Z)),
        target="signs",
        strength=3.0,
        kernel=False,
        takes=("points that are a vector", "one class"),
    ),
    of_stream(
        "balanced Winnow",
        lambda p: kernax.online.BalancedWinnow(p.strength, 0.01 * p.strength),
        target="signs",
        strength=3.0,
        kernel=False,
        takes=("points that are a vector", "one class"),
    ),
    of_stream(
        "exponentiated gradient",
        lambda p: kernax.online.ExponentiatedGradient(
            rate=p.strength, total=5 * p.strength, balanced=True
        ),
        kernel=False,
        takes=("points that are a vector",),
    ),
    of_stream(
        "Winnow",
        lambda p: kernax.online.NormalisedWinnow(p.strength, balanced=True),
        target="signs",
        kernel=False,
        takes=("points that are a vector", "one class"),
    ),
]
LEARNERS = {entry.name: entry for entry in ENTRIES}
