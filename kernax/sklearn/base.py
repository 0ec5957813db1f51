"""The base classes of all estimators: X as points, `kernel=` as a kernel, and the precision of the
data.
"""

import abc
import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import Kernel as TheirKernel
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
    validate_data,
)

from kernax import kernels
from kernax.core.base.boundary import check_some_weight
from kernax.core.base.intervals import flushed
from kernax.core.base.parameters import Trainable, interior
from kernax.core.base.threads import linear_algebra_threads
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.padding import repeated
from kernax.errors import MemoryBudgetError
from kernax.sklearn.kernels import (
    PRECOMPUTED,
    KernelNumbers,
    check_signs,
    compares_texts,
    gamma_of,
    resolved,
    word_of,
)
from kernax.sklearn.rows import Rows, padded_size, with_padding
from kernax.sklearn.sparse_tables import canonical, dense, in_blocks
from kernax.sklearn.translation import is_free, written_back

FLOATS = (np.float64, np.float32)
NO_TARGETS = "no_validation"  # scikit-learn's word for it
_LETTERS = 8  # texts are padded to multiples of so many letters


def precision(dtype: Any) -> contextlib.AbstractContextManager:
    """Runs JAX in the precision of the data, whatever the mode of the program."""
    return jax.enable_x64(np.dtype(dtype) == np.float64)


def key_of(random_state: Any) -> Any:
    """A random key of JAX from the `random_state` of an estimator."""
    return jax.random.key(check_random_state(random_state).randint(2**31 - 1))


def are_texts(X: Any) -> bool:
    """Whether X is a list, an array or a column of strings."""
    if isinstance(X, (str, bytes, dict)) or issparse(X):
        return False
    if not hasattr(X, "__len__") or not hasattr(X, "__iter__"):
        return False
    if hasattr(X, "shape") and np.ndim(X) != 1:
        return False
    return len(X) > 0 and all(isinstance(text, str) for text in X)


def _check_texts(X: Any, are_all: bool, kernel: Any) -> None:
    """Raises ValueError for X that is almost a list of texts, and for a kernel of the other kind.

    Arguments:
        are_all: whether X is a list of texts.
    """
    of_texts = isinstance(kernel, AbstractKernel) and compares_texts(kernel)
    if are_all and not isinstance(kernel, AbstractKernel):
        raise ValueError(
            f"X holds texts, which kernel={kernel!r} does not compare: a string kernel does, such "
            "as kernax.Normalised(kernax.Spectrum(3))"
        )
    if are_all or not of_texts:
        return
    if np.ndim(X) == 2:
        raise ValueError("X must be a list or a column of texts for a string kernel: frame['name']")
    for row, text in enumerate(X):
        if not isinstance(text, str):
            raise ValueError(f"X must hold texts for a string kernel, but row {row} is {text!r}")


def _check_columns(X: Any) -> None:
    if not hasattr(X, "columns"):
        return
    wrong = [repr(name) for name in X.columns if _holds_words(X[name])]
    if wrong:
        columns = "column" if len(wrong) == 1 else "columns"
        raise ValueError(
            f"X holds words in {columns} {', '.join(wrong)}: encode them with "
            "sklearn.preprocessing.OneHotEncoder in a ColumnTransformer"
        )


def _holds_words(column: Any) -> bool:
    """Whether a column has cells that are texts other than numbers."""
    cells = np.asarray(column)
    if cells.dtype.kind in "biufc" or not any(isinstance(cell, str) for cell in cells.ravel()):
        return False
    try:
        cells.astype(float)
    except (TypeError, ValueError):
        return True
    return False


