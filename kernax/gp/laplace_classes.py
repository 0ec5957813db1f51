"""Laplace's approximation for several classes: one process for each class, and a softmax
likelihood.
"""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_point, cast, check_one_point
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.labels import as_one_hot_of_any_class
from kernax.core.base.numerics import matmul, stop_gradient
from kernax.core.base.parameters import data
from kernax.core.base.printing import Printed
from kernax.core.base.solution import Solution, void_unless_known
from kernax.core.base.weights import UnitWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.learner_problem import check_problem
from kernax.core.linalg.cholesky import rounding_of_entries
from kernax.core.linalg.density import factor_of, log_determinant, root_of_covariance
from kernax.core.linalg.solves import log_determinant_by_lu, solve_by_lu
from kernax.core.losses.observation_likelihoods import Categorical
from kernax.core.losses.quasi_random import NODES, checked_nodes, expectation_over_vectors
from kernax.core.losses.softmax_mode import softmax_fit
from kernax.core.losses.stationarity import values_at_points
from kernax.core.operators.memory import Footprint
from kernax.gp.approximation import status_of, system_of_precisions
from kernax.gp.means import means_at, updated_mean
from kernax.gp.posterior import AbstractConditioned, without_observations
from kernax.gp.process import GaussianProcess, as_process

_FOOTPRINT = Footprint("laplace of several classes", 9.5, of_each_column=3.45)


class IndependentClasses(AbstractKernel):
    """`k(x, z)` between points (x, c) and (z, c) of the same class, zero between others."""

    kernel: AbstractKernel

    def __call__(self, x, z):
        return jnp.where(x[1] == z[1], self.kernel(x[0], z[0]), 0)


class ClassPosteriorKernel(AbstractConditioned):
    """The covariance of the values of several classes, given labels.

    At points (x, c) and (z, d) it is `delta_cd (k(x, z) - k(x, X) W A_c k(X, z)) + k(x, X) A_c^T W
    G^-1 A_d k(X, z)`, where W holds the weights and G is the sum of all A_c.

    Attributes:
        prior: the kernel k of every class.
        points: X, a batch of n points.
        parts: A_c, (classes, n, n).
        weights: (n,).
        shared: `G^-1 A_d`, (classes, n, n).
    """

    prior: AbstractKernel = data()
    points: PyTree = data()
    parts: Float[Array, "c n n"] = data()
    weights: Float[Array, " n"] = data()
    shared: Float[Array, "c n n"] = data()

    def __call__(self, x, z):
        covariances = self.between(x[0], z[0])
        return entry_of(entry_of(covariances, x[1]), z[1])

    def between(self, x: PyTree, z: PyTree) -> Float[Array, "c c"]:
        """The covariances of all classes at x with all classes at z."""
        row_of_x = self._row(x)
        row_of_z = row_of_x if z is x else self._row(z)
        # k(x, z) - k(x, X) W A_c k(X, z), the part for values of the same class.
        own = self.prior(x, z) - matmul(matmul(self.parts, row_of_z), self.weights * row_of_x)
        # k(x, X) A_c^T W times G^-1 A_d k(X, z), for all pairs of classes c and d.
        left = matmul(self.parts, row_of_x) * self.weights[None]
        return jnp.diag(own) + matmul(left, matmul(self.shared, row_of_z).T)

    def _row(self, x: PyTree) -> Float[Array, " n"]:
        """k(X, x)."""
        return jax.vmap(lambda point: self.prior(point, x))(self.points)

    def without_observations(self):
        return IndependentClasses(without_observations(self.prior))

    def point(self, x):
        if not isinstance(x, tuple) or len(x) != 2:
            raise ValueError(
                "the process of several classes takes points (x, c), with c the index of a class: "
                "process.variance((x, 0)); posterior.probability(x) takes a point of X"
            )
        return self.point_of_prior(x[0]), x[1]

    def point_of_prior(self, x: PyTree) -> PyTree:
        """One point of X, checked, in the dtype of the posterior."""
        check_one_point(x, self.points)
        return cast(x, self.weights.dtype)


