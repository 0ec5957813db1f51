"""Kernels of R^d that are functions of inner products."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from kernax.core.base.annotations import ArrayLike, ParameterArray
from kernax.core.base.numerics import dot, matmul, of_pair, vectors
from kernax.core.base.parameters import data, integer, nonnegative, positive, real
from kernax.core.functionals.draws import AbstractDraw, DrawRequest, prior_draw
from kernax.core.kernel.kernel import NO_POWER, AbstractKernel
from kernax.kernels.matrices import check_symmetric


class Linear(AbstractKernel):
    """`x . z`: linear functions through the origin, in squared units of x.

    Where there are many more points than dimensions, use `FeatureMap(jnp.asarray)`. It is the same
    kernel, but ridge and logistic regression, Gaussian processes and the perceptron then compute
    with the features and never form K.

    Examples:
        >>> k = kernax.Linear()
        >>> float(k(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])))
        11.0
    """

    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        x, z = vectors(x, z)
        return dot(x, z)


class LinearDraw(AbstractDraw):
    """`c.x`, of `Linear`."""

    coefficients: Float[Array, "*draws d"] = data()

    def __call__(self, x):
        return matmul(self.coefficients, x)

    def select(self, index):
        return LinearDraw(self.coefficients[index])


@prior_draw.register
def _(kernel: Linear, request: DrawRequest, key: Key[Array, ""]) -> AbstractDraw:
    point, _ = vectors(request.point, request.point)
    return LinearDraw(jax.random.normal(key, (*request.shape, len(point)), point.dtype))


class ShiftedLinear(AbstractKernel):
    """`(x - location) . (z - location)`: linear functions that are zero at the location.

    The location is in units of x, a scalar or one number per dimension. As a factor of a product it
    lets the size of the other factor grow linearly with the distance from the location (Duvenaud et
    al. 2013).

    Examples:
        >>> k = kernax.kernels.ShiftedLinear(location=1.0)
        >>> float(k(jnp.array([3.0]), jnp.array([5.0])))  # (3 - 1) (5 - 1)
        8.0
    """

    location: Float[ParameterArray, "*d"] = real(default=0.0)

    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        x, z = vectors(x, z, self.location)
        return dot(x - self.location, z - self.location)


class Polynomial(AbstractKernel):
    """`(x . z + offset)^degree`, degree a positive integer, offset >= 0.

    With p the degree and an offset c > 0 its C(d + p, p) features are the distinct monomials up to
    degree p, for p = 2 `x_i x_j`, `sqrt(2 c) x_i` and c; with c = 0 they are the C(d + p - 1, p) of
    degree exactly p (Schoelkopf & Smola 2002, section 2.1). Degree 1 with offset 0 is `Linear`.
    Values grow fast: rescale inputs to about unit size.

    Examples:
        >>> k = kernax.Polynomial(degree=2, offset=1.0)
        >>> float(k(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])))  # (11 + 1)^2
        144.0
    """

    degree: int = integer("degree", hint=NO_POWER, default=2)
    offset: Float[ParameterArray, ""] = nonnegative(default=1.0)

    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        x, z = vectors(x, z)
        return (dot(x, z) + of_pair(self.offset, x, z)) ** self.degree


class BilinearForm(AbstractKernel):
    """`x^T B z`, `B = factor factor^T`, factor (d, r).

    B is positive semidefinite of rank at most r, also while it is learned.

    Examples:
        >>> k = kernax.kernels.BilinearForm(factor=[[2.0], [1.0]])
        >>> float(k(jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])))
        2.0
        >>> B = jnp.array([[4.0, 2.0], [2.0, 1.0]])  # the same form, as a matrix
        >>> k = kernax.kernels.BilinearForm.from_matrix(B)
        >>> round(float(k(jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]))), 3)
        2.0
    """

    factor: Float[ParameterArray, "d r"] = real()

    def __check_init__(self):
        if self.factor.ndim != 2 or not self.factor.size:
            raise ValueError(
                f"factor must have shape (d, r), r >= 1, but has shape {self.factor.shape}"
            )

    @staticmethod
    def from_matrix(B: ArrayLike) -> "BilinearForm":
        """The form of a given symmetric positive semidefinite matrix, singular ones included.

        Raises ValueError for a matrix that is not square, not finite, not symmetric, or has an
        eigenvalue below -1e-6 (float32) or -1e-12 (float64) times the largest.
        """
        B = np.asarray(B, dtype=jnp.result_type(float))
        tolerance = 1e-12 if B.dtype == np.float64 else 1e-6
        if B.ndim != 2 or B.shape[0] != B.shape[1] or not B.size:
            raise ValueError(f"B must be a square matrix, but has shape {B.shape}")
        if not np.isfinite(B).all():
            raise ValueError("B must be finite, but holds NaN or inf")
        check_symmetric(B, "B", tolerance)
        values, vectors = np.linalg.eigh(B)
        if values[0] < -tolerance * np.abs(values).max():
            raise ValueError(
                f"B must be positive semidefinite, but has the eigenvalue {values[0]:.3g}: "
                "otherwise x^T B z is not a kernel"
            )
        # B = U diag(values) U^T = (U sqrt(values)) (U sqrt(values))^T.
        return BilinearForm(jnp.asarray(vectors * np.sqrt(np.maximum(values, 0))))

    def __call__(self, x, z):
        x, z = vectors(x, z, self.factor[:, 0])
        # x^T F F^T z = (F^T x).(F^T z).
        return dot(matmul(x, self.factor), matmul(z, self.factor))


class Tanh(AbstractKernel):
    """`tanh(scale x . z + offset)`, the "sigmoid kernel": *not* positive semidefinite.

    There are no useful parameters for which it is positive semidefinite; it is included because
    other libraries have it. Pass `indefinite=True` to confirm that you know this. Solvers report
    `not_psd`.

    Examples:
        >>> k = kernax.kernels.Tanh(scale=0.5, offset=-1.0, indefinite=True)
        >>> round(float(k(jnp.array([1.0, 2.0]), jnp.array([2.0, 1.0]))), 3)  # tanh(1)
        0.762
    """

    scale: Float[ParameterArray, ""] = positive(default=1.0)
    offset: Float[ParameterArray, ""] = real(default=0.0)
    indefinite: bool = eqx.field(static=True, default=False, kw_only=True)

    def __check_init__(self):
        if not self.indefinite:
            raise ValueError(
                "the tanh kernel is not positive semidefinite (its Gram matrices have negative "
                "eigenvalues): pass indefinite=True to use it all the same"
            )

    def __call__(self, x, z):
        x, z = vectors(x, z)
        return jnp.tanh(self.scale * dot(x, z) + self.offset)
