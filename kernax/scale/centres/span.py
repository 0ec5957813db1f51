"""The functions over which a risk is minimised: the kernel at centres, or its features."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.boundary import cast, count, dtype_of
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import guarded, prepare_stacks
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.linear import FeaturesOf, LinearFunction
from kernax.core.operators.gram import gram_of_prepared
from kernax.core.operators.memory import Footprint

# Matrices of m x m, in float64 whatever the dtype of the points.
FALKON = Footprint("falkon", 11.4, fewer="fewer centres")


class AbstractSpan(eqx.Module):
    """The sums `f = sum_j a_j g_j` of m functions in the space of a kernel."""

    kernel: eqx.AbstractVar[AbstractKernel]

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """m."""

    @abc.abstractmethod
    def prepared(self, dtype: Any) -> "AbstractSpan":
        """The same functions, for points of that dtype."""

    @abc.abstractmethod
    def values(self, X: PyTree) -> Float[Array, "n m"]:
        """`g_j(x_i)`, in the precision of the points."""

    @abc.abstractmethod
    def products(self, dtype: Any) -> Float[Array, "m m"]:
        """`<g_i, g_j>`, in that precision."""

    @abc.abstractmethod
    def function(
        self, coefficients: Float[Array, "m *p"], bias: Float[Array, "*p"]
    ) -> KernelExpansion | LinearFunction:
        """`f + bias`."""


class OfCentres(AbstractSpan):
    """The functions `g_j = k(., z_j)` of m centres Z."""

    kernel: AbstractKernel
    Z: PyTree

    @property
    def size(self):
        return count(self.Z)

    def prepared(self, dtype):
        kernel, Z, _ = prepare_stacks(self.kernel, cast(self.Z, dtype))
        return OfCentres(kernel, Z)

    def values(self, X):
        return gram_of_prepared(self.kernel, X, self.Z)

    def products(self, dtype):
        return gram_of_prepared(cast(self.kernel, dtype), cast(self.Z, dtype))

    def function(self, coefficients, bias):
        return KernelExpansion(self.kernel, self.Z, coefficients, bias)


class OfFeatures(AbstractSpan):
    """The functions `g_j = phi_j` of a kernel `phi(x).phi(z)` with m explicit features."""

    kernel: AbstractKernel
    m: int = eqx.field(static=True)

    @staticmethod
    def of(kernel: AbstractKernel, X: PyTree) -> "OfFeatures":
        """The features of a kernel, counted at a batch of points. Raises ValueError for a kernel
        without explicit features.
        """
        if kernel.explicit_features() is None:
            raise ValueError(
                "centres must be points, or their number with a key, since "
                f"{type(kernel).__name__} has no known explicit features: only a kernel with such "
                "features, as random_fourier_features(kernel, ...) is, needs no centres"
            )
        shapes = eqx.filter_eval_shape(jax.vmap(FeaturesOf(kernel)), X)
        return OfFeatures(kernel, shapes.shape[1])

    @property
    def size(self):
        return self.m

    def prepared(self, dtype):
        return OfFeatures(guarded(cast(self.kernel, dtype)), self.m)

    def values(self, X):
        return jax.vmap(FeaturesOf(self.kernel))(X).astype(dtype_of(X))

    def products(self, dtype):
        return jnp.eye(self.m, dtype=dtype)

    def function(self, coefficients, bias):
        return LinearFunction(FeaturesOf(self.kernel), coefficients, bias)
