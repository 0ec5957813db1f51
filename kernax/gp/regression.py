"""Gaussian process regression: conditioning on noisy targets, and the log marginal likelihood."""

from collections.abc import Callable

import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float, PyTree

from kernax._advice import COMPARED
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import cast
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed, translated
from kernax.core.base.numerics import where_or
from kernax.core.base.parameters import with_arrays
from kernax.core.base.solution import (
    OF_EVIDENCE,
    RESULTS,
    ROUNDING,
    Solution,
    finish,
    warn_of_rounding,
)
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.learner_problem import LearnerProblem, check_problem, solver_that_ran
from kernax.core.linalg.density import factor_of, log_density
from kernax.core.linalg.factorisation import WeightedSystem
from kernax.core.linalg.linear_solvers import (
    AUTO,
    Auto,
    JitteredCholesky,
    advice_on,
    block_size_for,
    cause_of_rounding,
    check_knows_determinant,
    check_makes_factor,
)
from kernax.core.linalg.weighted_solve import weighted_solve
from kernax.core.operators.memory import Footprint
from kernax.gp.means import FixedMean, means_at, updated_mean
from kernax.gp.posterior import posterior_kernel
from kernax.gp.process import GaussianProcess, as_process, with_the_mean_in_the_process

_PRODUCTS = "solver=ConjugateGradient(preconditioner=PivotedCholesky(key){}) of kernax.solvers"
_LINE = "StateSpace() along a line, Grid() on a grid or at regular times"
_CONDITION = Footprint(
    "condition",
    4.5,
    f"{_PRODUCTS.format('')}, {_LINE}, or kernax.sgpr(process, X, y, noise, Z) through inducing "
    "points Z",
    closing=COMPARED,
)
_EVIDENCE = Footprint(
    "log_marginal_likelihood",
    3.6,
    f"{_PRODUCTS.format(', determinant=StochasticLanczos(key)')}, {_LINE}, or "
    "kernax.sgpr_bound(process, X, y, noise, Z) through inducing points Z",
    closing=COMPARED,
)


def condition(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    noise: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    solver: lx.AbstractLinearSolver | None = AUTO,
    throw: bool = True,
) -> Solution[GaussianProcess]:
    """Gaussian process regression: the posterior given `y_i = f(x_i) + e_i`, `e_i ~ N(0, noise)`.

    With `C = K + noise I`, its mean is `m(x) + k(x, X) C^-1 (y - m(X))` and its covariance
    `k(x, z) - k(x, X) C^-1 k(X, z)` (Rasmussen & Williams 2006, eqs. 2.25-2.26). Conditioning twice
    is conditioning on all the data at once.

    Arguments:
        process: a prior, or a process that has already been conditioned. A kernel stands for the
            process of mean zero.
        X: a batch of n points.
        y: targets (n,), or (n, outputs) for independent outputs that share the kernel.
        noise: the variance of the noise, >= 0, a number or one for each point (n,). It is
            scikit-learn's `alpha`, and the ridge of `kernel_ridge`. Without noise a positive weight
            has no effect, and the evidence is finite only for weights of zero and one.
        weights: (n,) >= 0, powers of the likelihood: two is the observation repeated, zero the
            observation removed.
        solver: one of `kernax.solvers`. `JitteredCholesky()` factorises the matrix. `StateSpace()`
            takes O(n) for points along a line, `Grid()` O(n log n) at regular times and `O(n sum
            n_a)` on grids. `ConjugateGradient(...)` needs only products: it is matrix-free beyond
            8192 points and for rows over a mesh, but each variance and each draw takes one more
            solve. The default, `Auto()`, uses `StateSpace()` on a CPU from 1000 points on if points
            have one column and the kernel has a state-space model with few states, and otherwise
            `JitteredCholesky()`.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `GaussianProcess`. Its mean is a `KernelExpansion` if the
        prior mean is a fixed number. It is differentiable in the process, X, y, noise and weights.
        Stats: `log_evidence` (see `log_marginal_likelihood`); the `jitter` added to the noise; the
        relative `residual` of the solve; `solver`, which solver ran and why; and `rounding`, an
        estimate of the rounding error of the log evidence, in nats, for targets that are likely
        under the process. If it is above 0.01 a ConditionWarning is issued. If it is near one, the
        factorised matrix differs too much from `C`, as with copies of points and hardly any noise.
        Conjugate gradients add `steps`, and return `log_evidence` only with a `determinant`, with
        two errors: its `standard_error` from random signs alone, and `bias_bound`, a bound of the
        error of the quadrature, which more Lanczos steps reduce.

    Raises:
        ValueError: bad shapes or values.
        NotPSDError, NonFiniteError, BreakdownError, MaxStepsError: the solve failed.
        MemoryBudgetError: the dense matrix would not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> prior = kernax.GaussianProcess(kernax.RBF(0.3))
        >>> solution = kernax.condition(prior, X, y, noise=0.01)
        >>> posterior = solution.value
        >>> x = jnp.array([0.4])
        >>> round(float(posterior.mean(x)), 2), round(float(posterior.variance(x)), 3)
        (0.69, 0.01)
        >>> round(float(solution.stats["log_evidence"]), 2)
        -5.31
    """
    process = as_process(process)
    solver = None if isinstance(solver, Auto) else solver
    check_makes_factor(solver)
    problem, mean, noise = _observations(
        _CONDITION, process, X, y, noise, weights, solver, throw=throw
    )
    solution = _condition(problem, mean, noise, with_arrays(solver))
    ran = solver_that_ran(problem, solver, named=solver)
    solution = Solution(solution.value, solution.result, solution.stats | {"solver": ran})
    hint = f"condition with {problem.kernel_name}: more noise or rescaled inputs may help"
    if not isinstance(process.mean, FixedMean):
        hint += ", and the mean must be finite at every point"
    hint += f".{advice_on(solver)}"
    _warn_of_digits(solution, solver, hint)
    return finish(solution, throw, hint, suspect=problem.suspect)


