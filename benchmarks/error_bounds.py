"""Is a bound on the error of a fit, or of an evidence by Lanczos's method, ever violated, and how
close is it? `python -m benchmarks.error_bounds`.

10,000 random ridge problems of 48 points, half of them in float32, with weights of which some are
zero, and a bias in every other one. Each is fitted by conjugate gradients that stop early, or over
8 centres by `falkon`; the exact minimiser comes from NumPy in double precision. The bar: no error
in the norm of the kernel's space, and none at a new point, exceeds its bound, and the median ratio
of bound to error is at most 10.

10,000 random Gram matrices of 48 points with noise, half of them in float32 and half with a
preconditioner of rank 8, have a log determinant by 6 or 12 steps of Lanczos's method from four
probes; the exact mean over the same probes comes from eigenvalues in NumPy. The bar: no error
exceeds its `bias_bound`, which is finite. Needs float64: `JAX_ENABLE_X64=1`.
"""

import argparse
import json
import operator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.report import environment

N, D, CENTRES = 48, 3, 8
BATCH = 100
KERNELS = {"RBF": kx.RBF, "Matern12": kx.Matern12}


def problems(rng, dtype):
    """A batch of points, targets, weights, lengthscales, ridges and numbers of steps."""
    X = rng.normal(size=(BATCH, N + 1, D))
    y = np.sin(2 * X[:, :N, 0]) + 0.3 * rng.normal(size=(BATCH, N))
    w = rng.uniform(0.3, 2, size=(BATCH, N)) * (rng.uniform(size=(BATCH, N)) > 0.1)
    lengthscales = 10 ** rng.uniform(-0.5, 1, size=BATCH)
    ridges = 10 ** rng.uniform(-4, 1, size=BATCH)
    steps = rng.integers(1, 20, size=BATCH)
    return [A.astype(dtype) for A in (X[:, :N], y, w, lengthscales, ridges)] + [
        steps,
        X[:, N].astype(dtype),
    ]


def fitted(name, learner, bias):
    """A batch of functions with fewer steps or fewer points than exact ones, and their bounds."""

    def one(X, y, w, lengthscale, ridge, steps, x):
        kernel = KERNELS[name](lengthscale)
        if learner == "falkon":
            f = kx.falkon(kernel, X, y, ridge, X[:CENTRES], weights=w, bias=bias, throw=False).value
        else:
            a = _steps(kernel, X, y, w, ridge, steps, bias)
            f = kx.KernelExpansion(kernel, X, a, jnp.zeros((), y.dtype))
        bound = kx.solvers.error_bound(f, X, y, ridge, weights=w, bias=bias, throw=False)
        return f.points, f.coefficients, bound.norm, bound(x)

    return jax.jit(jax.vmap(one))


def _steps(kernel, X, y, w, ridge, steps, bias):
    """Coefficients after some steps of conjugate gradients for `(S K S + ridge) S^-1 a = S y`,
    orthogonal to S 1 if there is a bias.
    """
    S = jnp.sqrt(w)
    M = S[:, None] * kx.gram(kernel, X) * S[None, :] + ridge * jnp.eye(len(y), dtype=y.dtype)
    unit = S / jnp.linalg.norm(S)
    project = (lambda v: v - unit * jnp.vdot(unit, v)) if bias else (lambda v: v)

    def step(state, i):
        v, r, d = state
        Md = project(M @ d)
        length = jnp.vdot(r, r) / jnp.vdot(d, Md)
        new = r - length * Md
        moved = v + length * d, new, new + jnp.vdot(new, new) / jnp.vdot(r, r) * d
        goes_on = (i < steps) & (jnp.vdot(r, r) > 0)
        return jax.tree.map(lambda a, b: jnp.where(goes_on, a, b), moved, state), None

    r = project(S * y)
    (v, _, _), _ = jax.lax.scan(step, (jnp.zeros_like(y), r, r), jnp.arange(20))
    return S * v


def _gram(name, lengthscale):
    """A function that computes K, in NumPy."""

    def gram(A, B):
        s = ((A[:, None] - B[None]) ** 2).sum(-1) / lengthscale**2
        return np.exp(-s / 2) if name == "RBF" else np.exp(-np.sqrt(s))

    return gram


def exact(name, X, y, w, lengthscale, ridge, bias):
    """The coefficients of the minimiser, and a function that computes K."""

    gram = _gram(name, lengthscale)
    S = np.sqrt(w)
    M = S[:, None] * gram(X, X) * S[None] + ridge * np.eye(N)
    of_y, of_one = S * np.linalg.solve(M, np.stack([S * y, S], 1)).T
    return (of_y - of_one * of_y.sum() / of_one.sum() if bias else of_y), gram


