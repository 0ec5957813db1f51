"""A kernel that was learned from few points, fitted to many over centres."""

import warnings

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Key, PyTree

from kernax.core.expansion import KernelExpansion
from kernax.core.kernel import AbstractKernel, Constant
from kernax.core.losses import Logistic
from kernax.errors import ConditionWarning
from kernax.gp.process import GaussianProcess
from kernax.gp.sparse_regression import sgpr
from kernax.scale.choice import choose_centres
from kernax.scale.falkon import falkon

# The prior variance of the bias, in place of none: of log odds, which are some units at most.
_OF_BIAS = 100.0


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
    return falkon(kernel, X, y, ridge, centres, key=key).value


def logistic_over_centres(
    kernel: AbstractKernel,
    X: PyTree,
    signs: Array,
    ridge: ArrayLike,
    centres: int,
    *,
    key: Key[Array, ""],
) -> KernelExpansion:
    """Kernel logistic regression of all n signs, over centres drawn from X.

    Its bias is that of a constant added to the kernel, `c sum_j a_j`, and is returned as one.
    """
    with_bias = kernel + Constant(jnp.asarray(_OF_BIAS))
    function = falkon(with_bias, X, signs, ridge, centres, key=key, loss=Logistic()).value
    bias = _OF_BIAS * jnp.sum(function.coefficients)
    parts = lambda function: (function.kernel, function.bias)
    return eqx.tree_at(parts, function, (kernel, bias))
