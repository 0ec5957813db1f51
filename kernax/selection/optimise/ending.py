"""How learning ends: exceptions and warnings that say what happened."""

import numpy as np

from kernax.core.base.numerics import is_concrete
from kernax.core.base.solution import RESULTS, Solution, finish, warn
from kernax.errors import RunawayWarning


def ended(solution: Solution, throw: bool, verb: str) -> Solution:
    """`finish`, and a warning that names the parameters that ended at their bounds.

    Only where these are known.
    """
    if not is_concrete(solution.stats):
        return finish(solution, throw, verb)
    names = ", ".join(path for path, there in solution.stats["runaways"].items() if there)
    finish(solution, throw, f"{verb}: {_hint(solution, names)}")
    if names:
        warn(
            f"{names} moved eight powers of ten away from the start and was stopped there: take "
            "shorter steps, or, if the loss hardly depends on it any more, leave it out, freeze it "
            "or add a prior",
            RunawayWarning,
        )
    return solution


def _hint(solution: Solution, names: str) -> str:
    """What to do about a failure; `names` are of the parameters at their bounds."""
    if not np.isfinite(solution.stats["losses"][0]):
        return (
            "the loss is not finite at the start: look for NaN in args, and for parameters that it "
            "cannot take."
        )
    if not np.isfinite(solution.stats.get("validation_loss", 0.0)):
        return (
            "the validation loss is finite at no step: look for NaN in the args of validation, and "
            "for a model that it cannot take."
        )
    if solution.result == RESULTS.diverged:
        return (
            f"{names} moved eight powers of ten away, and no step improved on the start: take "
            "shorter steps."
        )
    if solution.result == RESULTS.stagnation:
        return (
            "no step moved a parameter, although the gradient is not zero: what the optimiser "
            "makes of it is less than rounding, or out of the range of floats. Multiply the loss "
            "or the learning rate by a constant, or use optax.lbfgs(), whose steps do not depend "
            "on it."
        )
    return "pass throw=False to get the best model before that."
