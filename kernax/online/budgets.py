"""Budgets, which decide where a new point goes, and which point gives way if there is no room."""

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
from kernax.online.learner import as_part
from kernax.online.orthonormal_basis import OrthonormalBasis, empty_basis
from kernax.online.support import Newcomer, Support, empty_support


class Placement(Printed):
    """The decision of a budget about a new point.

    Attributes:
        place: the index where it is stored, in place of the point there; `capacity` if it is not
            kept.
        change: the numbers to add to the coefficients of the points of the support.
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
        """The initial state of the budget, besides the support, which is empty here; None if it has
        none.
        """

    @abc.abstractmethod
    def place(
        self,
        memory: Any,
        kernel: AbstractKernel,
        support: Support,
        new: Newcomer,
        coefficient: Float[Array, ""],
    ) -> Placement:
        """Decides where to put a new point x. The learner adds `k(x, .)` to the function with this
        nonzero coefficient.

        The first free slot is `support.size`; if that is the capacity, no slot is free.
        """


def as_budget(budget: Any) -> Any:
    """A budget as it is. Raises ValueError for anything else."""
    known = "one of kernax.online's budgets, such as RemoveOldest(100)"
    return as_part(budget, AbstractBudget, "budget", known)


def hint_of_budget(budget: AbstractBudget) -> str:
    """The advice where a budget has left a point out."""
    return (
        f"capacity is {budget.capacity}: raise it, or use a budget that removes or projects "
        "points (RemoveOldest, RemoveSmallest, Merge, Project)."
    )


class NoBudget(AbstractBudget):
    """Keeps every point. If there are more than `capacity`, `run` ends with
    `RESULTS.over_capacity`.

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
        # If no slot is free, support.size is the capacity: the point is not stored, and is lost.
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
        # The ages of free slots are zero, but the index only counts if no slot is free.
        return _in_place_of(_place(jnp.argmin(support.ages)), support)


class RemoveSmallest(AbstractBudget):
    """Removes the point that changes f least: the one with the smallest `|coefficient| sqrt(k(x,
    x))`, the oldest among equal ones (Wang, Crammer & Vucetic 2012, section 4.1).

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
    """Removes a point as `RemoveSmallest` does, and adds its projection to another point.

    The term `c k(x, .)` is replaced by its projection on the point z that is nearest in direction,
    the one with the largest `k(x, z)^2 / k(z, z)`: `c k(x, z) / k(z, z)` is added to the
    coefficient of z. Wang, Crammer & Vucetic (2012, section 4.3) merge both into a third point on
    the line between them, which exists only for vectors; keeping z works for strings and trees as
    well.

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
        # With x the removed point, min_a |k(x, .) - a k(z, .)|^2 = k(x, x) - k(x, z)^2 / k(z, z):
        # the nearest of the others has the largest k(x, z)^2 / k(z, z).
        explained = jnp.where(others, row**2 / positive_or_one(support.squares), -1)
        nearest = _place(jnp.argmax(stop_gradient(explained)))
        # The projection of c k(x, .) on k(z, .) is c k(x, z) / k(z, z) k(z, .).
        share = row[nearest] / positive_or_one(support.squares[nearest])
        is_receiver = (support.places == nearest) & others & (support.size >= self.capacity)
        change = jnp.where(is_receiver, share * support.coefficients[place], 0)
        return _in_place_of(place, support, change)


class Project(AbstractBudget):
    """Replaces a new point by its projection on the kept points if it is nearly a combination of
    them.

    The point is kept if its squared distance from the span of the kept points, `|k(x, .) - p|^2`
    with p its projection, exceeds `tolerance k(x, x)` and the capacity is not reached. Otherwise
    `coefficient p` is added to f, through the coefficients of the kept points (approximate linear
    dependence: Engel, Mannor & Meir 2004; with a perceptron, the projectron of Orabona, Keshet &
    Caputo 2009). Once the capacity is reached the points are fixed, and only their coefficients
    change. A step takes O(capacity^2) operations and memory.

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
        # Approximate linear dependence: x is kept if |k(x, .) - p|^2 > tolerance k(x, x).
        is_kept = at.is_independent(self.tolerance) & (support.size < self.capacity)
        place = jnp.where(is_kept, support.size, self.capacity)
        # p = sum_i a_i k(x_i, .) with a = K^-1 k(X, x): L^-T times the coordinates L^-1 k(X, x).
        onto = coefficient * memory.coefficients(at.inside)
        change = jnp.where(is_kept, 0, onto)
        return Placement(place, change, memory.with_point(place, at), jnp.asarray(False))


class Kept(eqx.Module):
    """The points of a function, as a budget keeps them.

    Attributes:
        support: the points and their coefficients.
        memory: the state of the budget.
        lost: whether a budget that promises to keep every point has left one out.
    """

    support: Support
    memory: Any = data()
    lost: Bool[Array, ""] = data()

    @staticmethod
    def none(budget: AbstractBudget, point: PyTree) -> "Kept":
        """No points, with room for points like this one."""
        support = empty_support(point, budget.capacity)
        return Kept(support, budget.memory(support), jnp.asarray(False))

    @property
    def result(self) -> Any:
        """A status of `RESULTS`."""
        return RESULTS.where(self.lost, RESULTS.over_capacity, RESULTS.successful)

    def function(
        self, kernel: AbstractKernel, coefficients: Float[Array, " m"] | None = None
    ) -> KernelExpansion:
        """The function of the points, with their own coefficients unless others are given."""
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
        """The points that a budget keeps after a new point, and the index of the new point."""
        placed = budget.place(self.memory, kernel, self.support, new, coefficient)
        # c <- c + change, and then the coefficient of x at its place.
        support = self.support.with_coefficients(self.support.coefficients + placed.change)
        support = support.with_point(placed.place, new, coefficient)
        return Kept(support, placed.memory, self.lost | placed.lost), placed.place


def _in_place_of(
    removed: Int[Array, ""], support: Support, change: Float[Array, " m"] | None = None
) -> Placement:
    """A placement in the next free slot, or in place of a point if no slot is free."""
    is_full = support.size >= support.capacity
    place = jnp.where(is_full, removed, support.size)
    change = jnp.zeros_like(support.coefficients) if change is None else change
    return Placement(place, change, None, jnp.asarray(False))


def _place(index: Int[Array, ""]) -> Int[Array, ""]:
    return index.astype(jnp.int32)


def _smallest(support: Support) -> Int[Array, ""]:
    """The index of the smallest `c^2 k(x, x)`; among equal ones, that of the oldest point."""
    # |c_i k(x_i, .)|^2 = c_i^2 k(x_i, x_i): the squared change of f without point i.
    sizes = stop_gradient(support.coefficients**2 * support.squares)
    latest = jnp.iinfo(support.ages.dtype).max
    return _place(jnp.argmin(jnp.where(sizes == jnp.min(sizes), support.ages, latest)))
