"""The common base of strings and trees: points over an alphabet of tokens or labels."""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.base.numerics import is_concrete

Encoded = TypeVar("Encoded", bound="AbstractEncoded")


class AbstractEncoded(eqx.Module):
    """A batch of n points over an alphabet, padded to one shape, or one point (without the axis n).

    `X[i]`, with an index, a slice, or a list or array of indices or booleans, selects points of a
    batch; `len(X)` is their number.
    """

    weights: eqx.AbstractVar[Float[Array, "*n L"]]
    alphabet: eqx.AbstractVar[tuple[str, ...]]

    padding: ClassVar[int] = 0  # the value that pads arrays of integers

    def __getitem__(self: Encoded, index: Any) -> Encoded:
        # For an index out of range JAX would return the last point, but NumPy raises.
        places = np.arange(len(self))[index] if is_concrete(index) else index
        return jax.tree.map(lambda leaf: leaf[places], self)

    def __len__(self) -> int:
        if self.weights.ndim < 2:
            raise ValueError(
                f"this is a single {_module(type(self))[:-1]}, not a batch: it has no "
                "length and cannot be indexed"
            )
        return len(self.weights)

    def __iter__(self: Encoded) -> Iterator[Encoded]:
        return (self[i] for i in range(len(self)))

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise ValueError(f"{_module(type(self))} cannot be converted to an array of numbers")

    def joined(self: Encoded, other: Encoded) -> Encoded:
        """Both batches, one after the other, padded to one shape."""
        self.check_alphabet_of(other)

        def both(a: Array, b: Array) -> Array:
            shape = np.maximum(a.shape[1:], b.shape[1:])
            fill = 0 if eqx.is_inexact_array(a) else self.padding
            alike = [_padded(a, shape, fill), _padded(b, shape, fill)]
            return jnp.concatenate(alike)

        return jax.tree.map(both, self, other)

    def check_alphabet_of(self, other: "AbstractEncoded") -> None:
        """Raises ValueError unless another batch or point is over the same alphabet."""
        if self.alphabet != other.alphabet:
            name = _module(type(self))
            raise ValueError(
                f"{name} over different alphabets cannot be compared: {shown(self.alphabet)} and "
                f"{shown(other.alphabet)}. "
                f"Encode both with one: {name}.encode(Z, X.alphabet)"
            )


def _padded(leaf: Array, shape: np.ndarray, fill: int) -> Array:
    """A batch (n, ...) padded to `shape` behind its leading axis."""
    widths = [(0, 0), *((0, missing) for missing in shape - leaf.shape[1:])]
    return jnp.pad(leaf, widths, constant_values=fill)


def check_points(x: Any, z: Any, kind: type[AbstractEncoded]) -> None:
    """Raises ValueError unless both are single points of a kind, over one alphabet."""
    for point in (x, z):
        if not isinstance(point, kind):
            name = _module(kind)
            if hasattr(point, "shape"):
                came = f"numbers, of shape {point.shape}: use a kernel of vectors, such as RBF"
            else:
                came = f"a {type(point).__name__}: encode it with kernax.{name}.encode"
            raise ValueError(
                f"this kernel compares {name}, but a point is {came}, or select the {name} of "
                "mixed points with On(kernel, where)"
            )
        if point.weights.ndim != 1:
            came = "part of one: select batches as X[:1], not X[0]"
            if point.weights.ndim:
                came = f"a batch of {len(point)}: use gram"
            raise ValueError(f"this kernel compares two {_module(kind)}, but a point is {came}")
    x.check_alphabet_of(z)


def _module(kind: type[AbstractEncoded]) -> str:
    """The module of a kind of points, also its name in messages: strings or trees."""
    return kind.__name__.lower()


def check_alphabet(alphabet: Any) -> tuple[str, ...]:
    """The alphabet. Raises ValueError unless it holds strings, each once."""
    if not isinstance(alphabet, Iterable):
        raise ValueError(f"alphabet must hold different strings, but is {alphabet!r}")
    alphabet = tuple(alphabet)
    if not all(isinstance(token, str) for token in alphabet) or len(set(alphabet)) < len(alphabet):
        raise ValueError(f"alphabet must hold different strings, but is {shown(alphabet)}")
    return tuple(map(str, alphabet))  # NumPy's strings become Python's, for a static field


def check_unknown(unknown: str) -> None:
    """Raises ValueError unless the option is one of those for tokens outside the alphabet."""
    if unknown not in ("refuse", "gap"):
        raise ValueError(f"unknown must be 'refuse' or 'gap', but is {unknown!r}")


def not_in_alphabet(what: str, alphabet: tuple[str, ...]) -> ValueError:
    """The error for a token outside the alphabet."""
    return ValueError(
        f"{what}, which is not in the alphabet {shown(alphabet)}: "
        "leave it as a gap with unknown='gap', or encode everything with one larger alphabet"
    )


def shown(alphabet: tuple) -> str:
    """As much of an alphabet as fits into a message."""
    few = ", ".join(map(repr, alphabet[:8]))
    return f"({few}{', ...' if len(alphabet) > 8 else ''}) of {len(alphabet)}"
