"""The outcome of a fit or a solve, and the one place where a failure becomes an exception."""

import inspect
import os
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import lineax as lx
import numpy as np

from kernax.core.base.numerics import is_concrete, stop_gradient
from kernax.core.base.printing import Printed, missing
from kernax.errors import (
    BreakdownError,
    CapacityError,
    ConditionWarning,
    DivergedError,
    MaxStepsError,
    NonFiniteError,
    NotPSDError,
    SolveError,
)

Value = TypeVar("Value")

MOST_FOR_EIGENVALUES = 2000  # rows of a matrix whose eigenvalues take a second


# equinox's enumerations may be extended, which type checkers do not believe.
_Words: Any = lx.RESULTS


with warnings.catch_warnings(action="ignore"):
    # Equinox warns that lineax's word for success, which is empty, is replaced.

    class _RESULTS(_Words):
        """How a solve ended: the statuses of lineax, and five more."""

        successful = "successful"
        inaccurate = (
            "Rounding errors are too large: the problem is too close to singular, or the tolerance "
            "too small, for this precision."
        )
        not_psd = (
            "The matrix is not positive definite, and no jitter up to 1e-4 of its mean diagonal "
            "makes it so."
        )
        breakdown = (
            "The iteration broke down before its residual was small: the problem is too close to "
            "singular."
        )
        stagnation = "The iteration came to a standstill before its residual was small."
        nonfinite = (
            "NaN or inf appeared in the problem or in its solution. Under jit labels, counts or "
            "weights out of range are NaN as well: the call without jit says so."
        )
        diverged = "The iteration diverged."
        over_capacity = "More points were needed than there is room for."


# Under these names it is printed.
_RESULTS.__module__ = "kernax"
_RESULTS.__qualname__ = "RESULTS"
_RESULTS.__name__ = "RESULTS"
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
    "over_capacity": CapacityError,
}


def promoted(word: Any) -> Any:
    """A status of lineax as one of `RESULTS`.

    This is `RESULTS.promote` without its look-up in a table, which fails inside `jax.shard_map`. A
    word that is not known, of a later lineax, becomes `breakdown`.
    """
    result = RESULTS.where(word == lx.RESULTS.successful, RESULTS.successful, RESULTS.breakdown)
    for name in _ERRORS:
        if hasattr(lx.RESULTS, name):
            result = RESULTS.where(
                word == getattr(lx.RESULTS, name), getattr(RESULTS, name), result
            )
    return result


def void_unless_known(value: Any, result: Any) -> Any:
    """The value, NaN throughout where the result is `not_psd` or `nonfinite`."""
    unknown = (result == RESULTS.nonfinite) | (result == RESULTS.not_psd)
    return jax.tree.map(lambda leaf: jnp.where(unknown, jnp.nan, leaf), value)


def first_that_holds(endings: Sequence[tuple[Any, Any]], otherwise: Any) -> Any:
    """The word of the first ending whose condition holds, and `otherwise` where none does.

    Arguments:
        endings: pairs of a condition (a boolean array) and a status of `RESULTS`, in order of
            precedence.
        otherwise: a status of `RESULTS`, or a result that is left as it was.
    """
    result = otherwise
    for condition, word in reversed(endings):
        result = RESULTS.where(condition, word, result)
    return result


def of_all(results: Any) -> Any:
    """The worst of several results, along their axis: the first of the gravest kind.

    `nonfinite` and `not_psd` are graver than other failures.
    """
    grave = (results == RESULTS.nonfinite) | (results == RESULTS.not_psd)
    gravity = jnp.where(grave, 2, jnp.where(results == RESULTS.successful, 0, 1))
    return jax.tree.map(lambda leaf: leaf[jnp.argmax(gravity)], results)


