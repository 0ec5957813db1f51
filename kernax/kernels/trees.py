"""Labelled, ordered trees, such as the parse trees of sentences, as points: encoded, padded, in stacks."""

import enum
import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kernax.core.numerics import is_concrete
from kernax.kernels.alphabets import AbstractEncoded, check_alphabet, check_points, check_unknown, not_in_alphabet

NONE, GAP = -1, -2  # the label or place of no node; the label of a node that is not in the alphabet


class Trees(AbstractEncoded):
    """A stack of n trees of at most N nodes, or one tree (without the axis n), as `encode` makes them.

    Nodes stand in postorder, children before their parents, and then padding. Trees of different N and arity compare.

    Attributes:
        labels: (n, N), places of the nodes' labels in the alphabet; -1 for padding, -2 for a label that is not in it.
        children: (n, N, arity), the places of each node's children among the nodes, from left to right; -1 for none.
        weights: (n, N), 1 for a node, 0 for padding and unknown labels. They give the trees their precision, and are what a
            derivative "in the points" refers to: a match of two productions counts as the product of their nodes' weights.
        alphabet: the labels. Kernels refuse to compare trees over different ones.

    `X[i]`, with an index, a slice, or a list or array of indices or booleans, picks trees of a stack; `len(X)` counts them.
    """

    labels: Int[Array, "*n N"]
    children: Int[Array, "*n N arity"]
    weights: Float[Array, "*n N"]
    alphabet: tuple[str, ...] = eqx.field(static=True)

    padding: ClassVar[int] = NONE

    def __check_init__(self):
        if self.children.shape[:-1] != self.labels.shape or self.weights.shape != self.labels.shape:
            raise ValueError(
                "Trees needs labels (n, N), children (n, N, arity) and weights (n, N), "
                f"but got shapes {self.labels.shape}, {self.children.shape} and {self.weights.shape}"
            )
        nodes = np.arange(self.labels.shape[-1])[:, None]
        if is_concrete(self.children) and np.any(np.asarray(self.children) >= nodes):
            raise ValueError("children must stand before their parents, as encode puts them")


def encode(trees: Iterable, alphabet: Iterable | None = None, *, unknown: str = "refuse") -> Trees:
    """A stack of trees, from bracket notation or nested tuples.

    `"(S (NP (D the) (N dog)) (VP barks))"` and `("S", ("NP", ("D", "the"), ("N", "dog")), ("VP", "barks"))` are one tree: a
    node is `(label child child ...)`, and one without children may stand without brackets.

    Arguments:
        trees: a list of at least one tree, in one notation or the other.
        alphabet: every label that may occur, at a leaf or above, in any order; by default all that do, sorted. Trees to be
            compared need the same one: `trees.encode(new, X.alphabet)`.
        unknown: what becomes of a label that is not in the alphabet: "refuse" it with an error, or leave a "gap", a node that
            matches nothing, not even another gap.

    Raises ValueError, with the place, for unbalanced brackets, empty trees, missing labels and labels not in the alphabet.
    Places are counted from 0.
    """
    if isinstance(trees, (str, tuple)) or not isinstance(trees, Iterable):
        raise ValueError(f"trees must be a list of trees, but is of type {type(trees).__name__}: pass [tree] for one")
    check_unknown(unknown)
    tables = [_nodes(tree, f"trees[{number}]") for number, tree in enumerate(trees)]
    if not tables:
        raise ValueError("trees must hold at least one tree, but is empty")
    alphabet = sorted({node.label for table in tables for node in table}) if alphabet is None else alphabet
    known = check_alphabet(alphabet)
    codes = {label: code for code, label in enumerate(known)}
    for number, table in enumerate(tables):
        strange = next((node.label for node in table if node.label not in codes), None)
        if strange is not None and unknown == "refuse":
            raise not_in_alphabet(f"trees[{number}] holds {strange!r}", known)
    return _stacked(tables, codes, known)


def check_trees(x: Any, z: Any) -> None:
    """Raises ValueError unless both points are trees over one alphabet."""
    check_points(x, z, Trees)


