"""Leading eigenvectors of a product of two positive semidefinite matrices, with their derivative.

The problem is `W K a = l a` with `a^T K a = 1`, W and K symmetric: the generalised symmetric
eigenproblem `K W K a = l K a`, for a singular K as well. Its eigenfunctions have the values `f = K
a` at the points, and `f_i^T W f_j = l_j` for i = j and zero otherwise. Principal components,
canonical correlations, discriminants, normalised cuts and Mercer's eigenfunctions have this form.
"""

import abc
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.derivatives import custom_jvp, implicit
from kernax.core.base.numerics import eps_of, matmul, positive_or_one, stop_gradient
from kernax.core.base.solution import RESULTS, first_that_holds
from kernax.core.base.weights import AbstractWeights
from kernax.core.linalg.leading_eigenvectors import leading_by_products, width_of_block
from kernax.core.linalg.solves import solve_by_products

MOST_DENSE = 3000  # points; beyond, only the leading eigenvectors are computed by default


class AbstractProblem(eqx.Module):
    """W and K, as products, and a root S of `W = S S^T` with r columns for the solution."""

    @abc.abstractmethod
    def inner(self, A: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`K A`."""

    @abc.abstractmethod
    def outer(self, F: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`W F`."""

    @abc.abstractmethod
    def root(self, U: Float[Array, "r p"]) -> Float[Array, "n p"]:
        """`S U`. The derivatives of this and of the following methods are not used."""

    @abc.abstractmethod
    def root_transposed(self, F: Float[Array, "n p"]) -> Float[Array, "r p"]:
        """`S^T F`."""

    @abc.abstractmethod
    def symmetric(self) -> Float[Array, "r r"]:
        """`S^T K S`."""

    @abc.abstractmethod
    def scale(self) -> Float[Array, ""]:
        """The size of the terms of `S^T K S`. Its rounding errors are relative to this, or to its
        largest eigenvalue if that is larger.
        """

    def symmetric_mv(self, U: Float[Array, "r p"]) -> Float[Array, "r p"]:
        """`S^T K S U`."""
        inside = self.inner(self.root(U))
        return self.root_transposed(inside)


class WeightedGram(AbstractProblem):
    """`W K a = l a` for a diagonal W, the weights of points.

    Attributes:
        gram: K, with `mv` and `as_matrix`.
        weights: W.
        size: the largest entry of W times that of K.
    """

    gram: Any
    weights: AbstractWeights
    size: Float[Array, ""]

    def inner(self, A):
        return self.gram.mv(A)

    def outer(self, F):
        return self.weights.times(F)

    def root(self, U):
        return self.weights.times_roots(U)

    def root_transposed(self, F):
        return self.weights.times_roots(F)

    def symmetric(self):
        return self.weights.congruence(self.gram.as_matrix())

    def scale(self):
        return self.size


class EigenPairs(eqx.Module):
    """The leading eigenvalues, in descending order, and their eigenvectors.

    Attributes:
        coefficients: a_j as columns, each with the sign that makes its largest entry (the first of
            several equally large ones) positive; zero if the eigenvalue is zero to rounding.
        quotient: the matrix of all `a_i^T K W K a_j`, which is diagonal and contains the
            eigenvalues. If eigenvalues coincide, their eigenvectors are an arbitrary basis of one
            space. The derivative of this matrix is then full among them, and derivatives of
            functions that depend only on that space are correct.
    """

    coefficients: Float[Array, "n c"]
    quotient: Float[Array, "c c"]

    @property
    def values(self) -> Float[Array, " c"]:
        """The eigenvalues l_j."""
        return jnp.diagonal(self.quotient)

    @property
    def kept(self) -> Bool[Array, " c"]:
        """Whether each eigenvalue is larger than rounding."""
        return self.values > 0

    def of_unit_square(self) -> Float[Array, "n c"]:
        """`a_j / sqrt(l_j)`: the functions with `f_j^T W f_j = 1`."""
        return matmul(self.coefficients, _inverse_root(self.quotient))


class EigenReport(eqx.Module):
    """Statistics of a solution.

    Attributes:
        residual: the largest `|W K a - l a| / |a|`, relative to the largest eigenvalue.
        rank: the number of computed eigenvalues that are not zero to rounding.
        least: the smallest computed eigenvalue.
        negative: the number of computed eigenvalues that are negative beyond rounding.
        steps: the number of products with a block of columns; 0 if LAPACK computed all.
        noise: the size below which eigenvalues count as zero.
    """

    residual: Float[Array, ""]
    rank: Int[Array, ""]
    least: Float[Array, ""]
    negative: Int[Array, ""]
    steps: Int[Array, ""]
    noise: Float[Array, ""]

    def with_residual(self, residual: Float[Array, ""]) -> "EigenReport":
        """The report with the larger of its residual and that of another equation."""
        largest = jnp.maximum(self.residual, residual)
        return eqx.tree_at(lambda report: report.residual, self, largest)

    def is_finite(self) -> Bool[Array, ""]:
        """Whether eigenvalues and eigenvectors are finite."""
        return jnp.isfinite(self.residual) & jnp.isfinite(self.least)

    def figures(self) -> dict[str, Array]:
        """Statistics for the stats of a function."""
        return {"rank": self.rank, "residual": self.residual}


class _Root(eqx.Module):
    """The leading pairs, all computed pairs, and their statistics."""

    leading: EigenPairs
    every: Float[Array, "n m"]
    values: Float[Array, " m"]
    report: EigenReport


def leading_pairs(
    problem: AbstractProblem, count: int, *, truncated: bool = False, max_steps: int | Array = 500
) -> tuple[EigenPairs, EigenReport]:
    """The `count` leading eigenpairs, differentiable once in all arrays of the problem.

    LAPACK computes all eigenpairs. With `truncated`, which needs `can_be_truncated`, only the
    leading ones are computed, by products.
    """
    solve = partial(_solved, count=count, truncated=truncated)
    moved = partial(_moved, complete=not truncated)
    found = implicit(solve, moved, (problem, jnp.asarray(max_steps)))
    return found.leading, stop_gradient(found.report)


def _solved(arguments: tuple[AbstractProblem, Array], *, count: int, truncated: bool) -> _Root:
    """The pairs, without derivatives."""
    problem, max_steps = arguments
    if truncated:
        values, U, steps = sequential_vmap(partial(_by_products, count), problem, max_steps)
    else:
        # All eigenvalues of S^T K S, descending.
        eigh = lambda problem: jnp.linalg.eigh(problem.symmetric())
        values, U = (part[..., ::-1] for part in sequential_vmap(eigh, problem))
        steps = jnp.zeros((), jnp.int32)
    noise = zero_below(values[0], problem.scale(), len(U))
    kept = values > noise
    positive = jnp.where(kept, values, 0)
    # S^T K S u = l u with |u| = 1 gives a = S u / sqrt(l): W K a = l a and a^T K a = 1.
    # Each column has the sign that makes its largest entry positive. Among entries that are equal
    # up to rounding, the first one counts.
    A = problem.root(U * _inverse_roots(positive)[None, :])
    size = jnp.abs(A)
    ties = size >= (1 - jnp.sqrt(eps_of(A))) * jnp.max(size, 0, keepdims=True)
    largest = jnp.take_along_axis(A, jnp.argmax(ties, 0)[None, :], 0)[0]
    every = jnp.where(largest < 0, -1, 1).astype(A.dtype)[None, :] * A
    leading = EigenPairs(
        coefficients=every[:, :count],
        quotient=jnp.diag(positive[:count]),
    )
    # The largest residual of a pair, W K a - l a, relative to the largest eigenvalue.
    A = leading.coefficients
    off = problem.outer(problem.inner(A)) - leading.values[None, :] * A
    length = positive_or_one(jnp.linalg.norm(A, axis=0))
    relative = jnp.linalg.norm(off, axis=0) / length
    report = EigenReport(
        residual=jnp.max(relative) / positive_or_one(leading.values[0]),
        rank=jnp.sum(kept),
        least=jnp.min(values),
        negative=jnp.sum(values < -noise),
        steps=steps,
        noise=noise,
    )
    return _Root(leading, every, positive, report)


def zero_below(largest: Array, scale: Array, n: int) -> Array:
    """The size below which eigenvalues of an n x n matrix count as zero: `8 n eps` times the larger
    of the largest eigenvalue and the scale.
    """
    return 8 * n * eps_of(largest) * jnp.maximum(jnp.maximum(largest, 0), scale)


def _by_products(
    count: int, problem: AbstractProblem, max_steps: Array
) -> tuple[Array, Array, Array]:
    """The leading eigenvalues of `S^T K S`, descending, the eigenvectors, and the step count."""
    # The initial columns are the same in every call.
    diagonal = jax.eval_shape(lambda: jnp.diagonal(problem.symmetric()))
    shape = (diagonal.size, width_of_block(count))
    start = jax.random.normal(jax.random.key(0), shape, diagonal.dtype)
    rtol = accuracy(start.dtype)
    found = leading_by_products(problem.symmetric_mv, start, count, rtol, max_steps)
    return found.values[:count], found.vectors[:, :count], found.steps


def accuracy(dtype: jnp.dtype) -> float:
    """The residual at which an iteration stops, relative to the eigenvalue. A pair counts as
    converged if its residual relative to the largest eigenvalue is within ten times this.
    """
    return 1e-9 if dtype == jnp.float64 else 1e-5


def _moved(root: _Root, arguments: tuple[AbstractProblem, Any], *, complete: bool) -> _Root:
    """One step of perturbation theory at a solution, whose derivative in the problem is that of the
    solution.

    Let `t_j = W K a_j` for the computed a_j, and `f_i = K a_i`. The part of `da_j` along a_i is
    `a_i^T K dt_j / (l_j - l_i)`. The part outside of all computed vectors is the solution of a
    system with `l_j - W K` and the rest of `dt_j`. If l_i and l_j coincide, the part along a_i is
    `-a_i^T dK a_j / 2`, so that both keep their length and angle under K.
    """
    problem, _ = arguments
    leading = _differentiated_once(root.leading)
    A = leading.coefficients
    F = problem.inner(A)
    T = problem.outer(F)
    known = stop_gradient(problem)
    # a_i^T K t_j, with the derivative a_i^T K dt_j; and t_j without its parts along all a_i.
    along = matmul(root.every.T, known.inner(T))
    left = T - matmul(root.every, along)
    # Which eigenvalues coincide up to the rounding of derivatives.
    every = root.values[:, None]
    some = leading.values[None, :]
    noise = zero_below(root.values[0], jnp.zeros_like(root.values[0]), len(root.values))
    # A quotient by a gap g has an error of a few eps l / g, that is, half of its digits at g =
    # sqrt(eps) l.
    least = jnp.sqrt(eps_of(every)) * jnp.maximum(every, some)
    near = jnp.abs(every - some) <= jnp.maximum(noise, least)
    # The part of da_j along a_i: a_i^T K dt_j / (l_j - l_i), and -a_i^T dK a_j / 2 if both
    # coincide, where A^T K A has the derivative A^T dK A.
    gap = some - every
    apart = jnp.where(near, 0, along / jnp.where(near, 1, gap))
    # Leading eigenvalues that coincide and are not zero.
    together = near[: len(leading.values)] & leading.kept[:, None] & leading.kept[None, :]
    of_equal = jnp.where(together, -matmul(A.T, F) / 2, 0)
    turned = apart.at[: len(leading.values)].add(of_equal)
    rest = _left_over(known, root, left, complete=complete)
    moved = A + matmul(root.every, turned) + rest
    # The quotient of the leading vectors; its entries between distinct eigenvalues stay zero.
    # dl_j = a_j^T K dt_j, as K a_j is the left eigenvector of W K and a_j^T K a_j = 1.
    square = along[: len(together)]
    moved_quotient = jnp.where(together, (square + square.T) / 2, 0)
    pairs = EigenPairs(
        coefficients=jnp.where(leading.kept[None, :], moved, 0),
        quotient=moved_quotient,
    )
    return _Root(pairs, root.every, root.values, root.report)


def _left_over(
    problem: AbstractProblem, root: _Root, left: Float[Array, "n c"], *, complete: bool
) -> Float[Array, "n c"]:
    """`(l_j - W K)^-1` for columns j without a part along any computed vector."""
    values = positive_or_one(root.leading.values)
    if complete:
        # W K x = sum_i l_i a_i (a_i^T K x) is zero if x has no part along any a_i.
        return left / values[None, :]

    def solve(value: Float[Array, ""], rhs: Float[Array, " n"]) -> Float[Array, " n"]:
        # (l - W K)^-1 rhs outside of the computed vectors; NaN where it fails.
        outside = _Outside(problem, root.every, value)
        return solve_by_products(outside, rhs, accuracy(rhs.dtype), restart=30, max_steps=300)

    return jax.vmap(solve, (0, 1), 1)(values, left)


class _Outside(eqx.Module):
    """`value - W K` for vectors without a part along the computed ones."""

    problem: AbstractProblem
    vectors: Float[Array, "n m"]
    value: Float[Array, ""]

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        product = self.problem.outer(self.problem.inner(x[:, None]))
        # (I - A A^T K) W K x removes the part along the computed vectors A, which is rounding.
        along = matmul(self.vectors.T, self.problem.inner(product))
        outside = product - matmul(self.vectors, along)
        return self.value * x - outside[:, 0]


@custom_jvp
def _differentiated_once(pairs: EigenPairs) -> EigenPairs:
    """The same pairs. Second derivatives would lack terms where eigenvalues coincide."""
    return pairs


@_differentiated_once.def_jvp
def _differentiated_once_jvp(primals, tangents):
    raise ValueError("eigenvectors have no second derivatives in kernax, only first ones")


@custom_jvp
def _inverse_root(quotient: Float[Array, "c c"]) -> Float[Array, "c c"]:
    """`Q^(-1/2)` for a diagonal matrix, zero where it is zero."""
    return jnp.diag(_inverse_roots(jnp.diagonal(quotient)))


def _inverse_roots(values: Float[Array, " c"]) -> Float[Array, " c"]:
    return jnp.where(values > 0, 1 / jnp.sqrt(positive_or_one(values)), 0)


@_inverse_root.def_jvp
def _inverse_root_jvp(primals, tangents):
    # dR_ij = dQ_ij (r_i - r_j) / (l_i - l_j) (Daleckii & Krein) with r = l^(-1/2). Without the
    # cancellation the quotient is -(r_i r_j)^2 / (r_i + r_j).
    roots = _inverse_roots(jnp.diagonal(primals[0]))
    a = roots[:, None]
    b = roots[None, :]
    product = a * b
    slope = -product * (product / positive_or_one(a + b))  # product^2 may overflow
    return jnp.diag(roots), slope * tangents[0]


def status_of(
    problem: AbstractProblem,
    report: EigenReport,
    pairs: EigenPairs,
    finite: Array,
    *,
    truncated: bool,
    allowed: Int[Array, ""] | int = 0,
) -> Any:
    """The status of the computation of eigenpairs, from their residual.

    Arguments:
        allowed: the number of negative eigenvalues that are allowed.
    """
    large = ~(report.residual <= 10 * accuracy(report.residual.dtype))
    statuses = (
        (~(finite & report.is_finite()), RESULTS.nonfinite),
        (report.negative > allowed, RESULTS.not_psd),
        (large, RESULTS.max_steps_reached if truncated else RESULTS.inaccurate),
    )
    return first_that_holds(statuses, RESULTS.successful)
