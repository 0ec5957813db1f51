"""What is timed on an accelerator: programs made for a size and a precision, from data that NumPy
draws alike everywhere.

Programs return an answer, which is compared, and facts, which are written down: whether the learner
says that it succeeded, steps, gaps.
"""

import math
import os
import unittest.mock
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks import evidence, gradient_memory, line, processes, svm
from benchmarks.harness import Program
from benchmarks.strings import dna

COMPILE_BAR = 6.0  # seconds until any program is compiled
BOTH, SINGLE, DOUBLE = ("float32", "float64"), ("float32",), ("float64",)


@dataclass(frozen=True)
class Row:
    """A figure: the program, the size at which it is timed, and the size at which the CPU's answer
    is compared with it.

    `tolerances` bound the difference in float32 and in float64. A row that takes longer than
    `budget` seconds, compilation and comparison included, is stopped. `peer` names the row of
    kernax that has the same answer; a peer `in_jax` runs in the process of kernax's rows. `bar` is
    in seconds; of a peer `ratio_bar` is the share of its time that kernax may take.
    """

    name: str
    program: Callable[[int, str], Any]
    size: int
    checked: int
    quick: int
    tolerances: tuple[float, float] = (1e-4, 1e-9)
    precisions: tuple[str, ...] = BOTH
    budget: float = 40.0
    peer: str | None = None
    in_jax: bool = False
    bar: float | None = None
    ratio_bar: float | None = None

    def tolerance(self, precision: str) -> float:
        return self.tolerances[BOTH.index(precision)]


def plain(function: Callable) -> Callable:
    """The same function with an answer and no facts."""
    return lambda *arguments: (function(*arguments), {})


def _points(n, d, precision):
    return np.random.default_rng(0).normal(size=(n, d)).astype(precision)


def _regression(n, d, precision):
    X = _points(n, d, "float64")
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * np.random.default_rng(1).normal(size=n)
    return X.astype(precision), y.astype(precision)


def gram(n, precision):
    return Program(plain(lambda X: kx.gram(kx.RBF(8.0), X)), _points(n, 64, precision))


def gram_of_two(by_transposition):
    """K of a batch and a copy of it, which is not made symmetric, or by the larger of K and K^T.
    Next to `gram`, this is the time that symmetry takes.
    """

    def program(n, precision):
        X = _points(n, 64, precision)

        def matrix(X, Z):
            K = kx.gram(kx.RBF(8.0), X, Z)
            return jnp.maximum(K, K.T) if by_transposition else K

        return Program(plain(matrix), X, X.copy())

    return program


def gradient(name):
    """Of the sum of K squared in 64 lengthscales and in X."""
    kernel = gradient_memory.KERNELS[name]
    total = lambda scale, X: jnp.sum(kx.gram(kernel(scale), X) ** 2)

    def program(n, precision):
        scale = np.linspace(6.0, 10.0, 64).astype(precision)
        return Program(plain(jax.grad(total, argnums=(0, 1))), scale, _points(n, 64, precision))

    return program


def evidence_and_gradient(n, precision):
    program = evidence.with_kernax(*_regression(n, evidence.D, precision))
    return Program(plain(program.function), *program.arguments)


def evidence_by_gpytorch(n, precision):
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return plain(evidence.with_gpytorch(*_regression(n, evidence.D, precision), device))


def evidence_by_tinygp(n, precision):
    program = evidence.with_tinygp(*_regression(n, evidence.D, precision))
    return Program(plain(program.function), *program.arguments)


def evidence_along_a_line(n, precision):
    program = line.with_kernax("Matern32", *line.data(n), derivative=True)
    return Program(plain(program.function), *program.arguments)


def ridge(n, precision):
    def fit(X, y):
        solution = kx.kernel_ridge(kx.RBF(3.0), X, y, 0.1, throw=False)
        return solution.value.coefficients, _facts(solution)

    return Program(fit, *_regression(n, 10, precision))


