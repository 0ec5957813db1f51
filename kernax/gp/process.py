"""Gaussian processes: a mean function and a kernel, closed under conditioning."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_point, cast, check_key, count, dtype_of
from kernax.core.base.compiled import compiled, compiled_call
from kernax.core.base.printing import Printed, missing, typed
from kernax.core.base.solution import (
    RESULTS,
    Solution,
    Suspect,
    finish,
    first_that_holds,
    void_unless_known,
)
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel, as_kernel
from kernax.core.kernel.preparation import check_point, prepare
from kernax.core.learner.structures import sampler_of_posterior, sampler_of_prior
from kernax.core.linalg.cholesky import cholesky_factor
from kernax.core.linalg.density import cholesky
from kernax.core.operators.gram import gram
from kernax.core.operators.memory import Footprint, check_memory
from kernax.core.operators.operators import DenseGram
from kernax.gp.means import mean_for_kernel
from kernax.gp.posterior import (
    AbstractPosterior,
    ReductionPosteriorKernel,
    point_for,
    without_observations,
)

_SAMPLE = Footprint(
    "sample",
    3.4,
    "kernax.pathwise_sample(process, key=key, n_samples=..., point=x) for functions",
)


class GaussianProcess(Printed):
    """`f ~ GP(mean, kernel)`: a mean function and a covariance, which is itself a kernel.

    `GaussianProcess(kernel, mean)` is a prior; `condition` returns a posterior, which is a
    `GaussianProcess` again. The process describes f without noise: the variance of a target is
    `process.variance(x) + noise`.

    Attributes:
        covariance: the kernel; `gram(process.covariance, X)` is the covariance matrix of the values
            at X.
        mean: a function of one point; `jax.vmap(process.mean)(X)` evaluates it at a batch of
            points. A number is a constant mean that is not learned; `ConstantMean` and `LinearMean`
            have parameters, and any module or plain function of a point may be passed. With a
            kernel `OfFunctionals` it is still the mean of f at a point, and the mean of a
            functional follows from it.

    Examples:
        >>> prior = kernax.GaussianProcess(kernax.RBF(0.3), mean=2.0)
        >>> prior.mean(jnp.array([0.4])), prior.variance(jnp.array([0.4]))
        (Array(2., dtype=float64), Array(1., dtype=float64))
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> prior.sample(X, key=jax.random.key(0), shape=(3,)).shape
        (3, 5)
    """

    covariance: AbstractKernel
    mean: Callable

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError with a message that lists the attributes of a process."""
            raise missing(
                self,
                name,
                "process.mean(x) and process.variance(x) take one point, "
                "jax.vmap(process.mean)(X) a batch, process.sample(X, key=key) draws, and "
                "kernax.gram(process.covariance, X) is the covariance of a batch",
            )

    def __init__(self, kernel: AbstractKernel, mean: Callable | ArrayLike = 0.0):
        self.covariance = as_kernel(kernel)
        self.mean = mean_for_kernel(kernel, mean)

    def variance(self, x: PyTree) -> Float[Array, ""]:
        """`Var f(x)` at one point, without noise and never negative; for a batch use
        `jax.vmap(process.variance)(X)`, or `gram_diagonal(process.covariance, X)`.

        Both give the same numbers. For a posterior from `StateSpace()`, use `gram_diagonal`: it
        takes O(n + m) for n observations and m points, and `vmap` of this method O(n m).
        """
        x = point_for(self.covariance, as_point(x))
        check_point(self.covariance, x)
        dtype = dtype_of(x)
        x = cast(x, dtype)
        # k(x, x) - |v(x)|^2 may be negative by rounding.
        return jnp.maximum(compiled_call(cast(self.covariance, dtype), x, x), 0)

    def sample(
        self, X: PyTree, *, key: Key[Array, ""], shape: tuple[int, ...] = (), throw: bool = True
    ) -> Float[Array, "..."]:
        """Joint draws of f at n points X: `(*shape, n)`, or `(*shape, n, outputs)` for several
        outputs.

        The draws are differentiable in the process for a fixed key. If the covariance is
        numerically singular, as for smooth kernels, jitter of at most 1e-4 of the prior variance is
        added. Draws of a process that was conditioned by `StateSpace()` take O(n + m) for n
        observations and m points. Draws of a prior at many points take O(m) where `condition` would
        use `StateSpace()`.

        Raises NotPSDError if there is no Cholesky factor, NonFiniteError if the mean or the
        covariance is not finite: with `throw=False` the draws are NaN instead. It raises ValueError
        for an argument that is not a key or not a shape, and MemoryBudgetError if the matrices do
        not fit.
        """
        check_key(key)
        if not isinstance(shape, (tuple, list)) or not all(
            isinstance(size, (int, np.integer)) and size >= 0 for size in shape
        ):
            raise ValueError(f"shape must be a tuple of integers, such as (5,), but is {shape!r}")
        covariance, X = prepare(self.covariance, X, thrown_by="sample" if throw else None)
        shape = tuple(shape)
        # A sampler that draws in O(n), or None where a dense factorisation is used.
        if isinstance(covariance, ReductionPosteriorKernel):
            sampler = sampler_of_posterior(covariance.reduction, X)
        elif isinstance(covariance, AbstractPosterior):
            sampler = None
        else:
            sampler = sampler_of_prior(covariance, X)
        if sampler is None:
            arguments = covariance, self.mean, X, key, shape
            first = lambda: eqx.filter_eval_shape(_sample, *arguments)
            check_memory(X, footprint=_SAMPLE, first=first)
            solution = _sample(*arguments)
        else:
            outputs = jnp.shape(eqx.filter_eval_shape(self.mean, points_at(X, 0)))
            sampler.check_memory(math.prod((*shape, *outputs)))
            solution = _sample_along_line(sampler, self.mean, X, key, shape)
        suspect = lambda: Suspect("the covariance", count(X), lambda: gram(covariance, X))
        return finish(solution, throw, "GaussianProcess.sample", quiet=True, suspect=suspect).value


