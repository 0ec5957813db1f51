"""Rows about matrices and what is made of them: Gram matrices of vectors, strings and trees,
values of expansions, samples, eigenfunctions, random features.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.against.rows import (
    Row,
    fitted,
    in_precision,
    known,
    numbers,
    points,
    public,
    regression,
)
from benchmarks.harness import Program


def gram(kernax, n, d):
    return Program(lambda X: kernax.gram(kernax.RBF(d**0.5), X), points(n, d))


def gram_of_two(kernax, n):
    kernel = kernax.Matern52(2.0)
    return Program(lambda X, Z: kernax.gram(kernel, X, Z), points(n, 5), points(n, 5, seed=1))


def gram_gradient(kernax, n):
    total = lambda scale, X: jnp.sum(kernax.gram(kernax.RBF(scale), X) ** 2)
    scale = in_precision(np.linspace(1.0, 2.0, 5))
    return Program(jax.grad(total, argnums=(0, 1)), scale, points(n, 5))


def product(kernax, n):
    def multiply(X, v):
        return kernax.gram_operator(kernax.RBF(2.0), X, ridge=0.1, block_size=256).mv(v)

    X, v = regression(n)
    return Program(multiply, X, v)


def rectangular_product(kernax, n):
    def multiply(X, Z, v):
        return kernax.gram_operator(kernax.RBF(2.0), Z, Z=X, block_size=256).mv(v)

    X, v = regression(n)
    return Program(multiply, X, points(n // 2, 5, seed=1), v)


def values(kernax, n):
    def predict(X, coefficients, Z):
        f = kernax.KernelExpansion(kernax.RBF(2.0), X, coefficients, numbers(0.5)[0])
        return f.values(Z)

    return Program(predict, *regression(n), points(10 * n, 5, seed=1))


def values_by_vmap(kernax, n):
    def predict(X, coefficients, Z):
        f = kernax.KernelExpansion(kernax.RBF(2.0), X, coefficients, numbers(0.5)[0])
        return jax.vmap(f)(Z)

    return Program(predict, *regression(n), points(n, 5, seed=1))


def values_in_blocks(kernax, n):
    def predict(X, coefficients, Z):
        return kernax.gram(kernax.RBF(2.0), Z, X, block_size=256) @ coefficients

    return Program(predict, *regression(n), points(10 * n, 5, seed=1))


def discrepancy(kernax, n):
    of = public(kernax, "samples.maximum_mean_discrepancy")
    return Program(lambda X, Z: of(kernax.RBF(2.0), X, Z), points(n, 5), points(n, 5, 1) + 0.1)


def two_sample_test(kernax, n):
    test = public(kernax, "samples.two_sample_test")

    def run(X, Z):
        found = test(kernax.RBF(2.0), X, Z, key=jax.random.key(0))
        return found.statistic, found.p_value, found.null

    return Program(run, points(n, 5), points(n, 5, 1) + 0.1)


def dependence(kernax, n):
    hsic = public(kernax, "samples.hsic")
    X, y = regression(n)
    return Program(lambda X, y: hsic(kernax.RBF(2.0), kernax.RBF(1.0), X, y), X, y[:, None])


def independence_test(kernax, n):
    test = public(kernax, "samples.independence_test")

    def run(X, y):
        kernels = kernax.RBF(2.0), kernax.RBF(1.0)
        found = test(*kernels, X, y, permutations=100, key=jax.random.key(0))
        return found.statistic, found.p_value, found.null

    X, y = regression(n)
    return Program(run, X, y[:, None])


def eigenpairs(kernax, n):
    def run(X):
        eigenpairs = public(kernax, "bases.eigenpairs")
        eigenvalues, functions = eigenpairs(kernax.RBF(2.0), X, 10)
        return eigenvalues, jax.vmap(functions)(X) ** 2  # their signs are anyone's

    return Program(run, points(n, 5))


def dna(n, length):
    rng = np.random.default_rng(0)
    return ["".join(rng.choice(list("ACGT"), length)) for _ in range(n)]


def strings_by_counts(kernax, n, kernel, k):
    X = kernax.strings.encode(dna(n, 100), "ACGT")
    return Program(lambda X: kernax.gram(getattr(kernax, kernel)(k), X), X)


def strings_by_subsequences(kernax, n):
    X = kernax.strings.encode(dna(n, 57), "ACGT")
    return Program(lambda X: kernax.gram(kernax.Normalised(kernax.Subsequence(4, 0.6)), X), X)


def sentence(rng, depth=4):
    """A random parse tree: a letter with one or two children, words at the ends."""
    if depth == 0:
        return str(rng.choice(list("abcd")))
    children = [sentence(rng, depth - 1) for _ in range(rng.integers(1, 3))]
    return (str(rng.choice(list("STUV"))), *children)


def trees(kernax, n):
    rng = np.random.default_rng(0)
    X = kernax.trees.encode([sentence(rng) for _ in range(n)])
    return Program(lambda X: kernax.gram(kernax.SubsetTree(0.5), X), X)


def random_features(kernax, n):
    def fit(X, y):
        kernel = kernax.random_fourier_features(kernax.RBF(2.0), 100, 5, key=jax.random.key(0))
        solution = kernax.kernel_ridge(kernel, X, y, 1.0, throw=False)
        return known(kernax, solution, solution.value.values(X[:100]))

    return Program(fit, *regression(n))


def few_features(kernax, n):
    kernel = kernax.FeatureMap(jnp.asarray)

    def fit(X, y):
        return fitted(kernax, kernax.kernel_ridge(kernel, X, y, 1.0, throw=False))

    return Program(fit, *regression(n))


spectrum = partial(strings_by_counts, kernel="Spectrum", k=4)
mismatch = partial(strings_by_counts, kernel="Mismatch", k=5)

ROWS = (
    Row("gram, d=5", partial(gram, d=5), 3000, 300, 1e-13),
    Row("gram, d=50", partial(gram, d=50), 3000, None, 1e-13),
    Row("gram, d=50, float32", partial(gram, d=50), 4000, 300, 1e-6, "float32"),
    Row("gram of two stacks, Matern 5/2, d=5", gram_of_two, 3000, 300, 1e-13),
    Row("gradient of a Gram matrix's squares, d=5", gram_gradient, 2000, 200, 1e-11),
    Row("K v without K, blocks of 256", product, 8000, 500, 1e-12),
    Row("K[X, Z] v without K, blocks of 256", rectangular_product, 8000, 500, 1e-12),
    Row("values of an expansion at 10 n points", values, 2000, 200, 1e-12),
    Row("values of an expansion by vmap", values_by_vmap, 2000, None, 1e-12),
    Row("values of an expansion, cross Gram in blocks", values_in_blocks, 1000, 200, 1e-12),
    Row("discrepancy of two samples (MMD)", discrepancy, 1500, 200, 1e-10),
    Row("two-sample test, 200 permutations", two_sample_test, 1000, 100, 1e-9),
    Row("dependence of two samples (HSIC)", dependence, 2000, 200, 1e-10),
    Row("independence test, 100 permutations", independence_test, 400, 60, 1e-9),
    Row("ten eigenpairs, and the functions at n points", eigenpairs, 600, 80, 1e-8),
    Row("strings: spectrum k=4, 100 letters", spectrum, 1000, 60, 1e-12),
    Row("strings: mismatch (5, 1), 100 letters", mismatch, 300, 30, 1e-12),
    Row("strings: subsequences of 4, 57 letters", strings_by_subsequences, 200, 20, 1e-11),
    Row("trees: common fragments", trees, 150, 20, 1e-12),
    Row("ridge with 200 random features", random_features, 20000, 1000, 1e-7),
    Row("ridge of few features, d=5", few_features, 20000, 1000, 1e-9),
)
