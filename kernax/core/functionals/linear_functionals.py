"""Linear functionals of a function as points: values, derivatives, integrals, and sums of them.

If f is a process with covariance k, the covariance of two functionals of f is k with one functional
applied to each of its arguments (Solak et al. 2003; O'Hagan 1991 for integrals).
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_stack, check_finite, count, dtype_of
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import is_concrete
from kernax.core.base.parameters import as_floats, check_count
from kernax.core.base.printing import Printed
from kernax.core.kernel.kernel import AbstractKernel, as_kernel


class Functionals(Printed):
    """n functionals `sum_j weights_j f(nodes_j) + directions_j . grad f(nodes_j)`, j = 1, ..., q.

    A single functional has no axis n. All functionals of a batch have the same number q of nodes;
    `joined` pads with nodes of weight zero. `F[i]` selects functionals, `len(F)` is their number,
    and `F + G`, `F - G`, `2.0 * F` are elementwise sums, differences and multiples of functionals.

    Attributes:
        nodes: points, with the leading axes (n, q).
        weights: (n, q).
        directions: a tree of the structure of `nodes`, with None for a part without derivatives,
            such as an integer; None if there are no derivatives at all.

    Raises ValueError for weights, nodes and directions of different leading axes.

    Examples:
        >>> X = jnp.array([[0.0], [0.5]])
        >>> F = kernax.functionals.values_at(X)
        >>> difference = F[1:] - F[:1]  # f(0.5) - f(0)
        >>> k = kernax.kernels.OfFunctionals(kernax.Linear())
        >>> jnp.round(kernax.gram(k, difference), 3)
        Array([[0.25]], dtype=float64)
    """

    __array_ufunc__: ClassVar[None] = None  # so that NumPy leaves `array * F` to `__rmul__`

    nodes: PyTree
    weights: Float[Array, "*n q"] = eqx.field(converter=as_floats)
    directions: PyTree = None

    def __check_init__(self):
        leading = self.weights.shape
        leaves = jax.tree.leaves((self.nodes, self.directions))
        if any(leaf.shape[: len(leading)] != leading for leaf in leaves):
            raise ValueError(
                f"weights have shape {leading}, and every array of nodes and directions must have "
                f"these leading axes, but they have shapes {[leaf.shape for leaf in leaves]}"
            )

    @property
    def has_derivatives(self) -> bool:
        """Whether there are directions."""
        return bool(jax.tree.leaves(self.directions))

    def applied(self, function: Callable) -> Float[Array, "*outputs"]:
        """The value of one functional for a function of a point, with the shape of its outputs."""
        if self.weights.ndim != 1:
            raise ValueError(
                f"one functional is needed, but this is a batch of {len(self)}: use jax.vmap"
            )

        def term(node: PyTree, weight: Array, direction: PyTree) -> Array:
            if not jax.tree.leaves(direction):
                return weight * function(node)
            # direction . grad f(node) takes one tangent in any dimension.
            value, slope = eqx.filter_jvp(function, (node,), (direction,))
            # A constant function has no tangent.
            of_value = weight * value
            return of_value if slope is None else of_value + slope

        # sum_j weights_j f(nodes_j) + directions_j . grad f(nodes_j).
        return jnp.sum(jax.vmap(term)(self.nodes, self.weights, self.directions), 0)

    def joined(self, other: "Functionals") -> "Functionals":
        """Concatenates the functionals of two batches."""
        mine, others = _alike(self, other)
        q = max(mine.weights.shape[1], others.weights.shape[1])
        return jax.tree.map(
            lambda a, b: jnp.concatenate([a, b]), _with_nodes(mine, q), _with_nodes(others, q)
        )

    def __getitem__(self, index: Any) -> "Functionals":
        # For an index out of range JAX would return the last functional, but NumPy raises.
        places = np.arange(len(self))[index] if is_concrete(index) else index
        return jax.tree.map(lambda leaf: leaf[places], self)

    def __len__(self) -> int:
        if self.weights.ndim < 2:
            raise ValueError(
                "this is one functional, not a batch: F[i : i + 1] is a batch of one functional"
            )
        return len(self.weights)

    def __iter__(self) -> Iterator["Functionals"]:
        return (self[i] for i in range(len(self)))

    def __add__(self, other: "Functionals") -> "Functionals":
        if not isinstance(other, Functionals):
            return NotImplemented
        if len(self) != len(other):
            raise ValueError(
                f"{len(self)} and {len(other)} functionals cannot be added: the sum is elementwise"
            )
        # (L + M) f is one sum over the nodes of both.
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), *_alike(self, other))

    def __mul__(self, scale: ArrayLike) -> "Functionals":
        shape = self.weights.shape[:-1]
        if not eqx.is_array_like(scale) or np.shape(scale) not in ((), shape):
            raise ValueError(
                f"functionals are scaled by a number, or by an array of shape {shape}, but scale "
                f"is of type {type(scale).__name__} and shape {np.shape(scale)}"
            )
        # c L f = sum_j (c weights_j) f(nodes_j) + (c directions_j) . grad f(nodes_j).
        factors = jnp.asarray(scale, self.weights.dtype)
        ones = lambda leaf: (1,) * (leaf.ndim - factors.ndim)
        scaled = lambda leaf: leaf * factors.reshape(*factors.shape, *ones(leaf))
        return Functionals(self.nodes, scaled(self.weights), jax.tree.map(scaled, self.directions))

    __rmul__ = __mul__

    def __neg__(self) -> "Functionals":
        return self * -1

    def __sub__(self, other: "Functionals") -> "Functionals":
        return self + -other


def _alike(F: Functionals, G: Functionals) -> tuple[Functionals, Functionals]:
    """Both operands, with directions for every part if one of the two has directions."""
    if not (F.has_derivatives or G.has_derivatives):
        return F, G
    return _with_directions(F), _with_directions(G)


def _with_directions(F: Functionals) -> Functionals:
    """The same functionals, with zero as the direction of parts that lack one; only parts without
    derivatives keep None.
    """
    if not F.has_derivatives:
        return Functionals(F.nodes, F.weights, jax.tree.map(_no_direction, F.nodes))
    is_none = lambda leaf: leaf is None
    given = jax.tree.leaves(F.directions, is_leaf=is_none)
    nodes, structure = jax.tree.flatten(F.nodes)
    filled = [
        _no_direction(node) if direction is None else direction
        for node, direction in zip(nodes, given)
    ]
    return Functionals(F.nodes, F.weights, jax.tree.unflatten(structure, filled))


def _no_direction(leaf: Array) -> Array | None:
    """Zero, or None for a part without derivatives."""
    return jnp.zeros_like(leaf) if eqx.is_inexact_array(leaf) else None


def _with_nodes(F: Functionals, q: int) -> Functionals:
    """The same functionals with q nodes, by repeating the last node with weight zero."""

    def padded(leaf: Array, mode: str) -> Array:
        widths = [(0, 0)] * leaf.ndim
        widths[1] = (0, q - leaf.shape[1])
        return jnp.pad(leaf, widths, mode=mode)

    by_zero = lambda tree: jax.tree.map(lambda leaf: padded(leaf, "constant"), tree)
    nodes = jax.tree.map(lambda leaf: padded(leaf, "edge"), F.nodes)
    return Functionals(nodes, by_zero(F.weights), by_zero(F.directions))


class OfFunctionals(AbstractKernel):
    """`L_x L_z k`, the covariance of two linear functionals of f ~ GP(0, k).

    A point is one functional (see `Functionals`), or a point of k, which stands for the value of f
    there. Derivatives are exact, by `jax.jvp` of k; integrals are as accurate as their quadrature.
    A value takes q^2 evaluations of k for functionals with q nodes.

    Raises ValueError for directions if functions of k have no derivative (`rough` kernels: Matern
    1/2, Brownian motion, ...), and for an argument that is not a kernel. The value is NaN if a
    traced parameter has a value for which there is no derivative.

    Examples:
        >>> x, right = jnp.array([[0.5]]), jnp.array([1.0])
        >>> value = kernax.functionals.values_at(x)
        >>> slope = kernax.functionals.derivatives_at(x, right)
        >>> X = kernax.functionals.joined(value, slope)
        >>> k = kernax.kernels.OfFunctionals(kernax.RBF(0.5))
        >>> jnp.round(kernax.gram_diagonal(k, X), 3)  # the variances of f and of f'
        Array([1., 4.], dtype=float64)
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)

    def __call__(self, x, z):
        # L_x L_z k: L_x of the function u -> L_z k(u, .).
        value = applied(x, lambda u: applied(z, lambda v: self.kernel(u, v)))
        if not (_has_directions(x) or _has_directions(z)):
            return value
        return jnp.where(check_smooth(self.kernel), value, jnp.nan)

    @property
    def summands(self):
        # L_x L_z (k_0 + k_1) = L_x L_z k_0 + L_x L_z k_1.
        terms = self.kernel.summands
        return None if terms is None else tuple(map(OfFunctionals, terms))

    def check_points(self, X):
        if isinstance(X, Functionals):
            if X.has_derivatives:
                check_smooth(self.kernel)
            all_nodes = lambda leaf: leaf.reshape(-1, *leaf.shape[2:])
            X = jax.tree.map(all_nodes, X.nodes)
        self.kernel.check_points(X)

    def explicit_features(self):
        # L_x L_z phi(u).phi(v) = (L_x phi).(L_z phi).
        phi = self.kernel.explicit_features()
        return None if phi is None else lambda x: applied(x, phi)


