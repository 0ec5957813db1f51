"""How a table of some size is fitted: all of its points by one matrix, or over centres."""

import jax
from jaxtyping import PyTree

from kernax.core.boundary import count
from kernax.core.kernel import AbstractKernel
from kernax.core.memory import available_memory
from kernax.core.structure import structure_for
from kernax.scale.recommend import recommend
from kernax.scale.routes import CENTRES, INDUCING, Route

# Learning the parameters of a Gaussian process of so many points takes a quarter of an hour and 5
# GiB in float64, and eight times as long for twice as many.
MOST_WHOLE = 10_000
_MATRICES = 6  # of float64, in the gradient of the evidence
_CENTRES = 1000


def is_along_line(kernel: AbstractKernel, X: PyTree) -> bool:
    """Whether `condition` takes these points along a line of its own accord, in O(n)."""
    return structure_for(None, kernel, X, None) is not None


def is_for_whole(X: PyTree, most: int) -> bool:
    """Whether parameters can be learned from all points: `most` of them, and as many as fit into
    memory.
    """
    n = count(X)
    fits = 8 * _MATRICES * n**2 <= available_memory(jax.devices()[:1])
    return n <= most and fits


def centres_for(n: int, route: str) -> int:
    """How many of n points to take as centres: a thousand, or what fits into half of the memory."""
    half = available_memory(jax.devices()[:1]) // 2
    number = min(_CENTRES, n // 2)
    while number > 1 and _held(n, number, route) > half:
        number //= 2
    return number


def _held(n: int, number: int, route: str) -> int:
    """Bytes of a fit over so many centres: all that a route over inducing points grows with."""
    return 30 * n * number if route == INDUCING else 60 * number**2


def expected(kernel: AbstractKernel, n: int, d: int, number: int, route: str) -> Route:
    """What a fit over so many centres holds, and how long it takes."""
    assert route in (INDUCING, CENTRES)
    found = recommend(kernel, n, d, memory=2**62, accuracy=number**-0.5)
    return next(of for of in found.routes if of.name == route)
