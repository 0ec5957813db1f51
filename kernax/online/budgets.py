"""Budgets: where a new point goes, and what becomes of the function when there is no room."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.numerics import positive_or_one, stop_gradient
from kernax.core.base.parameters import check_intervals, data, integer, nonnegative
from kernax.core.base.printing import Printed
from kernax.core.base.solution import RESULTS
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.online.learner_parts import as_part
from kernax.online.orthonormal_basis import OrthonormalBasis, empty_basis
from kernax.online.support import Newcomer, Support, empty_support


class Placement(Printed):
    """What a budget does with a new point.

    Attributes:
        place: the index at which it replaces the point there; `capacity` if it is not kept.
        change: added to the coefficients of the points of the support.
        memory: the new memory of the budget.
        lost: whether a point was left out that the budget promises to keep.
    """

    place: Int[Array, ""]
    change: Float[Array, " m"]
    memory: Any
    lost: Bool[Array, ""]


class AbstractBudget(Printed):
    """A limit on the number of points of a function, and a rule for further points.

    Attributes:
        capacity: the largest number of points.
        keeps_points: whether a kept point is never removed, so that averages are exact.
    """

    capacity: eqx.AbstractVar[int]
    keeps_points: ClassVar[bool]

    def __check_init__(self):
        check_intervals(self)

    @abc.abstractmethod
    def memory(self, support: Support) -> Any:
        """The state of the budget beside the support, which is empty here; None if it has none."""

    @abc.abstractmethod
    def place(
        self,
        memory: Any,
        kernel: AbstractKernel,
        support: Support,
        new: Newcomer,
        coefficient: Float[Array, ""],
    ) -> Placement:
        """Where to put a new point x, whose `k(x, .)` is added to the function with this nonzero
        coefficient.

        The first free place is `support.size`; there is none where that is the capacity.
        """


def as_budget(budget: Any) -> Any:
    """A budget as it is. Raises ValueError for anything else."""
    known = "one of kernax.online's budgets, such as RemoveOldest(100)"
    return as_part(budget, AbstractBudget, "budget", known)


def hint_of_budget(budget: AbstractBudget) -> str:
    """What to do where a budget has left a point out."""
    return (
        f"capacity is {budget.capacity}: raise it, or take a budget that removes or projects "
        "points (RemoveOldest, RemoveSmallest, Merge, Project)."
    )


class NoBudget(AbstractBudget):
    """Keeps every point; more than `capacity` end `run` with `RESULTS.over_capacity`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> rule, budget = kernax.online.MarginPerceptron(), kernax.online.NoBudget(capacity=5)
        >>> learner = kernax.online.DualLearner(rule, kernax.RBF(0.3), budget)
        >>> int(kernax.online.run(learner, X, y).value.state.support.size) <= 5
        True
    """

    capacity: int = integer("capacity")
    keeps_points: ClassVar[bool] = True

    def memory(self, support):
        return None

    def place(self, memory, kernel, support, new, coefficient):
        nothing = jnp.zeros_like(support.coefficients)
        return Placement(support.size, nothing, memory, support.size >= self.capacity)


class RemoveOldest(AbstractBudget):
    """Removes the oldest point.

    See Kivinen, Smola & Williamson 2004; with a perceptron, Dekel, Shalev-Shwartz & Singer 2008.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> rule, budget = kernax.online.MarginPerceptron(), kernax.online.RemoveOldest(capacity=3)
        >>> learner = kernax.online.DualLearner(rule, kernax.RBF(0.3), budget)
        >>> int(kernax.online.run(learner, X, y).value.state.support.size)
        3
    """

    capacity: int = integer("capacity")
    keeps_points: ClassVar[bool] = False

    def memory(self, support):
        return None

    def place(self, memory, kernel, support, new, coefficient):
        return _in_place_of(_place(jnp.argmin(support.ages)), support)


class RemoveSmallest(AbstractBudget):
    """Removes the point whose removal changes f least: that of the smallest `|coefficient|
    sqrt(k(x, x))`, and of several the oldest (Wang, Crammer & Vucetic 2012, section 4.1).

    The new point is kept, however small its own coefficient is.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> rule = kernax.online.MarginPerceptron()
        >>> budget = kernax.online.RemoveSmallest(capacity=3)
        >>> learner = kernax.online.DualLearner(rule, kernax.RBF(0.3), budget)
        >>> int(kernax.online.run(learner, X, y).value.state.support.size)
        3
    """

    capacity: int = integer("capacity")
    keeps_points: ClassVar[bool] = False

    def memory(self, support):
        return None

    def place(self, memory, kernel, support, new, coefficient):
        return _in_place_of(_smallest(support), support)


class Merge(AbstractBudget):
    """Removes a point as `RemoveSmallest` does, and adds its part of f to another point.

    `c k(x, .)` is replaced by its projection on the point z that is nearest in direction, the one
    of largest `k(x, z)^2 / k(z, z)`: `c k(x, z) / k(z, z)` is added to the coefficient of z. Wang,
    Crammer & Vucetic (2012, section 4.3) merge both into a third point on the line between them,
    which only vectors have; keeping z works for strings and trees as well.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> rule, budget = kernax.online.MarginPerceptron(), kernax.online.Merge(capacity=3)
        >>> learner = kernax.online.DualLearner(rule, kernax.RBF(0.3), budget)
        >>> int(kernax.online.run(learner, X, y).value.state.support.size)
        3
    """

    capacity: int = integer("capacity")
    keeps_points: ClassVar[bool] = False

    def memory(self, support):
        return None

    def place(self, memory, kernel, support, new, coefficient):
        place = _smallest(support)
        removed = points_at(support.points, place)
        row = support.row(kernel, removed)
        others = (support.places != place) & (support.squares > 0)
        # With x the removed point, the nearest of the others has the largest `k(x, z)^2 / k(z, z)`.
        explained = jnp.where(others, row**2 / positive_or_one(support.squares), -1)
        nearest = _place(jnp.argmax(stop_gradient(explained)))
        # The projection of c k(x, .) on k(z, .) is c k(x, z) / k(z, z) k(z, .).
        share = row[nearest] / positive_or_one(support.squares[nearest])
        is_receiver = (support.places == nearest) & others & (support.size >= self.capacity)
        change = jnp.where(is_receiver, share * support.coefficients[place], 0)
        return _in_place_of(place, support, change)


class Project(AbstractBudget):
    """Replaces a new point that is nearly a combination of the kept points by that combination.

    It is kept if its distance from the span of the kept ones is `|k(x, .) - p|^2 > tolerance k(x,
    x)`, p its projection, and the capacity is not reached; otherwise `coefficient p` is added to f,
    through the coefficients of the kept points (approximate linear dependence: Engel, Mannor & Meir
    2004; with a perceptron, the projectron of Orabona, Keshet & Caputo 2009). Once the capacity is
    reached the points are fixed, and only their coefficients change. O(capacity^2) operations and
    memory.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> rule, budget = kernax.online.MarginPerceptron(), kernax.online.Project(capacity=3)
        >>> learner = kernax.online.DualLearner(rule, kernax.RBF(0.3), budget)
        >>> int(kernax.online.run(learner, X, y).value.state.support.size)
        3
    """

    capacity: int = integer("capacity")
    tolerance: Float[ParameterArray, ""] = nonnegative(default=1e-3)
    keeps_points: ClassVar[bool] = True

    def memory(self, support):
        return empty_basis(support)

    def place(self, memory: OrthonormalBasis, kernel, support, new, coefficient):
        at = memory.coordinates(new.row, new.square, support.size)
        is_kept = at.is_independent(self.tolerance) & (support.size < self.capacity)
        place = jnp.where(is_kept, support.size, self.capacity)
        # The coefficients of the projection, L^-T times the coordinates L^-1 k(X, x).
        onto = coefficient * memory.coefficients(at.inside)
        change = jnp.where(is_kept, 0, onto)
        return Placement(place, change, memory.with_point(place, at), jnp.asarray(False))


class Kept(eqx.Module):
    """The points of a function, as a budget keeps them.

    Attributes:
        support: the points and their coefficients.
        memory: of the budget.
        lost: whether a budget that promises to keep every point has left one out.
    """

    support: Support
    memory: Any = data()
    lost: Bool[Array, ""] = data()

    @staticmethod
    def none(budget: AbstractBudget, point: PyTree) -> "Kept":
        """No points, with room for such as this one."""
        support = empty_support(point, budget.capacity)
        return Kept(support, budget.memory(support), jnp.asarray(False))

    @property
    def result(self) -> Any:
        """A status of `RESULTS`."""
        return RESULTS.where(self.lost, RESULTS.over_capacity, RESULTS.successful)

    def function(
        self, kernel: AbstractKernel, coefficients: Float[Array, " m"] | None = None
    ) -> KernelExpansion:
        """Of the points, with their own coefficients unless others are given."""
        c = self.support.coefficients if coefficients is None else coefficients
        return KernelExpansion(kernel, self.support.points, c, jnp.zeros_like(c[0]))

    def with_coefficients(self, coefficients: Float[Array, " m"]) -> "Kept":
        """The same points with other coefficients."""
        return Kept(self.support.with_coefficients(coefficients), self.memory, self.lost)

    def with_point(
        self,
        budget: AbstractBudget,
        kernel: AbstractKernel,
        new: Newcomer,
        coefficient: Float[Array, ""],
    ) -> tuple["Kept", Int[Array, ""]]:
        """The points that a budget keeps of these and a newcomer, and the place of the newcomer."""
        placed = budget.place(self.memory, kernel, self.support, new, coefficient)
        support = self.support.with_coefficients(self.support.coefficients + placed.change)
        support = support.with_point(placed.place, new, coefficient)
        return Kept(support, placed.memory, self.lost | placed.lost), placed.place


def _in_place_of(
    removed: Int[Array, ""], support: Support, change: Float[Array, " m"] | None = None
) -> Placement:
    """In the next free place, or instead of a point where there is none."""
    is_full = support.size >= support.capacity
    place = jnp.where(is_full, removed, support.size)
    change = jnp.zeros_like(support.coefficients) if change is None else change
    return Placement(place, change, None, jnp.asarray(False))


def _place(index: Int[Array, ""]) -> Int[Array, ""]:
    """An index as the places of a support are counted."""
    return index.astype(jnp.int32)


def _smallest(support: Support) -> Int[Array, ""]:
    """The place of the smallest `c^2 k(x, x)`; of several, of the oldest."""
    sizes = stop_gradient(support.coefficients**2 * support.squares)
    latest = jnp.iinfo(support.ages.dtype).max
    return _place(jnp.argmin(jnp.where(sizes == jnp.min(sizes), support.ages, latest)))
