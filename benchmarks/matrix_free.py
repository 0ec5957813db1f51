"""How long, and in how much memory, is `K v` computed without ever holding K?

`gram_operator(RBF, X, block_size=B).mv(v)`, float32, against KeOps on the CPU; then the memory of
the gradient of `v^T K v` in the lengthscale, and of the product and its gradient at a larger n,
which is compiled and not run. Then the Tanimoto kernel of fingerprints of 2048 bits, against the
matrix product of their bits in NumPy, by blocks of rows: nearly all of the time is that product.
"""

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import MB, Bar, Case, Contender, Program

LENGTHSCALE = 3.0
_BESIDE = (
    "Alone in its process the product takes less, but after KeOps has run in the same one up to "
    "twice as long; passive OpenMP threads change nothing, and the cause is not found. Tiles of "
    "other sizes take longer."
)
BLOCKS = (128, 16, 32, 512)  # the first, that of "auto", is the one the bars are about


def cases(quick):
    n, d = (500 if quick else 20000), 10
    X, v = data(n, d)
    blocks = [
        Contender(f"kernax, {B} rows", lambda B=B: Program(product, LENGTHSCALE, X, v, B))
        for B in BLOCKS
    ]
    yield Case(
        f"K v, n={n}, d={d}, float32",
        [*blocks, Contender("keops", lambda: _keops(X, v))],
        bars=[Bar(0.06, "keops", explanation=_BESIDE)],
        tolerance=1e-4,
        rounds=2 if quick else 5,
    )
    yield _gradient(*data(n // 5 + 96, 8), 4 * MB, rounds=2 if quick else 5)
    yield _gradient(*data(n, 8), 16 * MB, rounds=0)
    many = data(5 * n, 10)
    yield Case(
        f"K v, n={5 * n}, d=10, float32",
        [Contender("kernax, 128 rows", lambda: Program(product, LENGTHSCALE, *many, BLOCKS[0]))],
        bars=[Bar(64 * MB, figure="temporary")],
        rounds=0,
    )
    yield _gradient(*many, 64 * MB, rounds=0)
    bits, u = fingerprints(256 if quick else 16384, 2048)
    yield Case(
        f"K v of Tanimoto, n={len(bits)}, {bits.shape[1]} bits, float32",
        [
            Contender("kernax, 128 rows", lambda: Program(of_fingerprints, bits, u)),
            Contender("numpy, 1024 rows", lambda: _in_numpy(bits, u)),
        ],
        bars=[Bar(1.0, "numpy, 1024 rows"), Bar(6 * bits.nbytes, figure="temporary")],
        tolerance=1e-4,
        rounds=2,
    )


def data(n, d):
    """n points and a vector."""
    points, vector = jax.random.split(jax.random.key(0))
    return jax.random.normal(points, (n, d), jnp.float32), jax.random.normal(
        vector, (n,), jnp.float32
    )


def product(lengthscale, X, v, block):
    return kx.gram_operator(kx.RBF(lengthscale), X, block_size=block).mv(v)


def fingerprints(n, d):
    """n rows of d bits, one in twenty of them set, and a vector."""
    bits, vector = jax.random.split(jax.random.key(1))
    rows = jax.random.bernoulli(bits, 0.05, (n, d)).astype(jnp.float32)
    return rows, jax.random.normal(vector, (n,), jnp.float32)


def of_fingerprints(X, v):
    return kx.gram_operator(kx.kernels.Tanimoto(), X, block_size=BLOCKS[0]).mv(v)


def _in_numpy(X, v):
    X, v = np.asarray(X), np.asarray(v)
    counts = X.sum(1)

    def run():
        product = np.empty_like(v)
        for start in range(0, len(X), 1024):
            rows = slice(start, start + 1024)
            common = X[rows] @ X.T
            product[rows] = common / (counts[rows, None] + counts - common) @ v
        return product

    return run


def _gradient(X, v, limit, rounds):
    gradient = jax.grad(lambda scale, X, v, block: v @ product(scale, X, v, block))
    scale = jnp.asarray(LENGTHSCALE, jnp.float32)
    return Case(
        f"gradient of v^T K v in the lengthscale, n={len(X)}, d={X.shape[1]}, float32",
        [
            Contender(f"kernax, {B} rows", lambda B=B: Program(gradient, scale, X, v, B))
            for B in BLOCKS
        ],
        bars=[Bar(limit, figure="temporary")],
        tolerance=1e-3,
        rounds=rounds,
    )


def _keops(X, v):
    from pykeops.numpy import LazyTensor

    X, v = np.asarray(X) / np.float32(LENGTHSCALE), np.asarray(v)[:, None]

    def run():
        x, z = LazyTensor(X[:, None, :]), LazyTensor(X[None, :, :])
        return ((-((x - z) ** 2).sum(-1) / 2).exp() @ v)[:, 0]

    return run