def _observations(
    footprint: Footprint,
    process: GaussianProcess,
    X: PyTree,
    y: ArrayLike,
    noise: ArrayLike,
    weights: ArrayLike | None,
    solver: lx.AbstractLinearSolver | None,
    *,
    throw: bool,
) -> tuple[LearnerProblem, Callable, Array]:
    """The checked observations of a process, and its mean and the noise in their dtype."""
    problem = check_problem(
        footprint.function_name,
        process.covariance,
        X,
        y,
        weights,
        in_features=solver is None,
        diagonal=noise,
        in_structure=True,
        solver=solver,
        block_size=block_size_for(solver),
        throw=throw,
        footprint=footprint,
    )
    return problem, cast(process.mean, problem.dtype), problem.noise(noise, throw=throw)


def _warn_of_digits(solution: Solution, solver: lx.AbstractLinearSolver | None, hint: str) -> None:
    """Warns if few digits of the evidence are accurate, with advice."""
    cause = cause_of_rounding(solver)
    advice = hint if cause == ROUNDING else "A smaller rtol gives more."
    warn_of_rounding(solution, OF_EVIDENCE, advice, cause)


@compiled
def _condition(problem, mean, noise, solver):
    """The posterior process, with the log evidence among its stats."""
    system = WeightedSystem.of(problem.gram(), problem.weights, noise)
    targets = problem.columns - means_at(mean, problem)
    factor, _, stats = factor_of(system, solver)
    # (W K + diag(noise)) a = W (y - m(X)); the posterior mean is m(x) + k(x, X) a.
    rhs = problem.weights.times(targets)
    a, result, solved = weighted_solve(system, rhs, JitteredCholesky(), factor=factor)
    stats = _of_all_columns(stats, targets) | solved
    if factor.knows_determinant:
        solution = None  # a direct factor needs none
        if not factor.is_direct:
            solution = where_or(result == RESULTS.successful, a, jnp.nan)
        stats = stats | {"log_evidence": log_density(system, targets, factor, solution)}
    posterior = posterior_kernel(factor, problem.kernel, problem.X, system, result)
    return Solution(GaussianProcess(posterior, updated_mean(mean, problem, a)), result, stats)


@translated(with_the_mean_in_the_process("log_marginal_likelihood"))
@renamed(kernel="process")
def log_marginal_likelihood(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    noise: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    solver: lx.AbstractLinearSolver | None = AUTO,
) -> Float[Array, ""]:
    """`log N(y | m(X), C)`, `C = K + noise I`: the log marginal likelihood (evidence).

    It is `-1/2 (r.C^-1 r + log |C| + n log 2 pi)` with `r = y - m(X)` (Rasmussen & Williams 2006,
    eq. 2.30). Maximise it to learn hyperparameters. Arguments are those of `condition`; a kernel
    stands for the process of mean zero. With weights w and `S = sqrt(diag(w))` it is `log N(S r |
    0, S K S + noise I) + 1/2 sum (1 - w) log(2 pi noise)`. Several outputs are summed.

    Its derivative (eq. 5.9) costs about three factorisations, for any number of hyperparameters.
    With `ConjugateGradient` and a `determinant` the value and its derivative are estimates that
    depend on the key; `condition(...).stats` has the `standard_error` of the random signs and the
    `bias_bound` of the quadrature, by which the mean of the estimate may be off. The value is NaN
    if there is no Cholesky factor, or if a solve does not converge. Outside of `jit`, `grad` and
    `vmap` a warning is issued if jitter was needed, or if the rounding error is above 0.01;
    `condition(...).stats` always has both, as `jitter` and `rounding`. Rounding acts like noise of
    variance eps * variance: in float32 a prior variance of 1e5 times the noise costs several per
    cent of the evidence. A `mean` that removes a large trend avoids this.

    Raises ValueError for bad shapes or values, and MemoryBudgetError if the matrices do not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> def evidence(lengthscale):
        ...     return kernax.log_marginal_likelihood(kernax.RBF(lengthscale), X, y, noise=0.01)
        ...
        >>> round(float(evidence(0.3)), 2)
        -5.31
        >>> round(float(jax.grad(evidence)(0.3)), 2)
        -10.97
    """
    process = as_process(process)
    solver = None if isinstance(solver, Auto) else solver
    check_knows_determinant(solver)
    problem, mean, noise = _observations(
        _EVIDENCE, process, X, y, noise, weights, solver, throw=False
    )
    solution = _evidence(problem, mean, noise, with_arrays(solver))
    hint = "log_marginal_likelihood: more noise avoids this."
    _warn_of_digits(solution, solver, hint)
    return finish(solution, throw=False, hint=hint).value


@compiled
def _evidence(problem, mean, noise, solver):
    """The log evidence, with the status and stats of the factorisation."""
    system = WeightedSystem.of(problem.gram(), problem.weights, noise)
    targets = problem.columns - means_at(mean, problem)
    factor, result, stats = factor_of(system, solver)
    stats = _of_all_columns(stats, targets)
    # -(r.C^-1 r + log |C| + n log 2 pi) / 2, summed over the columns r, without weights.
    return Solution(log_density(system, targets, factor), result, stats)


_OF_EVIDENCE = ("rounding", "standard_error", "bias_bound")


def _of_all_columns(stats: dict[str, Array], targets: Float[Array, "n p"]) -> dict[str, Array]:
    """Stats with the errors of the sum over outputs, in which each output has the same error."""
    summed = {name: targets.shape[1] * stats[name] for name in _OF_EVIDENCE if name in stats}
    return stats | summed
