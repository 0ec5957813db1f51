"""Strings of tokens, letters or words, as points: encoded, padded, in stacks."""

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


class Strings(eqx.Module):
    """A stack of n strings, or one string (without the axis n), as `encode` makes them.

    Attributes:
        codes: (n, L), places of the tokens in the alphabet; anything where the weight is zero.
        weights: (n, L), 1 for a token, 0 for padding. They give the strings their precision, and are what a derivative "in
            the points" refers to: a match of two tokens counts as the product of their weights.
        alphabet: the tokens. Kernels refuse to compare strings over different ones.

    `X[i]`, with an index, a slice or an array of indices or booleans, picks strings, `len(X)` counts them.
    """

    codes: Int[Array, "*n L"]
    weights: Float[Array, "*n L"]
    alphabet: tuple[str, ...] = eqx.field(static=True)

    def __getitem__(self, index: Any) -> "Strings":
        return jax.tree.map(lambda leaf: leaf[index], self)

    def __len__(self) -> int:
        return len(self.codes)


def encode(
    texts: Iterable,
    alphabet: Sequence[str] | None = None,
    *,
    unknown: str = "refuse",
    length: int | None = None,
) -> Strings:
    """A stack of strings, padded to the longest of them. Padding never changes the value of a kernel, not in its last bit.

    Arguments:
        texts: n strings, whose tokens are their letters, or n sequences of tokens, such as `[text.split() for text in texts]`.
        alphabet: every token that may occur, in any order; by default all that do, sorted. Strings to be compared need the
            same one: `encode(new, X.alphabet)`.
        unknown: what becomes of other tokens: "refuse" them with an error, or leave a "gap", which takes its place in the
            string and matches nothing, not even another gap.
        length: the number of places, at least that of the longest string.

    Raises ValueError for anything else than strings, a token outside the alphabet, or a length too short.
    """
    rows = [_tokens(text, i) for i, text in enumerate(_sequence(texts))]
    alphabet = tuple(sorted({token for row in rows for token in row})) if alphabet is None else _checked(tuple(alphabet))
    if unknown not in ("refuse", "gap"):
        raise ValueError(f"unknown must be 'refuse' or 'gap', but is {unknown!r}")
    longest = max([1, *map(len, rows)])
    if length is not None and length < longest:
        raise ValueError(f"length must be at least {longest}, that of the longest string, but is {length}")
    shape = (len(rows), length or longest)
    codes, weights, place = np.zeros(shape, np.int32), np.zeros(shape), {token: i for i, token in enumerate(alphabet)}
    for i, row in enumerate(rows):
        found = np.array([place.get(token, -1) for token in row], int)
        if unknown == "refuse" and np.any(found < 0):
            first = int(np.argmax(found < 0))
            raise ValueError(
                f"texts[{i}] holds {row[first]!r} at place {first}, which is not in the alphabet {_shown(alphabet)}: "
                "leave it as a gap with unknown='gap', or encode everything with one larger alphabet"
            )
        codes[i, : len(row)], weights[i, : len(row)] = np.maximum(found, 0), found >= 0
    return Strings(jnp.asarray(codes), jnp.asarray(weights, jnp.result_type(float)), alphabet)


def check_strings(x: Any, z: Any) -> None:
    """Raises ValueError unless both points are strings over one alphabet."""
    for point in (x, z):
        if not isinstance(point, Strings):
            came = f"of shape {point.shape}" if hasattr(point, "shape") else f"a {type(point).__name__}"
            raise ValueError(
                f"this kernel compares strings, but a point is {came}: encode them with kernax.strings.encode, and pick the "
                "strings of mixed points with On(kernel, where)"
            )
    if x.alphabet != z.alphabet:
        raise ValueError(
            f"strings over different alphabets cannot be compared: {_shown(x.alphabet)} and {_shown(z.alphabet)}. "
            "Encode both with one: strings.encode(Z, X.alphabet)"
        )


def check_length(value: Any, name: str, least: int = 1) -> None:
    """Raises ValueError unless a number of tokens is a Python integer, and large enough."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer, at least {least}, but is {value!r}")


def _sequence(texts: Any) -> list[Any]:
    if isinstance(texts, str) or not hasattr(texts, "__iter__"):
        raise ValueError(f"texts must be a list of strings or of lists of tokens, but is {texts!r}")
    if not (texts := list(texts)):
        raise ValueError("texts must hold at least one string")
    return texts


def _tokens(text: Any, i: int) -> list[str]:
    tokens = list(text) if hasattr(text, "__iter__") else None
    if tokens is None or not all(isinstance(token, str) for token in tokens):
        raise ValueError(f"texts[{i}] must be a string or a list of tokens, but is {text!r}")
    return tokens


def _checked(alphabet: tuple[str, ...]) -> tuple[str, ...]:
    if not all(isinstance(token, str) for token in alphabet) or len(set(alphabet)) < len(alphabet):
        raise ValueError(f"alphabet must hold different strings, but is {_shown(alphabet)}")
    return alphabet


def _shown(alphabet: tuple[str, ...]) -> str:
    few = ", ".join(map(repr, alphabet[:8]))
    return f"({few}{', ...' if len(alphabet) > 8 else ''}) of {len(alphabet)}"