def _has_directions(x: PyTree) -> bool:
    return isinstance(x, Functionals) and x.has_derivatives


def check_smooth(kernel: AbstractKernel) -> ArrayLike:
    """Whether functions of a kernel have derivatives. Raises ValueError if certainly not."""
    smooth = kernel.has_derivatives
    if is_concrete(smooth) and not smooth:
        raise ValueError(
            f"functions of this {type(kernel).__name__} have no derivatives that could be "
            "observed: use a smoother kernel, such as a Gaussian one, or Matern with nu > 1"
        )
    return smooth


def applied(x: PyTree, function: Callable) -> Array:
    """x applied to a function of a point: a functional of it, or its value if x is a point."""
    return x.applied(function) if isinstance(x, Functionals) else function(x)


def values_at(X: PyTree) -> Functionals:
    """The functionals `f(x_i)`: values at a batch of n points.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> F = kernax.functionals.values_at(X)
        >>> k = kernax.kernels.OfFunctionals(kernax.RBF(0.3))
        >>> bool(jnp.allclose(kernax.gram(k, F), kernax.gram(kernax.RBF(0.3), X)))
        True
    """
    X = as_stack(X, "X")
    return Functionals(_one_node(X), jnp.ones((count(X), 1), dtype_of(X)))


def derivatives_at(X: PyTree, directions: PyTree) -> Functionals:
    """The functionals `directions_i . grad f(x_i)`: directional derivatives at n points, in units
    of f.

    Arguments:
        X: (n, d), or any batch of points that contains arrays of floats.
        directions: (n, d), or (d,) for the same direction at every point. For points of several
            parts, a tree of the same structure, with None for a part that stays fixed. Directions
            need not have length one.

    Raises ValueError for directions of another structure or shape, for a direction of integers, and
    if all are None.

    Examples:
        >>> X = jnp.array([[0.5]])
        >>> slopes = kernax.functionals.derivatives_at(X, jnp.array([1.0]))
        >>> k = kernax.kernels.OfFunctionals(kernax.RBF(0.5))
        >>> jnp.round(kernax.gram(k, slopes), 3)  # 1 / lengthscale^2
        Array([[4.]], dtype=float64)
    """
    X = as_stack(X, "X")
    none = lambda leaf: leaf is None
    structure = jax.tree.structure(X)
    if jax.tree.structure(jax.tree.map(lambda _: 0, directions, is_leaf=none)) != structure:
        if not jax.tree_util.all_leaves([X]):
            raise ValueError(
                f"directions must have the structure of X, {structure}, with None for parts that "
                "stay fixed"
            )
        directions = np.asarray(directions)  # a list of numbers

    def checked(leaf: Array, direction: ArrayLike | None) -> Array | None:
        # A direction for each point.
        if direction is None:
            return None
        if not eqx.is_inexact_array(leaf):
            raise ValueError(
                "integers have no derivatives: pass None as the direction of such a part"
            )
        direction = jnp.asarray(direction).astype(leaf.dtype)
        if direction.shape not in (leaf.shape, leaf.shape[1:]):
            raise ValueError(
                f"directions must have shape {leaf.shape}, or {leaf.shape[1:]} for all points, but "
                f"have shape {direction.shape}"
            )
        direction = jnp.broadcast_to(direction, leaf.shape)
        check_finite(direction, "directions")
        return direction

    along = jax.tree.map(checked, X, directions)
    if not jax.tree.leaves(along):
        raise ValueError("directions must hold a direction for some part of X, but all are None")
    # 0 f(x_i) + directions_i . grad f(x_i).
    return Functionals(_one_node(X), jnp.zeros((count(X), 1), dtype_of(X)), _one_node(along))


