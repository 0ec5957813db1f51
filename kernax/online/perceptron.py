"""The kernel perceptron."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from kernax._advice import IN_FEATURES
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import compiled
from kernax.core.base.intervals import POSITIVE, REAL
from kernax.core.base.labels import as_signs
from kernax.core.base.numerics import matmul, stop_gradient
from kernax.core.base.parameters import as_steps
from kernax.core.base.solution import RESULTS, Solution, finish, first_that_holds, void_unless_known
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import check_problem
from kernax.core.operators.memory import Footprint
from kernax.online.rules import Perceptron

_FOOTPRINT = Footprint(
    "kernel_perceptron",
    1.0,
    IN_FEATURES,
)


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
    """The kernel perceptron: adds `rate y_i k(x_i, .)` to f for each mistake, `y_i (f(x_i) -
    threshold) <= 0`.

    It repeats passes over the points until a pass makes no mistake (Rosenblatt 1958; Aizerman,
    Braverman & Rozonoer 1964). In the features of the kernel this is the primal perceptron, step by
    step. If a function f* has `y_i f*(x_i) >= 1` at every point, there are at most `max_i k(x_i,
    x_i) |f*|^2` mistakes with threshold zero, whatever the rate (Novikoff 1962).

    Arguments:
        kernel, X: any kernel, and a batch of n points.
        y: labels -1 and +1, (n,).
        rate: > 0. With threshold zero it only changes the scale of f.
        threshold: a constant subtracted from f. It is not learned: add a constant to the kernel to
            learn a bias.
        averaged: return the mean of the functions after every step instead of the last function; it
            generalises better where the data are noisy (Freund & Schapire 1999).
        max_epochs: the largest number of passes over the points.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion` with bias `-threshold`. Its status is
        `max_steps_reached` if the last pass still made mistakes. Small changes of the arguments
        change no mistake: derivatives hold them fixed, so that f has one in the rate, which scales
        it, in the threshold, and in the kernel and the points at which it is expanded. Stats: the
        number of `mistakes` and of `epochs`; and the number of `features` if the primal form ran,
        as for a `FeatureMap` with fewer features than points.

    Raises:
        ValueError: bad shapes or values.
        MaxStepsError: the points were not separated.
        MemoryBudgetError: K does not fit into memory.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> solution = kernax.kernel_perceptron(kernax.RBF(0.3), X, y)
        >>> jnp.sign(solution.value.values(X))
        Array([-1., -1.,  1.,  1.,  1.], dtype=float64)
        >>> int(solution.stats["mistakes"])
        3
    """
    problem = check_problem(
        "kernel_perceptron",
        kernel,
        X,
        y,
        targets=as_signs,
        one_column="batch over its columns with jax.vmap",
        in_features=True,
        has_weights=False,
        throw=throw,
        footprint=_FOOTPRINT,
    )
    most_epochs = as_steps(max_epochs, "max_epochs")
    rate = problem.scalar(rate, "rate", POSITIVE, throw=throw)
    threshold = problem.scalar(threshold, "threshold", REAL, throw=throw)
    solution = _kernel_perceptron(problem, rate, threshold, bool(averaged), most_epochs)
    hint = (
        "kernel_perceptron: raise max_epochs, or, as the kernel may not separate these points, "
        "pass averaged=True, throw=False."
    )
    return finish(solution, throw, hint)


class _PerceptronState(eqx.Module):
    """The perceptron between two steps.

    Attributes:
        beta: the coefficients.
        f: the values at all points, or the weights of the features.
        total: the sum of the coefficients after every step.
        mistakes: the number of mistakes so far.
        epochs: the number of passes over the points so far.
        unfinished: whether the last pass made mistakes.
    """

    beta: Float[Array, " n"]
    f: Float[Array, " m"]
    total: Float[Array, " n"]
    mistakes: Int[Array, ""]
    epochs: Int[Array, ""]
    unfinished: Bool[Array, ""]


class _Perceptron(eqx.Module):
    """The epochs of the perceptron. The state f holds the weights of the features with rows F, or
    the values at all points with the rows of K; the steps are the same.
    """

    rows: Float[Array, "n m"]
    y: Float[Array, " n"]
    rule: Perceptron
    threshold: Float[Array, ""]
    in_features: bool = eqx.field(static=True)
    averaged: bool = eqx.field(static=True)

    def start(self) -> _PerceptronState:
        """The function zero."""
        nothing = jnp.zeros_like(self.y)
        zero = jnp.zeros((), jnp.int32)
        f = jnp.zeros_like(self.rows[0])
        return _PerceptronState(nothing, f, nothing, zero, zero, jnp.array(True))

    def change(self, i: Int[Array, ""], now: _PerceptronState) -> Float[Array, ""]:
        """The change of the coefficient of point i, nonzero if its prediction is a mistake."""
        # f(x_i) = w.phi(x_i), O(m), or its stored value, O(1).
        value = matmul(self.rows[i], now.f) if self.in_features else now.f[i]
        one = jnp.ones_like(value)  # the rule does not use the step and the square
        return self.rule.move(one, value - self.threshold, self.y[i], one).coefficient

    def visit(self, i: Int[Array, ""], now: _PerceptronState) -> _PerceptronState:
        """Moves the coefficient of point i towards its label if its prediction is a mistake."""
        change = self.change(i, now)
        wrong = change != 0
        beta = now.beta.at[i].add(change)
        return _PerceptronState(
            beta=beta,
            # f(x_j) + change k(x_i, x_j) for all j, or w + change phi(x_i).
            f=now.f + change * self.rows[i],
            total=now.total + beta if self.averaged else now.total,
            mistakes=now.mistakes + wrong.astype(jnp.int32),
            epochs=now.epochs,
            unfinished=now.unfinished,
        )

    def epoch(self, now: _PerceptronState) -> _PerceptronState:
        """Visits all points once."""
        after = lax.fori_loop(0, len(self.y), lambda i, now: self.visit(i, now), now)
        progress = after.mistakes > now.mistakes, after.epochs + 1
        return eqx.tree_at(lambda state: (state.unfinished, state.epochs), after, progress)

    def run(self, max_epochs: Array) -> _PerceptronState:
        """Repeats passes until one makes no mistake."""

        def go_on(now: _PerceptronState) -> Array:
            return now.unfinished & (now.epochs < max_epochs)

        return lax.while_loop(go_on, lambda now: self.epoch(now), self.start())

    def learned(self, end: _PerceptronState) -> Float[Array, " n"]:
        """The last coefficients, or their mean over all steps."""
        if not self.averaged:
            return end.beta
        # 1/T sum_t beta_t with T = epochs n steps (Freund & Schapire 1999).
        return end.total / (end.epochs.astype(self.y.dtype) * len(self.y))


@compiled
def _kernel_perceptron(problem, rate, threshold, averaged, max_epochs):
    # Mistakes are step functions of all arguments; the coefficients are the rate times their
    # numbers.
    gram = stop_gradient(problem.gram())
    fixed_rate, y = stop_gradient((rate, problem.y))
    in_features = problem.layout.in_features
    rows = gram.features if in_features else gram.as_matrix()
    rule = Perceptron(fixed_rate)
    perceptron = _Perceptron(rows, y, rule, stop_gradient(threshold), in_features, averaged)
    end = perceptron.run(max_epochs)
    beta = perceptron.learned(end) * (rate / fixed_rate)
    # The arrays must be finite, because NaN makes no mistakes.
    arrays = (beta, end.f, problem.y, threshold)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(array)) for array in arrays]))
    statuses = (
        (~finite, RESULTS.nonfinite),
        (end.unfinished, RESULTS.max_steps_reached),
    )
    result = first_that_holds(statuses, RESULTS.successful)
    void = void_unless_known((beta, -threshold), result)
    stats = {"mistakes": end.mistakes, "epochs": end.epochs} | problem.figures(gram)
    return Solution(KernelExpansion(problem.kernel, problem.X, *void), result, stats)
