"""A layer of features by inducing points."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from kernax.core.base.annotations import ArrayLike, ParameterArray
from kernax.core.base.boundary import as_point, cast, check_key, dtype_of
from kernax.core.base.numerics import matmul
from kernax.core.base.parameters import as_floats, check_count, check_intervals, real
from kernax.core.base.printing import Printed
from kernax.core.kernel.kernel import AbstractKernel, as_kernel
from kernax.scale.features.nystrom import nystrom


class KernelLayer(Printed):
    """A layer of inducing points: `layer(x) = k(x, Z) L^-T W`, `L L^T = k(Z, Z)`.

    The features `L^-1 k(Z, x)` are those of `nystrom`: their inner products approximate the kernel,
    and are equal to it at the inducing points. All parameters are learned together: the inducing
    points Z, the weights W and those of the kernel.

    Arguments:
        kernel: any kernel of vectors.
        inducing: the m inducing points Z to start from, (m, d), such as some of the first inputs;
            distinct, or jitter makes the features smaller, which is reported by a warning.
        n_outputs: the number of outputs.
        key: draws the weights from the standard normal distribution. The layer is then a draw of
            the Gaussian process with the approximate kernel as its covariance.

    A call takes one point (d,) and returns (n_outputs,); for a batch use `jax.vmap(layer)(X)`,
    which factorises k(Z, Z) once. Inside `equinox.nn.Sequential` it is a layer like any other. The
    result is NaN if k(Z, Z) has no Cholesky factor. Nothing bounds the weights: with few rows, use
    weight decay, or stop by the error on held-out rows.

    Raises ValueError for bad shapes and for concrete values that are not allowed.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> key = jax.random.key(0)
        >>> layer = kernax.nn.KernelLayer(kernax.RBF(0.3), X[:3], n_outputs=2, key=key)
        >>> jax.vmap(layer)(X).shape
        (5, 2)
        >>> theta, rebuild = kernax.unconstrain(layer)  # what is learned
        >>> sorted(theta)
        ['inducing', 'kernel.lengthscale', 'weights']
    """

    kernel: AbstractKernel
    inducing: Float[ParameterArray, "m d"] = real()
    weights: Float[ParameterArray, "m n_outputs"] = real()

    def __init__(
        self,
        kernel: AbstractKernel,
        inducing: ArrayLike | list,
        n_outputs: int,
        *,
        key: PRNGKeyArray,
    ):
        check_key(key)
        self.kernel = as_kernel(kernel)
        self.inducing = as_floats(inducing, "inducing")
        shape = self.inducing.shape
        if len(shape) != 2 or 0 in shape:
            raise ValueError(
                f"inducing must have shape (m, d), one row for each point, but has shape {shape}"
            )
        weights = shape[0], check_count(n_outputs, "n_outputs")
        self.weights = jax.random.normal(key, weights, self.inducing.dtype)

    def __check_init__(self):
        check_intervals(self)

    def __call__(
        self, x: ArrayLike, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " n_outputs"]:
        """The outputs at one point. The key is not used; `equinox.nn.Sequential` passes one."""
        x = as_point(x)
        if jnp.shape(x) != jnp.shape(self.inducing)[1:]:
            raise ValueError(
                f"x must be one point of shape {jnp.shape(self.inducing)[1:]}, but has shape "
                f"{jnp.shape(x)}: jax.vmap(layer)(X) takes a batch"
            )
        layer = cast(self, dtype_of(x))
        # phi(x) = L^-1 k(Z, x), and the outputs are W^T phi(x).
        phi = nystrom(layer.kernel, layer.inducing, layer.inducing, throw=False).features
        return matmul(phi(x), layer.weights)
