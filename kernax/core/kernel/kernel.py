"""Kernels: modules that take two points and return a number, and the algebra of kernels."""

import abc
import dataclasses
import enum
import functools
import inspect
import numbers
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike, ParameterArray
from kernax.core.base.boundary import count, dtype_of
from kernax.core.base.functions import accepts, check_callable
from kernax.core.base.intervals import flushed
from kernax.core.base.numerics import (
    is_concrete,
    least_lengthscale,
    of_pair,
    squared_distance,
    squared_distance_by_products,
    values_of,
)
from kernax.core.base.parameters import as_floats, check_intervals, integer, nonnegative
from kernax.core.base.powers import times_power_of_two
from kernax.core.base.printing import Printed, typed
from kernax.core.base.solution import warn
from kernax.core.kernel.spectra import Parts, convolved, fixed_part
from kernax.core.kernel.state_space import (
    AbstractStateSpace,
    ConstantState,
    ProductOfStates,
    ScaledStates,
    SumOfStates,
    of_all,
)
from kernax.errors import PrecisionWarning

Features = Callable[[PyTree], Float[Array, " D"]]
LowRank = Callable[[PyTree], tuple[Float[Array, "n D"], Float[Array, " n"]]]

_REFUSAL = (
    "{what} is not a kernel in general: its Gram matrices need not be positive semidefinite. "
    "Sums, products, non-negative scales, positive integer powers, exponentials and polynomials "
    "with non-negative coefficients, of kernels always are"
)
NO_POWER = ": other powers of a kernel are not kernels"


class Invariance(enum.IntEnum):
    """The motions of R^d, applied to both points, under which a kernel is known not to change.

    Examples:
        >>> kernax.RBF(0.3).invariance
        <Invariance.HOMOGENEOUS: 2>
        >>> kernax.Linear().is_stationary
        False
    """

    NONE = 0
    STATIONARY = 1  # translations
    HOMOGENEOUS = 2  # translations and rotations: a function of |x - z| only


def _of_numpy(leaf: Any) -> Any:
    """A concrete array of floats as a NumPy array; anything else unchanged."""
    if eqx.is_inexact_array(leaf) and is_concrete(leaf):
        return np.asarray(leaf)
    return leaf


def _of_jax(leaf: Any) -> Any:
    """A NumPy array as a JAX array, if JAX has its precision; anything else unchanged."""
    is_of_numpy = eqx.is_inexact_array_like(leaf) and isinstance(leaf, np.ndarray)
    holds = is_of_numpy and jax.dtypes.canonicalize_dtype(leaf.dtype) == leaf.dtype
    return jnp.asarray(leaf) if holds else leaf


