"""The derivative of the log density along a line, by one smoothing pass in O(n)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.numerics import dot, matmul
from kernax.core.kernel.state_space import Chain
from kernax.core.linalg.factorisation import WeightedSystem
from kernax.core.line.kalman import KalmanFilter, at_points
from kernax.core.line.line import LineGram
from kernax.core.line.recursions import AbstractRecursions, outer


class Along(eqx.Module):
    """A system along a line, with all parts in the order of the sorted points."""

    chain: Chain
    weights: Float[Array, " n"]
    shift: Float[Array, " n"]
    recursions: AbstractRecursions

    @staticmethod
    def of(system: WeightedSystem) -> "Along":
        gram = line_gram(system)
        order = gram.order
        return Along(
            chain=gram.chain(),
            weights=system.weights.values[order],
            shift=system.shift[order],
            recursions=gram.line.recursions,
        )


def line_gram(system: WeightedSystem) -> LineGram:
    """The Gram matrix of a system with a factor along a line."""
    return system.gram_of_class(LineGram)


def filter_of(along: Along) -> KalmanFilter:
    """The filter with its derivatives."""
    found = along.recursions.gains(along.chain, along.weights, along.shift)
    return KalmanFilter.of(along.chain, along.weights, found, along.recursions)


class Slopes(eqx.Module):
    """The derivatives of `-1/2 (p log |T| + y.P W y)` in the parts of a system along a line.

    Attributes:
        transitions: the derivatives in A of each point, (n, m, m).
        start: the derivative in `P h`, (m,).
        variance: the derivative in `h.P h`, ().
        weights: the derivatives in w, (n,).
        shift: the derivatives in d, (n,).
        data: the derivatives in y, (n, p).
    """

    transitions: Float[Array, "n m m"]
    start: Float[Array, " m"]
    variance: Float[Array, ""]
    weights: Float[Array, " n"]
    shift: Float[Array, " n"]
    data: Float[Array, "n p"]

    def along(self, chain: Chain) -> Float[Array, ""]:
        """The inner product with the parts of a chain."""
        of_start = dot(self.start, chain.start) + self.variance * dot(
            chain.observation, chain.start
        )
        return dot(self.transitions, chain.transitions) + of_start

    def inner_product(self, system: WeightedSystem, y: Float[Array, "n p"]) -> Float[Array, ""]:
        """The inner product with the parts of a system, and with data."""
        # The weights are not sorted, because the derivative of sorting would loop over all points.
        gram = line_gram(system)
        of_weights = dot(gram.line.unsorted(self.weights), system.weights.values)
        of_shift = dot(gram.line.unsorted(self.shift), system.shift)
        of_data = dot(gram.line.unsorted(self.data), y)
        return self.along(gram.chain()) + of_weights + of_shift + of_data


class Smoothed(eqx.Module):
    """The results of a smoothing pass at each point.

    Attributes:
        reductions: F of the previous point, (n, m, m).
        states: x, the mean of the states at the previous point, (n, m, p).
        later: r, the correction of the states at each point by later data, (n, m, p).
        information: N, the information of those data about the states there, (n, m, m).
        b: `P^T y`, (n, p).
        inverse: the diagonal of P, (n,).
        posterior: the diagonal of `K P`, (n,).
        informed: `N q w / s`, (n, m).
    """

    reductions: Float[Array, "n m m"]
    states: Float[Array, "n m p"]
    later: Float[Array, "n m p"]
    information: Float[Array, "n m m"]
    b: Float[Array, "n p"]
    inverse: Float[Array, " n"]
    posterior: Float[Array, " n"]
    informed: Float[Array, "n m"]

    @staticmethod
    def of(system: Along, y: Float[Array, "n p"]) -> "Smoothed":
        """The smoothing pass by the filter of `kalman` and its backward recursions."""
        kalman = filter_of(system)
        states = kalman.states(y)
        # v = y - h.A x, with x of the previous point.
        v = y - at_points(kalman.seen, states)
        later = kalman.later(v)
        information = kalman.information()
        inverse, posterior = kalman.diagonals(information, system.shift)
        return Smoothed(
            reductions=kalman.reductions(),
            states=states,
            later=later,
            information=information,
            b=(v - at_points(kalman.gains, later)) / kalman.variances[:, None],
            inverse=inverse,
            posterior=posterior,
            informed=at_points(kalman.shares[:, None] * kalman.gains, information),
        )


def slopes(system: Along, y: Float[Array, "n p"]) -> Slopes:
    """The slopes for a system and data, by one smoothing pass."""
    # -1/2 (p tr(P dT) + b.dW y - b.dT a) with a = W b and y = K a + d b, summed over columns, has
    # the derivatives (w_i |b_i|^2 - p P_ii) / 2 in d_i, -(d_i |b_i|^2 + p (K P)_ii) / 2 in w_i, and
    # -a in y.
    now = Smoothed.of(system, y)
    w = system.weights
    p = y.shape[1]
    a = w[:, None] * now.b
    # r_j = sum_i a_i (A_i ... A_j+1)^T h over i > j. With (P W)_ij in place of a_i that sum is -N q
    # w / s of point j. The derivative in P h is therefore the sum of a_j r_j + p N q w / s over all
    # points.
    of_later = at_points(a, jnp.swapaxes(now.later, 1, 2)) + p * now.informed
    squares = jnp.sum(now.b**2, 1)
    of_shift = (w * squares - p * now.inverse) / 2
    # `r x^T - (r r^T - p N) A F`, where r and N of each point include its own observation. It is
    # the derivative of Koopman & Shephard 1992, "Exact score for time series models in state space
    # form", for `Q = P - A P A^T`, without terms that cancel.
    h = system.chain.observation
    # r = r + h w b, as in one backward step of the smoother.
    r = now.later + h[None, :, None] * a[:, None, :]
    # N = (I - q h^T w / s)^T N (I - q h^T w / s) + h h^T w / s, expanded.
    crossed = h[None, :, None] * now.informed[:, None, :]
    own = (system.weights * now.inverse)[:, None, None] * outer(h, h)[None]
    N = now.information - crossed - jnp.swapaxes(crossed, 1, 2) + own
    net = matmul(r, jnp.swapaxes(r, 1, 2)) - a.shape[1] * N
    carried = matmul(system.chain.transitions, now.reductions)
    of_transitions = matmul(r, jnp.swapaxes(now.states, 1, 2)) - matmul(net, carried)
    return Slopes(
        transitions=of_transitions,
        start=jnp.sum(of_later, 0),
        variance=dot(w, of_shift),
        weights=-(system.shift * squares + p * now.posterior) / 2,
        shift=of_shift,
        data=-a,
    )
