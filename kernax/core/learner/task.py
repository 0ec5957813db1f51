"""What every learner begins with: kernel, points, targets and weights, checked, of one dtype."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
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
from kernax.core.base.numerics import is_concrete
from kernax.core.base.solution import Suspect
from kernax.core.base.stacks import points_at
from kernax.core.base.weights import AbstractWeights
from kernax.core.kernel.kernel import AbstractKernel, is_foreign, name_of
from kernax.core.kernel.preparation import guarded, prepare
from kernax.core.learner.structures import structure_of_many
from kernax.core.linalg.linear_solvers import AbstractSymmetricSolver, SolverThatRan
from kernax.core.operators.feature_map import has_few_features
from kernax.core.operators.gram import Layout, checked_block, gram_of_prepared, operator_of_prepared
from kernax.core.operators.memory import Footprint, check_held_by_each, check_memory
from kernax.core.operators.mesh import check_same_devices, rows_over_mesh, whole_on_each
from kernax.core.operators.operators import AbstractGram
from kernax.core.operators.structure import AbstractStructure

Targets = Callable[[Any, int, Any, AbstractWeights], Array]


class Task(AbstractCheckedFirst):
    """What a learner was given, as its compiled function takes it.

    Attributes:
        kernel: in the dtype of the points, its traced parameters NaN outside of their intervals.
        X: a stack of n points.
        y: targets (n,) or (n, outputs).
        weights: of the points, ones where none were given.
        layout: how the Gram matrix is held.
        verb: the name of the function.
        footprint: what the function holds where K is dense; None where it is not.
    """

    kernel: AbstractKernel
    X: PyTree
    y: Array
    weights: AbstractWeights
    layout: Layout
    verb: str = eqx.field(static=True)
    footprint: Footprint | None = eqx.field(static=True, default=None)

    def check_before(self, function: Callable, args: tuple) -> None:
        """Raises MemoryBudgetError where K does not fit into memory: as late as this, so that
        whatever else is wrong has been said, and after the program was traced, which says whether
        all shapes go together.
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
        MemoryBudgetError where their matrices do not fit into memory.
        """
        self.check_before(type(self).gram, (self,))
        return self.gram()

    @property
    def n(self) -> int:
        """The number of points."""
        return count(self.X)

    @property
    def dtype(self) -> Any:
        """The precision to compute in."""
        return dtype_of(self.X)

    @property
    def kernel_name(self) -> str:
        """What messages call the kernel."""
        return name_of(self.kernel)

    @property
    def columns(self) -> Array:
        """The targets as columns (n, outputs)."""
        return self.y.reshape(len(self.y), -1)

    def gram(self) -> AbstractGram:
        """The Gram matrix, held as the layout says."""
        return operator_of_prepared(self.kernel, self.X, self.layout)

    def figures(self, gram: AbstractGram) -> dict[str, Array]:
        """For the stats: the number of `features`, where K is represented by them."""
        if not self.layout.in_features:
            return {}
        return {"features": jnp.asarray(gram.largest_rank)}

    def scalar(
        self, value: ArrayLike, name: str, interval: Interval, *, throw: bool = False
    ) -> Array:
        """Another argument, a number, in the dtype of the points and inside its interval.

        With `throw` a traced one that is not raises an error at run time.
        """
        return as_scalar(value, self.dtype, name, interval, self.verb if throw else None)

    def numbers(self, values: Any, name: str, interval: Interval, *, throw: bool = False) -> Array:
        """Another argument, several numbers (r,)."""
        return as_numbers(values, self.dtype, name, interval, self.verb if throw else None)

    def noise(self, value: Any, *, throw: bool = False) -> Array:
        """The variance of the noise, a number or one for each point, checked by the structure."""
        noise = as_noise(value, self.n, self.dtype, self.verb if throw else None)
        if self.layout.structure is not None:
            self.layout.structure.check_noise(noise)
        return noise

    def module(self, module: Any, *, throw: bool = False) -> Any:
        """Another argument, a module such as a loss, in the dtype of the points, its parameters
        inside their intervals.
        """
        return guarded(cast(module, self.dtype), self.verb if throw else None)

    def check_at_most_points(self, number: int, name: str, hint: str = "") -> None:
        """Raises ValueError for a number above that of the points of positive weight."""
        kept = self.weights.kept()
        points = self.n if kept is None else int(np.sum(kept))
        if number > points:
            raise ValueError(
                f"{name} must be at most {points}, the number of points of positive weight, but is "
                f"{number}{hint}"
            )

    def suspect(self) -> Suspect:
        """The Gram matrix of `present`, whose eigenvalues an error about it names."""
        kept = self.weights.kept()
        size = self.n if kept is None or not np.any(kept) else int(np.sum(kept))
        # The points are taken out only if the solve has failed: each number of them is a program.
        matrix = lambda: gram_of_prepared(self.kernel, self.present())
        return Suspect("K", size, matrix, CONFORMANCE if is_foreign(self.kernel) else "")

    def present(self) -> PyTree:
        """The points of positive weight; all of them while that is not known, or where none has."""
        kept = self.weights.kept()
        if kept is None or not np.any(kept) or np.all(kept):
            return self.X
        return points_at(self.X, np.flatnonzero(kept))


def numbers(y: ArrayLike, n: int, dtype: Any, weights: AbstractWeights) -> Array:
    """Targets that are numbers, (n,) or (n, outputs)."""
    return as_targets(y, n, dtype)


def check_targets(
    y: ArrayLike | None,
    weights: ArrayLike | None,
    n: int,
    dtype: Any,
    *,
    targets: Targets = numbers,
    one_column: str | None = None,
    reads_removed: bool = False,
    thrown_by: str | None = None,
) -> tuple[Array, AbstractWeights]:
    """Targets and weights of n points.

    Arguments and errors are those of `check_task`, for functions that take no kernel.
    """
    checked_weights = as_weights(weights, n, dtype, thrown_by=thrown_by)
    if y is None:
        return jnp.zeros(n, dtype), checked_weights
    given = y if reads_removed else _without_missing(y, n, checked_weights)
    if one_column is not None:
        given = as_targets(given, n, dtype)
        if given.ndim != 1:
            raise ValueError(f"y must have shape ({n},), but has shape {given.shape}: {one_column}")
    return targets(given, n, dtype, checked_weights), checked_weights


def _without_missing(y: Any, n: int, weights: AbstractWeights) -> Any:
    """Targets, with those of the first point of positive weight where NaN has weight zero.

    Such points are removed, whatever their targets are. Raises ValueError for a known NaN of
    another weight; what is no array of floats is left for later checks.
    """
    try:
        array = y if eqx.is_array(y) else np.asarray(y)
    except (TypeError, ValueError):
        return y
    if not jnp.issubdtype(array.dtype, jnp.inexact) or array.ndim not in (1, 2) or len(array) != n:
        return y
    if is_concrete(array) and all_finite(array):
        return y
    array = jnp.asarray(array)
    values = weights.values
    absent = ~jnp.isfinite(array)
    removed = absent & (values == 0).reshape(n, *(1,) * (array.ndim - 1))
    # A row that counts, by sums: an index would gather all rows that are spread over a mesh.
    places = jnp.arange(n)
    first = jnp.min(jnp.where(values > 0, places, n))
    is_first = (places == first).reshape(n, *(1,) * (array.ndim - 1))
    known = jnp.sum(jnp.where(is_first, array, 0), 0, keepdims=True)
    filled = jnp.where(removed, known, array)
    # By NumPy, which takes lists as well.
    rows = "np.isfinite(y)" if array.ndim == 1 else "np.isfinite(y).all(1)"
    weighted = "" if weights.given is None else "weights * "
    check_finite(filled, "y", f"weights={weighted}{rows} removes such rows; or impute")
    return filled


def check_task(
    verb: str,
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike | None,
    weights: ArrayLike | None = None,
    *,
    footprint: Footprint | None = None,
    targets: Targets = numbers,
    one_column: str | None = None,
    block_size: Any = None,
    in_features: bool = False,
    holds_gram: bool = True,
    in_structure: bool = False,
    solver: lx.AbstractLinearSolver | None = None,
    reads_removed: bool = False,
    throw: bool = False,
) -> Task:
    """The task of a learner.

    Arguments:
        verb: its name, for messages.
        y: None for zeros, where there are no targets.
        footprint: what the function holds where K is dense; by default K itself.
        targets: how y is checked.
        one_column: where y must be a vector: what to do with several columns, for the message.
        block_size: rows of K that are computed at a time, where K is not to be held.
        in_features: whether a kernel of few explicit features may be represented by them.
        holds_gram: False for a function that never asks for K.
        in_structure: whether a structure of the points, such as a line or a grid, may be used.
        solver: the one that the user chose, which may need a structure; None for the default.
        reads_removed: whether the function compares something with the targets of points of weight
            zero: then these must be known. Otherwise they may be NaN.
        throw: whether traced parameters of the kernel, and weights, outside of their intervals
            raise an error at run time; otherwise they are NaN.

    Raises:
        ValueError: what does not fit, by name.

    That K does not fit into memory is said before a compiled function takes the task, when all
    other arguments have been checked.
    """
    given = (X, weights)
    check_same_devices(X, y=y, weights=weights)
    thrown_by = verb if throw else None
    kernel, X = prepare(kernel, X, thrown_by=thrown_by)
    n = count(X)
    checked_y, checked_weights = check_targets(
        y,
        weights,
        n,
        dtype_of(X),
        targets=targets,
        one_column=one_column,
        reads_removed=reads_removed,
        thrown_by=thrown_by,
    )
    spread = rows_over_mesh(X)
    block_size = checked_block(block_size, n, spread)
    by_features = in_features and block_size is None and has_few_features(kernel, X)
    layout = Layout(block_size, by_features, spread=spread)
    is_dense = layout.is_dense
    if is_dense and spread is not None and holds_gram:
        whole = whole_on_each((X, checked_y, checked_weights), spread)
        X, checked_y, checked_weights = whole
        given = (X, checked_weights.given)
    if is_dense and in_structure:
        structure = _structure(solver, kernel, given, X, checked_weights)
        layout = Layout(structure=structure, spread=spread)
        is_dense = structure is None
    if not (is_dense and holds_gram):
        return Task(kernel, X, checked_y, checked_weights, layout, verb)
    footprint = Footprint(verb) if footprint is None else footprint
    if spread is not None:
        check_held_by_each(n, footprint, spread.parts)
    return Task(kernel, X, checked_y, checked_weights, layout, verb, footprint)


def solver_that_ran(
    task: Task, solver: lx.AbstractLinearSolver | None, named: lx.AbstractLinearSolver | None
) -> SolverThatRan:
    """Which solver ran, for the stats: `named`, or what `Auto` chose, None for Cholesky's."""
    layout = task.layout
    if named is not None:
        return SolverThatRan(type(named).__name__, "it was asked for")
    if layout.in_features:
        reason = "in the explicit features of the kernel, fewer than points"
        return SolverThatRan("JitteredCholesky", reason)
    if layout.block_size is not None:
        name = "JitteredCholesky" if solver is None else type(solver).__name__
        return SolverThatRan(name, "the matrix is computed in blocks of rows")
    if layout.structure is not None:
        reason = "many points along one line, and a kernel with a state-space model"
        return SolverThatRan("StateSpace", reason)
    return SolverThatRan("JitteredCholesky", "the whole matrix, as no other rule of Auto applies")


