"""Recommends a method to fit many points: a table of rules, and an estimate of memory."""

import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from kernax.core.base.numerics import eps_of
from kernax.core.base.parameters import check_count
from kernax.core.grid.grid_factor import Grid
from kernax.core.kernel.kernel import AbstractKernel, groups_of_columns
from kernax.core.kernel.preparation import prepare
from kernax.core.kernel.spectra import SpectralPart
from kernax.core.linalg.centre_factor import wide
from kernax.core.linalg.preconditioners import default_rank
from kernax.core.linalg.sketch_and_project import default_block
from kernax.core.operators.feature_map import low_rank_gram
from kernax.core.operators.memory import available_memory
from kernax.scale.centres.row_sums import rows_of_tile
from kernax.scale.centres.span import FALKON

LINE = "state space"
FEATURES = "explicit features"
GRID = "grid"
INDUCING = "inducing points"
CENTRES = "falkon"
RANDOM = "random features"
PRODUCTS = "conjugate gradients"
BLOCKS = "sketch and project"
WHOLE = "whole matrix"


def _condition(process: str, solver: str = "") -> str:
    given = f", solver=kernax.solvers.{solver}" if solver else ""
    return f"kernax.condition(kernax.GaussianProcess({process}), X, y, noise{given})"


_PROCESS = "mean, variance, evidence"
_BY_PRODUCTS = "ConjugateGradient(preconditioner=kernax.solvers.PivotedCholesky(key))"
_ANY = sys.maxsize


class _Rule(NamedTuple):
    """A method: its call, its result, how its work grows, and up to how many points it is
    recommended, on a CPU and on an accelerator.
    """

    call: str
    gives: str
    operations: str
    on_cpu: int = _ANY
    on_accelerator: int = _ANY


# In the order of the work for many points. `size` is the number of centres, or of frequencies. The
# limits are where a fit takes about a minute: on two cores n = 10000 takes 5 s with the whole
# matrix and 12 s by conjugate gradients, n = 100000 takes 16 s in 800 random features, and n =
# 1000000 over 400 centres takes 19 s, and 14 s and 10 GiB by inducing points
# (`benchmarks.many_points`). On an H200 a ridge of n = 20000 takes 0.1 s, a product with K of n =
# 1000000 1.7 s, and 5000 centres of as many points 1.7 s.
_RULES = {
    LINE: _Rule(_condition("kernel", "StateSpace()"), _PROCESS, "O(n) operations"),
    FEATURES: _Rule(_condition("kernel"), _PROCESS, "O(n D^2) operations"),
    GRID: _Rule(
        _condition("kernel", "Grid()"),
        _PROCESS,
        "O(n log n) operations at regular times, O(n s) on a grid of sides s",
    ),
    INDUCING: _Rule(
        "kernax.sgpr(kernax.GaussianProcess(kernel), X, y, noise, "
        "kernax.choose_centres(kernel, X, {size}, key=key))",
        "mean, variance, a lower bound of the evidence",
        "O(n m^2) operations",
        100_000,
        1_000_000,
    ),
    CENTRES: _Rule(
        "kernax.falkon(kernel, X, y, noise, {size}, key=key)", "mean", "O(n m) operations"
    ),
    RANDOM: _Rule(
        _condition("kernax.random_fourier_features(kernel, {size}, {d}, key=key)"),
        _PROCESS,
        "O(n D^2) operations",
        100_000,
        1_000_000,
    ),
    PRODUCTS: _Rule(
        _condition("kernel", _BY_PRODUCTS),
        "mean, variances by a solve each; evidence with determinant=StochasticLanczos(key)",
        "O(n^2) operations a step",
        20_000,
        100_000,
    ),
    BLOCKS: _Rule(
        "kernax.kernel_ridge(kernel, X, y, noise, solver=kernax.solvers.SketchAndProject(key), "
        'block_size="auto")',
        "mean",
        "O(n^2) operations a sweep",
        10_000,
        50_000,
    ),
    WHOLE: _Rule(_condition("kernel", "JitteredCholesky()"), _PROCESS, "O(n^3) operations", 20_000),
}


