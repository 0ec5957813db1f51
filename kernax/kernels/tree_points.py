"""Labelled, ordered trees, such as parse trees of sentences, as points."""

import enum
import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kernax.core.base.numerics import is_concrete
from kernax.kernels.alphabets import (
    AbstractEncoded,
    check_alphabet,
    check_points,
    check_unknown,
    not_in_alphabet,
)

NONE = -1  # the label or index of a missing node
GAP = -2  # the label of a node that is not in the alphabet

OF_TREES = "kernax.trees.encode converts trees in brackets to points"


class Trees(AbstractEncoded):
    """A batch of n trees of at most N nodes, or one tree (without the axis n), as `encode` makes
    them.

    Nodes are in postorder, children before their parents, followed by padding. Trees of different
    N and arity can be compared.

    Attributes:
        labels: (n, N), indices of the nodes' labels in the alphabet; -1 for padding, -2 for a label
            that is not in it.
        children: (n, N, arity), the indices of each node's children among the nodes, from left to
            right; -1 for none.
        weights: (n, N), 1 for a node, 0 for padding and unknown labels. A match of two productions
            counts as the product of their nodes' weights. Kernels compute in their dtype.
            Derivatives "in the points" are derivatives in the weights.
        alphabet: the labels. Kernels refuse to compare trees over different ones.

    `X[i]`, with an index, a slice, or a list or array of indices or booleans, selects trees of a
    batch; `len(X)` is their number.

    Examples:
        >>> X = kernax.trees.encode(["(S (N dogs) (V bark))", "(V bark)"])
        >>> X.labels.shape  # two trees of at most five nodes
        (2, 5)
    """

    labels: Int[Array, "*n N"]
    children: Int[Array, "*n N arity"]
    weights: Float[Array, "*n N"]
    alphabet: tuple[str, ...] = eqx.field(static=True)

    padding: ClassVar[int] = NONE

    def __check_init__(self):
        shape = self.labels.shape
        if self.children.shape[:-1] != shape or self.weights.shape != shape:
            raise ValueError(
                "Trees needs labels (n, N), children (n, N, arity) and weights (n, N), "
                f"but got shapes {shape}, {self.children.shape} and {self.weights.shape}"
            )
        nodes = np.arange(shape[-1])[:, None]
        if is_concrete(self.children) and np.any(np.asarray(self.children) >= nodes):
            raise ValueError("children must come before their parents, as encode orders them")


def encode(trees: Iterable, alphabet: Iterable | None = None, *, unknown: str = "refuse") -> Trees:
    """Encodes trees in bracket notation or nested tuples as a batch.

    `"(S (NP (D the) (N dog)) (VP barks))"` and `("S", ("NP", ("D", "the"), ("N", "dog")), ("VP",
    "barks"))` are one tree: a node is `(label child child ...)`, and a node without children may be
    written without brackets.

    Arguments:
        trees: a list of at least one tree, in one notation or the other.
        alphabet: every label that may occur, at a leaf or above, in any order; by default all that
            do, sorted. Trees to be compared need the same one: `trees.encode(new, X.alphabet)`.
        unknown: what to do with a label that is not in the alphabet: "refuse" it with an error, or
            leave a "gap", a node that matches nothing, not even another gap.

    Raises ValueError, with the position counted from 0, for unbalanced brackets, empty trees,
    missing labels and labels that are not in the alphabet.

    Examples:
        >>> X = kernax.trees.encode(["(S (N dogs) (V bark))", ("S", ("N", "cats"), ("V", "bark"))])
        >>> kernax.gram(kernax.SubsetTree(), X)
        Array([[6., 3.],
               [3., 6.]], dtype=float64)
    """
    if isinstance(trees, (str, tuple)) or not isinstance(trees, Iterable):
        raise ValueError(
            f"trees must be a list of trees, but is of type {type(trees).__name__}: pass [tree] "
            "for one"
        )
    check_unknown(unknown)
    tables = [_nodes(tree, f"trees[{number}]") for number, tree in enumerate(trees)]
    if not tables:
        raise ValueError("trees must hold at least one tree, but is empty")
    # Every label that occurs, sorted.
    known = check_alphabet(
        sorted({node.label for table in tables for node in table}) if alphabet is None else alphabet
    )
    codes = {label: code for code, label in enumerate(known)}
    labels = np.full((len(tables), max(map(len, tables))), NONE, np.int32)
    arity = max(1, *(len(node.children) for table in tables for node in table))
    children = np.full((*labels.shape, arity), NONE, np.int32)
    for number, table in enumerate(tables):
        for place, node in enumerate(table):
            if unknown == "refuse" and node.label not in codes:
                raise not_in_alphabet(f"trees[{number}] has {node.label!r}", known)
            labels[number, place] = codes.get(node.label, GAP)
            children[number, place, : len(node.children)] = node.children
    return Trees(
        labels=jnp.asarray(labels),
        children=jnp.asarray(children),
        weights=jnp.asarray(labels >= 0, jnp.result_type(float)),
        alphabet=known,
    )