def entry_of(values: Float[Array, "c *rest"], index: ArrayLike) -> Float[Array, "*rest"]:
    """The entry of the class with that index; NaN where there is none."""
    index = jnp.asarray(index)
    known = (index >= 0) & (index < len(values)) & (index == jnp.round(index))
    return jnp.where(known, values[index.astype(int)], jnp.nan)


class ValueOfClass(eqx.Module):
    """The mean at (x, c), from a function of x with one output for each class."""

    of_all: Callable

    def __call__(self, x: PyTree) -> Float[Array, ""]:
        return entry_of(self.of_all(x[0]), x[1])


class CategoricalPosterior(Printed):
    """An approximate posterior of several classes: a process for each class, and their softmax.

    Its methods take one point; `jax.vmap(posterior.probability)(X)` takes a batch of points. They
    integrate over the values of all classes by quasi-random nodes (see `expectation_over_vectors`
    for the accuracy), and are differentiable.

    Attributes:
        process: the approximation of the posterior, a `GaussianProcess` over points (x, c), where c
            is the index of a class: `process.mean((x, 2))`.
        likelihood: `Categorical()`.
        log_evidence: the approximation of `log p(Y | X)`; maximise it to learn hyperparameters.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> Y, classes = kernax.one_hot(["low", "low", "middle", "high", "high"])
        >>> prior = kernax.GaussianProcess(4.0 * kernax.RBF(0.3))
        >>> posterior = kernax.laplace(prior, X, Y, kernax.likelihoods.Categorical()).value
        >>> probabilities = posterior.probability(jnp.array([0.9]))
        >>> classes[int(probabilities.argmax())]
        'high'
    """

    process: GaussianProcess
    likelihood: Categorical
    log_evidence: Float[Array, ""] = data()

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self._kernel().parts)

    @renamed(nodes="n_nodes")
    def probability(self, x: PyTree, *, n_nodes: int = NODES) -> Float[Array, " c"]:
        """The probability of each class at x; `n_nodes` is a power of two."""
        count = checked_nodes(n_nodes)
        kernel = self._kernel()
        return _probability(kernel, self._means(), kernel.point_of_prior(as_point(x)), count)

    def predict(self, x: PyTree) -> tuple[Float[Array, " c"], Float[Array, " c"]]:
        """The mean and the variance of each column of Y at x: p and p (1 - p)."""
        probability = self.probability(x)
        return probability, probability * (1 - probability)

    def log_density(self, x: PyTree, y: ArrayLike) -> Float[Array, ""]:
        """`log p(y | x)` of a row of Y, (classes,): the logarithm of the probability of its class.

        Raises ValueError for any other y, such as the index of a class.
        """
        row = jnp.asarray(y)
        if row.shape != (self.classes,):
            raise ValueError(
                f"y must be a row of Y, of shape ({self.classes},), 1 for its class and 0 "
                f"elsewhere, but has shape {row.shape}"
            )
        probability = self.probability(x)
        unit = UnitWeights(1, probability.dtype)
        row = as_one_hot_of_any_class(row[None], 1, probability.dtype, unit)[0]
        return jnp.log(jnp.sum(probability * row))

    def _kernel(self) -> ClassPosteriorKernel:
        assert isinstance(self.process.covariance, ClassPosteriorKernel)
        return self.process.covariance

    def _means(self) -> Callable:
        assert isinstance(self.process.mean, ValueOfClass)
        return self.process.mean.of_all


@compiled
def _probability(kernel, means, x, nodes):
    # E softmax(f) for f ~ N(means, root root^T); the covariance is symmetric except for rounding.
    covariance = kernel.between(x, x)
    root = root_of_covariance((covariance + covariance.T) / 2)
    return expectation_over_vectors(jax.nn.softmax, means(x), root, nodes)