def gradients_at(X: ArrayLike) -> Functionals:
    """The functionals `df/dx_a (x_i)`: gradients at vectors (n, d), n d functionals ordered by
    point.

    Examples:
        >>> X = jnp.array([[0.0, 1.0], [2.0, 3.0]])
        >>> len(kernax.functionals.gradients_at(X))  # two points of two dimensions
        4
    """
    X = _vectors(X, "X")
    n, d = X.shape
    # e_a . grad f(x_i) for each point i and, within it, each axis a.
    return derivatives_at(jnp.repeat(X, d, 0), jnp.tile(jnp.eye(d, dtype=X.dtype), (n, 1)))


@renamed(nodes="n_nodes")
def integrals_over(low: ArrayLike, high: ArrayLike, n_nodes: int = 8) -> Functionals:
    """The functionals `integral f(x) dx` over n boxes `low_i <= x <= high_i`, in units of f times
    volume.

    It uses products of Gauss-Legendre rules, which are exact if f is a polynomial of a degree below
    `2 n_nodes` in each dimension, and accurate to rounding if f is smooth and a box is at most a
    few lengthscales wide. The mean over a box is `integrals_over(low, high) * (1 / volumes)`.

    Arguments:
        low, high: (n, d), the corners, with low < high.
        n_nodes: the number of nodes in each dimension; a box has `n_nodes^d` nodes.

    Raises ValueError for corners of different shapes, or if low is not below high.

    Examples:
        >>> areas = kernax.functionals.integrals_over(jnp.array([[0.0]]), jnp.array([[2.0]]))
        >>> k = kernax.kernels.OfFunctionals(kernax.Constant(3.0))
        >>> jnp.round(kernax.gram(k, areas), 3)  # 3 * 2 * 2
        Array([[12.]], dtype=float64)
    """
    low = _vectors(low, "low")
    high = _vectors(high, "high").astype(low.dtype)
    if low.shape != high.shape:
        raise ValueError(f"low and high must have one shape, but have {low.shape} and {high.shape}")
    if is_concrete(low, high) and not np.all(np.asarray(low) < np.asarray(high)):
        raise ValueError("low must be below high in every dimension of every box")
    # The nodes in the unit cube (nodes^d, d), and their shares of its volume (nodes^d,).
    d = low.shape[1]
    # From [-1, 1], where the weights sum to 2, to [0, 1]: nodes (p + 1) / 2 and weights s / 2.
    nodes, masses = np.polynomial.legendre.leggauss(check_count(n_nodes, "n_nodes"))
    places = np.array(list(itertools.product((nodes + 1) / 2, repeat=d)))
    shares = np.array([np.prod(part) for part in itertools.product(masses / 2, repeat=d)])
    widths = high - low
    volumes = jnp.prod(widths, 1)
    # The integral over a box is volume sum_j share_j f(low + width p_j), p_j in the unit cube.
    where = low[:, None, :] + widths[:, None, :] * jnp.asarray(places, low.dtype)[None]
    return Functionals(where, volumes[:, None] * jnp.asarray(shares, low.dtype)[None])


