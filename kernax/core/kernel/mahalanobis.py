"""`Mahalanobis`: a kernel of linearly transformed vectors, which is one in another metric."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.numerics import matmul, origin_of_pairs, vectors
from kernax.core.base.parameters import real
from kernax.core.kernel.kernel import AbstractKernel, Invariance, as_kernel


class Mahalanobis(AbstractKernel):
    """`k(A x, A z)`, A = `factor` (r, d): the kernel k in the metric `M = A^T A` of the points.

    A stationary kernel of unit lengthscale becomes a function of the Mahalanobis distance
    `sqrt((x - z)^T M (x - z))`. M is positive semidefinite of rank at most r, also while A is
    learned by gradients. A diagonal A is one lengthscale for each column, as `RBF([...])` has; a
    full one mixes columns. `recursive_feature_machine` learns M from the gradients of its fit.

    Raises ValueError for a factor that is not a matrix, or points that are not vectors (d,).

    Examples:
        >>> k = kernax.kernels.Mahalanobis(kernax.RBF(1.0), factor=[[1.0, -1.0]])  # of x_0 - x_1
        >>> x, z = jnp.array([2.0, 1.0]), jnp.array([5.0, 4.0])
        >>> float(k(x, z))
        1.0
        >>> k.metric
        Array([[ 1., -1.],
               [-1.,  1.]], dtype=float64)
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    factor: Float[ParameterArray, "r d"] = real()

    keeps: ClassVar[Invariance] = Invariance.STATIONARY
    mirrors: ClassVar[bool] = True

    def __check_init__(self):
        if self.factor.ndim != 2 or not self.factor.size:
            raise ValueError(
                f"factor must have shape (r, d), r >= 1, but has shape {self.factor.shape}; for "
                "one lengthscale per column pass jnp.diag(1 / lengthscales)"
            )

    def __call__(self, x, z):
        x, z = vectors(x, z, self.factor[0])
        if self.kernel.is_stationary:
            # |A x - A z| = |A (x - o) - A (z - o)| for any origin o. A x and A z would round away
            # the difference of two points far from zero.
            origin = origin_of_pairs(lax.stop_gradient(x), lax.stop_gradient(z))
            x = x - origin
            z = z - origin
        return self.kernel(matmul(self.factor, x), matmul(self.factor, z))

    @property
    def metric(self) -> Float[Array, "d d"]:
        """`M = A^T A`."""
        return matmul(jnp.transpose(self.factor), self.factor)
