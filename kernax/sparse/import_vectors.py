"""The import vector machine: kernel logistic regression on few of the points."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from kernax.core.boundary import as_targets
from kernax.core.expansion import KernelExpansion
from kernax.core.gram import BlockedGram
from kernax.core.implicit import implicit
from kernax.core.intervals import NONNEGATIVE, POSITIVE
from kernax.core.kernel import AbstractKernel
from kernax.core.labels import as_one_hot, as_signs
from kernax.core.numerics import is_concrete, matmul, stopped
from kernax.core.operators import AbstractGram, is_finite
from kernax.core.parameters import check_count, data
from kernax.core.refinement import refined
from kernax.core.sharding import compiled
from kernax.core.solution import RESULTS, Solution, finish, void_unless_known
from kernax.core.solves import solve_lower, solve_lower_transposed
from kernax.core.task import Task, check_task
from kernax.core.weights import AbstractWeights
from kernax.sparse.import_search import ImportSearch, Subset
from kernax.sparse.subset_risk import (
    AbstractClassLoss,
    Centre,
    Quadratic,
    SignLoss,
    SoftmaxLoss,
    SubsetRisk,
)


class ImportVectors(eqx.Module):
    """A kernel logistic regression on few points, its import vectors.

    Attributes:
        function: f, a `KernelExpansion` over the vectors, in the order in which they were chosen;
            coefficients are zero from `count` on. The log odds of +1, or a column for each class.
        places: of the vectors among the points; -1 from `count` on.
        count: the number of vectors.
    """

    function: KernelExpansion
    places: Int[Array, " m"] = data()
    count: Int[Array, ""] = data()

    @property
    def indices(self) -> Int[np.ndarray, " count"]:
        """The places of the vectors among the points, for code that is not compiled."""
        if not is_concrete(self.places, self.count) or self.places.ndim != 1:
            raise ValueError(
                "indices are as many as there are vectors, which is known of one machine outside "
                "of jit and vmap only: places[:count] of each machine"
            )
        return np.asarray(self.places)[: int(self.count)]

    def __call__(self, x: PyTree) -> Float[Array, "*classes"]:
        """f at one point."""
        return self.function(x)

    def probability(self, x: PyTree) -> Float[Array, "*classes"]:
        """Of class +1 at one point, or of each class."""
        f = self.function(x)
        return jax.nn.sigmoid(f) if f.ndim == 0 else jax.nn.softmax(f)


def import_vector_machine(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    ridge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = True,
    max_vectors: int = 100,
    rtol: ArrayLike = 1e-3,
    window: int = 1,
    block_size: int | None = None,
    throw: bool = True,
) -> Solution[ImportVectors]:
    """Minimises `sum_i w_i log(1 + exp(-y_i f(x_i))) + ridge/2 a.K_SS a`, `f = sum_S a_s k(., x_s)
    + b`, over a and b, for a subset S that grows by one point at a time.

    Added is the point with which one Newton step lowers the objective most, to second order; then
    a and b are at their minimum over the new subset. It ends where `window` points have changed the
    objective H by at most `rtol H`, or where no point lowers it (Zhu & Hastie 2005, section 3). H
    falls to that of `kernel_logistic` as rtol goes to zero. The paper minimises the mean loss
    plus `lambda/2 |f|^2`: `ridge = n lambda`. Several classes have the softmax loss of
    `kernel_softmax`.

    Arguments:
        kernel, X: any kernel, a stack of n points.
        y: -1 and +1, (n,), from `signs`; or one-hot, (n, classes), from `one_hot`.
        ridge: > 0.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed, also as a candidate.
        bias: an unpenalised b.
        max_vectors: at most. The program's size is that of so many.
        rtol: >= 0, of the objective's change.
        window: the number of last points whose change counts. With a longer one fewer searches end
            at a point that brings little before others that bring more.
        block_size: candidates looked at together, whose rows of K are then computed for each
            vector again, and K is never held. By default it is.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is `ImportVectors`: f, probabilities, and which points were
        chosen; of equal ones the first. Points whose kernel is within rounding a combination of
        the chosen ones', such as their duplicates, are no candidates. There are no vectors, and f
        is b, where no point lowers the objective, as when all coincide. Differentiable in the
        kernel, X, ridge and weights, to any order, with the chosen points held fixed. Stats:
        `vectors`; `objective`, differentiable as well; `objectives` after each choice, (max_vectors
        + 1,), the first without any vector; and the `residual` of the conditions of optimality over
        the subset, relative to their terms.

    Raises:
        ValueError: bad shapes or values, one class only.
        MaxStepsError: `max_vectors` points, and the objective still falls. BreakdownError: rounding
            is too coarse for these data. NonFiniteError, MemoryBudgetError.
    """
    task = check_task(
        "import_vector_machine",
        kernel,
        X,
        y,
        weights,
        targets=partial(_as_labels, bias=bool(bias)),
        block_size=block_size,
        in_features=True,
    )
    ridge = task.scalar(ridge, "ridge", POSITIVE)
    rtol = task.scalar(rtol, "rtol", NONNEGATIVE)
    max_vectors = min(check_count(max_vectors, "max_vectors"), task.n)
    window = check_count(window, "window")
    solution = _import_vector_machine(task, ridge, rtol, bool(bias), max_vectors, window)
    hint = f"import_vector_machine with {task.kernel_name}: more max_vectors, or a larger rtol."
    return finish(solution, throw, hint)


def _as_labels(y: ArrayLike, n: int, dtype: Any, weights: AbstractWeights, bias: bool) -> Array:
    """Signs (n,), or one-hot rows (n, classes)."""
    y = as_targets(y, n, dtype)
    return as_signs(y, n, dtype, weights) if y.ndim == 1 else as_one_hot(y, n, dtype, weights, bias)


@compiled
def _import_vector_machine(task, ridge, rtol, bias, max_vectors, window):
    """The chosen points, and the fit on them."""
    of_labels = SignLoss if task.y.ndim == 1 else SoftmaxLoss
    loss = of_labels(task.columns, task.weights.values)
    gram = stopped(task.gram())
    block = _candidates_together(task)
    search = ImportSearch(gram, *stopped((loss, ridge, rtol)), bias, window, block, max_vectors)
    subset = search.run()
    known = _is_known(gram, loss, ridge)
    result = RESULTS.where(known, search.ending(subset), RESULTS.nonfinite)
    places = jnp.where(subset.is_chosen, subset.places, -1)
    fit = _Fit.of(task, subset, loss, ridge, bias)
    x = implicit(_fitted, _one_more, fit)
    coefficients, b = (x[:-1, 0], x[-1, 0]) if task.y.ndim == 1 else (x[:-1], x[-1])
    coefficients, b = void_unless_known((coefficients, b), result)
    vectors = jax.tree.map(lambda leaf: leaf[subset.places], task.X)
    function = KernelExpansion(task.kernel, vectors, coefficients, b)
    value = ImportVectors(function, places, subset.count)
    later = jnp.arange(max_vectors + 1, dtype=jnp.int32) > subset.count
    stats = {
        "vectors": subset.count,
        "objective": fit.objective(x, subset.objective),
        "objectives": jnp.where(later, subset.objective, subset.objectives),
        "residual": subset.residual,
    }
    return Solution(value, result, stats | task.figures(gram))


_AT_ONCE = 2**22  # numbers of the kernel's rows of candidates that are held at one time


def _candidates_together(task: Task) -> int:
    """How many candidates are looked at in one product."""
    if task.layout.block_size is not None:
        return min(task.layout.block_size, task.n)
    return min(task.n, max(1, _AT_ONCE // task.n))


def _is_known(gram: AbstractGram, loss: AbstractClassLoss, ridge: Float[Array, ""]) -> Array:
    """Whether no number of a problem is NaN or inf."""
    return jnp.isfinite(ridge + jnp.sum(loss.weights) + jnp.sum(loss.y)) & is_finite(gram)


class _Fit(eqx.Module):
    """The fit on chosen points, in the coefficients a above the bias b, which its derivative is
    that of.

    Attributes:
        K: `K_XS`, zero where nothing was chosen, as are the features.
        K_SS: with ones on the diagonal where nothing was chosen, as the factor L.
        features: `F = K_XS L^-T`, centred, without derivative.
        means: of F, where there is a bias.
        end: the coefficients and the bias at the minimum, without derivative.
    """

    K: Float[Array, "n m"]
    K_SS: Float[Array, "m m"]
    loss: AbstractClassLoss
    ridge: Float[Array, ""]
    features: Float[Array, "n m"]
    means: Float[Array, " m"]
    factor: Float[Array, "m m"]
    end: Float[Array, "m1 c"]
    bias: bool = eqx.field(static=True)

    @staticmethod
    def of(
        task: Task, subset: Subset, loss: AbstractClassLoss, ridge: Float[Array, ""], bias: bool
    ) -> "_Fit":
        """That of a search. Only rows of chosen points are computed, and differentiated."""
        there = subset.is_chosen
        K = BlockedGram(task.kernel, task.X, 1).rows(subset.places).T
        both = there[:, None] & there[None, :]
        K_SS = jnp.where(both, K[subset.places], jnp.eye(len(there), dtype=K.dtype))
        K = jnp.where(there[None], K, 0)
        centre = Centre.of(loss, bias)
        F = centre.apply(subset.features)
        m = centre.means(subset.features)
        fit = _Fit(K, K_SS, loss, ridge, *stopped((F, m, subset.factor(), subset.x)), bias)
        return eqx.tree_at(lambda fit: fit.end, fit, stopped(fit.coefficients(subset.x)))

    def coefficients(self, x: Float[Array, "m1 c"]) -> Float[Array, "m1 c"]:
        """`a = L^-T u` above `b = b' - m.u`, of weights u of the centred features above b'."""
        u = x[:-1]
        return jnp.append(
            solve_lower_transposed(self.factor, u), x[-1:] - matmul(self.means, u)[None], 0
        )

    def pulled_back(self, r: Float[Array, "m1 c"]) -> Float[Array, "m1 c"]:
        """The gradient in u and b' of a function whose gradient in a and b is r: `L^-1 r_a - m r_b`
        above r_b.
        """
        of_u = solve_lower(self.factor, r[:-1]) - self.means[:, None] * r[-1:]
        return jnp.append(of_u, r[-1:], 0)

    def values(self, x: Float[Array, "m1 c"]) -> Float[Array, "n c"]:
        """f."""
        return matmul(self.K, x[:-1]) + x[-1:]

    def objective(self, x: Float[Array, "m1 c"], value: Float[Array, ""]) -> Float[Array, ""]:
        """The objective, whose value is known, with its derivative."""
        a = x[:-1]
        penalty = self.ridge / 2 * jnp.sum(a * matmul(self.K_SS, a))
        computed = self.loss.total(self.values(x)) + penalty
        return value + (computed - stopped(computed))

    def risk(self) -> SubsetRisk:
        """The same problem in the weights of the features."""
        return SubsetRisk(self.features, self.loss, self.ridge, self.end, self.bias)

    def stacked(
        self, G: Float[Array, "n c"], a: Float[Array, "m c"], of_bias: Float[Array, "1 c"]
    ) -> Float[Array, "m1 c"]:
        """`K_SX G + ridge K_SS a`, and the sum of G or, without a bias, what stands for it."""
        of_a = matmul(self.K.T, G) + self.ridge * matmul(self.K_SS, a)
        return jnp.append(of_a, jnp.sum(G, 0, keepdims=True) if self.bias else of_bias, 0)

    def gradient(self, x: Float[Array, "m1 c"]) -> Float[Array, "m1 c"]:
        """That of the objective."""
        return self.stacked(self.loss.gradient(self.values(x)), x[:-1], jnp.zeros_like(x[-1:]))

    def correction(self, x: Float[Array, "m1 c"]) -> Float[Array, "m1 c"]:
        """Newton's step, differentiable through the products with the Hessian."""
        W = self.loss.hessian(self.values(x))
        solve = partial(_solved, stopped((self, W)))
        apply = partial(_applied, self, W)
        return lax.custom_linear_solve(
            apply, -self.gradient(x), lambda _, r: solve(r), symmetric=True
        )