def encoded(texts: Any, alphabet: tuple[str, ...] | None) -> Any:
    """Texts as points; letters that an alphabet lacks match nothing."""
    # Here, because most estimators are fitted to numbers.
    from kernax.kernels.texts import encode

    texts = list(texts)
    longest = max(1, *map(len, texts))
    length = -(-longest // _LETTERS) * _LETTERS
    if alphabet is None:
        alphabet = tuple(sorted(set().union(*texts))) or ("",)
    return encode(texts, alphabet, unknown="gap", length=length)


def check_one_or_each(alpha: Any, count: int, of: str) -> None:
    """Raises ValueError unless alpha is a number, or one for each of so many rows or outputs."""
    if np.shape(alpha) not in ((), (count,)):
        raise ValueError(
            f"alpha must be a number, or one for each of {count} {of}, but has shape "
            f"{np.shape(alpha)}"
        )


def check_penalty(alpha: Any, allows_zero: bool = False) -> None:
    """Raises ValueError unless alpha is positive, or zero where that is allowed."""
    values = np.asarray(alpha, float)
    if not (np.all(np.isfinite(values)) and np.all(values >= 0 if allows_zero else values > 0)):
        raise ValueError(f"alpha must be {'>= 0' if allows_zero else '> 0'}, but is {alpha!r}")


class KernelEstimator(BaseEstimator):
    """An estimator with a kernel.

    After `fit`, `kernel_` is the kernel of kernax, and `gamma_` the value of gamma.
    """

    _learns_by: str | None = None  # what `learn=` may be beside None
    _not_precomputed = ""  # why there is no kernel="precomputed", where there is none

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed
        tags.input_tags.sparse = not self._is_precomputed
        return tags

    def __getstate__(self):
        state = super().__getstate__()
        return {name: _stored(value) for name, value in state.items()}

    def __setstate__(self, state):
        super().__setstate__({name: _restored(value) for name, value in state.items()})

    @property
    def _given_kernel(self) -> Any:
        """`kernel=`, or the argument that replaces it in a subclass."""
        return self.kernel

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self._given_kernel, str) and self._given_kernel == PRECOMPUTED

    @property
    def _is_function(self) -> bool:
        """Whether the kernel is a function of rows that is not written in JAX."""
        given = self._given_kernel
        is_kernel = isinstance(given, (AbstractKernel, TheirKernel, type))
        return callable(given) and not is_kernel and not self._not_precomputed

    @property
    def _is_of_tables(self) -> bool:
        """Whether the kernel is such a function of two tables, instead of two rows."""
        return False

    @property
    def _is_matrix(self) -> bool:
        """Whether only the values of the kernel are known."""
        return self._is_precomputed or self._is_function

    @property
    def _is_learned(self) -> bool:
        return getattr(self, "learn", None) is not None

    def _free(self, start: Any) -> Trainable:
        """Which parameters of a model are learned: for scikit-learn's kernels those that are not
        "fixed".
        """
        inside = interior(start)
        kernel = self._given_kernel
        if not isinstance(kernel, TheirKernel):
            return inside
        free = is_free(kernel, self.n_features_in_)

        def learned(path: str, value: Any) -> Any:
            return inside(path, value) & free.get(path, not path.startswith("kernel"))

        return learned

    def _warn_beyond_bounds(self, learned: AbstractKernel) -> None:
        """Warns of a learned parameter beyond the bounds of scikit-learn's kernel."""
        given = self._given_kernel
        if not isinstance(given, TheirKernel) or len(given.theta) == 0:
            return
        kernel = written_back(given, learned, 1.0)
        slack = np.sqrt(np.finfo(self._dtype).eps)
        beyond = (kernel.theta < given.bounds[:, 0] - slack) | (
            kernel.theta > given.bounds[:, 1] + slack
        )
        if np.any(beyond):
            warnings.warn(
                f"the learned kernel, {kernel}, is beyond the bounds of the one given, which have "
                f"no effect on learn={self._learns_by!r}: make a parameter 'fixed', or pass "
                "learn=None",
                ConvergenceWarning,
                stacklevel=2,
            )

    def _computing(self) -> contextlib.AbstractContextManager:
        """Runs JAX in the precision of the fitted rows."""
        return precision(self._dtype)

    def _checked(
        self, X: Any, y: Any = NO_TARGETS, sample_weight: Any = None, **checks: Any
    ) -> tuple:
        """X, y and the weights (None if there are none) to fit, as scikit-learn checks them."""
        if self._is_precomputed and self._not_precomputed:
            raise ValueError(f"kernel='precomputed' {self._not_precomputed}")
        self._check_container(X)
        self._check_learn(sample_weight)
        self._of_texts = are_texts(X) and not self._is_of_tables
        if not self._is_of_tables:
            _check_texts(X, self._of_texts, self._given_kernel)
        unsupervised = isinstance(y, str) and y == NO_TARGETS
        if self._of_texts or self._is_of_tables:
            X = list(X) if self._of_texts else X
            self.n_features_in_ = 1 if np.ndim(X) < 2 else np.shape(X)[1]
            if not unsupervised:
                y = validate_data(self, y=y, reset=False, **checks)
                check_consistent_length(X, y)
            self._dtype = np.dtype(float)
        else:
            _check_columns(X)
            found = validate_data(self, X, y, dtype=FLOATS, accept_sparse="csr", **checks)
            X, y = (found, None) if unsupervised else found
            X = canonical(X)
            self._dtype = X.dtype
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, X, dtype=self._dtype, ensure_non_negative=True
            )
            check_some_weight(sample_weight, "sample_weight")
            sample_weight = flushed(sample_weight)
        return X, y, sample_weight

    def _check_learn(self, sample_weight: Any) -> None:
        learn = getattr(self, "learn", None)
        if learn is None:
            return
        if learn != self._learns_by:
            raise ValueError(
                f"learn must be {self._learns_by!r} or None for {type(self).__name__}, but is "
                f"{learn!r}"
            )
        if not self._is_learned:
            return
        if sample_weight is not None and learn == "cross_validation":
            raise ValueError(f"learn={learn!r} takes no sample_weight: leave out one of them")
        if self._is_matrix:
            given = "kernel='precomputed'" if self._is_precomputed else "a function as kernel"
            raise ValueError(f"learn={learn!r} has nothing to learn in {given}")

    def _check_container(self, X: Any) -> None:
        if self._is_precomputed and issparse(X):
            raise TypeError(
                "Sparse precomputed kernels are not supported: X.toarray() makes a matrix whose "
                "missing values are zero"
            )

    def _points(self, X: Any, whole: Any = None) -> PyTree:
        """The points of rows to fit, sparse ones as a dense array; sets what `_resolve` does.

        Arguments:
            whole: the rows for gamma="scale", if not X.
        """
        if self._is_matrix:
            K = X
            if self._is_function:
                self._fitted_X = X
                K = self._values_of_function(X)
            if K.shape[0] != K.shape[1]:
                raise ValueError(
                    f"kernel='precomputed' takes K, a square matrix, but X has shape {X.shape}"
                )
            with self._computing():
                self.kernel_ = kernels.Precomputed(K)
            self._noise = 0.0
            return np.arange(len(K))
        self._resolve(X if whole is None else whole)
        if not self._of_texts:
            return dense(X, self._dtype)
        with self._computing():
            points = encoded(X, None)
        self.alphabet_ = points.alphabet
        return points

    def _resolve(self, X: Any) -> None:
        """Sets `kernel_`, and `gamma_` for names of kernels, for rows X."""
        given = self._given_kernel
        check_signs(given, X)
        self.gamma_ = gamma_of(getattr(self, "gamma", None), X, given)
        degree = getattr(self, "degree", None)
        coef0 = getattr(self, "coef0", None)
        numbers = KernelNumbers(
            self.gamma_, 3 if degree is None else degree, 1 if coef0 is None else coef0
        )
        with self._computing():
            self.kernel_, self._noise = resolved(given, numbers, self.n_features_in_, self._dtype)

    def _values_of_function(self, X: Any) -> np.ndarray:
        """The values (m, n) of a kernel that is a function, between rows of X and the fitted
        rows.
        """
        extra = getattr(self, "kernel_params", None) or {}
        K = pairwise_kernels(X, self._fitted_X, metric=self._given_kernel, **extra)
        return np.asarray(K, self._dtype)

    def _new_points(self, X: Any) -> tuple[PyTree, int, Any]:
        """The rows to predict: points, padded; their number; and X after the checks."""
        check_is_fitted(self)
        if self._of_texts:
            if not are_texts(X):
                raise ValueError("X must be a list of texts, as it was in fit")
            with self._computing():
                points = encoded(X, self.alphabet_)
        elif not self._is_of_tables:
            self._check_container(X)
            _check_columns(X)
            X = validate_data(self, X, dtype=FLOATS, accept_sparse="csr", reset=False)
            check_signs(self._given_kernel, X)
            points = None if self._is_matrix else dense(X, self._dtype)
        else:
            points = X
        if self._is_function:
            X = self._values_of_function(X)
        if self._is_matrix:
            known = X.shape[1]
            points = known + np.arange(len(X))
        n = _num_samples(X)
        return repeated(points, padded_size(n)), n, X

    def _values(self, X: Any) -> np.ndarray:
        """The values of `function_` at rows of X, in NumPy."""

        def of_rows(X: Any) -> np.ndarray:
            points, n, X = self._new_points(X)
            with self._computing():
                function = self._at(X, with_padding(self.function_))
                return np.asarray(function.values(points))[:n]

        return in_blocks(of_rows, X)

    def _vectorised(self, X: Any, fitted: Any, method: str) -> Any:
        """A method of the fitted function at each row of X, in NumPy."""

        def of_rows(X: Any) -> Any:
            points, n, X = self._new_points(X)
            with self._computing():
                points = jax.tree.map(jnp.asarray, points)
                values = jax.vmap(getattr(self._at(X, fitted), method))(points)
                return jax.tree.map(lambda value: np.asarray(value)[:n], values)

        return in_blocks(of_rows, X)

    def _at(self, X: Any, fitted: Any) -> Any:
        """The fitted function for rows of X: with a precomputed kernel the values come from
        there.
        """
        if not self._is_matrix:
            return fitted
        cross = repeated(np.asarray(X, self._dtype), padded_size(len(X))).T

        def extended(node: Any) -> Any:
            if not isinstance(node, kernels.Precomputed):
                return node
            # Functions compare values with the diagonal, which is unknown for new rows.
            likely = np.full(cross.shape[1], np.mean(np.diagonal(node.K)), self._dtype)
            return kernels.Precomputed.from_blocks(node.K, cross, likely)

        is_known = lambda node: isinstance(node, kernels.Precomputed)
        return jax.tree.map(extended, fitted, is_leaf=is_known)


