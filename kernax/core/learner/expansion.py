"""Kernel expansions, the functions that learners return, and the geometry of their space."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import (
    all_finite,
    as_point,
    cast,
    check_one_point,
    count,
    dtype_of,
)
from kernax.core.base.compiled import compiled
from kernax.core.base.numerics import is_concrete, requested_precision, safe_sqrt
from kernax.core.base.parameters import data
from kernax.core.base.powers import in_own_unit
from kernax.core.base.printing import Printed, missing
from kernax.core.base.stacks import joined
from kernax.core.kernel.kernel import AbstractKernel, as_kernel
from kernax.core.kernel.preparation import (
    check_point,
    diagonal_of,
    prepare_new,
    warn_of_featureless_points,
)
from kernax.core.learner.structures import structure_of_many
from kernax.core.operators.computed import check_pairs_fit, checked_pairs
from kernax.core.operators.gram import gram
from kernax.core.operators.mesh import RowsOverMesh, by_rows, rows_over_mesh, whole_on_each
from kernax.core.operators.pairs import pairs_of
from kernax.core.operators.structure import AbstractStructure

# Attributes of scikit-learn, and their counterparts here.
_AS_FUNCTION = "call it: f(x) at one point, f.values(X) at a batch"
_INSTEAD = {
    "predict": _AS_FUNCTION,
    "decision_function": _AS_FUNCTION,
    "value": _AS_FUNCTION,
    "coef_": "f.coefficients, of the kernel at each of f.points",
    "dual_coef_": "f.coefficients",
    "intercept_": "f.bias",
}


class KernelExpansion(Printed):
    """`f(x) = sum_i coefficients_i k(x, points_i) + bias`, a function of one point.

    For a batch of points use `jax.vmap(f)(X)` or `f.values(X)`.

    Attributes:
        kernel: the kernel k.
        points: a batch of n points.
        coefficients: shape (n,), or (n, outputs) for a function with several outputs. Several
            penalties add a last axis.
        bias: shape () or (outputs,), the shape of the coefficients without their first axis.

    Expansions in the same kernel form a vector space: `f + g`, `f - g`, `2.0 * f`. The geometry
    (`norm`, `inner`, `distance`) is that of the kernel's Hilbert space (RKHS), which does not
    include the bias: `f(x) - bias = <f, k(x, .)>`.

    Raises ValueError for a batch where one point is expected, for functions with different kernels
    or numbers of outputs, and for a scale that is neither one number nor one for each output.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> f = kernax.kernel_ridge(kernax.RBF(0.3), X, jnp.sin(6.0 * X[:, 0]), ridge=0.01).value
        >>> f(jnp.array([0.4])).shape, f.values(X).shape
        ((), (5,))
        >>> bool(f.distance(f) < 1e-6)
        True
        >>> round(float((2.0 * f).norm / f.norm), 2)
        2.0
    """

    kernel: AbstractKernel
    points: PyTree = data()
    coefficients: Float[Array, "n *outputs"] = data()
    bias: Float[Array, "*outputs"] = data()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError and names the counterpart of attributes of other libraries."""
            instead = _INSTEAD.get(name, "it has kernel, points, coefficients and bias")
            raise missing(self, name, instead)

    def __call__(self, x: PyTree) -> Float[Array, "*outputs"]:
        """The value at one point, shape (*outputs)."""
        x = cast(as_point(x), self.coefficients.dtype)
        check_one_point(x, self.points, "f.values(X), or jax.vmap(f)(X),")
        check_point(self.kernel, x)
        return self._at(x)

    @compiled
    def _at(self, x: PyTree) -> Float[Array, "*outputs"]:
        """The value at a checked point."""
        # f(x) = sum_i c_i k(x, p_i) + b.
        row = jax.vmap(lambda point: self.kernel(x, point))(self.points)
        return _sums(row, self.coefficients) + self.bias

    def values(self, X: PyTree) -> Float[Array, "m *outputs"]:
        """The values at a batch of m points, shape (m, *outputs).

        The result is that of `jax.vmap(f)(X)`, but with the checks of `gram` and its bound on
        memory, which string kernels need. Along a line, for kernels and numbers of points for which
        `condition` uses `StateSpace()` by default, many values take one product in O(m + n).
        """
        kernel, X = prepare_new(self.kernel, X, self.points, self.coefficients.dtype)
        spread = rows_over_mesh(X)
        if spread is None and _are_many_vectors(X, self.points):
            # `sum_i k(x, points_i) coefficients_i` by the structured Gram matrix of both batches
            # together, where there is one that is faster than `k(x_i, z_j)`.
            # A recursion would spread NaN or inf from one point to all others.
            is_finite = jnp.all(jnp.isfinite(X), 1)
            both = joined([jnp.where(is_finite[:, None], X, 0), self.points])
            structure = structure_of_many(kernel, both)
            if structure is not None:
                sums = _sums_by(structure, kernel, both, self.coefficients)
                is_known = jnp.expand_dims(is_finite, tuple(range(1, sums.ndim)))
                return jnp.where(is_known, sums, jnp.nan) + jnp.expand_dims(self.bias, 0)
        points = self.points
        if spread is not None:
            X = by_rows(X, spread)
            points = whole_on_each(points, spread)
        check_pairs_fit(kernel, X, points)
        values, sound = _values(kernel, X, points, self.coefficients, self.bias, spread)
        if is_concrete(sound) and not sound:
            diagonal = diagonal_of(kernel, X)
            if not (all_finite(values) and all_finite(diagonal)):
                checked_pairs(kernel, X, points, None, spread)  # raises if the kernel is the cause
            warn_of_featureless_points(kernel, X, diagonal)
        return values

    def inner(self, other: "KernelExpansion") -> Float[Array, "*outputs"]:
        """`<f, g> = sum_ij c_i k(p_i, q_j) d_j`, for each output, without the biases."""
        self._check_same_space(other)
        K = gram(self.kernel, self.points, None if other.points is self.points else other.points)
        return jnp.sum(self.coefficients * _sums(K, other.coefficients), 0)

    @property
    def norm(self) -> Float[Array, "*outputs"]:
        """`|f| = sqrt(c^T K c)`, for each output, without the bias.

        |f(x) - f(z)| is at most |f| times the `kernel_distance` of x and z.
        """
        # Use units of the largest coefficient, because its square may overflow.
        coefficients, unit = in_own_unit(self.coefficients, 0)
        scaled = KernelExpansion(self.kernel, self.points, coefficients, self.bias)
        # c^T K c may be negative by rounding.
        root = safe_sqrt(jnp.maximum(scaled.inner(scaled), 0))
        return root * unit[0]

    def distance(self, other: "KernelExpansion") -> Float[Array, "*outputs"]:
        """`|f - g|`, for each output."""
        return (self - other).norm

    def __add__(self, other: "KernelExpansion") -> "KernelExpansion":
        if not isinstance(other, KernelExpansion):
            return NotImplemented
        self._check_same_space(other)
        # f + g = sum_i c_i k(p_i, .) + sum_j d_j k(q_j, .).
        points = joined([self.points, other.points])
        coefficients = jnp.concatenate([self.coefficients, other.coefficients])
        return KernelExpansion(self.kernel, points, coefficients, self.bias + other.bias)

    def __radd__(self, other: Any) -> "KernelExpansion":
        # sum([f, g]) starts at 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, scale: ArrayLike) -> "KernelExpansion":
        if not eqx.is_array_like(scale):
            return NotImplemented
        outputs = jnp.shape(self.bias)
        if jnp.shape(scale) not in ((), outputs):
            raise ValueError(
                f"an expansion with outputs {outputs} is scaled by a number, or by one for each "
                f"output, but scale has shape {jnp.shape(scale)}"
            )
        # s f = sum_i s c_i k(p_i, .) + s b.
        of_each_point = scale if jnp.ndim(scale) == 0 else jnp.asarray(scale)[None]
        coefficients = self.coefficients * of_each_point
        return KernelExpansion(self.kernel, self.points, coefficients, self.bias * scale)

    __rmul__ = __mul__

    def __truediv__(self, scale: ArrayLike) -> "KernelExpansion":
        return self * (1 / scale)

    def __neg__(self) -> "KernelExpansion":
        return self * -1

    def __sub__(self, other: "KernelExpansion") -> "KernelExpansion":
        return self + -other

    def _check_same_space(self, other: "KernelExpansion") -> None:
        """Raises ValueError unless both are known to have the same kernel and the same outputs."""
        # Whether two kernels are known to be equal; traced parameters must be the same objects.
        leaves, structure = jax.tree.flatten(self.kernel)
        leaves_of_other, other_structure = jax.tree.flatten(other.kernel)
        equal = lambda a, b: a is b or (is_concrete(a, b) and np.array_equal(a, b))
        if not (structure == other_structure and all(map(equal, leaves, leaves_of_other))):
            raise ValueError(
                "expansions in different kernels are in different spaces and have no sum or inner "
                "product"
            )
        mine = jnp.shape(self.bias)
        others = jnp.shape(other.bias)
        if mine != others:
            raise ValueError(
                f"expansions with outputs {mine} and {others} have no sum or inner product"
            )