class Route(NamedTuple):
    """One method of fitting, or the reason why it is not possible.

    Attributes:
        name: the name of the method.
        call: the code to run.
        gives: what it computes: mean, variance, evidence.
        held: the peak memory in bytes, in addition to X and y.
        operations: how its work grows with n, the features D, the centres m.
        error: the error relative to the exact fit, in words.
        relative: the same as a number, which is compared with `accuracy`.
        slow: why it takes more than about a minute for so many points; None if it does not.
        impossible: why it is not possible; None if it is.
        given: what the method requires of X beyond n and d; None if any X will do.

    Examples:
        >>> recommendation = kernax.recommend(kernax.RBF(1.0), n=1000, d=3, memory=4e9)
        >>> recommendation.best.name
        'whole matrix'
    """

    name: str
    call: str
    gives: str = ""
    held: int = 0
    operations: str = ""
    error: str = ""
    relative: float = math.nan
    slow: str | None = None
    impossible: str | None = None
    given: str | None = None


class Recommendation(NamedTuple):
    """Methods to fit so many points: the recommended one first, then the others that any X allows,
    those that only some X allow, and those that are not possible.

    Attributes:
        routes: the methods, each a `Route` with its `name`, the `call` to make, what that `gives`,
            the bytes `held`, how its `operations` grow, its `error` in words and as the number
            `relative`, why it is `slow` or `impossible`, or None, and what must be `given` of X, or
            None.
        n, d, memory, accuracy: the arguments of `recommend`.

    Examples:
        >>> recommendation = kernax.recommend(kernax.RBF(1.0), n=1000, d=3, memory=4e9)
        >>> recommendation.best is recommendation.routes[0]
        True
    """

    routes: tuple[Route, ...]
    n: int
    d: int
    memory: int
    accuracy: float

    @property
    def best(self) -> Route:
        """The recommended method. Raises ValueError if none is possible for every X."""
        best = self.routes[0]
        if best.impossible or best.given:
            raise ValueError(f"no method is possible for every X:\n{self}")
        return best

    def __str__(self) -> str:
        head = (
            f"{self.n} points ({self.d},), {in_bytes(self.memory)} of memory, accuracy "
            f"{self.accuracy:g}"
        )
        lines = [head]
        for place, route in enumerate(self.routes):
            mark = "->" if place == 0 and not route.impossible and not route.given else "  "
            if route.impossible:
                lines.append(f"{mark} {route.name}: not possible, {route.impossible}")
                continue
            given = f", if {route.given}" if route.given else ""
            slow = f", slow {route.slow}" if route.slow else ""
            lines += [
                f"{mark} {route.name}{given}: {in_bytes(route.held)}, {route.operations}"
                f"{slow}; {route.error}",
                f"       {route.call}",
                f"       gives {route.gives}",
            ]
        return "\n".join(lines)

    __repr__ = __str__


def in_bytes(size: int) -> str:
    """Bytes in words."""
    if size < 2**30:
        return f"{math.ceil(size / 2**20)} MiB"
    return f"{size / 2**30:.1f} GiB"