def _applied(fit: _Fit, W: Float[Array, "n c c"], v: Float[Array, "m1 c"]) -> Float[Array, "m1 c"]:
    """The Hessian of the objective times v."""
    change = jnp.einsum("icd,id->ic", W, fit.values(v), precision="highest")
    product = fit.stacked(change, v[:-1], v[-1:])
    if not (fit.bias and fit.loss.has_free_shift):
        return product
    # Curvature along a shift of all biases, which the gradient is zero along.
    shift = jnp.mean(v[-1]) * jnp.sum(fit.loss.weights) / v.shape[1]
    return product.at[-1].add(shift)


def _solved(of_stopped: tuple[_Fit, Array], r: Float[Array, "m1 c"]) -> Float[Array, "m1 c"]:
    """`H^-1 r`, by the Hessian in the weights of the features."""
    fit, W = of_stopped
    quadratic = Quadratic.of(fit.risk(), W)

    def roughly(r: Float[Array, "m1 c"]) -> Float[Array, "m1 c"]:
        return fit.coefficients(quadratic.solve(fit.pulled_back(r)))

    return refined(roughly, partial(_applied, fit, W), r)[0]


def _fitted(fit: _Fit) -> Float[Array, "m1 c"]:
    return fit.end


def _one_more(x: Float[Array, "m1 c"], fit: _Fit) -> Float[Array, "m1 c"]:
    return x + fit.correction(x)
