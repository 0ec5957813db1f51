"""Classes and probabilities from decision values."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.labels import one_hot
from kernax.core.base.numerics import is_concrete
from kernax.core.base.printing import Printed
from kernax.core.base.solution import Solution
from kernax.core.learner.expansion import KernelExpansion
from kernax.gp.approximation import ApproximatePosterior
from kernax.gp.laplace_classes import CategoricalPosterior
from kernax.preparation.standardised import Standardised
from kernax.supervised.machines.decision_calibration import Isotonic, Platt

Label = str | int | float | bool


def _as_labels(classes: Sequence[Any]) -> tuple[Label, ...]:
    if isinstance(classes, str) or not isinstance(classes, (Sequence, np.ndarray)):
        raise ValueError(f"classes must be a tuple of labels, but is {classes!r}")
    labels = tuple(label.item() if isinstance(label, np.generic) else label for label in classes)
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise ValueError(f"classes must be two different labels or more, but are {labels!r}")
    return labels


class Classifier(Printed):
    """A classifier: a function that decides between classes by its values, and the labels of the
    classes in order.

    Attributes:
        function: a function of a point. For two classes it returns one value, positive for the
            second of them; for several a value for each class, the largest of which decides. Also
            an `ApproximatePosterior` of signs, a `CategoricalPosterior`, import or relevance
            vectors; all of these may be `Standardised` without a target.
        classes: the labels of the classes: strings, integers or booleans.
        calibration: turns decision values into probabilities: `platt(f, y).value` or `isotonic(f,
            y)` of `kernax.calibration`, from values at points that were not used for training. For
            several classes a tuple with one for each class against the rest; probabilities are
            divided by their sum.
        log_odds: whether values are log odds, as in logistic and softmax regression. Posteriors,
            import and relevance vectors have probabilities of their own.

    Methods take one point; `jax.vmap(classifier.probability)(X)` maps over a batch of points.

    Examples:
        >>> classifier = kernax.preparation.Classifier(lambda x: x[0] - 0.5, ("low", "high"))
        >>> classifier.predict(jnp.array([0.9]))
        'high'
    """

    function: Any
    classes: tuple[Label, ...] = eqx.field(static=True, converter=_as_labels)
    calibration: Any = None
    log_odds: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if isinstance(self.function, Solution):
            raise ValueError("a function is needed, but got a Solution: its .value is the function")
        _check_is_function(self.function, "function")
        if isinstance(self.function, Standardised) and self.function.target is not None:
            raise ValueError(
                "a function of a standardised target returns numbers, not decision values of "
                "classes: pass Standardised(function, inputs), or fit by "
                "standardised_fit(..., target=False)"
            )
        shape = shape_of_values(_inside(self.function))
        if shape not in (None, self._shape):
            raise ValueError(
                f"a function of shape {shape} cannot tell {len(self.classes)} classes apart"
            )
        self._check_calibration()

    def _check_calibration(self) -> None:
        if self.calibration is None:
            return
        several = len(self.classes) > 2
        is_tuple = isinstance(self.calibration, tuple)
        if is_tuple and not several:
            raise ValueError("calibration of two classes must be one function, but is a tuple")
        given = self.calibration if is_tuple else (self.calibration,)
        if any(isinstance(part, Solution) for part in given):
            raise ValueError("calibration is a Solution: its .value is needed")
        for part in given:
            _check_is_function(part, "calibration")
        if several and (not is_tuple or len(given) != len(self.classes)):
            raise ValueError(
                f"calibration must be a tuple of {len(self.classes)}, one for each class against "
                "the rest"
            )

    @property
    def _shape(self) -> tuple[int, ...]:
        return () if len(self.classes) == 2 else (len(self.classes),)

    def __call__(self, x: PyTree) -> Float[Array, "*c"]:
        """The decision value at a point; for several classes one for each.

        Posteriors give the log odds of the probabilities of two classes, or the log probabilities
        of several.
        """
        return decision_value(*_unwrapped(self.function, x))

    def index(self, x: PyTree) -> Int[Array, ""]:
        """The index in `classes` of the class predicted at a point; -1 where values are NaN.

        If values are calibrated, it is the index of the most probable class.
        """
        if self.calibration is None:
            return index_of(self(x))
        return index_of(self.log_probability(x))

    def predict(self, x: PyTree) -> Label:
        """The predicted label at one point.

        Raises ValueError for NaN, and under `jit` or `vmap`, because labels are not arrays.
        """
        index = self.index(x)
        if not is_concrete(index):
            raise ValueError(
                "predict returns a label, which is not an array: under jit or vmap use "
                "classifier.index, the index of the label in classifier.classes; for a batch of "
                "points outside of them use classifier.labels(X)"
            )
        return labels_at(self.classes, np.asarray(index)[None])[0]

    def labels(self, X: PyTree) -> np.ndarray:
        """The predicted labels (m,) of a batch of m points. Raises ValueError for NaN."""
        # The points are standardised here, those of NumPy by NumPy; `_indices` expects them so.
        _, X = _unwrapped(self.function, X)
        X = jax.tree.map(jnp.asarray, X)
        return np.array(labels_at(self.classes, np.asarray(_indices(self, X))))

    def probability(self, x: PyTree) -> Float[Array, " c"]:
        """The probability of each class at a point, in the order of `classes`.

        Raises ValueError where values are neither log odds nor calibrated.
        """
        return jnp.exp(self.log_probability(x))

    def log_probability(self, x: PyTree) -> Float[Array, " c"]:
        """The logarithm of the probability of each class at a point.

        Raises ValueError as `probability` does.
        """
        function, point = _unwrapped(self.function, x)
        if self.calibration is not None:
            # Log probabilities of calibrated decision values.
            value = decision_value(function, point)
            if value.ndim == 0 and isinstance(self.calibration, Platt):
                return log_probabilities_of(self.calibration.log_odds(value))
            if value.ndim == 0:
                of_second = self.calibration(value)
                return jnp.log(jnp.stack([1 - of_second, of_second]))
            each = jnp.stack([part(value[c]) for c, part in enumerate(self.calibration)])
            total = jnp.sum(each)
            # If every class has probability zero against the rest, all are equally likely.
            none = total == 0
            return jnp.log(
                jnp.where(none, 1 / len(self.calibration), each / jnp.where(none, 1, total))
            )
        if isinstance(function, (ApproximatePosterior, CategoricalPosterior)) or self.log_odds:
            return log_probabilities_of(decision_value(function, point))
        if not hasattr(function, "probability"):
            raise ValueError(
                "the values of this function are not known to be log odds, and have no "
                "probability: pass calibration=, such as kernax.calibration.platt(f, y).value "
                "from values at points that were not used for training, or log_odds=True for "
                "values of kernel_logistic and kernel_softmax"
            )
        probability = function.probability(point)
        both = jnp.stack([1 - probability, probability]) if probability.ndim == 0 else probability
        return jnp.log(both)


def _check_is_function(function: Any, name: str) -> None:
    if not callable(function) and not isinstance(function, eqx.Module):
        raise ValueError(f"{name} must be a function, but is {str(function)[:60]!r}")


def labels_at(classes: tuple[Label, ...], indices: np.ndarray) -> list[Label]:
    """The labels with these indices. Raises ValueError for -1, which marks NaN."""
    if np.any(indices < 0):
        raise ValueError("a value is NaN, from which no class can be predicted")
    return [classes[index] for index in indices]


@eqx.filter_jit
def _indices(classifier: Classifier, X: PyTree) -> Int[Array, " m"]:
    bare = eqx.tree_at(lambda node: node.function, classifier, _inside(classifier.function))
    return jax.vmap(bare.index)(X)


def _unwrapped(function: Any, x: PyTree) -> tuple[Any, PyTree]:
    """The inner function, and the point as it takes it."""
    if isinstance(function, Standardised):
        return function.function, function.point(x)
    return function, x


def _inside(function: Any) -> Any:
    """The function of standardised points, or the function itself."""
    return function.function if isinstance(function, Standardised) else function


def shape_of_values(function: Any) -> tuple[int, ...] | None:
    """The shape of a decision value, if known; for posteriors that of log odds.

    Raises ValueError for a posterior without classes.
    """
    if isinstance(function, KernelExpansion):
        return function.bias.shape
    if isinstance(function, CategoricalPosterior):
        return (function.classes,)
    if not isinstance(function, ApproximatePosterior):
        return None
    if function.likelihood.targets != "signs":
        raise ValueError(f"{type(function.likelihood).__name__} is not a likelihood of classes")
    return ()


@functools.singledispatch
def decision_value(function: Any, x: PyTree) -> Array:
    """The value at a point that decides between classes."""
    return function(x)


@decision_value.register
def _(function: ApproximatePosterior, x: PyTree) -> Array:
    return function.log_density(x, 1.0) - function.log_density(x, -1.0)


@decision_value.register
def _(function: CategoricalPosterior, x: PyTree) -> Array:
    return jnp.log(function.probability(x))


def index_of(value: Float[Array, "*c"]) -> Int[Array, ""]:
    """The index of the predicted class: for two classes 1 if the value is positive, otherwise 0;
    for several that of the largest value; -1 for NaN.
    """
    best = jnp.argmax(value) if value.ndim else (value > 0).astype(int)
    return jnp.where(jnp.any(jnp.isnan(value)), -1, best)


def log_probabilities_of(value: Float[Array, "*c"]) -> Float[Array, " c"]:
    """Log probabilities from the log odds of the second of two classes, or from a value for each of
    several.
    """
    odds = jnp.stack([jnp.zeros_like(value), value]) if value.ndim == 0 else value
    return jax.nn.log_softmax(odds)


def fit_classes(
    fit: Callable[[PyTree, Any, Any], Any],
    X: PyTree,
    labels: Any,
    weights: ArrayLike | None = None,
    *,
    one_vs_rest: bool = False,
    log_odds: bool = False,
    calibration: Platt | Isotonic | tuple | None = None,
) -> Classifier:
    """Fits a classifier to points and their labels.

        def fit(X, y, weights):
            return kernax.kernel_logistic(kernel, X, y, ridge, weights=weights).value

        classifier = fit_classes(fit, X, labels, log_odds=True)
        classifier.predict(x), classifier.probability(x), classifier.labels(X_new)

    Arguments:
        fit: `fit(X, y, weights) -> function`, with y -1 and +1 (n,) for two classes, and one-hot
            columns (n, c) for several. `partial(standardised_fit, fit, target=False)` standardises
            the columns of X as well.
        labels: (n,) strings, integers or booleans, in a list, an array or a column of a table.
        weights: (n,), passed to `fit` unchanged.
        one_vs_rest: pass several classes to `fit` as columns of -1 and +1 (n, c), for learners such
            as `svm`.
        log_odds, calibration: as for `Classifier`.

    The classes come from the labels, which must be concrete: under `jit`, `grad` or `vmap`, make
    `y` outside, by `kernax.signs` or `kernax.one_hot`, and the `Classifier` inside.

    Raises ValueError for fewer than two classes, labels of mixed kinds or that are fractions, and
    whatever `fit` raises.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> labels = ["ham", "ham", "spam", "spam", "spam"]
        >>> def fit(X, y, weights):
        ...     k = kernax.RBF(0.3)
        ...     return kernax.kernel_logistic(k, X, y, ridge=0.1, weights=weights).value
        ...
        >>> classifier = kernax.preparation.fit_classes(fit, X, labels, log_odds=True)
        >>> classifier.predict(jnp.array([0.9]))
        'spam'
        >>> classifier.probability(jnp.array([0.9])).shape
        (2,)
    """
    Y, classes = one_hot(labels)
    signs = 2 * Y - 1
    if len(classes) == 2:
        y = signs[:, 1]
    else:
        y = signs if one_vs_rest else Y
    return Classifier(fit(X, y, weights), tuple(classes), calibration, log_odds)
