"""Strings of tokens (letters or words) as points, encoded and padded in batches."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kernax.core.base.parameters import check_count
from kernax.kernels.alphabets import (
    AbstractEncoded,
    check_alphabet,
    check_points,
    check_unknown,
    not_in_alphabet,
)

OF_TEXTS = "kernax.strings.encode converts texts to points"


class Strings(AbstractEncoded):
    """A batch of n strings, or one string (without the axis n), as `encode` makes them.

    Attributes:
        codes: (n, L), indices of the tokens in the alphabet; arbitrary where the weight is zero.
        weights: (n, L), 1 for a token, 0 for padding. A match of two tokens counts as the product
            of their weights. Kernels compute in their dtype, unless the points are mixed and
            contain vectors. Derivatives "in the points" are derivatives in the weights.
        alphabet: the tokens. Kernels refuse to compare strings over different ones.

    `X[i]`, with an index, a slice, or a list or array of indices or booleans, selects strings of a
    batch; `len(X)` is their number.

    Examples:
        >>> X = kernax.strings.encode(["abc", "ab"])
        >>> X.weights
        Array([[1., 1., 1.],
               [1., 1., 0.]], dtype=float64)
    """

    codes: Int[Array, "*n L"]
    weights: Float[Array, "*n L"]
    alphabet: tuple[str, ...] = eqx.field(static=True)

    def __check_init__(self):
        if self.codes.shape != self.weights.shape:
            raise ValueError(
                f"Strings needs codes and weights of one shape (n, L), but got {self.codes.shape} "
                f"and {self.weights.shape}"
            )


def encode(
    texts: Iterable,
    alphabet: Sequence[str] | None = None,
    *,
    unknown: str = "refuse",
    length: int | None = None,
) -> Strings:
    """Encodes strings as a batch, padded to the length of the longest.

    Padding never changes the value of a kernel, not even in its last bit.

    Arguments:
        texts: n strings, whose tokens are their letters, or n sequences of tokens, such as
            `[text.split() for text in texts]`.
        alphabet: every token that may occur, in any order; by default all that do, sorted. Strings
            to be compared need the same one: `encode(new, X.alphabet)`.
        unknown: what to do with other tokens: "refuse" them with an error, or leave a "gap", which
            keeps its place in the string and matches nothing, not even another gap.
        length: the padded length, at least and by default that of the longest string.

    Raises ValueError for points that are not strings, for a token outside the alphabet, and for a
    length that is too short.

    Examples:
        >>> X = kernax.strings.encode(["banana", "ananas", "cherry"])
        >>> len(X.alphabet), X.codes.shape
        (9, (3, 6))
        >>> words = kernax.strings.encode([text.split() for text in ["to be", "or not to be"]])
        >>> kernax.gram(kernax.Spectrum(2), words)  # the common pair "to be"
        Array([[1., 1.],
               [1., 3.]], dtype=float64)
    """
    if isinstance(texts, str) or not hasattr(texts, "__iter__"):
        for_one = ": pass [text] for one" if isinstance(texts, str) else ""
        raise ValueError(
            "texts must be a list of strings or of lists of tokens, but is of type "
            f"{type(texts).__name__}{for_one}"
        )
    given = list(texts)
    if not given:
        raise ValueError("texts must hold at least one string, but is empty")
    rows = [_tokens(text, i) for i, text in enumerate(given)]
    if alphabet is None:
        known = tuple(sorted({token for row in rows for token in row}))
    else:
        known = check_alphabet(alphabet)
    check_unknown(unknown)
    longest = max([1, *map(len, rows)])
    length = longest if length is None else check_count(length, "length")
    if length < longest:
        raise ValueError(
            f"length must be at least {longest}, that of the longest string, but is {length}"
        )
    # Tokens that the alphabet lacks have weight zero, as padding has.
    place = {token: code for code, token in enumerate(known)}
    codes = np.zeros((len(rows), length), np.int32)
    weights = np.zeros((len(rows), length))
    for i, row in enumerate(rows):
        for j, token in enumerate(row):
            if token not in place and unknown == "refuse":
                raise not_in_alphabet(f"texts[{i}] has {token!r} at position {j}", known)
        codes[i, : len(row)] = [place.get(token, 0) for token in row]
        weights[i, : len(row)] = [token in place for token in row]
    return Strings(
        codes=jnp.asarray(codes),
        weights=jnp.asarray(weights, jnp.result_type(float)),
        alphabet=known,
    )


def from_graphs(
    graphs: Iterable,
    n_rounds: int = 3,
    alphabet: Sequence[str] | None = None,
    *,
    unknown: str = "refuse",
) -> Strings:
    """Graphs as bags of the labels that rounds of relabelling give to their nodes: with
    `Spectrum(1)`, the Weisfeiler-Lehman subtree kernel (Shervashidze et al. 2011, "Weisfeiler-
    Lehman graph kernels", section 3).

    A round gives each node a new label for its own label and the sorted labels of its neighbours.
    The kernel counts the pairs of nodes with equal labels, over the given labels and all rounds:
    nodes are equal after r rounds if the trees of their walks of length r are. A label is the same
    in every call, so that further graphs are encoded with `from_graphs(new, n_rounds, X.alphabet,
    unknown="gap")`, where a label that was not seen before matches nothing.

    Arguments:
        graphs: n pairs of the labels of the nodes, any strings or numbers, and of the edges, pairs
            of indices of nodes. Edges have no direction.
        n_rounds: the number of rounds; 0 compares the given labels alone.
        alphabet, unknown: as for `encode`.

    Raises ValueError for graphs that are not such pairs and for an index out of range.

    Examples:
        >>> ethanol = (["C", "C", "O"], [(0, 1), (1, 2)])
        >>> propane = (["C", "C", "C"], [(0, 1), (1, 2)])
        >>> X = kernax.strings.from_graphs([ethanol, propane], n_rounds=1)
        >>> kernax.gram(kernax.Spectrum(1), X)  # C with one neighbour C: once and twice
        Array([[ 8.,  8.],
               [ 8., 14.]], dtype=float64)
    """
    n_rounds = check_count(n_rounds, "n_rounds", 0)
    rows = [_relabelled(graph, i, n_rounds) for i, graph in enumerate(graphs)]
    return encode(rows, alphabet, unknown=unknown)


def _relabelled(graph: Any, i: int, n_rounds: int) -> list[str]:
    """The labels of all nodes of graph i, as given and after each round."""
    if not isinstance(graph, (tuple, list)) or len(graph) != 2:
        raise ValueError(
            f"graphs[{i}] must be a pair of labels and edges, such as (['C', 'O'], [(0, 1)]), but "
            f"is {graph!r}"
        )
    labels = [f"0 {label}" for label in graph[0]]
    neighbours: list[list[int]] = [[] for _ in labels]
    for edge in graph[1]:
        if len(edge) != 2 or not all(0 <= end < len(labels) for end in edge):
            raise ValueError(
                f"an edge of graphs[{i}] must be a pair of indices of its {len(labels)} nodes, but "
                f"is {tuple(edge)}"
            )
        first, second = map(int, edge)
        neighbours[first].append(second)
        neighbours[second].append(first)
    found = list(labels)
    for turn in range(1, n_rounds + 1):
        of_neighbours = [sorted(labels[other] for other in others) for others in neighbours]
        # A digest in place of the nested label, whose length would grow with every round.
        nested = [repr([own, *others]).encode() for own, others in zip(labels, of_neighbours)]
        labels = [f"{turn} {hashlib.sha256(text).hexdigest()[:24]}" for text in nested]
        found += labels
    return found


def check_strings(x: Any, z: Any) -> None:
    """Raises ValueError unless both points are strings over one alphabet."""
    check_points(x, z, Strings)


def _tokens(text: Any, i: int) -> list[str]:
    """The tokens of string i. Raises ValueError unless each is a string."""
    tokens = list(text) if hasattr(text, "__iter__") else None
    if tokens is None or not all(isinstance(token, str) for token in tokens):
        raise ValueError(f"texts[{i}] must be a string or a list of tokens, but is {text!r}")
    return list(map(str, tokens))  # strings of NumPy are not quite static
