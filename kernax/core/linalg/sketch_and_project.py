"""Sketch-and-project: random blocks of a linear system are solved exactly, one after the other."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from kernax.core.base.boundary import check_key
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import eps_of, positive_or_one
from kernax.core.base.parameters import check_count, check_stopping, with_arrays
from kernax.core.base.solution import RESULTS
from kernax.core.linalg.cholesky import cholesky_factor
from kernax.core.linalg.iteration import AbstractIterate, AbstractMethod, Best, Iteration
from kernax.core.linalg.linear_solvers import AbstractSymmetricSolver, refuse_options
from kernax.core.operators.foreign import ForeignGram, as_gram
from kernax.core.operators.operators import AbstractGram, DenseGram, ScaledGram, WeightedForm

_VERIFIED_EVERY = 5  # sweeps


class BlockedSystem(eqx.Module):
    """`M = S K S + diag(shift)`, with parts that are computed from K.

    Attributes:
        gram: K.
        roots: the diagonal of S.
        shift: the shift.
    """

    gram: AbstractGram
    roots: Float[Array, " n"]
    shift: Float[Array, " n"]

    @staticmethod
    def of(operator: lx.AbstractLinearOperator) -> "BlockedSystem":
        """The parts of an operator. Raises ValueError for an operator that only has products."""
        if isinstance(operator, WeightedForm):
            inside = BlockedSystem.of(operator.gram)
            roots = operator.weights.times_roots(jnp.ones_like(operator.shift))
            # S (R K R + diag(d)) S + diag(shift) = (S R) K (S R) + diag(w d + shift).
            shift = operator.weights.times(inside.shift) + operator.shift
            return BlockedSystem(inside.gram, roots * inside.roots, shift)
        if isinstance(operator, ForeignGram):
            return BlockedSystem.of(operator.operator)
        gram = as_gram(operator)
        if isinstance(gram, ForeignGram):
            raise ValueError(
                f"SketchAndProject needs blocks of the matrix, but {type(operator).__name__} only "
                "has products: use kernax.gram_operator, or ConjugateGradient()"
            )
        ones = jnp.ones(gram.in_size(), gram.in_structure().dtype)
        return BlockedSystem(gram, ones, jnp.zeros_like(ones))

    def times(self, gain: Float[Array, ""]) -> "BlockedSystem":
        """`gain M`."""
        return BlockedSystem(ScaledGram(self.gram, gain), self.roots, gain * self.shift)

    def mv(self, X: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`M X`."""
        roots = self.roots[:, None]
        return roots * self.gram.mv(roots * X) + self.shift[:, None] * X

    def mean_diagonal(self) -> Float[Array, ""]:
        """The mean of the diagonal."""
        return jnp.mean(self.roots**2 * self.gram.diagonal() + self.shift)

    def block(self, indices: Int[Array, " m"]) -> Float[Array, "m m"]:
        """`M[indices][:, indices]`."""
        roots = self.roots[indices]
        inside = roots[:, None] * self.gram.submatrix(indices) * roots[None, :]
        return inside + jnp.diag(self.shift[indices])

    def columns_product(
        self, indices: Int[Array, " m"], U: Float[Array, "m p"]
    ) -> Float[Array, "n p"]:
        """`M[:, indices] U`."""
        inside = self.roots[indices][:, None] * U
        product = self.gram.columns_product(indices, inside)
        # The columns of diag(shift) are zero except in the rows at the indices.
        own = self.shift[indices][:, None] * U
        return (self.roots[:, None] * product).at[indices].add(own)


class _Direction(eqx.Module):
    """A change D of X, and `M D`; zeros if there is none."""

    change: Float[Array, "n p"]
    image: Float[Array, "n p"]


class _SketchIterate(AbstractIterate):
    """The state of all columns after some sweeps.

    Attributes:
        X: the solution so far.
        residual: the residual by recurrence.
        last: the last direction d; `d.M d` is one or zero.
        best: the best iterate of each column.
        steps: the number of sweeps, the same for all columns.
        stuck: whether each column is stuck.
        key: the key for the order of the points.
    """

    X: Float[Array, "n p"]
    residual: Float[Array, "n p"]
    last: _Direction
    best: Best
    steps: Int[Array, ""]
    stuck: Bool[Array, "1 p"]
    key: PRNGKeyArray


def _products(U: Float[Array, "n p"], V: Float[Array, "n p"]) -> Float[Array, "1 p"]:
    """The inner products of the columns of two matrices."""
    return jnp.sum(U * V, 0, keepdims=True)


def _lengths(V: Float[Array, "n p"]) -> Float[Array, "1 p"]:
    return jnp.sqrt(_products(V, V))