class _Node(NamedTuple):
    label: str
    children: list[int]  # their places among the nodes of the tree, in postorder


def _stacked(tables: list[list[_Node]], codes: dict[str, int], alphabet: tuple[str, ...]) -> Trees:
    size = max(len(table) for table in tables)
    arity = max(1, *(len(node.children) for table in tables for node in table))
    labels = np.full((len(tables), size), NONE, np.int32)
    children = np.full((len(tables), size, arity), NONE, np.int32)
    for number, table in enumerate(tables):
        labels[number, : len(table)] = [codes.get(node.label, GAP) for node in table]
        for place, node in enumerate(table):
            children[number, place, : len(node.children)] = node.children
    weights = jnp.asarray(labels >= 0, jnp.result_type(float))
    return Trees(labels=jnp.asarray(labels), children=jnp.asarray(children), weights=weights, alphabet=alphabet)


class _Token(enum.Enum):
    OPEN = enum.auto()
    LABEL = enum.auto()
    CLOSE = enum.auto()


class _Open(NamedTuple):
    label: str | None  # None until it has been read
    children: list[int]
    place: Any


def _nodes(tree: Any, name: str) -> list[_Node]:
    """The nodes of one tree in postorder."""
    if not isinstance(tree, (str, tuple)):
        raise ValueError(f"{name} must be in bracket notation or nested tuples, but is of type {type(tree).__name__}")
    nodes: list[_Node] = []
    above = [_Open("", [], None)]  # the open nodes, below a root that is none
    for kind, label, place in _tokens_of_text(tree) if isinstance(tree, str) else _tokens_of_tuples(tree, name):
        if kind != _Token.CLOSE and len(above) == 1 and nodes:
            raise ValueError(f"{_where(name, place)}: the tree has ended before; pass one string for each tree")
        if kind == _Token.CLOSE and len(above) == 1:
            raise ValueError(f"{_where(name, place)}: this bracket closes nothing")
        if kind != _Token.LABEL and above[-1].label is None:
            raise ValueError(f"{_where(name, above[-1].place)}: a node without a label; write (label child child ...)")
        if kind == _Token.OPEN:
            above.append(_Open(None, [], place))
        elif above[-1].label is None:
            above[-1] = above[-1]._replace(label=label)
        else:
            node = _Node(label, []) if kind == _Token.LABEL else _Node(above[-1].label, above.pop().children)
            above[-1].children.append(len(nodes))
            nodes.append(node)
    if len(above) > 1:
        raise ValueError(f"{_where(name, above[-1].place)}: this bracket is never closed")
    if not nodes:
        raise ValueError(f"{name} is empty: a tree has at least one node")
    return nodes


def _where(name: str, place: int | tuple[int, ...]) -> str:
    return f"{name}, character {place}" if isinstance(place, int) else name + "".join(f"[{i}]" for i in place)


def _tokens_of_text(text: str) -> Iterator[tuple[_Token, str, int]]:
    kinds = {"(": _Token.OPEN, ")": _Token.CLOSE}
    for found in re.finditer(r"[()]|[^\s()]+", text):
        yield kinds.get(found[0], _Token.LABEL), found[0], found.start()


def _tokens_of_tuples(tree: tuple, name: str) -> Iterator[tuple[_Token, str, tuple[int, ...]]]:
    pending: list[tuple[Any, tuple[int, ...]]] = [(tree, ())]  # not by recursion, which is limited
    while pending:
        part, place = pending.pop()
        if isinstance(part, tuple):
            yield _Token.OPEN, "", place
            pending.append((_Token.CLOSE, place))
            pending.extend((part[i], (*place, i)) for i in reversed(range(len(part))))
        elif part is _Token.CLOSE:
            yield _Token.CLOSE, "", place
        elif isinstance(part, str):
            yield _Token.LABEL, part, place
        else:
            raise ValueError(f"{_where(name, place)} must be a label or a tuple, but is of type {type(part).__name__}")
