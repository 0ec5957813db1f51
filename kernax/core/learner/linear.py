"""Linear functions of explicit features, which some learners return."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.boundary import as_point, as_stack, cast
from kernax.core.base.compiled import compiled
from kernax.core.base.functions import function_field
from kernax.core.base.numerics import matmul, safe_sqrt
from kernax.core.base.parameters import data
from kernax.core.base.printing import Printed
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.operators.feature_map import FeatureMap

SUCH_AS = "a kernel with features, such as FeatureMap(jnp.asarray), the linear kernel of vectors"


def check_has_features(kernel: AbstractKernel, advice: str = f": use {SUCH_AS}") -> None:
    """Raises ValueError for a kernel without known explicit features."""
    if kernel.explicit_features() is None:
        raise ValueError(f"{type(kernel).__name__} has no known explicit features{advice}")


class FeaturesOf(eqx.Module):
    """The explicit features of a kernel: phi with `k(x, z) = phi(x) . phi(z)`, (D,).

    Raises ValueError for a kernel without known features.
    """

    kernel: AbstractKernel

    def __check_init__(self):
        check_has_features(self.kernel)

    def __call__(self, x: PyTree) -> Float[Array, " D"]:
        phi = self.kernel.explicit_features()
        assert phi is not None
        return phi(x)


class LinearFunction(Printed):
    """`f(x) = features(x) . weights + bias`, a function of one point.

    For a batch of points use `jax.vmap(f)(X)` or `f.values(X)`, as for a `KernelExpansion`.

    Attributes:
        features: a function of a point, (D,).
        weights: (D,), or (D, outputs) for a function with several outputs.
        bias: () or (outputs,).

    Examples:
        >>> weights, bias = jnp.array([2.0, 1.0]), jnp.array(3.0)
        >>> f = kernax.online.LinearFunction(jnp.sin, weights, bias)
        >>> float(f(jnp.array([0.0, 0.0])))
        3.0
    """

    features: Callable = function_field()
    weights: Float[Array, "D *outputs"] = data()
    bias: Float[Array, "*outputs"] = data()

    def __call__(self, x: PyTree) -> Float[Array, "*outputs"]:
        """The value at one point."""
        return self._at(cast(as_point(x), self.weights.dtype))

    @compiled
    def _at(self, x: PyTree) -> Float[Array, "*outputs"]:
        """The value at a checked point."""
        features = jnp.asarray(self.features(x)).astype(self.weights.dtype)
        # f(x) = phi(x) . w + b.
        return matmul(features, self.weights) + self.bias

    def values(self, X: PyTree) -> Float[Array, "m *outputs"]:
        """The values at a batch of m points."""
        return jax.vmap(self)(as_stack(X, "X"))

    @property
    def kernel(self) -> FeatureMap:
        """The kernel `features(x) . features(z)`, whose space contains this function."""
        return FeatureMap(self.features)

    @property
    def norm(self) -> Float[Array, "*outputs"]:
        """`|weights|` for each output, without the bias: the norm in the space of the kernel."""
        # The features of k(x, z) = phi(x) . phi(z) have |f|^2 = w . w.
        return safe_sqrt(jnp.sum(self.weights**2, 0))