def predictions(n, precision):
    """Values at as many new points as there are terms."""
    X, coefficients = _regression(n, 10, precision)
    f = kx.KernelExpansion(
        kx.RBF(np.asarray(3.0, precision)), X, coefficients, np.zeros((), precision)
    )
    return Program(plain(lambda f, Z: jax.vmap(f)(Z)), f, X[::-1].copy())


def _facts(solution, **more):
    succeeded = solution.result == kx.RESULTS.successful
    return {"successful": jnp.all(succeeded)} | more


def _svm(kernel, X, y, solver, block):
    solution = kx.svm(kernel, X, y, 1.0, solver=solver, block_size=block, throw=False)
    stats = solution.stats
    return stats["dual"], _facts(solution, steps=jnp.max(stats["steps"]), gap=jnp.max(stats["gap"]))


def one_svm(solver, block=None):
    def program(n, precision):
        fit = lambda kernel, X, y: _svm(kernel, X, y, solver, block)
        return Program(fit, svm.KERNEL, *_as_numpy(svm.data(n, dtype=precision)))

    return program


def _as_numpy(arrays):
    return [np.asarray(array) for array in arrays]


def ridge_batch(count, precision):
    X = _points(count * 100, 5, precision).reshape(count, 100, 5)
    y = np.sin(X[..., 0]) + X[..., 1]

    def fit(X, y):
        solution = kx.kernel_ridge(kx.RBF(2.0), X, y, 0.1, throw=False)
        return solution.value.coefficients, _facts(solution)

    return Program(_over_batch(fit), X, y)


def _over_batch(fit):
    """`fit` over stacks of data sets, with the facts of the worst."""

    def every(*data):
        answers, facts = jax.vmap(fit)(*data)
        worst = {
            name: jnp.all(fact) if name == "successful" else jnp.max(fact)
            for name, fact in facts.items()
        }
        return answers, worst

    return every


def svm_batch(solver):
    def program(count, precision):
        sets = [_as_numpy(svm.data(200, dtype=precision, seed=seed)) for seed in range(count)]
        X, y = (np.stack(parts) for parts in zip(*sets))
        fit = lambda kernel, X, y: _over_batch(lambda X, y: _svm(kernel, X, y, solver, None))(X, y)
        return Program(fit, svm.KERNEL, X, y)

    return program


def svms_by_joblib(count, precision):
    """The same problems by LIBSVM, in a process for each core; what it finds is not compared."""
    import joblib
    from sklearn.svm import SVC

    sets = [_as_numpy(svm.data(200, dtype=precision, seed=seed)) for seed in range(count)]

    def fit(X, y):
        return SVC(C=1.0, gamma=svm.GAMMA).fit(X, y).n_support_

    def every():
        tasks = (joblib.delayed(fit)(X, y) for X, y in sets)
        return np.asarray(joblib.Parallel(n_jobs=-1)(tasks))

    return plain(every)


def _processes(count, precision):
    X = _points(count * 100, processes.D, precision).reshape(count, 100, processes.D)
    noise = 0.3 * np.random.default_rng(2).normal(size=(count, 100))
    return X, (np.sin(X[..., 0]) + noise).astype(precision)


def evidence_batch(count, precision):
    start = processes.START.astype(precision)
    of = jax.vmap(jax.value_and_grad(processes.loss), in_axes=(None, 0, 0))
    return Program(plain(of), start, *_processes(count, precision))


def process_batch(count, precision):
    return Program(plain(jax.vmap(processes.learned)), *_processes(count, precision))


def string_gram(kernel, letters):
    """A Gram matrix of strings of as many random letters."""

    def program(n, precision):
        X = kx.strings.encode(dna(n, letters), "ACGT")
        return Program(plain(kx.gram), kernel, X)

    return program


def product(d, block):
    """`K v` without K."""

    def program(n, precision):
        X, v = _regression(n, d, precision)
        scale = np.asarray(1.0 if d == 3 else 3.0, precision)
        return Program(
            plain(lambda s, X, v: kx.gram_operator(kx.RBF(s), X, block_size=block).mv(v)),
            scale,
            X,
            v,
        )

    return program