def _sums(K: Float[Array, "*m n"], coefficients: Float[Array, "n *outputs"]) -> Array:
    """`sum_i K_i coefficients_i` over the last axis of K, for any number of axes of outputs."""
    return jnp.tensordot(K, coefficients, 1, precision=requested_precision(K.dtype))


@compiled
def _values(
    kernel: AbstractKernel,
    X: PyTree,
    points: PyTree,
    coefficients: Float[Array, "n *outputs"],
    bias: Float[Array, "*outputs"],
    spread: RowsOverMesh | None,
) -> tuple[Float[Array, "m *outputs"], Bool[Array, ""]]:
    """`sum_i k(x, points_i) coefficients_i + bias` at a batch of points x, and whether these values
    and `k(x, x)` are finite and no `k(x, x)` is zero.
    """
    K, _, (diagonal, _) = pairs_of(kernel, X, points, None, spread)
    values = _sums(K, coefficients) + jnp.expand_dims(bias, 0)
    # NaN or inf in a row of K makes the sum NaN or inf, so K itself need not be checked.
    # A diagonal of zero, as of a point without features, is worth a second look.
    is_usual = jnp.isfinite(diagonal) & (diagonal != 0)
    return values, jnp.all(jnp.isfinite(values)) & jnp.all(is_usual)


