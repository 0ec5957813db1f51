"""Kernel logistic regression for several classes, by Newton's method with the full Hessian over all of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, ArrayLike, Float, PyTree

from kernax.core.batching import one_by_one
from kernax.core.boundary import as_scalar, as_weights, count, dtype_of
from kernax.core.expansion import KernelExpansion
from kernax.core.gram import gram_operator
from kernax.core.kernel import AbstractKernel
from kernax.core.labels import as_one_hot
from kernax.core.linalg import accurate_residual
from kernax.core.memory import check_memory
from kernax.core.newton import AbstractConvexProblem, Iterate, minimum
from kernax.core.numerics import product, stopped
from kernax.core.preparation import prepare
from kernax.core.sharding import compiled
from kernax.core.solution import RESULTS, Solution, finish, void_unless_known
from kernax.core.solvers import JitteredCholesky
from kernax.core.support import POSITIVE
from kernax.supervised.misfit import is_finite, misfit_of, unseen, values_of
from kernax.supervised.softmax_hessian import HessianInverse, hessian, sum_of_others


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

    Damped Newton with the full Hessian over all classes (Rasmussen & Williams 2006, algorithm 3.3, without its square roots
    of zero), about `classes + 1` factorisations of size n a step. The biases sum to zero. With two classes and `f = f_2 - f_1`
    this is `kernel_logistic` with half the ridge.

    Arguments and errors are those of `kernel_logistic`, but for Y, (n, classes), a one in each row: `one_hot(labels)`, with a
    point of positive weight in each class if there is a bias; and ridge > 0. The `value` has coefficients (n, classes), which
    sum to zero over the classes.
    """
    kernel, X = prepare(kernel, X)
    n, dtype = count(X), dtype_of(X)
    weights = as_weights(weights, n, dtype)
    Y = as_one_hot(Y, n, dtype, weights, every=bool(bias))
    check_memory(X, verb="kernel_softmax", columns=Y.shape[1])
    ridge = as_scalar(ridge, dtype, "ridge", POSITIVE)
    solution = _kernel_softmax(kernel, X, Y, ridge, weights, bool(bias), rtol, max_steps)
    return finish(solution, throw, f"kernel_softmax with {type(kernel).__name__}: a larger ridge may help.")


@compiled
def _kernel_softmax(kernel, X, Y, ridge, weights, bias, rtol, max_steps):
    weights = jnp.ones_like(Y[:, 0]) if weights is None else weights
    operator = gram_operator(kernel, X)
    x, result, stats = minimum(_SoftmaxRisk(operator, Y, ridge, weights, bias), rtol=rtol, max_steps=max_steps)
    known = jnp.isfinite(ridge + jnp.sum(weights) + jnp.sum(Y)) & is_finite(operator)
    result = RESULTS.where(known, result, RESULTS.nonfinite)
    x = void_unless_known(_balanced(x), result)  # of the rounding of many steps
    return Solution(KernelExpansion(kernel, X, x[:-1], x[-1]), result, stats)


