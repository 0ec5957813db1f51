"""The inverse of a system along a line, and the derivative of its log density, in O(n)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.numerics import dot, matmul, stopped
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.state_space import Chain
from kernax.core.linalg.inverse import (
    AbstractExplanation,
    AbstractSolvedInverse,
    explanation_of,
    inverse_of,
    row_at,
    terms_of_density,
)
from kernax.core.linalg.linalg import WeightedSystem
from kernax.core.line.kalman import KalmanFactor, KalmanFilter, at_points
from kernax.core.line.line import LineGram
from kernax.core.line.recursions import AbstractRecursions, outer


class Along(eqx.Module):
    """A system along a line, with all its parts in the order of the sorted points."""

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
    """The Gram matrix of a system whose factor is along a line."""
    gram = system.gram
    assert isinstance(gram, LineGram)
    return gram


def filter_of(along: Along) -> KalmanFilter:
    """The filter, with its derivatives."""
    found = along.recursions.gains(along.chain, along.weights, along.shift)
    return KalmanFilter.of(along.chain, along.weights, found, along.recursions)


class Slopes(eqx.Module):
    """The derivatives of `-1/2 (p log |T| + y.P W y)` in the parts of a system along a line.

    Attributes:
        transitions: in A of each point, (n, m, m).
        start: in `P h`, (m,).
        variance: in `h.P h`, ().
        weights: in w, (n,).
        shift: in d, (n,).
        data: in y, (n, p).
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

    def beside(self, system: WeightedSystem, y: Float[Array, "n p"]) -> Float[Array, ""]:
        """The inner product with the parts of a system, and with data."""
        # Not with sorted weights: the derivative of sorting would be a loop over all points.
        gram = line_gram(system)
        of_weights = dot(gram.line.unsorted(self.weights), system.weights.values)
        of_shift = dot(gram.line.unsorted(self.shift), system.shift)
        of_data = dot(gram.line.unsorted(self.data), y)
        return self.along(gram.chain()) + of_weights + of_shift + of_data


class Smoothed(eqx.Module):
    """What a smoothing pass finds at each point.

    Attributes:
        explained: F of the point before, (n, m, m).
        states: x, the mean of the states at the point before, (n, m, p).
        later: r, by which the data after each point correct the states there, (n, m, p).
        information: N, the information of those data on the states there, (n, m, m).
        b: `P^T y`, (n, p).
        inverse: the diagonal of P, (n,).
        posterior: the diagonal of `K P`, (n,).
        informed: `N q w / s`, (n, m).
    """

    explained: Float[Array, "n m m"]
    states: Float[Array, "n m p"]
    later: Float[Array, "n m p"]
    information: Float[Array, "n m m"]
    b: Float[Array, "n p"]
    inverse: Float[Array, " n"]
    posterior: Float[Array, " n"]
    informed: Float[Array, "n m"]

    @staticmethod
    def of(system: Along, y: Float[Array, "n p"]) -> "Smoothed":
        """By the filter of `kalman`, and its recursions back."""
        kalman = filter_of(system)
        states = kalman.states(y)
        v = y - at_points(kalman.seen, states)
        later = kalman.later(v)
        information = kalman.information()
        inverse, posterior = kalman.diagonals(information, system.shift)
        return Smoothed(
            explained=kalman.explained(),
            states=states,
            later=later,
            information=information,
            b=(v - at_points(kalman.gains, later)) / kalman.variances[:, None],
            inverse=inverse,
            posterior=posterior,
            informed=at_points(kalman.shares[:, None] * kalman.gains, information),
        )


def slopes(system: Along, y: Float[Array, "n p"]) -> Slopes:
    """The slopes of a system and data, by one smoothing pass."""
    now = Smoothed.of(system, y)
    w = system.weights
    p = y.shape[1]
    a = w[:, None] * now.b
    of_later = at_points(a, jnp.swapaxes(now.later, 1, 2)) + p * now.informed
    squares = jnp.sum(now.b**2, 1)
    of_shift = (w * squares - p * now.inverse) / 2
    return Slopes(
        transitions=_of_transitions(system, now, a),
        start=jnp.sum(of_later, 0),
        variance=dot(w, of_shift),
        weights=-(system.shift * squares + p * now.posterior) / 2,
        shift=of_shift,
        data=-a,
    )


def _of_transitions(system: Along, now: Smoothed, a: Float[Array, "n p"]) -> Float[Array, "n m m"]:
    """`r x^T - (r r^T - p N) A F`, where r and N of each point include its own observation.

    It is that of Koopman & Shephard 1992, "Exact score for time series models in state space form",
    for `Q = P - A P A^T`, whose terms that cancel are left out.
    """
    h = system.chain.observation
    r = now.later + h[None, :, None] * a[:, None, :]
    crossed = h[None, :, None] * now.informed[:, None, :]
    own = (system.weights * now.inverse)[:, None, None] * outer(h, h)[None]
    N = now.information - crossed - jnp.swapaxes(crossed, 1, 2) + own
    net = matmul(r, jnp.swapaxes(r, 1, 2)) - a.shape[1] * N
    carried = matmul(system.chain.transitions, now.explained)
    return matmul(r, jnp.swapaxes(now.states, 1, 2)) - matmul(net, carried)


