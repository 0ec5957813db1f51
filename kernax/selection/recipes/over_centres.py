"""Fits a kernel that was learned from few points to many points, over centres."""

import warnings

from jaxtyping import Array, Key, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.losses.loss_functions import Logistic
from kernax.errors import ConditionWarning
from kernax.gp.process import GaussianProcess
from kernax.gp.sparse_regression import sgpr
from kernax.scale.centres.choice import choose_centres
from kernax.scale.centres.falkon import falkon

# Exact enough for scores of four digits; the learned ridge may be so small that rounding allows no
# more.
_RTOL = 1e-4


def process_over_centres(
    kernel: AbstractKernel,
    X: PyTree,
    y: Array,
    noise: ArrayLike,
    centres: int,
    *,
    key: Key[Array, ""],
) -> GaussianProcess:
    """The process given all n targets, through inducing points drawn from X."""
    Z = choose_centres(kernel, X, centres, key=key)
    with warnings.catch_warnings():
        # The bound, which is not used: the process itself is judged by its residual.
        warnings.filterwarnings("ignore", ".*digits of the bound", ConditionWarning)
        return sgpr(GaussianProcess(kernel), X, y, noise, Z).value


def ridge_over_centres(
    kernel: AbstractKernel,
    X: PyTree,
    y: Array,
    ridge: ArrayLike,
    centres: int,
    *,
    key: Key[Array, ""],
) -> KernelExpansion:
    """Kernel ridge regression of all n targets, over centres drawn from X."""
    return falkon(kernel, X, y, ridge, centres, key=key, rtol=_RTOL).value


def logistic_over_centres(
    kernel: AbstractKernel,
    X: PyTree,
    signs: Array,
    ridge: ArrayLike,
    centres: int,
    *,
    key: Key[Array, ""],
) -> KernelExpansion:
    """Kernel logistic regression of all n signs with a bias, over centres drawn from X."""
    loss = Logistic()
    return falkon(kernel, X, signs, ridge, centres, key=key, loss=loss, bias=True, rtol=_RTOL).value
