"""Heads of networks that are fitted functions: ridge regression, logistic regression, SVMs."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike, ParameterArray
from kernax.core.base.boundary import dtype_of
from kernax.core.base.numerics import is_concrete
from kernax.core.base.parameters import check_intervals, data, positive
from kernax.core.base.printing import Printed
from kernax.core.base.solution import RESULTS, Solution
from kernax.core.kernel.kernel import AbstractKernel, as_kernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.linalg.linear_solvers import AUTO
from kernax.supervised.machines.dual_solver import AbstractDualSolver
from kernax.supervised.machines.svm import svm
from kernax.supervised.ridge.ridge import kernel_ridge
from kernax.supervised.smooth.logistic import kernel_logistic
from kernax.supervised.smooth.softmax import kernel_softmax


class AbstractHead(Printed):
    """A head that predicts by the function that it fits to the support set."""

    kernel: eqx.AbstractVar[AbstractKernel]
    bias: eqx.AbstractVar[bool]

    def __check_init__(self):
        as_kernel(self.kernel)
        if not isinstance(self.bias, bool):
            raise ValueError(f"bias must be True or False, but is {self.bias!r}")
        check_intervals(self)

    @abc.abstractmethod
    def solve(
        self, X: PyTree, y: ArrayLike, *, weights: ArrayLike | None = None
    ) -> Solution[KernelExpansion]:
        """The fitted function, with the status and the stats of its solve. It never raises an error
        for a failed solve.
        """

    def __call__(
        self, X: PyTree, y: ArrayLike, X_new: PyTree, *, weights: ArrayLike | None = None
    ) -> Float[Array, "m *outputs"]:
        """The values at the query points X_new, NaN if the solve fails."""
        check_one_support_set(y)
        solution = self.solve(X, y, weights=weights)
        values = solution.value.values(X_new)
        return nan_unless_successful(values, solution)


def nan_unless_successful(values: Array, solution: Solution) -> Array:
    """The values, or NaN if the solve failed; a product, so that the derivative is NaN as well."""
    success = solution.result == RESULTS.successful
    return values * jnp.where(success, 1, jnp.nan).astype(values.dtype)


def check_one_support_set(y: ArrayLike) -> None:
    """Raises ValueError for targets of several support sets."""
    if np.ndim(y) > 2:
        raise ValueError(
            f"y must have shape (n,) or (n, outputs), but has shape {np.shape(y)}: "
            "jax.vmap(head)(X, y, X_new) takes a batch of support sets"
        )


class RidgeHead(AbstractHead):
    """Kernel ridge regression as a head: `head(X, y, X_new)` fits `kernel_ridge` to the support set
    X, y and returns its values at the query points X_new.

    It is differentiable in X, y, X_new, the weights, the kernel and the ridge: a loss of the values
    at query points trains the network that computes X and X_new.

    Arguments:
        kernel: any kernel; its parameters are learned.
        ridge: > 0, a parameter as well.
        bias: whether to fit a constant that is not penalised.
        solver: as in `kernel_ridge`, for example `solvers.ConjugateGradient()`; nothing in it is
            learned.

    Arguments of a call:
        X: the support points, a batch of n, such as the features (n, d) of a network.
        y: targets (n,) or (n, outputs); for classes, columns `jax.nn.one_hot(labels, n_classes)`.
        X_new: the query points, a batch of m.
        weights: (n,) >= 0. Zero removes a point, which makes support sets of different sizes arrays
            of one shape.

    Returns:
        Values (m,) or (m, outputs). If the solve fails they are NaN, and so are their derivatives
        with respect to the points. `head.solve(X, y, weights=weights)` is the `Solution` of the
        fit, with its status.

    An optimiser of the parameters themselves may make a ridge or a lengthscale negative, and all
    values are then NaN. Optimise the unconstrained parameters of the network and its head together:
    `kernax.unconstrain((network, head))`.

    Raises ValueError for bad shapes and for concrete values that are not allowed.

    Examples:
        >>> head = kernax.nn.RidgeHead(kernax.RBF(0.3), ridge=0.01)
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> jnp.round(head(X, jnp.sin(6.0 * X[:, 0]), jnp.array([[0.4], [0.6]])), 2)
        Array([ 0.69, -0.46], dtype=float64)
        >>> episodes = jnp.stack([X, X**2])  # two support sets of five points
        >>> jax.vmap(head)(episodes, jnp.sin(episodes[..., 0]), episodes).shape
        (2, 5)
    """

    kernel: AbstractKernel
    ridge: Float[ParameterArray, ""] = positive()
    bias: bool = eqx.field(static=True, kw_only=True, default=False)
    solver: Any = data(kw_only=True, default=AUTO)

    def solve(
        self, X: PyTree, y: ArrayLike, *, weights: ArrayLike | None = None
    ) -> Solution[KernelExpansion]:
        """The fitted function: `kernel_ridge` with `throw=False`."""
        return kernel_ridge(
            self.kernel,
            X,
            y,
            self.ridge,
            weights=weights,
            bias=self.bias,
            solver=self.solver,
            throw=False,
        )


class LogisticHead(AbstractHead):
    """Kernel logistic regression as a head: `head(X, y, X_new)` fits it to the support set X, y and
    returns log odds, or one logit for each class, at the query points X_new.

    Arguments, derivatives and failures are those of `RidgeHead`, except for

        y: one-hot columns (n, classes), such as `jax.nn.one_hot(labels, n_classes)`, or for two
            classes the signs -1 and +1, (n,).
        bias: True by default. Each class then needs a support point of positive weight.

    It returns the logits (m, classes) of `kernel_softmax`, the logarithms of the probabilities up
    to a constant, or the log odds (m,) of the class +1 of `kernel_logistic`.

    Examples:
        >>> head = kernax.nn.LogisticHead(kernax.RBF(0.3), ridge=0.1)
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> Y = jax.nn.one_hot(jnp.array([0, 0, 1, 2, 2]), 3)
        >>> jnp.round(jax.nn.softmax(head(X, Y, jnp.array([[0.1], [0.9]]))), 2)
        Array([[0.92, 0.05, 0.04],
               [0.04, 0.05, 0.92]], dtype=float64)
    """

    kernel: AbstractKernel
    ridge: Float[ParameterArray, ""] = positive()
    bias: bool = eqx.field(static=True, kw_only=True, default=True)

    def solve(
        self, X: PyTree, y: ArrayLike, *, weights: ArrayLike | None = None
    ) -> Solution[KernelExpansion]:
        """The fitted function: `kernel_softmax`, or `kernel_logistic` for signs, with
        `throw=False`.
        """
        fit = kernel_softmax if np.ndim(y) == 2 else kernel_logistic
        return fit(self.kernel, X, y, self.ridge, weights=weights, bias=self.bias, throw=False)


class SVMHead(AbstractHead):
    """Support vector machines as a head: `head(X, y, X_new)` fits `svm` to the support set X, y,
    one class against the rest, and returns the decision values at the query points X_new.

    Arguments, derivatives and failures are those of `RidgeHead`, except for

        C: > 0, the weight of the loss, a parameter.
        y: one-hot columns (n, classes), such as `jax.nn.one_hot(labels, n_classes)`, or for two
            classes the signs -1 and +1, (n,).
        bias: True by default. Each class needs a support point of positive weight, with a bias and
            without.
        solver: as in `svm`, for example `solvers.SMO(rtol=1e-6)`.

    It returns one decision value for each class (m, classes), the largest for the predicted class,
    or (m,) for signs. The derivative holds while the support vectors stay the same, and is
    one-sided where they change. Values are solved to the tolerance of `svm`, 1e-3, but exactly
    where a derivative is taken: compare a gradient with finite differences of the values that
    `jax.value_and_grad` returns. A cross-entropy of the decision values is a common loss for
    training (Lee, Maji, Ravichandran & Soatto 2019).

    Examples:
        >>> head = kernax.nn.SVMHead(kernax.RBF(0.3), C=10.0)
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> Y = jax.nn.one_hot(jnp.array([0, 0, 1, 2, 2]), 3)
        >>> jnp.argmax(head(X, Y, jnp.array([[0.1], [0.5], [0.9]])), 1)
        Array([0, 1, 2], dtype=int64)
    """

    kernel: AbstractKernel
    C: Float[ParameterArray, ""] = positive()
    bias: bool = eqx.field(static=True, kw_only=True, default=True)
    solver: AbstractDualSolver | None = data(kw_only=True, default=None)

    def solve(
        self, X: PyTree, y: ArrayLike, *, weights: ArrayLike | None = None
    ) -> Solution[KernelExpansion]:
        """The fitted functions: `svm` with `throw=False`."""
        if np.ndim(y) == 2:
            # Columns of -1 and +1 from columns of 0 and 1.
            if is_concrete(y):
                values = np.asarray(y)
                # NaN is allowed in rows of weight zero; `svm` refuses others.
                if not np.all((values == 0) | (values == 1) | (values != values)):
                    raise ValueError(
                        "y must hold one-hot columns of 0 and 1, but holds "
                        f"{', '.join(f'{value:g}' for value in np.unique(values)[:5])}: "
                        "jax.nn.one_hot(labels, n_classes), or (Y + 1) / 2 for columns of -1 and +1"
                    )
            y = 2 * jnp.asarray(y, dtype_of(X)) - 1
        return svm(
            self.kernel,
            X,
            y,
            self.C,
            weights=weights,
            bias=self.bias,
            solver=self.solver,
            throw=False,
        )