@terms_of_density.register
def _(factor: KalmanFactor, system: WeightedSystem, y: Float[Array, "n p"]):
    found = slopes(Along.of(system.with_jitter(factor)), y[factor.line.order])
    known = jnp.where(factor.exists, 1, jnp.nan)

    def terms(system: WeightedSystem, y: Array) -> tuple[Array, Array]:
        # All of it stands in the second term.
        of_density = found.beside(system.with_jitter(factor), y)
        return jnp.zeros_like(of_density), -2 * known.astype(y.dtype) * of_density

    return terms


class LineInverse(AbstractSolvedInverse):
    """`P = T^-1` of a system along a line.

    Attributes:
        system: T, without jitter.
        factor: of T with jitter, a constant to derivatives.
    """

    system: WeightedSystem
    factor: KalmanFactor

    @property
    def along(self) -> Along:
        """T, with jitter."""
        return Along.of(self.system.with_jitter(self.factor))

    def diagonal(self):
        return self._diagonals()[0]

    def diagonal_of_product(self, system):
        return self._diagonals()[1]

    def trace_with(self, system):
        # To first order about the system of which this is the inverse.
        own = self.system.with_jitter(self.factor)
        nothing = jnp.zeros_like(own.shift)[:, None]
        found = slopes(Along.of(own), nothing)
        return len(own.shift) - 2 * (found.beside(system, nothing) - found.beside(own, nothing))

    def _diagonals(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Those of P and of `K P`."""
        along = self.along
        kalman = filter_of(along)
        found = jnp.stack(kalman.diagonals(kalman.information(), along.shift))
        found = jnp.where(self.factor.exists, found, jnp.nan)
        inverse, of_product = self.factor.line.unsorted(found.T).T
        return inverse, of_product


@inverse_of.register
def _(factor: KalmanFactor, system: WeightedSystem) -> LineInverse:
    return LineInverse(system, stopped(factor))


class LineExplanation(AbstractExplanation):
    """By the innovations of k(X, x): `sum_i w_i / s_i v_i(x) v_i(z)`, smooth in a weight at zero. A
    variance is found from the filter at the neighbours of x: those of a batch of k points take O(n
    + k log n).

    Attributes:
        gram: K.
        weights: w, None where they are one.
        shift: (n,), the jitter included.
        filter: of T, with its derivatives.
    """

    gram: LineGram
    weights: Float[Array, " n"] | None
    shift: Float[Array, " n"]
    filter: KalmanFilter

    def own_factor(self):
        roots = self.system.weights.times_roots(jnp.ones_like(self.shift))
        factor = KalmanFactor(
            filter=self.filter,
            line=self.gram.line,
            roots=roots[self.gram.order],
            jitter=jnp.zeros((), self.dtype),
            exists=jnp.asarray(True),
        )
        return stopped(factor)

    def explained(self, kernel, X, x, z):
        if z is x and eqx.is_array(x):  # x of a term of a sum is a module, and no place
            return self._explained_at(x[self.gram.line.column])
        u = self._innovations(kernel, X, x)
        v = self._innovations(kernel, X, z)
        return dot(self.filter.shares * u, v)

    def _explained_at(self, place: Float[Array, ""]) -> Float[Array, ""]:
        """`h.F h + s.N s`, `s = P h - F h`: F is the covariance of the states that the points
        before explain, N the information of the points after on the states.

        The recursions for F and N do not depend on the place, so that `vmap` over places runs them
        once.
        """
        line = self.gram.line
        model = self.gram.model
        h = model.observation()
        places = self.gram.points[line.order, line.column]
        i = jnp.searchsorted(stopped(places), stopped(place), side="right")
        before, after = self.filter.beside(i)
        n = len(places)
        # Not by a maximum, whose derivative would be halved at a point itself.
        since = jnp.where(i > 0, place - places[jnp.maximum(i - 1, 0)], 0)
        until = jnp.where(i < n, places[jnp.minimum(i, n - 1)] - place, 0)
        there = model.transition(since)
        on = model.transition(until)
        seen = matmul(h, there)
        known = matmul(before, seen)
        left = matmul(on, matmul(model.stationary(), h) - matmul(there, known))
        return dot(seen, known) + dot(left, matmul(after, left))

    def _innovations(self, kernel: AbstractKernel, X: PyTree, x: PyTree) -> Float[Array, " n"]:
        """v(x), of k(X, x)."""
        row = row_at(kernel, X, x)
        return self.filter.innovations(row[self.gram.order][:, None])[:, 0]


@explanation_of.register
def _(factor: KalmanFactor, system: WeightedSystem) -> LineExplanation:
    system = system.with_jitter(factor)
    return LineExplanation(
        gram=line_gram(system),
        weights=system.weights.given,
        shift=system.shift,
        filter=filter_of(Along.of(system)),
    )
