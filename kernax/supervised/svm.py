"""Support vector machines for two classes, for regression and for one class; differentiable through the solution."""

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import ArrayLike, PyTree

from kernax.core.batching import each
from kernax.core.boundary import as_scalar, as_targets, as_weights, count, dtype_of
from kernax.core.expansion import KernelExpansion
from kernax.core.gram import checked_block, gram, gram_operator
from kernax.core.kernel import AbstractKernel
from kernax.core.labels import as_signs
from kernax.core.losses import EpsilonInsensitive, Hinge
from kernax.core.memory import check_memory
from kernax.core.numerics import is_concrete, stopped
from kernax.core.preparation import prepare
from kernax.core.sharding import compiled
from kernax.core.solution import MOST_FOR_EIGENVALUES, Solution, finish, of_all, void_unless_known, warn
from kernax.core.support import NONNEGATIVE, Support
from kernax.errors import ConditionWarning
from kernax.supervised.certificate import seen_indefinite
from kernax.supervised.dual import AbstractDualSolver, BoxProblem, as_dual_solver
from kernax.supervised.machine import machine, of_loss, spread
from kernax.supervised.smo import SMO

PENALTY = Support(low=0.0, closed=(False, True))  # infinity is the hard margin
_FRACTION = Support(low=0.0, high=1.0, closed=(False, True))


