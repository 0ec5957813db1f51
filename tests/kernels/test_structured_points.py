"""A string, a set, a tree and a mixed tuple through every learner, values and gradients: points
need not be vectors.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import DTYPE, needs_x64

import kernax

TEXTS = ["banana", "bandana", "ana", "cabana", "nab", "cab", "abba", "dab"]
PARSES = [
    "(S (A a) (B b))",
    "(S (A b) (B b))",
    "(S (A a) (S (A a) (B b)))",
    "(S (B a) (A b))",
    "(S (A a) (B a))",
    "(S (S (A a) (B b)) (B b))",
    "(S (A b) (A b))",
    "(S (B b) (B b))",
]
SETS = np.array([[int(bit) for bit in f"{i:05b}"] for i in (3, 7, 11, 14, 21, 24, 28, 30)], DTYPE)
VECTORS = np.random.default_rng(0).normal(size=(8, 2)).astype(DTYPE)
y = np.array([1.0, 1, 1, 1, -1, -1, -1, -1], DTYPE)
PARAMETER = jnp.asarray(0.6, DTYPE)


def strings():
    return kernax.strings.encode(TEXTS), lambda p: kernax.Normalised(kernax.Subsequence(2, p))


def sets():
    return SETS, lambda p: kernax.Normalised(kernax.kernels.AllSubsets(p))


def trees():
    return kernax.trees.encode(PARSES), lambda p: kernax.Normalised(kernax.SubsetTree(p))


def mixed():
    """A vector and a string, as a direct sum and as a tensor product."""
    points = (VECTORS, kernax.strings.encode(TEXTS))
    return (
        points,
        lambda p: (
            kernax.On(kernax.RBF(p), 0)
            + kernax.On(kernax.RBF(), 0) * kernax.On(kernax.Spectrum(1), 1)
        ),
    )


POINTS = {make.__name__: make for make in (strings, sets, trees, mixed)}


def ridge(kernel, X):
    return kernax.kernel_ridge(kernel, X, y, 0.5, throw=False).value


def logistic(kernel, X):
    return kernax.kernel_logistic(kernel, X, y, 0.5, throw=False).value


def machine(kernel, X):
    return kernax.svm(
        kernel, X, y, 1.0, solver=kernax.solvers.SMO(1e-12), throw=False
    ).value  # for the differences


def process(kernel, X):
    return kernax.condition(kernax.GaussianProcess(kernel), X, y, 0.3, throw=False).value.mean


def vectors(kernel, X):
    return kernax.import_vector_machine(kernel, X, y, 0.5, rtol=1e-2, throw=False).value.function


def relevance_vectors(kernel, X):
    return kernax.relevance_vector_machine(kernel, X, y, noise=0.3, throw=False).value


def components(kernel, X):
    f = kernax.kernel_pca(kernel, X, 2, throw=False).value.function
    return lambda x: f(x)[0] - 0.5 * f(x)[1]


def clusters(kernel, X):
    """Soft memberships, so warm that there is one fixed point."""
    key = jax.random.key(0)
    options = {"key": key, "temperature": 0.4, "max_steps": 5000, "throw": False}
    found = kernax.kernel_kmeans(kernel, X, 2, **options).value
    return lambda x: found.function(x)[0] + found.membership(x)[1]


def stream(kernel, X):
    """Steps of a gradient along the points, with room for five."""
    rule = kernax.online.StochasticGradient(kernax.losses.Logistic(), 0.1, 0.5)
    learner = kernax.online.DualLearner(rule, kernel, kernax.online.Merge(5))
    return kernax.online.run(learner, X, y, throw=False).value.function


def recursive(kernel, X):
    learner = kernax.online.KernelRecursiveLeastSquares(kernel, 0.5, 8)
    return kernax.online.run(learner, X, y, throw=False).value.function


def adaptive(kernel, X):
    """Coefficients with a rate each, of at most five points."""
    budget = kernax.online.RemoveOldest(5)
    learner = kernax.online.DualAdagrad(kernax.losses.Logistic(), kernel, budget, 0.5)
    return kernax.online.run(learner, X, y, throw=False).value.function


def _latent_mean(verb):
    """The mean of f given signs, whatever the approximation."""

    def learn(kernel, X):
        prior = kernax.GaussianProcess(kernel)
        posterior = verb(prior, X, y, kernax.likelihoods.Probit(), throw=False).value
        return posterior.process.mean

    return learn


LEARNERS = {
    learn.__name__: learn
    for learn in (
        *(ridge, logistic, machine, process, vectors, relevance_vectors),
        *(components, clusters, stream, recursive, adaptive),
    )
} | {
    verb.__name__: _latent_mean(verb)
    for verb in (kernax.laplace, kernax.expectation_propagation, kernax.variational)
}


QUICK = {("strings", "ridge"), ("mixed", "ridge")}  # the others take long to compile
# Kinds of points take turns: each is met by several learners, and each learner meets one.
KINDS = list(POINTS)
PAIRS = [(KINDS[place % len(KINDS)], learner) for place, learner in enumerate(LEARNERS)]
CASES = [
    pytest.param(kind, learner, marks=[] if (kind, learner) in QUICK else pytest.mark.nightly)
    for kind, learner in sorted({*PAIRS, *QUICK})
]


@pytest.mark.nightly
@needs_x64
@pytest.mark.parametrize(("kind", "learner"), CASES)
def test_every_learner_takes_any_points_and_is_differentiable(kind, learner):
    """Values against the same learner on the Gram matrix; the derivative of a sum of predictions in
    the kernel's parameter.
    """
    X, kernel = POINTS[kind]()
    learn = LEARNERS[learner]

    def total(parameter):
        values = jax.vmap(learn(kernel(parameter), X))(X)
        return jnp.sum(jnp.arange(1.0, 9.0) * values), values

    sloped = jax.jit(jax.value_and_grad(total, has_aux=True))
    (_, values), slope = sloped(PARAMETER)
    K = kernax.Precomputed(kernax.gram(kernel(PARAMETER), X))
    np.testing.assert_allclose(values, _of_gram(learner)(K), rtol=1e-6, atol=1e-6)
    h = 1e-5
    ahead, behind = (sloped(PARAMETER + step)[0][0] for step in (h, -h))
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-8)


def _of_gram(learner):
    def predict(K):
        rows = np.arange(8, dtype=np.int32)
        return jax.vmap(LEARNERS[learner](K, rows))(rows)

    return jax.jit(predict)


@pytest.mark.nightly
@needs_x64
def test_a_decay_is_learned_through_a_machine():
    """The whole way: strings, a support vector machine, a held-out loss, an optimiser."""
    X = kernax.strings.encode(TEXTS)
    weights = np.array([1.0, 1, 0, 1, 1, 0, 1, 1])

    def loss(kernel, X):
        f = kernax.svm(kernel, X, y, 1.0, weights=weights, throw=False).value
        return jnp.mean((1 - weights) * jax.nn.softplus(-y * jax.vmap(f)(X)))

    start = kernax.Normalised(kernax.Subsequence(2, 0.9))
    solution = kernax.minimise(loss, start, optax.adam(0.1), 5, args=(X,))
    assert solution.stats["loss"] < loss(start, X)


@pytest.mark.nightly
@needs_x64
@pytest.mark.parametrize("kind", POINTS)
def test_points_of_any_kind_are_herded_and_thinned(kind):
    """The choices and discrepancies of the Gram matrix, and the derivative in the kernel."""
    X, kernel = POINTS[kind]()
    rows = np.arange(8, dtype=np.int32)

    def both(kernel, X):
        herded = kernax.samples.herding(kernel, X, 3, throw=False).value
        return herded, kernax.samples.thin(kernel, X, 1, key=jax.random.key(0), throw=False).value

    chosen = jax.jit(lambda p: both(kernel(p), X))(PARAMETER)
    K = kernax.gram(kernel(PARAMETER), X)
    of_gram = jax.jit(both)(kernax.Precomputed(K), rows)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), chosen, of_gram)
    picked = chosen[1].indices
    np.testing.assert_allclose(
        kernax.gram(kernel(PARAMETER), chosen[1].of(X)), K[picked][:, picked], atol=1e-12
    )
    sloped = jax.jit(jax.value_and_grad(lambda p: both(kernel(p), X)[0].discrepancy))
    h = 1e-5
    ahead, behind = (sloped(PARAMETER + step)[0] for step in (h, -h))
    np.testing.assert_allclose(
        sloped(PARAMETER)[1], (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-8
    )
