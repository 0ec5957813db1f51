"""A string, a set, a tree and a mixed tuple through learners of the registry, values and gradients:
points need not be vectors.
"""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import registry
from conftest import DTYPE, needs_x64
from registry import LEARNERS, Problem, options_of

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


class Structured(Problem):
    """A problem of the registry on points of another kind, with a kernel of one parameter."""

    make: Callable = eqx.field(static=True)

    @property
    def kernel(self):
        return self.make(self.scale)


# Kinds of points take turns: each is met by several learners, and each learner meets one.
NAMES = (
    "kernel_ridge",
    "kernel_logistic",
    "svm",
    "condition",
    "import_vector_machine",
    "relevance_vector_machine",
    "kernel_pca",
    "kernel_kmeans",
    "stream that merges",
    "recursive least squares",
    "dual Adagrad",
    "laplace",
    "expectation_propagation",
    "variational",
)
CASES = [(list(POINTS)[place % len(POINTS)], name) for place, name in enumerate(NAMES)]


@pytest.mark.nightly
@needs_x64
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_learners_take_any_points_and_are_differentiable(kind, name, monkeypatch):
    """Values against the same learner on the Gram matrix; the derivative in the kernel's parameter
    against differences.
    """
    X, kernel = POINTS[kind]()
    entry = LEARNERS[name]
    temperature = name == "kernel_kmeans"  # so warm that there is one fixed point
    fields = vars(entry.problem) | {
        "scale": PARAMETER,
        "X": X,
        "y": y,
        "labels": (y > 0).astype(int),
        "weights": np.ones(8),
        "strength": jnp.asarray(0.4 if temperature else entry.strength),
    }
    p = Structured(**fields, make=kernel)

    def outputs(p):
        monkeypatch.setattr(registry, "NEW", p.X)
        return entry.outputs(entry.fit(p, **options_of(entry)), p)

    def total(parameter):
        found = outputs(replace(p, scale=parameter))
        return sum(jnp.sum(jnp.sin(output)) for output in jax.tree.leaves(found)), found

    sloped = jax.jit(jax.value_and_grad(total, has_aux=True))
    (_, found), slope = sloped(PARAMETER)
    K = kernax.Precomputed(kernax.gram(kernel(PARAMETER), X))
    of_gram = replace(p, X=np.arange(8, dtype=np.int32), make=lambda _: K)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(outputs(of_gram)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    h = 1e-5
    ahead, behind = (sloped(PARAMETER + step)[0][0] for step in (h, -h))
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-8)


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
