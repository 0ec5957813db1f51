"""Learns kernels of scikit-learn by theta, the logarithms of their parameters, within bounds."""

import warnings
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import Kernel as TheirKernel

from kernax.core.base.parameters import parameters
from kernax.selection.recipes.data_starts import distance_ranges
from kernax.sklearn.kernels import of_dtype
from kernax.sklearn.translation import Parts, translated

_LENGTHS = ("length_scale", "periodicity")
_DEFAULT = (1e-5, 1e5)  # scikit-learn's bounds
_STOPPING = {"ftol": 1e-13, "gtol": 1e-6}  # in nats; scikit-learn stops at 2e-9 and 1e-5
_NATS = 0.1  # per unit of theta: a gradient below that is no reason to warn


class ThetaLoss:
    """A loss of models as a function of theta, with its gradient.

    Every parameter p of the translated kernel is `exp(s.theta)` up to a factor: a lengthscale with
    one entry of s, a variance `sigma_0^2` with a two. Then `dp / dtheta_j = s_j p`.

    Arguments:
        kernel: a scikit-learn kernel with some parameters that are not "fixed".
        columns: the number of columns of the points.
        dtype: the dtype of the points, which must be JAX's current precision.
        model_of: the model with a kernel and the noise of its `WhiteKernel`s.
        loss: `loss(model, *args)`, to be minimised, in nats.
    """

    def __init__(
        self,
        kernel: TheirKernel,
        columns: int,
        dtype: Any,
        model_of: Callable[[Parts], Any],
        loss: Callable[..., Array],
        args: tuple,
    ):
        self.kernel = kernel
        self._columns = columns
        self._dtype = dtype
        self._model_of = model_of
        self._loss = loss
        self._args = args
        self._slopes = [
            self._slope(kernel.theta, moved) for moved in kernel.theta + np.eye(len(kernel.theta))
        ]

    def parts(self, theta: Float[np.ndarray, " p"]) -> Parts:
        """The translated kernel and the noise at theta."""
        parts = translated(self.kernel.clone_with_theta(theta), self._columns)
        return parts._replace(kernel=of_dtype(parts.kernel, self._dtype))

    def _slope(self, theta: np.ndarray, moved: np.ndarray) -> dict[str, np.ndarray]:
        """The s_j of all parameters, by their paths, for the given j."""
        here = parameters(self._model_of(self.parts(theta)))
        there = parameters(self._model_of(self.parts(moved)))
        slopes = {}
        for a, b in zip(here, there):
            before = np.asarray(a.value, float)
            after = np.asarray(b.value, float)
            is_moved = before != after
            ratio = np.where(is_moved, after, 1) / np.where(is_moved, before, 1)
            slopes[a.path] = np.round(np.log(ratio))
        return slopes

    def __call__(self, theta: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
        """The loss and its gradient; inf and zeros where it is not finite."""
        model = self._model_of(self.parts(theta))
        value, gradients = _value_and_gradient(self._loss, model, self._args)
        of_logarithms = {
            at.path: np.asarray(at.value, float) * np.asarray(slope.value, float)
            for at, slope in zip(parameters(model), parameters(gradients))
        }
        gradient = np.array(
            [
                sum(np.sum(slope * of_logarithms[path]) for path, slope in slopes.items())
                for slopes in self._slopes
            ]
        )
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            return np.inf, np.zeros_like(gradient)
        return float(value), gradient


@eqx.filter_jit
def _value_and_gradient(loss: Callable[..., Array], model: Any, args: tuple) -> tuple:
    return eqx.filter_value_and_grad(loss)(model, *args)


def learned_within_bounds(
    loss: ThetaLoss,
    X: Any,
    restarts: int,
    generator: np.random.RandomState,
    optimiser: Callable[..., tuple] | None = None,
) -> TheirKernel:
    """The kernel with the smallest loss, starting from its own theta and from random ones.

    The random ones are drawn uniformly between the bounds, the same as in scikit-learn. If a bound
    is not finite, lengthscales and periods are drawn from the smallest to the largest distance
    between points, other parameters within scikit-learn's default bounds.

    Arguments:
        optimiser: None for L-BFGS-B; or a function that scikit-learn would take, which is called as
            `optimiser(objective, start, bounds=bounds)` and returns the best theta with its loss.
            `objective(theta, eval_gradient=True)` is the loss and its gradient, or the loss alone.
    """
    kernel = loss.kernel
    # The ends of each element of theta between which starts are drawn.
    of_points, of_columns = distance_ranges(np.asarray(X, float))
    ends = []
    for parameter in kernel.hyperparameters:
        if parameter.fixed:
            continue
        of_data = np.broadcast_to(np.array(_DEFAULT)[:, None], (2, parameter.n_elements))
        if parameter.name.endswith(_LENGTHS):
            of_data = of_columns if parameter.n_elements > 1 else of_points[:, None]
        ends.append(np.log(of_data))
    given = kernel.bounds.T
    low, high = np.where(np.isfinite(given), given, np.concatenate(ends, axis=1))
    high = np.maximum(low, high)
    starts = [kernel.theta, *(generator.uniform(low, high) for _ in range(restarts))]
    if optimiser is None:
        inside = [np.clip(start, *kernel.bounds.T) for start in starts]
        options = {"method": "L-BFGS-B", "jac": True, "options": _STOPPING}
        found = [
            scipy.optimize.minimize(loss, start, bounds=kernel.bounds, **options)
            for start in inside
        ]
    else:

        def objective(theta: Any, eval_gradient: bool = True) -> Any:
            value, gradient = loss(np.asarray(theta, float))
            return (value, gradient) if eval_gradient else value

        found = []
        for start in starts:
            theta, value = optimiser(objective, start, bounds=kernel.bounds)
            given = {"x": np.asarray(theta), "fun": float(value), "success": True}
            found.append(scipy.optimize.OptimizeResult(given))
    best = min(found, key=lambda result: result.fun)
    if not best.success and np.max(np.abs(best.jac), initial=0) > _NATS:
        warnings.warn(
            f"learning the kernel ended early: {best.message}", ConvergenceWarning, stacklevel=2
        )
    return cast(TheirKernel, kernel.clone_with_theta(best.x))