def joined(*stacks: Functionals) -> Functionals:
    """Concatenates batches of functionals into one, which learners accept as X.

    Raises ValueError for anything but batches of functionals.

    Examples:
        >>> X = jnp.array([[0.0], [0.5]])
        >>> values = kernax.functionals.values_at(X)
        >>> slopes = kernax.functionals.gradients_at(X)
        >>> len(kernax.functionals.joined(values, slopes))
        4
    """
    if not stacks or not all(isinstance(stack, Functionals) for stack in stacks):
        raise ValueError("joined takes batches of functionals: values_at(X), derivatives_at(...)")
    if any(stack.weights.ndim < 2 for stack in stacks):
        raise ValueError(
            "joined takes batches of functionals, but one argument is a single functional: "
            "F[i : i + 1] is a batch of one"
        )
    return functools.reduce(Functionals.joined, stacks)


def _one_node(X: PyTree) -> PyTree:
    """A batch of points as nodes, one for each functional."""
    return jax.tree.map(lambda leaf: leaf[:, None], X)


def _vectors(X: ArrayLike, name: str) -> Array:
    """A batch of vectors (n, d). Raises ValueError for anything else."""
    stack = as_stack(X, name)
    if not eqx.is_inexact_array(stack) or stack.ndim != 2:
        raise ValueError(f"{name} must be a batch of vectors, of shape (n, d)")
    return stack
