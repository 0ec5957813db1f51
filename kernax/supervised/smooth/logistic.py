"""Kernel logistic regression for two classes, by Newton's method."""

from jaxtyping import PyTree

from kernax._advice import over_centres
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import compiled
from kernax.core.base.intervals import POSITIVE
from kernax.core.base.labels import as_signs
from kernax.core.base.parameters import as_stopping
from kernax.core.base.solution import Solution, finish
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import check_problem
from kernax.core.learner.starts import coefficients_and_bias_of
from kernax.core.losses.loss_functions import Logistic
from kernax.core.losses.modes import newton_fit
from kernax.core.operators.memory import Footprint

_FOOTPRINT = Footprint(
    "kernel_logistic", 3.6, over_centres(", loss=kernax.losses.Logistic(), bias=True")
)


def kernel_logistic(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    ridge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = True,
    start: KernelExpansion | None = None,
    rtol: float | None = None,
    max_steps: int = 500,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Kernel logistic regression for two classes: minimises `sum_i w_i log(1 + exp(-y_i (f(x_i) +
    b))) + ridge/2 |f|^2`.

    The probability of class +1 at x is `1 / (1 + exp(-f(x) - b))`. Damped Newton steps are
    iteratively reweighted least squares (IRLS): with `h = w s(f) s(-f)`, s the logistic function, a
    full step solves `(H K + ridge I) a = h f + w y s(-y f) - h b` (Zhu & Hastie 2005; Bishop 2006,
    section 4.3.3). A penalty `lambda |f|^2` on the mean loss is `ridge = 2 n lambda`.

    Arguments:
        kernel: any kernel; its parameters are cast to the dtype of X.
        X: a batch of n points.
        y: labels -1 and +1, (n,); `signs(labels)` makes them from labels of any kind.
        ridge: > 0.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed.
        bias: an unpenalised b.
        start: a solution for the same points to start from, such as that of the last ridge on a
            path. It changes the steps, not the solution.
        rtol: the largest residual of `ridge a = w y s(-y f)` that is accepted, relative to its
            terms and beyond the rounding of f. The default is 8 eps, and sqrt(eps) where no step
            lowers it further.
        max_steps: the largest number of Newton steps.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion`, the log odds of +1, differentiable in the
        kernel, X, ridge and weights, to any order. Stats: `steps`, `objective`, and the `residual`
        of the conditions of optimality, relative to their terms, which decides about success; and
        the number of `features` if the problem was solved in explicit features, as for a
        `FeatureMap` with fewer features than points.

    Raises:
        ValueError: bad shapes or values, labels other than -1 and +1, one class only.
        BreakdownError: rounding is too coarse for these data.
        MaxStepsError, NonFiniteError, MemoryBudgetError: see `kernax.errors`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> f = kernax.kernel_logistic(kernax.RBF(0.3), X, y, ridge=0.1).value
        >>> log_odds = f(jnp.array([0.9]))
        >>> round(float(jax.nn.sigmoid(log_odds)), 2)  # the probability of class +1
        0.93
    """
    stopping = as_stopping(rtol, max_steps)
    problem = check_problem(
        "kernel_logistic",
        kernel,
        X,
        y,
        weights,
        targets=as_signs,
        one_column="kernel_softmax takes several classes",
        in_features=True,
        throw=throw,
        footprint=_FOOTPRINT,
    )
    ridge = problem.scalar(ridge, "ridge", POSITIVE, throw=throw)
    near = coefficients_and_bias_of(start, problem, bool(bias))
    solution = _kernel_logistic(problem, ridge, bool(bias), near, *stopping)
    hint = f"kernel_logistic with {problem.kernel_name}: a larger ridge may help."
    return finish(solution, throw, hint)


@compiled
def _kernel_logistic(problem, ridge, bias, start, rtol, max_steps):
    """The minimiser, by Newton's method in the coefficients."""
    gram = problem.gram()
    mode = newton_fit(
        gram,
        problem.y,
        Logistic(),
        ridge,
        problem.weights,
        bias,
        start=start,
        rtol=rtol,
        max_steps=max_steps,
    )
    expansion = KernelExpansion(problem.kernel, problem.X, mode.coefficients, mode.bias)
    return Solution(expansion, mode.result, mode.stats | problem.figures(gram))