def recommend(
    kernel: AbstractKernel,
    n: int,
    d: int,
    *,
    memory: float | int | None = None,
    accuracy: float = 0.02,
    dtype: Any = None,
) -> Recommendation:
    """Recommends a method to fit n points (d,): the most exact method that is not slow for so many
    points, or else the one with the least work. It lists all others, and why some are not possible.

    The rules are a table of the numbers of points up to which a fit takes about a minute, on two
    cores of a CPU or on one accelerator, whichever JAX uses. Memory is an estimate for one column
    of targets: the temporaries and results of compiled programs. The estimates do not depend on X
    and y: measure the error of centres on held-out rows.

    Arguments:
        kernel: any kernel of vectors, with parameters of about the right size.
        n, d: the number of points, and of their columns.
        memory: the bytes available; by default those that are free on the device now.
        accuracy: the error that is allowed, relative to the exact fit, in (0, 1). The error of
            iterative solvers is eps^(2/3). For m centres it is assumed to be `1 / sqrt(m)`, which
            is a rate (Rudi, Camoriano & Rosasco 2015): smooth kernels of few columns need far
            fewer. For random features it is the standard error of kernel values.
        dtype: the dtype of the points, float32 or float64; by default that of JAX's floats.

    Returns:
        A `Recommendation`, which prints as a table. `best.call` is the code to run, with `kernax`,
        `kernel`, `X`, `y`, `noise` and `key`. The same method serves other functions:
        `kernel_ridge` in place of `condition`, `falkon(..., loss=Logistic())` for classes.

    Raises ValueError for a kernel of points that are not vectors (d,), numbers that are not
    positive and finite, and another dtype.

    Examples:
        >>> recommendation = kernax.recommend(kernax.RBF(1.0), n=1000, d=3, memory=4e9)
        >>> recommendation.best.call.split("(")[0]  # its full text is a line to run
        'kernax.condition'
    """
    n = check_count(n, "n")
    d = check_count(d, "d")
    dtype = jnp.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
    if dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"dtype must be float32 or float64, but is {dtype}")
    if memory is None:
        memory = available_memory(jax.devices()[:1])
    elif not 0 < memory < math.inf:
        raise ValueError(f"memory must be a positive number of bytes, but is {memory!r}")
    if not 0 < accuracy < 1:
        raise ValueError(f"accuracy must be in (0, 1), but is {accuracy!r}")
    kernel, X = prepare(kernel, jnp.ones((1, d), dtype))
    eqx.filter_eval_shape(kernel, X[0], X[0])  # raises ValueError for a kernel of other points
    centres = math.ceil(accuracy**-2 * (1 - 1e-9))
    problem = FitProblem(kernel, n, d, dtype, centres)

    def position(route: Route) -> tuple:
        if route.impossible:
            return (3,)
        if route.given:
            return (2,)
        # Errors are only estimates: equal first digits count as equal.
        return (1,) if route.slow else (0, float(f"{route.relative:.0e}"))

    # Ties are in the order of the work, which is that of the table.
    routes = (_route(problem, name, int(memory), accuracy) for name in _RULES)
    ordered = tuple(sorted(routes, key=position))
    return Recommendation(ordered, n, d, int(memory), float(accuracy))


class FitProblem(NamedTuple):
    """The problem to fit: a kernel, n points (d,), their precision, and the number of centres."""

    kernel: AbstractKernel
    n: int
    d: int
    dtype: Any
    centres: int


def _route(problem: FitProblem, name: str, memory: int, accuracy: float) -> Route:
    """A method of the table for a problem: its error and its memory, or why it is impossible."""
    kernel, n, d, dtype, m = problem
    rule = _RULES[name]
    of_kernel = type(kernel).__name__
    most = rule.on_cpu if jax.default_backend() == "cpu" else rule.on_accelerator
    size = 0  # of states, features, axes, centres or frequencies
    error = "exact to rounding"
    relative = float(eps_of(dtype))
    slow = None if n <= most else f"beyond some {most} points"
    impossible = given = None
    if name == LINE:
        model = kernel.state_space(_HARMONICS)
        if model is None:
            impossible = f"{of_kernel} has no state-space model"
        elif not kernel.sufficient_columns(d):
            impossible = f"{of_kernel} uses more than one column"
        else:
            size = eqx.filter_eval_shape(model.observation).shape[0]
    elif name == FEATURES:
        of_points = low_rank_gram(kernel)
        if of_points is None:
            impossible = f"{of_kernel} has no known explicit features"
        else:
            points = jax.ShapeDtypeStruct((n, d), dtype)
            size = eqx.filter_eval_shape(of_points, points).features.shape[1]
            if size >= n:
                impossible = f"its {size} features are not fewer than the {n} points"
            elif 4 * size > n:  # a QR of n x D numbers, four times, next to n^3 / 3
                slow = "if there are many features"
    elif name == GRID:
        if d == 1:
            size = 1
            given = "X has equal steps along its column"
            factors = kernel.factors_over_columns(d)
            if not all(factor.kernel.is_stationary for factor in factors):
                impossible = f"{of_kernel} is not known to be stationary"
        else:
            size = len(groups_of_columns(kernel, d))
            given = f"the rows of X are a grid of {size} axes"
            if size < 2:
                impossible = f"{of_kernel} is not a product over columns"
    elif name in (INDUCING, CENTRES):
        size = m
        error = f"that of {m} centres: about 1/sqrt(m) for rough kernels, far less for smooth ones"
        relative = 1 / math.sqrt(m)
        if m >= n:
            impossible = f"{m} centres are not fewer than the {n} points"
    elif name == RANDOM:
        size, relative, impossible = _frequencies(problem)
        error = (
            f"kernel values by {size} frequencies: a standard error of {relative:.1g} of k(x, x)"
        )
    elif name in (PRODUCTS, BLOCKS):
        relative = relative ** (2 / 3)
        error = f"relative residual of {relative:.0e}"
        if name == PRODUCTS:
            error += "; standard error of the evidence in its stats"
    call = rule.call.format(size=size, d=d)
    if impossible:
        return Route(name, call, impossible=impossible)
    peak = peak_memory(name, n, size, dtype)
    # A method that does not fit keeps its figures.
    if peak > memory:
        impossible = f"it holds {in_bytes(peak)}, more than {in_bytes(memory)}"
    elif relative > accuracy * (1 + 1e-6):
        impossible = f"its relative error is {relative:.0e}"
    return Route(
        name,
        call,
        gives=rule.gives,
        held=peak,
        operations=rule.operations,
        error=error,
        relative=relative,
        slow=slow,
        impossible=impossible,
        given=given,
    )


