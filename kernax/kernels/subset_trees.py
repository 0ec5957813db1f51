"""Kernels of trees that count common fragments."""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.derivatives import custom_jvp, with_zeros
from kernax.core.base.numerics import dot, matmul
from kernax.core.base.parameters import positive
from kernax.core.kernel.kernel import AbstractKernel
from kernax.kernels.tree_points import GAP, NONE, OF_TREES, Trees, check_trees


class SubsetTree(AbstractKernel):
    """`sum_ab C(a, b)` over nodes a of x and b of z: common fragments of two trees.

    A production is the label of a node with the labels of its children, in order; a leaf has no
    production. A fragment is a connected part of a tree with at least one production that contains
    all children of a node or none. It counts decay^(number of its productions). With c_j the j-th
    child,

        C(a, b) = decay prod_j (1 + C(c_j(a), c_j(b))) where a and b have the same production, 0
        where not

    (Collins & Duffy 2001, Convolution kernels for natural language). A tree of a single node has no
    fragments, and `Normalised` makes its row zero.

    `decay` > 0, usually at most 1, gives large fragments less weight. A pair of trees of N and M
    nodes costs N M arity operations, in N steps. With a decay of 1, k(x, x) grows up to 2^(nodes of
    x with children): about 120 of these may overflow in float32, 1000 in float64, also inside
    `Normalised`. A smaller decay helps.

    Raises ValueError for trees over different alphabets.

    Examples:
        >>> X = kernax.trees.encode(["(S (N dogs) (V bark))", "(S (N cats) (V bark))"])
        >>> kernax.gram(kernax.SubsetTree(), X)
        Array([[6., 3.],
               [3., 6.]], dtype=float64)
    """

    decay: Float[ParameterArray, ""] = positive(default=1.0)

    encoding: ClassVar[str] = OF_TREES

    def __call__(self, x, z):
        check_trees(x, z)
        return _common_fragments(self.decay, x, z)


@custom_jvp
def _common_fragments(decay: Array, x: Trees, z: Trees) -> Array:
    return _inside(decay, x, z)[0]


@_common_fragments.def_jvp
def _common_fragments_jvp(primals, tangents):
    # C(a, b) = decay w_a w_b E(a, b), with E = prod_j (1 + C(children)) where the productions are
    # the same. The total depends on C(a, b) itself and, if a and b are the j-th children of p and r
    # with the same j, through C(p, r). So from the root down
    #     A(a, b) = d total / d C(a, b) = 1 + A(p, r) C(p, r) / (1 + C(a, b)),
    # and d total = sum A E d(decay w_a w_b): the inside-outside algorithm of grammars. The
    # transpose of the recursion for C would scatter instead of gather, which is about ten times
    # slower, and would store its rows for each child.
    (decay, x, z) = primals
    (d_decay, dx, dz) = with_zeros(primals, tangents)
    total, E = _inside(decay, x, z)
    share = E * _outside(decay * x.weights[:, None] * z.weights[None] * E, x, z)
    # d total / d(decay w_a w_b) = A E = share. `by_x` sums it over b, weighted by w_b; `by_z` over
    # a, weighted by w_a.
    by_x = matmul(share, z.weights)
    by_z = matmul(x.weights, share)
    return total, d_decay * dot(by_x, x.weights) + decay * (
        dot(by_x, dx.weights) + dot(by_z, dz.weights)
    )


class _NodeOfX(NamedTuple):
    """A node of x, with its production and children, on which its row of C depends."""

    place: Int[Array, ""]  # its index among the nodes, in postorder
    weight: Float[Array, ""]
    children: Int[Array, " arity"]
    production: Int[Array, " labels"]


class _RowsSoFar(NamedTuple):
    """The table of C with the rows of the nodes so far (see `_table`), and their sum."""

    table: Float[Array, "rows columns"]
    total: Float[Array, " M"]


