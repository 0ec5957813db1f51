"""Posteriors of parts of a process: of one term of a sum, and of the weights of explicit features.

Both are posteriors of quantities that are jointly normal with f(x): the values of a term, or a
weight. The kernel of the posterior process, with a joint prior of f and these quantities, gives
both, so no kind of posterior needs formulas of its own.
"""

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.boundary import cast, check_one_point, dtype_of
from kernax.core.base.compiled import compiled
from kernax.core.base.parameters import data
from kernax.core.base.printing import Printed
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel, Sum
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.operators.feature_map import FeatureMap
from kernax.gp.means import ShiftedMean
from kernax.gp.posterior import AbstractConditioned, AbstractPosterior, without_observations
from kernax.gp.process import GaussianProcess, check_process


class OfTerms(eqx.Module):
    """A point, or a batch of points, and the terms of the sum to evaluate there, together."""

    point: PyTree
    indices: tuple[int, ...] = eqx.field(static=True)


class JointTerms(AbstractKernel):
    """`sum_i k_i(x, z)` over the terms i of both points: the covariance of their values."""

    terms: tuple[AbstractKernel, ...] = data()

    def __call__(self, x, z):
        shared = [term for i, term in enumerate(self.terms) if i in x.indices and i in z.indices]
        if not shared:
            return jnp.zeros((), dtype_of(x.point, z.point))
        return Sum(*shared)(x.point, z.point)

    def explicit_features(self):
        # The features of all terms, zero for the terms that are not selected.
        parts = [term.explicit_features() for term in self.terms]
        if any(part is None for part in parts):
            return None

        def features(x: OfTerms) -> Array:
            of_terms = [part(x.point) for part in parts if part is not None]
            return jnp.concatenate([v if i in x.indices else 0 * v for i, v in enumerate(of_terms)])

        return features


class ComponentKernel(AbstractConditioned):
    """`k_S(x, z) - v_S(x).v_S(z)`: the covariance of the sum of some terms S of f, given values of
    f. Here `v_S(x) = L^-1 k_S(X, x)`, or its counterpart in other posteriors.

    Attributes:
        joint: the posterior covariance of all terms.
        indices: S.
    """

    joint: AbstractPosterior = data()
    indices: tuple[int, ...] = eqx.field(static=True, kw_only=True)

    def __call__(self, x, z):
        u = OfTerms(x, self.indices)
        return self.joint(u, u if z is x else OfTerms(z, self.indices))

    def without_observations(self):
        joint = self.joint.without_observations()
        assert isinstance(joint, JointTerms)
        return _sum_of_terms(joint.terms, self.indices)

    def point(self, x):
        check_one_point(x, self.joint.points.point)
        return cast(x, self.joint.dtype)

    def check_points(self, X):
        self.without_observations().check_points(X)

    def explicit_features(self):
        phi = self.joint.explicit_features()
        return None if phi is None else lambda x: phi(OfTerms(x, self.indices))


class ComponentUpdate(eqx.Module):
    """The update of the mean of some terms by later observations: `c(f_S(x), f(X)) a`."""

    update: KernelExpansion
    indices: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x: PyTree) -> Array:
        return self.update(OfTerms(x, self.indices))


