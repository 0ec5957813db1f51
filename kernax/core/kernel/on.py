"""`On`: a kernel on some dimensions of a vector, or on one part of a mixed point."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from kernax.core.kernel.kernel import AbstractKernel, ColumnFactor, Invariance, as_kernel


def _hashable(where: Any) -> Any:
    """Dimensions as a tuple of integers, anything else unchanged, for a static field."""
    if eqx.is_array(where) or isinstance(where, np.generic):
        where = np.asarray(where).tolist()
    if where is None or isinstance(where, (bool, float, dict, eqx.Module)):
        raise ValueError(f"On(kernel, where) selects dimensions or a part, but where is {where!r}")
    if not isinstance(where, (list, tuple, range)):
        return where
    places = np.asarray(where)
    if places.ndim != 1 or places.dtype.kind not in "iu":
        raise ValueError(
            f"On(kernel, where) takes dimensions as integers, but where is {where!r}: use "
            "np.flatnonzero for a mask"
        )
    return tuple(places.tolist())


class On(AbstractKernel):
    """`k(x[where], z[where])`: a kernel on some dimensions of a vector, or one part of a tuple or
    dict.

    `where` is a dimension, a slice or a sequence of dimensions (k still takes a vector), or the
    index or key of a part. A sum of kernels on different parts is their direct sum, and a product
    is their tensor product.

    Examples:
        >>> k = kernax.On(kernax.RBF(), [0]) + kernax.On(kernax.Linear(), [1, 2])
        >>> x = jnp.array([0.5, 1.0, 2.0])
        >>> float(k(x, x))  # 1 + (1 + 4)
        6.0
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    where: Any = eqx.field(static=True, converter=_hashable)

    keeps: ClassVar[Invariance] = Invariance.STATIONARY
    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        part = self.part(x)
        return self.kernel(part, part if z is x else self.part(z))

    def part(self, x: PyTree) -> PyTree:
        """`x[where]`."""
        return self._dimensions(x) if hasattr(x, "shape") else self._one_of(x)

    def _dimensions(self, x: Array | np.ndarray) -> Any:
        """Some dimensions of a vector. Raises ValueError unless it has them."""
        if isinstance(self.where, slice):
            places = self.where
            fits = x.ndim > 0 and len(range(len(x))[places]) > 0
        else:
            places = np.atleast_1d(np.asarray(self.where))
            fits = x.ndim == 1 and places.dtype.kind == "i" and places.size > 0
            # They count from either end.
            outside = places[(places < -len(x)) | (places >= len(x))] if fits else []
            if len(outside):
                raise ValueError(
                    f"On(kernel, {self.where!r}) selects dimension {outside[0]}, which is out of "
                    f"range: a point has shape {x.shape}, with dimensions 0 to {len(x) - 1}"
                )
        if not fits:
            raise ValueError(
                f"On(kernel, {self.where!r}) selects dimensions of a vector, but a point has shape "
                f"{x.shape}"
            )
        return x[places]

    def _one_of(self, x: PyTree) -> PyTree:
        """One part of a tuple or dict. Raises ValueError unless x has that part."""
        if not isinstance(x, (tuple, list, dict)):
            raise ValueError(
                f"On(kernel, {self.where!r}) selects a part of a tuple or dict, but a point is a "
                f"{type(x).__name__}"
            )
        known = list(x) if isinstance(x, dict) else list(range(-len(x), len(x)))
        if self.where not in known:
            raise ValueError(
                f"On(kernel, {self.where!r}) selects one part of a point, but the parts of this "
                f"one are {known}"
            )
        return x[self.where]

    @property
    def summands(self):
        terms = self.kernel.summands
        return None if terms is None else tuple(On(term, self.where) for term in terms)

    def sufficient_columns(self, dim):
        places = self.part(np.arange(dim)).tolist() if dim else []
        inner = self.kernel.sufficient_columns(len(places))
        return frozenset(places[place] for place in inner)

    def factors_over_columns(self, dim):
        places = self.part(np.arange(dim)).tolist()
        if len(set(places)) < len(places):
            # A column that is selected twice enters several of the factors inside.
            return (ColumnFactor(frozenset(places), self),)
        return tuple(
            ColumnFactor(
                frozenset(places[place] for place in factor.columns), On(factor.kernel, self.where)
            )
            for factor in self.kernel.factors_over_columns(len(places))
        )

    def check_points(self, X):
        # Slices have no hash in Python 3.11.
        in_parts = isinstance(X, dict) and self.where in list(X)
        if isinstance(X, (tuple, list)) and isinstance(self.where, int):
            in_parts = -len(X) <= self.where < len(X)
        if in_parts:
            self.kernel.check_points(X[self.where])

    def explicit_features(self):
        inner = self.kernel.explicit_features()
        return None if inner is None else lambda x: inner(self.part(x))

    def low_rank(self):
        inner = self.kernel.low_rank()
        return None if inner is None else lambda X: inner(jax.vmap(self.part)(X))

    def spectral_parts(self, dim):
        places = self.part(np.arange(dim)).tolist()
        if len(set(places)) < len(places):
            raise ValueError(
                f"On(kernel, {self.where!r}) selects a column twice, and has no spectrum here: "
                "select each column once"
            )
        # Frequencies are those of k in the selected columns, and zero in the others.
        parts = self.kernel.spectral_parts(len(places))
        return tuple(
            part._replace(columns=tuple(places[column] for column in part.columns))
            for part in parts
        )

    def state_space(self, harmonics):
        return self.kernel.state_space(harmonics)