class _SoftmaxRisk(AbstractConvexProblem):
    """`-sum_i w_i log p(class_i | x_i) + ridge/2 sum_c a_c.K a_c` of x, the coefficients a above the biases b."""

    operator: lx.AbstractLinearOperator
    Y: Float[Array, "n c"]
    ridge: Float[Array, ""]
    weights: Float[Array, " n"]
    bias: bool = eqx.field(static=True)

    def start(self):
        nothing = jnp.zeros_like(self.Y)
        return Iterate(jnp.append(nothing, nothing[:1], 0), nothing)

    def values(self, x):
        return values_of(self.operator, x[:-1])

    def correction(self, point):
        return self._correction(point, self._left(point), most_left=jnp.inf)

    def correction_to_differentiate(self, point):
        # What is left at the minimum is rounding, of which no solve need know digits: it counts as zero.
        left = self._left(point)
        most_left = accurate_residual(JitteredCholesky(), left.dtype)
        return self._correction(point, left - stopped(left), most_left)

    def _correction(self, point, left, most_left):
        # With probabilities P and the Hessian of the loss W, (W K + ridge) d = -(ridge a + g) - W d_b, and sums of zero over
        # the points. W has constants in its kernel, so that d_b is fixed up to one, and sums to zero.
        x, f = point.x, self._function(point)
        a = x[:-1]
        P = jax.nn.softmax(f)
        inverse = HessianInverse(self.operator.as_matrix(), P, self.ridge, self.weights, most_left)
        if not self.bias:
            return _balanced(jnp.append(inverse(left), jnp.zeros_like(x[-1:]), 0))
        columns = jax.vmap(lambda one: hessian(P, self.weights, jnp.broadcast_to(one, P.shape)))
        of_bias = columns(jnp.eye(P.shape[1], dtype=x.dtype))
        # All right-hand sides at once: the inverse stands in the program once, however many classes there are.
        solutions = jax.vmap(inverse)(jnp.append(left[None], of_bias, 0))
        d, of_each = solutions[0], jnp.moveaxis(solutions[1:], 0, 2)
        pull = jnp.sum(of_each, 0)
        d_b = _biases(pull, jnp.sum(a + d, 0))
        return _balanced(jnp.append(d - product(of_each, d_b), d_b[None], 0))

    def slope_along(self, point, direction):
        a, d, d_b = point.x[:-1], direction[:-1], direction[-1:]
        f = self._function(point)
        Kd = product(self.operator.as_matrix(), d)
        unit = jnp.max(abs(Kd)) + jnp.max(abs(d_b))
        unit = jnp.where(unit > 0, unit, 1)
        v, Kd, d_b = Kd + d_b, Kd / unit, d_b / unit

        def slope(t):
            g = self._gradient(f + t * v)
            return jnp.sum((self.ridge * (a + t * d) + g) * Kd) + jnp.sum(jnp.sum(g, 0, keepdims=True) * d_b)

        return slope

    def misfit(self, point):
        x, f = point.x, self._function(point)
        a = x[:-1]
        g, P = self._gradient(f), jax.nn.softmax(f)
        root = jnp.sqrt(abs(lx.diagonal(self.operator)))[:, None]
        of_f = float(jnp.finfo(x.dtype).eps) * jnp.max(
            root * jnp.sum(root * abs(a), 0, keepdims=True) + abs(x[-1:]), 1, keepdims=True
        )
        h = self.weights[:, None] * P * sum_of_others(P)
        at_zero = abs(self._gradient(jnp.zeros_like(f)))
        return misfit_of(root, self.ridge * a, g, h * of_f, at_zero, self.bias, unseen(self.operator, x.dtype))

    def settled(self, point):
        a = -self._gradient(self._function(point)) / self.ridge
        return _balanced(jnp.append(a, point.x[-1:], 0))

    def objective(self, point):
        logs = jax.nn.log_softmax(self._function(point))
        square = jnp.sum(point.x[:-1] * point.values)
        return -jnp.sum(self.weights[:, None] * self.Y * logs) + self.ridge / 2 * square

    def _function(self, point):
        return point.values + point.x[-1:]

    def _left(self, point):
        """`-(ridge a + g)`, which is zero at the minimum."""
        return -(self.ridge * point.x[:-1] + self._gradient(self._function(point)))

    def _gradient(self, f):
        P = jax.nn.softmax(f)
        return self.weights[:, None] * jnp.where(self.Y > 0, -jnp.sum((1 - self.Y) * P, 1, keepdims=True), P)


def _balanced(x):
    """Rows that sum to zero, as they do at the minimum. Rounding of the gradient, over the ridge, may be far more than x."""
    return x - jnp.mean(x, 1, keepdims=True)


def _biases(pull, sums):
    """`pull^-1 sums` where constants are in the kernel of both; where all points are certain, and nothing pulls, the sums."""
    trace = jnp.trace(pull)
    identity = jnp.eye(len(pull), dtype=pull.dtype)
    whole = pull + trace / len(pull) ** 2 + jnp.where(trace > 0, 0, identity)

    def solved(_, b):
        return one_by_one(jnp.linalg.solve, whole, b)

    return lax.custom_linear_solve(lambda b: product(whole, b), sums, solved, symmetric=True)
