"""The kept points of a function in the space of a kernel, in arrays of fixed size."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import cast, dtype_of
from kernax.core.base.parameters import data
from kernax.core.base.printing import Printed
from kernax.core.kernel.kernel import AbstractKernel


class Newcomer(Printed):
    """A new point that may be added to a function.

    Attributes:
        point: x.
        row: `k(x, .)` at the points of the support.
        square: `k(x, x)`.
        step: the step at which it comes; the first is 1.

    Examples:
        >>> x, square, first = jnp.array([0.4]), jnp.array(1.0), jnp.array(1)
        >>> new = kernax.online.Newcomer(x, row=jnp.zeros(5), square=square, step=first)
        >>> float(new.square)  # k(x, x)
        1.0
    """

    point: PyTree
    row: Float[Array, " m"]
    square: Float[Array, ""]
    step: Int[Array, ""]


class Support(Printed):
    """`f = sum_i coefficients_i k(points_i, .)` over the first `size` of the points.

    Attributes:
        points: `capacity` points; unused rows repeat the first point.
        coefficients: zero in unused rows.
        squares: `k(points_i, points_i)`, zero in unused rows.
        ages: the step of the stream at which each point came.
        size: the number of used rows.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> rule, budget = kernax.online.Perceptron(), kernax.online.NoBudget(capacity=5)
        >>> learner = kernax.online.DualLearner(rule, kernax.RBF(0.3), budget)
        >>> support = learner.init(X[0]).support
        >>> support.points.shape, int(support.size)  # room for five points, none of them used yet
        ((5, 1), 0)
    """

    points: PyTree = data()
    coefficients: Float[Array, " m"] = data()
    squares: Float[Array, " m"] = data()
    ages: Int[Array, " m"] = data()
    size: Int[Array, ""] = data()

    @property
    def capacity(self) -> int:
        """The largest number of points."""
        return len(self.coefficients)

    def seen_by(self, kernel: AbstractKernel, x: PyTree, step: Int[Array, ""]) -> Newcomer:
        """A new point with its kernel values, as budgets use it."""
        return Newcomer(x, self.row(kernel, x), kernel(x, x), step)

    def row(self, kernel: AbstractKernel, x: PyTree) -> Float[Array, " m"]:
        """`k(x, points_i)`."""
        return jax.vmap(lambda point: kernel(x, point))(self.points)

    @property
    def places(self) -> Int[Array, " m"]:
        """The indices 0, 1, ..., capacity - 1, in the dtype of `size`."""
        return jnp.arange(self.capacity, dtype=self.size.dtype)

    def with_coefficients(self, coefficients: Float[Array, " m"]) -> "Support":
        """The same points with other coefficients."""
        return eqx.tree_at(lambda support: support.coefficients, self, coefficients)

    def with_point(
        self, place: Int[Array, ""], new: Newcomer, coefficient: Float[Array, ""]
    ) -> "Support":
        """The support with a point stored at that index, in place of the one there; unchanged if
        the index is `capacity`.
        """

        def put(array: Array, value: Array) -> Array:
            return array.at[place].set(value, mode="drop")

        came = (place == self.size) & (place < self.capacity)
        return Support(
            points=jax.tree.map(put, self.points, new.point),
            coefficients=put(self.coefficients, coefficient),
            squares=put(self.squares, new.square),
            ages=put(self.ages, new.step),
            size=self.size + came.astype(self.size.dtype),
        )


def kernel_for(kernel: AbstractKernel, point: PyTree) -> AbstractKernel:
    """A kernel in the dtype of a point."""
    return cast(kernel, dtype_of(point))


def empty_support(point: PyTree, capacity: int) -> Support:
    """The support of the function zero, with room for points like this one."""
    nothing = jnp.zeros(capacity, dtype_of(point))

    def repeated(leaf: ArrayLike) -> Array:
        leaf = jnp.asarray(leaf)
        return jnp.broadcast_to(leaf[None], (capacity, *leaf.shape))

    return Support(
        points=jax.tree.map(repeated, point),
        coefficients=nothing,
        squares=nothing,
        ages=jnp.zeros(capacity, jnp.int32),
        size=jnp.zeros((), jnp.int32),
    )