def component(process: GaussianProcess, terms: int | Sequence[int]) -> GaussianProcess:
    """The posterior of one term f_i of `f = m + f_0 + f_1 + ...`, given observations of f.

    Where the prior covariance is a sum `k_0 + k_1 + ...`, f_i has the mean `k_i(x, X) a` and the
    covariance `k_i(x, z) - k_i(x, X) C^-1 k_i(X, z)`, `a = C^-1 (y - m(X))`, with the C of
    `condition` (Duvenaud 2014, section 2.4.5). The means of all terms and m add up to the mean of
    f. Their variances do not add up to the variance of f, because terms given their sum are
    correlated; `component(process, (0, 1))` is the posterior of the sum of two terms. m belongs to
    no term.

    Arguments:
        process: the process that `condition` returned (once or repeatedly), or the `process` of an
            `ApproximatePosterior`. Its prior covariance is a sum of kernels, scaled or not.
        terms: the index of a term in the sum, or several; negative ones count from the end.

    Returns a `GaussianProcess`: differentiable, with a mean, variances and samples.

    Raises ValueError for a process that was not conditioned, whose prior is not a sum, or whose
    mean was replaced, and for an index out of range.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0]) + 2.0 * X[:, 0]
        >>> prior = kernax.GaussianProcess(kernax.Linear() + kernax.RBF(0.3))
        >>> posterior = kernax.condition(prior, X, y, noise=0.01).value
        >>> trend, wiggle = kernax.component(posterior, 0), kernax.component(posterior, 1)
        >>> x = jnp.array([0.4])
        >>> bool(jnp.isclose(trend.mean(x) + wiggle.mean(x), posterior.mean(x)))
        True
    """
    check_process(process)
    updates = _updates(process, "component")
    prior = _prior_of(process.covariance)
    summands = prior.summands
    if summands is None:
        raise ValueError(
            "component needs a process whose prior is a sum of kernels, such as RBF() + Linear(), "
            f"but the prior is a {type(prior).__name__}"
        )
    count = len(summands)
    several: list[Any] = list(terms) if isinstance(terms, (tuple, list, range)) else [terms]
    if not several or not all(_is_index(i, count) for i in several):
        raise ValueError(
            f"terms must be the index of one of {count} terms, from 0 to {count - 1}, or several "
            f"indices, but is {terms!r}"
        )
    indices = tuple(sorted({int(i) % count for i in several}))
    everything = tuple(range(count))

    def joint(kernel: AbstractKernel) -> Any:
        return _with_prior(kernel, JointTerms(summands), lambda X: OfTerms(X, everything))

    first, *later = updates
    # E f_S(x) = k_S(x, X) a, a the coefficients of the mean of f. Later observations at X' add
    # c(f_S(x), f(X')) a', c the covariance before them.
    own = _without_bias(first, _sum_of_terms(summands, indices), first.points)
    for update in later:
        added = _without_bias(update, joint(update.kernel), OfTerms(update.points, everything))
        own = ShiftedMean(own, ComponentUpdate(added, indices))
    return GaussianProcess(ComponentKernel(joint(process.covariance), indices=indices), own)


class WeightSpace(Printed):
    """The distribution `N(mean, covariance)` of the weights w in `f(x) = m(x) + w.phi(x)` with D
    explicit features phi.

    Attributes:
        mean: (D,), or (D, outputs).
        covariance: (D, D).
        kernel: the prior covariance `phi(x).phi(z)`, under which w is N(0, I).

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> kernel = kernax.FeatureMap(lambda x: jnp.array([1.0, x[0]]))
        >>> prior = kernax.GaussianProcess(kernel)
        >>> posterior = kernax.condition(prior, X, 3.0 * X[:, 0], noise=0.01).value
        >>> weights = kernax.bases.weight_space(posterior)
        >>> weights.mean.shape, weights.covariance.shape
        ((2,), (2, 2))
    """

    mean: Float[Array, "D *outputs"] = data()
    covariance: Float[Array, "D D"] = data()
    kernel: AbstractKernel = data()

    def features(self, x: PyTree) -> Float[Array, " D"]:
        """phi(x), of one point."""
        phi = self.kernel.explicit_features()
        assert phi is not None
        return phi(x)


def weight_space(process: GaussianProcess) -> WeightSpace:
    """The posterior of the weights w of `f(x) = m(x) + w.phi(x)` with the prior w ~ N(0, I).

    Given targets y with noise of variance s, `covariance = (I + Phi^T Phi / s)^-1` and `mean =
    covariance Phi^T (y - m(X)) / s` (Bishop 2006, eqs. 3.53-3.54; Rasmussen & Williams 2006, eq.
    2.8). phi are the explicit features of the prior kernel, `.features(x)`. Those of
    `FeatureMap(phi) / alpha` are `phi / sqrt(alpha)`; dividing these weights by sqrt(alpha) gives
    the weights of phi itself, which have the prior precision alpha. With fewer features than
    points, `condition` and this function store D numbers for each point, and take O(n D^2).

    Raises ValueError for a process that was not conditioned, whose mean was replaced, or whose
    prior has no explicit features.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = 3.0 * X[:, 0]
        >>> kernel = kernax.FeatureMap(lambda x: jnp.array([1.0, x[0]]))  # f(x) = w_0 + w_1 x
        >>> posterior = kernax.condition(kernax.GaussianProcess(kernel), X, y, noise=0.01).value
        >>> weights = kernax.bases.weight_space(posterior)
        >>> jnp.round(weights.mean, 2)
        Array([0.02, 2.95], dtype=float64)
    """
    check_process(process)
    updates = _updates(process, "weight_space")
    prior = _prior_of(process.covariance)
    if prior.explicit_features() is None:
        raise ValueError(
            "weight_space needs a process whose prior has explicit features, such as "
            f"FeatureMap(phi), but {type(prior).__name__} has none; "
            "FeatureMap(jnp.asarray) is the kernel Linear() with explicit features"
        )
    mean, covariance = _weights(process.covariance, updates, prior)
    return WeightSpace(mean, covariance, prior)


