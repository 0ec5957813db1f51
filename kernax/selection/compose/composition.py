"""Greedy search for a kernel: sums and products of named kernels, chosen by their evidence."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from kernax.core.base.annotations import ArrayLike, ParameterArray
from kernax.core.base.boundary import as_stack, as_targets, check_key
from kernax.core.base.deprecation import renamed
from kernax.core.base.parameters import check_count, positive, real
from kernax.core.base.printing import Printed
from kernax.core.base.solution import RESULTS, Solution, finish
from kernax.core.base.threads import linear_algebra_threads
from kernax.core.kernel.kernel import AbstractKernel, Constant, Product, Sum
from kernax.kernels import RBF, On, RationalQuadratic, ShiftedLinear, ZeroMeanPeriodic
from kernax.selection.compose.base_kernels import BASES, BY_KIND, BY_WORD
from kernax.selection.compose.composition_rounds import CompositionSearch, Fit, Round, polished
from kernax.selection.compose.grammar import Factor, Grammar, Structure, written
from kernax.selection.compose.sentences import Component, DataUnits, components_of
from kernax.selection.compose.sum_of_products import CompositionModel, Values, model_of, scored

_OF_ONE_COLUMN = (RBF, ZeroMeanPeriodic, ShiftedLinear, RationalQuadratic)
_OF_SEVERAL = (RBF, ShiftedLinear)
_LEAST_ROWS = 10
_ROOM = 1e3  # between deviations and the roots of the smallest and of the largest float
_SPREAD = 1e-12  # of a column, relative to its size: below it a column is constant


class Composition(Printed):
    """The result of a compositional search: a kernel that is a sum of products, the noise, and the
    mean of the targets.

    `condition(GaussianProcess(c.kernel, c.mean), X, y, c.noise)` is the process, in the units of
    the data. `print` shows the rounds and the components.

    Attributes:
        components: for each term of the kernel, in its order, and for the noise, a description in
            words and the variance of its part of the posterior mean as a share of that of the
            targets. Parts are correlated, so that shares need not add up to one.
        rounds: the best candidate of each round.
    """

    kernel: AbstractKernel
    noise: Float[ParameterArray, ""] = positive()
    mean: Float[ParameterArray, ""] = real()
    components: tuple[Component, ...] = eqx.field(static=True, default=())
    rounds: tuple[Round, ...] = eqx.field(static=True, default=())

    def __str__(self) -> str:
        return "\n".join([*table_of(self.rounds), *self.sentences()])

    def sentences(self) -> list[str]:
        """One sentence for each component, the largest share first and the noise last; empty if no
        kernel has a score.
        """
        if not self.components:
            return []
        *terms, noise = self.components
        ranked = sorted(terms, key=lambda component: -component.share)
        return [str(component) for component in (*ranked, noise)]


def table_of(rounds: Sequence[Round]) -> list[str]:
    """The rounds as lines of text, with the best candidate of each."""
    lines = [f"{'BIC':>10}  {'fitted':>6}  {'failed':>6}  best candidate"]
    for row in rounds:
        verdict = "" if row.kept else "  (no better: the search ends)"
        counts = f"{row.candidates:>6}  {row.failed:>6}"
        lines.append(f"{row.criterion:>10.1f}  {counts}  {row.kernel}{verdict}")
    return lines


@renamed(starts="n_starts", steps="n_steps")
def compositional_search(
    X: ArrayLike,
    y: ArrayLike,
    *,
    key: Key[Array, ""],
    bases: Sequence[type[AbstractKernel]] | None = None,
    depth: int = 8,
    beam: int = 2,
    n_starts: int = 4,
    n_steps: int = 40,
    max_terms: int = 5,
    max_factors: int = 3,
    max_rows: int = 300,
    names: Sequence[str] | None = None,
    progress: bool = False,
    throw: bool = True,
) -> Solution[Composition]:
    """Greedy search for the sum of products of kernels with the lowest BIC, `-2 log evidence + k
    log n`.

    It starts from a constant and noise. Each round fits every structure that is one step away from
    the best one so far: a base kernel is added, a term is multiplied by one, one is replaced by
    another, or a term or factor is left out (Duvenaud et al., "Structure discovery in nonparametric
    regression through compositional kernel search", 2013; Lloyd et al. 2014). It ends when a round
    lowers the BIC by less than 2. The BIC charges `log n` for each of k parameters, because the
    evidence at the best parameters grows with every parameter. Sums are multiplied out, and a step
    multiplies a single term.

    Every candidate starts from the parameters of its parent; the parameters of a new kernel are
    drawn: lengthscales between the spacing and the range of a column, periods mostly from peaks of
    the periodogram of the parent's residuals. Periodic components have mean zero, as in Lloyd et
    al., so that a trend cannot hide in the constant of a `Periodic`.

    All candidates run in one program, in which the structure is data, by L-BFGS under weak priors,
    with columns and targets standardised internally. A candidate whose covariance has no Cholesky
    factor without jitter, or whose loss is not finite, has no score and is never chosen.

    Arguments:
        X, y: points (n, d), or (n,) in one dimension, and targets (n,).
        key: a random key, for the starts and the rows.
        bases: kernel classes among RBF, ZeroMeanPeriodic, ShiftedLinear, RationalQuadratic and
            Matern52, each on each column by `On`. None is the first four for one column, and RBF
            and ShiftedLinear for several.
        depth: the largest number of rounds.
        beam: how many structures a round expands. With 1 the search is purely greedy, and may end
            in a worse kernel if the best structure of an early round leads nowhere.
        n_starts: the number of starts of each candidate. After a few steps the best start of the
            best candidates continues.
        n_steps: the number of steps of L-BFGS for these, and at the end if rows were drawn.
        max_terms, max_factors: the largest number of terms of a sum, and of factors of a product.
        max_rows: the largest number of rows to search on. If there are more, that many are drawn,
            spread over the first column, and the parameters of the best structure are learned on
            all rows at the end.
        names: the names of the columns, for the sentences.
        progress: draw a bar for each round on standard error (needs `rich`).
        throw: raise `NonFiniteError` if no candidate has a score; otherwise look at `result`.

    Returns:
        A `Solution` with a `Composition`, in the units of X and y. Stats: `structures`, all
        candidates as text, `log_evidence` and `criterion` of each on the rows of the search (NaN
        for failed candidates), the total `steps` of the optimiser, `failed`, how many candidates
        have no score, and `left_out`, the columns that are constant on these rows.

    Raises ValueError for fewer than ten rows, targets or columns that are all constant, and bases
    of another kind.
    """
    check_key(key)
    counts = {"depth": depth, "beam": beam, "n_starts": n_starts, "n_steps": n_steps}
    for name, value in {**counts, "max_terms": max_terms, "max_factors": max_factors}.items():
        check_count(value, name)
    check_count(max_rows, "max_rows", _LEAST_ROWS)
    data = _StandardisedTable.of(X, y, names)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    rows = spread_rows(data.X[:, 0], max_rows, rng)
    data = data.searched_on(rows)
    grammar = _grammar(bases, data, max_terms, max_factors)
    shown = _bars if progress else _no_bars
    search = CompositionSearch(
        jnp.asarray(data.X[rows]),
        jnp.asarray(data.y[rows]),
        data.units.of_target,
        data.names if len(data.names) > 1 else (),
        grammar,
        n_starts,
        n_steps,
        rng,
        shown,
    )
    with linear_algebra_threads(len(rows)):
        best = search.run(depth, beam)
    return _closed(data, search, best, n_steps, throw)


class _StandardisedTable(eqx.Module):
    """Standardised columns and targets, and their units."""

    X: np.ndarray
    y: np.ndarray
    units: DataUnits
    names: tuple[str, ...]
    varying: tuple[int, ...]

    def searched_on(self, rows: np.ndarray) -> "_StandardisedTable":
        """The same without the columns that are constant on some rows.

        Raises ValueError if all are constant.
        """
        here = np.ptp(self.X[rows], axis=0) > 0
        varying = tuple(column for column in self.varying if here[column])
        if not varying:
            raise ValueError(
                f"all columns of X are constant among the {len(rows)} rows that were drawn: pass "
                "a larger max_rows"
            )
        return dataclasses.replace(self, varying=varying)

    @staticmethod
    def of(X: Any, y: Any, names: Sequence[str] | None) -> "_StandardisedTable":
        points = as_stack(X, "X")
        shape = getattr(points, "shape", ())
        if len(shape) == 1:
            # From X itself: a batch of single integers stays one of integers, such as indices.
            points = as_stack(np.asarray(X)[:, None], "X")
        if len(shape) not in (1, 2) or len(points) < _LEAST_ROWS:
            raise ValueError(
                f"X must be an array of at least {_LEAST_ROWS} vectors (n, d), or of numbers (n,), "
                f"but has shape {shape}"
            )
        targets = as_targets(y, len(points), points.dtype)
        if targets.ndim != 1:
            raise ValueError(f"y must have shape ({len(points)},), but has shape {targets.shape}")
        wide = np.asarray(points).astype(float)
        varying = _varies(wide)
        if not varying.any():
            raise ValueError("all columns of X are constant: X must vary for a kernel to explain y")
        target = np.asarray(targets).astype(float)
        if not _varies(target):
            raise ValueError("y is constant: it must vary for a kernel to explain it")
        # Columns and targets with mean 0 and deviation 1; a constant column is zero.
        centres = wide.mean(0)
        scales = np.where(varying, wide.std(0), 1.0)
        level = target.mean()
        units = DataUnits(tuple(centres), tuple(scales), float(level), float(target.std()))
        for name, deviations in (("a column of X", scales[varying]), ("y", target.std())):
            _check_squares(name, np.atleast_1d(deviations), points.dtype)
        columns = wide.shape[1]
        if isinstance(names, str):
            raise ValueError(
                f"names must be a list, such as [{names!r}], but is the text {names!r}"
            )
        given = tuple(f"x{j}" for j in range(columns)) if names is None else tuple(names)
        if len(given) != columns:
            raise ValueError(f"names must be {columns}, one for each column, but are {len(given)}")
        dtype = points.dtype
        return _StandardisedTable(
            ((wide - centres) / scales).astype(dtype),
            ((target - level) / units.of_target).astype(dtype),
            units,
            given,
            tuple(np.flatnonzero(varying).tolist()),
        )


def _check_squares(name: str, deviations: Float[np.ndarray, " d"], dtype: Any) -> None:
    """Raises ValueError where variances in the units of the data would over- or underflow."""
    limits = np.finfo(dtype)
    # Noise may be much smaller than the variance, and kernels are scaled by its inverse.
    least, most = _ROOM * float(limits.tiny) ** 0.5, float(limits.max) ** 0.5 / _ROOM
    outside = deviations[(deviations < least) | (deviations > most)]
    if outside.size:
        raise ValueError(
            f"{name} has a standard deviation of {outside[0]:.3g}, the square of which is out of "
            f"the range of {dtype}: pass it in another unit"
        )


def _varies(values: np.ndarray) -> Any:
    return values.std(0) > _SPREAD * np.abs(values).max(0)


def _grammar(bases: Any, data: _StandardisedTable, max_terms: int, max_factors: int) -> Grammar:
    default = _OF_ONE_COLUMN if len(data.varying) == 1 else _OF_SEVERAL
    kinds = default if bases is None else tuple(bases)
    unknown = [kind for kind in kinds if kind not in BY_KIND]
    if unknown or not kinds:
        known = ", ".join(kind.__name__ for kind in BY_KIND)
        came = ", ".join(getattr(kind, "__name__", repr(kind)) for kind in unknown) or "none"
        raise ValueError(f"bases must be classes among {known}, but are {came}")
    words = [BY_KIND[kind].word for kind in kinds]
    alphabet = tuple(Factor(word, column) for word in words for column in data.varying)
    alike = {base.word: (base.family, base.most) for base in BASES}
    return Grammar(alphabet, alike, max_terms, max_factors)


def spread_rows(x: Float[np.ndarray, " n"], most: int, rng: np.random.Generator) -> np.ndarray:
    """Indices of at most `most` rows, ascending, one drawn from each stretch of the sorted
    values.
    """
    n = len(x)
    if n <= most:
        return np.arange(n)
    # One of the sorted rows i n / m, ..., (i + 1) n / m - 1 for each i < m.
    edges = np.linspace(0, n, most + 1).astype(int)
    chosen = [rng.integers(low, high) for low, high in itertools.pairwise(edges)]
    return np.sort(np.argsort(x, kind="stable")[chosen])


def _closed(
    data: _StandardisedTable, search: CompositionSearch, best: Fit, steps: int, throw: bool
) -> Solution:
    """The best structure in the units of the data."""
    X = jnp.asarray(data.X)
    y = jnp.asarray(data.y)
    # The best model, learned on all rows if the search saw fewer and the learned one has a score.
    model = model_of(best.structure, best.values, X.dtype)
    has_score = False
    if len(search.y) < len(y):
        learned = polished(best, X, y, steps)
        has_score = _has_a_score(learned, X, y)
        model = learned if has_score else model
    has_score = has_score or _has_a_score(model, X, y)
    sound = has_score and math.isfinite(best.criterion)
    kernel = kernel_of(best.structure, Values.of(model), data.units)
    # var(y) = of_target^2 var(standardised y).
    noise = float(model.noise) * data.units.of_target**2
    components = []
    if sound:
        unchanged = DataUnits.unchanged(data.X.shape[1])
        standardised = kernel_of(best.structure, Values.of(model), unchanged)
        of_model = float(model.noise)
        components = components_of(standardised, of_model, data.X, data.y, data.units, data.names)
    value = Composition(
        kernel,
        jnp.asarray(noise, X.dtype),
        jnp.asarray(data.units.level, X.dtype),
        tuple(components),
        tuple(search.rounds),
    )
    result = RESULTS.successful if sound else RESULTS.nonfinite
    fits = search.fits
    scores = np.array([fit.criterion for fit in fits])
    left_out = sorted(set(range(len(data.names))) - set(data.varying))
    stats = {
        "structures": tuple(written(fit.structure, search.names) for fit in fits),
        "log_evidence": np.array([fit.log_evidence for fit in fits]),
        "criterion": np.where(np.isfinite(scores), scores, np.nan),
        "steps": sum(fit.steps for fit in fits),
        "failed": int(np.sum(~np.isfinite(scores))),
        "left_out": tuple(data.names[column] for column in left_out),
    }
    solution = Solution(value, result, stats)
    if math.isfinite(best.criterion):
        what = "no kernel of the best structure, on all rows,"
    else:
        what = "no candidate"
    return finish(solution, throw, f"compositional_search: {what} has a finite evidence.")


def _has_a_score(model: CompositionModel, X: Array, y: Array) -> bool:
    return math.isfinite(float(scored(model, X, y).log_evidence))


def kernel_of(structure: Structure, values: Values, units: DataUnits) -> AbstractKernel:
    """A structure with its parameters as an expression of kernels, in the units of the data."""
    several = len(units.scales) > 1
    terms = []
    for t, term in enumerate(structure):
        # exp(log s_t) of_target^2 prod_f size_f k_f(x): a kernel of standardised columns and
        # targets, in the units of the data.
        scale = math.exp(values.log_scales[t]) * units.of_target**2
        factors = []
        for f, factor in enumerate(term):
            base = BY_WORD[factor.word]
            width = units.scales[factor.column]
            theta = values.theta[t, f]
            kernel = base.kernel(theta, units.centres[factor.column], width)
            scale *= base.size(width)
            factors.append(On(kernel, factor.column) if several else kernel)
        if not factors:
            terms.append(Constant(jnp.asarray(scale)))
        else:
            terms.append(scale * (factors[0] if len(factors) == 1 else Product(*factors)))
    return terms[0] if len(terms) == 1 else Sum(*terms)


def _no_bars(candidates: Sequence[Any], label: str) -> Iterable[Any]:
    return candidates


def _bars(candidates: Sequence[Any], label: str) -> Iterable[Any]:
    from rich.console import Console
    from rich.progress import track

    return track(candidates, label, console=Console(stderr=True), transient=True)