def _swept(
    system: BlockedSystem, residual: Float[Array, "n p"], order: Int[Array, " n"], block: int
) -> _Direction:
    """The change of X by one pass through the points in some order, block by block: each block
    solves its own equations, given the changes by the previous blocks.

    It minimises `1/2 x.M x - b.x` over the coefficients of each block in turn.
    """
    n = len(order)
    blocks = -(-n // block)
    size = -(-n // blocks)

    def solve_block(i: Array, now: _Direction) -> _Direction:
        # The last block starts early enough to be complete.
        indices = jax.lax.dynamic_slice(order, (jnp.minimum(i * size, n - size),), (size,))
        # M_BB u = (r - M d)_B for the indices B of a block, where d is the change so far; zero if
        # M_BB is not positive definite.
        factor = cholesky_factor(DenseGram(system.block(indices)))
        U = jnp.where(factor.exists, factor.solve(residual[indices] - now.image[indices]), 0)
        # u at B changes M d by M[:, B] u.
        image = now.image + system.columns_product(indices, U)
        return _Direction(now.change.at[indices].add(U), image)

    zero = jnp.zeros_like(residual)
    return lax.fori_loop(0, blocks, solve_block, _Direction(zero, zero))


class _Sweeps(AbstractMethod):
    """`M X = B` for columns of length one, solved by sweeps.

    Attributes:
        block: the number of points in a block.
        goal: the length of a residual at which to stop.
    """

    system: BlockedSystem
    B: Float[Array, "n p"]
    key: PRNGKeyArray
    block: int = eqx.field(static=True)
    goal: Float[Array, ""]

    def size(self, now):
        return _lengths(now.residual)

    def first(self) -> _SketchIterate:
        B = self.B
        zero = jnp.zeros_like(B)
        return _SketchIterate(
            X=zero,
            residual=B,
            last=_Direction(zero, zero),
            best=Best(zero, _lengths(B)),
            steps=jnp.zeros((), jnp.int32),
            stuck=jnp.zeros((1, B.shape[1]), bool),
            key=self.key,
        )

    def step(self, now: _SketchIterate) -> _SketchIterate:
        # One sweep, made conjugate to the previous direction, and the best step along it. The step
        # of a sweep alone is in the span of both, so the error in the norm of M is not larger than
        # without.
        key, of_order = jax.random.split(now.key)
        order = jax.random.permutation(of_order, len(now.X))
        swept = _swept(self.system, now.residual, order, self.block)
        # The part d of a direction with `d.M e = 0` for the last direction e, scaled to `d.M d =
        # 1`, and whether that is reliable; zero if `d.M d` is not positive to rounding.
        # d = s - (s.M e) e for the new direction s, as e.M e = 1; the same for M d, without a
        # product.
        along = _products(swept.change, now.last.image)
        change = swept.change - along * now.last.change
        image = swept.image - along * now.last.image
        square = _products(change, image)
        # Below this d.M d is within the rounding of its sum.
        known = square > 10 * eps_of(change) * _lengths(change) * _lengths(image)
        unit = jnp.where(known, jax.lax.rsqrt(positive_or_one(square)), 0)
        direction = _Direction(unit * change, unit * image)
        # The best x + c d has c = d.r / d.M d, where d.M d = 1.
        length = _products(direction.change, now.residual)
        return _SketchIterate(
            X=now.X + length * direction.change,
            residual=now.residual - length * direction.image,
            last=direction,
            best=now.best,
            steps=now.steps + 1,
            stuck=now.stuck | ~known,
            key=key,
        )

    def verified(self, now: _SketchIterate) -> _SketchIterate:
        true = self.B - self.system.mv(now.X)
        lengths = _lengths(true)
        # If half of it is rounding, more sweeps would not reduce it. True for NaN.
        drifted = ~(_lengths(true - now.residual) <= lengths / 2) & (lengths != 0)
        return eqx.tree_at(
            lambda now: (now.residual, now.best, now.stuck),
            now,
            (true, now.best.or_better(Best(now.X, lengths)), now.stuck | drifted),
        )


def default_block(n: int) -> int:
    """The default number of points in a block: ten times the root of n, at most n."""
    return min(n, int(10 * np.sqrt(n)))


@renamed(block="block_size")
class SketchAndProject(AbstractSymmetricSolver):
    """Solves the equations of random blocks of points exactly, one block after the other, until `|b
    - A x| <= rtol |b|` in the 2-norm. Blocks are drawn without replacement.

    Each sweep through all blocks is made conjugate to the previous one, with an exact line search
    along it. This accelerates like Nesterov's method, without parameters. Solving the equations of
    a block is a projection by the sketch that selects it (Gower & Richtarik 2015; Rathore,
    Frangella, Yang, Derezinski & Udell 2024, whose method ASkotch solves blocks approximately and
    uses Nesterov acceleration).

    A sweep computes every entry of K once, as a step of `ConjugateGradient` does, and takes another
    `n block_size^2 / 3` operations for the factors. With a matrix-free K it took about twice as
    long as a step, with a dense K ten to twenty times as long. It needs memory for `block_size^2`
    entries and for a product of the operator.

    It is faster if K has many large eigenvalues, for each of which conjugate gradients take a step:
    on kin40k and elevators with a ridge of 1e-2 it reached in 15 to 44 sweeps a residual that plain
    conjugate gradients did not reach in 400 steps. If A is well conditioned, or has only a few
    large eigenvalues, a few dozen steps of conjugate gradients are cheaper. With a tiny ridge (1e-4
    there) it is slow as well: after 100 sweeps the residual was 2e-2 on kin40k. If a Cholesky
    factor fits into memory, up to about 10000 points, that is faster than either.

    The result does not depend on the units of A and b. Columns of b share the blocks. The true
    residual, which is computed every five sweeps and at the end, decides about convergence. If
    rounding accounts for half of it, or a direction has no curvature, the value is the best
    iterate, and the result is `breakdown` unless its residual is within twice rtol.
    `stats["steps"]` is the number of sweeps.

    Attributes:
        key: the key for the order of the points. Another key gives another solution within rtol.
        block_size: the number of points in a block, by default ten times the root of n.
        rtol: the relative residual at which to stop, by default eps^(2/3), 4e-11 in float64 and
            2e-5 in float32.
        max_steps: the largest number of sweeps, by default 300.

    It needs blocks of the matrix: a dense one, or `gram_operator`, with a `block_size` or without.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> solver = kernax.solvers.SketchAndProject(jax.random.key(0), block_size=2)
        >>> solution = kernax.kernel_ridge(kernax.RBF(0.3), X, y, ridge=0.01, solver=solver)
        >>> bool(solution.stats["residual"] < 1e-6)
        True
    """

    key: PRNGKeyArray
    block_size: int | None = eqx.field(default=None, static=True, kw_only=True)
    rtol: float | Float[Array, ""] | None = eqx.field(default=None, kw_only=True)
    max_steps: int | Int[Array, ""] = eqx.field(default=300, kw_only=True)

    def __check_init__(self):
        check_key(self.key)
        check_stopping(self.rtol, self.max_steps)
        if self.block_size is not None:
            check_count(self.block_size, "block_size")

    @property
    def _iteration(self) -> Iteration:
        """The stopping rule."""
        return Iteration(self.rtol, self.max_steps)

    def accurate_residual(self, dtype):
        return self._iteration.accurate_residual(dtype)

    @property
    def status_if_inaccurate(self):
        return RESULTS.breakdown

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> BlockedSystem:
        if not lx.is_positive_semidefinite(operator):
            raise ValueError(
                "SketchAndProject needs an operator tagged lineax.positive_semidefinite_tag: tag "
                "it if it is positive semidefinite"
            )
        refuse_options(self, options)
        return BlockedSystem.of(operator)

    def compute(self, state: BlockedSystem, vector: Array, options: dict[str, Any]):
        arrays, rest = eqx.partition((state, with_arrays(self)), eqx.is_array)

        def solved(arrays, B):
            system, solver = eqx.combine(arrays, rest)
            return solver._columns(system, B)

        best, lengths, stuck, sweeps = _sharing_blocks(solved)(arrays, vector)
        result = self._iteration.status(lengths, stuck, self.tolerance(vector.dtype))
        return best, result, {"steps": sweeps}

    def _columns(
        self, system: BlockedSystem, B: Float[Array, "n p"]
    ) -> tuple[Array, Array, Array, Array]:
        """The best solution of each column, its relative residual, whether it is stuck, and the
        number of sweeps.
        """
        # Everything is scaled to size one, so that no square below leaves the range of floats.
        largest = positive_or_one(jnp.max(jnp.abs(B), 0, keepdims=True))
        size = positive_or_one(_lengths(B / largest))
        scale = positive_or_one(system.mean_diagonal())
        # The size of blocks. By default their factors take about as long as all entries of K.
        n = len(B)
        method = _Sweeps(
            system=system.times(1 / scale),
            B=B / largest / size,
            key=self.key,
            block=default_block(n) if self.block_size is None else min(n, self.block_size),
            goal=self.tolerance(B.dtype),
        )
        last = self._iteration.run(method, _VERIFIED_EVERY)
        # (M / scale) X' = B / (largest size) gives X = X' size largest / scale.
        X = last.best.x * size / scale * largest
        steps = jnp.broadcast_to(last.steps, B.shape[1])
        return X, last.best.residual[0], last.stuck[0], steps

    def tolerance(self, dtype) -> Array:
        """The relative residual that counts as converged in a dtype."""
        return self._iteration.tolerance(dtype)


def _sharing_blocks(solved: Any) -> Any:
    """`solved(arrays, B)` as a function of one vector b. A `vmap` over b alone calls it once, with
    all vectors as columns.
    """

    def of_one(arrays, b):
        best, *rest = solved(arrays, b[:, None])
        return best[:, 0], *(figure[0] for figure in rest)

    call = custom_vmap(of_one)

    @call.def_vmap
    def _(size, batched, arrays, vectors):
        of_arrays, of_vectors = batched
        if any(jax.tree.leaves(of_arrays)):
            axes = jax.tree.map(lambda yes: 0 if yes else None, (of_arrays, of_vectors))
            out = jax.vmap(of_one, axes, axis_size=size)(arrays, vectors)
        else:
            best, *rest = solved(arrays, vectors.T)
            out = (best.T, *rest)
        return out, (True,) * 4

    return call
