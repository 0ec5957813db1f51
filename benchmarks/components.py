"""How long do leading kernel principal components take?

Ten components, d = 10, RBF, float64, against scikit-learn's `KernelPCA`: n = 500 by all
eigenvectors, n = 4000 by products with blocks of columns, against its `arpack`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import Bar, Case, Contender, Program

LENGTHSCALE, D, COMPONENTS = 3.0, 10, 10

_PRODUCTS = (
    "The Gram matrix takes a third, and twelve products with blocks of columns, which the memory "
    "bounds, nearly a half. Orthonormal blocks by products in place of reflections, two passes in "
    "place of three and other widths of blocks were tried."
)


def cases(quick):
    all_of, many, rounds = (100, 200, 3) if quick else (500, 4000, 7)
    with jax.enable_x64(True):
        yield _case("all eigenvectors", all_of, False, "dense", 1e-8, (), rounds)
        bars = [Bar(0.5, "scikit-learn", explanation=_PRODUCTS)]
        yield _case("leading ones", many, True, "arpack", 1e-6, bars, rounds)


def _case(name, n, truncated, solver, tolerance, bars, rounds):
    X = data(n)
    kernax = Contender("kernax", lambda: Program(lambda X: fit(X, truncated), X, jit=False))
    sklearn = Contender("scikit-learn", lambda: _sklearn_fit(X, solver))
    name = f"{COMPONENTS} components by {name}, n={n}, d={D}"
    return Case(name, [kernax, sklearn], bars, tolerance, rounds)


def data(n):
    """Points whose directions have different variances."""
    scales = jnp.geomspace(1.0, 2.0, D)
    return scales * jax.random.normal(jax.random.key(0), (n, D))


def fit(X, truncated):
    """The variances, and the coefficients of the projections without their signs."""
    found = kx.kernel_pca(kx.RBF(LENGTHSCALE), X, COMPONENTS, truncated=truncated).value
    return found.variances, abs(found.function.coefficients)


def _sklearn_fit(X, solver):
    from sklearn.decomposition import KernelPCA

    X = np.asarray(X)
    gamma = 1 / (2 * LENGTHSCALE**2)
    learner = KernelPCA(COMPONENTS, kernel="rbf", gamma=gamma, eigen_solver=solver, tol=0)

    def run():
        learner.fit(X)
        coefficients = learner.eigenvectors_ / np.sqrt(learner.eigenvalues_)
        return learner.eigenvalues_ / len(X), abs(coefficients)

    return run
