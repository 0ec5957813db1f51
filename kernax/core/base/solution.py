"""The outcome of a fit or a solve, and the conversion of failures to exceptions."""

import inspect
import os
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import lineax as lx
import numpy as np

from kernax.core.base.numerics import is_concrete, stop_gradient, tree_where, where
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

MOST_FOR_EIGENVALUES = 2000  # rows of a matrix with eigenvalues that take a second


# Enumerations of equinox may be extended, which type checkers reject.
_LineaxResults: Any = lx.RESULTS


with warnings.catch_warnings(action="ignore"):
    # Equinox warns that lineax's text for success, which is empty, is replaced.

    class _RESULTS(_LineaxResults):
        """The status of a solve: the statuses of lineax, and further ones."""

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
        stagnation = "The iteration stagnated before its residual was small."
        nonfinite = (
            "NaN or inf appeared in the problem or in its solution. Under jit labels, counts or "
            "weights out of range are NaN as well: the call without jit says so."
        )
        diverged = "The iteration diverged."
        over_capacity = "More points were needed than there is room for."


# These names are printed.
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


def promoted(status: Any) -> Any:
    """A status of lineax as one of `RESULTS`.

    This is `RESULTS.promote` without its look-up in a table, which fails inside `jax.shard_map`. An
    unknown status of a later lineax becomes `breakdown`.
    """
    result = RESULTS.where(status == lx.RESULTS.successful, RESULTS.successful, RESULTS.breakdown)
    for name in _ERRORS:
        if hasattr(lx.RESULTS, name):
            result = RESULTS.where(
                status == getattr(lx.RESULTS, name), getattr(RESULTS, name), result
            )
    return result


def void_unless_known(value: Any, result: Any) -> Any:
    """The value, all NaN if the result is `not_psd` or `nonfinite`."""
    unknown = (result == RESULTS.nonfinite) | (result == RESULTS.not_psd)
    return jax.tree.map(lambda leaf: where(unknown, jnp.full_like(leaf, jnp.nan), leaf), value)


def first_that_holds(statuses: Sequence[tuple[Any, Any]], otherwise: Any) -> Any:
    """The status of the first pair with a true condition, or `otherwise` if there is none.

    Arguments:
        statuses: pairs of a condition (a boolean array) and a status, in order of precedence.
        otherwise: a status of `RESULTS`, or a result that is kept.
    """
    result = otherwise
    for condition, status in reversed(statuses):
        result = tree_where(condition, status, result)  # RESULTS.where takes two operations
    return result


def of_all(results: Any) -> Any:
    """The worst of several results along their axis: the first of the most severe kind.

    `nonfinite` and `not_psd` are more severe than other failures.
    """
    # 2 for a solution that is NaN, 1 for any other failure; argmax finds the first of the largest.
    grave = (results == RESULTS.nonfinite) | (results == RESULTS.not_psd)
    gravity = jnp.where(grave, 2, jnp.where(results == RESULTS.successful, 0, 1))
    return jax.tree.map(lambda leaf: leaf[jnp.argmax(gravity)], results)


class Solution(Printed, Generic[Value]):
    """The outcome of a fit or a solve.

    Attributes:
        value: the solution. It is all NaN if the result is `not_psd` or `nonfinite`, otherwise the
            best finite iterate.
        result: the status, one of `RESULTS`. `value` can be relied on if `result ==
            RESULTS.successful`.
        stats: diagnostics of the solve, such as steps, true residual and jitter, which the
            docstring of each function lists.

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

    _instead: ClassVar[str] = "pass its value, solution.value"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError with a message that says where the attribute is."""
            value = self.__dict__.get("value")
            advice = "a Solution has value, result and stats"
            if not name.startswith("_") and hasattr(value, name):
                advice = f"its value has one: solution.value.{name}"
            elif not name.startswith("_") and callable(value):
                advice = "solution.value is a function: solution.value(x) at one point"
                if hasattr(value, "values"):
                    advice = f"{advice}, solution.value.values(X) at a batch"
            raise missing(self, name, advice)


class Suspect(NamedTuple):
    """The matrix of a solve, computed only for its eigenvalues in a `NotPSDError`, and advice on
    its kernel.
    """

    name: str
    size: int
    matrix: Callable[[], Any]
    advice: str = ""


class Digits(NamedTuple):
    """What rounding errors make inaccurate, and the largest such error without a warning."""

    affected: str
    most: float


OF_EVIDENCE = Digits("the evidence", 0.01)  # nats
OF_BOUND = Digits("the bound", 0.01)