def product_in_tiles(rows):
    """`K v` in three columns, by tiles of K in memory with `rows * n / 2` entries each."""

    def program(n, precision):
        def multiplied(s, X, v):
            # Read while the program is traced.
            with unittest.mock.patch.dict(os.environ, KERNAX_PAIRS_IN_REGISTERS="0"):
                return kx.gram_operator(kx.RBF(s), X, block_size=rows).mv(v)

        return Program(plain(multiplied), np.ones((), precision), *_regression(n, 3, precision))

    return program


def product_by_keops(n, precision):
    """`K v` in three columns, on the device that KeOps finds."""
    from pykeops.numpy import LazyTensor

    X, v = _regression(n, 3, precision)

    def run():
        x, z = LazyTensor(X[:, None, :]), LazyTensor(X[None, :, :])
        return ((-((x - z) ** 2).sum(-1) / 2).exp() @ v[:, None])[:, 0]

    return plain(run)


def gradient_of_product(n, precision):
    """Of the sum of `sin(K v)`, in the lengthscale, the points and v."""
    X, v = _regression(n, 3, precision)

    def total(scale, X, v):
        operator = kx.gram_operator(kx.RBF(scale), X, block_size=1024)
        return jnp.sum(jnp.sin(operator.mv(v)))

    scale = np.asarray(1.0, precision)
    return Program(plain(jax.grad(total, argnums=(0, 1, 2))), scale, X, v)


