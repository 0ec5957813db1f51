"""The result of a relevance vector machine: a sparse function, and its uncertainty."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.base.boundary import as_point, cast, check_one_point
from kernax.core.base.compiled import compiled, compiled_call
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import is_concrete, matmul
from kernax.core.base.parameters import data
from kernax.core.base.printing import Printed
from kernax.core.base.stacks import points_at
from kernax.core.kernel.preparation import check_point
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.linalg.density import root_of_covariance
from kernax.core.losses.loss_functions import AbstractLikelihood
from kernax.core.losses.observation_likelihoods import Categorical
from kernax.core.losses.quasi_random import NODES, checked_nodes, expectation_over_vectors


class RelevanceVectors(Printed):
    """`f(x) = sum_j w_j k(x, x_j) + b` with most weights zero, and the normal distribution of the
    weights.

    It is a function of one point, the mean of f(x), and so are its methods;
    `jax.vmap(model.predict)(X)` maps over a batch of points. Functions are stored in T slots, a
    static number. Some slots are unused: their coefficients are zero.

    Attributes:
        function: the mean, a `KernelExpansion` over the points of the slots.
        places: the index of the point of X for each basis function; -1 is the bias, -2 is unused.
        outputs: the output (column of y, or class) of each basis function; 0 if there is only one.
        precisions: alpha, the precision of the prior of each weight; inf where not used.
        covariance: that of the weights; 0 where not used.
        likelihood: p(y | f); for numbers `Gaussian(noise)`.
        log_evidence: `log p(y | alpha, noise)`, one for each column of y; for labels by Laplace's
            approximation.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 8)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> model = kernax.relevance_vector_machine(kernax.RBF(0.3), X, y, noise=0.01).value
        >>> model(jnp.array([0.4])).shape
        ()
        >>> int((model.places >= 0).sum()) <= 8  # how many points are relevant
        True
    """

    function: KernelExpansion
    places: Int[Array, " T"] = data()
    outputs: Int[Array, " T"] = data()
    precisions: Float[Array, " T"] = data()
    covariance: Float[Array, "T T"] = data()
    likelihood: AbstractLikelihood | Categorical = data()
    log_evidence: Float[Array, "*fits"] = data()

    def __call__(self, x: PyTree) -> Float[Array, "*outputs"]:
        """The mean of f at one point."""
        return self.function(x)

    @property
    def noise(self) -> Float[Array, "*outputs"]:
        """The variance of the noise, for numbers. Raises ValueError for labels."""
        noise = getattr(self.likelihood, "noise", None)
        if noise is None:
            raise ValueError(
                f"{type(self.likelihood).__name__} has no noise: only a fit of numbers has one"
            )
        return noise

    @property
    def count(self) -> Int[Array, "*batch"]:
        """The number of different points that are relevance vectors."""
        ordered = jnp.sort(self.places)
        # Used slots of the same point follow one another, and the first of them counts.
        same_as_before = ordered[..., 1:] == ordered[..., :-1]
        used = ordered >= 0
        return jnp.sum(used, -1) - jnp.sum(used[..., 1:] & same_as_before, -1)

    @property
    def indices(self) -> Int[np.ndarray, " count"]:
        """The indices of the points of X that are relevance vectors, in ascending order.

        Raises ValueError under a transformation, where their number is not known, and for a batch
        of models, which have different numbers.
        """
        if not is_concrete(self.places) or self.places.ndim != 1:
            raise ValueError(
                "the number of relevant vectors is not known under jit, grad or vmap, and "
                "differs within a batch of models: use places instead"
            )
        numbers = np.unique(np.asarray(self.places))
        return numbers[numbers >= 0]

    @property
    def vectors(self) -> PyTree:
        """The relevance vectors, a batch of `count` points. Raises ValueError as `indices` does."""
        places = np.asarray(self.indices)
        where = [int(np.argmax(np.asarray(self.places) == place)) for place in places]
        return points_at(self.function.points, np.asarray(where, int))

    def variance(self, x: PyTree) -> Float[Array, "*outputs"]:
        """The variance of f at one point, without noise."""
        return jnp.diagonal(self._covariance(x)).reshape(self._shape)

    def predict(self, x: PyTree) -> tuple[Float[Array, "*outputs"], Float[Array, "*outputs"]]:
        """The mean and the variance of y at one point, noise included.

        For signs the mean is `p(+1) - p(-1)`; for classes it is the probability of each class.
        """
        if isinstance(self.likelihood, Categorical):
            probability = self.probability(x)
            return probability, probability * (1 - probability)
        return compiled_call(self.likelihood.predicted_moments, self(x), self.variance(x))

    @renamed(nodes="n_nodes")
    def probability(self, x: PyTree, *, n_nodes: int = NODES) -> Float[Array, "*outputs"]:
        """The probability of +1 at one point (for one-versus-rest, one for each output), or of each
        class.
        """
        count = checked_nodes(n_nodes)
        if isinstance(self.likelihood, Categorical):
            return _of_classes(self(x), self._covariance(x), count)
        if self.likelihood.targets != "signs":
            raise ValueError(
                f"{type(self.likelihood).__name__} is not a likelihood of classes: "
                "predict(x) gives the mean and the variance of y"
            )
        mean = self(x)
        plus_one = jnp.ones_like(mean)
        normaliser = self.likelihood.log_normaliser
        return jnp.exp(compiled_call(normaliser, plus_one, mean, self.variance(x)))

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.function.bias.shape

    def _covariance(self, x: PyTree) -> Float[Array, "c c"]:
        """The covariance of all outputs at one point."""
        x = cast(as_point(x), self.covariance.dtype)
        check_one_point(x, self.function.points)
        check_point(self.function.kernel, x)
        return _covariance_at(self, x)


@compiled
def _covariance_at(model, x):
    # The values of the functions of all slots; 0 where not used.
    kernel = model.function.kernel
    row = jax.vmap(lambda point: kernel(x, point))(model.function.points)
    row = jnp.where(model.places == -1, 1, row)
    row = jnp.where(model.places == -2, 0, row)
    outputs = model.function.bias.size
    # F Sigma F^T, F_cj = phi_j(x) where function j is of output c, and zero elsewhere.
    by_output = jax.nn.one_hot(model.outputs, outputs, dtype=row.dtype).T * row[None, :]
    covariance = matmul(by_output, matmul(model.covariance, by_output.T))
    return (covariance + covariance.T) / 2


@compiled
def _of_classes(mean, covariance, nodes):
    root = root_of_covariance(covariance)
    return expectation_over_vectors(jax.nn.softmax, mean, root, nodes)
