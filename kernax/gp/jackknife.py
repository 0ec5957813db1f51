"""Prediction intervals with guaranteed coverage for any process (jackknife+ and CV+)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_noise, cast
from kernax.core.base.compiled import compiled
from kernax.core.base.numerics import eps_of, is_concrete, matmul
from kernax.core.base.ranks import rank_for, smallest
from kernax.core.base.solution import Digits, Solution, finish, void_unless_known
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import prepare_stacks
from kernax.core.learner.learner_problem import check_problem
from kernax.core.linalg.density import factor_of, rounding_of_inverse
from kernax.core.linalg.factorisation import WeightedSystem
from kernax.core.linalg.solves import solve_by_lu
from kernax.core.operators.gram import gram_of_prepared
from kernax.core.operators.memory import Footprint
from kernax.gp.means import means_at
from kernax.gp.process import GaussianProcess, as_process

_FOOTPRINT = Footprint("jackknife_plus", 3.6)


class _Folds(eqx.Module):
    """The number of the fold of each point, and which points each fold holds."""

    numbers: Int[Array, " n"]
    members: Bool[Array, "k n"]


def jackknife_plus(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    noise: ArrayLike,
    Z: PyTree,
    *,
    coverage: float = 0.9,
    folds: ArrayLike | None = None,
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """The lower and upper ends of prediction intervals at the points Z, (m,) each.

    Let f_-i be the mean of the process given all observations except the i-th (or except those of
    its fold), and `R_i = |y_i - f_-i(x_i)|`. An interval reaches from a low quantile of `f_-i(z) -
    R_i` to a high one of `f_-i(z) + R_i` (jackknife+, and with folds CV+: Barber, Candes, Ramdas &
    Tibshirani 2021). All f_-i come from one factorisation, and with folds one more for each fold.

    Guarantee: where the n points and a new one are exchangeable, and the process was not learned
    from y, the new target is inside with a probability of at least `2 coverage - 1`, whatever the
    process; with folds of equal size at least `2 coverage - 1 - sqrt(2 / n)`. In practice the
    coverage is close to `coverage`, even for a process that was learned from y, though without a
    guarantee. Where n is too small, `n < coverage / (1 - coverage)`, the ends are -inf and inf.

    Arguments:
        process, X, y, noise: as for `condition`, with one column of targets.
        Z: a batch of m points.
        coverage: between 0 and 1.
        folds: (n,), the number of the fold of each point, 0 to k - 1; by default each point is a
            fold.

    The ends are NaN if there is no Cholesky factor. A warning is issued if jitter was needed, or if
    fewer than four digits (two in float32) are accurate.

    Raises ValueError for bad shapes or values, and MemoryBudgetError if the matrices do not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> process = kernax.GaussianProcess(kernax.RBF(0.3))
        >>> low, high = kernax.conformal.jackknife_plus(process, X, y, 0.01, X[:2], coverage=0.5)
        >>> bool(jnp.all(low < high))
        True
    """
    process = as_process(process)
    advice = "intervals for each column, or jax.vmap over them"
    problem = check_problem(
        "jackknife_plus",
        process.covariance,
        X,
        y,
        one_column=advice,
        has_weights=False,
        footprint=_FOOTPRINT,
    )
    _, _, Z = prepare_stacks(problem.kernel, problem.X, Z)
    Z = cast(Z, problem.dtype)
    noise = as_noise(noise, problem.n, problem.dtype)
    count = jnp.asarray(rank_for(coverage, problem.n), jnp.int32)
    numbers = None if folds is None else _as_folds(folds, problem.n)
    solution = _jackknife_plus(problem, cast(process.mean, problem.dtype), noise, Z, numbers, count)
    hint = "jackknife_plus: more noise may help."
    digits = Digits("the intervals", eps_of(problem.dtype) ** (1 / 4))
    return finish(solution, throw=False, hint=hint, digits=digits).value


@compiled
def _jackknife_plus(problem, mean, noise, Z, folds, count):
    """The ends, with the status and stats of the factorisation."""
    system = WeightedSystem.of(problem.gram(), problem.weights, noise)
    factor, result, stats = factor_of(system)
    stats = stats | {"rounding": rounding_of_inverse(system, factor)}
    P = factor.inverse_of(system).as_matrix()
    targets = problem.columns - means_at(mean, problem)
    a = matmul(P, targets)[:, 0]
    across = gram_of_prepared(problem.kernel, Z, problem.X)
    # f(z) = m(z) + k(z, X) a, a = P (y - m(X)), with all points.
    centre = jax.vmap(mean)(Z).reshape(-1) + matmul(across, a)
    residuals, changes = _left_out(P, a, matmul(across, P), folds)
    without = centre[:, None] - changes
    # With c = ceil(coverage (n + 1)): the (n + 1 - c)-th smallest of f_-i(z) - R_i, and the c-th
    # smallest of f_-i(z) + R_i.
    low = smallest(without - abs(residuals)[None], len(a) + 1 - count)
    high = smallest(without + abs(residuals)[None], count)
    return Solution(void_unless_known((low, high), result), result, stats)


def _left_out(
    P: Float[Array, "n n"],
    a: Float[Array, " n"],
    of_points: Float[Array, "m n"],
    folds: _Folds | None,
) -> tuple[Float[Array, " n"], Float[Array, "m n"]]:
    """`y_i - f_-i(x_i)`, and `f(z) - f_-i(z)` at new points, from their `k(Z, X) P`.

    Without the points S the coefficients are `a - P_:S P_SS^-1 a_S`.
    """
    if folds is None:
        # S = {i}: the residual is a_i / P_ii, and f(z) - f_-i(z) = (k(z, X) P)_i a_i / P_ii.
        residuals = a / jnp.diagonal(P)
        return residuals, of_points * residuals[None]
    # For each fold S the vector with `P_SS^-1 a_S`, its residuals, in S, and zero elsewhere.

    def of_one(inside: Float[Array, " n"]) -> Float[Array, " n"]:
        # P_SS, and the identity outside of S, because shapes must not depend on the fold.
        block = inside[:, None] * P * inside[None] + jnp.diag(1 - inside)
        return solve_by_lu(block, inside * a)

    # y_S - f_-S(x_S) = P_SS^-1 a_S, and f(z) - f_-S(z) = k(z, X) P_:S P_SS^-1 a_S.
    corrections = lax.map(of_one, folds.members.astype(a.dtype))  # one block at a time
    return jnp.sum(corrections, 0), matmul(of_points, corrections.T)[:, folds.numbers]


def _as_folds(folds: ArrayLike, n: int) -> _Folds:
    """The folds by their numbers. Raises ValueError unless they are 0 to k - 1 with k >= 2."""
    if not is_concrete(folds):
        raise ValueError(
            "folds must be concrete, not traced: the number of folds determines array shapes"
        )
    numbers = np.asarray(folds)
    if numbers.shape != (n,) or numbers.dtype.kind not in "iu":
        raise ValueError(
            f"folds must be integers of shape ({n},), one for each point, but are of type "
            f"{numbers.dtype} and shape {numbers.shape}"
        )
    present = np.unique(numbers)
    if len(present) < 2 or not np.array_equal(present, np.arange(len(present))):
        raise ValueError(
            f"folds must be numbered 0, 1, ... without a gap, at least two, but are {present}"
        )
    members = numbers[None] == present[:, None]
    return _Folds(jnp.asarray(numbers), jnp.asarray(members))