def as_process(process: Any) -> GaussianProcess:
    """The process, or a kernel's process of mean zero. Raises ValueError for anything else."""
    if isinstance(process, AbstractKernel):
        return GaussianProcess(process)
    check_process(process)
    return process


def with_the_mean_in_the_process(name: str, position: int = 0) -> Callable:
    """For `translated`: converts calls as of 0.2, with a kernel at that position and `mean=`."""

    def translate(*args, **kwargs):
        if "mean" not in kwargs:
            return None
        given = dict(kwargs)
        mean = given.pop("mean")
        if len(args) > position:
            process = GaussianProcess(args[position], mean)
            args = (*args[:position], process, *args[position + 1 :])
        else:
            kernel = given.pop("kernel", None)
            given["process"] = GaussianProcess(kernel, mean)
        text = f"{name}(kernel, ..., mean=mean) is {name}(GaussianProcess(kernel, mean), ...) now"
        return args, given, text

    return translate


def check_process(process: Any) -> None:
    """Raises ValueError unless the argument is a `GaussianProcess`."""
    if not isinstance(process, GaussianProcess):
        raise ValueError(
            "process must be a GaussianProcess, but is "
            f"{typed(process, ': GaussianProcess(kernel)')}"
        )


@compiled
def _sample(covariance, mean, X, key, shape):
    K = gram(covariance, X)
    # Rounding is relative to the mean variance of the prior; that of a posterior may be tiny.
    prior = without_observations(covariance)
    scale = jnp.mean(jax.vmap(lambda x: prior(x, x))(X))
    factor = cholesky_factor(DenseGram(jax.lax.stop_gradient(K)), scale)
    L = cholesky(K, factor)
    centre = jax.vmap(cast(mean, K.dtype))(X)
    # f(X) = m(X) + L z with z ~ N(0, I) has the covariance L L^T = K + jitter I.
    normal = jax.random.normal(key, (*shape, len(K), *centre.shape[1:]), K.dtype)
    draws = jnp.einsum(
        "ij,...jo->...io", L, normal.reshape(*shape, len(K), -1), precision="highest"
    ).reshape(normal.shape)
    finite = jnp.all(jnp.isfinite(K)) & jnp.all(jnp.isfinite(centre))
    statuses = ((~finite, RESULTS.nonfinite), (~factor.exists, RESULTS.not_psd))
    result = first_that_holds(statuses, RESULTS.successful)
    value = void_unless_known(jnp.broadcast_to(centre, draws.shape) + draws, result)
    return Solution(value, result, {"jitter": factor.jitter})


@compiled
def _sample_along_line(sampler, mean, X, key, shape):
    dtype = sampler.gram.points.dtype
    centre = jax.vmap(cast(mean, dtype))(X)
    # Independent draws in the last axis, one for each entry of `shape` and each output.
    axes = (*shape, *centre.shape[1:])
    drawn = sampler.draws(math.prod(axes), key)
    draws = jnp.moveaxis(drawn.values.reshape(len(centre), *axes), 0, len(shape))
    finite = drawn.is_finite & jnp.all(jnp.isfinite(centre))
    statuses = ((~finite, RESULTS.nonfinite), (~drawn.exists, RESULTS.not_psd))
    result = first_that_holds(statuses, RESULTS.successful)
    value = void_unless_known(jnp.broadcast_to(centre, draws.shape) + draws, result)
    return Solution(value, result, {"jitter": drawn.jitter})
