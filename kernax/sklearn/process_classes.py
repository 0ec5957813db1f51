"""Gaussian process classification."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.gaussian_process.kernels import RBF as TheirRBF
from sklearn.gaussian_process.kernels import ConstantKernel
from sklearn.gaussian_process.kernels import Kernel as TheirKernel
from sklearn.utils.validation import check_is_fitted

from kernax.core.base.parameters import check_count, parameters
from kernax.core.losses.loss_functions import Bernoulli
from kernax.core.losses.observation_likelihoods import Categorical
from kernax.gp.laplace import laplace
from kernax.gp.process import GaussianProcess
from kernax.selection.recipes.latent import LatentModel, learn_evidence, minus_evidences
from kernax.sklearn.base import key_of
from kernax.sklearn.processes import ProcessEstimator
from kernax.sklearn.targets import KernelClassifier, of_both
from kernax.sklearn.theta import ThetaLoss

_WAYS = ("one_vs_rest", "softmax")


def minus_mean_evidence(model, X, targets, weights):
    """Minus the mean log evidence of all processes."""
    return minus_evidences(model, X, targets, weights) / len(targets)


@dataclass(eq=False, repr=False)
class GaussianProcessClassifier(ProcessEstimator, KernelClassifier):
    """Gaussian process classification: `kernax.laplace` with the arguments of
    `sklearn.gaussian_process.GaussianProcessClassifier`.

    Probabilities are integrals over the normal approximation of the latent function, to more digits
    than scikit-learn's.

    Arguments:
        kernel: a kernel of kernax or of `sklearn.gaussian_process.kernels`, where "fixed"
            parameters are not learned, and others within their bounds; a name; or None for `1.0 *
            RBF(1.0)`, which is not learned, as in scikit-learn. A `WhiteKernel` raises ValueError.
        learn: "evidence" learns the kernel's parameters by gradients of Laplace's evidence; None
            leaves them unchanged, as `optimizer=None` does.
        max_iter_predict: the largest number of Newton steps.
        multi_class: for several classes: "one_vs_rest", a process for each class against the rest,
            all with one kernel, or "softmax", one model for all classes.
        optimizer: "fmin_l_bfgs_b"; None for `learn=None`; or, for kernels of scikit-learn, a
            function `optimizer(objective, theta, bounds=bounds)` as scikit-learn takes it.
        n_restarts_optimizer, random_state: the random starts of learning, as for
            `GaussianProcessRegressor`.
        warm_start, copy_X_train, n_jobs: accepted, without effect.

    Attributes: `kernel_`, `posterior_` (or a tuple of such, one for each class), `classes_`,
    `n_classes_`, `log_marginal_likelihood_value_` (with a process for each class their mean, as in
    scikit-learn), `X_train_`.
    """

    kernel: Any = None
    _: KW_ONLY
    optimizer: Any = "fmin_l_bfgs_b"
    n_restarts_optimizer: int = 0
    max_iter_predict: int = 100
    warm_start: bool = False
    copy_X_train: bool = True
    random_state: Any = None
    multi_class: str = "one_vs_rest"
    n_jobs: int | None = None
    learn: str | None = "evidence"

    @property
    def _given_kernel(self):
        if self.kernel is None:
            return ConstantKernel(1.0, "fixed") * TheirRBF(1.0, "fixed")
        return self.kernel

    def _fit_rows(self, rows, X, class_indices):
        """Fits labels with powers of their likelihoods as weights."""
        found = [self._posterior(rows, targets) for targets in self._targets(class_indices)]
        self.posterior_ = found[0] if len(found) == 1 else tuple(found)
        self.log_marginal_likelihood_value_ = float(np.mean([p.log_evidence for p in found]))
        self.n_classes_ = len(self.classes_)
        self.X_train_ = X
        self._fitted_targets = class_indices
        self.kernel_ = self._shown(self.kernel_, 1.0)

    def _targets(self, class_indices):
        """The targets of each process: signs (n,), or one-hot columns (n, c) for all classes at
        once.
        """
        if self.multi_class not in _WAYS:
            raise ValueError(f"multi_class must be one of {_WAYS}, but is {self.multi_class!r}")
        if len(self.classes_) > 2 and self.multi_class == "softmax":
            return [self._columns(class_indices)]
        return self._columns_of_signs(class_indices)

    def _likelihood(self, targets):
        return Bernoulli() if targets.ndim == 1 else Categorical()

    def _posterior(self, rows, targets):
        solution = laplace(
            GaussianProcess(rows.given_kernel),
            rows.given,
            rows.column(targets),
            self._likelihood(targets),
            weights=rows.weights,
            max_steps=self.max_iter_predict,
        )
        return rows.restored(solution.value)

    def _kernel_to_fit(self, kernel, points, class_indices, weights):
        """The kernel; with `learn=` the one with the largest mean evidence of all processes."""
        if self._noise:
            raise ValueError(
                "WhiteKernel is noise of numbers, which classes do not have: the likelihood of "
                "labels already models independent noise. Leave it out; a constant factor of the "
                "kernel, as in 1.0 * RBF(), sets how confident the probabilities may be"
            )
        check_count(self.max_iter_predict, "max_iter_predict")
        self._weights = weights
        if not self._is_learned:
            return kernel
        if isinstance(self._given_kernel, TheirKernel):
            if len(self._given_kernel.theta) == 0:
                return kernel
            return self._learned_parts(points, class_indices, weights).kernel
        columns = self._targets(class_indices)
        start = LatentModel(kernel, self._likelihood(columns[0]))
        free = self._free(start)

        def learned(path, value):
            return free(path, value) if path.startswith("kernel") else False

        if not any(np.any(learned(entry.path, entry.value)) for entry in parameters(start)):
            return kernel
        targets = jnp.asarray(np.stack(columns))
        solution = learn_evidence(
            start,
            points,
            targets,
            weights=weights,
            starts=1 + self._restarts,
            key=key_of(self.random_state),
            trainable=learned,
        )
        return solution.value.kernel

    def _theta_loss(self, kernel, points, class_indices, weights, /):
        columns = self._targets(class_indices)
        likelihood = self._likelihood(columns[0])
        args = points, jnp.asarray(np.stack(columns)), weights
        return ThetaLoss(
            kernel,
            self.n_features_in_,
            self._dtype,
            lambda parts: LatentModel(parts.kernel, likelihood),
            minus_mean_evidence,
            args,
        )

    def predict_proba(self, X):
        """Probabilities (m, classes)."""
        check_is_fitted(self)
        if not isinstance(self.posterior_, tuple):
            return of_both(self._vectorised(X, self.posterior_, "probability"))
        found = [self._vectorised(X, process, "probability") for process in self.posterior_]
        return of_both(np.stack(found, axis=1))

    def predict(self, X):
        """Labels (m,) of the largest probability."""
        return self._labels(self.predict_proba(X))

    def latent_mean_and_variance(self, X):
        """The mean and the variance (m,) of the latent function, positive for the second class.

        Raises ValueError for more than two classes.
        """
        check_is_fitted(self)
        if len(self.classes_) > 2:
            raise ValueError(
                "Returning the mean and variance of the latent function f is only supported for "
                f"binary classification, received {len(self.classes_)} classes."
            )
        mean = self._vectorised(X, self.posterior_.process, "mean")
        return mean, self._vectorised(X, self.posterior_.process, "variance")
