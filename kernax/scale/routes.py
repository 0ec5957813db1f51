"""The ways to fit n points: what each computes, what it holds, how long it takes, how exact it is.

Times are operations divided by `Rates`, without compilation. Sizes are those of the compiled
programs: temporaries and results, of one column of targets.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from kernax.core.base.numerics import eps_of
from kernax.core.grid.grid_factor import Grid
from kernax.core.kernel.columns import factors_over_columns, groups_of_columns
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.spectra import spectrum
from kernax.core.kernel.spectral_densities import SpectralPart
from kernax.core.kernel.state_space import columns_of, state_space_of
from kernax.core.linalg.centres import wide
from kernax.core.linalg.preconditioners import default_rank
from kernax.core.linalg.sketch_and_project import default_block
from kernax.core.losses.losses import AbstractSmoothLoss, Squared
from kernax.core.operators.features import low_rank_gram
from kernax.core.operators.memory import matrices_of
from kernax.scale.centres.preconditioner import size_of_sample
from kernax.scale.centres.rows import rows_of_tile
from kernax.scale.rates import Rates

WHOLE = "whole matrix"
FEATURES = "explicit features"
LINE = "state space"
GRID = "grid"
PRODUCTS = "conjugate gradients"
BLOCKS = "sketch and project"
INDUCING = "inducing points"
CENTRES = "falkon"
RANDOM = "random features"

_SQUARED = Squared()
_HARMONICS = 16  # terms of a periodic kernel along a line
_PROCESS = "mean, variance, evidence"


class Problem(NamedTuple):
    """What is to be fitted: a kernel, n points (d,), their precision, over how many centres."""

    kernel: AbstractKernel
    n: int
    d: int
    dtype: Any
    centres: int

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return jnp.dtype(self.dtype).itemsize


class Route(NamedTuple):
    """One way to fit, or why there is none.

    Attributes:
        name: in words.
        call: the code to run.
        gives: what it computes: mean, variance, evidence.
        held: the most bytes at one time, beside X and y.
        seconds: of the call, without compilation.
        error: relative to the exact fit, in words.
        relative: the same as a number, which is compared with `accuracy`.
        impossible: why it cannot be taken; None where it can.
        given: what X must be for it, which n and d do not say; None where any X will do.
    """

    name: str
    call: str
    gives: str = ""
    held: int = 0
    seconds: float = math.nan
    error: str = ""
    relative: float = math.nan
    impossible: str | None = None
    given: str | None = None


def states_of(kernel: AbstractKernel, d: int) -> int:
    """How many states the model of a kernel has along a line of points (d,); 0 for none."""
    model = state_space_of(kernel, _HARMONICS)
    if model is None or not columns_of(kernel, d):
        return 0
    return eqx.filter_eval_shape(model.observation).shape[0]


def routes_of(problem: Problem, rates: Rates) -> tuple[Route, ...]:
    """All routes, in the order of their exactness."""
    makers = (_whole, _features, _line, _grid, _products, _blocks, _inducing, _centres, _random)
    return tuple(maker(problem, rates) for maker in makers)


def _condition(process: str, solver: str = "") -> str:
    """The call of `condition`."""
    given = f", solver=kernax.solvers.{solver}" if solver else ""
    return f"kernax.condition(kernax.GaussianProcess({process}), X, y, noise{given})"


def _whole(problem: Problem, rates: Rates) -> Route:
    n = problem.n
    held = matrices_of("condition", problem.dtype) * n**2 * problem.size
    seconds = n**3 / 3 / rates.factors + 2 * n**2 / rates.pairs
    call = _condition("kernel", "JitteredCholesky()")
    return _exact(problem, WHOLE, call, held, seconds)


def _exact(problem: Problem, name: str, call: str, held: float | int, seconds: float) -> Route:
    """A route that leaves rounding alone."""
    relative = float(eps_of(problem.dtype))
    return Route(name, call, _PROCESS, int(held), seconds, "exact to rounding", relative)


# Numbers held for each entry of n x D features, whose factor is a QR, and of n x m inducing points,
# by the bytes of a number.
_OF_FEATURES = {8: 7.0, 4: 5.8}
_OF_INDUCING = {8: 3.7, 4: 4.7}
# A QR of tall matrices reaches this part of the speed of products, twice as many operations.
_QR = 4.0


def _of_features(problem: Problem, rates: Rates, width: int) -> tuple[float, float]:
    """Bytes and seconds of a fit in so many features."""
    numbers = problem.n * width
    held = _OF_FEATURES[problem.size] * numbers * problem.size
    return held, 4 * _QR * numbers * width / rates.products + numbers / rates.pairs


def _features(problem: Problem, rates: Rates) -> Route:
    call = _condition("kernel")
    of_stack = low_rank_gram(problem.kernel)
    name = type(problem.kernel).__name__
    if of_stack is None:
        return _none(FEATURES, call, f"{name} has no explicit features that are known")
    points = jax.ShapeDtypeStruct((problem.n, problem.d), problem.dtype)
    width = eqx.filter_eval_shape(of_stack, points).features.shape[1]
    if width >= problem.n:
        return _none(FEATURES, call, f"{width} features are no fewer than {problem.n} points")
    return _exact(problem, FEATURES, call, *_of_features(problem, rates, width))


def _none(name: str, call: str, why: str) -> Route:
    """A route that does not exist."""
    return Route(name, call, impossible=why)


def _line(problem: Problem, rates: Rates) -> Route:
    call = _condition("kernel", "StateSpace()")
    states = states_of(problem.kernel, problem.d)
    if not states:
        return _none(LINE, call, _why_no_states(problem.kernel))
    held = (5 * states**2 + 10 * states + 20) * problem.n * problem.size
    # Forth and back, for the solution, the residual and the evidence.
    seconds = problem.n * (12 / rates.steps + 1e-6)
    return _exact(problem, LINE, call, held, seconds)


def _why_no_states(kernel: AbstractKernel) -> str:
    """Why there is no model along a line."""
    name = type(kernel).__name__
    if state_space_of(kernel, _HARMONICS) is None:
        return f"{name} has no state-space model"
    return f"{name} looks at more than one column"


def _grid(problem: Problem, rates: Rates) -> Route:
    call = _condition("kernel", "Grid()")
    if problem.d == 1:
        return _equal_steps(problem, rates, call)
    axes = len(groups_of_columns(problem.kernel, problem.d))
    if axes < 2:
        return _none(GRID, call, f"{type(problem.kernel).__name__} is no product over columns")
    n = problem.n
    side = math.ceil(n ** (1 / axes))
    held = (20 * n + 10 * axes * side**2) * problem.size
    seconds = axes * 10 * side**3 / rates.factors + 20 * axes * n * side / rates.products
    route = _exact(problem, GRID, call, held, seconds)
    return route._replace(given=f"the rows of X are a grid of {axes} axes")


# Fourier transforms that the predictor and the solution take together, and how much slower their
# operations are than those of products: evidence of 10^6 points takes 1.5 s on two cores.
_TRANSFORMS = 50
_OF_TRANSFORMS = 30.0


def _equal_steps(problem: Problem, rates: Rates, call: str) -> Route:
    """The grid of a single column, whose matrix is a Toeplitz matrix."""
    factors = factors_over_columns(problem.kernel, problem.d)
    if not all(factor.kernel.is_stationary for factor in factors):
        return _none(GRID, call, f"{type(problem.kernel).__name__} is not known to be stationary")
    n = problem.n
    held = (20 * n + 10 * min(n, Grid().order)) * problem.size
    length = 2 * n
    operations = _TRANSFORMS * 2.5 * length * math.log2(length)
    seconds = _OF_TRANSFORMS * operations / rates.products
    route = _exact(problem, GRID, call, held, seconds)
    return route._replace(given="X has equal steps along its column")


# Steps to a residual of eps^(2/3) that a preconditioner of 2 sqrt(n) columns leaves, for noise of a
# hundredth to a tenth of the variance: from some tens to some hundreds.
_STEPS = 30


def _products(problem: Problem, rates: Rates) -> Route:
    n = problem.n
    rank = default_rank(n)
    held = (4.4 * n * rank + 2**21) * problem.size
    # The factor twice, as the preconditioner orthogonalises it; two products with it a step.
    of_factor = 4 * n * rank**2 + 4 * _STEPS * n * rank
    seconds = _STEPS * n**2 / rates.pairs + of_factor / rates.products
    solver = "ConjugateGradient(preconditioner=kernax.solvers.PivotedCholesky(key))"
    gives = "mean, variances by a solve each; evidence with determinant=StochasticLanczos(key)"
    relative, words = _tolerance(problem)
    call = _condition("kernel", solver)
    words = f"{words}; standard error of the evidence in its stats"
    return Route(PRODUCTS, call, gives, int(held), seconds, words, relative)


def _tolerance(problem: Problem) -> tuple[float, str]:
    """That of iterative solvers."""
    relative = float(eps_of(problem.dtype) ** (2 / 3))
    return relative, f"relative residual of {relative:.0e}"


_SWEEPS = 40


def _blocks(problem: Problem, rates: Rates) -> Route:
    n = problem.n
    block = default_block(n)
    held = (4 * block**2 + 30 * n) * problem.size
    factors = n * block**2 / 3 / rates.factors
    seconds = _SWEEPS * (2 * n**2 / rates.pairs + factors)
    call = (
        "kernax.kernel_ridge(kernel, X, y, noise, solver=kernax.solvers.SketchAndProject(key), "
        'block_size="auto")'
    )
    relative, words = _tolerance(problem)
    return Route(BLOCKS, call, "mean", int(held), seconds, words, relative)


def _of_centres(problem: Problem, route: Route) -> Route:
    """A route over m centres with its error, or none where there are as many as points."""
    m = problem.centres
    if m >= problem.n:
        why = f"{m} centres are no fewer than {problem.n} points"
        return _none(route.name, route.call, why)
    words = f"that of {m} centres: about 1/sqrt(m) for rough kernels, far less for smooth ones"
    return route._replace(error=words, relative=1 / math.sqrt(m))


def _inducing(problem: Problem, rates: Rates) -> Route:
    m = problem.centres
    centres = f"kernax.choose_centres(kernel, X, {m}, key=key)"
    call = f"kernax.sgpr(kernax.GaussianProcess(kernel), X, y, noise, {centres})"
    gives = "mean, variance, a lower bound of the evidence"
    held = held_by_inducing_points(problem)
    seconds = seconds_of_inducing_points(problem, rates)
    return _of_centres(problem, Route(INDUCING, call, gives, held, seconds))


def held_by_inducing_points(problem: Problem) -> int:
    """Bytes of `sgpr` of m inducing points."""
    n = problem.n
    m = problem.centres
    return int((_OF_INDUCING[problem.size] * n * m + 8 * m**2) * problem.size)


def seconds_of_inducing_points(problem: Problem, rates: Rates) -> float:
    """Of `sgpr` of m inducing points."""
    n = problem.n
    m = problem.centres
    qr = 1 if problem.size == 8 else _QR
    return (7 + 2 * qr) * n * m**2 / rates.products + 2 * n * m / rates.pairs


def _centres(problem: Problem, rates: Rates) -> Route:
    call = f"kernax.falkon(kernel, X, y, noise, {problem.centres}, key=key)"
    held = held_over_centres(problem)
    seconds = seconds_over_centres(problem, rates, _SQUARED)
    return _of_centres(problem, Route(CENTRES, call, "mean", held, seconds))


def held_over_centres(problem: Problem) -> int:
    """Bytes of `falkon` over m centres."""
    n = problem.n
    m = problem.centres
    matrices = matrices_of("falkon", problem.dtype) * m**2 * jnp.dtype(wide(problem.dtype)).itemsize
    return int(matrices + (16 * n + 4 * rows_of_tile(m) * m) * problem.size)


# Of a fit over centres: products with K_nm beside the Hessians, and Hessians. Squares take one of
# each row, or products instead; other losses some Newton steps, each with a line search.
_PASSES = {(True, True): 5, (True, False): 15, (False, True): 30, (False, False): 60}
_HESSIANS = {True: 1, False: 8}
# What these operations take beside the rates at which they are measured alone.
_BESIDE_RATES = {True: 0.6, False: 1.0}


def seconds_over_centres(problem: Problem, rates: Rates, loss: AbstractSmoothLoss) -> float:
    """Of `falkon` over m centres."""
    n = problem.n
    m = problem.centres
    quadratic = isinstance(loss, Squared)
    sample = size_of_sample(n, m, quadratic, problem.dtype)
    hessians = _HESSIANS[quadratic]
    of_hessians = hessians * (2 * (sample or n) * m**2 / rates.products)
    of_factors = hessians * 4 * m**3 / rates.factors
    of_passes = _PASSES[quadratic, sample is None] * 2 * n * m / rates.pairs
    return _BESIDE_RATES[quadratic] * (of_hessians + of_passes + of_factors)


def _random(problem: Problem, rates: Rates) -> Route:
    name = type(problem.kernel).__name__
    call = _in_random_features(problem.centres, problem.d)
    try:
        parts = spectrum(problem.kernel, problem.d)
    except ValueError:
        return _none(RANDOM, call, f"{name} has no spectral density that is known")
    if not all(math.isfinite(part.weight) for part in parts):
        return _none(RANDOM, call, "a periodic term has more harmonics than are known")
    count, relative = _frequencies(parts, problem)
    call = _in_random_features(count, problem.d)
    if 2 * count >= problem.n:
        return _none(RANDOM, call, f"{2 * count} features are no fewer than {problem.n} points")
    held, seconds = _of_features(problem, rates, 2 * count)
    error = f"kernel values by {count} frequencies: a standard error of {relative:.1g} of k(x, x)"
    return Route(RANDOM, call, _PROCESS, int(held), seconds, error, relative)


def _in_random_features(count: int, d: int) -> str:
    """The call of a fit in so many random frequencies."""
    return _condition(f"kernax.random_fourier_features(kernel, {count}, {d}, key=key)")


def _frequencies(parts: Sequence[SpectralPart], problem: Problem) -> tuple[int, float]:
    """How many frequencies have a standard error of `k(x, x) / sqrt(m)`, and the error they have.

    `sqrt(T sum_t k_t(x, x)^2 / count)` for the T terms that are drawn, which share the frequencies;
    terms of a known frequency take one each, and have no error.
    """
    drawn = np.array([float(part.weight) for part in parts if not part.is_fixed])
    whole = sum(float(part.weight) for part in parts)
    fixed = len(parts) - len(drawn)
    variance = len(drawn) * np.sum(drawn**2) / whole**2 if whole else 0.0
    count = max(len(drawn), math.ceil(problem.centres * variance * (1 - 1e-9)))
    rounding = float(eps_of(problem.dtype))
    return fixed + count, max(rounding, math.sqrt(variance / max(count, 1)))
