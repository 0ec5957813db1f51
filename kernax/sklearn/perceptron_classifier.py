"""The kernel perceptron, which learns from one batch of rows after another."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import _check_partial_fit_first_call

from kernax.core.base.parameters import check_count
from kernax.core.base.stacks import points_at
from kernax.core.learner.padding import repeated
from kernax.online.budgets import RemoveOldest
from kernax.online.dual import DualLearner
from kernax.online.rules import Perceptron
from kernax.online.stream import run
from kernax.sklearn.rows import padded_size
from kernax.sklearn.sparse_tables import in_blocks
from kernax.sklearn.targets import LabelEstimator


@dataclass(eq=False, repr=False)
class KernelPerceptron(LabelEstimator):
    """The kernel perceptron, `kernax.online.Perceptron` in the space of a kernel, within a budget
    of points.

    For several classes there is one perceptron for each class against the rest. There is no
    `sample_weight`: the result depends on the order of the rows, so that no weight is equivalent to
    a repeated row.

    Arguments:
        kernel: a name (scikit-learn's, and "matern12", "matern32", "matern52"), or a kernel of
            kernax or of `sklearn.gaussian_process.kernels`.
        gamma, degree, coef0: parameters of kernels given by name, as in scikit-learn; "scale" uses
            the first rows.
        eta0: the step length for a mistake.
        max_iter: the largest number of passes over the rows in `fit`, which ends after a pass
            without mistakes.
        budget: the largest number of points of a function; the oldest ones are removed.
        shuffle: whether `fit` takes the rows in a new random order in each pass.
        random_state: the seed of the orders.

    Attributes: `functions_` (a `KernelExpansion` for the second of two classes, or one for each
    class), `n_iter_`, `t_` (rows seen), `classes_`, `kernel_`.
    """

    _: KW_ONLY
    kernel: Any = "rbf"
    gamma: float | str | None = "scale"
    degree: int = 3
    coef0: float = 1
    eta0: float = 1.0
    max_iter: int = 50
    budget: int = 500
    shuffle: bool = True
    random_state: Any = 0

    _not_precomputed = "is not for a stream, whose rows are not known"

    def fit(self, X, y):
        """Passes over rows and labels y (n,), from the start."""
        check_count(self.max_iter, "max_iter")
        X, class_indices, _ = self._checked_labels(X, y, None)
        self._begin(X)
        points, *_ = self._new_points(X)
        orders = check_random_state(self.random_state)
        for epoch in range(self.max_iter):
            order = (
                orders.permutation(len(class_indices))
                if self.shuffle
                else np.arange(len(class_indices))
            )
            self.n_iter_ = epoch + 1
            if not self._pass(points_at(points, order), class_indices[order]):
                break
        return self

    def partial_fit(self, X, y, classes=None):
        """One pass over further rows; the `classes` of the first call must include all that will
        occur.
        """
        is_first = _check_partial_fit_first_call(self, classes)
        if is_first or not hasattr(self, "t_"):  # if the first call raised an exception
            X, y, _ = self._checked(X, y)
            self._begin(X)
            self.n_iter_ = 1
        points, n, X = self._new_points(X)
        y = np.asarray(y)
        if y.shape != (n,):
            raise ValueError(f"y must have shape ({n},), a label for each row, but has {y.shape}")
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(
                f"y holds {unknown[0]}, which is not among the classes so far: "
                f"{', '.join(map(str, self.classes_))}"
            )
        class_indices = np.searchsorted(self.classes_, y)
        self._pass(points_at(points, np.arange(len(y))), class_indices)
        return self

    def _begin(self, X):
        """Starts with the functions zero."""
        self._points(X)
        self._states = None
        self.t_ = 0

    def _pass(self, points, class_indices):
        """Shows all rows once to each function, and returns the number of mistakes."""
        n = len(class_indices)
        size = padded_size(n)
        signs = self._columns_of_signs(class_indices)
        states = self._states or (None,) * len(signs)
        with self._computing():
            stack = jax.tree.map(jnp.asarray, repeated(points, size))
            learner = DualLearner(Perceptron(self.eta0), self.kernel_, RemoveOldest(self.budget))
            present = np.arange(size) < n
            found = [
                run(learner, stack, repeated(column, size), state=state, present=present)
                for column, state in zip(signs, states)
            ]
        self._states = tuple(solution.value.state for solution in found)
        self.functions_ = tuple(state.function for state in self._states)
        self.t_ += n
        return sum(int(solution.stats["mistakes"]) for solution in found)

    def decision_function(self, X):
        """Positive for the second of two classes (m,), or a value for each class (m, classes)."""

        def of_rows(X):
            points, n, _ = self._new_points(X)
            with self._computing():
                values = [np.asarray(function.values(points))[:n] for function in self.functions_]
            return values[0] if len(values) == 1 else np.stack(values, axis=1)

        return in_blocks(of_rows, X)