def compared(learner: str, dtype: str, batches: int) -> dict:
    """Violations, and quantiles of the ratios of bounds to errors, in norm and at a new point."""
    rng = np.random.default_rng(0)
    ratios = []
    for batch in range(batches):
        name = list(KERNELS)[batch % 2]
        bias = batch % 4 >= 2
        given = problems(rng, dtype)
        found = [np.asarray(A, np.float64) for A in _program(fitted, name, learner, bias)(*given)]
        wide = [np.asarray(A, np.float64) for A in given]
        for X, y, w, lengthscale, ridge, _, x, points, a, norm, at in zip(*wide, *found):
            best, gram = exact(name, X, y, w, lengthscale, ridge, bias)
            both = np.concatenate([points, X])
            difference = np.concatenate([a, -best])
            error = np.sqrt(max(difference @ gram(both, both) @ difference, 0))
            error_at = abs(gram(x[None], both)[0] @ difference)
            ratios.append((norm / error, at / error_at))
    of_norm, of_point = np.array(ratios).T
    return {
        "fit": learner,
        "precision": dtype,
        "problems": len(ratios),
        "violations": int(np.sum(of_norm < 1) + np.sum(of_point < 1)),
        "median_ratio": float(np.median(of_norm)),
        "ratio_of_90_per_cent": float(np.quantile(of_norm, 0.9)),
        "median_ratio_at_a_point": float(np.median(of_point)),
    }


def determinants(name, preconditioner, steps):
    """A batch of log determinants, with the probes and the preconditioner, whose own logarithm is
    subtracted.
    """

    def one(X, lengthscale, noise, key):
        of_pivots, of_probes = jax.random.split(key)
        near = kx.solvers.PivotedCholesky(of_pivots, rank=8) if preconditioner else None
        probes = kx.solvers.StochasticLanczos(key=of_probes, n_probes=4, n_steps=steps)
        solver = kx.solvers.ConjugateGradient(preconditioner=near, determinant=probes)
        # As an operator with blocks it tells its noise, a lower bound of its eigenvalues.
        K = kx.gram_operator(KERNELS[name](lengthscale), X, ridge=noise, block_size=N)
        factor = solver.init(K, {})
        found = factor.determinant.logarithm
        near = factor.preconditioner
        known = 0.0 if near is None else near.log_determinant()
        return found.value - known, found.bias_bound, known, factor.determinant.signs, near

    return jax.jit(jax.vmap(one))


def mean_over_probes(name, X, lengthscale, noise, Z, near):
    """The mean of `z.log(L^-1 M L^-T) z` over the probes z."""
    M = _gram(name, lengthscale)(X, X) + noise * np.eye(N)
    if near is not None:
        L_inverse = (np.eye(N) + near.basis @ (near.inverse - np.eye(8)) @ near.basis.T) / near.root
        M = L_inverse @ M @ L_inverse.T
    values, vectors = np.linalg.eigh(M)
    return np.mean(((vectors.T @ Z) ** 2).T @ np.log(values))


def compared_determinants(preconditioner: bool, dtype: str, batches: int) -> dict:
    """Violations, and quantiles of the ratios of bounds to errors."""
    rng = np.random.default_rng(0)
    eps = np.finfo(dtype).eps
    ratios, bounds, violations = [], [], 0
    for batch in range(batches):
        name, steps = list(KERNELS)[batch % 2], (6, 12)[batch % 2]
        X = rng.normal(size=(BATCH, N, D)).astype(dtype)
        lengthscales = (10 ** rng.uniform(-0.5, 1, size=BATCH)).astype(dtype)
        noises = (10 ** rng.uniform(-4, 1, size=BATCH)).astype(dtype)
        keys = jax.random.split(jax.random.key(batch), BATCH)
        program = _program(determinants, name, preconditioner, steps)
        found = jax.tree.map(
            lambda a: np.asarray(a, np.float64), program(X, lengthscales, noises, keys)
        )
        wide = [A.astype(np.float64) for A in (X, lengthscales, noises)]
        for i, (X, lengthscale, noise) in enumerate(zip(*wide)):
            value, bound, known, Z, near = jax.tree.map(operator.itemgetter(i), found)
            error = abs(value - mean_over_probes(name, X, lengthscale, noise, Z, near))
            # The sum with the preconditioner's own logarithm is rounded.
            violations += not error <= bound + 4 * eps * abs(known)
            ratios.append(bound / max(error, np.finfo(float).tiny))
            bounds.append(bound)
    return {
        "fit": "log determinant, " + ("pivots" if preconditioner else "no preconditioner"),
        "precision": dtype,
        "problems": len(ratios),
        "violations": violations,
        "median_ratio": float(np.median(ratios)),
        "ratio_of_90_per_cent": float(np.quantile(ratios, 0.9)),
        "median_bound": float(np.median(bounds)),
        "largest_bound": float(np.max(bounds)),
    }


_programs: dict = {}


def _program(make, *of):
    if (make, *of) not in _programs:
        _programs[make, *of] = make(*of)
    return _programs[make, *of]


def main() -> None:
    """Prints a row for each kind of fit and precision, and writes all figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.error_bounds", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--only", choices=("fits", "determinants"), help="some of the rows")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    batches = max(options.problems // (4 * BATCH), 1)
    rows = []
    if options.only != "determinants":
        for learner in ("conjugate gradients", "falkon"):
            for dtype in ("float64", "float32"):
                row = compared(learner, dtype, batches)
                row["met"] = row["violations"] == 0 and row["median_ratio"] <= 10
                rows.append(row)
                print(json.dumps(row), flush=True)
    if options.only != "fits":
        for preconditioner in (False, True):
            for dtype in ("float64", "float32"):
                row = compared_determinants(preconditioner, dtype, batches)
                row["met"] = row["violations"] == 0 and bool(np.isfinite(row["largest_bound"]))
                rows.append(row)
                print(json.dumps(row), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(environment() | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