class AbstractKernel(Printed):
    """A positive semidefinite function of two points.

    Subclasses declare their parameters as fields (`positive()`, `real()`, ...) and define
    `__call__(x, z)`, which returns a scalar. Matrices come from `gram`. Kernels add, multiply,
    scale by non-negative numbers and take positive integer powers.

    Examples:
        >>> class Cauchy(kernax.AbstractKernel):
        ...     scale: jax.Array = kernax.fields.positive(default=1.0)
        ...     def __call__(self, x, z):
        ...         return 1 / (1 + jnp.sum((x - z) ** 2) / self.scale)
        ...
        >>> k = 2.0 * Cauchy(4.0) + kernax.Linear()
        >>> float(k(jnp.array([0.0]), jnp.array([2.0])))
        1.0
    """

    # The motions under which such a kernel does not change if the kernels inside it do not.
    keeps: ClassVar[Invariance] = Invariance.NONE
    # Whether k(x, x) is 1 up to rounding, or 0 for a point without features.
    normalises: ClassVar[bool] = False
    # Whether functions of such a kernel have no derivative, that is, no d^2 k / dx dz at x = z.
    rough: ClassVar[bool] = False
    # Whether k(x, z) and k(z, x) are bitwise equal if they are for the kernels inside.
    mirrors: ClassVar[bool] = False
    # Whether such a kernel is `prod_j k_j(x_j, z_j)`, with each k_j(t, t) = 1.
    separates: ClassVar[bool] = False
    # Advice on how to encode words as points, for messages; empty for most kernels.
    encoding: ClassVar[str] = ""

    @abc.abstractmethod
    def __call__(self, x: PyTree, z: PyTree) -> Float[Array, ""]:
        """`k(x, z)` for two single points."""

    def __check_init__(self):
        check_intervals(self)

    def __getstate__(self) -> dict[str, Any]:
        """Fields with NumPy arrays, which keep their digits in a process without float64."""
        return jax.tree.map(_of_numpy, dict(vars(self)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in jax.tree.map(_of_jax, state).items():
            object.__setattr__(self, name, value)

    @property
    def invariance(self) -> Invariance:
        """The motions known to leave this kernel and every kernel inside it unchanged."""
        return min([self.keeps, *(part.invariance for part in parts_of(self))])

    @property
    def is_stationary(self) -> bool:
        """Whether `k(x + t, z + t) = k(x, z)` is known to hold."""
        return self.invariance >= Invariance.STATIONARY

    @property
    def is_homogeneous(self) -> bool:
        """Whether k is known to depend only on `|x - z|` (isotropic)."""
        return self.invariance == Invariance.HOMOGENEOUS

    @property
    def is_mirrored(self) -> bool:
        """Whether `k(x, z)` and `k(z, x)` are known to be equal bitwise."""
        return self.mirrors and all(part.is_mirrored for part in parts_of(self))

    @property
    def has_derivatives(self) -> ArrayLike:
        """Whether functions of this kernel are differentiable in mean square, that is, whether `d^2
        k / dx dz` exists at x = z. It is an array if that depends on a parameter.
        """
        smooth: Any = not self.rough
        for part in parts_of(self):
            smooth = smooth & part.has_derivatives
        return smooth

    @property
    def summands(self) -> "tuple[AbstractKernel, ...] | None":
        """The terms of this kernel in order if it is a sum; None if it is not known to be a sum."""
        return None

    def sufficient_columns(self, dim: int) -> frozenset[int]:
        """The columns of points (dim,) that each determine the value of this kernel alone.

        For most kernels there is such a column only if dim is 1; for a constant it is any column.
        """
        return frozenset([0]) if dim == 1 else frozenset()

    def factors_over_columns(self, dim: int) -> "tuple[ColumnFactor, ...]":
        """The factors of this kernel as a product on points (dim,). Columns of different factors
        may overlap.

        Most kernels have one factor, which depends on all columns.
        """
        if self.separates:
            return tuple(ColumnFactor(frozenset([column]), self) for column in range(dim))
        return (ColumnFactor(frozenset(range(dim)), self),)

    def check_points(self, X: PyTree) -> None:
        """Raises ValueError for points that this kernel does not accept, such as an index that is
        out of range.
        """

    def explicit_features(self) -> Features | None:
        """The feature map phi with `k(x, z) = phi(x) . phi(z)`, a function from a point to (D,), or
        None if it is not known.
        """
        return None

    def low_rank(self) -> LowRank | None:
        """A function from points X to F (n, D) and r (n,), whose Gram matrix is `F F^T + diag(r)`,
        or None if it is not known.

        By default F holds the explicit features and r is zero. An approximation by inducing points
        that preserves the variances has another r, which it adds in `k(x, z)` if x and z are the
        same object.
        """
        phi = type(self).explicit_features(self)
        if phi is None:
            return None

        def of_stack(X: PyTree) -> tuple[Array, Array]:
            features = jax.vmap(phi)(X).astype(dtype_of(X))
            return features, jnp.zeros_like(features, shape=count(X))

        return of_stack

    def spectral_parts(self, dim: int) -> Parts:
        """The spectral density of this kernel on points (dim,), as a sum of parts from which
        frequencies are drawn.

        Raises ValueError if it is not known, and for parameters of another dimension.
        """
        raise ValueError(
            f"{type(self).__name__} has no known spectral density: random frequencies can be "
            "drawn for Gaussian, Matern, rational quadratic, spectral mixture and cosine kernels, "
            "for periodic ones along one column and Constant, and for sums, products, powers and "
            "multiples of these, also On some of the columns"
        )

    def state_space(self, harmonics: int) -> AbstractStateSpace | None:
        """The state-space model of this kernel on one coordinate, or None if it is not known.

        `harmonics` is the number of terms for kernels that are series, such as periodic ones.
        """
        return None

    def __add__(self, other):
        if isinstance(other, (AbstractKernel, type)):
            return Sum(*_terms(Sum, self), *_terms(Sum, as_kernel(other)))
        if _is_number(other):
            return self + Constant(other)
        return NotImplemented

    def __radd__(self, other):
        # sum([k1, k2]) starts at 0.
        return self if isinstance(other, int) and other == 0 else self + other

    def __mul__(self, other):
        if isinstance(other, (AbstractKernel, type)):
            return Product(*_terms(Product, self), *_terms(Product, as_kernel(other)))
        if _is_number(other):
            return Scaled(self, other)
        return NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other):
        return self * (1 / other) if _is_number(other) else NotImplemented

    def __pow__(self, degree):
        return Power(self, degree)

    def __neg__(self):
        raise ValueError(_REFUSAL.format(what="minus a kernel"))

    def __sub__(self, other):
        raise ValueError(_REFUSAL.format(what="a difference of kernels"))

    __rsub__ = __sub__

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        # NumPy calls this both for np.float64(2) * kernel, which is allowed, and for
        # np.log(kernel), which is not.
        allowed = {np.add: "__radd__", np.multiply: "__rmul__", np.subtract: "__rsub__"}
        operation = allowed.get(ufunc)
        if operation is None or inputs[1] is not self:
            raise ValueError(_REFUSAL.format(what=f"numpy.{ufunc.__name__} of a kernel"))
        return getattr(self, operation)(inputs[0])


class ColumnFactor(eqx.Module):
    """A factor of a kernel: a kernel on the same points (dim,) that depends on some of their
    columns.

    Attributes:
        columns: the columns on which the factor depends; none for a constant.
        kernel: a kernel that equals the factor if x and z are the same in all other columns.
    """

    columns: frozenset[int] = eqx.field(static=True)
    kernel: AbstractKernel


def groups_of_columns(kernel: AbstractKernel, dim: int) -> tuple[frozenset[int], ...]:
    """The smallest groups of columns over which a kernel is a product, ordered by their first
    column. A column on which it does not depend is a group of its own.
    """
    groups = [frozenset([column]) for column in range(dim)]
    for factor in kernel.factors_over_columns(dim):
        joined = [group for group in groups if group & factor.columns]
        if joined:
            apart = [group for group in groups if not group & factor.columns]
            groups = [*apart, frozenset().union(*joined)]
    return tuple(sorted(groups, key=min))


def parts_of(kernel: AbstractKernel) -> list[AbstractKernel]:
    """The kernels inside another."""
    parts = []
    for field in dataclasses.fields(kernel):
        value = getattr(kernel, field.name)
        if not eqx.is_array(value):
            parts += filter(_is_kernel, jax.tree.leaves(value, is_leaf=_is_kernel))
    return parts


def _is_kernel(node: Any) -> bool:
    return isinstance(node, AbstractKernel)


def is_foreign(kernel: AbstractKernel) -> bool:
    """Whether the class of a kernel, or of one inside it, is defined outside of this package."""
    package, _, _ = __name__.partition(".")
    is_ours = type(kernel).__module__.startswith(f"{package}.")
    return not is_ours or any(map(is_foreign, parts_of(kernel)))


def encoding_of(kernel: AbstractKernel) -> str:
    """Advice on how to encode words as points for a kernel, or for the first kernel inside it that
    compares such points; empty if there is none.
    """
    inside = (encoding_of(part) for part in parts_of(kernel))
    return kernel.encoding or next((encoding for encoding in inside if encoding), "")


@functools.singledispatch
def name_of(kernel: AbstractKernel) -> str:
    """The name of a kernel in messages: that of its class, unless a class registers another."""
    return type(kernel).__name__


def _is_number(value: Any) -> bool:
    """Whether a value is a real number, or an array of shape ()."""
    return isinstance(value, numbers.Real) or (eqx.is_array_like(value) and jnp.ndim(value) == 0)


def _terms(kind: "type[Sum | Product]", kernel: AbstractKernel) -> tuple[AbstractKernel, ...]:
    """The terms of a sum or product of the given kind; any other kernel is a single term."""
    return kernel.terms if isinstance(kernel, kind) else (kernel,)


class AbstractStationary(AbstractKernel):
    """A kernel that is a function of `s = |(x - z) / lengthscale|^2`.

    The lengthscale is a scalar, or has one entry per dimension (ARD).

    Examples:
        >>> class Cauchy(kernax.AbstractStationary):
        ...     lengthscale: jax.Array = kernax.fields.positive(default=1.0)
        ...     def of_squared_distance(self, s):
        ...         return 1 / (1 + s)
        ...
        >>> k = Cauchy(lengthscale=2.0)
        >>> float(k(jnp.array([0.0]), jnp.array([2.0])))
        0.5
    """

    lengthscale: eqx.AbstractVar[Any]  # a number or (d,), as the subclass declares
    # Whether derivatives in its other numbers cost little for each pair, as those of a power do.
    has_cheap_numbers: ClassVar[bool] = False
    keeps: ClassVar[Invariance] = Invariance.HOMOGENEOUS
    mirrors: ClassVar[bool] = True

    def __check_init__(self):
        warn_if_short(self.lengthscale, f"{type(self).__name__}.lengthscale")

    @abc.abstractmethod
    def of_squared_distance(self, s: Float[Array, ""]) -> Float[Array, ""]:
        """The kernel as a function of the squared distance in lengthscales."""

    def __call__(self, x, z):
        s = squared_distance(x, z, self.lengthscale, rough=self.rough)
        return _with_numbers_of_pair(self, x, z).of_squared_distance(s)

    @property
    def invariance(self) -> Invariance:
        """Homogeneous for a single lengthscale; with one per dimension, only stationary."""
        of_distance = Invariance.HOMOGENEOUS
        if jnp.ndim(self.lengthscale):
            of_distance = Invariance.STATIONARY
        return min(super().invariance, of_distance)


def _with_numbers_of_pair(kernel: AbstractStationary, x: PyTree, z: PyTree) -> AbstractStationary:
    """The kernel, of which the numbers but for the lengthscale are those of one pair if their
    derivatives are cheap.
    """
    if not kernel.has_cheap_numbers:
        return kernel
    lengthscale = kernel.lengthscale

    def of_leaf(leaf: Any) -> Any:
        is_number = eqx.is_inexact_array(leaf) and leaf.ndim == 0 and leaf is not lengthscale
        return of_pair(leaf, x, z) if is_number else leaf

    return jax.tree.map(of_leaf, kernel)


class _SlopesByProducts(AbstractKernel):
    """A stationary kernel with derivatives in the points as matrix products between two batches."""

    kernel: AbstractStationary

    keeps: ClassVar[Invariance] = Invariance.HOMOGENEOUS
    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        s = squared_distance_by_products(x, z, self.kernel.lengthscale)
        return _with_numbers_of_pair(self.kernel, x, z).of_squared_distance(s)


def with_slopes_by_products(kernel: AbstractKernel) -> AbstractKernel:
    """The same kernel, with faster derivatives in the points of two batches: those of the rough
    stationary kernels inside it are matrix products, see `squared_distance_by_products`.

    It suits a mean over points, but not where two points differ only by rounding.
    """

    def is_rough(node: Any) -> bool:
        is_of_distance = isinstance(node, AbstractStationary) and node.rough
        return is_of_distance and type(node).__call__ is AbstractStationary.__call__

    of_node = lambda node: _SlopesByProducts(node) if is_rough(node) else node
    return jax.tree.map(of_node, kernel, is_leaf=is_rough)


def warn_if_short(length: Any, name: str) -> None:
    """Warns of a concrete lengthscale or period that acts as a larger one."""
    if not is_concrete(length):
        return
    lengths = values_of(length)
    least = least_lengthscale(lengths.dtype)
    if np.any((flushed(lengths) > 0) & (lengths < least)):
        warn(
            f"{name} is {lengths.min():g}, and acts as {least:.2g}, the smallest with a square in "
            f"{lengths.dtype}: rescale points that are so close together to another unit",
            PrecisionWarning,
        )


class AbstractWideRange(AbstractKernel):
    """A kernel whose values may leave the range of floats, except inside `Normalised`."""

    @abc.abstractmethod
    def scaled(self, x: PyTree, z: PyTree) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mantissa and the exponent of `k(x, z) = mantissa 2^exponent`.

        The exponent is a whole number, and a constant for derivatives.
        """

    def __call__(self, x, z):
        return times_power_of_two(*self.scaled(x, z))


class AbstractCombinator(AbstractKernel):
    """A pointwise function of the values of other kernels, with the invariances that all share."""

    keeps: ClassVar[Invariance] = Invariance.HOMOGENEOUS
    mirrors: ClassVar[bool] = True

    def factors_over_columns(self, dim: int) -> "tuple[ColumnFactor, ...]":
        # One factor, which depends on all columns on which any of the kernels inside depends.
        of_parts = (part.factors_over_columns(dim) for part in parts_of(self))
        columns = (factor.columns for factors in of_parts for factor in factors)
        return (ColumnFactor(frozenset().union(*columns), self),)

    def check_points(self, X):
        for part in parts_of(self):
            part.check_points(X)


def as_kernel(kernel: Any) -> AbstractKernel:
    """Returns a kernel. Raises ValueError for anything else, including a class of kernels."""
    if isinstance(kernel, AbstractKernel):
        return kernel
    came = typed(kernel)
    if isinstance(kernel, type):
        came = f"the class {kernel.__name__}"
    if isinstance(kernel, type) and issubclass(kernel, AbstractKernel):
        raise ValueError(
            f"kernel must be a kernel, but is {came}: call it, as in {_call_of(kernel)}"
        )
    if callable(kernel):
        came = f"{came}: wrap a function with Custom(lambda _, x, z: ...)"
    elif isinstance(kernel, str):
        came = f"the text {kernel!r}: call the class of that name, with its parameters"
    raise ValueError(f"kernel must be a kernel, an instance of its class, but is {came}")


def _call_of(kind: type[AbstractKernel]) -> str:
    """An example of a call of a class, with the default of its first parameter if it has one."""
    name = kind.__name__
    try:
        with jax.ensure_compile_time_eval():  # also while tracing
            kernel = kind()
    except (TypeError, ValueError):
        return f"{name}(...)"
    values = [getattr(kernel, field.name) for field in dataclasses.fields(kernel) if field.init]
    if not values or np.ndim(values[0]) or not eqx.is_inexact_array_like(values[0]):
        return f"{name}()"
    return f"{name}({float(values[0])})"


def _as_kernels(terms: tuple[Any, ...]) -> tuple[AbstractKernel, ...]:
    """The terms of a sum or product. Raises ValueError for terms that are not kernels."""
    return tuple(map(as_kernel, terms))


def _check_some(terms: tuple[AbstractKernel, ...], kind: str) -> None:
    """Raises ValueError for a sum or product without terms."""
    if not terms:
        raise ValueError(f"{kind} takes one kernel or more, but got none")


class Sum(AbstractCombinator):
    """`k_1(x, z) + k_2(x, z) + ...`

    Examples:
        >>> k = kernax.RBF(1.0) + kernax.Linear()  # a kernax.kernels.Sum
        >>> float(k(jnp.array([2.0]), jnp.array([2.0])))  # 1 + 4
        5.0
    """

    terms: tuple[AbstractKernel, ...]

    def __init__(self, *terms: AbstractKernel):
        self.terms = _as_kernels(terms)

    def __check_init__(self):
        _check_some(self.terms, "Sum")

    def __call__(self, x, z):
        total = self.terms[0](x, z)
        for term in self.terms[1:]:
            total = total + term(x, z)
        return total

    @property
    def summands(self):
        return self.terms

    def sufficient_columns(self, dim):
        return frozenset.intersection(*(term.sufficient_columns(dim) for term in self.terms))

    def explicit_features(self):
        parts = [term.explicit_features() for term in self.terms]
        if any(part is None for part in parts):
            return None
        # phi_1(x).phi_1(z) + phi_2(x).phi_2(z) = [phi_1(x), phi_2(x)].[phi_1(z), phi_2(z)].
        return lambda x: jnp.concatenate([part(x) for part in parts if part is not None])

    def low_rank(self):
        parts = [term.low_rank() for term in self.terms]
        if any(part is None for part in parts):
            return None

        def of_stack(X: PyTree) -> tuple[Array, Array]:
            # F_1 F_1^T + F_2 F_2^T = [F_1 F_2] [F_1 F_2]^T, and remainders add up.
            of_parts = [part(X) for part in parts if part is not None]
            features = jnp.concatenate([features for features, _ in of_parts], 1)
            return features, functools.reduce(jnp.add, [remainder for _, remainder in of_parts])

        return of_stack

    def spectral_parts(self, dim):
        # The Fourier transform is linear.
        return tuple(part for term in self.terms for part in term.spectral_parts(dim))

    def state_space(self, harmonics):
        # The sum of independent processes has the sum of their kernels.
        return of_all(SumOfStates, [term.state_space(harmonics) for term in self.terms])


class Product(AbstractCombinator):
    """`k_1(x, z) k_2(x, z) ...`

    Examples:
        >>> k = kernax.RBF(1.0) * kernax.Linear()  # a kernax.kernels.Product
        >>> float(k(jnp.array([2.0]), jnp.array([2.0])))  # 1 * 4
        4.0
    """

    terms: tuple[AbstractKernel, ...]

    def __init__(self, *terms: AbstractKernel):
        self.terms = _as_kernels(terms)

    def __check_init__(self):
        _check_some(self.terms, "Product")

    def __call__(self, x, z):
        product = self.terms[0](x, z)
        for term in self.terms[1:]:
            product = product * term(x, z)
        return product

    def sufficient_columns(self, dim):
        return frozenset.intersection(*(term.sufficient_columns(dim) for term in self.terms))

    def factors_over_columns(self, dim):
        return sum((term.factors_over_columns(dim) for term in self.terms), ())

    def spectral_parts(self, dim):
        # The Fourier transform of a product is the convolution of the transforms.
        return functools.reduce(convolved, [term.spectral_parts(dim) for term in self.terms])

    def state_space(self, harmonics):
        # h.A P h of Kronecker products is the product of those of the factors.
        return of_all(ProductOfStates, [term.state_space(harmonics) for term in self.terms])


class Scaled(AbstractCombinator):
    """`scale k(x, z)`, scale >= 0.

    Examples:
        >>> k = 3.0 * kernax.RBF(1.0)  # a kernax.kernels.Scaled
        >>> float(k(jnp.array([2.0]), jnp.array([2.0])))
        3.0
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    scale: Float[ParameterArray, ""] = nonnegative()

    def __call__(self, x, z):
        return of_pair(self.scale, x, z) * self.kernel(x, z)

    @property
    def summands(self):
        terms = self.kernel.summands
        return None if terms is None else tuple(Scaled(term, self.scale) for term in terms)

    def sufficient_columns(self, dim):
        return self.kernel.sufficient_columns(dim)

    def factors_over_columns(self, dim):
        scale = ColumnFactor(frozenset(), Constant(self.scale))
        return (*self.kernel.factors_over_columns(dim), scale)

    def explicit_features(self):
        inner = self.kernel.explicit_features()
        if inner is None:
            return None
        # scale phi(x).phi(z) = (sqrt(scale) phi(x)).(sqrt(scale) phi(z)).
        return lambda x: jnp.sqrt(self.scale) * inner(x)

    def low_rank(self):
        inner = self.kernel.low_rank()
        if inner is None:
            return None

        def of_stack(X: PyTree) -> tuple[Array, Array]:
            # scale (F F^T + diag(r)) = (sqrt(scale) F) (sqrt(scale) F)^T + diag(scale r).
            features, remainder = inner(X)
            return jnp.sqrt(self.scale) * features, self.scale * remainder

        return of_stack

    def spectral_parts(self, dim):
        parts = self.kernel.spectral_parts(dim)
        return tuple(part._replace(weight=self.scale * part.weight) for part in parts)

    def state_space(self, harmonics):
        model = self.kernel.state_space(harmonics)
        return None if model is None else ScaledStates(model, self.scale)


class Power(AbstractCombinator):
    """`k(x, z)^degree`, degree a positive integer.

    Examples:
        >>> k = kernax.Linear() ** 3  # a kernax.kernels.Power
        >>> float(k(jnp.array([2.0]), jnp.array([1.0])))
        8.0
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    degree: int = integer("degree", hint=NO_POWER)

    def __call__(self, x, z):
        return self.kernel(x, z) ** self.degree

    def sufficient_columns(self, dim):
        return self.kernel.sufficient_columns(dim)

    def factors_over_columns(self, dim):
        return tuple(
            ColumnFactor(factor.columns, Power(factor.kernel, self.degree))
            for factor in self.kernel.factors_over_columns(dim)
        )

    def spectral_parts(self, dim):
        # As of a product of equal factors: S convolved with itself.
        return functools.reduce(convolved, [self.kernel.spectral_parts(dim)] * self.degree)

    def state_space(self, harmonics):
        return of_all(ProductOfStates, [self.kernel.state_space(harmonics)] * self.degree)


class Constant(AbstractKernel):
    """`value` for every pair of points, value >= 0.

    Examples:
        >>> k = kernax.RBF(2.0) + kernax.Constant(3.0)  # or kernax.RBF(2.0) + 3.0
        >>> float(k(jnp.array([0.0]), jnp.array([0.0])))
        4.0
    """

    value: Float[ParameterArray, ""] = nonnegative(default=1.0)

    keeps: ClassVar[Invariance] = Invariance.HOMOGENEOUS
    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        return of_pair(self.value, x, z)

    def sufficient_columns(self, dim):
        return frozenset(range(dim))

    def factors_over_columns(self, dim):
        return (ColumnFactor(frozenset(), self),)

    def explicit_features(self):
        return lambda x: jnp.sqrt(self.value)[None]

    def spectral_parts(self, dim):
        # All of S is at frequency zero.
        return (fixed_part(self.value, (), jnp.zeros(0, self.value.dtype)),)

    def state_space(self, harmonics):
        return ConstantState(self.value)


def _strong(parameters: PyTree) -> PyTree:
    """The same tree with strongly typed arrays in place of Python floats and weak types."""
    inexact = lambda leaf: (
        eqx.is_array_like(leaf) and jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
    )
    return jax.tree.map(lambda leaf: as_floats(leaf) if inexact(leaf) else leaf, parameters)


class Custom(AbstractKernel):
    """`function(parameters, x, z)` as a kernel, or `function(parameters, x)` as a function of a
    point.

    `function` is static, so everything that is learned must be in `parameters`, a pytree in which
    arrays of floats are parameters on the real line. A kernel must be positive semidefinite, which
    `check_kernel` tests.

    Examples:
        >>> def cauchy(scale, x, z):
        ...     return 1 / (1 + jnp.sum((x - z) ** 2) / scale)
        ...
        >>> k = kernax.Custom(cauchy, parameters=jnp.array(4.0))
        >>> float(k(jnp.array([0.0]), jnp.array([2.0])))
        0.5
    """

    function: Callable = eqx.field(static=True)
    parameters: PyTree = eqx.field(converter=_strong, default=())

    def __check_init__(self):
        check_callable(self.function, "function")

    def __call__(self, *points):
        try:
            return self.function(self.parameters, *points)
        except TypeError:
            if accepts(self.function, self.parameters, *points):
                raise
        names = ", ".join(("parameters", "x", "z")[: 1 + len(points)])
        raise ValueError(
            f"function of Custom must be function({names}), but has the signature "
            f"{inspect.signature(self.function)}: without parameters, pass Custom(lambda _, x, z: "
            "...)"
        )
