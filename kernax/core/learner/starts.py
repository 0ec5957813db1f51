"""Starting points of iterative learners: solutions of similar problems."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import LearnerProblem


def coefficients_of(start: KernelExpansion | None, problem: LearnerProblem) -> Array | None:
    """The coefficients to start from, if any. Raises ValueError for another shape."""
    shape = problem.y.shape
    if start is None:
        return None
    if not isinstance(start, KernelExpansion):
        came = f"is a {type(start).__name__}"
    elif start.coefficients.shape != shape:
        came = f"has coefficients of shape {start.coefficients.shape}"
    else:
        return start.coefficients.astype(problem.dtype)
    raise ValueError(
        f"start must be a KernelExpansion with coefficients of shape {shape}, such as the value of "
        f"the last solution, but {came}"
    )


def coefficients_and_bias_of(
    start: KernelExpansion | None, problem: LearnerProblem, bias: bool
) -> Float[Array, " m"] | None:
    """Coefficients and bias in one array (n + 1,); the bias is zero for a learner without one."""
    coefficients = coefficients_of(start, problem)
    if start is None or coefficients is None:
        return None
    # The unknowns of Newton's method are x = (a, b), with f = K a + b.
    constant = start.bias.astype(problem.dtype) if bias else jnp.zeros_like(coefficients[0])
    return jnp.append(coefficients, constant)
