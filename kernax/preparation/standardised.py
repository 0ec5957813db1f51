"""A fitted function between raw points and the units of its target."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.printing import Printed
from kernax.core.base.solution import Solution
from kernax.gp.approximation import ApproximatePosterior
from kernax.gp.process import GaussianProcess
from kernax.preparation.standards import Standards, standards_of


class Standardised(Printed):
    """A fitted function with standardised inputs and target, `x ->
    target.restored(function(inputs.standardised(x)))`: a function of one raw point.

    Attributes:
        function: the function fitted to standardised points and targets: an expansion, a
            `GaussianProcess`, an `ApproximatePosterior`, with the mean of its latent function as
            the value, or any function of a point.
        inputs: the standards of the columns of points; None leaves points, such as strings,
            unchanged.
        target: the standards of the target, () or (outputs,); None leaves values, such as log odds,
            unchanged.

    For a batch of points use `f.values(X)`, which standardises NumPy arrays in float64 in any mode,
    or `jax.vmap(f)(X)`. `kernax.save` can save it.

    Examples:
        >>> standards = kernax.preparation.Standards(jnp.array([10.0]), jnp.array([2.0]))
        >>> f = kernax.preparation.Standardised(lambda x: x[0], inputs=standards)
        >>> float(f(jnp.array([14.0])))
        2.0
    """

    function: Any
    inputs: Standards | None = None
    target: Standards | None = None

    def __check_init__(self):
        if isinstance(self.function, Solution):
            raise ValueError("a function is needed, but got a Solution: its .value is the function")
        if not callable(self.function) and not isinstance(self.function, eqx.Module):
            raise ValueError(f"function must be a function, but is {str(self.function)[:60]!r}")

    def point(self, x: PyTree) -> PyTree:
        """A point, or a batch of points, as the function takes it."""
        return x if self.inputs is None else self.inputs.standardised(x)

    def __call__(self, x: PyTree) -> Float[Array, "*outputs"]:
        """The value at one raw point, in the units of the target; for a process, its mean."""
        return self._in_units(_value_of(self.function)(self.point(x)))

    def values(self, X: PyTree) -> Float[Array, "m *outputs"]:
        """The values at a batch of m raw points, of shape (m, *outputs)."""
        Z = self.point(X)
        at_once = getattr(self.function, "values", None)
        if at_once is not None:
            return self._in_units(at_once(Z))
        return self._in_units(jax.vmap(_value_of(self.function))(jax.tree.map(jnp.asarray, Z)))

    def mean(self, x: PyTree) -> Float[Array, "*outputs"]:
        """The value at one raw point, under the name that it has in a process."""
        return self(x)

    def variance(self, x: PyTree) -> Float[Array, "*outputs"]:
        """The variance of f at one raw point, in squared units of the target, without noise.

        The variance of a target is `f.variance(x) + noise * f.target.scale**2`, with the noise that
        the function was fitted with. Raises ValueError for a function without a variance.
        """
        return self._in_squared_units(self._method("variance")(self.point(x)))

    def predict(self, x: PyTree) -> tuple[Float[Array, "*outputs"], Float[Array, "*outputs"]]:
        """The mean and the variance of a target at one raw point, noise included, in its units and
        in squared ones. Raises ValueError for a function without them.
        """
        mean, variance = self._method("predict")(self.point(x))
        return self._in_units(mean), self._in_squared_units(variance)

    def _in_units(self, value: Any) -> Any:
        return value if self.target is None else self.target.restored(value)

    def _in_squared_units(self, value: Array) -> Array:
        if self.target is None:
            return value
        return value * jnp.asarray(self.target.scale, value.dtype) ** 2

    def _method(self, name: str) -> Callable:
        method = getattr(self.function, name, None)
        if method is None:
            raise ValueError(
                f"{name}: the function inside is of type {type(self.function).__name__}, which has "
                f"no {name}"
            )
        return method


def _value_of(function: Any) -> Callable:
    """The function with the values to restore: for a process or a posterior, its mean."""
    if isinstance(function, ApproximatePosterior):
        return function.process.mean
    return function.mean if isinstance(function, GaussianProcess) else function


def standardised_fit(
    fit: Callable[[PyTree, Any, Any], Any],
    X: PyTree,
    y: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    target: bool = True,
) -> Standardised:
    """Standardises points and targets, fits them, and returns a function between the units of the
    data.

    Means and deviations are weighted and computed from the given rows, so that inside
    `kernax.cross_validate` each fold has its own, without its held-out rows:

        def fit(X, y, weights):
            return kernax.kernel_ridge(kernel, X, y, ridge, weights=weights).value

        f = standardised_fit(fit, X, y)
        f(x)  # in the units of y
        kernax.cross_validate(partial(standardised_fit, fit), error, X, y, folds)

    Arguments:
        fit: `fit(X, y, weights) -> function`.
        X: (n, d), to standardise by columns. Other kinds of points, such as strings, indices or
            tuples, stay unchanged.
        y: (n,) or (n, outputs).
        weights: (n,) >= 0, passed to `fit` unchanged. Rows of weight zero are ignored.
        target: whether y is standardised: False for signs, one-hot columns and counts.

    Constant columns and targets are centred, and not scaled. It runs under `jit`, `vmap` and
    `grad`, and is differentiable in X, y, weights, and whatever `fit` is differentiable in.

    Raises ValueError as `standards_of` does, and whatever `fit` raises.

    Examples:
        >>> X = jnp.array([[100.0], [200.0], [300.0], [400.0], [500.0]])
        >>> y = 3.0 * X[:, 0] + 10.0
        >>> def fit(X, y, weights):
        ...     return kernax.kernel_ridge(kernax.Linear(), X, y, ridge=1e-6, weights=weights).value
        ...
        >>> f = kernax.preparation.standardised_fit(fit, X, y)
        >>> round(float(f(jnp.array([250.0]))), 1)  # in the units of y
        760.0
    """
    inputs = standards_of(X, weights) if _are_columns(X) else None
    of_target = standards_of(y, weights) if target else None
    points = X if inputs is None else inputs.standardised(_array_of(X))
    targets = y if of_target is None else of_target.standardised(_array_of(y))
    return Standardised(fit(points, targets, weights), inputs, of_target)


def _are_columns(X: Any) -> bool:
    return not isinstance(X, (eqx.Module, tuple, dict)) and np.ndim(X) == 2


def _array_of(values: Any) -> Any:
    return values if isinstance(values, jax.Array) else np.asarray(values)