def check_trees(x: Any, z: Any) -> None:
    """Raises ValueError unless both points are trees over one alphabet."""
    check_points(x, z, Trees)


class _ParsedNode(NamedTuple):
    label: str
    children: list[int]  # their indices among the nodes of the tree, in postorder


_Place = int | tuple[int, ...]  # of a token: index of its character, or indices into tuples


class _Kind(enum.Enum):
    OPEN = enum.auto()
    LABEL = enum.auto()
    CLOSE = enum.auto()


class _Token(NamedTuple):
    kind: _Kind
    label: str
    place: _Place


class _Open(NamedTuple):
    """A node whose children are still being read."""

    label: str | None  # None until it has been read
    children: list[int]
    place: _Place


def _nodes(tree: Any, name: str) -> list[_ParsedNode]:
    """The nodes of one tree in postorder."""
    parser = _Parser(name)
    for token in _tokens(tree, name):
        parser.read(token)
    if parser.is_inside:
        place = _where(name, parser.innermost.place)
        raise ValueError(f"{place}: this bracket is never closed")
    if not parser.nodes:
        raise ValueError(f"{name} is empty: a tree has at least one node")
    return parser.nodes


class _Parser:
    """The complete nodes of a tree, in postorder, and the nodes that are still open."""

    def __init__(self, name: str):
        self.name = name
        self.nodes: list[_ParsedNode] = []
        # The first is the parent of the root, and is never closed.
        self.open = [_Open("", [], 0)]

    @property
    def is_inside(self) -> bool:
        """Whether a bracket is open."""
        return len(self.open) > 1

    @property
    def innermost(self) -> _Open:
        """The open node that the next token belongs to."""
        return self.open[-1]

    def read(self, token: _Token) -> None:
        """Adds the next token. Raises ValueError where it is not allowed."""
        place = _where(self.name, token.place)
        if token.kind != _Kind.CLOSE and self.nodes and not self.is_inside:
            raise ValueError(f"{place}: the tree has already ended; pass one string for each tree")
        if token.kind == _Kind.CLOSE and not self.is_inside:
            raise ValueError(f"{place}: this bracket has no opening bracket")
        if token.kind != _Kind.LABEL and self.innermost.label is None:
            raise ValueError(
                f"{_where(self.name, self.innermost.place)}: a node has no label; write (label "
                "child child ...)"
            )
        if token.kind == _Kind.OPEN:
            self.open.append(_Open(None, [], token.place))
        elif token.kind == _Kind.CLOSE:
            closed = self.open.pop()
            self._complete(_ParsedNode(closed.label or "", closed.children))
        elif self.innermost.label is None:
            self.open[-1] = self.innermost._replace(label=token.label)
        else:
            self._complete(_ParsedNode(token.label, []))

    def _complete(self, node: _ParsedNode) -> None:
        """Appends a node, as a child of the innermost open one."""
        self.innermost.children.append(len(self.nodes))
        self.nodes.append(node)


def _where(name: str, place: _Place) -> str:
    """A position in a tree, for a message."""
    if isinstance(place, int):
        return f"{name}, character {place}"
    return name + "".join(f"[{i}]" for i in place)


def _tokens(tree: Any, name: str) -> Iterator[_Token]:
    """The tokens of a tree in either notation. Raises ValueError for any other type."""
    if isinstance(tree, str):
        # Brackets, and the labels between them and blanks.
        kinds = {"(": _Kind.OPEN, ")": _Kind.CLOSE}
        for word in re.finditer(r"[()]|[^\s()]+", tree):
            yield _Token(kinds.get(word[0], _Kind.LABEL), word[0], word.start())
        return
    if not isinstance(tree, tuple):
        raise ValueError(
            f"{name} must be in bracket notation or nested tuples, but is of type "
            f"{type(tree).__name__}"
        )
    # Depth first, by a stack: Python's recursion is limited.
    pending: list[tuple[Any, tuple[int, ...]]] = [(tree, ())]
    while pending:
        part, place = pending.pop()
        if isinstance(part, tuple):
            yield _Token(_Kind.OPEN, "", place)
            pending.append((_Kind.CLOSE, place))
            pending.extend((part[i], (*place, i)) for i in reversed(range(len(part))))
        elif part is _Kind.CLOSE:
            yield _Token(_Kind.CLOSE, "", place)
        elif isinstance(part, str):
            yield _Token(_Kind.LABEL, part, place)
        else:
            raise ValueError(
                f"{_where(name, place)} must be a label or a tuple, but is of type "
                f"{type(part).__name__}"
            )
