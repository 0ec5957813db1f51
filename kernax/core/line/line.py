"""Gram matrices of points along a line, with products in O(n)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.base.boundary import count
from kernax.core.base.numerics import dot, is_concrete, matmul, stop_gradient
from kernax.core.base.weights import AbstractWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.state_space import AbstractStateSpace, Chain
from kernax.core.line.parallel_recursions import ParallelRecursions
from kernax.core.line.recursions import AbstractRecursions, SequentialRecursions
from kernax.core.operators import structure
from kernax.core.operators.computed import AbstractComputedGram
from kernax.core.operators.operators import AbstractStructuredForm, in_places
from kernax.core.operators.structure import AbstractStructure


class OrderAlongLine(AbstractStructure):
    """The order of points along a line.

    Attributes:
        order: the indices in the batch of the points in ascending order.
        ranks: the rank along the line of each point of the batch.
        column: the coordinate along the line.
        harmonics: the number of terms for kernels that are series.
        recursions: the method for recursions from point to point.
    """

    order: Int[Array, " n"]
    ranks: Int[Array, " n"]
    column: int = eqx.field(static=True)
    harmonics: int = eqx.field(static=True)
    recursions: AbstractRecursions

    @staticmethod
    def of(
        points: Float[Array | np.ndarray, "n d"],
        column: int,
        harmonics: int,
        parallel: bool | None = None,
    ) -> "OrderAlongLine":
        """The order of a batch. Concrete points are sorted here, not in the compiled program."""
        coordinates = stop_gradient(points[:, column])
        if is_concrete(coordinates):
            order = np.argsort(np.asarray(coordinates), kind="stable")
            ranks = jnp.asarray(np.argsort(order))
            order = jnp.asarray(order)
        else:
            # XLA would sort constants during compilation, which takes a thousand times as long.
            coordinates = lax.optimization_barrier(coordinates)
            is_sorted = jnp.all(jnp.diff(coordinates) >= 0)
            numbers = jnp.arange(len(coordinates))

            def as_they_stand(_: Array) -> tuple[Array, Array]:
                return numbers, numbers

            def sort(coordinates: Array) -> tuple[Array, Array]:
                order = jnp.argsort(coordinates)
                return order, jnp.argsort(order)

            order, ranks = lax.cond(is_sorted, as_they_stand, sort, coordinates)
        return OrderAlongLine(order, ranks, column, harmonics, recursions_for(parallel))

    def gram(self, kernel, X):
        return LineGram(kernel, X, self)

    def check_noise(self, noise):
        pass

    def unsorted(self, values: Float[Array, "n *p"]) -> Float[Array, "n *p"]:
        """Values of sorted points in the order of the batch."""
        return values[self.ranks]


def recursions_for(parallel: bool | None) -> AbstractRecursions:
    """The method of recursions: parallel scans, or point by point. For None the default device
    decides: a CPU is faster point by point, an accelerator with parallel scans.
    """
    if parallel is None:
        parallel = not _is_on_cpu()
    return ParallelRecursions() if parallel else SequentialRecursions()


def _is_on_cpu() -> bool:
    """Whether the default device is a CPU."""
    return jax.default_backend() == "cpu"


class LineGram(AbstractComputedGram):
    """The Gram matrix of a kernel with a state-space model, at points in any order.

    A product is one recursion along the sorted points and one back, with m numbers each. No array
    of size n^2 is formed; `rows` and `submatrix` evaluate the kernel itself.
    """

    kernel: AbstractKernel
    points: Float[Array, "n d"]
    line: OrderAlongLine

    @property
    def order(self) -> Int[Array, " n"]:
        """The indices in the batch of the points in their order along the line."""
        return self.line.order

    @property
    def model(self) -> AbstractStateSpace:
        """The state-space model of the kernel."""
        model = self.kernel.state_space(self.line.harmonics)
        assert model is not None
        return model

    def chain(self) -> Chain:
        """The model at the sorted points."""
        return Chain.of(self.model, self.points[self.order, self.line.column])

    def product(self, columns):
        # `K V` for sorted points: for each, the sum over previous points, its own term, and the
        # sum over later points.
        chain = self.chain()
        V = columns[self.order]
        A = chain.transitions
        # K_ij = h.A_i ... A_j+1 P h for j < i. Forwards x = A_i x + P h v_i^T is multiplied by
        # A_i^T h, backwards x = A_i^T x + A_i^T h v_i^T is multiplied by P h, each before the step
        # of its point.
        seen = matmul(chain.observation, A)
        start = jnp.broadcast_to(chain.start, seen.shape)
        before = self.line.recursions.readings(A, start, V, seen)
        after = self.line.recursions.readings(A, seen, V, start, back=True)
        return self.line.unsorted(before + dot(chain.observation, chain.start) * V + after)

    def columns_product(self, indices, values):
        return self.mv(in_places(indices, values, len(self.points)))

    def squares_in_products(self, vector):
        # The squares of K_ij form the Gram matrix of the squared kernel.
        square = LineGram(self.kernel**2, self.points, self.line)
        return square.mv(vector**2)

    def symmetric_form(self, weights, shift):
        return LineForm(self, weights, shift)


class LineForm(AbstractStructuredForm):
    """`S K S + diag(shift)`, S = sqrt(W), for points along a line."""

    gram: LineGram
    weights: AbstractWeights
    shift: Float[Array, " n"]


# On accelerators, where a line is not measured. There a factorisation for so many points takes
# longer than about a hundred steps on small arrays, and the matrix fills a gigabyte.
_MANY_ON_ACCELERATORS = 10_000
_FEW_STATES = 10


def line_of_many_points(kernel: AbstractKernel, X: PyTree) -> OrderAlongLine | None:
    """The line of the points if a factor along it is faster than that of the dense matrix;
    otherwise None.
    """
    if count(X) < (structure.MANY_POINTS if _is_on_cpu() else _MANY_ON_ACCELERATORS):
        return None
    model = kernel.state_space(0)
    columns = _columns(kernel, X)
    if model is None or not columns:
        return None
    states = eqx.filter_eval_shape(model.observation).shape[0]
    return OrderAlongLine.of(X, min(columns), 0) if states <= _FEW_STATES else None


def _columns(kernel: AbstractKernel, X: PyTree) -> frozenset[int]:
    """The columns of vectors that may be the line; none for other kinds of points."""
    is_array = isinstance(X, np.ndarray | jax.Array) and X.ndim == 2
    return kernel.sufficient_columns(X.shape[1]) if is_array else frozenset()


def line_for(
    kernel: AbstractKernel, X: PyTree, harmonics: int, parallel: bool | None = None
) -> OrderAlongLine:
    """The line for a kernel and points. Raises ValueError for a kernel without a state-space model,
    and for points that are not along one line.
    """
    if kernel.state_space(harmonics) is None:
        raise ValueError(
            f"StateSpace needs a kernel with a state-space model, but {type(kernel).__name__} has "
            "none that is known: use Matern12, Matern32, Matern52, Cosine, DampedOscillator, "
            "Periodic, ZeroMeanPeriodic, Constant, or sums, products, powers and scales of these"
        )
    columns = _columns(kernel, X)
    if not columns:
        raise ValueError(f"StateSpace needs points along one line, but {_why_no_line(kernel, X)}")
    return OrderAlongLine.of(X, min(columns), harmonics, parallel)


def _why_no_line(kernel: AbstractKernel, X: PyTree) -> str:
    """Why points are not along a line, and what to do."""
    if isinstance(X, np.ndarray | jax.Array) and X.ndim == 1:
        return f"X is a batch of numbers of shape {X.shape}: pass X[:, None], which has a column"
    if not isinstance(X, np.ndarray | jax.Array):
        return f"X is a {type(X).__name__}: pass vectors, an array of shape (n, d)"
    return (
        f"X has shape {X.shape} and {type(kernel).__name__} depends on more than one column: "
        "On(kernel, column) selects one"
    )
