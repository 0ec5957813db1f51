"""Gaussian processes for numbers."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax
import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.gaussian_process.kernels import RBF as TheirRBF
from sklearn.gaussian_process.kernels import ConstantKernel
from sklearn.gaussian_process.kernels import Kernel as TheirKernel
from sklearn.utils import check_random_state

from kernax.core.gram import gram
from kernax.core.solution import RESULTS, finish, warn
from kernax.errors import ConditionWarning
from kernax.gp.process import GaussianProcess
from kernax.gp.regression import condition
from kernax.preparation.standards import Standards, standards_of
from kernax.selection.regression import ProcessModel, learn_process
from kernax.sklearn.base import (
    RowsEstimator,
    check_one_or_each,
    check_penalty,
    is_anything_free,
)
from kernax.sklearn.learning import EVIDENCE
from kernax.sklearn.translation import written_back

_OPTIMISER = "fmin_l_bfgs_b"  # scikit-learn's word for it
_SHARE_OF_NOISE = 0.1  # of the variance of targets, where learning begins


def _check_ending(solution):
    """Raises where the solve failed, and warns where rounding leaves few digits of it.

    That is so for scikit-learn's default of alpha and a smooth kernel.
    """
    if bool(solution.result == RESULTS.inaccurate):
        warn(
            "GaussianProcessRegressor: rounding leaves few digits, because the matrix is nearly "
            "singular: a larger alpha makes it exact",
            ConditionWarning,
        )
        return
    finish(solution, True, "GaussianProcessRegressor: a larger alpha may help.")


class ProcessEstimator(RowsEstimator):
    """What both kinds of processes share: which kernel is learned, from where, and what of it."""

    _learns_by = EVIDENCE
    _not_precomputed = (
        "says nothing of k(x, x) of new rows, without which there is no variance: KernelRidge has "
        "the same mean"
    )

    @property
    def _is_learned(self):
        """Whether parameters are learned."""
        if self.optimizer not in (None, _OPTIMISER):
            raise ValueError(
                f"optimizer must be {_OPTIMISER!r} or None, but is {self.optimizer!r}: kernels of "
                "kernax are learned by any optimiser with kernax.minimise"
            )
        return not (self.learn is None or self.optimizer is None)

    def _shown(self, kernel, noise_ratio):
        """The kernel with what was learned: of scikit-learn or of kernax, as the given one is."""
        given = self._given_kernel
        if not isinstance(given, TheirKernel):
            return kernel
        return written_back(given, kernel, noise_ratio)


@dataclass(eq=False, repr=False)
class GaussianProcessRegressor(MultiOutputMixin, RegressorMixin, ProcessEstimator):
    """`kernax.condition` with the arguments of scikit-learn's class of this name.

    Arguments:
        kernel: a kernel of kernax or of `sklearn.gaussian_process.kernels`, of which "fixed"
            parameters are not learned and other bounds have no effect; a name; or None for
            scikit-learn's `1.0 * RBF(1.0)`. The noise of a `WhiteKernel` is noise of the targets:
            it is part of the deviations of predictions, as it is there, and `alpha` is not.
        alpha: the variance of the noise, >= 0, a number or one for each row.
        learn: "evidence" learns the kernel's parameters by gradients of the evidence; None takes
            them as they are, as `optimizer=None` does. Of other kernels than scikit-learn's the
            noise is learned as well, from alpha or a tenth of the variance of y, whichever is
            larger: it takes the place of alpha, and is part of the deviations of predictions.
        optimizer: None for `learn=None`, or "fmin_l_bfgs_b".
        n_restarts_optimizer: how many random starts there are beside the kernel as given.
        normalize_y: predict in units in which y has mean zero and variance one.
        random_state: draws the starts.
        copy_X_train, n_targets: taken, and without effect.

    Attributes: `kernel_` (as given, with what was learned), `process_` (the posterior, a
    `GaussianProcess` of the targets, normalised or not), `log_marginal_likelihood_value_`,
    `alpha_` (the coefficients), `noise_`, `X_train_`, `y_train_`.
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

    @property
    def _given_kernel(self):
        return ConstantKernel() * TheirRBF() if self.kernel is None else self.kernel

    def fit(self, X, y, sample_weight=None):
        """Fits numbers y, (n,) or (n, outputs), with powers of their likelihoods as weights."""
        X, y, weights = self._checked(X, y, sample_weight, multi_output=True, y_numeric=True)
        return self._fit(X, self._normalised(y.astype(self._dtype), weights), weights)

    def _fit_rows(self, rows, X, y):
        self._condition(rows, y)
        self.X_train_ = X
        self.y_train_ = y
        ratio = self._white / self._noise if self._noise else 1.0
        self.kernel_ = self._shown(self.kernel_, ratio)

    def _condition(self, rows, y):
        """The posterior of the rows."""
        prior = GaussianProcess(rows.given_kernel)
        noise = self.noise_ if np.ndim(self.noise_) == 0 else rows.column(self.noise_)
        targets = rows.column(y)
        solution = condition(prior, rows.given, targets, noise, weights=rows.weights, throw=False)
        _check_ending(solution)
        self.process_ = rows.restored(solution.value)
        self.log_marginal_likelihood_value_ = float(solution.stats["log_evidence"])
        self.alpha_ = np.asarray(self.process_.mean.coefficients)[: rows.n]

    def _normalised(self, y, weights):
        """Targets to learn; sets what predictions are brought back by."""
        outputs = y.shape[1:]
        standards = Standards(np.zeros(outputs), np.ones(outputs))
        if self.normalize_y:
            standards = standards_of(y, weights)
        self._y_mean = np.asarray(standards.centre, y.dtype)
        self._y_std = np.asarray(standards.scale, y.dtype)
        return standards.standardised(y)

    def _kernel_to_fit(self, kernel, points, y, weights):
        """With `learn=` that of the largest evidence; sets `noise_`, and how much of it is new.

        That of `WhiteKernel`s comes on top of alpha; that of kernels of kernax takes its place.
        """
        alpha = self._checked_alpha(len(y))
        self._weights = weights
        self._white = self._noise
        self.noise_ = alpha + self._noise
        if not self._is_learned:
            return kernel
        if alpha.ndim:
            raise ValueError("learn='evidence' takes one alpha for all rows: or pass learn=None")
        known, start = self._start(kernel, float(alpha), y, weights)
        free = self._free(start)
        if not is_anything_free(start, free):
            return kernel
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        model = learn_process(
            start,
            points,
            y,
            weights=weights,
            known_noise=known,
            with_priors=False,
            starts=1 + self.n_restarts_optimizer,
            key=jax.random.key(seed),
            trainable=free,
        ).value
        self._white = float(model.noise)
        self.noise_ = known + self._white
        return model.kernel

    def _start(self, kernel, alpha, y, weights):
        """The noise that is known, and the model to learn from, with what is added to it."""
        if self._noise:
            return alpha, ProcessModel(kernel, self._noise)
        if isinstance(self._given_kernel, TheirKernel):
            # Not learned: nothing is added to alpha, in the least number that has a logarithm.
            return alpha, ProcessModel(kernel, float(np.finfo(self._dtype).tiny))
        # Far below the true noise the evidence has a maximum without any.
        variance = np.mean(np.asarray(standards_of(y, weights).scale) ** 2)
        return 0.0, ProcessModel(kernel, max(alpha, _SHARE_OF_NOISE * float(variance)))

    def _checked_alpha(self, n):
        """Alpha as an array, () or (n,). Raises ValueError for another shape, or below zero."""
        check_one_or_each(self.alpha, n, "rows")
        alpha = np.asarray(self.alpha, self._dtype)
        check_penalty(alpha, allows_zero=True)
        return alpha

    def predict(self, X, return_std=False, return_cov=False):
        """Means (m,), or (m, outputs), of the targets without noise.

        With `return_std` their standard deviations as well, or with `return_cov` the covariance
        matrix (m, m), both with an axis for the outputs where there are several.
        """
        if return_std and return_cov:
            raise RuntimeError("at most one of return_std or return_cov can be requested")
        points, n, X = self._new_points(X)
        with self._computing():
            process = self._at(X, self.process_)
            points = jax.tree.map(jax.numpy.asarray, points)
            mean = np.asarray(process.mean.values(points))[:n] * self._y_std + self._y_mean
            if return_std:
                variance = np.asarray(jax.vmap(process.variance)(points))[:n] + self._white
                return mean, self._in_units(np.sqrt(variance), self._y_std)
            if return_cov:
                covariance = np.asarray(gram(process.covariance, points))[:n, :n]
                white = self._white * np.eye(n, dtype=self._dtype)
                return mean, self._in_units(covariance + white, self._y_std**2)
        return mean

    def _in_units(self, values, units):
        """Values in the units of the targets; with another axis where these are several."""
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

    def log_marginal_likelihood(self, theta=None):
        """The log evidence: of what was fitted, or of a theta of a kernel of scikit-learn."""
        if theta is None:
            return self.log_marginal_likelihood_value_
        if not isinstance(self._given_kernel, TheirKernel):
            raise ValueError(
                "theta goes with a kernel of scikit-learn: for others pass none, or take "
                "kernax.log_marginal_likelihood"
            )
        other = GaussianProcessRegressor(self.kernel_.clone_with_theta(theta), alpha=self.alpha)
        other.set_params(learn=None).fit(self.X_train_, self.y_train_, self._weights)
        return other.log_marginal_likelihood_value_