def svm(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    C: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = True,
    solver: AbstractDualSolver | None = None,
    block_size: int | None = None,
    start: KernelExpansion | None = None,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Minimises `C sum_i w_i max(0, 1 - y_i (f(x_i) + b)) + 1/2 |f|^2`: the soft-margin machine (Cortes & Vapnik 1995).

    The dual is `max sum_i a_i - 1/2 sum_ij a_i a_j y_i y_j K_ij` over `0 <= a_i <= C w_i` and `sum_i a_i y_i = 0`; the
    coefficients are `a_i y_i`. The bias is that of the free vectors (`0 < a_i < C w_i`, which lie on the margin), or the
    midpoint of the interval that is optimal where there are none. From a penalty `lambda |f|^2` on the mean loss,
    `C = 1 / (2 n lambda)`.

    Differentiable in the kernel, X, C and weights: given which vectors are free and which bounded, the solution is that of a
    linear system. Before it is differentiated it is polished to be exactly that, whatever the solver's tolerance. The
    derivative is one-sided where the active set is about to change.

    Arguments:
        kernel: any kernel; its parameters are cast to the dtype of X.
        X: stack of n points.
        y: -1 and +1, (n,), or (n, machines) for several machines, one against the rest for each class:
            `2 * one_hot(labels)[0] - 1`.
        C: > 0; `jnp.inf` is the hard margin.
        weights: (n,) >= 0, each multiplies its point's C: class weights, folds, one class against one other.
        bias: without it the sum constraint goes too, leaving the box alone.
        solver: default `SMO()`; `ProjectedGradient()` for batches and accelerators.
        block_size: rows of K computed at a time; K is then never held, only the solver's working set.
        start: a machine for the same points to start from: the last one along a path of C.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion`; its sign is the class. Stats: `primal`, `dual` and their `gap`, from
        which success is decided (at most the solver's `tol` of the objective; 16 roundings of f are not held against a point,
        as C times a rounding may be more than the objective), `support`, `bounded` and `free` vectors,
        `steps`; shape (machines,) where there are several. `indefinite`: whether a K that is held has `K_ij^2 > K_ii K_jj`
        for some pair, of which a ConditionWarning then names the smallest eigenvalue. In the units of the targets and of K
        nothing over- or underflows inside; `primal`, `dual` and `gap`, in those of their squares, may.

    Raises:
        ValueError: bad shapes or values, labels other than -1 and +1, one class only.
        MaxStepsError: C is too large for the data as they are scaled. DivergedError: a hard margin, and all steps did not
        separate the classes: it does not exist, or is too narrow to be found.
        BreakdownError: the tolerance is below what rounding allows: of f, or of the terms of K b where they cancel (centre the
        points, for a linear kernel). NonFiniteError, MemoryBudgetError.
    """
    kernel, X = prepare(kernel, X)
    n, dtype = count(X), dtype_of(X)
    weights = as_weights(weights, n, dtype)
    y = as_signs(y, n, dtype, weights)
    C = as_scalar(C, dtype, "C", PENALTY)
    solution = _svm(kernel, X, y, C, weights, bool(bias), *_settings("svm", X, y.shape, solver, block_size, start))
    return _finished(solution, throw, "svm", kernel, X)


@compiled
def _svm(kernel, X, y, C, weights, bias, solver, block_size, start):
    def problem(operator, y):
        return of_loss(operator, Hinge(), y, _bound(C, weights, y), bias, jnp.ones((), y.dtype))

    return _machines(kernel, X, y, problem, solver, block_size, start)


def support_vector_regression(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    C: ArrayLike,
    epsilon: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = True,
    solver: AbstractDualSolver | None = None,
    block_size: int | None = None,
    start: KernelExpansion | None = None,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Minimises `C sum_i w_i max(0, |y_i - f(x_i) - b| - epsilon) + 1/2 |f|^2` (Drucker et al. 1997; Smola & Schoelkopf 2004).

    Arguments, stats and errors are those of `svm`; y are numbers, (n,) or (n, outputs), and epsilon >= 0 is in their units.
    The coefficients lie between -C w_i and C w_i, and are zero for points strictly inside the tube. Differentiable in y
    and epsilon as well.
    """
    kernel, X = prepare(kernel, X)
    n, dtype = count(X), dtype_of(X)
    weights, y = as_weights(weights, n, dtype), as_targets(y, n, dtype)
    C, epsilon = as_scalar(C, dtype, "C", PENALTY), as_scalar(epsilon, dtype, "epsilon", NONNEGATIVE)
    settings = _settings("support_vector_regression", X, y.shape, solver, block_size, start)
    solution = _support_vector_regression(kernel, X, y, C, epsilon, weights, bool(bias), *settings)
    return _finished(solution, throw, "support_vector_regression", kernel, X)


@compiled
def _support_vector_regression(kernel, X, y, C, epsilon, weights, bias, solver, block_size, start):
    def problem(operator, y):
        return of_loss(operator, EpsilonInsensitive(epsilon), y, _bound(C, weights, y), bias, spread(y, bias))

    return _machines(kernel, X, y, problem, solver, block_size, start)


def one_class_svm(
    kernel: AbstractKernel,
    X: PyTree,
    nu: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    solver: AbstractDualSolver | None = None,
    block_size: int | None = None,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Where the points are: minimises `1/2 |f|^2 + sum_i w_i max(0, -f(x_i) - b) + nu sum_i w_i b` (Schoelkopf et al. 2001).

    The function `f + b` is positive inside: at most a fraction nu of the points is left outside, and at least that fraction are
    support vectors. Coefficients lie between 0 and w_i and sum to `nu sum w`, as in LIBSVM; divide by that for the paper's.

    Arguments, stats and errors are those of `svm`; nu is in (0, 1].
    """
    kernel, X = prepare(kernel, X)
    n, dtype = count(X), dtype_of(X)
    weights, nu = as_weights(weights, n, dtype), as_scalar(nu, dtype, "nu", _FRACTION)
    solution = _one_class_svm(kernel, X, nu, weights, *_settings("one_class_svm", X, (n,), solver, block_size, None))
    return _finished(solution, throw, "one_class_svm", kernel, X)


@compiled
def _one_class_svm(kernel, X, nu, weights, solver, block_size, start):
    zeros = jnp.zeros(count(X), nu.dtype)

    def problem(operator, y):
        high = jnp.ones_like(y) if weights is None else weights
        total = nu * jnp.sum(high)
        largest = jnp.minimum(total, jnp.max(high))  # coefficient, of which f is made
        scale = jnp.mean(lx.diagonal(operator)) * largest
        return BoxProblem(operator, y, zeros, high, jnp.zeros((), y.dtype), total, jnp.where(scale > 0, scale, 1))

    return _machines(kernel, X, zeros, problem, solver, block_size, start)


def _settings(verb, X, shape, solver, block_size, start):
    """The solver, blocks and start that every machine takes, checked."""
    if block_size is None:
        check_memory(X, verb=verb)
    if start is not None and (not isinstance(start, KernelExpansion) or start.coefficients.shape != shape):
        came = f"has {start.coefficients.shape}" if isinstance(start, KernelExpansion) else f"is a {type(start).__name__}"
        raise ValueError(f"start must be a KernelExpansion with coefficients {shape}, the last machine's value, but {came}")
    return as_dual_solver(solver, SMO()), checked_block(block_size), None if start is None else start.coefficients


def _hint(name: str, kernel: AbstractKernel) -> str:
    others = {
        "svm": ", take a smaller C, SMO(max_steps=...), or C=inf where the classes are apart",
        "support_vector_regression": " and targets, take a smaller C or SMO(max_steps=...)",
    }
    return f"{name} with {type(kernel).__name__}: rescale inputs{others.get(name, '')}."


def _finished(solution: Solution, throw: bool, name: str, kernel: AbstractKernel, X: PyTree) -> Solution:
    """`finish`, and a warning where K is seen not to be positive semidefinite: the dual then may have many local solutions."""
    seen = solution.stats["indefinite"]
    if is_concrete(seen) and jnp.any(seen):
        some = jax.tree.map(lambda leaf: leaf[:MOST_FOR_EIGENVALUES], X)  # whose smallest eigenvalue is no smaller
        smallest = np.linalg.eigvalsh(np.asarray(gram(kernel, some), float))[0]
        eigenvalue = "eigenvalue" if count(X) <= MOST_FOR_EIGENVALUES else f"eigenvalue for the first {count(some)} points"
        warn(
            f"{type(kernel).__name__} is not positive semidefinite on these points: the smallest {eigenvalue} of K is "
            f"{smallest:.3g}, and what {name} returns may depend on where it started",
            ConditionWarning,
        )
    return finish(solution, throw, _hint(name, kernel))


def _bound(C, weights, y):
    """C for each point; none for a point of weight zero, hard margin or not."""
    if weights is None:
        return jnp.broadcast_to(C, y.shape)
    hard = jnp.isinf(C)
    return jnp.where(hard, jnp.where(weights > 0, jnp.inf, 0), jnp.where(hard, 1, C) * weights)


def _machines(kernel, X, y, problem, solver, block_size, start):
    """One machine, or one for each column of y, over one Gram matrix."""
    operator = gram_operator(kernel, X, block_size=block_size)
    fit = lambda column: machine(problem(operator, column[0]), solver, column[1])
    if y.ndim == 1:
        beta, bias, result, stats = fit((y, start))
    else:
        beta, bias, result, stats = each(fit, (y.T, None if start is None else start.T))
        result = of_all(result)
        beta, bias = void_unless_known((beta.T, bias), result)
    stats["indefinite"] = seen_indefinite(stopped(operator))
    return Solution(KernelExpansion(kernel, X, beta, bias), result, stats)
