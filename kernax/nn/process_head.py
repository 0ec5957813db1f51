"""A head of a network that is a Gaussian process."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike, ParameterArray
from kernax.core.base.boundary import as_stack
from kernax.core.base.parameters import check_intervals, data, positive
from kernax.core.base.printing import Printed
from kernax.core.base.solution import Solution
from kernax.core.linalg.linear_solvers import AUTO
from kernax.gp.process import GaussianProcess, as_process
from kernax.gp.regression import condition
from kernax.nn.heads import check_one_support_set, nan_unless_successful


class ProcessHead(Printed):
    """Gaussian process regression as a head: `head(X, y, X_new)` conditions a process on the
    support set X, y and returns its mean and variance at the query points X_new.

    Arguments and derivatives are those of `RidgeHead`, except for

        process: a prior `GaussianProcess`, or a kernel for the process of mean zero; the parameters
            of both are learned.
        noise: > 0, the variance of the noise, a parameter.
        solver: as in `condition`.

    It returns the mean (m,) or (m, outputs), and the variance (m,) of the function, which all
    outputs share; that of a target is larger by `head.noise`. Both are NaN if the solve fails.

    Examples:
        >>> head = kernax.nn.ProcessHead(kernax.RBF(0.3), noise=0.01)
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> mean, variance = head(X, jnp.sin(6.0 * X[:, 0]), jnp.array([[0.4], [5.0]]))
        >>> jnp.round(mean, 2), jnp.round(variance, 3)
        (Array([0.69, 0.  ], dtype=float64), Array([0.01, 1.  ], dtype=float64))
    """

    process: GaussianProcess = eqx.field(converter=as_process)
    noise: Float[ParameterArray, ""] = positive()
    solver: Any = data(kw_only=True, default=AUTO)

    def __check_init__(self):
        check_intervals(self)

    def solve(
        self, X: PyTree, y: ArrayLike, *, weights: ArrayLike | None = None
    ) -> Solution[GaussianProcess]:
        """The posterior process: `condition` with `throw=False`."""
        return condition(
            self.process, X, y, self.noise, weights=weights, solver=self.solver, throw=False
        )

    def __call__(
        self, X: PyTree, y: ArrayLike, X_new: PyTree, *, weights: ArrayLike | None = None
    ) -> tuple[Float[Array, "m *outputs"], Float[Array, " m"]]:
        """The mean and the variance of the function at the query points X_new."""
        check_one_support_set(y)
        X_new = as_stack(X_new, "X_new")
        solution = self.solve(X, y, weights=weights)
        posterior = solution.value
        mean = jax.vmap(posterior.mean)(X_new)
        variance = jax.vmap(posterior.variance)(X_new)
        return nan_unless_successful(mean, solution), nan_unless_successful(variance, solution)
