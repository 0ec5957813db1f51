"""Gaussian processes for classes."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.gaussian_process.kernels import Kernel as TheirKernel
from sklearn.utils.validation import check_is_fitted

from kernax.core.likelihoods import Categorical
from kernax.core.losses import Bernoulli
from kernax.core.parameters import check_count, parameters
from kernax.gp.laplace import laplace
from kernax.gp.process import GaussianProcess
from kernax.kernels import RBF
from kernax.selection.latent import LatentModel, learn_evidence, minus_evidences
from kernax.sklearn.processes import ProcessEstimator
from kernax.sklearn.targets import KernelClassifier, of_both

_WAYS = ("one_vs_rest", "softmax")


@dataclass(eq=False, repr=False)
class GaussianProcessClassifier(ProcessEstimator, KernelClassifier):
    """`kernax.laplace` with the arguments of scikit-learn's class of this name.

    Probabilities are integrals over the normal approximation of the latent function, to more digits
    than scikit-learn's.

    Arguments:
        kernel: a kernel of kernax or of `sklearn.gaussian_process.kernels`, of which "fixed"
            parameters are not learned, and others within their bounds; a name; or None for
            `1.0 * RBF(1.0)`, which is not learned, as in scikit-learn. A `WhiteKernel` is refused.
        learn: "evidence" learns the kernel's parameters by gradients of Laplace's evidence; None
            takes them as they are, as `optimizer=None` does.
        max_iter_predict: steps of Newton's method, at most.
        multi_class: of several classes: "one_vs_rest", a process for each class against the rest,
            all with one kernel, or "softmax", one model of all classes.
        optimizer: None for `learn=None`, or "fmin_l_bfgs_b".
        n_restarts_optimizer, random_state: random starts of learning, as for
            `GaussianProcessRegressor`.
        warm_start, copy_X_train, n_jobs: taken, and without effect.

    Attributes: `kernel_`, `posterior_` (or a tuple of such, one for each class), `classes_`,
    `log_marginal_likelihood_value_`.
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
        return 1.0 * RBF(1.0) if self.kernel is None else self.kernel

    def _fit_rows(self, rows, X, places):
        """Fits labels with powers of their likelihoods as weights."""
        found = [self._posterior(rows, targets) for targets in self._targets(places)]
        self.posterior_ = found[0] if len(found) == 1 else tuple(found)
        self.log_marginal_likelihood_value_ = float(np.mean([p.log_evidence for p in found]))
        self.kernel_ = self._shown(self.kernel_, 1.0)

    def _targets(self, places):
        """What each process is fitted to: signs (n,), or of all classes at once one-hot (n, c)."""
        if self.multi_class not in _WAYS:
            raise ValueError(f"multi_class must be one of {_WAYS}, but is {self.multi_class!r}")
        if len(self.classes_) == 2:
            return [self._signs(places)]
        columns = self._columns(places)
        return [columns] if self.multi_class == "softmax" else list(2 * columns.T - 1)

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

    def _kernel_to_fit(self, kernel, points, places, weights):
        """With `learn=` that of the largest mean evidence of all processes."""
        if self._noise:
            raise ValueError("WhiteKernel is noise of numbers: classes have none")
        check_count(self.max_iter_predict, "max_iter_predict")
        if not self._is_learned or self.kernel is None:
            return kernel
        columns = self._targets(places)
        start = LatentModel(kernel, self._likelihood(columns[0]))
        free = self._free(start)

        def learned(path, value):
            return free(path, value) if path.startswith("kernel") else False

        if not any(np.any(learned(entry.path, entry.value)) for entry in parameters(start)):
            return kernel
        targets = jnp.asarray(np.stack(columns))
        if isinstance(self._given_kernel, TheirKernel):
            likelihood = start.likelihood
            parts = self._learned_parts(
                lambda parts: LatentModel(parts.kernel, likelihood),
                minus_evidences,
                (points, targets, weights),
            )
            return parts.kernel
        solution = learn_evidence(
            start,
            points,
            targets,
            weights=weights,
            starts=1 + self._restarts,
            key=self._key(),
            trainable=learned,
        )
        return solution.value.kernel

    def predict_proba(self, X):
        """Probabilities (m, classes)."""
        check_is_fitted(self)
        if not isinstance(self.posterior_, tuple):
            return of_both(self._vectorised(X, self.posterior_, "probability"))
        found = [self._vectorised(X, process, "probability") for process in self.posterior_]
        return of_both(np.stack(found, axis=1))

    def predict(self, X):
        """Labels (m,): of the largest probability."""
        places = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[places]

    def log_marginal_likelihood(self):
        """The log evidence; of a process for each class their mean, as in scikit-learn."""
        return self.log_marginal_likelihood_value_
