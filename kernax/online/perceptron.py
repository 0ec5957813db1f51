"""The kernel perceptron."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import ArrayLike, PyTree

from kernax.core.boundary import as_scalar, count, dtype_of
from kernax.core.expansion import KernelExpansion
from kernax.core.features import feature_operator, has_few_features
from kernax.core.gram import gram_of_prepared
from kernax.core.kernel import AbstractKernel
from kernax.core.labels import as_signs
from kernax.core.memory import check_memory
from kernax.core.numerics import product, stopped
from kernax.core.preparation import prepare
from kernax.core.sharding import compiled, while_loop
from kernax.core.solution import RESULTS, Solution, finish, void_unless_known
from kernax.core.support import POSITIVE, REAL


def kernel_perceptron(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    *,
    rate: ArrayLike = 1.0,
    threshold: ArrayLike = 0.0,
    averaged: bool = False,
    max_epochs: int = 100,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Adds `rate y_i k(x_i, .)` to f for each mistake, `y_i (f(x_i) - threshold) <= 0`, pass after pass over the points, until
    there is none (Rosenblatt 1958; Aizerman, Braverman & Rozonoer 1964).

    In the features of the kernel this is the primal perceptron, step by step. If a function f* has `y_i f*(x_i) >= 1` at
    every point, there are at most `max_i k(x_i, x_i) |f*|^2` mistakes with threshold zero, whatever the rate (Novikoff 1962).

    Arguments:
        kernel, X: any kernel, a stack of n points.
        y: -1 and +1, (n,).
        rate: > 0. With threshold zero it changes the scale of f only.
        threshold: subtracted from f; it is not learned, add a constant to the kernel for that.
        averaged: return the mean of the functions after every step, which generalises better where the data are noisy
            (Freund & Schapire 1999), instead of the last.
        max_epochs: passes over the points, at most.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion` with bias `-threshold`. `max_steps_reached` if the last pass still
        made mistakes. A step function of its arguments: its derivative is zero. Stats: `mistakes`, and `epochs`
        made; `features`, their number, where it is the primal that was run, for a `FeatureMap` of fewer features than points.

    Raises:
        ValueError: bad shapes or values. MaxStepsError: the points were not separated. MemoryBudgetError.
    """
    kernel, X = prepare(kernel, X)
    n, dtype = count(X), dtype_of(X)
    y = as_signs(y, n, dtype, None)
    if y.ndim != 1:
        raise ValueError(f"y must have shape ({n},), but has shape {y.shape}: batch over its columns with jax.vmap")
    if max_epochs < 1:
        raise ValueError(f"max_epochs must be positive, but is {max_epochs}")
    if not (primal := has_few_features(kernel, X, 1.0)):
        check_memory(X, verb="kernel_perceptron")
    rate, threshold = as_scalar(rate, dtype, "rate", POSITIVE), as_scalar(threshold, dtype, "threshold", REAL)
    solution = _kernel_perceptron(kernel, X, y, rate, threshold, bool(averaged), max_epochs, primal)
    return finish(solution, throw, "kernel_perceptron: the kernel may not separate these points; averaged=True, throw=False.")


@compiled
def _kernel_perceptron(kernel, X, y, rate, threshold, averaged, max_epochs, primal):
    # The same steps, with f the values at all points and rows of K, or with f the weights of the features and rows of those.
    rows = stopped(feature_operator(kernel, X).features if primal else gram_of_prepared(kernel, X))
    zero = jnp.zeros((), jnp.int32)

    def visit(i, carry):
        beta, f, total, mistakes = carry
        value = product(rows[i], f) if primal else f[i]
        wrong = y[i] * (value - threshold) <= 0
        change = jnp.where(wrong, rate * y[i], 0)
        beta = beta.at[i].add(change)
        return beta, f + change * rows[i], total + beta if averaged else total, mistakes + wrong.astype(jnp.int32)

    def epoch(carry):
        state, _, epochs = carry
        new = lax.fori_loop(0, len(y), visit, state)
        return new, new[3] > state[3], epochs + 1

    start = ((jnp.zeros_like(y), jnp.zeros_like(rows[0]), jnp.zeros_like(y), zero), jnp.array(True), zero)
    go_on = lambda carry: carry[1] & (carry[2] < max_epochs)
    (beta, f, total, mistakes), unfinished, epochs = while_loop(go_on, epoch, start)
    beta = total / (epochs * len(y)).astype(y.dtype) if averaged else beta
    finite = jnp.all(jnp.isfinite(beta)) & jnp.all(jnp.isfinite(f)) & jnp.all(jnp.isfinite(y))  # NaN makes no mistakes
    result = RESULTS.where(unfinished, RESULTS.max_steps_reached, RESULTS.successful)
    result = RESULTS.where(finite, result, RESULTS.nonfinite)
    beta, bias = void_unless_known((beta, -threshold), result)
    expansion = KernelExpansion(kernel, X, beta, bias)
    stats = {"mistakes": mistakes, "epochs": epochs} | ({"features": jnp.asarray(rows.shape[1])} if primal else {})
    return Solution(expansion, result, stats)