def finish(
    solution: Solution[Value],
    throw: bool,
    hint: str | Callable[[], str] = "",
    *,
    quiet: bool = False,
    digits: Digits | None = None,
    suspect: Callable[[], Suspect] | None = None,
) -> Solution[Value]:
    """The solution. A concrete failure becomes an exception, and concrete jitter a warning.

    With concrete results a failure raises one of `kernax.errors` when `throw=True`. Under a
    transformation the result is not yet known: `throw=True` inserts a runtime check, and
    `throw=False` returns the solution unchanged. `hint` and `suspect` are called only for a
    message. `quiet` omits the warning of jitter, and `digits` adds that of `warn_of_rounding`. In a
    batch, failures of some members do not suppress the warning about others.
    """
    if digits is not None:
        warn_of_rounding(solution, digits, hint)
    if not is_concrete(solution.result):
        if throw:
            # The value with a runtime check, or NaN after a failure on devices that cannot raise.
            # The check is on a constant, because equinox cannot check values inside `jax.shard_map`
            # that differ between devices.
            sound = solution.result.error_if(jnp.array(True), solution.result != RESULTS.successful)
            checked = jax.tree.map(lambda leaf: _tied(leaf, sound), solution.value)
            return Solution(checked, solution.result, solution.stats)
        return solution
    # By NumPy: `==` of results would be a program of its own.
    (status,) = jax.tree.leaves(solution.result)
    (success,) = jax.tree.leaves(RESULTS.successful)
    successful = np.asarray(status) == np.asarray(success)
    if throw and not np.all(successful):
        raise _error(solution, hint if isinstance(hint, str) else hint(), suspect)
    jitter = solution.stats.get("jitter")
    if jitter is not None and not quiet:
        added = np.where(successful, np.asarray(jitter), 0)
        if np.any(added > 0):
            # Warn that jitter was added to the diagonal, in one solve or several.
            what = f"{np.max(added):.1e} was added to its diagonal."
            which = ""
            if added.ndim == 1:
                indices = np.flatnonzero(added > 0)
                named = ", ".join(map(str, indices[:_MOST_NAMED]))
                more = ", ..." if len(indices) > _MOST_NAMED else ""
                which = f" in {len(indices)} of {len(added)} solves (index {named}{more})"
                what = f"up to {what}"
            what = f"the matrix is singular to working precision{which}: {what}"
            warn(_sentences(what, hint if isinstance(hint, str) else hint()), ConditionWarning)
    return solution


_MOST_NAMED = 8  # the number of solves of a batch that a warning lists


def _error(solution: Solution, hint: str, suspect: Callable[[], Suspect] | None) -> Exception:
    """The exception for a failed solve; for a batch, that of the first kind of failure in it."""
    # All statistics that are concrete single numbers, in brackets.
    # Under `jax.jvp` statistics with a derivative are traced, but their values are concrete.
    known = {name: stop_gradient(figure) for name, figure in solution.stats.items()}
    shown = [
        f"{name} {float(figure):.3g}"
        for name, figure in known.items()
        if eqx.is_array_like(figure) and np.shape(figure) == () and is_concrete(figure)
    ]
    figures = f"({', '.join(shown)})" if shown else ""
    for name, error in _ERRORS.items():
        result = getattr(RESULTS, name)
        if jnp.any(solution.result == result):
            of_matrix = ()
            if error is NotPSDError and suspect is not None:
                matrix = suspect()
                of_matrix = (_eigenvalues(matrix), matrix.advice)
            return error(_sentences(RESULTS[result], *of_matrix, hint, figures))
    return SolveError(_sentences("The solve failed.", hint, figures))


def _sentences(*parts: str) -> str:
    """A message from the parts that are not empty."""
    return " ".join(part for part in parts if part)


def _tied(leaf: Any, sound: Any) -> Any:
    """A leaf that XLA cannot compute without the check; NaN, or another value, if the check fails.

    Counts and booleans are included, because XLA would return them without the check.
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


ROUNDING = "the matrix is nearly singular: rounding"


def warn_of_rounding(
    solution: Solution, digits: Digits, hint: str | Callable[[], str], cause: str = ROUNDING
) -> None:
    """Issues a ConditionWarning if `stats["rounding"]` exists and is above `digits.most`.

    It does not warn if there was jitter, of which `finish` has already warned. `cause` names the
    reason for the loss of digits.
    """
    rounding = solution.stats.get("rounding", 0.0)
    jitter = solution.stats["jitter"]
    if not is_concrete(rounding, jitter):
        return
    worst = np.max(np.where(np.asarray(jitter) > 0, 0, np.nan_to_num(np.asarray(rounding))))
    if worst > digits.most:
        left = max(0, int(-np.log10(worst)))
        accurate = f"about {left} digits" if left else "no digit"
        what = f"{cause} leaves {accurate} of {digits.affected}."
        warn(_sentences(what, hint if isinstance(hint, str) else hint()), ConditionWarning)


def warn(message: str, category: type[Warning]) -> None:
    """Warns at the line that called into kernax, from any depth."""
    level = 1
    for frame, _ in traceback.walk_stack(inspect.currentframe()):
        if not frame.f_code.co_filename.startswith(_INSIDE):
            break
        level += 1
    warnings.warn(message, category, stacklevel=level)


# The separator matters: `kernax_of_mine.py` next to the package is a file of a user.
_INSIDE = (
    f"{Path(__file__).parents[2]}{os.sep}",
    *(f"{Path(str(module.__file__)).parent}{os.sep}" for module in (jax, jaxtyping, eqx)),
)
