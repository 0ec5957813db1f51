"""Gaussian process regression with scikit-learn's arguments, and the base class of both
processes.
"""

import abc
from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import issparse
from sklearn.base import MultiOutputMixin, clone
from sklearn.gaussian_process.kernels import RBF as TheirRBF
from sklearn.gaussian_process.kernels import ConstantKernel
from sklearn.gaussian_process.kernels import Kernel as TheirKernel
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from kernax.core.base.parameters import check_count
from kernax.core.base.solution import RESULTS, finish, warn
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.linalg.cholesky import cholesky_factor
from kernax.core.operators.gram import gram
from kernax.core.operators.operators import DenseGram
from kernax.errors import ConditionWarning
from kernax.gp.process import GaussianProcess
from kernax.gp.regression import condition, log_marginal_likelihood
from kernax.preparation.standards import Standards, standards_of
from kernax.selection.recipes.regression_recipe import ProcessModel, learn_process
from kernax.sklearn.base import (
    NO_TARGETS,
    RowsEstimator,
    check_one_or_each,
    check_penalty,
    encoded,
    key_of,
)
from kernax.sklearn.sparse_tables import dense
from kernax.sklearn.targets import NumberEstimator
from kernax.sklearn.theta import ThetaLoss, learned_within_bounds
from kernax.sklearn.translation import written_back

_OPTIMISER = "fmin_l_bfgs_b"  # scikit-learn's word for it
_SHARE_OF_NOISE = 0.1  # the share of the variance of targets where learning of the noise begins


def minus_evidence(model, X, y, weights, alpha):
    """Minus the log evidence, with the noise alpha in addition to the model's."""
    noise = model.noise + alpha
    return -log_marginal_likelihood(model.kernel, X, y, noise, weights=weights)


class ProcessEstimator(RowsEstimator):
    """The base class of both processes: which kernel is learned, from where, and which of its
    parameters.
    """

    _learns_by = "evidence"
    _not_precomputed = (
        "lacks k(x, x) of new rows, which the variance needs: use KernelRidge, which has the "
        "same mean"
    )

    @property
    def _is_learned(self):
        if not (self.optimizer in (None, _OPTIMISER) or callable(self.optimizer)):
            raise ValueError(
                f"optimizer must be {_OPTIMISER!r}, a function or None, but is {self.optimizer!r}"
            )
        if callable(self.optimizer) and not isinstance(self._given_kernel, TheirKernel):
            raise ValueError(
                "optimizer may be a function for kernels of scikit-learn: kernels of kernax are "
                "learned by any optimiser with kernax.minimise"
            )
        return not (self.learn is None or self.optimizer is None)

    def _checked(self, X, y=NO_TARGETS, sample_weight=None, **checks):
        X, y, sample_weight = super()._checked(X, y, sample_weight, **checks)
        return dense(X, self._dtype) if issparse(X) else X, y, sample_weight

    @property
    def _restarts(self):
        """The number of random starts of learning."""
        return check_count(self.n_restarts_optimizer, "n_restarts_optimizer", 0)

    @abc.abstractmethod
    def _theta_loss(self, kernel, points, targets, weights, /) -> ThetaLoss:
        """Minus the log evidence of rows as a function of the theta of a scikit-learn kernel."""

    def _learned_parts(self, points, targets, weights) -> Any:
        """The scikit-learn kernel, translated, with the largest evidence within its bounds.

        Warns, as scikit-learn does, if a parameter ends at a bound.
        """
        of_theta = self._theta_loss(self._given_kernel, points, targets, weights)
        generator = check_random_state(self.random_state)
        optimiser = self.optimizer if callable(self.optimizer) else None
        kernel = learned_within_bounds(of_theta, points, self._restarts, generator, optimiser)
        kernel._check_bounds_params()
        return of_theta.parts(kernel.theta)

    def log_marginal_likelihood(self, theta=None, eval_gradient=False, clone_kernel=True):
        """The log evidence of the fitted model, or at a theta of a scikit-learn kernel.

        Arguments:
            theta: the logarithms of the parameters of `kernel_` that are not "fixed"; None stands
                for the fitted ones.
            eval_gradient: whether to return the gradient in theta as well.
            clone_kernel: False also sets theta in `kernel_`; predictions do not change.
        """
        check_is_fitted(self, "log_marginal_likelihood_value_")
        if theta is None:
            if eval_gradient:
                raise ValueError("Gradient can only be evaluated for theta!=None")
            return self.log_marginal_likelihood_value_
        if not isinstance(self.kernel_, TheirKernel):
            raise ValueError(
                "theta requires a kernel of scikit-learn: for others leave it out, or use "
                "kernax.log_marginal_likelihood"
            )
        theta = np.asarray(theta, float)
        with self._computing():
            points = jnp.asarray(self.X_train_)
            loss = self._theta_loss(self.kernel_, points, self._fitted_targets, self._weights)
            value, gradient = loss(theta)
        if not clone_kernel:
            self.kernel_.theta = theta
        evidence = np.float64(-value)
        return (evidence, -gradient) if eval_gradient else evidence

    def _shown(self, kernel, noise_ratio):
        """The kernel with the learned parameters: of scikit-learn or of kernax, like the given
        one.
        """
        given = self._given_kernel
        if not isinstance(given, TheirKernel):
            return kernel
        return written_back(given, kernel, noise_ratio)


