"""Gram matrices as lineax operators, dense or matrix-free.

Every Gram matrix has the same methods: products with one or many columns, rows, products with
columns, submatrices, and its diagonal. Callers need not know its representation. Operators for a
kernel and points are in `gram`, those for other operators of lineax in `foreign`; this file has
those made of arrays.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.numerics import (
    expand_to,
    main_diagonal,
    matmul,
    plus_diagonal,
    requested_matmul,
    stop_gradient,
)
from kernax.core.base.powers import in_own_unit
from kernax.core.base.weights import AbstractWeights
from kernax.core.operators.cancellation import compensated_product, extra_bits

Indices = Int[Array, " m"]


class AbstractGram(lx.AbstractLinearOperator):
    """A positive semidefinite matrix K (n, n), dense or matrix-free.

    Your own operator, such as a low-rank approximation or a Kronecker product, is a subclass with
    these methods, and every learner accepts it. Register with `factorise` how its `symmetric_form`
    is best factorised.
    """

    @property
    @abc.abstractmethod
    def solves_sequentially(self) -> bool:
        """Whether a batch of solves uses `batching.sequential_vmap`: if K consists of arrays,
        because their factors call LAPACK.
        """

    @property
    @abc.abstractmethod
    def is_dense(self) -> bool:
        """Whether all n^2 numbers are stored."""

    @property
    @abc.abstractmethod
    def largest_rank(self) -> int:
        """An upper bound of the rank of K, without a diagonal that is added to it: n, or the number
        of features.
        """

    @abc.abstractmethod
    def mv(self, vector: Float[Array, "n *p"]) -> Float[Array, "n *p"]:
        """`K v` for one vector or many columns."""

    @abc.abstractmethod
    def compensated_mv(self, vector: Float[Array, " n"]) -> Float[Array, " n"]:
        """`K v` with more digits if terms cancel and K is dense. Derivatives are meaningless."""

    @abc.abstractmethod
    def squares_in_products(self, vector: Float[Array, " n"]) -> Float[Array, " n"]:
        """`sum_j (K_ij v_j)^2`, from which the rounding error of `K v` is estimated."""

    @abc.abstractmethod
    def diagonal(self) -> Float[Array, " n"]:
        """`K_ii`."""

    @abc.abstractmethod
    def rows(self, indices: Indices) -> Float[Array, "m n"]:
        """`K[indices]`."""

    @abc.abstractmethod
    def columns_product(
        self, indices: Indices, values: Float[Array, "m *p"]
    ) -> Float[Array, "n *p"]:
        """`K[:, indices] @ values`; an index may occur twice."""

    @abc.abstractmethod
    def submatrix(self, indices: Indices) -> Float[Array, "m m"]:
        """`K[indices][:, indices]`; all indices are distinct."""

    @abc.abstractmethod
    def stored(self) -> "AbstractGram":
        """The same matrix in stored form: all of its numbers, or the factors of its product."""

    @abc.abstractmethod
    def symmetric_form(
        self, weights: AbstractWeights, shift: Float[Array, " n"]
    ) -> lx.AbstractLinearOperator:
        """`S K S + diag(shift)`, S = sqrt(W): the matrix for solvers and for `factorise`."""

    def transpose(self):
        return self

    def out_structure(self):
        return self.in_structure()


class DenseGram(AbstractGram):
    """K in one array."""

    matrix: Float[Array, "n n"]

    @property
    def solves_sequentially(self):
        return True

    @property
    def is_dense(self):
        return True

    @property
    def largest_rank(self):
        return len(self.matrix)

    def mv(self, vector):
        return matmul(self.matrix, vector)

    def compensated_mv(self, vector):
        return compensated_product(self.matrix, vector)

    def squares_in_products(self, vector):
        return jnp.sum((self.matrix * vector[None, :]) ** 2, 1)

    def diagonal(self):
        return main_diagonal(self.matrix)

    def rows(self, indices):
        return self.matrix[indices]

    def columns_product(self, indices, values):
        n = len(self.matrix)
        # Gathering columns takes as long as reading three times as many.
        if 3 * len(indices) <= n:
            return matmul(self.matrix[indices].T, values)  # K[:, I] = K[I]^T
        return matmul(self.matrix, in_places(indices, values, n))

    def submatrix(self, indices):
        return self.matrix[indices[:, None], indices[None, :]]

    def stored(self):
        return self

    def symmetric_form(self, weights, shift):
        return WeightedForm(self, weights, shift)

    def as_matrix(self):
        return self.matrix

    def in_structure(self):
        return jax.eval_shape(lambda: self.matrix[0])


class AbstractMatrixFreeGram(AbstractGram):
    """A matrix-free Gram operator, which computes numbers of K when they are needed."""

    @property
    def solves_sequentially(self):
        return False

    @property
    def is_dense(self):
        return False

    @property
    def largest_rank(self):
        return self.in_size()

    def stored(self):
        return DenseGram(self.as_matrix())


class LowRankGram(AbstractGram):
    """`F F^T + diag(remainder)` with F (n, features), without a matrix of n^2 numbers.

    The Gram matrix of a kernel with explicit features has no remainder; sparse approximations of a
    process have one (the fully independent conditional of Snelson & Ghahramani 2006).

    Attributes:
        spread: the mesh of the rows of F, a `RowsOverMesh`, or None.
    """

    features: Float[Array, "n d"]
    remainder: Float[Array, " n"]
    spread: Any = eqx.field(static=True, default=None)

    @property
    def solves_sequentially(self):
        return True

    @property
    def is_dense(self):
        return False

    @property
    def largest_rank(self):
        return self.features.shape[1]

    def mv(self, vector):
        # (F F^T + diag(r)) v = F (F^T v) + r v.
        inside = requested_matmul(self.features.T, vector)
        return requested_matmul(self.features, inside) + expand_to(self.remainder, vector) * vector

    def compensated_mv(self, vector):
        # F^T v may cancel to a few of its digits. With more than 4095 terms in float32 the
        # compensated product would be no better.
        if extra_bits(len(vector), vector.dtype) < 6:
            return self.mv(vector)
        # F (F^T v) = u F (F^T (v / u)): products of large features with a large vector would
        # overflow.
        scaled, unit = in_own_unit(vector)
        inside = compensated_product(self.features.T, scaled)
        of_features = matmul(self.features, inside) * unit
        return of_features + self.remainder * vector

    def squares_in_products(self, vector):
        # sum_j (f_i.f_j v_j)^2 = f_i.(F^T V^2 F) f_i, plus the contribution of the remainder for j
        # = i.
        squares = vector**2
        inside = matmul(self.features.T, squares[:, None] * self.features)
        of_features = jnp.sum(matmul(self.features, inside) * self.features, 1)
        own = jnp.sum(self.features**2, 1)
        return of_features + ((own + self.remainder) ** 2 - own**2) * squares

    def diagonal(self):
        return jnp.sum(self.features**2, 1) + self.remainder

    def rows(self, indices):
        # F_I F^T, plus the remainder of each row on the diagonal of K.
        everywhere = requested_matmul(self.features[indices], self.features.T)
        return everywhere.at[jnp.arange(len(indices)), indices].add(self.remainder[indices])

    def columns_product(self, indices, values):
        inside = requested_matmul(self.features[indices].T, values)
        alone = expand_to(self.remainder[indices], values) * values
        # F (F_I^T U), plus the remainder in the rows I, which is added because an index may occur
        # twice.
        return requested_matmul(self.features, inside).at[indices].add(alone)

    def submatrix(self, indices):
        # F_I F_I^T + diag(r_I).
        part = self.features[indices]
        return requested_matmul(part, part.T) + jnp.diag(self.remainder[indices])

    def stored(self):
        return self

    def symmetric_form(self, weights, shift):
        # S (F F^T + diag(r)) S + diag(shift) = (S F) (S F)^T + diag(w r + shift).
        features = weights.times_roots(self.features)
        return LowRankGram(features, weights.times(self.remainder) + shift, self.spread)

    def as_matrix(self):
        return requested_matmul(self.features, self.features.T) + jnp.diag(self.remainder)

    def in_structure(self):
        return jax.eval_shape(lambda: self.remainder)


class ScaledGram(AbstractGram):
    """`gain K`, which stores K unchanged, because their product would be another matrix."""

    gram: AbstractGram
    gain: Float[Array, ""]

    @property
    def solves_sequentially(self):
        return self.gram.solves_sequentially

    @property
    def is_dense(self):
        return self.gram.is_dense

    @property
    def largest_rank(self):
        return self.gram.largest_rank

    def mv(self, vector):
        return self.gain * self.gram.mv(vector)

    def compensated_mv(self, vector):
        return self.gain * self.gram.compensated_mv(vector)

    def squares_in_products(self, vector):
        # sum_j (gain K_ij v_j)^2 = sum_j (K_ij (gain v_j))^2.
        return self.gram.squares_in_products(self.gain * vector)

    def diagonal(self):
        return self.gain * self.gram.diagonal()

    def rows(self, indices):
        return self.gain * self.gram.rows(indices)

    def columns_product(self, indices, values):
        return self.gain * self.gram.columns_product(indices, values)

    def submatrix(self, indices):
        return self.gain * self.gram.submatrix(indices)

    def stored(self):
        return ScaledGram(self.gram.stored(), self.gain)

    def symmetric_form(self, weights, shift):
        return WeightedForm(self, weights, shift)

    def as_matrix(self):
        return self.gain * self.gram.as_matrix()

    def in_structure(self):
        return self.gram.in_structure()


class AbstractCrossGram(lx.AbstractLinearOperator):
    """`k(x_i, z_j)` for two batches, (n, m)."""

    @abc.abstractmethod
    def rows(self, indices: Int[Array, " k"]) -> Float[Array, "k m"]:
        """The rows at `indices`."""


class CrossGram(AbstractCrossGram):
    """`k(x_i, z_j)` for two batches as one array."""

    matrix: Float[Array, "n m"]

    def mv(self, vector):
        return matmul(self.matrix, vector)

    def rows(self, indices):
        return self.matrix[indices]

    def as_matrix(self):
        return self.matrix

    def transpose(self):
        return CrossGram(self.matrix.T)

    def in_structure(self):
        return jax.eval_shape(lambda: self.matrix[0])

    def out_structure(self):
        return jax.eval_shape(lambda: self.matrix[:, 0])


def in_places(indices: Indices, values: Float[Array, "m *p"], n: int) -> Float[Array, "n *p"]:
    """n rows with the given ones at `indices`, summed if an index occurs twice; zero elsewhere."""
    return jnp.zeros_like(values, shape=(n, *values.shape[1:])).at[indices].add(values)


def is_finite(gram: AbstractGram) -> Bool[Array, ""]:
    """Whether K has neither NaN nor inf: the mean of a row with one of them is not finite."""
    # K 1 / n, one product, for which a matrix-free K need not be stored.
    n = gram.in_size()
    means = stop_gradient(gram).mv(jnp.full(n, 1 / n, gram.in_structure().dtype))
    return jnp.all(jnp.isfinite(means))


class WeightedForm(lx.AbstractLinearOperator):
    """`S K S + diag(shift)`, S = sqrt(W), which stores K unchanged.

    Sums and products of lineax operators would be equivalent, but inside `jax.shard_map` lineax
    rejects parts that vary over different axes of the mesh.
    """

    gram: AbstractGram
    weights: AbstractWeights
    shift: Float[Array, " n"]

    def mv(self, vector):
        # (S K S + diag(shift)) v = S (K (S v)) + shift v.
        inside = self.gram.mv(self.weights.times_roots(vector))
        return self.weights.times_roots(inside) + self.shift * vector

    def as_matrix(self):
        return plus_diagonal(self.weights.congruence(self.gram.as_matrix()), self.shift)

    def diagonal(self) -> Float[Array, " n"]:
        """The diagonal, without computing the matrix."""
        # (S K S)_ii = w_i K_ii.
        return self.weights.times(self.gram.diagonal()) + self.shift

    def transpose(self):
        return self

    def in_structure(self):
        return jax.eval_shape(lambda: self.shift)  # with the axes of a mesh over which it varies

    def out_structure(self):
        return self.in_structure()


def mean_diagonal(operator: lx.AbstractLinearOperator) -> Float[Array, ""]:
    """The mean of the diagonal; for `S K S + diag(shift)` over the points of positive weight."""
    diagonal = lx.diagonal(operator)
    if isinstance(operator, (WeightedForm, AbstractStructuredForm)):
        return operator.weights.mean(diagonal)
    return jnp.mean(diagonal)


class AbstractStructuredForm(lx.AbstractLinearOperator):
    """`S K S + diag(shift)`, S = sqrt(W), for a K with some structure.

    `factorise` has a function for each subclass, and raises TypeError for one without. The form of
    a K that is factorised as a dense matrix is the `WeightedForm`.
    """

    gram: eqx.AbstractVar[Any]
    weights: eqx.AbstractVar[AbstractWeights]
    shift: eqx.AbstractVar[Float[Array, " n"]]

    @property
    def dense(self) -> WeightedForm:
        """The same matrix as an operator that only has products."""
        return WeightedForm(self.gram, self.weights, self.shift)

    def mv(self, vector):
        return self.dense.mv(vector)

    def as_matrix(self):
        return self.dense.as_matrix()

    def diagonal(self) -> Float[Array, " n"]:
        """The diagonal, without computing the matrix."""
        return self.dense.diagonal()

    def transpose(self):
        return self

    def in_structure(self):
        return self.dense.in_structure()

    def out_structure(self):
        return self.in_structure()


# Structures that Gram matrices are not known to have.
_NEVER = (
    lx.is_diagonal,
    lx.is_tridiagonal,
    lx.has_unit_diagonal,
    lx.is_lower_triangular,
    lx.is_upper_triangular,
    lx.is_negative_semidefinite,
)


def tell_lineax(operator: type[lx.AbstractLinearOperator], *, of_one_stack: bool) -> None:
    """Registers a class of operators with lineax: its structure, and its conversion to an array.

    Gram matrices of one batch are symmetric and positive semidefinite; those of two are neither.
    """
    # Register the structures that every operator of a class has, and those that none is known to
    # have.
    for fact in (lx.is_symmetric, lx.is_positive_semidefinite):
        fact.register(operator)(lambda _: of_one_stack)
    for fact in _NEVER:
        fact.register(operator)(lambda _: False)
    tags = lx.positive_semidefinite_tag if of_one_stack else ()
    as_array = lambda operator: lx.MatrixLinearOperator(operator.as_matrix(), tags)
    lx.materialise.register(operator)(as_array)
    lx.linearise.register(operator)(lambda operator: operator)
    lx.conj.register(operator)(lambda operator: operator)
    if of_one_stack:
        lx.diagonal.register(operator)(lambda operator: operator.diagonal())


tell_lineax(AbstractGram, of_one_stack=True)
tell_lineax(WeightedForm, of_one_stack=True)
tell_lineax(AbstractStructuredForm, of_one_stack=True)
tell_lineax(AbstractCrossGram, of_one_stack=False)
