"""Kernel logistic regression for several classes, by Newton's method with the full Hessian over all
of them.
"""

from functools import partial

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from kernax._advice import IN_FEATURES
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import compiled
from kernax.core.base.intervals import POSITIVE
from kernax.core.base.labels import as_one_hot
from kernax.core.base.parameters import as_stopping
from kernax.core.base.solution import Solution, finish
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import check_problem
from kernax.core.losses.softmax_mode import softmax_fit
from kernax.core.operators.memory import Footprint

_FOOTPRINT = Footprint("kernel_softmax", 10.4, IN_FEATURES, of_each_column=1.08)


def kernel_softmax(
    kernel: AbstractKernel,
    X: PyTree,
    Y: ArrayLike,
    ridge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = True,
    rtol: float | None = None,
    max_steps: int = 500,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Kernel logistic regression for several classes: minimises `-sum_i w_i log p(class_i | x_i) +
    ridge/2 sum_c |f_c|^2`, `p(c | x) = softmax_c(f(x) + b)`.

    Damped Newton steps use the full Hessian over all classes (Rasmussen & Williams 2006, algorithm
    3.3, without its square roots of zero). A step takes about `classes + 1` factorisations of size
    n; for a kernel with explicit features, such as a `FeatureMap`, it takes one factorisation of
    size features times classes, without K, if that size is at most twice the number of points. The
    biases sum to zero. With two classes and `f = f_2 - f_1` this is `kernel_logistic` with half the
    ridge.

    Arguments and errors are those of `kernel_logistic`, without `start`, and with one-hot Y (n,
    classes) from `one_hot(labels)`. With a bias each class needs a point of positive weight. The
    `value` has coefficients (n, classes), which sum to zero over the classes.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> Y, classes = kernax.one_hot(["low", "low", "middle", "high", "high"])
        >>> f = kernax.kernel_softmax(kernax.RBF(0.3), X, Y, ridge=0.1).value
        >>> classes
        ('high', 'low', 'middle')
        >>> jnp.round(jax.nn.softmax(f(jnp.array([0.9]))), 2)
        Array([0.92, 0.04, 0.05], dtype=float64)
    """
    stopping = as_stopping(rtol, max_steps)
    checked = partial(
        check_problem,
        "kernel_softmax",
        kernel,
        X,
        Y,
        weights,
        footprint=_FOOTPRINT,
        targets=partial(as_one_hot, every=bool(bias)),
        throw=throw,
    )
    in_features = isinstance(kernel, AbstractKernel) and kernel.explicit_features() is not None
    problem = checked(in_features=in_features)
    if problem.layout.in_features:
        # One factorisation of size features times classes must be faster than the `classes + 1` of
        # size n with their inverses.
        width = eqx.filter_eval_shape(lambda problem: problem.gram().features, problem).shape[1]
        if width * problem.y.shape[1] > 2 * problem.n:
            problem = checked()
    ridge = problem.scalar(ridge, "ridge", POSITIVE, throw=throw)
    solution = _kernel_softmax(problem, ridge, bool(bias), *stopping)
    hint = f"kernel_softmax with {problem.kernel_name}: a larger ridge may help."
    return finish(solution, throw, hint)


@compiled
def _kernel_softmax(problem, ridge, bias, rtol, max_steps):
    gram = problem.gram()
    mode = softmax_fit(
        gram,
        problem.y,
        jnp.zeros_like(problem.y),
        ridge,
        problem.weights.values,
        bias,
        rtol=rtol,
        max_steps=max_steps,
    )
    function = KernelExpansion(problem.kernel, problem.X, mode.coefficients, mode.bias)
    return Solution(function, mode.result, mode.stats | problem.figures(gram))
