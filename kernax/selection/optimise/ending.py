"""The end of learning: its exceptions and warnings."""

import numpy as np

from kernax.core.base.numerics import is_concrete
from kernax.core.base.solution import RESULTS, Solution, finish, warn
from kernax.errors import RunawayWarning


def ended(solution: Solution, throw: bool, verb: str) -> Solution:
    """`finish`, plus a warning that names the parameters at their bounds.

    The warning requires concrete values.
    """
    if not is_concrete(solution.stats):
        return finish(solution, throw, verb)
    names = ", ".join(path for path, there in solution.stats["runaways"].items() if there)
    finish(solution, throw, f"{verb}: {_hint(solution, names)}")
    if names:
        warn(
            f"{names} moved eight powers of ten away from the start and was stopped there: take "
            "shorter steps, or, if the loss hardly depends on it any more, leave it out, freeze "
            "it or add a prior",
            RunawayWarning,
        )
    return solution


def _hint(solution: Solution, names: str) -> str:
    """The advice after a failure; `names` are the names of the parameters at their bounds."""
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
            "no step moved a parameter, although the gradient is not zero: the steps of the "
            "optimiser are below rounding, or out of the range of floats. Multiply the loss or "
            "the learning rate by a constant, or use optax.lbfgs(), whose steps do not depend on "
            "it."
        )
    return "pass throw=False to get the best model before that."
