"""Kernels of trees that count common fragments."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.kernel import AbstractKernel
from kernax.core.numerics import dot, product
from kernax.core.parameters import positive
from kernax.kernels.trees import GAP, NONE, Trees, check_trees


class SubsetTree(AbstractKernel):
    """`sum over nodes a of x and b of z of C(a, b)`: common fragments of two trees, each times decay^(its productions).

    A production is a node's label and the labels of its children, in order; a leaf has none. A fragment is a connected part
    of a tree, of at least one production, that holds all children of a node or none. With c_j the j-th child,

        C(a, b) = decay prod_j (1 + C(c_j(a), c_j(b))) where a and b have the same production, 0 where not

    (Collins & Duffy 2001, Convolution kernels for natural language). A tree of a single node has no fragments, and
    `Normalised` makes its row zero.

    `decay` > 0, at most 1 as a rule, gives large fragments less say. Costs N M arity for trees of N and M nodes, in N steps.
    k(x, x) grows up to 2^(nodes of x with children) where decay is 1: some 120 of these may overflow in float32, 1000 in
    float64, also inside `Normalised`. A smaller decay helps.

    Raises ValueError for trees over different alphabets.
    """

    decay: Float[Array, ""] = positive(default=1.0)

    def __call__(self, x, z):
        check_trees(x, z)
        return _common_fragments(self.decay, x, z)


@jax.custom_jvp
def _common_fragments(decay: Array, x: Trees, z: Trees) -> Array:
    return _inside(decay, x, z)[0]


@_common_fragments.defjvp
def _common_fragments_jvp(primals, tangents):
    # C(a, b) = decay w_a w_b E(a, b), with E = prod_j (1 + C(children)) where the productions are the same. The total depends
    # on C(a, b) itself and through the parents p of a and r of b, of which they are the same child, if at all:
    #
    #     A(a, b) = d total / d C(a, b) = 1 + A(p, r) C(p, r) / (1 + C(a, b)),
    #
    # from the root down, and d total = sum A E d(decay w_a w_b): inside and outside, as for grammars. The transpose of the
    # recursion for C would scatter instead of gather, some ten times slower, and hold its rows for each child.
    (decay, x, z), (d_decay, dx, dz) = primals, tangents
    total, E = _inside(decay, x, z)
    share = E * _outside(decay * x.weights[:, None] * z.weights[None] * E, x, z)
    by_x, by_z = product(share, z.weights), product(x.weights, share)
    return total, d_decay * dot(by_x, x.weights) + decay * (dot(by_x, dx.weights) + dot(by_z, dz.weights))


def _inside(decay: Array, x: Trees, z: Trees) -> tuple[Array, Array]:
    """`sum C(a, b)`, and E (N, M): the table of C row by row in postorder, from the rows of the children."""
    arity = min(x.children.shape[1], z.children.shape[1])
    z_productions, x_productions = _productions(z, x.children.shape[1]), _productions(x, z.children.shape[1])

    def with_row(carry, node):
        C, by_node = carry
        a, weight, children, production = node
        E = ((production[0] != NONE) & jnp.all(production[None] == z_productions, 1)).astype(C.dtype)
        pairs = (children[:arity], z.children[:, :arity].T)
        E = lax.scan(lambda E, pair: (E * (1 + _entries(C, *pair)), None), E, pairs)[0]
        row = decay * weight * z.weights * E
        return (_with_row(C, a, row), by_node + row), E

    by_node = jnp.zeros_like(z.weights * decay)
    nodes = (jnp.arange(len(x.weights)), x.weights, x.children, x_productions)
    (_, by_node), E = lax.scan(with_row, (_table(x, by_node), by_node), nodes)
    # Added one after the other, as the order of a reduction would depend on the number of padding nodes.
    return lax.scan(lambda total, part: (total + part, None), jnp.zeros_like(by_node[0]), by_node)[0], E


def _outside(C: Array, x: Trees, z: Trees) -> Array:
    """A (N, M): row by row from the root down, from the row of the parent."""
    (x_parents, x_places), (z_parents, z_places) = _parents(x), _parents(z)

    def with_row(AC, node):
        a, C, parent, place = node
        A = 1 + jnp.where(place == z_places, _entries(AC, parent, z_parents), 0) / (1 + C)
        return _with_row(AC, a, A * C), A

    nodes = (jnp.arange(len(x.weights)), C, x_parents, x_places)
    return lax.scan(with_row, _table(x, C[0]), nodes, reverse=True)[1]


def _table(x: Trees, row: Array) -> Array:
    """A table of zeros, with a row and a column before all others that stay zero and are those of no node, -1."""
    return jnp.zeros((len(x.weights) + 1, len(row) + 1), row.dtype)


def _entries(table: Array, a: Array, b: Array) -> Array:
    return table.at[a + 1, b + 1].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _with_row(table: Array, a: Array, row: Array) -> Array:
    return lax.dynamic_update_slice(table, row[None], (a + 1, jnp.ones_like(a)))


def _parents(tree: Trees) -> tuple[Array, Array]:
    """The parent of each node, -1 for none, and which of its children the node is."""
    n, arity = tree.children.shape
    owners = jnp.full(n + 1, NONE).at[tree.children.ravel()].set(jnp.arange(n * arity))[:-1]
    return owners // arity, owners % arity


def _productions(tree: Trees, arity: int) -> Array:
    """The label of each node and those of its children, in at least `arity` places; -1 first where nothing matches."""
    below = jnp.where(tree.children == NONE, NONE, tree.labels[tree.children])
    matches = (tree.labels >= 0) & (tree.children[:, 0] != NONE) & jnp.all(below != GAP, 1)
    rest = jnp.full((len(below), max(arity - below.shape[1], 0)), NONE, below.dtype)
    return jnp.concatenate([jnp.where(matches, tree.labels, NONE)[:, None], below, rest], 1)