def _structure(
    solver: lx.AbstractLinearSolver | None,
    kernel: AbstractKernel,
    given: tuple[PyTree, ArrayLike | None],
    X: PyTree,
    weights: AbstractWeights,
) -> AbstractStructure | None:
    """The structure of the points for a solver, from points and weights as they were `given`."""
    values = None if given[1] is None else _known(given[1], weights.values)
    if isinstance(values, np.ndarray):
        values = flushed(values)  # as the compiled program sees them
    points = _known(given[0], X)
    if solver is None:
        return structure_of_many(kernel, points)
    assert isinstance(solver, AbstractSymmetricSolver)  # as has been checked
    return solver.structure_for(kernel, points, values)


def _known(given: Any, checked: PyTree) -> PyTree:
    """A checked array, as one of NumPy if what was given is known: under `jit` JAX traces constants
    as well.
    """
    is_known = eqx.is_array(checked) and is_concrete(given)
    return np.asarray(given).astype(checked.dtype) if is_known else checked


def may_be_positive(value: Any) -> bool:
    """Whether an argument is not known to be zero or less somewhere."""
    if not is_concrete(value):
        return True
    try:
        number = np.asarray(value, np.dtype(jnp.result_type(float)))
        return bool(np.all(flushed(number) > 0))
    except (TypeError, ValueError):
        return True  # what is no number is refused by name elsewhere