def laplace_of_classes(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    Y: ArrayLike,
    likelihood: Categorical,
    weights: ArrayLike | None,
    rtol: ArrayLike | None,
    max_steps: ArrayLike,
    throw: bool,
) -> Solution[CategoricalPosterior]:
    """The approximation for one-hot targets. Raises ValueError as `laplace` does."""
    process = as_process(process)
    problem = check_problem(
        "laplace of several classes",
        process.covariance,
        X,
        Y,
        weights,
        targets=as_one_hot_of_any_class,
        throw=throw,
        footprint=_FOOTPRINT,
    )
    mean = cast(process.mean, problem.dtype)
    return _laplace_of_classes(problem, mean, likelihood, rtol, max_steps)


@compiled
def _laplace_of_classes(problem, mean, likelihood, rtol, max_steps):
    """The approximation, with its evidence and how Newton's method ended."""
    gram = problem.gram()
    weights = problem.weights.values
    offset = means_at(mean, problem)
    ridge = jnp.ones_like(weights[0])
    mode = softmax_fit(
        gram, problem.y, offset, ridge, weights, bias=False, rtol=rtol, max_steps=max_steps
    )
    a = mode.coefficients
    f = values_at_points(gram, a)
    # The A_c, `log |I + W K|` over all classes, and statistics of the factors.
    # The Hessian W is `diag(D) - diag(w) Pi Pi^T` with `D_c = w P_c`. With `T_c = I + D_c K`,
    # `A_c = P_c T_c^-T` and `G = sum_c A_c` the logarithm is the sum of those of the determinants
    # of the T_c and of G. With `E_c = diag(w) A_c`, which is symmetric, this is algorithm 3.3 of
    # Rasmussen & Williams 2006, without division by a weight and without roots of weights.

    def of_class(p: Float[Array, " n"]) -> tuple[Array, Array, dict[str, Array]]:
        # T_c = D_c K + I with D_c = w P_c.
        system = system_of_precisions(gram, weights * p)
        factor, _, figures = factor_of(system)
        # A_c = diag(P_c) T_c^-T.
        inverse = factor.inverse_of(system).as_matrix()
        return p[:, None] * inverse.T, log_determinant(system, factor), figures

    parts, determinants, figures = jax.vmap(of_class)(jax.nn.softmax(offset + f).T)
    G = jnp.sum(parts, 0)
    of_total = rounding_of_entries(partial(solve_by_lu, stop_gradient(G)), jnp.ones_like(weights))
    # The errors of the log |T_c| and of log |G| count as independent: squares add up.
    rounding = jnp.sqrt(jnp.sum(figures["rounding"] ** 2) + of_total**2)
    figures = {"jitter": jnp.max(figures["jitter"]), "rounding": rounding}
    # log |I + W K| = sum_c log |T_c| + log |G|, as G = I - sum_c A_c K diag(w P_c).
    determinant = jnp.sum(determinants) + log_determinant_by_lu(G)
    # log p(Y | X) is about -sum_i w_i L_i - sum_c a_c.K a_c / 2 - log |I + W K| / 2, f = K a.
    losses = jnp.sum(weights * likelihood(problem.y, offset + f))
    log_evidence = -losses - (jnp.sum(a * f) + determinant) / 2
    is_known = jnp.isfinite(figures["rounding"])  # otherwise no digit of the evidence is accurate
    known_evidence = jnp.where(is_known, log_evidence, jnp.nan)
    result = status_of(mode.result, known_evidence, figures["jitter"])
    log_evidence, a, parts = void_unless_known((log_evidence, a, parts), result)
    # G^-1 A_c for each class.
    classes, n, _ = parts.shape
    solved = solve_by_lu(jnp.sum(parts, 0), jnp.moveaxis(parts, 0, 1).reshape(n, classes * n))
    solved_by_sum = jnp.moveaxis(solved.reshape(n, classes, n), 1, 0)
    # The process over points (x, c).
    covariance = ClassPosteriorKernel(problem.kernel, problem.X, parts, weights, solved_by_sum)
    process = GaussianProcess(covariance, ValueOfClass(updated_mean(mean, problem, a)))
    stats = mode.stats | figures | {"log_evidence": log_evidence}
    return Solution(CategoricalPosterior(process, likelihood, log_evidence), result, stats)