@compiled
def _weights(covariance, updates, prior):
    """The mean and the covariance of the weights: values of a linear function at unit vectors."""
    phi: Any = prior.explicit_features()

    def linear(kernel):
        return _with_prior(kernel, FeatureMap(jnp.asarray), jax.vmap(phi))

    # w.u is a linear function of u = phi(x), whose prior covariance is u.v: w_i is its value at the
    # unit vector e_i.
    units = jnp.eye(
        jax.eval_shape(phi, points_at(covariance.points, 0)).shape[0], dtype=covariance.dtype
    )
    # S_ij = Cov(w_i, w_j), the posterior covariance at e_i and e_j.
    of_weights = linear(covariance)
    S = jax.vmap(lambda u: jax.vmap(lambda v: of_weights(u, v))(units))(units)
    # E w_i is the mean at e_i without m: a sum over all conditionings.
    parts = [
        _without_bias(update, linear(update.kernel), jax.vmap(phi)(update.points))
        for update in updates
    ]
    return sum(jax.vmap(part)(units) for part in parts), (S + S.T) / 2


def _prior_of(kernel: AbstractKernel) -> AbstractKernel:
    """The covariance before the first conditioning."""
    return _prior_of(kernel.prior) if isinstance(kernel, AbstractPosterior) else kernel


def _with_prior(
    kernel: AbstractKernel, prior: AbstractKernel, moved: Callable[[PyTree], PyTree]
) -> Any:
    """A posterior covariance with another prior, and its points mapped to its domain."""
    if not isinstance(kernel, AbstractPosterior):
        return prior
    inner = _with_prior(kernel.prior, prior, moved)
    return dataclasses.replace(kernel, prior=inner, points=moved(kernel.points))


def _updates(process: GaussianProcess, function_name: str) -> list[KernelExpansion]:
    """The update of the mean by each conditioning, the first one first.

    Raises ValueError for a process that was not conditioned, or whose mean is not that of
    `condition`.
    """
    covariance: AbstractKernel = process.covariance
    if not isinstance(covariance, AbstractPosterior):
        if without_observations(covariance) is covariance:
            raise ValueError(
                f"{function_name} needs a process that was conditioned, but this one is a prior: "
                "condition(process, X, y, noise).value"
            )
        raise ValueError(
            f"{function_name} cannot take the covariance {type(covariance).__name__} apart: pass "
            "the process that condition returned"
        )
    mean = process.mean
    found = []
    while isinstance(covariance, AbstractPosterior):
        # The update of the last conditioning.
        update = mean.update if isinstance(mean, ShiftedMean) else mean
        if not isinstance(update, KernelExpansion):
            raise ValueError(
                f"{function_name} needs a process with the mean that condition gave it, but its "
                f"mean is a {type(update).__name__}"
            )
        found.append(update)
        covariance = covariance.prior
        mean = mean.prior if isinstance(mean, ShiftedMean) else None
    return found[::-1]


def _without_bias(f: KernelExpansion, kernel: AbstractKernel, points: PyTree) -> KernelExpansion:
    """The expansion with the same coefficients in another kernel."""
    return KernelExpansion(kernel, points, f.coefficients, jnp.zeros_like(f.bias))


def _sum_of_terms(terms: Sequence[AbstractKernel], indices: tuple[int, ...]) -> AbstractKernel:
    return terms[indices[0]] if len(indices) == 1 else Sum(*(terms[index] for index in indices))


def _is_index(i: Any, count: int) -> bool:
    """Whether it is an integer that is the index of a term, from either end."""
    try:
        index = operator.index(i)
    except (TypeError, jax.errors.TracerIntegerConversionError):
        return False
    return not isinstance(i, bool) and index in range(-count, count)
