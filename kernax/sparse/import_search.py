"""Chooses the vectors of an import vector machine, one after another."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.batching import in_smallest_size
from kernax.core.base.numerics import eps_of, matmul, positive_or_one, tree_where
from kernax.core.base.solution import RESULTS
from kernax.core.losses.newton import newton
from kernax.core.operators.operators import AbstractGram
from kernax.sparse.subset_risk import AbstractClassLoss, Centre, SubsetRisk


class Subset(eqx.Module):
    """The points chosen so far, and the fit on them.

    Attributes:
        indices: those of the points, in the order in which they were chosen; 0 from `count` on.
        count: the number of chosen points.
        features: `F = K_XS L^-T` with `K_SS = L L^T`, zero from column `count` on; `L = F_S`.
        left: `k(x, x) - |F_x|^2` of each point: its residual variance given the chosen points.
        x: the weights of the features above the bias, for centred features.
        objectives: the objective after each choice; the first one is without any vector.
        exhausted: whether no further point would lower the objective.
        capped: whether a further point would lower the objective, but there is no slot for it.
        finite: whether all numbers so far are finite.
    """

    indices: Int[Array, " m"]
    count: Int[Array, ""]
    features: Float[Array, "n m"]
    left: Float[Array, " n"]
    x: Float[Array, "m1 c"]
    objectives: Float[Array, " m1"]
    exhausted: Bool[Array, ""]
    capped: Bool[Array, ""]
    finite: Bool[Array, ""]

    @property
    def is_chosen(self) -> Bool[Array, " m"]:
        """Which slots hold a point."""
        return jnp.arange(len(self.indices), dtype=jnp.int32) < self.count

    @property
    def objective(self) -> Float[Array, ""]:
        """The objective after the last choice."""
        return self.objectives[self.count]

    def factor(self) -> Float[Array, "m m"]:
        """L, with ones on the diagonal from row `count` on."""
        both = self.is_chosen[:, None] & self.is_chosen[None, :]
        identity = jnp.eye(len(self.indices), dtype=self.left.dtype)
        return jnp.where(both, jnp.tril(self.features[self.indices]), identity)


class ImportSearch(eqx.Module):
    """Kernel logistic regression on a growing subset of the points (Zhu & Hastie 2005, section 3).

    Attributes:
        gram: K, of which only rows are computed.
        loss: the loss of all points.
        ridge: the weight of the penalty.
        rtol: the search ends when `window` choices have changed the objective by less than this
            fraction.
        block: the number of candidates evaluated together.
        most: the largest number of points.
    """

    gram: AbstractGram
    loss: AbstractClassLoss
    ridge: Float[Array, ""]
    rtol: Float[Array, ""]
    bias: bool = eqx.field(static=True)
    window: int = eqx.field(static=True)
    block: int = eqx.field(static=True)
    most: int = eqx.field(static=True)

    def run(self) -> Subset:
        """Chooses points until the objective has settled, no candidate is left, or `most` points
        are chosen.
        """

        def go_on(now: Subset) -> Array:
            return now.finite & ~now.exhausted & ~now.capped & ~self.has_settled(now)

        return lax.while_loop(go_on, lambda now: self._grown(now), self._start())

    def has_settled(self, now: Subset) -> Bool[Array, ""]:
        """Whether the last choices changed the objective by less than the fraction `rtol`."""
        before = now.objectives[jnp.maximum(now.count - self.window, 0)]
        change = abs(now.objective - before)
        return (now.count >= self.window) & (change <= self.rtol * abs(now.objective))

    def _start(self) -> Subset:
        """The fit of the bias alone."""
        n, c = self.loss.y.shape
        zeros = partial(jnp.zeros_like, self.ridge)
        no = jnp.array(False)
        nothing = Subset(
            indices=jnp.zeros(self.most, jnp.int32),
            count=jnp.zeros((), jnp.int32),
            features=zeros(shape=(n, self.most)),
            left=self.gram.diagonal(),
            x=zeros(shape=(self.most + 1, c)),
            objectives=zeros(shape=self.most + 1),
            exhausted=no,
            capped=no,
            finite=~no,
        )
        return self._fitted(nothing)

    def _grown(self, now: Subset) -> Subset:
        """Adds one more point, unless none lowers the objective."""
        gains = self._gains(now)
        best = jnp.max(gains)
        # The first of those that are best up to rounding. A gain below the rounding of the
        # objective would not change it.
        slack = 1024 * eps_of(best)
        index = jnp.argmax(gains >= best * (1 - slack)).astype(jnp.int32)
        known = jnp.isfinite(best)
        useful = known & (best > eps_of(best) * now.objective)
        has_room = now.count < self.most
        flags = lambda now: (now.exhausted, now.capped, now.finite)
        ended = eqx.tree_at(flags, now, (known & ~useful, useful, known))
        return tree_where(useful & has_room, self._fitted(self._with(now, index)), ended)

    def _with(self, now: Subset, index: Int[Array, ""]) -> Subset:
        """The subset with one more point, before the fit: a column of Cholesky's factor."""
        rows = self.gram.rows(index[None])
        column = _beyond(now, index[None], rows, self.most)[0]
        # The new column of the factor is zero at points chosen before, and the root of the residual
        # variance at its own point.
        column = jnp.where(self._is_member(now), 0, column)
        column = column.at[index].set(jnp.sqrt(now.left[index]))
        # k(x, x) - |F_x|^2 with the new column of F.
        left = jnp.maximum(now.left - column**2, 0).at[index].set(0)
        grown = lambda now: (now.indices, now.count, now.features, now.left)
        parts = (
            now.indices.at[now.count].set(index),
            now.count + 1,
            now.features.at[:, now.count].set(column),
            left,
        )
        return eqx.tree_at(grown, now, parts)

    def _fitted(self, now: Subset) -> Subset:
        """The weights at the minimum over the subset, starting from the present ones."""
        point, result, stats = newton(self._risk(now))
        fit = lambda now: (now.x, now.objectives, now.finite)
        objectives = now.objectives.at[now.count].set(stats["objective"])
        return eqx.tree_at(fit, now, (point.x, objectives, result != RESULTS.nonfinite))

    def _risk(self, now: Subset) -> SubsetRisk:
        features = self._centre().apply(now.features)
        return SubsetRisk(features, self.loss, self.ridge, now.x, self.bias)

    def _centre(self) -> Centre:
        return Centre.of(self.loss, self.bias)

    def _gains(self, now: Subset) -> Float[Array, " n"]:
        """By how much one Newton step with one more point would lower the objective, to second
        order; zero for points that are not candidates.
        """
        risk = self._risk(now)
        point = risk.start()
        gradient = self.loss.gradient(risk.function(point))
        quadratic = risk.quadratic(point)
        data = _GainData(now, self._centre(), gradient, quadratic.hessian, quadratic.whitened())
        # The last block repeats the last point.
        n = len(now.left)
        blocks = -(-n // self.block)
        indices = jnp.minimum(jnp.arange(blocks * self.block, dtype=jnp.int32), n - 1)
        of_blocks = lax.map(partial(self._gains_of, data), indices.reshape(blocks, self.block))
        # Points of positive weight that have a residual variance beyond rounding.
        # A duplicate of a chosen point has none, and K_SS would be singular with it. With a
        # residual variance of eps^(2/3), features keep a third of their digits.
        least = eps_of(now.left) ** (2 / 3) * self.gram.diagonal()
        is_candidate = (self.loss.weights > 0) & (now.left > least) & ~self._is_member(now)
        return jnp.where(is_candidate, of_blocks.ravel()[:n], 0)

    def _gains_of(self, data: "_GainData", indices: Int[Array, " k"]) -> Float[Array, " k"]:
        """The gains of the points at `indices`, with their features phi.

            [H    h] [d]     [   0 ]
            [h^T  s] [v] = - [phi.G],   h = B^T W phi,  s = phi.W phi + ridge,

        has the solution `v = -(s - h^T H^-1 h)^-1 phi.G`, which lowers the risk by half of
        -v.(phi.G). One factorisation of H serves all candidates, and each takes O(n m) operations.
        """
        # Branches contain no evaluations of kernels, because the batching rules of some do not work
        # inside branches.
        rows = self.gram.rows(indices)
        widths = _widths(self.most)
        # phi.G, and s - h^T H^-1 h without the ridge in s.
        slopes, curvatures = in_smallest_size(data.sums, widths, data.now.count, indices, rows)
        ridge = self.ridge * jnp.eye(slopes.shape[1], dtype=slopes.dtype)
        return jax.vmap(_half_quotient, (0, 0, None))(slopes, curvatures + ridge[None], self.ridge)

    def _is_member(self, now: Subset) -> Bool[Array, " n"]:
        counted = jnp.zeros(len(now.left), jnp.int32)
        return counted.at[now.indices].add(now.is_chosen.astype(jnp.int32)) > 0


def _widths(most: int) -> list[int]:
    """The numbers of columns of F for which products are compiled, ascending, each twice the
    last.
    """
    doubled = (8 * 2**k for k in range(most.bit_length()))
    return [*(width for width in doubled if width < most), most]


def _beyond(
    now: Subset, indices: Int[Array, " k"], rows: Float[Array, "k n"], width: int
) -> Float[Array, "k n"]:
    """The features of points, from rows of K: `phi_j = (k_j - F F_j) / sqrt(left_j)`, for an F that
    is zero beyond `width` columns.

    This is the next column of the Cholesky factor, and the penalty of its weight is a plain square.
    """
    F = now.features[:, :width]
    rows = rows - matmul(F[indices], F.T)
    return rows / jnp.sqrt(positive_or_one(now.left[indices]))[:, None]


class _GainData(eqx.Module):
    """The data from which the gains of all candidates are computed.

    Attributes:
        now: the present subset.
        centre: the means of the features.
        gradient: G, that of the loss.
        hessian: W, that of the loss.
        whitened: `Quadratic.whitened`.
    """

    now: Subset
    centre: Centre
    gradient: Float[Array, "n c"]
    hessian: Float[Array, "n c c"]
    whitened: Float[Array, "n m1 cc"]

    def sums(
        self, width: int, indices: Int[Array, " k"], rows: Float[Array, "k n"]
    ) -> tuple[Float[Array, "k c"], Float[Array, "k c c"]]:
        """`phi.G` and `phi.W phi - h^T H^-1 h` of the points at `indices`, from their rows of K; F
        has at most `width` nonzero columns.
        """
        phi = _beyond(self.now, indices, rows, width)
        phi = phi - self.centre.means(phi.T)[:, None]
        (_, c) = self.gradient.shape
        own = matmul(phi**2, self.hessian.reshape(-1, c * c)).reshape(-1, c, c)
        (k, n) = phi.shape
        used = jnp.concatenate([self.whitened[:, :width], self.whitened[:, -1:]], 1)
        # V^T V = h^T H^-1 h, from the nonzero columns of F and the column of the bias.
        V = matmul(phi, used.reshape(n, -1)).reshape(k, -1, self.gradient.shape[1])
        balanced = jnp.einsum("kpc,kpd->kcd", V, V, precision="highest")
        return matmul(phi, self.gradient), own - balanced


class _Elimination(eqx.Module):
    """The state of `g.M^-1 g` after some columns of M are eliminated: the remaining g and M, and
    the sum so far.
    """

    M: Float[Array, "c c"]
    g: Float[Array, " c"]
    total: Float[Array, ""]


def _half_quotient(
    g: Float[Array, " c"], M: Float[Array, "c c"], least: Float[Array, ""]
) -> Float[Array, ""]:
    """`g.M^-1 g / 2` for an M with eigenvalues of at least `least`: a smaller pivot is rounding."""

    def eliminated(k, now):
        # g.M^-1 g = g_k^2 / M_kk + g'.M'^-1 g' with the rest M' = M - m m^T / M_kk and
        # g' = g - m g_k / M_kk, m the k-th column of M.
        pivot = jnp.maximum(now.M[k, k], least)
        column = now.M[:, k] / pivot
        M = now.M - column[:, None] * now.M[k][None, :]
        root = now.g[k] / jnp.sqrt(pivot)  # the square of g alone may underflow
        return _Elimination(M, now.g - column * now.g[k], now.total + root**2)

    start = _Elimination(M, g, jnp.zeros_like(least))
    return lax.fori_loop(0, len(g), eliminated, start).total / 2
