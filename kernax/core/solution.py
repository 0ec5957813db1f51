"""What every fallible verb returns, the words for how it ended, and the one place where an ending becomes an exception."""

import inspect
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np

from kernax.core.numerics import is_concrete
from kernax.errors import (
    BreakdownError,
    ConditionWarning,
    DivergedError,
    MaxStepsError,
    NonFiniteError,
    NotPSDError,
    SolveError,
)

Value = TypeVar("Value")

MOST_FOR_EIGENVALUES = 2000  # rows of a matrix whose eigenvalues take a second


_Words: Any = lx.RESULTS  # equinox's enumerations may be extended, which type checkers do not believe


with warnings.catch_warnings(action="ignore"):  # equinox remarks that lineax's word for success, which is empty, is replaced

    class _RESULTS(_Words):
        """lineax's words for how a solve ended, and four more."""

        successful = "successful"
        inaccurate = (
            "Rounding is too coarse: the problem is too close to singular, or the tolerance too fine, for this precision."
        )
        not_psd = "The matrix is not positive definite, and no jitter up to 1e-4 of its mean diagonal makes it so."
        breakdown = "The iteration broke down before its residual was small: the problem is too close to singular."
        stagnation = "The iteration came to a standstill before its residual was small."
        nonfinite = "NaN or inf appeared in the problem or in its solution."
        diverged = "The iteration diverged."


_RESULTS.__module__, _RESULTS.__qualname__, _RESULTS.__name__ = "kernax", "RESULTS", "RESULTS"  # as it is printed
RESULTS: Any = _RESULTS


_ERRORS = {
    "max_steps_reached": MaxStepsError,
    "singular": NotPSDError,
    "breakdown": BreakdownError,
    "stagnation": BreakdownError,
    "inaccurate": BreakdownError,
    "conlim": BreakdownError,
    "nonfinite_input": NonFiniteError,
    "not_psd": NotPSDError,
    "nonfinite": NonFiniteError,
    "diverged": DivergedError,
}


def promoted(word: Any) -> Any:
    """One of lineax's words as ours: `RESULTS.promote`, without its look-up in a table, which fails inside `jax.shard_map`.

    A word that lineax may learn one day is no success.
    """
    result = RESULTS.where(word == lx.RESULTS.successful, RESULTS.successful, RESULTS.breakdown)
    for name in _ERRORS:
        if hasattr(lx.RESULTS, name):
            result = RESULTS.where(word == getattr(lx.RESULTS, name), getattr(RESULTS, name), result)
    return result


def void_unless_known(value: Any, result: Any) -> Any:
    """The value, NaN throughout where the result says that nothing is known of it: `not_psd` or `nonfinite`."""
    unknown = (result == RESULTS.nonfinite) | (result == RESULTS.not_psd)
    return jax.tree.map(lambda leaf: jnp.where(unknown, jnp.nan, leaf), value)


def of_all(results: Any) -> Any:
    """One result for several, along their axis: `nonfinite` or `not_psd` if one is, else the first that is no success."""
    grave = (results == RESULTS.nonfinite) | (results == RESULTS.not_psd)
    gravity = jnp.where(grave, 2, jnp.where(results == RESULTS.successful, 0, 1))
    return jax.tree.map(lambda leaf: leaf[jnp.argmax(gravity)], results)


class Solution(eqx.Module, Generic[Value]):
    """The outcome of a verb.

    Attributes:
        value: what was asked for: NaN throughout where the result is `not_psd` or `nonfinite`, otherwise the best finite
            iterate.
        result: how it ended, one of `RESULTS`; `result == RESULTS.successful` says whether `value` can be relied on.
        stats: figures about the solve: steps, true residual, jitter, whatever the verb's docstring names.
    """

    value: Value
    result: Any
    stats: dict[str, Any]


class Suspect(NamedTuple):
    """The matrix that a solve stands on, computed only to name its eigenvalues where it is not positive definite."""

    name: str
    size: int
    matrix: Callable[[], Any]


