"""The recursions of `recursions` by blocks of points that are computed in parallel.

Each step is a map of a family that is closed under composition: affine maps of vectors, congruences
of covariances, and linear fractional maps for the filter. The maps of runs of points are therefore
computed in parallel, and composed by a parallel scan (Sarkka & Garcia-Fernandez 2021, "Temporal
parallelization of Bayesian smoothers").
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.kernel.state_space import Chain
from kernax.core.line.recursions import (
    AbstractRecursions,
    congruence,
    covariances_from,
    gain_at,
    gains_from,
    outer,
    readings_from,
    small_product,
    vectors_from,
)


class ParallelRecursions(AbstractRecursions):
    """Recursions by blocks of points, in three passes: the map of each block, all in parallel; the
    state before each block, by a parallel scan over blocks; and the recursion, all blocks in
    parallel.

    It takes two to three times the operations, in `2 b + log2(n / b)` steps for b points per block.
    """

    def vectors(self, A, a, V, *, back=False):
        return _affine(vectors_from, (A, a, V), back)

    def readings(self, A, a, V, readers, *, back=False):
        return _affine(readings_from, (A, a, V, readers), back)

    def covariances(self, A, a, scales, *, back=False):
        parts = _blocks((_all_directed(A, back), a, scales), back)

        def after(first, second):
            # B (A Z A^T + F) B^T + G.
            A, F = first
            B, G = second
            return small_product(B, A), congruence(B, F) + G

        runs = _prefixes(after, jax.vmap(_as_congruence)(*parts))
        found = jax.vmap(covariances_from)(_before(runs[1]), *parts)
        return _joined(found, len(A), back)

    def gains(self, chain, weights, shift):
        A, w = _blocks((chain.transitions, weights))
        # Padding points have A = 0, w = 0 and d = 1, so that s is not zero.
        d = _blocks(shift, fill=1)
        whole = jax.vmap(_as_fractional, (0, 0, 0, None))(A, w, d, chain)
        runs = _prefixes(_fractional_after, whole)
        found = jax.vmap(gains_from, (0, 0, 0, 0, None))(_before(runs.added), A, w, d, chain)
        return _joined(found, len(weights))


# The map of a block.


def _as_affine(
    A: Float[Array, "b m m"], a: Float[Array, "b m"], V: Float[Array, "b p"]
) -> tuple[Float[Array, "m m"], Float[Array, "m p"]]:
    """The map `x -> B x + y` of a block, as (B, y)."""

    def step(run, at):
        # x -> A (B x + y) + a v^T.
        B, y = run
        A, a, v = at
        return (small_product(A, B), small_product(A, y) + outer(a, v)), None

    nothing = jnp.zeros((a.shape[1], V.shape[1]), V.dtype)
    return lax.scan(step, (_identity(A), nothing), (A, a, V))[0]


def _as_congruence(
    A: Float[Array, "b m m"], a: Float[Array, "b m"], scales: Float[Array, " b"]
) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
    """The map `F -> B F B^T + G` of a block, as (B, G)."""

    def step(run, at):
        # F -> A (B F B^T + G) A^T + scale a a^T.
        B, G = run
        A, a, scale = at
        return (small_product(A, B), congruence(A, G) + outer(a, scale * a)), None

    identity = _identity(A)
    return lax.scan(step, (identity, jnp.zeros_like(identity)), (A, a, scales))[0]


class _Fractional(eqx.Module):
    """The map `F -> C + M F (I - J F)^-1 M^T` of the filter over some points.

    Attributes:
        moved: M, (m, m).
        added: C, the image of F = 0, (m, m).
        seen: J, the information of the points about the states before them, (m, m).
    """

    moved: Float[Array, "*n m m"]
    added: Float[Array, "*n m m"]
    seen: Float[Array, "*n m m"]


def _as_fractional(
    A: Float[Array, "b m m"],
    weights: Float[Array, " b"],
    shift: Float[Array, " b"],
    chain: Chain,
) -> _Fractional:
    """The map of a block of points. One more point changes it to `C = A C A^T + q q^T w / s`, `J =
    J + M^T A^T h h^T A M w / s` and `M = (I - q h^T w / s) A M`, with q and s of a filter that
    starts at the block.
    """
    start = chain.start
    h = chain.observation

    def step(run, at):
        A, w, d = at
        F = congruence(A, run.added)
        q, s = gain_at(F, w, d, start, h)
        moved = small_product(A, run.moved)
        seen = jnp.sum(h[:, None] * moved, 0)
        share = w / s
        run = _Fractional(
            moved=moved - outer(q, share * seen),
            added=F + outer(q, share * q),
            seen=run.seen + outer(seen, share * seen),
        )
        return run, None

    identity = _identity(A)
    nothing = jnp.zeros_like(identity)
    return lax.scan(step, _Fractional(identity, nothing, nothing), (A, weights, shift))[0]


# The composition of the maps of two consecutive runs of points.


def _fractional_after(first: _Fractional, second: _Fractional) -> _Fractional:
    """The composition with `E = (I - C1 J2)^-1`: `M = M2 E M1`, `C = C2 + M2 E C1 M2^T`, `J = J1 +
    M1^T J2 E M1`.

    The inverted matrix has eigenvalues in [0, 1]: one minus the squared correlations between the
    information of both runs about the states between them. An eigenvalue is only zero if there is
    no factor.
    """
    identity = jnp.eye(len(first.moved), dtype=first.moved.dtype)
    between = identity - small_product(first.added, second.seen)
    gained = small_product(first.added, second.moved.T)
    # E M1 and E C1 M2^T from one solve.
    solved = small_solution(between, jnp.concatenate([first.moved, gained], 1))
    moved, gained = jnp.split(solved, 2, 1)
    seen = small_product(first.moved.T, small_product(second.seen, moved))
    return _Fractional(
        moved=small_product(second.moved, moved),
        added=_symmetric(second.added + small_product(second.moved, gained)),
        seen=_symmetric(first.seen + seen),
    )


def _affine(run: Callable, parts: tuple[Array, ...], back: bool) -> Array:
    """A recursion of vectors, with all blocks in parallel."""
    A, *others = parts
    blocks = _blocks((_all_directed(A, back), *others), back)

    def after(first, second):
        # B (A z + x) + y.
        A, x = first
        B, y = second
        return small_product(B, A), small_product(B, x) + y

    runs = _prefixes(after, jax.vmap(_as_affine)(*blocks[:3]))
    return _joined(jax.vmap(run)(_before(runs[1]), *blocks), len(A), back)


def _prefixes(after: Callable, runs: Any) -> Any:
    """The composed maps of all blocks up to each one, from the maps of single blocks, by a scan
    that doubles the number of composed blocks in each step (Hillis & Steele 1986, "Data parallel
    algorithms").

    It is one short loop. The unrolled steps of `lax.associative_scan` take several times as long to
    compile.
    """
    count = len(jax.tree.leaves(runs)[0])
    places = jnp.arange(count)[:, None, None]

    def doubled(k: Array, runs: Any) -> Any:
        # A run of 2^k blocks follows the one that ends before it; together they have 2^(k+1).
        length = jnp.left_shift(1, k)
        # Zero if there is none, because an unused branch must have a derivative as well.
        shifted = lambda leaf: jnp.where(places < length, 0, jnp.roll(leaf, length, 0))
        earlier = jax.tree.map(shifted, runs)
        longer = jax.vmap(after)(earlier, runs)
        return jax.tree.map(lambda a, b: jnp.where(places < length, a, b), runs, longer)

    return lax.fori_loop(0, (count - 1).bit_length(), doubled, runs)


def _before(X: Float[Array, "b m p"]) -> Float[Array, "b m p"]:
    """The state before each block: that after the previous block, or zero for the first."""
    return jnp.concatenate([jnp.zeros_like(X[:1]), X[:-1]])


_POINTS_OF_BLOCK = 32


def _blocks(parts: Any, back: bool = False, fill: int = 0) -> Any:
    """Arrays of n points as blocks of points, with the last block padded."""

    def split(part: Float[Array, "n *m"]) -> Float[Array, "c b *m"]:
        count = -(-len(part) // _POINTS_OF_BLOCK)
        part = part[::-1] if back else part
        more = [(0, count * _POINTS_OF_BLOCK - len(part))] + [(0, 0)] * (part.ndim - 1)
        filled = jnp.pad(part, more, constant_values=fill)
        return filled.reshape(count, _POINTS_OF_BLOCK, *part.shape[1:])

    return jax.tree.map(split, parts)


def _joined(blocks: Any, n: int, back: bool = False) -> Any:
    """The n points of blocks."""

    def join(part: Float[Array, "c b *m"]) -> Float[Array, "n *m"]:
        joined = part.reshape(-1, *part.shape[2:])[:n]
        return joined[::-1] if back else joined

    return jax.tree.map(join, blocks)


def _all_directed(A: Float[Array, "n m m"], back: bool) -> Float[Array, "n m m"]:
    """The matrices of all steps in this direction."""
    return jnp.swapaxes(A, 1, 2) if back else A


def _identity(A: Float[Array, "b m m"]) -> Float[Array, "m m"]:
    """The map of an empty run of points."""
    return jnp.eye(A.shape[1], dtype=A.dtype)


def _symmetric(A: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """A, symmetrised to remove rounding differences between its triangles."""
    return (A + A.T) / 2


def small_solution(A: Float[Array, "m m"], B: Float[Array, "m p"]) -> Float[Array, "m p"]:
    """`A^-1 B`, for up to two states without a call for each matrix of a batch."""
    if len(A) == 1:
        return B / A[0, 0]
    if len(A) > 2:
        return jnp.linalg.solve(A, B)
    # [a b; c d]^-1 = [d -b; -c a] / (a d - b c).
    determinant = A[0, 0] * A[1, 1] - A[0, 1] * A[1, 0]
    first = jnp.stack([A[1, 1], -A[0, 1]])
    second = jnp.stack([-A[1, 0], A[0, 0]])
    return small_product(jnp.stack([first, second]), B) / determinant
