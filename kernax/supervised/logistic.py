"""Kernel logistic regression for two classes and for several, by Newton's method."""

from functools import partial

import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, ArrayLike, Float, PyTree

from kernax.core.boundary import as_scalar, as_weights, count, dtype_of
from kernax.core.expansion import KernelExpansion
from kernax.core.features import feature_operator, has_few_features
from kernax.core.gram import gram_operator
from kernax.core.kernel import AbstractKernel
from kernax.core.labels import as_one_hot, as_signs
from kernax.core.losses import Logistic
from kernax.core.memory import check_memory
from kernax.core.newton import newton_root
from kernax.core.numerics import product, stopped
from kernax.core.operators import FeatureOperator
from kernax.core.preparation import prepare
from kernax.core.sharding import compiled
from kernax.core.solution import RESULTS, Solution, finish
from kernax.core.solvers import factorise
from kernax.core.support import NONNEGATIVE, POSITIVE
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

    Damped Newton, which is iteratively reweighted ridge regression: with `h = w s(f) s(-f)`, s the logistic function, a step
    solves `(H K + ridge I) a = h f + w y s(-y f) - h b` (Zhu & Hastie 2005; Bishop 2006, section 4.3.3), and the objective
    never rises. From a penalty `lambda |f|^2` on the mean loss, `ridge = 2 n lambda`.

    Arguments:
        kernel: any kernel; its parameters are cast to the dtype of X.
        X: stack of n points.
        y: -1 and +1, (n,); `signs(labels)` makes them from labels of any kind.
        ridge: >= 0; zero has a solution only if the classes overlap.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed.
        bias: an unpenalised b.
        rtol: relative size of the last Newton step; default sqrt(eps), which leaves an error of about eps.
        max_steps: Newton steps, at most.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion`, the log odds of +1. Differentiable in the kernel, X, ridge and
        weights, to any order. Stats: `steps`, `objective`; of a `FeatureMap` of fewer features than points, which is solved
        in those, their number, `features`.

    Raises:
        ValueError: bad shapes or values, labels other than -1 and +1, one class only.
        DivergedError: ridge = 0, and the classes can be separated. MaxStepsError, NonFiniteError, MemoryBudgetError.
    """
    kernel, X = prepare(kernel, X)
    n, dtype = count(X), dtype_of(X)
    weights = as_weights(weights, n, dtype)
    y = as_signs(y, n, dtype, weights)
    if y.ndim != 1:
        raise ValueError(f"y must have shape ({n},), but has shape {y.shape}: kernel_softmax takes several classes")
    ridge = as_scalar(ridge, dtype, "ridge", NONNEGATIVE)
    if not (primal := has_few_features(kernel, X, ridge)):
        check_memory(X, verb="kernel_logistic")
    solution = _kernel_logistic(kernel, X, y, ridge, weights, bool(bias), rtol, max_steps, primal)
    return finish(solution, throw, f"kernel_logistic with {type(kernel).__name__}: a larger ridge may help.")


@compiled
def _kernel_logistic(kernel, X, y, ridge, weights, bias, rtol, max_steps, primal):
    operator = feature_operator(kernel, X) if primal else gram_operator(kernel, X)
    a, b, result, stats = newton_fit(operator, y, Logistic(), ridge, weights, bias, rtol, max_steps)
    stats |= {"features": jnp.asarray(operator.features.shape[1])} if isinstance(operator, FeatureOperator) else {}
    right = y * (operator.mv(a) + b) > 0
    separated = jnp.all(right if weights is None else right | (weights == 0))
    result = RESULTS.where((ridge == 0) & separated, RESULTS.diverged, result)
    return Solution(KernelExpansion(kernel, X, a, b), result, stats)


def kernel_softmax(
    kernel: AbstractKernel,
    X: PyTree,
    Y: ArrayLike,
    ridge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = True,
    rtol: float | None = None,
    max_steps: int = 100,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Minimises `-sum_i w_i log p(class_i | x_i) + ridge/2 sum_c |f_c|^2`, `p(c | x) = softmax_c(f(x) + b)`.

    Damped Newton with the full Hessian over all classes (Rasmussen & Williams 2006, algorithm 3.3, without its square roots of
    zero), about `classes + 1` factorisations of size n a step. The biases sum to zero. With two classes and `f = f_2 - f_1`
    this is `kernel_logistic` with half the ridge.

    Arguments and errors are those of `kernel_logistic`, but for Y, (n, classes), a one in each row: `one_hot(labels)`, with a
    point of positive weight in each class if there is a bias; and ridge > 0. The `value` has coefficients (n, classes), which
    sum to zero over the classes.
    """
    kernel, X = prepare(kernel, X)
    n, dtype = count(X), dtype_of(X)
    weights = as_weights(weights, n, dtype)
    Y = as_one_hot(Y, n, dtype, weights, every=bool(bias))
    check_memory(X, verb="kernel_softmax", matrices=5.4 + 1.7 * Y.shape[1])
    ridge = as_scalar(ridge, dtype, "ridge", POSITIVE)
    solution = _kernel_softmax(kernel, X, Y, ridge, weights, bool(bias), rtol, max_steps)
    return finish(solution, throw, f"kernel_softmax with {type(kernel).__name__}: a larger ridge may help.")


@compiled
def _kernel_softmax(kernel, X, Y, ridge, weights, bias, rtol, max_steps):
    weights = jnp.ones_like(Y[:, 0]) if weights is None else weights
    rtol = float(jnp.finfo(Y.dtype).eps) ** 0.5 if rtol is None else rtol

    args, step = (gram_operator(kernel, X), Y, ridge, weights), partial(_step, bias=bias)
    start = lambda _: jnp.zeros((len(Y) + 1, Y.shape[1]), Y.dtype)
    x, result, stats = newton_root(step, _objective, start, args, rtol=rtol, max_steps=max_steps)
    result = RESULTS.where(jnp.isfinite(ridge + jnp.sum(weights)), result, RESULTS.nonfinite)
    x = jnp.where(result == RESULTS.nonfinite, jnp.nan, x)
    return Solution(KernelExpansion(kernel, X, x[:-1], x[-1]), result, stats)


def _objective(x, args):
    operator, Y, ridge, weights = args
    Ka = product(operator.as_matrix(), x[:-1])
    return -jnp.sum(weights[:, None] * Y * jax.nn.log_softmax(Ka + x[-1:])) + ridge / 2 * jnp.sum(x[:-1] * Ka)


def _step(x, args, bias):
    # With probabilities P and the Hessian of the loss W the step solves
    # (W K + ridge) a = W f + w (Y - P) - W b, and sums of zero over the points. W has constants in its kernel, so b is fixed
    # up to one, and sums to zero.
    operator, Y, ridge, weights = args
    K, f = operator.as_matrix(), product(operator.as_matrix(), x[:-1]) + x[-1:]
    P = jax.nn.softmax(f)
    W = partial(_hessian, P, weights)
    inverse = _Inverse(K, P, ridge, weights)
    a = inverse(W(f) + weights[:, None] * (Y - P))
    if not bias:
        return jnp.append(a, jnp.zeros_like(x[-1:]), 0)
    classes = Y.shape[1]
    of_each = jnp.stack([inverse(W(jnp.broadcast_to(one, Y.shape))) for one in jnp.eye(classes, dtype=Y.dtype)], 2)
    pull = jnp.sum(of_each, 0)
    b = jnp.linalg.solve(pull + jnp.trace(pull) / classes**2, jnp.sum(a, 0))
    b = b - jnp.mean(b)
    return jnp.append(a - product(of_each, b), b[None], 0)


def _hessian(P, weights, v):
    """`w_i (P_i v_i - P_i (P_i . v_i))`, the second derivative of the loss in f applied to v (n, classes)."""
    return weights[:, None] * P * (v - jnp.sum(P * v, 1, keepdims=True))


class _Inverse:
    """`(W K + ridge I)^-1`, differentiable in everything through the products it inverts."""

    def __init__(self, K, P, ridge, weights):
        # With D_c = w P_c and E_c = D_c^1/2 (ridge + D_c^1/2 K D_c^1/2)^-1 D_c^1/2, which is (ridge + D_c K)^-1 D_c, the system
        # ridge a_c + D_c (K a_c - q) = r_c, q = sum_c P_c K a_c, is closed by ridge (sum_c E_c) q = sum_c w P_c K (...) r_c.
        self.args = (K, P, ridge, weights)
        K, P, ridge, weights = stopped(self.args)
        self.roots = jnp.sqrt(weights[:, None] * P)

        def block(root):
            A = root[:, None] * K * root[None, :] + ridge * jnp.eye(len(K), dtype=K.dtype)
            return factorise(lx.MatrixLinearOperator(A)).inverse()

        self.inverses = lax.map(block, self.roots.T)
        of_roots = jnp.sum(self.roots.T[:, :, None] * self.inverses * self.roots.T[:, None, :], 0)
        removed = jnp.where(weights > 0, 0, 1).astype(K.dtype)
        self.total = factorise(lx.MatrixLinearOperator(ridge * of_roots + jnp.diag(removed)))

    def __call__(self, r: Float[Array, "n c"]) -> Float[Array, "n c"]:
        return lax.custom_linear_solve(
            lambda a: self._apply(*self.args, a), r, lambda _, r: self._solve(r), lambda _, r: self._solve_transposed(r)
        )

    @staticmethod
    def _apply(K, P, ridge, weights, a):
        return ridge * a + _hessian(P, weights, product(K, a))

    def _solve(self, r):
        K, P, _, weights = stopped(self.args)
        q = self.total.solve(weights * jnp.sum(P * product(K, self._alone(r)), 1))
        return self._alone(r + weights[:, None] * P * q[:, None])

    def _alone(self, r):
        """`(ridge + D_c K)^-1 r_c` for each class, `D^1/2 M^-1 D^-1/2 r`; where D is zero the row reads `ridge a = r`."""
        K, _, ridge, _ = stopped(self.args)
        on = self.roots > 0
        bare = jnp.where(on, 0, r / ridge)
        rest = jnp.where(on, (r - self.roots**2 * product(K, bare)) / jnp.where(on, self.roots, 1), 0)
        return bare + self.roots * jnp.stack([product(M, c) for M, c in zip(self.inverses, rest.T)], 1)

    def _solve_transposed(self, r):
        K, P, ridge, weights = stopped(self.args)
        return (r - product(K, self._solve(_hessian(P, weights, r)))) / ridge