class Solution(Printed, Generic[Value]):
    """The outcome of a fit or a solve.

    Attributes:
        value: the solution: NaN throughout where the result is `not_psd` or `nonfinite`, otherwise
            the best finite iterate.
        result: the status, one of `RESULTS`; `result == RESULTS.successful` says whether `value`
            can be relied on.
        stats: diagnostics of the solve, such as steps, true residual and jitter; the docstring of
            each function lists its own.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> solution = kernax.kernel_ridge(kernax.RBF(0.3), X, jnp.sin(6.0 * X[:, 0]), ridge=0.01)
        >>> bool(solution.result == kernax.RESULTS.successful)
        True
        >>> sorted(solution.stats)
        ['jitter', 'residual', 'solver']
    """

    value: Value
    result: Any
    stats: dict[str, Any]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError, which says where the attribute is."""
            value = self.__dict__.get("value")
            advice = "a Solution has value, result and stats"
            if not name.startswith("_") and hasattr(value, name):
                advice = f"its value has one: solution.value.{name}"
            elif not name.startswith("_") and callable(value):
                advice = "solution.value is a function: solution.value(x) at one point"
                if hasattr(value, "values"):
                    advice = f"{advice}, solution.value.values(X) at a stack"
            raise missing(self, name, advice)


class Suspect(NamedTuple):
    """The matrix of a solve, computed only for its eigenvalues in a `NotPSDError`, and advice on
    the kernel that it is of.
    """

    name: str
    size: int
    matrix: Callable[[], Any]
    advice: str = ""


def finish(
    solution: Solution[Value],
    throw: bool,
    hint: str | Callable[[], str] = "",
    *,
    quiet: bool = False,
    suspect: Callable[[], Suspect] | None = None,
) -> Solution[Value]:
    """The solution; a failure becomes an exception and jitter a warning, where they are known.

    With concrete results a failure raises one of `kernax.errors` when `throw=True`. Under a
    transformation the result is not known yet: `throw=True` inserts a runtime check, `throw=False`
    leaves the solution as it is. `hint` and `suspect` are called only where there is something to
    say. `quiet` leaves out the warning of jitter. In a batch, failures of
    some do not silence the warning about others.
    """
    if not is_concrete(solution.result):
        if throw:
            # The value with a check at run time, NaN after a failure on devices that cannot raise.
            # The check is on a constant: inside `jax.shard_map` equinox cannot check values that
            # differ between devices.
            sound = solution.result.error_if(jnp.array(True), solution.result != RESULTS.successful)
            checked = jax.tree.map(lambda leaf: _tied(leaf, sound), solution.value)
            return Solution(checked, solution.result, solution.stats)
        return solution
    successful = np.asarray(solution.result == RESULTS.successful)
    if throw and not np.all(successful):
        raise _error(solution, hint if isinstance(hint, str) else hint(), suspect)
    jitter = solution.stats.get("jitter")
    if jitter is not None and not quiet:
        added = np.where(successful, np.asarray(jitter), 0)
        if np.any(added > 0):
            _warn_of_jitter(added, hint if isinstance(hint, str) else hint())
    return solution


_MOST_NAMED = 8  # solves of a batch whose numbers a warning lists


def _warn_of_jitter(added: np.ndarray, hint: str) -> None:
    """A ConditionWarning that jitter was added to the diagonal, in one solve or several."""
    what = f"{np.max(added):.1e} was added to its diagonal."
    which = ""
    if added.ndim == 1:
        indices = np.flatnonzero(added > 0)
        named = ", ".join(map(str, indices[:_MOST_NAMED]))
        more = ", ..." if len(indices) > _MOST_NAMED else ""
        which = f" in {len(indices)} of {len(added)} solves (index {named}{more})"
        what = f"up to {what}"
    what = f"the matrix is singular to working precision{which}: {what}"
    warn(_sentences(what, hint), ConditionWarning)


def _error(solution: Solution, hint: str, suspect: Callable[[], Suspect] | None) -> Exception:
    """The exception for a failed solve; for a batch, that of the first kind found in it."""
    figures = _figures(solution.stats)
    for word, error in _ERRORS.items():
        result = getattr(RESULTS, word)
        if jnp.any(solution.result == result):
            of_matrix = ()
            if error is NotPSDError and suspect is not None:
                matrix = suspect()
                of_matrix = (_eigenvalues(matrix), matrix.advice)
            return error(_sentences(RESULTS[result], *of_matrix, hint, figures))
    return SolveError(_sentences("The solve failed.", hint, figures))


def _sentences(*parts: str) -> str:
    """A message of the parts that are not empty."""
    return " ".join(part for part in parts if part)


def _tied(leaf: Any, sound: Any) -> Any:
    """A leaf that XLA cannot compute without the check; NaN, or another value, if it is not sound.

    Counts and booleans are results as numbers are, and would be returned without the check.
    """
    if eqx.is_inexact_array(leaf):
        return jnp.where(sound, leaf, jnp.nan)
    is_whole = eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.integer)
    if is_whole or (eqx.is_array(leaf) and leaf.dtype == bool):
        return jnp.where(sound, leaf, ~leaf)
    return leaf


def _eigenvalues(suspect: Suspect) -> str:
    """A sentence on the extreme eigenvalues of a matrix, unless it is too large or not finite."""
    if suspect.size > MOST_FOR_EIGENVALUES:
        return ""
    K = np.asarray(suspect.matrix())
    if not np.isfinite(K).all():
        return ""
    values = np.linalg.eigvalsh(K)
    return (
        f"The smallest eigenvalue of {suspect.name} is {values[0]:.3g}, the largest "
        f"{values[-1]:.3g}."
    )


MOST_NATS = 0.01  # of rounding that a log evidence may have without a warning


ROUNDING = "the matrix is nearly singular: rounding"


def warn_of_rounding(
    solution: Solution, most: float, affected: str, hint: str, cause: str = ROUNDING
) -> None:
    """A ConditionWarning where `stats["rounding"]`, if any, is above `most`.

    Not where there was jitter, of which `finish` has warned already. `cause` is what leaves few
    digits.
    """
    rounding = solution.stats.get("rounding", 0.0)
    jitter = solution.stats["jitter"]
    if not is_concrete(rounding, jitter):
        return
    worst = np.max(np.where(np.asarray(jitter) > 0, 0, np.nan_to_num(np.asarray(rounding))))
    if worst > most:
        left = max(0, int(-np.log10(worst)))
        digits = f"some {left} digits" if left else "no digit"
        warn(_sentences(f"{cause} leaves {digits} of {affected}.", hint), ConditionWarning)


def warn(message: str, category: type[Warning]) -> None:
    """Warns at the line that called into kernax, however deep inside it this is called."""
    level = 1
    for frame, _ in traceback.walk_stack(inspect.currentframe()):
        if not frame.f_code.co_filename.startswith(_INSIDE):
            break
        level += 1
    warnings.warn(message, category, stacklevel=level)


# With the separator: `kernax_of_mine.py` beside the package is a file of a user.
_INSIDE = (
    f"{Path(__file__).parents[2]}{os.sep}",
    *(f"{Path(str(module.__file__)).parent}{os.sep}" for module in (jax, jaxtyping, eqx)),
)


def _figures(stats: dict[str, Any]) -> str:
    """All statistics that are known single numbers, in brackets."""
    # Under `jax.jvp` statistics with a derivative are traced, but their values are known.
    known = {name: stop_gradient(figure) for name, figure in stats.items()}
    shown = [
        f"{name} {float(figure):.3g}"
        for name, figure in known.items()
        if eqx.is_array_like(figure) and np.shape(figure) == () and is_concrete(figure)
    ]
    return f"({', '.join(shown)})" if shown else ""
