"""What strings and trees share: points over an alphabet of tokens or labels, which must be the same in two of them."""

from typing import Any


def check_alphabet(alphabet: tuple) -> tuple[str, ...]:
    """The alphabet. Raises ValueError unless it holds strings, each once."""
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


def check_comparable(x: Any, z: Any, kind: type, name: str) -> None:
    """Raises ValueError unless both are of a kind of points, called `name`, which is that of its module, over one alphabet."""
    for point in (x, z):
        if not isinstance(point, kind):
            came = f"of shape {point.shape}" if hasattr(point, "shape") else f"a {type(point).__name__}"
            raise ValueError(
                f"this kernel compares {name}, but a point is {came}: encode them with kernax.{name}.encode, and pick the "
                f"{name} of mixed points with On(kernel, where)"
            )
    if x.alphabet != z.alphabet:
        raise ValueError(
            f"{name} over different alphabets cannot be compared: {shown(x.alphabet)} and {shown(z.alphabet)}. "
            f"Encode both with one: {name}.encode(Z, X.alphabet)"
        )


def shown(alphabet: tuple) -> str:
    """As much of an alphabet as fits into a message."""
    few = ", ".join(map(repr, alphabet[:8]))
    return f"({few}{', ...' if len(alphabet) > 8 else ''}) of {len(alphabet)}"
