"""Explicit features phi of a point, which `FeatureMap` turns into kernels `phi(x) . phi(z)`."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.numerics import squared_distance, vectors
from kernax.core.base.parameters import check_intervals, integer, positive, real
from kernax.core.base.printing import Printed


class AbstractBasis(Printed):
    """A function from a point (d,) to its features (D,): `FeatureMap(basis)` is the kernel.

    Examples:
        >>> isinstance(kernax.bases.PolynomialBasis(2), kernax.bases.AbstractBasis)
        True
        >>> kernel = kernax.FeatureMap(kernax.bases.PolynomialBasis(2))
        >>> float(kernel(jnp.array([2.0]), jnp.array([3.0])))  # 1 + 6 + 36
        43.0
    """

    @abc.abstractmethod
    def __call__(self, x: Array) -> Float[Array, " D"]:
        """The features of one point."""

    def __check_init__(self):
        check_intervals(self)


class PolynomialBasis(AbstractBasis):
    """`1, x_1, ..., x_1^degree, x_2, ..., x_d^degree`: D = 1 + d degree features.

    The features are powers of single dimensions (Bishop 2006, section 3.1). Mixed monomials are the
    features of `Polynomial(degree, offset)`.

    Examples:
        >>> basis = kernax.bases.PolynomialBasis(degree=2)
        >>> basis(jnp.array([3.0, 2.0]))
        Array([1., 3., 9., 2., 4.], dtype=float64)
    """

    degree: int = integer("degree", default=2)

    def __call__(self, x):
        x, _ = vectors(x, x)
        powers = jnp.stack([x**j for j in range(1, self.degree + 1)], 1)
        return jnp.concatenate([jnp.ones(1, x.dtype), powers.ravel()])


class AbstractLocalBasis(AbstractBasis):
    """Functions of the difference of a point from each of m centres (m, d), or (m,) for d = 1."""

    centres: eqx.AbstractVar[Float[ParameterArray, "m *d"]]

    def __check_init__(self):
        if jnp.ndim(self.centres) not in (1, 2) or not jnp.size(self.centres):
            raise ValueError(
                "centres must have shape (m, d), or (m,) for points of shape (1,), but have shape "
                f"{jnp.shape(self.centres)}"
            )

    def _stack(self) -> Array:
        return self.centres[:, None] if self.centres.ndim == 1 else self.centres


class GaussianBasis(AbstractLocalBasis):
    """`exp(-|(x - centres_j) / width|^2 / 2)`: D = m bumps (Bishop 2006, eq. 3.4).

    `centres` (m, d), or (m,) for d = 1, and `width` > 0, a scalar or one per dimension, are in
    units of x.

    Examples:
        >>> basis = kernax.bases.GaussianBasis(centres=[0.0, 0.5, 1.0], width=0.5)
        >>> jnp.round(basis(jnp.array([0.5])), 3)
        Array([0.607, 1.   , 0.607], dtype=float64)
    """

    centres: Float[ParameterArray, "m *d"] = real()
    width: Float[ParameterArray, "*d"] = positive(default=1.0)

    def __call__(self, x):
        return jax.vmap(lambda centre: jnp.exp(-squared_distance(x, centre, self.width) / 2))(
            self._stack()
        )


class SigmoidBasis(AbstractLocalBasis):
    """`sigmoid((x_a - centres_ja) / width_a)` for every centre j and dimension a: D = m d steps.

    These are the sigmoid functions of Bishop 2006, eq. 3.5, in every dimension. `centres` (m, d),
    or (m,) for d = 1, and `width` > 0, a scalar or one per dimension, are in units of x.

    Examples:
        >>> basis = kernax.bases.SigmoidBasis(centres=[0.0, 0.5, 1.0], width=0.1)
        >>> jnp.round(basis(jnp.array([0.5])), 3)
        Array([0.993, 0.5  , 0.007], dtype=float64)
    """

    centres: Float[ParameterArray, "m *d"] = real()
    width: Float[ParameterArray, "*d"] = positive(default=1.0)

    def __call__(self, x):
        def step(centre):
            point, middle = vectors(x, centre, self.width)
            return jax.nn.sigmoid((point - middle) / self.width)

        return jax.vmap(step)(self._stack()).ravel()


class IndicatorBins(AbstractBasis):
    """Indicators of the bin of each of R components, for `bins` equal bins of [0, 1).

    With `order` > 1 the features are all (R bins)^order products of `order` indicators, and the
    kernel is `(number of components in the same bin)^order`; `FeatureMap(IndicatorBins(bins)) **
    order` is the same kernel without the long vectors. The features are piecewise constant, so the
    derivative is zero. They are NaN where a component is outside [0, 1).

    Examples:
        >>> basis = kernax.bases.IndicatorBins(bins=4)
        >>> basis(jnp.array([0.3]))
        Array([0., 1., 0., 0.], dtype=float64)
    """

    bins: int = integer("bins")
    order: int = integer("order", default=1)

    def __call__(self, x):
        x, _ = vectors(x, x)
        indicators = self._indicators(x[:, None]).ravel()
        monomials = indicators
        for _ in range(self.order - 1):
            monomials = jnp.outer(monomials, indicators).ravel()
        return monomials

    def _indicators(self, x: Float[Array, "R 1"]) -> Float[Array, "R bins"]:
        """One for the bin that a component is in, zero for the others; NaN outside [0, 1)."""
        # NumPy computes the edges, because a compiled quotient may be rounded differently.
        edges = np.arange(self.bins + 1, dtype=x.dtype) / x.dtype.type(self.bins)
        inside = (edges[None, :-1] <= x) & (x < edges[None, 1:])
        return jnp.where((x >= 0) & (x < 1), inside.astype(x.dtype), jnp.nan)