_HARMONICS = 16  # terms of a periodic kernel along a line


def _frequencies(problem: FitProblem) -> tuple[int, float, str | None]:
    """How many random frequencies are needed, the standard error of the kernel with that many, and
    the reason if there are none.

    The number is the one that has a standard error of `k(x, x) / sqrt(m)`. The error is `sqrt(T
    sum_t k_t(x, x)^2 / count)` for the T terms that are drawn, which share the frequencies; terms
    of a known frequency take one each, and have no error.
    """
    m = problem.centres
    try:
        parts: Sequence[SpectralPart] = problem.kernel.spectral_parts(problem.d)
    except ValueError:
        name = type(problem.kernel).__name__
        return m, math.nan, f"{name} has no known spectral density"
    if not all(math.isfinite(part.weight) for part in parts):
        return m, math.nan, "a periodic term has more harmonics than are known"
    drawn = np.array([float(part.weight) for part in parts if not part.is_fixed])
    whole = sum(float(part.weight) for part in parts)
    fixed = len(parts) - len(drawn)
    variance = len(drawn) * np.sum(drawn**2) / whole**2 if whole else 0.0
    count = max(len(drawn), math.ceil(m * variance * (1 - 1e-9)))
    relative = max(float(eps_of(problem.dtype)), math.sqrt(variance / max(count, 1)))
    number = fixed + count
    if 2 * number >= problem.n:
        why = f"{2 * number} features are not fewer than the {problem.n} points"
        return number, relative, why
    return number, relative, None


def peak_memory(name: str, n: int, size: int, dtype: Any) -> int:
    """The peak memory in bytes of a fit of n points, in addition to X and y: the temporaries and
    results of compiled programs, for one column of targets.

    Arguments:
        size: how many states (`LINE`), features (`FEATURES`), axes (`GRID`), centres (`INDUCING`,
            `CENTRES`) or frequencies (`RANDOM`).
    """
    itemsize = jnp.dtype(dtype).itemsize
    is_double = itemsize == 8
    if name == CENTRES:
        # The m x m matrices are in float64 whatever the points are.
        squares = FALKON.matrices_in(dtype) * size**2 * jnp.dtype(wide(dtype)).itemsize
        return int(squares + (16 * n + 4 * rows_of_tile(size) * size) * itemsize)
    if name == GRID:
        # Regular times hold the predictor of some order, a grid the factor of each axis.
        order = min(n, Grid().order)
        of_axes = order if size == 1 else size * math.ceil(n ** (1 / size)) ** 2
        return int((20 * n + 10 * of_axes) * itemsize)
    numbers = {
        LINE: (5 * size**2 + 10 * size + 20) * n,
        # A QR of n x D numbers, which takes a cosine and a sine for each frequency.
        FEATURES: (7.0 if is_double else 5.8) * n * size,
        RANDOM: (7.0 if is_double else 5.8) * n * 2 * size,
        INDUCING: (3.7 if is_double else 4.7) * n * size + 8 * size**2,
        PRODUCTS: 4.4 * n * default_rank(n) + 2**21,
        BLOCKS: 4 * default_block(n) ** 2 + 30 * n,
        WHOLE: 4.5 * n**2,  # what `condition` holds
    }
    return int(numbers[name] * itemsize)
