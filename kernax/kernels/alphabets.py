"""What strings and trees share: points over an alphabet of tokens or labels, which must be the same in two of them."""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.numerics import is_concrete

Encoded = TypeVar("Encoded", bound="AbstractEncoded")


class AbstractEncoded(eqx.Module):
    """A stack of n points over an alphabet, padded to one shape, or one such point (without the axis n).

    `X[i]`, with an index, a slice, or a list or array of indices or booleans, picks points of a stack; `len(X)` counts them.
    """

    weights: eqx.AbstractVar[Float[Array, "*n L"]]
    alphabet: eqx.AbstractVar[tuple[str, ...]]

    padding: ClassVar[int] = 0  # what fills up integers

    def __getitem__(self: Encoded, index: Any) -> Encoded:
        places = np.arange(len(self))[index] if is_concrete(index) else index  # JAX takes the last for one out of range
        return jax.tree.map(lambda leaf: leaf[places], self)

    def __len__(self) -> int:
        if self.weights.ndim < 2:
            raise ValueError(f"this is a single {_module(type(self))[:-1]}, not a stack: there is nothing to count or to pick")
        return len(self.weights)

    def __iter__(self: Encoded) -> Iterator[Encoded]:
        return (self[i] for i in range(len(self)))

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise ValueError(f"{_module(type(self))} are no array of numbers, nor part of one")

    def joined(self: Encoded, other: Encoded) -> Encoded:
        """Both stacks, one after the other, padded to one shape."""
        self.check_alphabet_of(other)

        def both(a: Array, b: Array) -> Array:
            shape = np.maximum(a.shape[1:], b.shape[1:])
            fill = 0 if eqx.is_inexact_array(a) else self.padding
            wide = lambda leaf: jnp.pad(leaf, [(0, 0), *((0, n) for n in shape - leaf.shape[1:])], constant_values=fill)
            return jnp.concatenate([wide(a), wide(b)])

        return jax.tree.map(both, self, other)

    def check_alphabet_of(self, other: "AbstractEncoded") -> None:
        """Raises ValueError unless another stack or point is over the same alphabet."""
        if self.alphabet != other.alphabet:
            name = _module(type(self))
            raise ValueError(
                f"{name} over different alphabets cannot be compared: {shown(self.alphabet)} and {shown(other.alphabet)}. "
                f"Encode both with one: {name}.encode(Z, X.alphabet)"
            )


def check_points(x: Any, z: Any, kind: type[AbstractEncoded]) -> None:
    """Raises ValueError unless both are single points of a kind, over one alphabet."""
    name = _module(kind)
    for point in (x, z):
        if not isinstance(point, kind):
            numeric = hasattr(point, "shape")
            came = f"numbers, of shape {point.shape}" if numeric else f"a {type(point).__name__}"
            advice = "take a kernel of vectors, such as RBF" if numeric else f"encode it with kernax.{name}.encode"
            raise ValueError(
                f"this kernel compares {name}, but a point is {came}: {advice}, or pick the {name} of mixed points with "
                "On(kernel, where)"
            )
        if point.weights.ndim != 1:
            came = f"a stack of {len(point)}: see gram" if point.weights.ndim else "part of one: pick stacks as X[:1], not X[0]"
            raise ValueError(f"this kernel compares two {name}, but a point is {came}")
    x.check_alphabet_of(z)


def _module(kind: type[AbstractEncoded]) -> str:
    return kind.__name__.lower()  # strings.Strings, trees.Trees


def check_alphabet(alphabet: Any) -> tuple[str, ...]:
    """The alphabet. Raises ValueError unless it holds strings, each once."""
    if not isinstance(alphabet, Iterable):
        raise ValueError(f"alphabet must hold different strings, but is {alphabet!r}")
    alphabet = tuple(alphabet)
    if not all(isinstance(token, str) for token in alphabet) or len(set(alphabet)) < len(alphabet):
        raise ValueError(f"alphabet must hold different strings, but is {shown(alphabet)}")
    return tuple(map(str, alphabet))  # no strings of NumPy, which are not quite static


def check_unknown(unknown: str) -> None:
    """Raises ValueError unless it says what becomes of a token outside the alphabet."""
    if unknown not in ("refuse", "gap"):
        raise ValueError(f"unknown must be 'refuse' or 'gap', but is {unknown!r}")


def not_in_alphabet(what: str, alphabet: tuple[str, ...]) -> ValueError:
    """The error for a token that is refused."""
    return ValueError(
        f"{what}, which is not in the alphabet {shown(alphabet)}: "
        "leave it as a gap with unknown='gap', or encode everything with one larger alphabet"
    )


def shown(alphabet: tuple) -> str:
    """As much of an alphabet as fits into a message."""
    few = ", ".join(map(repr, alphabet[:8]))
    return f"({few}{', ...' if len(alphabet) > 8 else ''}) of {len(alphabet)}"
