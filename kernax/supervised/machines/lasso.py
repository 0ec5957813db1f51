"""Least squares with an L1 penalty."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_scalar, as_stack, dtype_of
from kernax.core.base.compiled import compiled
from kernax.core.base.intervals import NONNEGATIVE
from kernax.core.base.numerics import eps_of, matmul, positive_or_one, stop_gradient
from kernax.core.base.powers import PowersOfTwo, exponent_of, times_power_of_two
from kernax.core.base.solution import RESULTS, Solution, finish, void_unless_known
from kernax.core.learner.learner_problem import check_targets
from kernax.core.operators.operators import DenseGram
from kernax.supervised.machines.box_problem import BoxProblem, DualPoint
from kernax.supervised.machines.certificate import certificate
from kernax.supervised.machines.dual_fit import fit_dual
from kernax.supervised.machines.dual_solver import AbstractDualSolver, as_dual_solver
from kernax.supervised.machines.smo import SMO
from kernax.supervised.machines.units import after_rescaling, rescaled_objectives


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

    This is the quadratic programme of support vector machines without its box: K is `Phi^T W Phi`,
    the targets `Phi^T W y` and epsilon `penalty / 2`. The same solvers solve it, one coordinate at
    a time, and the same Newton step differentiates it.

    Arguments:
        features: (n, D), a row for each point: `jax.vmap(phi)(X)` for a feature map. With
            `gram(kernel, X)` the result is a sparse expansion: `KernelExpansion(kernel, X, c, b)`.
        y: targets (n,).
        penalty: >= 0; scikit-learn's alpha is `penalty / (2 n)`. Everything is zero from `2 max_j
            |sum_i w_i phi_ij y_i|` on (with a bias: of centred y).
        weights: (n,) >= 0.
        bias: an unpenalised b.
        solver: default `kernax.solvers.SMO(rtol=1e-6)`, in float32 `SMO(rtol=1e-4)`.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is the coefficients c (D,) and the bias b, differentiable in
        features, y, penalty and weights; one-sided where a coefficient is about to become zero.
        Stats: as for `svm`, for half the objective minus a constant; `relative_gap`, which decides
            about success, accounts for the rounding of `Phi^T W Phi`.

    Raises:
        ValueError: bad shapes or values.
        MaxStepsError, NonFiniteError, BreakdownError: the solve failed.

    Examples:
        >>> features = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
        >>> y = jnp.array([1.0, 0.0, 1.0, 2.0])
        >>> coefficients, bias = kernax.lasso(features, y, penalty=0.5).value
        >>> jnp.round(coefficients, 2)
        Array([0.96, 0.  ], dtype=float64)
    """
    features = jnp.asarray(as_stack(features, "features"))
    if features.ndim != 2:
        raise ValueError(
            f"features must have shape (n, D), but have shape {features.shape}: jax.vmap(phi)(X) "
            "for a feature map"
        )
    n = len(features)
    dtype = dtype_of(features)
    y, checked_weights = check_targets(
        y,
        weights,
        n,
        dtype,
        one_column="batch over its columns with jax.vmap",
        thrown_by="lasso" if throw else None,
    )
    penalty = as_scalar(penalty, dtype, "penalty", NONNEGATIVE, "lasso" if throw else None)
    solver = as_dual_solver(solver, SMO(rtol=1e-6 if dtype == jnp.float64 else 1e-4))
    return finish(
        _lasso(features, y, penalty, checked_weights.values, bool(bias), solver),
        throw,
        "lasso: rescaled features may help.",
    )