@dataclass(eq=False, repr=False)
class GaussianProcessRegressor(MultiOutputMixin, ProcessEstimator, NumberEstimator):
    """Gaussian process regression: `kernax.condition` with the arguments of
    `sklearn.gaussian_process.GaussianProcessRegressor`.

    Arguments:
        kernel: a kernel of kernax or of `sklearn.gaussian_process.kernels`, where "fixed"
            parameters are not learned, and others within their bounds; a name; or None for
            scikit-learn's `1.0 * RBF(1.0)`. As in scikit-learn, the noise of a `WhiteKernel` is
            part of the deviations of predictions, and `alpha` is not.
        alpha: the variance of the noise, >= 0, a number or one for each row.
        learn: "evidence" learns the kernel's parameters by gradients of the evidence; None leaves
            them unchanged, as `optimizer=None` does. For kernels other than scikit-learn's the
            noise is learned as well, from alpha or a tenth of the variance of y, whichever is
            larger: it replaces alpha, and is part of the deviations of predictions.
        optimizer: "fmin_l_bfgs_b"; None for `learn=None`; or, for kernels of scikit-learn, a
            function `optimizer(objective, theta, bounds=bounds)` as scikit-learn takes it.
        n_restarts_optimizer: the number of random starts in addition to the given kernel:
            log-uniform between the bounds for a kernel of scikit-learn, the same starts as there;
            over the range of the data for other kernels, with lengthscales from the smallest to the
            largest distance between rows.
        normalize_y: predict in units in which y has mean zero and variance one.
        random_state: the seed of the starts.
        n_targets: the number of columns of y, for predictions before `fit`; None means one.
        copy_X_train: accepted, without effect.
        missing: "raise" raises ValueError for targets that are NaN; "drop" gives their rows weight
            zero, also if only one of several outputs is NaN.

    Before `fit`, predictions are those of the prior. Attributes: `kernel_` (as given, with the
    learned parameters), `process_` (the posterior, a `GaussianProcess` of the targets, normalised
    if `normalize_y`), `log_marginal_likelihood_value_`, `alpha_` (the coefficients), `noise_`,
    `X_train_`, `y_train_`, `L_`.
    """

    kernel: Any = None
    _: KW_ONLY
    alpha: Any = 1e-10
    optimizer: Any = "fmin_l_bfgs_b"
    n_restarts_optimizer: int = 0
    normalize_y: bool = False
    copy_X_train: bool = True
    n_targets: int | None = None
    random_state: Any = None
    learn: str | None = "evidence"
    missing: str = "raise"

    @property
    def _given_kernel(self):
        return ConstantKernel() * TheirRBF() if self.kernel is None else self.kernel

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags

    def fit(self, X, y, sample_weight=None):
        """Fits numbers y, (n,) or (n, outputs), with powers of their likelihoods as weights.

        A single column (n, 1) is treated as (n,).
        """
        X, y, weights = self._checked_numbers(X, y, sample_weight)
        y = y[:, 0] if y.shape[1:] == (1,) else y
        outputs = 1 if y.ndim == 1 else y.shape[1]
        if self.n_targets not in (None, outputs):
            raise ValueError(
                "The number of targets seen in `y` is different from the parameter `n_targets`. "
                f"Got {outputs} != {self.n_targets}."
            )
        return self._fit(X, self._normalised(y, weights), weights)

    def _fit_rows(self, rows, X, y):
        prior = GaussianProcess(rows.given_kernel)
        noise = self.noise_ if np.ndim(self.noise_) == 0 else rows.column(self.noise_)
        targets = rows.column(y)
        solution = condition(prior, rows.given, targets, noise, weights=rows.weights, throw=False)
        if bool(solution.result == RESULTS.inaccurate):
            # As for scikit-learn's default alpha and a smooth kernel.
            warn(
                "GaussianProcessRegressor: rounding leaves few digits, because the matrix is "
                "nearly singular: a larger alpha makes it exact",
                ConditionWarning,
            )
        else:
            # `condition` has already warned of jitter in a successful solve.
            hint = "GaussianProcessRegressor: a larger alpha may help."
            finish(solution, True, hint, quiet=True)
        self.process_ = rows.restored(solution.value)
        self.log_marginal_likelihood_value_ = float(solution.stats["log_evidence"])
        self.alpha_ = np.asarray(self.process_.mean.coefficients)[: rows.n]
        self.X_train_ = X
        self.y_train_ = self._fitted_targets = y
        self._prior_kernel = self.kernel_
        ratio = self._predicted_noise / self._noise if self._noise else 1.0
        self.kernel_ = self._shown(self.kernel_, ratio)

    def _normalised(self, y, weights):
        """The targets to learn; stores the numbers that restore predictions."""
        outputs = y.shape[1:]
        standards = Standards(np.zeros(outputs), np.ones(outputs))
        if self.normalize_y:
            standards = standards_of(y, weights)
        self._y_train_mean = np.asarray(standards.centre, y.dtype)
        self._y_train_std = np.asarray(standards.scale, y.dtype)
        return standards.standardised(y)

    def _kernel_to_fit(self, kernel, points, y, weights):
        """Returns the kernel, learned if `learn=` says so. Sets `noise_`, the variance in the fit,
        and `_predicted_noise`, its part that predictions include.

        The noise of `WhiteKernel`s is added to alpha; that of kernels of kernax replaces it.
        """
        alpha = self._checked_alpha(len(y))
        self._weights = weights
        self._predicted_noise = self._noise
        self.noise_ = alpha + self._noise
        if not self._is_learned:
            return kernel
        if isinstance(self._given_kernel, TheirKernel):
            # A scikit-learn kernel with learned parameters; sets `noise_` and its learned part.
            if len(self._given_kernel.theta) == 0:
                return kernel
            parts = self._learned_parts(points, y, weights)
            self._predicted_noise = float(parts.noise)
            self.noise_ = alpha + self._predicted_noise
            return parts.kernel
        if alpha.ndim:
            raise ValueError(
                "learn='evidence' takes one alpha for all rows, with a kernel of kernax: or pass "
                "learn=None"
            )
        # Far below the true noise the evidence has another maximum, without noise.
        variance = np.mean(np.asarray(standards_of(y, weights).scale) ** 2)
        noise = max(float(alpha), _SHARE_OF_NOISE * float(variance))
        start = ProcessModel(kernel, noise)
        model = learn_process(
            start,
            points,
            y,
            weights=weights,
            starts=1 + self._restarts,
            key=key_of(self.random_state),
            trainable=self._free(start),
        ).value
        self._predicted_noise = self.noise_ = float(model.noise)
        return model.kernel

    def _theta_loss(self, kernel, points, y, weights, /):
        args = points, jnp.asarray(y), weights, self._checked_alpha(len(y))
        return ThetaLoss(
            kernel,
            self.n_features_in_,
            self._dtype,
            lambda parts: ProcessModel(parts.kernel, parts.noise),
            minus_evidence,
            args,
        )

    def _checked_alpha(self, n):
        check_one_or_each(self.alpha, n, "rows")
        alpha = np.asarray(self.alpha, self._dtype)
        check_penalty(alpha, allows_zero=True)
        return alpha

    def predict(self, X, return_std=False, return_cov=False):
        """Means (m,), or (m, outputs), of the targets without noise.

        With `return_std` also their standard deviations, or with `return_cov` the covariance matrix
        (m, m), both with an axis for the outputs if there are several.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        if not hasattr(self, "process_"):
            # An estimator like this one with the prior for rows such as those of X as its
            # process.
            other = clone(self)
            checked, _, _ = other._checked(X)
            other._points(checked)
            outputs = () if self.n_targets in (None, 1) else (self.n_targets,)
            other._y_train_mean = np.zeros(outputs, other._dtype)
            other._y_train_std = np.ones(outputs, other._dtype)
            other._predicted_noise = other._noise
            other.process_ = GaussianProcess(other.kernel_)
            return other.predict(X, return_std, return_cov)
        points, n, X = self._new_points(X)
        with self._computing():
            process = self._at(X, self.process_)
            points = jax.tree.map(jnp.asarray, points)
            mean = self._means(process, points)[:n] * self._y_train_std + self._y_train_mean
            if return_std:
                of_function = np.asarray(jax.vmap(process.variance)(points))[:n]
                variance = of_function + self._predicted_noise
                return mean, self._in_units(np.sqrt(variance), self._y_train_std)
            if return_cov:
                covariance = np.asarray(gram(process.covariance, points))[:n, :n]
                white = self._predicted_noise * np.eye(n, dtype=self._dtype)
                return mean, self._in_units(covariance + white, self._y_train_std**2)
        return mean

    def _means(self, process, points):
        """The means of the process at points, normalised; zero for a prior."""
        if isinstance(process.mean, KernelExpansion):
            return np.asarray(process.mean.values(points))
        n = len(jax.tree.leaves(points)[0])
        return np.zeros((n, *np.shape(self._y_train_mean)), self._dtype)

    @property
    def L_(self):
        """The lower Cholesky factor of `K + diag(noise)` of the fitted rows, computed on access. A
        row of weight w has the noise `noise / w`, and rows of weight zero are left out.
        """
        if not hasattr(self, "process_"):
            raise AttributeError("L_ exists after fit")
        n = len(self.y_train_)
        weights = np.ones(n) if self._weights is None else np.asarray(self._weights)
        kept = np.flatnonzero(weights)
        noise = np.broadcast_to(self.noise_, (n,))[kept] / weights[kept]
        with self._computing():
            points = encoded(self.X_train_, self.alphabet_) if self._of_texts else self.X_train_
            stack = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[kept]), points)
            K = gram(self._prior_kernel, stack)
            factor = cholesky_factor(DenseGram(K + jnp.diag(jnp.asarray(noise, self._dtype))))
            return np.tril(np.asarray(factor.lower))

    def _in_units(self, values, units):
        """Values in the units of the targets, with another axis if there are several."""
        return (values[..., None] * units).astype(self._dtype) if units.ndim else values * units

    def sample_y(self, X, n_samples=1, random_state=0):
        """Joint draws of the targets at rows of X, (m, n_samples), or (m, outputs, n_samples)."""
        mean, covariance = self.predict(X, return_cov=True)
        generator = check_random_state(random_state)
        if mean.ndim == 1:
            return generator.multivariate_normal(mean, covariance, n_samples).T
        draws = [
            generator.multivariate_normal(mean[:, j], covariance[..., j], n_samples).T
            for j in range(mean.shape[1])
        ]
        return np.stack(draws, axis=1)
