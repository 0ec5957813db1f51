"""Which way to fit so many points: what it will hold, how long it takes, how exact it is."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from kernax.core.base.parameters import check_count
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import prepare
from kernax.core.operators.memory import available_memory
from kernax.scale.rates import Rates, measured_rates
from kernax.scale.routes import Problem, Route, routes_of, states_of

PATIENCE = 60.0  # seconds


class Recommendation(NamedTuple):
    """Routes: the recommended one first, then the others that any X can take, those that only some
    X can take, and those that are not possible.

    Attributes:
        routes: each a `Route`: its `name`, the `call` to make, what that `gives`, the bytes `held`,
            `seconds`, its `error` in words and as the number `relative`, why it is `impossible`,
            or None, and what must be `given` of X, or None.
        n, d, memory, accuracy: what was asked.
        rates: what this device does in a second.
    """

    routes: tuple[Route, ...]
    n: int
    d: int
    memory: int
    accuracy: float
    rates: Rates

    @property
    def best(self) -> Route:
        """The recommended route. Raises ValueError where none is possible for every X."""
        best = self.routes[0]
        if best.impossible or best.given:
            raise ValueError(f"no route is possible for every X:\n{self}")
        return best

    def __str__(self) -> str:
        head = (
            f"{self.n} points ({self.d},), {in_bytes(self.memory)} of memory, accuracy "
            f"{self.accuracy:g}; times without compilation, right within a factor of three or so, "
            "less so on a busy machine"
        )
        lines = [head]
        for place, route in enumerate(self.routes):
            lines += _lines_of(route, recommended=place == 0)
        return "\n".join(lines)

    __repr__ = __str__


def _lines_of(route: Route, *, recommended: bool) -> list[str]:
    """A route in words."""
    mark = "->" if recommended and not route.impossible and not route.given else "  "
    if route.impossible:
        return [f"{mark} {route.name}: not possible, {route.impossible}"]
    given = f", if {route.given}" if route.given else ""
    return [
        f"{mark} {route.name}{given}: {in_bytes(route.held)}, {in_time(route.seconds)}; "
        f"{route.error}",
        f"       {route.call}",
        f"       gives {route.gives}",
    ]


def in_bytes(size: int) -> str:
    """Bytes in words."""
    if size < 2**30:
        return f"{math.ceil(size / 2**20)} MiB"
    return f"{size / 2**30:.1f} GiB"


def in_time(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 99.5:
        return f"{seconds:.2g} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def recommend(
    kernel: AbstractKernel,
    n: int,
    d: int,
    *,
    memory: float | int | None = None,
    accuracy: float = 0.02,
    dtype: Any = None,
    rates: Rates | None = None,
) -> Recommendation:
    """Which way to fit n points (d,) by a kernel: the most exact route of those that take up to a
    minute, or where none does the fastest; then all others, and why some are not possible.

    Sizes and times are estimates, for one column of targets: sizes are the temporaries and results
    of compiled programs, times are operations divided by the rates of this device. Conjugate
    gradients are taken to need 30 steps and `SketchAndProject` 40 sweeps; the less the noise, the
    more they need. X and y are not known here: which error centres leave, measure on held-out rows.

    Arguments:
        kernel: any kernel of vectors, with parameters of about the right size.
        n, d: how many points, of how many columns.
        memory: bytes that may be held; default what is free on the device now.
        accuracy: which error is allowed, relative to the exact fit, in (0, 1). That of iterative
            solvers is eps^(2/3). Over m centres it is taken to be `1 / sqrt(m)`, which is a rate
            (Rudi, Camoriano & Rosasco 2015): smooth kernels of few columns need far fewer. In
            random features it is the standard error of kernel values.
        dtype: of the points, float32 or float64; default that of JAX's floats.
        rates: instead of those measured here, for the same answer on any machine.

    Returns:
        A `Recommendation`, which prints as a table. `best.call` is the code to run, with `kernax`,
        `kernel`, `X`, `y`, `noise` and `key`; other verbs take the same route: `kernel_ridge` where
        `condition` does, `falkon(..., loss=Logistic())` for classes.

    Raises ValueError for a kernel of points that are no vectors (d,), numbers that are not positive
    and finite, and another dtype.
    """
    n = check_count(n, "n")
    d = check_count(d, "d")
    dtype = jnp.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
    if dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"dtype must be float32 or float64, but is {dtype}")
    memory = _checked_memory(memory)
    if not 0 < accuracy < 1:
        raise ValueError(f"accuracy must be in (0, 1), but is {accuracy!r}")
    kernel, X = prepare(kernel, jnp.ones((1, d), dtype))
    eqx.filter_eval_shape(kernel, X[0], X[0])  # which refuses a kernel of other points
    if rates is None:
        rates = measured_rates(kernel, d, dtype, states_of(kernel, d))
    problem = Problem(kernel, n, d, dtype, math.ceil(accuracy**-2 * (1 - 1e-9)))
    routes = [_judged(route, memory, accuracy) for route in routes_of(problem, rates)]
    ordered = tuple(sorted(routes, key=_place))
    return Recommendation(ordered, n, d, memory, float(accuracy), rates)


def _checked_memory(memory: float | int | None) -> int:
    """Bytes: those given, or those free."""
    if memory is None:
        return available_memory(jax.devices()[:1])
    if not 0 < memory < math.inf:
        raise ValueError(f"memory must be a positive number of bytes, but is {memory!r}")
    return int(memory)


def _judged(route: Route, memory: int, accuracy: float) -> Route:
    """The route, or why it cannot be taken."""
    if route.impossible:
        return route
    if route.held > memory:
        why = f"it holds {in_bytes(route.held)}, more than {in_bytes(memory)}"
        return route._replace(impossible=why)
    if route.relative > accuracy * (1 + 1e-6):
        return route._replace(impossible=f"its relative error is {route.relative:.0e}")
    return route


def _place(route: Route) -> tuple:
    """Where a route stands in the order."""
    if route.impossible:
        return (3,)
    if route.given:
        return 2, route.seconds
    if route.seconds <= PATIENCE:
        # Errors that are no more than models of errors are alike where their first digits are.
        return 0, float(f"{route.relative:.0e}"), route.seconds
    return 1, route.seconds