def _inside(
    decay: Float[Array, ""], x: Trees, z: Trees
) -> tuple[Float[Array, ""], Float[Array, "N M"]]:
    """`sum_ab C(a, b)` and E; C row by row in postorder, from the rows of the children."""
    z_productions = _productions(z, x.children.shape[1])
    places = jnp.arange(len(x.weights))
    nodes = _NodeOfX(places, x.weights, x.children, _productions(x, z.children.shape[1]))
    nothing = jnp.zeros_like(z.weights * decay)
    arity = min(x.children.shape[1], z.children.shape[1])

    def row(now: _RowsSoFar, node: _NodeOfX) -> tuple[_RowsSoFar, Float[Array, " M"]]:
        # E(a, b) = prod_j (1 + C(c_j(a), c_j(b))) where the productions are the same, else 0, and
        # C(a, b) = decay w_a w_b E(a, b). Leaves have no production.
        same = jnp.all(node.production[None] == z_productions, 1)
        alike = ((node.production[0] != NONE) & same).astype(now.table.dtype)

        def times_child(total, pair):
            return total * (1 + _entries(now.table, *pair)), None

        E = lax.scan(times_child, alike, (node.children[:arity], z.children[:, :arity].T))[0]
        C = decay * node.weight * z.weights * E
        return _RowsSoFar(_with_row(now.table, node.place, C), now.total + C), E

    end, E = lax.scan(row, _RowsSoFar(_table(x, nothing), nothing), nodes)
    # Term by term, because the order of a reduction would depend on the padding.
    add = lambda total, part: (total + part, None)
    total = lax.scan(add, jnp.zeros_like(end.total[0]), end.total)[0]
    return total, E


def _outside(C: Float[Array, "N M"], x: Trees, z: Trees) -> Float[Array, "N M"]:
    """`A(a, b) = d total / d C(a, b)`, row by row from the root down, from the row of the parent.

    C lacks the row and column of the missing node.
    """
    (x_parents, x_places) = _parents(x)
    (z_parents, z_places) = _parents(z)

    def with_row(AC, node):
        # A(a, b) = 1 + A(p, r) C(p, r) / (1 + C(a, b)), where a and b are children of p and r at
        # the same index; A C is zero for the parents of roots.
        a, C, parent, place = node
        A = 1 + jnp.where(place == z_places, _entries(AC, parent, z_parents), 0) / (1 + C)
        return _with_row(AC, a, A * C), A

    nodes = (jnp.arange(len(x.weights)), C, x_parents, x_places)
    return lax.scan(with_row, _table(x, C[0]), nodes, reverse=True)[1]


def _table(x: Trees, row: Float[Array, " M"]) -> Float[Array, "rows columns"]:
    """A table (N + 1, M + 1) of zeros for pairs of nodes, whose first row and column stay zero.

    They stand for a missing node, -1: a missing child contributes the factor 1 + 0.
    """
    return jnp.zeros((len(x.weights) + 1, len(row) + 1), row.dtype)


def _entries(
    table: Float[Array, "rows columns"], a: Int[Array, ""], b: Int[Array, " M"]
) -> Float[Array, " M"]:
    """The entries of a table for node a of x and nodes b of z; zero where one is -1."""
    return table.at[a + 1, b + 1].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _with_row(
    table: Float[Array, "rows columns"], a: Int[Array, ""], row: Float[Array, " M"]
) -> Float[Array, "rows columns"]:
    """A table with the row of node a filled in."""
    return lax.dynamic_update_slice(table, row[None], (a + 1, jnp.ones_like(a)))


def _parents(tree: Trees) -> tuple[Int[Array, " N"], Int[Array, " N"]]:
    """The parent of each node, -1 for a root, and the index of the node among its siblings."""
    n, arity = tree.children.shape
    # The missing child, -1, is written to the last index, which is cut off.
    owners = jnp.full(n + 1, NONE).at[tree.children.ravel()].set(jnp.arange(n * arity))[:-1]
    return owners // arity, owners % arity


def _productions(tree: Trees, arity: int) -> Int[Array, "N labels"]:
    """The label of each node and those of its children, padded to `arity` children or more.

    The first label is -1 for leaves, padding and productions with unknown labels, which match
    nothing.
    """
    below = jnp.where(tree.children == NONE, NONE, tree.labels[tree.children])
    has_children = tree.children[:, 0] != NONE
    matches = (tree.labels >= 0) & has_children & jnp.all(below != GAP, 1)
    label = jnp.where(matches, tree.labels, NONE)
    missing = max(arity - below.shape[1], 0)
    padding = jnp.full((len(below), missing), NONE, below.dtype)
    return jnp.concatenate([label[:, None], below, padding], 1)