@compiled
def _lasso(features, y, penalty, weights, bias, solver):
    units = _Units.of(features, y, weights)
    data = units.data(features, y, weights)
    w = data.weights
    if bias:
        centre = matmul(w, data.features) / jnp.sum(w)
        level = jnp.sum(w * data.y) / jnp.sum(w)
    else:
        centre = jnp.zeros_like(data.features[0])
        level = jnp.zeros((), data.y.dtype)
    centred = _Centred(data.features - centre[None, :], data.y - level, centre, level)
    # The programme whose matrix is `Phi^T W Phi`, without bounds.
    # 1/2 sum_i w_i (y_i - c.phi_i)^2 = 1/2 c.K c - targets.c + constant.
    weighted = w[:, None] * centred.features
    K = matmul(weighted.T, centred.features)
    targets = matmul(weighted.T, centred.y)
    unbounded = jnp.full_like(targets, jnp.inf)
    largest = jnp.max(abs(targets))
    problem = BoxProblem(
        operator=DenseGram(K),
        targets=targets,
        low=-unbounded,
        high=unbounded,
        epsilon=units.penalty(penalty) / 2,
        total=None,
        scale=positive_or_one(largest),
    )
    c, _, result, stats = fit_dual(problem, solver)
    # The best b for given c is the mean of y_i - c.phi_i.
    b = centred.level - matmul(centred.centre, c)

    # Back to the user's units, where it may leave the range of floats.
    value = units.users(c, b)
    result = after_rescaling(result, (c, b), units.value(*value))
    # The gap of the problem does not account for the rounding of its matrix.
    gap_in_features = _gap_in_features(*stop_gradient((problem, c, data, centred)), bias=bias)
    relative_gap = jnp.maximum(stats["relative_gap"], gap_in_features)
    lost = ~(relative_gap <= solver.rtol) & (result == RESULTS.successful)
    result = RESULTS.where(lost, RESULTS.inaccurate, result)
    objectives = rescaled_objectives(stats, PowersOfTwo.of(units.of_objective, c.dtype))
    stats = stats | objectives | {"relative_gap": relative_gap}
    return Solution(void_unless_known(value, result), result, stats)


class _LassoData(eqx.Module):
    features: Float[Array, "n D"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]


class _Units(eqx.Module):
    """The units of features, targets and weights, as exponents of two.

    Products of the user's numbers may leave the range of floats. Divided by powers of two they stay
    in range, and the division is exact.
    """

    of_features: Int[Array, ""]
    of_y: Int[Array, ""]
    of_weights: Int[Array, ""]

    @staticmethod
    def of(features: Array, y: Array, weights: Array) -> "_Units":
        sizes = (exponent_of(jnp.max(abs(part))) for part in (features, y, weights))
        return _Units(*sizes)

    @property
    def of_objective(self) -> Int[Array, ""]:
        return self.of_weights + 2 * self.of_y

    @property
    def of_c(self) -> Int[Array, ""]:
        return self.of_y - self.of_features

    def data(self, features: Array, y: Array, weights: Array) -> _LassoData:
        """The user's data, in these units."""
        return _LassoData(
            times_power_of_two(features, -self.of_features),
            times_power_of_two(y, -self.of_y),
            times_power_of_two(weights, -self.of_weights),
        )

    def penalty(self, penalty: Array) -> Array:
        """The user's penalty, in these units."""
        return times_power_of_two(penalty, -(self.of_features + self.of_y + self.of_weights))

    def value(self, c: Array, b: Array) -> tuple[Array, Array]:
        """The user's coefficients and bias, in these units."""
        return times_power_of_two(c, -self.of_c), times_power_of_two(b, -self.of_y)

    def users(self, c: Array, b: Array) -> tuple[Array, Array]:
        """Coefficients and bias in these units, in the user's."""
        return times_power_of_two(c, self.of_c), times_power_of_two(b, self.of_y)


class _Centred(eqx.Module):
    """Features and targets minus their weighted means, which eliminates the unpenalised bias;
    unchanged without a bias.
    """

    features: Float[Array, "n D"]
    y: Float[Array, " n"]
    centre: Float[Array, " D"]
    level: Float[Array, ""]


def _gap_in_features(
    problem: BoxProblem, c: Float[Array, " D"], data: _LassoData, centred: _Centred, *, bias: bool
) -> Float[Array, ""]:
    """The relative gap, computed with the slopes `Phi^T W (y - Phi c)` of the features themselves.

    Where the features are nearly collinear, the rounding of `Phi^T W Phi` changes the problem,
    whose gap may then be small although that of the features is not. The difference between both
    slopes counts only as far as it exceeds the rounding of the targets.
    """
    w = data.weights
    off = centred.y - matmul(centred.features, c)
    if bias:
        off = off - jnp.sum(w * off) / jnp.sum(w)  # the centre is rounded too
    slopes = matmul(w * off, centred.features)
    # Roundings add up like a random walk.
    squares = matmul((w * data.y) ** 2, centred.features**2)
    rounding = 8 * eps_of(c) * jnp.sqrt(squares)
    slopes = jnp.clip(problem.residual(c), slopes - rounding, slopes + rounding)
    point = DualPoint.of(problem, c, slopes, jnp.zeros((), jnp.int32))
    return certificate(point, problem).stats["relative_gap"]
