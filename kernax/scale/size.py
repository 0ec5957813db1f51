"""How a table of some size is fitted: all of its points by one matrix, or over centres."""

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from kernax.core.base.boundary import count
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.losses.losses import AbstractSmoothLoss
from kernax.core.operators.memory import available_memory
from kernax.core.operators.structure import structure_for
from kernax.scale.rates import measured_rates
from kernax.scale.routes import (
    INDUCING,
    Problem,
    held_by_inducing_points,
    held_over_centres,
    seconds_of_inducing_points,
    seconds_over_centres,
)

# Learning the parameters of a Gaussian process of so many points takes a quarter of an hour and 5
# GiB in float64, and eight times as long for twice as many.
MOST_WHOLE = 10_000
MATRICES = 6  # of float64, in the gradient of the evidence
_CENTRES = 1000


def is_along_line(kernel: AbstractKernel, X: PyTree) -> bool:
    """Whether `condition` takes these points along a line of its own accord, in O(n)."""
    return structure_for(None, kernel, X, None) is not None


def is_for_whole(X: PyTree) -> bool:
    """Whether parameters can be learned from all points: not too many, and as many as fit into
    memory.
    """
    n = count(X)
    fits = 8 * MATRICES * n**2 <= available_memory(jax.devices()[:1])
    return n <= MOST_WHOLE and fits


def problem_of(kernel: AbstractKernel, n: int, d: int, centres: int) -> Problem:
    """A fit of n points (d,) over so many centres, in JAX's own precision."""
    return Problem(kernel, n, d, jnp.zeros(()).dtype, centres)


def centres_for(kernel: AbstractKernel, n: int, d: int, route: str) -> int:
    """How many of n points (d,) to take as centres: a thousand, but no more than half of the
    points, nor than fit into half of the memory.
    """
    half = available_memory(jax.devices()[:1]) // 2
    number = min(_CENTRES, n // 2)
    while number > 1 and held_over(problem_of(kernel, n, d, number), route) > half:
        number //= 2
    return number


def held_over(problem: Problem, route: str) -> int:
    """Bytes of a fit over centres by `INDUCING` or `CENTRES`."""
    return held_by_inducing_points(problem) if route == INDUCING else held_over_centres(problem)


def seconds_over(problem: Problem, route: str, loss: AbstractSmoothLoss) -> float:
    """How long a fit over centres takes on this device, by `INDUCING` or `CENTRES`."""
    rates = measured_rates(problem.kernel, problem.d, problem.dtype)
    if route == INDUCING:
        return seconds_of_inducing_points(problem, rates)
    return seconds_over_centres(problem, rates, loss)
