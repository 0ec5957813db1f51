"""Conjugate gradients as a solver of linear systems."""

from typing import Any

import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float, Int

from kernax.core.base.numerics import is_concrete, stop_gradient
from kernax.core.base.parameters import check_stopping
from kernax.core.base.solution import ROUNDING
from kernax.core.linalg.iteration import Iteration
from kernax.core.linalg.krylov_factor import Determinant, KrylovFactor
from kernax.core.linalg.lanczos import AbstractLanczos, log_determinant_by_probes
from kernax.core.linalg.linear_solvers import AbstractFactorSolver, refuse_options
from kernax.core.linalg.preconditioners import AbstractPreconditioner, Preconditioner, shift_of


class ConjugateGradient(AbstractFactorSolver):
    """Conjugate gradients (Hestenes & Stiefel 1952) until `|b - A x| <= rtol |b|` in the 2-norm.

    The result does not depend on the units of A and b. The true residual, which is computed every
    ten steps and at the end, decides about convergence. The value is the best iterate. The
    iteration stops early if A is not positive along a direction, if only the residual of the
    recurrence still decreases, or if the residual is at most ten times the rounding error `eps |A|
    |x|` and has not halved for 100 steps. The result is then `breakdown`, unless the residual is
    within twice rtol. In float32 and with 10000 points rounding often leaves a residual of 1e-3
    |b|; the default rtol is then unattainable, and 1e-2 is appropriate. `stats["steps"]` is the
    number of steps.

    Attributes:
        rtol: the relative residual at which to stop. The default is eps^(2/3), 4e-11 in float64 and
            2e-5 in float32. Solves for variances, which are differences, use at least the default.
        max_steps: the largest number of steps, by default 1000.
        preconditioner: an approximation of the Gram matrix, such as `PivotedCholesky(key)`, which
            reduces the number of steps.
        determinant: the estimator of the log determinant, which `log_marginal_likelihood` needs:
            `StochasticLanczos(key)`.
        start: approximate solutions (n, columns), which reduce the number of steps. `warm_started`
            provides them from an earlier solution, such as that for other hyperparameters. Each
            solve starts at the best multiple of its column, which is never worse than zero.

    Raises ValueError for a tolerance that is not positive, for less than one step, for an operator
    that is not tagged as positive semidefinite, and for a start of other points.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> solver = kernax.solvers.ConjugateGradient(rtol=1e-6)
        >>> solution = kernax.kernel_ridge(kernax.RBF(0.3), X, y, ridge=0.01, solver=solver)
        >>> bool(solution.stats["residual"] <= 1e-6)
        True
    """

    rtol: float | Float[Array, ""] | None = None
    max_steps: int | Int[Array, ""] = 1000
    preconditioner: AbstractPreconditioner | None = None
    determinant: AbstractLanczos | None = None
    start: Float[Array, "n columns"] | None = None

    def __check_init__(self):
        check_stopping(self.rtol, self.max_steps)

    @property
    def knows_determinant(self):
        return self.determinant is not None

    def accurate_residual(self, dtype):
        return self._iteration.accurate_residual(dtype)

    def advice(self):
        return (
            " So may a preconditioner, or a larger rtol: rounding allows about 1e-2 in float32 "
            "for thousands of points."
        )

    def cause_of_rounding(self):
        if self.rtol is None or not is_concrete(self.rtol):
            return ROUNDING
        return f"the tolerance of the solves, rtol={self.rtol:g}, with so little noise"

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> KrylovFactor:
        if not lx.is_positive_semidefinite(operator):
            raise ValueError(
                "ConjugateGradient needs an operator tagged lineax.positive_semidefinite_tag: tag "
                "it if it is positive semidefinite"
            )
        refuse_options(self, options)
        near = None if self.preconditioner is None else self.preconditioner.made_of(operator)
        operator = lx.linearise(operator)
        start = self._checked_start(operator.in_size())
        determinant = self._determinant(operator, near)
        return KrylovFactor.of(operator, near, self._iteration, determinant, start)

    def _checked_start(self, n: int) -> Float[Array, "n columns"] | None:
        """The start, a constant for derivatives. Raises ValueError for another shape."""
        if self.start is None:
            return None
        if self.start.ndim != 2 or len(self.start) != n:
            raise ValueError(
                f"start of ConjugateGradient must have shape ({n}, columns), a row for each point, "
                f"but has shape {self.start.shape}: it belongs to other points, so compute it "
                "again for these, or omit it"
            )
        return stop_gradient(self.start)

    @property
    def _iteration(self) -> Iteration:
        """The stopping rule."""
        return Iteration(self.rtol, self.max_steps)

    def tolerance(self, dtype: Any) -> Array:
        """The relative residual that counts as converged in a dtype."""
        return self._iteration.tolerance(dtype)

    def _determinant(
        self, operator: lx.AbstractLinearOperator, near: Preconditioner | None
    ) -> Determinant | None:
        """`log |M| = log |L L^T| + log |L^-1 M L^-T|`, where the second term is estimated."""
        if self.determinant is None:
            return None
        z = self.determinant.signs(operator.in_size(), operator.in_structure().dtype)
        operator = stop_gradient(operator)

        def multiply(v: Array) -> Array:
            # L^-1 M L^-T v.
            if near is None:
                return operator.mv(v)
            return near.solve_root(operator.mv(near.solve_root_transposed(v)))

        # M = S K S + D' is at least F F^T + D', and L L^T = F F^T + D with D >= D', so that no
        # eigenvalue of L^-1 M L^-T is below the least entry of D' / D.
        shift = shift_of(operator)
        least = jnp.min(shift if near is None else shift / near.root**2)
        # log |M| is log |L L^T| plus the mean of z.log(L^-1 M L^-T) z.
        left = log_determinant_by_probes(multiply, z, self.determinant.n_steps, least)
        return Determinant(left if near is None else left.plus(near.log_determinant()), z)