class RowsEstimator(KernelEstimator, abc.ABC):
    """An estimator with a kernel that a function fits to all rows at once."""

    _instead = ""  # what to use if a matrix of all rows does not fit

    def _fit(
        self, X: Any, targets: Any, weights: Any, factors: Any = None, whole: Any = None
    ) -> Any:
        """Fits checked arguments, in the precision of the data, and returns the estimator.

        The fit multiplies the weights by factors, if any; learning does not. `whole` is the table
        from which X has some rows.
        """
        points = self._points(X, whole)
        threads = linear_algebra_threads(_num_samples(X))
        with self._computing(), threads, self._or_instead():
            stack = jax.tree.map(jnp.asarray, points)
            self.kernel_ = self._kernel_to_fit(self.kernel_, stack, targets, weights)
            if factors is not None:
                weights = factors if weights is None else weights * factors
            word = word_of(self._given_kernel)
            rows = Rows.of(self.kernel_, points, _num_samples(X), weights, self._dtype, word)
            self._fit_rows(rows, X, targets)
        return self

    @contextlib.contextmanager
    def _or_instead(self) -> Iterator[None]:
        """Names the alternatives if a matrix of all rows does not fit into memory."""
        try:
            yield
        except MemoryBudgetError as problem:
            needed, _, _ = str(problem).partition(";")
            features = (
                "make_pipeline(kernax.sklearn.Nystroem(kernel, n_components=1000), "
                f"{type(self).__name__}(kernel='linear'))"
            )
            raise MemoryBudgetError(f"{needed}; take {self._instead or features}") from None

    def _kernel_to_fit(
        self, kernel: AbstractKernel, points: PyTree, targets: Any, weights: Any, /
    ) -> AbstractKernel:
        """The kernel as given; an estimator with `learn=` learns it here, with its other
        parameters.
        """
        return kernel

    @abc.abstractmethod
    def _fit_rows(self, rows: Rows, X: Any, targets: Any, /) -> None:
        """Calls the function, and sets the attributes."""


def _is_module(value: Any) -> bool:
    several = isinstance(value, (tuple, list)) and len(value) > 0
    return all(map(_is_module, value)) if several else isinstance(value, eqx.Module)


def _stored(value: Any) -> Any:
    """Modules with NumPy arrays, which keep their digits if JAX runs in float32."""
    if not _is_module(value):
        return value
    return jax.tree.map(lambda leaf: np.asarray(leaf) if eqx.is_array(leaf) else leaf, value)


def _restored(value: Any) -> Any:
    """Modules with JAX arrays, in their original precision."""
    if not _is_module(value):
        return value
    with jax.enable_x64(True):
        return jax.tree.map(
            lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, value
        )
