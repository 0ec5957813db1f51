"""The checked problem of a learner: kernel, points, targets and weights, in one dtype."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, PyTree

from kernax._advice import CONFORMANCE
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import (
    all_finite,
    as_noise,
    as_numbers,
    as_scalar,
    as_targets,
    as_weights,
    cast,
    check_finite,
    count,
    dtype_of,
)
from kernax.core.base.compiled import AbstractCheckedFirst
from kernax.core.base.intervals import Interval, flushed
from kernax.core.base.numerics import is_concrete, known_value
from kernax.core.base.solution import Suspect
from kernax.core.base.stacks import points_at
from kernax.core.base.weights import AbstractWeights
from kernax.core.kernel.kernel import AbstractKernel, is_foreign, name_of
from kernax.core.kernel.preparation import guarded, prepare
from kernax.core.learner.structures import structure_of_many
from kernax.core.linalg.linear_solvers import AbstractSymmetricSolver, SolverThatRan
from kernax.core.operators.feature_map import has_few_features
from kernax.core.operators.gram import Layout, checked_block, gram_of_prepared, operator_of_prepared
from kernax.core.operators.memory import Footprint, check_dense_on_each, check_memory
from kernax.core.operators.mesh import check_same_devices, rows_over_mesh, whole_on_each
from kernax.core.operators.operators import AbstractGram

# Fits to so few points run in milliseconds, and compile in half a second or more. With more
# numbers for each point, distances are a matrix product, and the loop after it, compiled quickly,
# takes twice as long.
_FEW_POINTS = 512
_FEW_NUMBERS = 8

Targets = Callable[[Any, int, Any, AbstractWeights], Array]


class LearnerProblem(AbstractCheckedFirst):
    """The checked arguments of a learner, in the form that its compiled function takes.

    Attributes:
        kernel: in the dtype of the points, with NaN for traced parameters outside of their
            intervals.
        X: a batch of n points.
        y: targets (n,) or (n, outputs).
        weights: the weights of the points, ones by default.
        layout: how the Gram matrix is represented.
        function_name: the name of the function.
        footprint: the memory of the function if K is dense; None otherwise.
    """

    kernel: AbstractKernel
    X: PyTree
    y: Array
    weights: AbstractWeights
    layout: Layout
    function_name: str = eqx.field(static=True)
    footprint: Footprint | None = eqx.field(static=True, default=None)

    @property
    def is_small(self) -> bool:
        leaves = jax.tree.leaves(self.X)
        return self.n <= _FEW_POINTS and sum(leaf.size for leaf in leaves) <= _FEW_NUMBERS * self.n

    def check_before(self, function: Callable, args: tuple) -> None:
        """Raises MemoryBudgetError if K does not fit into memory. This comes last, so that other
        errors take precedence, and after tracing, which checks that all shapes fit together.
        """
        if self.footprint is None:
            return
        columns = 1 if self.y.ndim == 1 else self.y.shape[1]
        check_memory(
            self.X,
            footprint=self.footprint,
            columns=columns,
            first=lambda: eqx.filter_eval_shape(function, *args),
        )

    def whole_gram(self) -> AbstractGram:
        """The Gram matrix, for functions that compute it before their compiled function. Raises
        MemoryBudgetError if their matrices do not fit into memory.
        """
        self.check_before(type(self).gram, (self,))
        return self.gram()

    @property
    def n(self) -> int:
        """The number of points."""
        return count(self.X)

    @property
    def dtype(self) -> Any:
        """The dtype of the computation, which targets and weights have, too."""
        return self.y.dtype

    @property
    def kernel_name(self) -> str:
        """The name of the kernel in messages."""
        return name_of(self.kernel)

    @property
    def columns(self) -> Array:
        """The targets as columns (n, outputs)."""
        return self.y.reshape(len(self.y), -1)

    def gram(self) -> AbstractGram:
        """The Gram matrix in the layout of the problem."""
        return operator_of_prepared(self.kernel, self.X, self.layout)

    def figures(self, gram: AbstractGram) -> dict[str, Array]:
        """Statistics: the number of `features` if K is represented by them."""
        if not self.layout.in_features:
            return {}
        return {"features": jnp.asarray(gram.largest_rank)}

    def scalar(
        self, value: ArrayLike, name: str, interval: Interval, *, throw: bool = False
    ) -> Array:
        """Another argument, a number, in the dtype of the points, checked to be inside its
        interval.

        With `throw` a traced number outside of the interval raises an error at run time.
        """
        return as_scalar(value, self.y.dtype, name, interval, self.function_name if throw else None)

    def numbers(self, values: Any, name: str, interval: Interval, *, throw: bool = False) -> Array:
        """Another argument, a vector of numbers (r,)."""
        return as_numbers(values, self.dtype, name, interval, self.function_name if throw else None)

    def noise(self, value: Any, *, throw: bool = False) -> Array:
        """The variance of the noise, a number or one for each point, checked by the structure."""
        noise = as_noise(value, self.n, self.dtype, self.function_name if throw else None)
        if self.layout.structure is not None:
            self.layout.structure.check_noise(noise)
        return noise

    def module(self, module: Any, *, throw: bool = False) -> Any:
        """Another argument, a module such as a loss, in the dtype of the points, with its
        parameters checked to be inside their intervals.
        """
        return guarded(cast(module, self.dtype), self.function_name if throw else None)

    def check_at_most_points(self, number: int, name: str, hint: str = "") -> None:
        """Raises ValueError for a number larger than the number of points of positive weight."""
        kept = self.weights.kept()
        points = self.n if kept is None else int(np.sum(kept))
        if number > points:
            raise ValueError(
                f"{name} must be at most {points}, the number of points of positive weight, but is "
                f"{number}{hint}"
            )

    def suspect(self) -> Suspect:
        """The Gram matrix of `present`, for the eigenvalues in an error message."""
        kept = self.weights.kept()
        size = self.n if kept is None or not np.any(kept) else int(np.sum(kept))
        # The points are selected only if the solve has failed: each number of them compiles a
        # program.
        matrix = lambda: gram_of_prepared(self.kernel, self.present())
        return Suspect("K", size, matrix, CONFORMANCE if is_foreign(self.kernel) else "")

    def present(self) -> PyTree:
        """The points of positive weight; all points while tracing, or if no weight is positive."""
        kept = self.weights.kept()
        if kept is None or not np.any(kept) or np.all(kept):
            return self.X
        return points_at(self.X, np.flatnonzero(kept))


def check_targets(
    y: ArrayLike | None,
    weights: ArrayLike | None,
    n: int,
    dtype: Any,
    *,
    targets: Targets | None = None,
    one_column: str | None = None,
    has_weights: bool = True,
    thrown_by: str | None = None,
) -> tuple[Array, AbstractWeights]:
    """Checked targets and weights of n points.

    Arguments and errors are those of `check_problem`. It is for functions without a kernel.
    """
    checked_weights = as_weights(weights, n, dtype, thrown_by=thrown_by)
    if y is None:
        return jnp.zeros(n, dtype), checked_weights
    given = _without_missing(y, n, checked_weights) if has_weights else y
    if one_column is not None:
        given = as_targets(given, n, dtype)
        if given.ndim != 1:
            raise ValueError(f"y must have shape ({n},), but has shape {given.shape}: {one_column}")
    if targets is None:
        return as_targets(given, n, dtype), checked_weights
    return targets(given, n, dtype, checked_weights), checked_weights


def _without_missing(y: Any, n: int, weights: AbstractWeights) -> Any:
    """Targets, with NaN of weight zero replaced by the target of the first point of positive
    weight.

    Such points are removed, whatever their targets are. Raises ValueError for a concrete NaN of
    another weight; arguments other than arrays of floats are checked later.
    """
    array = _with_missing(y, n)
    if array is None:
        return y
    values = weights.values
    removed = _removed(array, values)
    # Select a row of positive weight by sums, because an index would gather rows from a whole mesh.
    places = jnp.arange(n)
    first = jnp.min(jnp.where(values > 0, places, n))
    is_first = (places == first).reshape(n, *(1,) * (array.ndim - 1))
    # sum_i [i = first] y_i.
    target = jnp.sum(jnp.where(is_first, array, 0), 0, keepdims=True)
    filled = jnp.where(removed, target, array)
    # NumPy accepts lists as well.
    rows = "np.isfinite(y)" if array.ndim == 1 else "np.isfinite(y).all(1)"
    weighted = "" if weights.given is None else "weights * "
    check_finite(filled, "y", f"weights={weighted}{rows} removes such rows; or impute")
    return filled


def check_problem(
    function_name: str,
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike | None,
    weights: ArrayLike | None = None,
    *,
    footprint: Footprint | None = None,
    targets: Targets | None = None,
    one_column: str | None = None,
    block_size: Any = None,
    in_features: bool = False,
    diagonal: ArrayLike = 1.0,
    holds_gram: bool = True,
    in_structure: bool = False,
    solver: lx.AbstractLinearSolver | None = None,
    has_weights: bool = True,
    throw: bool = False,
) -> LearnerProblem:
    """The checked problem of a learner.

    Arguments:
        function_name: the name of the function, for messages.
        y: None for zeros, if there are no targets.
        footprint: the memory of the function if K is dense; by default that of K.
        targets: the function that checks y; by default y are numbers, (n,) or (n, outputs).
        one_column: if y must be a vector, advice for several columns, for the message.
        block_size: the number of rows of K computed at a time, for a matrix-free computation.
        in_features: whether a kernel with fewer explicit features than points may be represented by
            them.
        diagonal: the ridge or noise, unchecked, if features need a positive one.
        holds_gram: False for a function that never uses K.
        in_structure: whether a structure of the points, such as a line or a grid, may be used.
        solver: the solver that the user chose, which may need a structure; None for the default.
        has_weights: False for a function without weights, which has no way to remove points whose
            targets are NaN.
        throw: whether traced parameters of the kernel, and weights, outside of their intervals
            raise an error at run time; otherwise they become NaN.

    Raises:
        ValueError: an argument is invalid; the message names it.

    Whether K fits into memory is checked later, when a compiled function is called with the problem
    and all other arguments have been checked.
    """
    given = (X, weights)
    check_same_devices(X, y=y, weights=weights)
    thrown_by = function_name if throw else None
    kernel, X = prepare(kernel, X, thrown_by=thrown_by)
    n = count(X)
    checked_y, checked_weights = check_targets(
        y,
        weights,
        n,
        dtype_of(X),
        targets=targets,
        one_column=one_column,
        has_weights=has_weights,
        thrown_by=thrown_by,
    )
    spread = rows_over_mesh(X)
    if block_size is not None:
        block_size = checked_block(block_size, n, spread)
    # T = W F F^T + diagonal, with D < n features F, needs a diagonal that is positive.
    by_features = in_features and block_size is None and has_few_features(kernel, X)
    by_features = by_features and _may_be_positive(diagonal)
    structure = None
    is_dense = block_size is None and not by_features
    if is_dense and spread is not None and holds_gram:
        whole = whole_on_each((X, checked_y, checked_weights), spread)
        X, checked_y, checked_weights = whole
        given = (X, checked_weights.given)
    if is_dense and in_structure:
        # The structure of the points for a solver, from the `given` points and weights.
        values = None if given[1] is None else _known(given[1], checked_weights.values)
        if isinstance(values, np.ndarray):
            values = flushed(values)  # as in the compiled program
        points = _known(given[0], X)
        if solver is None:
            structure = structure_of_many(kernel, points)
        else:
            assert isinstance(solver, AbstractSymmetricSolver)  # checked before
            structure = solver.structure_for(kernel, points, values)
        is_dense = structure is None
    layout = Layout(block_size, by_features, structure, spread)
    if not (is_dense and holds_gram):
        return LearnerProblem(kernel, X, checked_y, checked_weights, layout, function_name)
    footprint = Footprint(function_name) if footprint is None else footprint
    if spread is not None:
        check_dense_on_each(n, footprint, spread.parts)
    return LearnerProblem(kernel, X, checked_y, checked_weights, layout, function_name, footprint)


def solver_that_ran(
    problem: LearnerProblem,
    solver: lx.AbstractLinearSolver | None,
    named: lx.AbstractLinearSolver | None,
) -> SolverThatRan:
    """Which solver ran, for the stats: `named`, or the choice of `Auto`."""
    layout = problem.layout
    if named is not None:
        return SolverThatRan(type(named).__name__, "it was requested")
    if layout.in_features:
        reason = "the kernel has fewer explicit features than points"
        return SolverThatRan("JitteredCholesky", reason)
    if layout.block_size is not None:
        name = "JitteredCholesky" if solver is None else type(solver).__name__
        return SolverThatRan(name, "the matrix is computed in blocks of rows")
    if layout.structure is not None:
        reason = "many points along one line, and a kernel with a state-space model"
        return SolverThatRan("StateSpace", reason)
    return SolverThatRan("JitteredCholesky", "the default, because no other rule of Auto applies")


def nan_where_unknown(values: Array, y: Any, problem: LearnerProblem) -> Array:
    """Values (n, *outputs, ...) that compare predictions with the given targets, NaN where these
    are NaN or infinite at points of weight zero.
    """
    array = _with_missing(y, problem.n) if problem.weights.removes else None
    if array is None:
        return values
    unknown = _removed(array, problem.weights.values)
    unknown = unknown.reshape(*unknown.shape, *(1,) * (values.ndim - unknown.ndim))
    return jnp.where(unknown, jnp.nan, values)


def _with_missing(y: Any, n: int) -> Array | None:
    """Targets of n points as an array; None if they are finite, or not arrays of floats, which is
    checked later.
    """
    try:
        array = y if eqx.is_array(y) else np.asarray(y)
    except (TypeError, ValueError):
        return None
    if not jnp.issubdtype(array.dtype, jnp.inexact) or array.ndim not in (1, 2) or len(array) != n:
        return None
    known = known_value(array)
    if known is not None and all_finite(known):
        return None
    return jnp.asarray(array)


def _removed(array: Array, weights: Array) -> Array:
    """Which targets are NaN or infinite at points of weight zero."""
    return ~jnp.isfinite(array) & (weights == 0).reshape(-1, *(1,) * (array.ndim - 1))


def _known(given: Any, checked: PyTree) -> PyTree:
    """A checked array, as a NumPy array if the given argument is concrete, because JAX also traces
    constants under `jit`.
    """
    is_known = eqx.is_array(checked) and is_concrete(given)
    return np.asarray(given).astype(checked.dtype) if is_known else checked


def _may_be_positive(value: Any) -> bool:
    """Whether an argument may be positive: False if an entry is known to be zero or less."""
    if not is_concrete(value):
        return True
    try:
        number = np.asarray(value, np.dtype(jnp.result_type(float)))
        return bool(np.all(flushed(number) > 0))
    except (TypeError, ValueError):
        return True  # anything that is not a number is rejected by name elsewhere
