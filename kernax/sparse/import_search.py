"""Which points a kernel logistic regression takes as its vectors, one after another."""

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
        places: of the points, in the order in which they were chosen; 0 from `count` on.
        count: how many there are.
        features: `F = K_XS L^-T` with `K_SS = L L^T`, zero from column `count` on; `L = F_S`.
        left: `k(x, x) - |F_x|^2` of each point: what the chosen ones leave of it.
        x: the weights of the features above the bias, that of centred features.
        objectives: after each choice, the first without any.
        exhausted: whether no further point would lower the objective.
        capped: whether one would, and there is no room for it.
        finite: whether all numbers so far are.
    """

    places: Int[Array, " m"]
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
        """Which of the places are those of points."""
        return jnp.arange(len(self.places), dtype=jnp.int32) < self.count

    @property
    def objective(self) -> Float[Array, ""]:
        """After the last choice."""
        return self.objectives[self.count]

    def factor(self) -> Float[Array, "m m"]:
        """L, with ones on the diagonal from row `count` on."""
        both = self.is_chosen[:, None] & self.is_chosen[None, :]
        identity = jnp.eye(len(self.places), dtype=self.left.dtype)
        return jnp.where(both, jnp.tril(self.features[self.places]), identity)


class ImportSearch(eqx.Module):
    """Kernel logistic regression on a growing subset of the points (Zhu & Hastie 2005, section 3).

    Attributes:
        gram: K, asked for rows only.
        loss: of all points.
        ridge: of the penalty.
        rtol: the search ends where `window` choices change the objective by less, relatively.
        block: candidates looked at together.
        most: points chosen, at most.
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
        """Chooses points until the objective has settled, none is left, or there are `most`."""

        def go_on(now: Subset) -> Array:
            return now.finite & ~now.exhausted & ~now.capped & ~self.has_settled(now)

        return lax.while_loop(go_on, lambda now: self._grown(now), self._start())

    def has_settled(self, now: Subset) -> Bool[Array, ""]:
        """Whether the last choices changed the objective by less than rtol of it."""
        before = now.objectives[jnp.maximum(now.count - self.window, 0)]
        change = abs(now.objective - before)
        return (now.count >= self.window) & (change <= self.rtol * abs(now.objective))

    def _start(self) -> Subset:
        """The fit of the bias alone."""
        n, c = self.loss.y.shape
        zeros = partial(jnp.zeros_like, self.ridge)
        no = jnp.array(False)
        nothing = Subset(
            places=jnp.zeros(self.most, jnp.int32),
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
        """One more point, unless none lowers the objective."""
        gains = self._gains(now)
        best = jnp.max(gains)
        # The first of those that are the best but for rounding. A gain below the rounding of the
        # objective would not show in it.
        slack = 1024 * eps_of(best)
        place = jnp.argmax(gains >= best * (1 - slack)).astype(jnp.int32)
        known = jnp.isfinite(best)
        useful = known & (best > eps_of(best) * now.objective)
        has_room = now.count < self.most
        ending = lambda now: (now.exhausted, now.capped, now.finite)
        ended = eqx.tree_at(ending, now, (known & ~useful, useful, known))
        return tree_where(useful & has_room, self._fitted(self._with(now, place)), ended)

    def _with(self, now: Subset, place: Int[Array, ""]) -> Subset:
        """The subset with one more point, before the fit: a column of Cholesky's factor."""
        rows = self.gram.rows(place[None])
        column = _beyond(now, place[None], rows, self.most)[0]
        # The new column of the factor is zero at points chosen before, and at its own point the
        # root of what they leave there.
        column = jnp.where(self._is_member(now), 0, column)
        column = column.at[place].set(jnp.sqrt(now.left[place]))
        # k(x, x) - |F_x|^2 with the new column of F.
        left = jnp.maximum(now.left - column**2, 0).at[place].set(0)
        grown = lambda now: (now.places, now.count, now.features, now.left)
        parts = (
            now.places.at[now.count].set(place),
            now.count + 1,
            now.features.at[:, now.count].set(column),
            left,
        )
        return eqx.tree_at(grown, now, parts)

    def _fitted(self, now: Subset) -> Subset:
        """The weights at the minimum over the subset, from those at hand."""
        x, result, stats = newton(self._risk(now))
        fit = lambda now: (now.x, now.objectives, now.finite)
        objectives = now.objectives.at[now.count].set(stats["objective"])
        return eqx.tree_at(fit, now, (x, objectives, result != RESULTS.nonfinite))

    def _risk(self, now: Subset) -> SubsetRisk:
        features = self._centre().apply(now.features)
        return SubsetRisk(features, self.loss, self.ridge, now.x, self.bias)

    def _centre(self) -> Centre:
        return Centre.of(self.loss, self.bias)

    def _gains(self, now: Subset) -> Float[Array, " n"]:
        """By how much one Newton step with a point more would lower the objective, to second
        order; zero for points that are no candidates.
        """
        risk = self._risk(now)
        point = risk.start()
        gradient = self.loss.gradient(risk.function(point))
        quadratic = risk.quadratic(point)
        data = _GainData(now, self._centre(), gradient, quadratic.hessian, quadratic.whitened())
        # The last block repeats the last point.
        n = len(now.left)
        blocks = -(-n // self.block)
        places = jnp.minimum(jnp.arange(blocks * self.block, dtype=jnp.int32), n - 1)
        of_blocks = lax.map(partial(self._gains_of, data), places.reshape(blocks, self.block))
        return jnp.where(self._is_candidate(now), of_blocks.ravel()[:n], 0)

    def _gains_of(self, data: "_GainData", places: Int[Array, " k"]) -> Float[Array, " k"]:
        """Those of the points at `places`, with their features phi. With the weights at hand at
        their minimum, the gradient is that of the new weight v alone, phi.G. The bordered system

            [H    h] [d]     [   0 ]
            [h^T  s] [v] = - [phi.G],   h = B^T W phi,  s = phi.W phi + ridge,

        has the solution `v = -(s - h^T H^-1 h)^-1 phi.G`, which lowers the risk by half of
        -v.(phi.G): one factorisation of H for all candidates, and O(n m) operations for each.
        """
        # Branches are free of kernels, whose rules for batches clash with them.
        rows = self.gram.rows(places)
        widths = _widths(self.most)
        # phi.G, and s - h^T H^-1 h without the ridge in s.
        slopes, curvatures = in_smallest_size(data.sums, widths, data.now.count, places, rows)
        ridge = self.ridge * jnp.eye(slopes.shape[1], dtype=slopes.dtype)
        return jax.vmap(_half_quotient, (0, 0, None))(slopes, curvatures + ridge[None], self.ridge)

    def _is_member(self, now: Subset) -> Bool[Array, " n"]:
        counted = jnp.zeros(len(now.left), jnp.int32)
        return counted.at[now.places].add(now.is_chosen.astype(jnp.int32)) > 0

    def _is_candidate(self, now: Subset) -> Bool[Array, " n"]:
        """Points of positive weight of which the subset leaves more than rounding.

        Of a duplicate of a chosen point nothing is left, and K_SS would be singular with it. With
        eps^(2/3) left, features keep a third of their digits more than the objective shows.
        """
        least = eps_of(now.left) ** (2 / 3) * self.gram.diagonal()
        return (self.loss.weights > 0) & (now.left > least) & ~self._is_member(now)


def _widths(most: int) -> list[int]:
    """Numbers of columns of F that products are compiled for, ascending, each twice the last."""
    doubled = (8 * 2**k for k in range(most.bit_length()))
    return [*(width for width in doubled if width < most), most]


def _beyond(
    now: Subset, places: Int[Array, " k"], rows: Float[Array, "k n"], width: int
) -> Float[Array, "k n"]:
    """The features of points, from rows of K: `phi_j = (k_j - F F_j) / sqrt(left_j)`, of an F that
    is zero beyond `width` columns.

    It is the column that Cholesky's factor would have next, and the penalty of its weight is a
    plain square.
    """
    F = now.features[:, :width]
    rows = rows - matmul(F[places], F.T)
    return rows / jnp.sqrt(positive_or_one(now.left[places]))[:, None]


class _GainData(eqx.Module):
    """What the gains of all candidates are computed from.

    Attributes:
        now: the subset at hand.
        centre: of features.
        gradient: G of the loss.
        hessian: W of the loss.
        whitened: `Quadratic.whitened`.
    """

    now: Subset
    centre: Centre
    gradient: Float[Array, "n c"]
    hessian: Float[Array, "n c c"]
    whitened: Float[Array, "n m1 cc"]

    def sums(
        self, width: int, places: Int[Array, " k"], rows: Float[Array, "k n"]
    ) -> tuple[Float[Array, "k c"], Float[Array, "k c c"]]:
        """`phi.G` and `phi.W phi - h^T H^-1 h` of the points at `places`, from their rows of K,
        where F has no more than `width` columns.
        """
        phi = _beyond(self.now, places, rows, width)
        phi = phi - self.centre.means(phi.T)[:, None]
        (_, c) = self.gradient.shape
        own = matmul(phi**2, self.hessian.reshape(-1, c * c)).reshape(-1, c, c)
        return matmul(phi, self.gradient), own - self._balanced(phi, width)

    def _balanced(self, phi: Float[Array, "k n"], width: int) -> Float[Array, "k c c"]:
        """`h^T H^-1 h`."""
        (k, n) = phi.shape
        used = jnp.concatenate([self.whitened[:, :width], self.whitened[:, -1:]], 1)
        # V^T V = h^T H^-1 h, by the columns of F that are not zero and that of the bias.
        V = matmul(phi, used.reshape(n, -1)).reshape(k, -1, self.gradient.shape[1])
        return jnp.einsum("kpc,kpd->kcd", V, V, precision="highest")


class _Elimination(eqx.Module):
    """`g.M^-1 g` after some columns of M are eliminated: the rest of both, and the sum so far."""

    M: Float[Array, "c c"]
    g: Float[Array, " c"]
    total: Float[Array, ""]


def _half_quotient(
    g: Float[Array, " c"], M: Float[Array, "c c"], least: Float[Array, ""]
) -> Float[Array, ""]:
    """`g.M^-1 g / 2` for an M with eigenvalues of at least `least`, so that no pivot is smaller but
    by rounding.
    """

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
