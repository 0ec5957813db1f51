"""Kernel logistic regression for two classes, by Newton's method."""

import jax.numpy as jnp
from jaxtyping import ArrayLike, PyTree

from kernax.core.boundary import as_scalar, as_weights, count, dtype_of
from kernax.core.expansion import KernelExpansion
from kernax.core.features import feature_operator, has_few_features
from kernax.core.gram import gram_operator
from kernax.core.kernel import AbstractKernel
from kernax.core.labels import as_signs
from kernax.core.losses import Logistic
from kernax.core.memory import check_memory
from kernax.core.operators import FeatureOperator
from kernax.core.preparation import prepare
from kernax.core.sharding import compiled
from kernax.core.solution import Solution, finish
from kernax.core.support import POSITIVE
from kernax.supervised.risk import newton_fit


def kernel_logistic(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    ridge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = True,
    rtol: float | None = None,
    max_steps: int = 100,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Minimises `sum_i w_i log(1 + exp(-y_i (f(x_i) + b))) + ridge/2 |f|^2`; `p(+1 | x) = 1 / (1 + exp(-f(x) - b))`.

    Damped Newton, which is iteratively reweighted ridge regression: with `h = w s(f) s(-f)`, s the logistic function, a full
    step solves `(H K + ridge I) a = h f + w y s(-y f) - h b` (Zhu & Hastie 2005; Bishop 2006, section 4.3.3). From a penalty
    `lambda |f|^2` on the mean loss, `ridge = 2 n lambda`.

    Arguments:
        kernel: any kernel; its parameters are cast to the dtype of X.
        X: stack of n points.
        y: -1 and +1, (n,); `signs(labels)` makes them from labels of any kind.
        ridge: > 0.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed.
        bias: an unpenalised b.
        rtol: what may be left of `ridge a = w y s(-y f)`, relative to its terms, beside the rounding of f. By default it is
            8 eps, and sqrt(eps) counts as a success where no step gets closer.
        max_steps: Newton steps, at most.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion`, the log odds of +1. Differentiable in the kernel, X, ridge and
        weights, to any order. Stats: `steps`, `objective`, `residual` (what is left of the conditions of optimality, relative
        to their terms, from which success is decided); of a `FeatureMap` of fewer features than points, which is solved in
        those, their number, `features`.

    Raises:
        ValueError: bad shapes or values, labels other than -1 and +1, one class only.
        BreakdownError: rounding is too coarse for these data. MaxStepsError, NonFiniteError, MemoryBudgetError.
    """
    kernel, X = prepare(kernel, X)
    n, dtype = count(X), dtype_of(X)
    weights = as_weights(weights, n, dtype)
    y = as_signs(y, n, dtype, weights)
    if y.ndim != 1:
        raise ValueError(f"y must have shape ({n},), but has shape {y.shape}: kernel_softmax takes several classes")
    ridge = as_scalar(ridge, dtype, "ridge", POSITIVE)
    if not (primal := has_few_features(kernel, X, ridge)):
        check_memory(X, verb="kernel_logistic")
    solution = _kernel_logistic(kernel, X, y, ridge, weights, bool(bias), rtol, max_steps, primal)
    return finish(solution, throw, f"kernel_logistic with {type(kernel).__name__}: a larger ridge may help.")


@compiled
def _kernel_logistic(kernel, X, y, ridge, weights, bias, rtol, max_steps, primal):
    operator = feature_operator(kernel, X) if primal else gram_operator(kernel, X)
    a, b, result, stats = newton_fit(operator, y, Logistic(), ridge, weights, bias, rtol, max_steps)
    stats |= {"features": jnp.asarray(operator.features.shape[1])} if isinstance(operator, FeatureOperator) else {}
    return Solution(KernelExpansion(kernel, X, a, b), result, stats)