def finish(
    solution: Solution[Value],
    throw: bool,
    hint: str = "",
    *,
    quiet: bool = False,
    suspect: Suspect | None = None,
) -> Solution[Value]:
    """Turns a bad ending into an exception and jitter into a warning, where these can still be seen.

    With concrete results a failure raises one of `kernax.errors` when `throw=True`. Under a transformation the
    result is not known yet: `throw=True` inserts a runtime check, `throw=False` leaves the solution as it is. `quiet` says
    nothing about jitter.
    """
    if not is_concrete(solution.result):
        if throw:
            return Solution(_checked(solution), solution.result, solution.stats)
        return solution
    successful = bool(jnp.all(solution.result == RESULTS.successful))
    if throw and not successful:
        raise _error(solution, hint, suspect)
    jitter = solution.stats.get("jitter")
    if successful and not quiet and jitter is not None and np.any(np.asarray(jitter) > 0):
        warn(
            f"the matrix is singular to working precision: {np.max(jitter):.1e} was added to its diagonal. {hint}",
            ConditionWarning,
        )
    return solution


def _error(solution: Solution, hint: str, suspect: Suspect | None) -> Exception:
    """What to raise for a solve that failed: of a batch, for the first kind of failure among its members."""
    parts = [hint, _figures(solution.stats)]
    for word, error in _ERRORS.items():
        result = getattr(RESULTS, word)
        if jnp.any(solution.result == result):
            eigenvalues = _eigenvalues(suspect) if error is NotPSDError and suspect is not None else ""
            return error(" ".join(part for part in (RESULTS[result], eigenvalues, *parts) if part))
    return SolveError(" ".join(part for part in ("The solve failed.", *parts) if part))


def _checked(solution: Solution[Value]) -> Value:
    """The value, NaN in the end if a machine that cannot raise goes on after a failure.

    The check is of a constant: of values that differ between devices equinox cannot make one inside `jax.shard_map`.
    """
    sound = solution.result.error_if(jnp.array(True), solution.result != RESULTS.successful)
    return jax.tree.map(lambda leaf: jnp.where(sound, leaf, jnp.nan) if eqx.is_inexact_array(leaf) else leaf, solution.value)


def _eigenvalues(suspect: Suspect) -> str:
    """A sentence on the extreme eigenvalues of a matrix that is small enough for them to take a second."""
    if suspect.size > MOST_FOR_EIGENVALUES:
        return ""
    K = np.asarray(suspect.matrix())
    if not np.isfinite(K).all():
        return ""
    values = np.linalg.eigvalsh(K)
    return f"The smallest eigenvalue of {suspect.name} is {values[0]:.3g}, the largest {values[-1]:.3g}."


def warn_of_rounding(solution: Solution, most: float, affected: str, hint: str) -> None:
    """A ConditionWarning where `stats["rounding"]` is known and above `most`, unless jitter has been warned about."""
    rounding, jitter = solution.stats["rounding"], solution.stats["jitter"]
    if not is_concrete(rounding, jitter):
        return
    worst = np.max(np.where(np.asarray(jitter) > 0, 0, np.nan_to_num(np.asarray(rounding))))
    if worst > most:
        left = max(0, int(-np.log10(worst)))
        digits = f"some {left} digits" if left else "no digit"
        warn(f"the matrix is nearly singular: rounding leaves {digits} of {affected}. {hint}", ConditionWarning)


def warn(message: str, category: type[Warning]) -> None:
    """Warns at the line that called into kernax, however deep inside it the news was made."""
    level = 1
    for frame, _ in traceback.walk_stack(inspect.currentframe()):
        if not frame.f_code.co_filename.startswith(_INSIDE):
            break
        level += 1
    warnings.warn(message, category, stacklevel=level)


_INSIDE = (str(Path(__file__).parents[1]), *(str(Path(str(module.__file__)).parent) for module in (jax, eqx)))


def _figures(stats: dict[str, Any]) -> str:
    scalars = {name: float(figure) for name, figure in stats.items() if not isinstance(figure, dict) and np.shape(figure) == ()}
    return f"({', '.join(f'{name} {figure:.3g}' for name, figure in scalars.items())})" if scalars else ""