def falkon(n, precision):
    """Values at a thousand points."""

    def fit(X, y):
        solution = kx.falkon(kx.RBF(3.0), X, y, 1.0, X[: min(2000, n // 10)], throw=False)
        return solution.value.values(X[:1000]), _facts(solution)

    return Program(fit, *_regression(n, 10, precision))


def ridge_without_matrix(d, rtol, rank=None, max_steps=1000):
    """Values at a thousand points, by solves to a residual of `rtol`, with a preconditioner of that
    rank. A row of one step is the time of the preconditioner, and of two products.
    """

    def program(n, precision):
        def fit(X, y):
            if rank is None:
                solver = kx.solvers.ConjugateGradient(rtol=rtol, max_steps=max_steps)
            else:
                solver = _preconditioned(n, rank, rtol, max_steps)
            kernel = kx.RBF(1.0 if d == 3 else 3.0)
            solution = kx.kernel_ridge(
                kernel, X, y, 1.0, block_size=1024, solver=solver, throw=False
            )
            stats = solution.stats
            facts = {"steps": stats["steps"], "residual": stats["residual"]}
            if max_steps > 1:
                facts = _facts(solution, **facts)
            return solution.value.values(X[:1000]), facts

        return Program(fit, *_regression(n, d, precision))

    return program


def mean_without_matrix(rtol, rank):
    """Means of a process at a thousand points."""

    def program(n, precision):
        def fit(X, y):
            solution = kx.condition(
                kx.RBF(1.0), X, y, 1.0, solver=_preconditioned(n, rank, rtol), throw=False
            )
            return jax.vmap(solution.value.mean)(X[:1000]), _facts(solution)

        return Program(fit, *_regression(n, 3, precision))

    return program


def _preconditioned(n, rank, rtol, max_steps=1000, determinant=None):
    return kx.solvers.ConjugateGradient(
        rtol=rtol,
        max_steps=max_steps,
        preconditioner=kx.solvers.PivotedCholesky(jax.random.key(0), rank=min(rank, n)),
        determinant=determinant,
    )


def evidence_by_lanczos(rank):
    """An estimate of the evidence of each point, with its gradient in the logarithms of the
    lengthscale, the variance and the noise.
    """

    def program(n, precision):
        def evidence(theta, X, y):
            scale, variance, noise = jnp.exp(theta)
            # With y these are eight columns, the most that are computed in registers.
            probes = kx.solvers.StochasticLanczos(key=jax.random.key(1), n_probes=7, n_steps=12)
            solver = _preconditioned(n, rank, 1e-2, determinant=probes)
            kernel = variance * kx.RBF(scale)
            return kx.log_marginal_likelihood(kernel, X, y, noise, solver=solver) / n

        start = np.zeros(3, precision)
        return Program(plain(jax.value_and_grad(evidence)), start, *_regression(n, 3, precision))

    return program


ROWS = (
    Row(
        "matrix-free K v, d=3",
        product(3, 1024),
        1_000_000,
        20_000,
        500,
        (1e-4, 1e-11),
        bar=0.4,
    ),
    Row(
        "matrix-free K v, d=10",
        product(10, 1024),
        1_000_000,
        5000,
        500,
        (1e-4, 1e-11),
        SINGLE,
        bar=0.6,
    ),
    Row(
        "gradient of matrix-free K v, d=3",
        gradient_of_product,
        262_144,
        5000,
        500,
        (1e-3, 1e-9),
    ),
    Row("falkon, 2000 centres", falkon, 1_000_000, 20_000, 3000, (2e-2, 1e-6), SINGLE, bar=0.3),
    Row(
        "ridge by conjugate gradients without K, d=3",
        ridge_without_matrix(3, 1e-2),
        100_000,
        5000,
        500,
        (1e-1, 1e-1),
        SINGLE,
    ),
    Row("evidence and gradient", evidence_and_gradient, 10_000, 2000, 50, (2e-2, 1e-8)),
    Row("SVM, SMO", one_svm(kx.solvers.SMO()), 10_000, 2000, 60, (1e-3, 1e-3)),
    Row(
        "SVM, SMO, large",
        one_svm(kx.solvers.SMO()),
        50_000,
        1000,
        60,
        (1e-3, 1e-3),
        SINGLE,
        bar=1.2,
    ),
    Row(
        "batch of SVMs, n=200, SMO",
        svm_batch(kx.solvers.SMO()),
        1000,
        1000,
        2,
        (1e-3, 1e-3),
    ),
    Row(
        "batch of processes, n=100, 100 steps of Adam",
        process_batch,
        1000,
        20,
        2,
        (5e-2, 1e-6),
        bar=1.0,
    ),
    Row(
        "evidence and gradient along a line",
        evidence_along_a_line,
        1_000_000,
        100_000,
        2000,
        (1e-3, 1e-6),
        DOUBLE,
    ),
    Row("gram, d=64", gram, 16384, 2048, 50, (1e-5, 1e-12)),
    Row("batch of ridge fits, n=100", ridge_batch, 1000, 1000, 4, (1e-3, 1e-9)),
    Row("batch of evidences with gradients, n=100", evidence_batch, 1000, 1000, 3, (1e-3, 1e-9)),
    Row(
        "strings: spectrum k=3, 100 letters",
        string_gram(kx.Spectrum(3), 100),
        2000,
        2000,
        20,
        (1e-5, 1e-12),
    ),
    Row(
        "strings: subsequences of 4, 57 letters",
        string_gram(kx.Subsequence(4, 0.6), 57),
        400,
        400,
        10,
        (1e-4, 1e-9),
    ),
    Row("ridge fit", ridge, 20_000, 2000, 60, (1e-2, 1e-9)),
    Row("evidence and gradient, large", evidence_and_gradient, 20_000, 500, 50, (2e-2, 1e-8)),
    Row("gradient of Gram, RBF", gradient("RBF"), 8192, 1024, 50, (1e-3, 1e-9)),
    Row("gradient of Gram, Matern12", gradient("Matern12"), 8192, 1024, 50, (1e-3, 1e-9)),
    Row(
        "SVM, projected gradients",
        one_svm(kx.solvers.ProjectedGradient()),
        10_000,
        2000,
        60,
        (1e-3, 1e-3),
    ),
    Row(
        "SVM, projected gradients, large",
        one_svm(kx.solvers.ProjectedGradient()),
        50_000,
        1000,
        60,
        (1e-3, 1e-3),
        SINGLE,
    ),
    Row("SVM without K, SMO", one_svm(kx.solvers.SMO(), 1024), 50_000, 2000, 60, (1e-3, 1e-3)),
    Row(
        "SVM without K, projected gradients",
        one_svm(kx.solvers.ProjectedGradient(), 1024),
        50_000,
        2000,
        60,
        (1e-3, 1e-3),
    ),
    Row(
        "strings: mismatch (5, 1), 100 letters",
        string_gram(kx.kernels.Mismatch(5, 1), 100),
        2000,
        2000,
        10,
        (1e-5, 1e-12),
        SINGLE,
    ),
    Row(
        "strings: mismatch (9, 1), 100 letters",
        string_gram(kx.kernels.Mismatch(9, 1), 100),
        2000,
        200,
        10,
        (1e-5, 1e-12),
        SINGLE,
    ),
    *(
        Row(
            f"matrix-free K v, d=3, in tiles of {rows // 2 * 4} MB",
            product_in_tiles(rows),
            1_000_000,
            5000,
            500,
            (1e-4, 1e-11),
            SINGLE,
        )
        for rows in (2, 8)
    ),
    Row("gram, d=64, not symmetrised", gram_of_two(False), 16384, 500, 50, (1e-5, 1e-12)),
    Row("gram, d=64, by transposition", gram_of_two(True), 16384, 500, 50, (1e-5, 1e-12)),
    Row("ridge predictions", predictions, 20_000, 2000, 60, (1e-4, 1e-10), SINGLE),
    Row(
        "batch of SVMs, n=200, projected gradients",
        svm_batch(kx.solvers.ProjectedGradient()),
        1000,
        100,
        2,
        (1e-3, 1e-3),
    ),
)

# A million points by preconditioned conjugate gradients: the goal is 120 s to a residual of 1e-2,
# and to one of 1e-3, and 60 s for an evidence with its gradient.
RANK = 1000
_LONG: dict[str, Any] = {"precisions": SINGLE, "budget": 130.0, "tolerances": (1e-1, 1e-1)}
ROWS += tuple(
    Row(
        f"ridge by conjugate gradients, rank {rank}, d={d}, {what}",
        ridge_without_matrix(d, rtol, rank, max_steps),
        1_000_000,
        5000,
        500,
        bar=None if max_steps == 1 else 120.0,
        **_LONG,
    )
    for d, rank in ((3, RANK), (10, RANK), (10, 5 * RANK))
    for what, rtol, max_steps in (
        ("one step", 1e-2, 1),
        ("residual 1e-2", 1e-2, 1000),
        ("residual 1e-3", 1e-3, 1000),
    )
)
ROWS += (
    Row(
        f"mean of a process by conjugate gradients, rank {RANK}, d=3, residual 1e-2",
        mean_without_matrix(1e-2, RANK),
        1_000_000,
        5000,
        500,
        bar=120.0,
        **_LONG,
    ),
    Row(
        f"evidence and gradient by Lanczos's method, rank {RANK}, d=3",
        evidence_by_lanczos(RANK),
        1_000_000,
        5000,
        500,
        bar=60.0,
        **_LONG,
    ),
)

_EVIDENCES = tuple(row for row in ROWS if row.program is evidence_and_gradient)
PEERS = (
    *(
        Row(
            f"tinygp: {row.name}",
            evidence_by_tinygp,
            row.size,
            0,
            row.quick,
            row.tolerances,
            peer=row.name,
            in_jax=True,
        )
        for row in _EVIDENCES
    ),
    *(
        Row(
            f"GPyTorch: {row.name}",
            evidence_by_gpytorch,
            row.size,
            0,
            row.quick,
            row.tolerances,
            peer=row.name,
            ratio_bar=0.4,
        )
        for row in _EVIDENCES
    ),
    Row(
        "joblib: batch of SVMs, n=200",
        svms_by_joblib,
        1000,
        0,
        2,
        (math.inf, math.inf),
        peer="batch of SVMs, n=200, SMO",
        ratio_bar=1 / 50,
    ),
    Row(
        "KeOps: matrix-free K v, d=3",
        product_by_keops,
        1_000_000,
        0,
        500,
        precisions=SINGLE,
        peer="matrix-free K v, d=3",
    ),
)
