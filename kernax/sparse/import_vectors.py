"""The import vector machine: sparse kernel logistic regression."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from kernax._advice import IN_BLOCKS
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.batching import sequential_vmap
from kernax.core.base.boundary import as_targets
from kernax.core.base.compiled import compiled
from kernax.core.base.intervals import NONNEGATIVE, POSITIVE
from kernax.core.base.labels import as_one_hot, as_signs
from kernax.core.base.numerics import eps_of, is_concrete, stop_gradient
from kernax.core.base.parameters import check_count, data
from kernax.core.base.printing import Printed
from kernax.core.base.solution import RESULTS, Solution, finish, first_that_holds, void_unless_known
from kernax.core.base.stacks import points_at
from kernax.core.base.weights import AbstractWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import check_problem
from kernax.core.operators.memory import Footprint
from kernax.core.operators.operators import is_finite
from kernax.sparse.import_search import ImportSearch
from kernax.sparse.subset_fit import SubsetFit
from kernax.sparse.subset_risk import SignLoss, SoftmaxLoss

_FOOTPRINT = Footprint("import_vector_machine", 1.6, IN_BLOCKS)


class ImportVectors(Printed):
    """A kernel logistic regression on a subset of the points, its import vectors.

    Attributes:
        function: f, a `KernelExpansion` over the vectors, in the order in which they were chosen;
            coefficients are zero from `count` on. The log odds of +1, or a column for each class.
        places: the indices of the vectors among the points; -1 from `count` on.
        count: the number of vectors.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> machine = kernax.import_vector_machine(kernax.RBF(0.3), X, y, ridge=0.1).value
        >>> jnp.sign(machine.function.values(X))
        Array([-1., -1.,  1.,  1.,  1.], dtype=float64)
    """

    function: KernelExpansion
    places: Int[Array, " m"] = data()
    count: Int[Array, ""] = data()

    @property
    def indices(self) -> Int[np.ndarray, " count"]:
        """The indices of the vectors among the points, for code that is not compiled.

        Raises ValueError under a transformation, and for a batch of models.
        """
        if not is_concrete(self.places, self.count) or self.places.ndim != 1:
            raise ValueError(
                "the number of indices is only known for a single model outside of jit and vmap: "
                "use places instead, which are -1 from count on"
            )
        return np.asarray(self.places)[: int(self.count)]

    def __call__(self, x: PyTree) -> Float[Array, "*classes"]:
        """f at one point."""
        return self.function(x)

    def probability(self, x: PyTree) -> Float[Array, "*classes"]:
        """The probability of class +1 at one point, or of each class."""
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
    """The import vector machine, sparse kernel logistic regression: minimises `sum_i w_i log(1 +
    exp(-y_i f(x_i))) + ridge/2 a.K_SS a` with `f(x) = sum_s a_s k(x, x_s) + b` over a subset S of
    the points.

    The subset grows by one point at a time. Each round adds the point with which one Newton step
    lowers the objective most, to second order, and then minimises over a and b. The search ends
    where the last `window` points have changed the objective H by at most `rtol H`, or where no
    point lowers it (Zhu & Hastie 2005, section 3). H tends to the objective of `kernel_logistic` as
    rtol goes to zero. The paper minimises the mean loss plus `lambda/2 |f|^2`: `ridge = n lambda`.
    For several classes the loss is the softmax loss of `kernel_softmax`.

    Arguments:
        kernel, X: any kernel, and a batch of n points.
        y: labels -1 and +1, (n,), from `signs`; or one-hot, (n, classes), from `one_hot`.
        ridge: > 0.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed, also as a candidate.
        bias: an unpenalised b.
        max_vectors: the largest number of vectors; memory is allocated for all of them.
        rtol: >= 0, the relative change of the objective below which the search ends.
        window: the number of points over which that change is measured. A longer window makes it
            less likely that the search ends early at a point that improves little before others
            that improve more.
        block_size: how many candidates are evaluated together. Their rows of K are then recomputed
            for each vector, and K is never stored; by default it is.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is `ImportVectors`: f, probabilities, and which points were
        chosen; the first among equally good ones. Points x whose `k(., x)` is, up to rounding, a
        combination of those of the chosen points, such as their duplicates, are not candidates.
        Where no point lowers the objective, as when all coincide, there are no vectors, and f is b.
        The solution is differentiable in the kernel, X, ridge and weights, to any order, with the
        chosen points held fixed. Stats: `vectors`; `objective`, differentiable as well;
        `objectives` after each choice, (max_vectors + 1,), the first without any vector; and the
        `residual`, which decides about success: the fraction by which one more Newton step would
        lower the objective, or the error of the objective from rounding the coefficients.

    Raises:
        ValueError: bad shapes or values, one class only.
        MaxStepsError: the objective still falls after `max_vectors` points.
        BreakdownError: rounding is too coarse for these data.
        NonFiniteError, MemoryBudgetError: see `kernax.errors`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> machine = kernax.import_vector_machine(kernax.RBF(0.3), X, y, ridge=0.1).value
        >>> int(machine.count) <= 5
        True
        >>> round(float(machine.probability(jnp.array([0.9]))), 2)
        0.93
    """

    def labels(y: ArrayLike, n: int, dtype: Any, weights: AbstractWeights) -> Array:
        # Signs (n,), or one-hot rows (n, classes).
        y = as_targets(y, n, dtype)
        if y.ndim == 1:
            return as_signs(y, n, dtype, weights)
        return as_one_hot(y, n, dtype, weights, bool(bias))

    problem = check_problem(
        "import_vector_machine",
        kernel,
        X,
        y,
        weights,
        targets=labels,
        block_size=block_size,
        in_features=True,
        throw=throw,
        footprint=_FOOTPRINT,
    )
    ridge = problem.scalar(ridge, "ridge", POSITIVE, throw=throw)
    rtol = problem.scalar(rtol, "rtol", NONNEGATIVE, throw=throw)
    max_vectors = min(check_count(max_vectors, "max_vectors"), problem.n)
    window = check_count(window, "window")
    solution = _import_vector_machine(problem, ridge, rtol, bool(bias), max_vectors, window)
    hint = (
        f"import_vector_machine with {problem.kernel_name}: a larger max_vectors or rtol may help."
    )
    return finish(solution, throw, hint)


@compiled
def _import_vector_machine(problem, ridge, rtol, bias, max_vectors, window):
    of_labels = SignLoss if problem.y.ndim == 1 else SoftmaxLoss
    loss = of_labels(problem.columns, problem.weights.values)
    gram = stop_gradient(problem.gram())
    # How many candidates one product evaluates: few compared with n, and few enough for a cache.
    block = problem.layout.block_size
    if block is None:
        block = max(64, min(problem.n // 8, 2**18 // problem.n))
    block = min(block, problem.n)
    search = ImportSearch(gram, loss, ridge, rtol, bias, window, block, max_vectors)
    # Each member of a batch stops when it is done.
    subset = sequential_vmap(ImportSearch.run, stop_gradient(search))
    fit = SubsetFit.of(problem, subset, loss, ridge, bias)
    residual = stop_gradient(fit).residual(subset.objective)
    # The problem must not contain NaN or inf.
    is_known = jnp.isfinite(ridge + jnp.sum(loss.weights) + jnp.sum(loss.y)) & is_finite(gram)
    statuses = (
        (~is_known | ~subset.finite, RESULTS.nonfinite),
        (~(residual <= 4 * eps_of(residual) ** 0.5), RESULTS.inaccurate),
        (subset.capped, RESULTS.max_steps_reached),
    )
    result = first_that_holds(statuses, RESULTS.successful)
    x = fit.minimum()
    # The objectives after each choice, the last one repeated.
    steps = jnp.arange(len(subset.objectives), dtype=jnp.int32)
    stats = {
        "vectors": subset.count,
        "objectives": jnp.where(steps > subset.count, subset.objective, subset.objectives),
        "objective": fit.objective(x, subset.objective),
        "residual": residual,
    }
    # The function with the coefficients x above the bias.
    x = void_unless_known(x, result)
    x = x[:, 0] if problem.y.ndim == 1 else x
    vectors = points_at(problem.X, subset.indices)
    function = KernelExpansion(problem.kernel, vectors, x[:-1], x[-1])
    places = jnp.where(subset.is_chosen, subset.indices, -1)
    value = ImportVectors(function, places, subset.count)
    return Solution(value, result, stats | problem.figures(gram))
