"""A regularisation path with warm starts: each solution starts from the last one."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.numerics import stop_gradient
from kernax.core.base.solution import Solution
from kernax.core.learner.expansion import KernelExpansion

Fit = Callable[[Array, KernelExpansion | None], Solution[KernelExpansion]]


def regularisation_path(fit: Fit, values: ArrayLike) -> Solution[KernelExpansion]:
    """Fits a path of penalties with warm starts: `fit(values[0], None)`, `fit(values[1], f_0)`, ...

    Solutions for similar penalties are similar, so that an iteration needs fewer steps from the
    last one: over 16 ridges in five decades, a logistic regression takes two thirds of the Newton
    steps that it takes from zero; over as many C, a support vector machine takes 0.74 to 0.97 of
    its steps, which hardly pays. Solutions are the same up to the tolerance. For ridge regression
    there is `ridge_path`, which needs no order.

    Arguments:
        fit: `fit(value, start)`, a learner of one kernel and one batch of points, such as `lambda
            ridge, start: kernax.kernel_logistic(kernel, X, y, ridge, start=start)`. The kernel and
            the points must not depend on the value.
        values: (r,), in an order in which the solutions change slowly: from the largest penalty to
            the smallest, which is from the smallest C to the largest.

    Returns:
        A `Solution` whose `value` is one `KernelExpansion` with the values as its last output:
        coefficients (n, r), and `values(X_new)` (m, r). `result` and `stats` have one entry for
        each value. It is differentiable in whatever the fit depends on and in the values, as each
        fit is. `jax.jit` of a function that calls it makes one program of all.

    Raises ValueError for values that are not a vector, or a fit that does not return an expansion;
    and whatever the fit raises at the first value. A failure at a later value is a runtime error.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> def fit(ridge, start):
        ...     return kernax.kernel_logistic(kernax.RBF(0.3), X, y, ridge, start=start)
        ...
        >>> path = kernax.selection.regularisation_path(fit, jnp.array([1.0, 0.1]))
        >>> path.value.values(X).shape  # a column for each ridge
        (5, 2)
    """
    values = jnp.asarray(values)
    if values.ndim != 1 or not values.size:
        raise ValueError(
            f"values must be a vector (r,) of at least one value, but has shape {values.shape}"
        )
    first = fit(values[0], None)
    if not isinstance(first, Solution) or not isinstance(first.value, KernelExpansion):
        raise ValueError(
            "fit must return a Solution whose value is a KernelExpansion, such as that of "
            f"kernax.svm, but returned a {type(first).__name__}: return the whole solution"
        )

    def step(last: tuple[Array, Array], value: Array) -> Any:
        # The start of an iteration affects neither its solution nor its derivative.
        # Path-following: the solution at values[i] starts from that at values[i - 1].
        solution = fit(value, _in_place_of(first.value, *stop_gradient(last)))
        found = (solution.value.coefficients, solution.value.bias)
        return found, (found, solution.result, solution.stats)

    found = (first.value.coefficients, first.value.bias)
    _, later = lax.scan(step, found, values[1:])
    at_first = (found, first.result, first.stats)
    # The first solution and the others, as one batch.
    after = lambda one, others: jnp.concatenate([jnp.asarray(one)[None], others])
    found, result, stats = jax.tree.map(after, at_first, later)
    outputs = (jnp.moveaxis(stack, 0, -1) for stack in found)
    return Solution(_in_place_of(first.value, *outputs), result, stats)


def _in_place_of(f: KernelExpansion, coefficients: Array, bias: Array) -> KernelExpansion:
    """The expansion with other coefficients, of the same kernel and points."""
    return KernelExpansion(f.kernel, f.points, coefficients, bias)
