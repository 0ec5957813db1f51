"""Sample paths of a process as functions of a point, by Matheron's rule."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key, PyTree

from kernax._advice import WITH_FEATURES
from kernax.core.base.boundary import as_point, as_stack, cast, check_key, check_one_point, dtype_of
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import expand_to, is_concrete, matmul, safe_sqrt
from kernax.core.base.parameters import check_count, data
from kernax.core.base.printing import Printed
from kernax.core.base.solution import RESULTS, Solution, finish
from kernax.core.base.stacks import points_at
from kernax.core.functionals.draws import (
    AbstractDraw,
    DrawRequest,
    FeatureDraw,
    features_draw,
    prior_draw,
)
from kernax.core.kernel.kernel import AbstractKernel, as_kernel
from kernax.core.kernel.preparation import prepare_stacks
from kernax.core.linalg.solves import solve_lower, solve_lower_transposed
from kernax.core.operators.memory import check_numbers
from kernax.core.operators.mesh import on_parts, rows_over_mesh
from kernax.gp.posterior import (
    AbstractPosterior,
    FeaturePosteriorKernel,
    InducedPosteriorKernel,
    PosteriorKernel,
    ReductionPosteriorKernel,
    WeightedPosteriorKernel,
    without_observations,
)
from kernax.gp.process import GaussianProcess, check_process

# Numbers in memory for each number that is kept, in float64 and float32.
HELD_FOR_EACH = (3.5, 5.2)


class SamplePaths(Printed):
    """Functions drawn from a process: `paths(x)` returns their values at one point, (count,).

    `jax.vmap(paths)(X)` returns their values at n points, (n, count). `paths[i]` is one function,
    with a single value; a slice or an array of indices selects several. An index may be traced, as
    in `jax.vmap(lambda i: highest(paths[i]))(jnp.arange(len(paths)))`. Paths are differentiable in
    x where the kernel is. Processes with several outputs add an axis for them.

    Attributes:
        mean: the mean of the process.
        draw: the function that each draw adds to the mean.
        shape: the axes of the draws: (count,), or () for one path.
        points: one point, as a batch, of the shape of all points.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> prior = kernax.GaussianProcess(kernax.RBF(0.3))
        >>> key = jax.random.key(0)
        >>> paths = kernax.pathwise_sample(prior, key=key, n_samples=3, point=jnp.zeros(1))
        >>> jax.vmap(paths)(X).shape
        (5, 3)
        >>> paths[0](jnp.array([0.4])).shape  # a single path
        ()
    """

    mean: Callable
    draw: AbstractDraw
    shape: tuple[int, ...] = eqx.field(static=True)
    points: PyTree = data()

    def __call__(self, x: PyTree) -> Float[Array, "*draws"]:
        """The values of all functions at one point."""
        x = cast(as_point(x), dtype_of(self.points))
        check_one_point(x, self.points)
        return self._at(x)

    @compiled
    def _at(self, x: PyTree) -> Float[Array, "*draws"]:
        values = self.draw(x)
        return jnp.broadcast_to(self.mean(x), values.shape) + values

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("one path has no length")
        return self.shape[0]

    def __getitem__(self, index: int | slice | Int[Array, "*indices"]) -> "SamplePaths":
        """Selects some of the functions. Raises IndexError for an index out of range."""
        count = len(self)
        if is_concrete(index):  # JAX would clamp an index out of range
            try:
                np.arange(count)[index]
            except IndexError:
                raise IndexError(f"there are {count} paths, but the index is {index}") from None
        selected = lambda: jnp.arange(count)[index]
        shape = eqx.filter_eval_shape(selected).shape
        draw = self.draw.select(index)
        return SamplePaths(self.mean, draw, shape, self.points)


_INSTEAD = (
    ": pass as n_features a kernel with explicit features that approximates it, such as "
    f"{WITH_FEATURES}, or draw at given points with process.sample(X, key=key)"
)


class UpdatedDraw(AbstractDraw):
    """`f(x) + k(x, X) a`: draws of a prior, updated to match the values of posterior draws at X.

    Attributes:
        draw: f, with values (*draws).
        kernel: the prior covariance.
        points: X, a batch of n points.
        coefficients: a, (*draws, n).
    """

    draw: AbstractDraw = data()
    kernel: AbstractKernel = data()
    points: PyTree = data()
    coefficients: Float[Array, "*draws n"] = data()

    def __call__(self, x):
        row = jax.vmap(lambda point: self.kernel(x, point))(self.points)
        return self.draw(x) + matmul(self.coefficients, row)

    def select(self, index):
        draw = self.draw.select(index)
        return UpdatedDraw(draw, self.kernel, self.points, self.coefficients[index])


@renamed(count="n_samples", features="n_features")
def pathwise_sample(
    process: GaussianProcess,
    *,
    key: Key[Array, ""],
    n_samples: int,
    point: PyTree | None = None,
    n_features: int | AbstractKernel = 1000,
    throw: bool = True,
) -> SamplePaths:
    """Sample paths of a process as functions of a point, by Matheron's rule.

    For observations `y = f(X) + e`, `e ~ N(0, noise)`, and a draw (p, e) of the prior and the
    noise,

        path(x) = mean(x) + p(x) - k(x, X) C^-1 (p(X) + e),    C = K + diag(noise),

    is a draw of the posterior, where mean(x) is its mean (Wilson et al. 2020, eq. 11). With weights
    it is `k(x, X) S (S K S + diag(noise))^-1 (S p(X) + e)`, `S = sqrt(w)`; the sites of an
    approximate posterior are such weights. Where the kernel has a spectral density, p is a sum of
    random Fourier features, with `n_features` independent frequencies for each path; where it has
    explicit features, p is exact. Each path has exactly the mean and the covariance of the process,
    for any number of features; with more features its joint distribution approaches a normal one at
    a rate of 1 / n_features. Without noise, paths interpolate the data.

    Arguments:
        process: a prior, the process that `condition` returned, or the `.process` of the posterior
            that `laplace`, `expectation_propagation` or `variational` returned.
        key: a JAX random key. For a fixed key the paths depend smoothly on the process.
        n_samples: the number of paths. Memory grows with `n_samples (n_features dim + n)`.
        point: any point, such as `jnp.zeros(dim)`, with the shape and dtype of all points. Only a
            prior needs it, because a posterior has points.
        n_features: the number of frequencies, which kernels without a spectral density ignore; or a
            kernel with explicit features that approximates the prior covariance, such as
            `FeatureMap(kernax.bases.empirical_features(kernel, Z))`, with the points X among Z.
            Only p is drawn from that kernel.
        throw: raise on failure; otherwise all values are NaN.

    Returns:
        `SamplePaths`, a function of a point. It is differentiable in the process, its points and
        noise, and in positive weights. The root of a weight has no derivative at zero, where zero
        is returned. For rough kernels, such as Matern12, the gradient in x is meaningless: its mean
        square is infinite.

    Raises:
        ValueError: a kernel with neither a spectral density nor explicit features, alone or in a
            sum; a prior without a point; bad arguments.
        NonFiniteError: paths are not finite, for example because conditioning failed.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> posterior = kernax.condition(kernax.GaussianProcess(kernax.RBF(0.3)), X, y, 0.01).value
        >>> paths = kernax.pathwise_sample(posterior, key=jax.random.key(0), n_samples=3)
        >>> paths(jnp.array([0.4])).shape
        (3,)
        >>> jax.grad(lambda x: paths[0](x))(jnp.array([0.4])).shape  # the slope of one path
        (1,)
    """
    check_process(process)
    check_key(key)
    check_count(n_samples, "n_samples")
    # The covariance, and one of its points as a batch, in one dtype.
    kernel = process.covariance
    if isinstance(kernel, AbstractPosterior):
        points = points_at(kernel.points, slice(1))
        if point is not None:
            check_one_point(as_point(point), points)
    elif point is None:
        raise ValueError(
            "pathwise_sample of a prior needs a point, to know the shape of all points, such as "
            "point=jnp.zeros(dim)"
        )
    else:
        points = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], as_point(point))
        thrown_by = "pathwise_sample" if throw else None
        kernel, points, _ = prepare_stacks(kernel, as_stack(points, "point"), thrown_by=thrown_by)
    # The number of frequencies, or the kernel that approximates the prior covariance.
    frequencies = 1
    stand_in = None
    if not isinstance(n_features, AbstractKernel):
        hint = ": or a kernel with explicit features"
        frequencies = check_count(n_features, "n_features", hint=hint)
    elif n_features.explicit_features() is None:
        raise ValueError(
            "n_features must be a number, or a kernel with explicit features, such as FeatureMap, "
            f"but is a {type(n_features).__name__}"
        )
    else:
        stand_in = cast(as_kernel(n_features), dtype_of(points))
    mean = cast(process.mean, dtype_of(points))
    first = points_at(points, 0)
    outputs = eqx.filter_eval_shape(mean, first).shape
    request = DrawRequest(points, (n_samples, *outputs), frequencies, _INSTEAD)
    arguments = kernel, stand_in, request, key
    # The draws are traced, not computed, to count the numbers that they need.
    form = eqx.filter_eval_shape(_draws, *arguments)
    kept = sum(leaf.size for leaf in jax.tree.leaves(form) if hasattr(leaf, "size"))
    check_numbers(
        kept,
        dtype_of(points),
        function_name="pathwise_sample",
        for_each=HELD_FOR_EACH,
        what=f"{n_samples} paths of {frequencies} features",
        instead="take fewer paths, or fewer features",
    )
    solution = _draws(*arguments)
    hint = "pathwise_sample: check the result of conditioning the process."
    draw = finish(solution, throw, hint).value
    return SamplePaths(mean, draw, (n_samples,), points)


@compiled
def _draws(kernel, stand_in, request, key):
    """The draws, all NaN if any number in them is not finite."""
    draw = _draw(kernel, stand_in, request, key)
    arrays, rest = eqx.partition(draw, eqx.is_inexact_array)
    finite_leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(arrays)]
    finite = jnp.all(jnp.array(finite_leaves))
    void = jax.tree.map(lambda leaf: jnp.where(finite, leaf, jnp.nan), arrays)
    result = RESULTS.where(finite, RESULTS.successful, RESULTS.nonfinite)
    return Solution(eqx.combine(void, rest), result, {})


_Updatable = (
    PosteriorKernel | WeightedPosteriorKernel | InducedPosteriorKernel | ReductionPosteriorKernel
)


def _draw(
    kernel: AbstractKernel,
    stand_in: AbstractKernel | None,
    request: DrawRequest,
    key: Key[Array, ""],
) -> AbstractDraw:
    """Draws from `GP(0, kernel)`, with the innermost prior replaced by its approximation."""
    if isinstance(kernel, FeaturePosteriorKernel):
        # `phi(x).L^-T z` with standard normal z is exact.
        normal = jax.random.normal(key, (len(kernel.lower), *request.shape), kernel.dtype)
        flat = normal.reshape(len(normal), -1)
        coefficients = solve_lower_transposed(kernel.lower, flat).reshape(normal.shape)
        return FeatureDraw(kernel.prior, jnp.moveaxis(coefficients, 0, -1))
    if isinstance(kernel, _Updatable):
        return _updated(kernel, stand_in, request, key)
    if without_observations(kernel) is not kernel:
        raise ValueError(
            f"pathwise_sample has no rule for the covariance {type(kernel).__name__}: "
            "process.sample draws at given points"
        )
    if stand_in is not None:
        return features_draw(stand_in, request, key)
    return prior_draw(kernel, request, key)


def _updated(
    kernel: _Updatable,
    stand_in: AbstractKernel | None,
    request: DrawRequest,
    key: Key[Array, ""],
) -> AbstractDraw:
    """Matheron's rule: a draw of the prior, corrected to agree with the values at the points."""
    of_prior, of_noise = jax.random.split(key)
    prior = _draw(kernel.prior, stand_in, request, of_prior)
    values = _values_at(prior, kernel.points)
    normal = jax.random.normal(of_noise, values.shape, values.dtype)
    flat = values.reshape(len(values), -1)
    z = normal.reshape(flat.shape)
    if isinstance(kernel, InducedPosteriorKernel):
        # The coefficients `L^-T (root z - L^-1 values)` move draws of the prior, with these values
        # at the inducing points, to values whose whitened draws are `root z`.
        wanted = matmul(kernel.root, z) - solve_lower(kernel.lower, flat)
        lacking = solve_lower_transposed(kernel.lower, wanted)
    elif isinstance(kernel, ReductionPosteriorKernel):
        # -P (W values + S sqrt(D) z), P = (W K + D)^-1, D the noise and S = sqrt(W).
        lacking = -kernel.reduction.lacking(flat, z)
    else:
        # These coefficients move draws of the prior, with these values at the points, to draws
        # given observations of zero: `-S (S K S + diag(noise))^-1 (S values + e)`, with the roots
        # S of the weights and `e = sqrt(noise) z`.
        weighs = isinstance(kernel, WeightedPosteriorKernel)
        roots = kernel.roots if weighs else jnp.ones_like(kernel.noise)
        observed = expand_to(roots, flat) * flat + expand_to(safe_sqrt(kernel.noise), z) * z
        solved = solve_lower_transposed(kernel.lower, solve_lower(kernel.lower, observed))
        lacking = -expand_to(roots, solved) * solved
    coefficients = jnp.moveaxis(lacking.reshape(values.shape), 0, -1)
    return UpdatedDraw(prior, kernel.prior, kernel.points, coefficients)


def _values_at(draw: AbstractDraw, X: PyTree) -> Float[Array, "n *draws"]:
    """The values of a draw at a batch of points, on the device that holds each of them."""

    # Point by point, because the features of all points would need n times the memory of the paths.
    def of_part(draw: AbstractDraw, part: PyTree) -> Array:
        return lax.map(eqx.filter_checkpoint(draw), part)

    spread = rows_over_mesh(X)
    return of_part(draw, X) if spread is None else on_parts(of_part, spread, draw, X)
