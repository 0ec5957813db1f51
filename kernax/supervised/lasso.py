"""Least squares with an L1 penalty."""

import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, ArrayLike, Float

from kernax.core.boundary import as_scalar, as_stack, as_targets, as_weights, dtype_of
from kernax.core.numerics import product, stopped
from kernax.core.powers import exponent_of, times_power_of_two
from kernax.core.sharding import compiled
from kernax.core.solution import RESULTS, Solution, finish, void_unless_known
from kernax.core.support import NONNEGATIVE
from kernax.supervised.certificate import certificate
from kernax.supervised.dual import AbstractDualSolver, BoxProblem, Point, as_dual_solver
from kernax.supervised.machine import machine, survives_units
from kernax.supervised.smo import SMO


def lasso(
    features: ArrayLike,
    y: ArrayLike,
    penalty: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = False,
    solver: AbstractDualSolver | None = None,
    throw: bool = True,
) -> Solution[tuple[Float[Array, " D"], Float[Array, ""]]]:
    """Minimises `sum_i w_i (y_i - c.phi_i - b)^2 + penalty |c|_1` (Tibshirani 1996).

    This is the programme behind the support vector machines without its box: K is `Phi^T W Phi`, the targets `Phi^T W y` and
    epsilon `penalty / 2`; the same solvers find it, one coordinate at a time, and the same Newton step differentiates it.

    Arguments:
        features: (n, D), a row for each point: `jax.vmap(phi)(X)` for a feature map. With `gram(kernel, X)` the result is a
            sparse expansion: `KernelExpansion(kernel, X, c, b)`.
        y: targets (n,).
        penalty: >= 0; scikit-learn's alpha is `penalty / (2 n)`. Everything is zero from `2 max_j |sum_i w_i phi_ij y_i|` on
            (with a bias: of centred y).
        weights: (n,) >= 0.
        bias: an unpenalised b.
        solver: default `SMO(tol=1e-6)`, in float32 `SMO(tol=1e-4)`.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is the coefficients c (D,) and the bias b, differentiable in features, y, penalty and
        weights; one-sided where a coefficient is about to become zero. Stats: as for `svm`, of half the
        objective less a constant; `relative_gap`, from which success is decided, counts what rounding of `Phi^T W Phi` does.

    Raises:
        ValueError: bad shapes or values. MaxStepsError, NonFiniteError, BreakdownError: the solve failed.
    """
    features = jnp.asarray(as_stack(features, "features"))
    if features.ndim != 2:
        raise ValueError(
            f"features must have shape (n, D), but have shape {features.shape}: jax.vmap(phi)(X) for a feature map"
        )
    n, dtype = len(features), dtype_of(features)
    y, weights = as_targets(y, n, dtype), as_weights(weights, n, dtype)
    if y.ndim != 1:
        raise ValueError(f"y must have shape ({n},), but has shape {y.shape}: batch over its columns with jax.vmap")
    penalty = as_scalar(penalty, dtype, "penalty", NONNEGATIVE)
    solver = as_dual_solver(solver, SMO(tol=1e-6 if dtype == jnp.float64 else 1e-4))
    return finish(_lasso(features, y, penalty, weights, bool(bias), solver), throw, "lasso: rescaled features may help.")


@compiled
def _lasso(features, y, penalty, weights, bias, solver):
    w = jnp.ones_like(y) if weights is None else weights
    # Products of these leave the range of floats: each is divided by a power of two of its size, which changes no bit.
    of_features, of_y, of_w = (exponent_of(jnp.max(abs(part))) for part in (features, y, w))
    features = times_power_of_two(features, -of_features)
    y = times_power_of_two(y, -of_y)
    w = times_power_of_two(w, -of_w)
    penalty = times_power_of_two(penalty, -(of_features + of_y + of_w))
    centre = product(w, features) / jnp.sum(w) if bias else jnp.zeros_like(features[0])
    level = jnp.sum(w * y) / jnp.sum(w) if bias else jnp.zeros((), y.dtype)
    centred = features - centre[None, :]
    weighted = w[:, None] * centred
    operator = lx.MatrixLinearOperator(product(weighted.T, centred), lx.positive_semidefinite_tag)
    targets, free = product(weighted.T, y - level), jnp.full_like(centre, jnp.inf)
    size = jnp.max(abs(targets))
    problem = BoxProblem(operator, targets, -free, free, penalty / 2, None, jnp.where(size > 0, size, 1))
    c, _, result, stats = machine(problem, solver)
    b = level - product(centre, c)
    value = times_power_of_two(c, of_y - of_features), times_power_of_two(b, of_y)
    again = times_power_of_two(value[0], of_features - of_y), times_power_of_two(value[1], -of_y)
    result = survives_units(result, (c, b), again)
    relative_gap = jnp.maximum(stats["relative_gap"], _gap_in_features(*stopped((problem, c, centred, y, level, w)), bias=bias))
    accurate = relative_gap <= solver.tol
    result = RESULTS.where((result == RESULTS.successful) & ~accurate, RESULTS.inaccurate, result)
    objectives = {name: times_power_of_two(stats[name], of_w + 2 * of_y) for name in ("primal", "dual", "gap")}
    stats = stats | objectives | {"relative_gap": relative_gap}
    return Solution(void_unless_known(value, result), result, stats)


def _gap_in_features(problem, c, centred, y, level, w, *, bias):
    """The relative gap with the slopes `Phi^T W (y - Phi c)` of the features themselves.

    Where these are nearly collinear, rounding of `Phi^T W Phi` makes another problem of it, of which the gap is small. The
    slopes of that problem are believed as far as the rounding of the targets goes.
    """
    off = y - level - product(centred, c)
    if bias:
        off = off - jnp.sum(w * off) / jnp.sum(w)  # the centre is rounded too
    slopes = product(w * off, centred)
    rounding = 8 * float(jnp.finfo(c.dtype).eps) * jnp.sqrt(product((w * y) ** 2, centred**2))  # a random walk
    slopes = jnp.clip(problem.residual(c), slopes - rounding, slopes + rounding)
    zero = jnp.zeros((), c.dtype)
    return certificate(Point(c, slopes, zero, jnp.zeros((), jnp.int32)), problem)["relative_gap"]