# A product with a structure takes as long as about ten to a hundred rows of a matrix.
_MANY_ROWS = 200


def _are_many_vectors(X: PyTree, points: PyTree) -> bool:
    """Whether both batches are vectors on one device, and large enough that a structure may be
    faster.
    """
    if not (eqx.is_array(X) and eqx.is_array(points) and X.ndim == points.ndim == 2):
        return False
    (m, d) = X.shape
    n = len(points)
    # A matrix costs m n; a structure pays from m n = _MANY_ROWS (m + n) on.
    if points.shape[1] != d or m * n < _MANY_ROWS * (m + n):
        return False
    return rows_over_mesh(points) is None


@compiled
def _sums_by(
    structure: AbstractStructure,
    kernel: AbstractKernel,
    both: PyTree,
    coefficients: Float[Array, "n *outputs"],
) -> Float[Array, "m *outputs"]:
    """`sum_i k(x, points_i) coefficients_i` for m points x, which precede the n points of the
    expansion in one batch.
    """
    # The first m rows of K [0; c], K of both batches, are k(x, points) c.
    m = count(both) - len(coefficients)
    nothing = jnp.zeros_like(coefficients, shape=(m, *coefficients.shape[1:]))
    return structure.gram(kernel, both).mv(jnp.concatenate([nothing, coefficients]))[:m]


def kernel_distance(kernel: AbstractKernel, x: PyTree, z: PyTree) -> Float[Array, ""]:
    """`|phi(x) - phi(z)| = sqrt(k(x, x) + k(z, z) - 2 k(x, z))`: the kernel distance of two points.

    It is the distance of their features in the kernel's Hilbert space. Raises ValueError if
    `kernel` is not a kernel.

    Examples:
        >>> x, z = jnp.array([0.0]), jnp.array([3.0])
        >>> float(kernax.kernel_distance(kernax.Linear(), x, z))
        3.0
        >>> round(float(kernax.kernel_distance(kernax.RBF(1.0), x, z)), 2)  # at most sqrt(2)
        1.41
    """
    x = as_point(x)
    z = as_point(z)
    kernel = cast(as_kernel(kernel), dtype_of(x, z))
    # |phi(x) - phi(z)|^2 may be negative by rounding.
    return safe_sqrt(jnp.maximum(kernel(x, x) + kernel(z, z) - 2 * kernel(x, z), 0))
