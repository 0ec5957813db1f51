"""Mean functions of Gaussian processes."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.boundary import as_scalar
from kernax.core.base.functions import as_module
from kernax.core.base.intervals import REAL
from kernax.core.base.numerics import dot, is_concrete
from kernax.core.base.parameters import data, real
from kernax.core.base.printing import Printed, misplaced
from kernax.core.functionals.linear_functionals import OfFunctionals, applied
from kernax.core.kernel.kernel import AbstractKernel, parts_of
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import LearnerProblem


class FixedMean(Printed):
    """The mean `m(x) = value`, which is not learned."""

    value: Float[Array, "*outputs"] = data()

    def __call__(self, x: PyTree) -> Array:
        return self.value


class ConstantMean(Printed):
    """The mean `m(x) = value`, a parameter.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = 3.0 + jnp.sin(6.0 * X[:, 0])
        >>> process = kernax.GaussianProcess(kernax.RBF(0.3), mean=kernax.ConstantMean(3.0))
        >>> posterior = kernax.condition(process, X, y, noise=0.01).value
        >>> round(float(posterior.mean(jnp.array([9.0]))), 2)  # far from the data
        3.0
    """

    value: Float[ParameterArray, ""] = real(default=0.0)

    def __call__(self, x: PyTree) -> Array:
        return self.value


class LinearMean(Printed):
    """The mean `m(x) = slope . x + value`, both parameters; slope has one entry per dimension.

    Examples:
        >>> mean = kernax.LinearMean(slope=[2.0], value=1.0)
        >>> float(mean(jnp.array([0.5])))
        2.0
        >>> process = kernax.GaussianProcess(kernax.RBF(0.3), mean)
        >>> float(process.mean(jnp.array([0.5])))
        2.0
    """

    slope: Float[ParameterArray, " d"] = real()
    value: Float[ParameterArray, ""] = real(default=0.0)

    def __call__(self, x: PyTree) -> Array:
        if np.shape(x) != np.shape(self.slope):
            raise ValueError(
                f"LinearMean.slope has shape {np.shape(self.slope)}, but points have shape "
                f"{np.shape(x)}: pass one slope per dimension"
            )
        return dot(self.slope, x) + self.value


class ShiftedMean(eqx.Module):
    """`m(x) = prior(x) + update(x)`."""

    prior: Callable
    update: Callable

    def __call__(self, x: PyTree) -> Array:
        return self.prior(x) + self.update(x)


class MeanOfFunctionals(eqx.Module):
    """`L m`, a linear functional of a mean m, as `OfFunctionals` is one of a kernel."""

    mean: Callable

    def __call__(self, x: PyTree) -> Array:
        return applied(x, self.mean)


def mean_for_kernel(kernel: Any, mean: Any) -> Callable:
    """The mean of a process with that kernel; for `OfFunctionals`, functionals of the mean."""
    module = as_mean(mean)
    is_zero = is_concrete(mean) and eqx.is_array_like(mean) and not np.any(mean)
    is_functional = isinstance(mean, MeanOfFunctionals)
    if is_zero or is_functional or not _takes_functionals(kernel):
        return module
    return MeanOfFunctionals(module)


def _takes_functionals(kernel: AbstractKernel) -> bool:
    """Whether a kernel is `OfFunctionals`, or made of one, such as a scaled one or a sum."""
    return isinstance(kernel, OfFunctionals) or any(map(_takes_functionals, parts_of(kernel)))


def as_mean(mean: Any) -> Callable:
    """A mean as a module; numbers become constants that are not learned."""
    if isinstance(mean, type):
        raise ValueError(
            f"mean must be a number or a function of a point, but is the class {mean.__name__}: "
            "call it"
        )
    if callable(mean):
        return as_module(mean, "mean")
    if not eqx.is_array_like(mean):
        came = misplaced(mean) or repr(mean)
        raise ValueError(f"mean must be a number or a function of a point, but is {came}")
    return FixedMean(as_scalar(mean, jnp.result_type(mean, float), "mean", REAL))


def means_at(mean: Callable, problem: LearnerProblem) -> Float[Array, "n p"]:
    """`m(X)`, one column per output."""
    y = problem.y
    means = jax.vmap(mean)(problem.X)
    if means.shape not in (y.shape[:1], y.shape):
        allowed = "a scalar" if y.ndim == 1 else f"a scalar or shape {y.shape[1:]}"
        raise ValueError(
            f"mean must return {allowed} to go with y of shape {y.shape}, but returns shape "
            f"{means.shape[1:]}"
        )
    return jnp.broadcast_to(means.reshape(problem.n, -1), problem.columns.shape)


def updated_mean(
    mean: Callable, problem: LearnerProblem, a: Float[Array, "m *p"], points: PyTree | None = None
) -> Callable:
    """`m(x) + k(x, X) a`; an expansion with a bias where the prior mean is a fixed number.

    If `points` are given, they replace X.
    """
    points = problem.X if points is None else points
    shape = (len(a), *problem.y.shape[1:])
    fixed = isinstance(mean, FixedMean)
    bias = mean.value if fixed else jnp.zeros((), problem.y.dtype)
    bias = jnp.broadcast_to(bias, shape[1:])
    update = KernelExpansion(problem.kernel, points, a.reshape(shape), bias)
    return update if fixed else ShiftedMean(mean, update)
