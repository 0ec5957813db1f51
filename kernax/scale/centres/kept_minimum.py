"""The minimum of a risk over centres, found in Python steps that save the state in between.

The steps are those of `minimum`, one after another instead of nested loops: each is a program of
its own, for one product with the Hessian, or for the work between two solves.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.numerics import is_concrete
from kernax.core.checkpoint.checkpoint import Checkpoint
from kernax.core.checkpoint.facts import facts_with_values
from kernax.core.linalg.conjugate_step import ConjugateIterate
from kernax.scale.centres.minimum import Minimum, MinimumProgress, Newton, RiskPoint
from kernax.scale.centres.normal_equations import SolveProgress, begun, found_by, is_open, one_step
from kernax.scale.centres.preconditioner import HessianFactor
from kernax.scale.centres.risk import Risk

# The purpose of a solve, or that there is none.
_BEFORE_START = 0
_STEP = 1
_MEASUREMENT = 2
_OVER = 3


class KeptFit(NamedTuple):
    """Where a fit is saved, and what identifies it besides its name."""

    checkpoint: Checkpoint
    facts: dict[str, str]


class _Solve(eqx.Module):
    """Conjugate gradients after some steps, and whether there are more to take."""

    iterate: SolveProgress
    goes_on: Bool[Array, ""]


class _State(eqx.Module):
    """Newton's method before some product, as it is saved and not computed again.

    Of the Hessian's factors L is left out, because the risk has it. R, m x m numbers, is saved,
    because computing it takes as long as many products.
    """

    progress: MinimumProgress
    solve: _Solve
    stage: int


def kept_minimum(
    risk: Risk, shape: tuple[int, int], rtol: ArrayLike | None, max_steps: ArrayLike, kept: KeptFit
) -> Minimum:
    """`minimum.minimise`, continued from the last saved state."""
    run = risk.rows.run
    method = run(Newton.of, risk, rtol, max_steps)
    states = kept.checkpoint.steps(
        _advanced,
        _before_start(risk, shape),
        None,
        (method,),
        is_over=lambda state: state.stage == _OVER,
        facts=kept.facts,
    )
    end = None
    for _, state in states:
        end = state.progress
    return run(_minimum, method, end)


def check_kept(checkpoint: Checkpoint | None, *known: Any) -> None:
    """Raises ValueError if a fit with a checkpoint is traced."""
    # Under jit every computed value is traced, even if all arguments are known.
    if checkpoint is not None and not is_concrete(*known, jnp.zeros(())):
        raise ValueError(
            "checkpoint must be None under jit, grad and vmap: a fit with a checkpoint is a "
            "Python loop over known numbers, and has no derivative"
        )


def facts_of_fit(span: Any, loss: Any, ridge: Array, n: Any, plan: Any) -> dict[str, str]:
    """The facts that identify a fit: everything but the values of rows."""
    facts = {
        "number of points": str(int(n)),
        "precision": str(ridge.dtype),
        "ridge": repr(float(ridge)),
        "rtol": repr(None if plan.rtol is None else float(plan.rtol)),
        "max_steps": repr(int(plan.max_steps)),
        "bias": repr(plan.bias),
    }
    return facts | facts_with_values("functions", span) | facts_with_values("loss", loss)


def _advanced(state: _State, method: Newton) -> _State:
    """One product, or the end of a solve and the beginning of the next."""
    run = method.risk.rows.run
    if state.stage == _BEFORE_START:
        progress, goes_on = run(_started, method, state.progress.point.a.shape)
    elif bool(state.solve.goes_on):
        solve = run(_with_product, method, state.stage, state.progress, state.solve)
        return _State(state.progress, solve, state.stage)
    else:
        progress, goes_on = run(_solved, method, state.stage, state.progress, state.solve)
    # The remaining error is measured once no step seems to help.
    if bool(goes_on):
        stage = _STEP
    elif method.risk.sample is None or state.stage == _MEASUREMENT:
        stage = _OVER
    else:
        stage = _MEASUREMENT
    solve = state.solve if stage == _OVER else run(_begun, method, stage, progress)
    return _State(progress, solve, stage)


def _started(method: Newton, shape: tuple[int, int]) -> tuple[MinimumProgress, Array]:
    """Newton's method at its start, and whether there is a step to take."""
    progress = method.start(shape)
    return _without_lower(progress), method.go_on(progress)


def _begun(method: Newton, stage: int, progress: MinimumProgress) -> _Solve:
    point = _with_lower(method, progress).point
    rtol, most = _asked_for(method, stage, progress)
    iterate = begun(point.P, point.gradient, rtol)
    return _Solve(iterate, is_open(iterate, most))


def _with_product(method: Newton, stage: int, progress: MinimumProgress, solve: _Solve) -> _Solve:
    point = _with_lower(method, progress).point
    _, most = _asked_for(method, stage, progress)
    iterate = one_step(partial(method.product, point), point.P, solve.iterate)
    return _Solve(iterate, is_open(iterate, most))


def _asked_for(method: Newton, stage: int, progress: MinimumProgress) -> tuple[Any, Any]:
    """The accuracy and the largest number of steps of the next solve."""
    return method.to_step(progress) if stage == _STEP else method.to_measure(progress)


def _solved(
    method: Newton, stage: int, progress: MinimumProgress, solve: _Solve
) -> tuple[MinimumProgress, Array]:
    """Newton's method after a solve, and whether there is a step to take."""
    progress = _with_lower(method, progress)
    end = (method.moved if stage == _STEP else method.measured)(progress, found_by(solve.iterate))
    return _without_lower(end), method.go_on(end)


def _minimum(method: Newton, end: MinimumProgress) -> Minimum:
    return method.minimum(_with_lower(method, end))


def _without_lower(progress: MinimumProgress) -> MinimumProgress:
    return eqx.tree_at(_lower, progress, None)


def _with_lower(method: Newton, progress: MinimumProgress) -> MinimumProgress:
    return eqx.tree_at(_lower, progress, method.risk.lower, is_leaf=lambda leaf: leaf is None)


def _lower(progress: MinimumProgress) -> Any:
    return progress.point.P.lower


def _before_start(risk: Risk, shape: tuple[int, int]) -> _State:
    """A state with the shapes and dtypes of all others."""
    dtype = risk.gram.dtype
    m, outputs = shape
    number = jnp.zeros((), dtype)
    count = jnp.zeros((), jnp.int32)
    no = jnp.array(False)
    numbers = jnp.zeros(outputs, dtype)
    coefficients = jnp.zeros(shape, dtype)
    P = HessianFactor(risk.lower, jnp.zeros((m, m), dtype), no, number)
    point = RiskPoint(coefficients, coefficients, numbers, P, numbers, number)
    progress = MinimumProgress(point, number, count, count, count, no, no, no)
    active = jnp.zeros(outputs, bool)
    at = ConjugateIterate(coefficients, coefficients, coefficients, coefficients, numbers)
    unit = jnp.zeros((1, outputs), jnp.int32)
    iterate = SolveProgress(at, numbers, numbers, active, count, unit)
    return _State(_without_lower(progress), _Solve(iterate, no), _BEFORE_START)
