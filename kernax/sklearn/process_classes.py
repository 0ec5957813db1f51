"""Gaussian processes for classes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from kernax.core.likelihoods import Categorical
from kernax.core.losses import Bernoulli
from kernax.gp.laplace import laplace
from kernax.gp.process import GaussianProcess
from kernax.selection.latent import LatentModel, learn_evidence
from kernax.sklearn.processes import ProcessEstimator
from kernax.sklearn.targets import KernelClassifier, of_both

_WAYS = ("one_vs_rest", "softmax")


class GaussianProcessClassifier(ProcessEstimator, KernelClassifier):
    """`kernax.laplace` with the arguments of scikit-learn's class of this name.

    Probabilities are integrals over the normal approximation of the latent function, to more digits
    than scikit-learn's.

    Arguments:
        kernel: a kernel of kernax or of `sklearn.gaussian_process.kernels`, a name, or None for
            `1.0 * RBF(1.0)`, which is not learned. A `WhiteKernel` is refused.
        learn: "evidence" learns the kernel's parameters by gradients of Laplace's evidence; None
            takes them as they are, as `optimizer=None` does.
        max_iter_predict: steps of Newton's method, at most.
        multi_class: of several classes: "one_vs_rest", a process for each class against the rest,
            all with one kernel, or "softmax", one model of all classes.
        optimizer: None for `learn=None`; otherwise it has no effect.
        n_restarts_optimizer, warm_start, copy_X_train, random_state, n_jobs: taken, and without
            effect.

    Attributes: `kernel_`, `posterior_` (or a tuple of such, one for each class), `classes_`,
    `log_marginal_likelihood_value_`.
    """

    def __init__(
        self,
        kernel=None,
        *,
        optimizer="fmin_l_bfgs_b",
        n_restarts_optimizer=0,
        max_iter_predict=100,
        warm_start=False,
        copy_X_train=True,
        random_state=None,
        multi_class="one_vs_rest",
        n_jobs=None,
        learn="evidence",
    ):
        self.kernel = kernel
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.max_iter_predict = max_iter_predict
        self.warm_start = warm_start
        self.copy_X_train = copy_X_train
        self.random_state = random_state
        self.multi_class = multi_class
        self.n_jobs = n_jobs
        self.learn = learn

    def fit(self, X, y, sample_weight=None):
        """Fits labels y (n,), with powers of their likelihoods as weights."""
        if self.multi_class not in _WAYS:
            raise ValueError(f"multi_class must be one of {_WAYS}, but is {self.multi_class!r}")
        X, places, weights = self._checked_labels(X, y, sample_weight)
        learns = self._learns(sample_weight)
        columns = self._targets(places)
        rows = self._rows(X, weights, partial(self._learned, columns=columns) if learns else None)
        if self._noise:
            raise ValueError("WhiteKernel is noise of numbers: classes have none")
        with self._computing():
            found = [self._posterior(rows, targets) for targets in columns]
        self.posterior_ = found[0] if len(found) == 1 else tuple(found)
        self.log_marginal_likelihood_value_ = float(np.mean([p.log_evidence for p in found]))
        self.kernel_ = self._shown(self.kernel_, 1.0)
        return self

    def _targets(self, places):
        """What each process is fitted to: signs (n,), or of all classes at once one-hot (n, c)."""
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

    def _learned(self, kernel, points, columns):
        """The kernel of the largest mean evidence of all processes."""
        start = LatentModel(kernel, self._likelihood(columns[0]))
        free = self._free(start)

        def learned(path, value):
            return free(path, value) if path.startswith("kernel") else False

        targets = jnp.asarray(np.stack(columns))
        return learn_evidence(start, points, targets, trainable=learned).value.kernel

    def predict_proba(self, X):
        """Probabilities (m, classes)."""
        points, n, X = self._new_points(X)
        several = isinstance(self.posterior_, tuple)
        posteriors = self.posterior_ if several else (self.posterior_,)
        with self._computing():
            points = jax.tree.map(jnp.asarray, points)
            found = [
                np.asarray(jax.vmap(self._at(X, posterior).probability)(points))[:n]
                for posterior in posteriors
            ]
        return of_both(np.stack(found, axis=1) if several else found[0])

    def predict(self, X):
        """Labels (m,): of the largest probability."""
        places = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[places]

    def log_marginal_likelihood(self):
        """The log evidence; of a process for each class their mean, as in scikit-learn."""
        return self.log_marginal_likelihood_value_
