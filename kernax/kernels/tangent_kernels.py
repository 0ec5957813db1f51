"""Kernels of a model's gradients: the tangent kernel of a network, the Fisher kernel of a density.

The parameters of a model are the leaves that `unconstrain` lists: the weights of a network and the
declared parameters of a module, but not its `data()` fields.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.base.boundary import as_stack, cast, dtype_of
from kernax.core.base.functions import as_module, function_field
from kernax.core.base.numerics import dot, is_concrete, matmul
from kernax.core.base.parameters import data, parameters
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.linalg.solves import solve_lower
from kernax.kernels.matrices import check_symmetric, matrix_or_none


def _gradients(model: Any, x: PyTree) -> list[Array]:
    """The derivative of every output of `model(x)` in each parameter: arrays (*outputs, *shape)."""
    indices = {entry.leaf_index for entry in parameters(model)}
    leaves, structure = jax.tree.flatten(model)

    def at(learned: dict[int, Array]) -> Array:
        return jax.tree.unflatten(
            structure, [learned.get(i, leaf) for i, leaf in enumerate(leaves)]
        )(x)

    slopes = jax.jacrev(at)({index: leaves[index] for index in indices})
    return [slopes[index] for index in sorted(indices)]


def _check_has_parameters(model: Any, name: str) -> None:
    """Raises ValueError for a function without parameters, whose gradient is empty."""
    if not jax.tree.leaves(model) or not parameters(model):
        raise ValueError(
            f"{name} has no parameters, so that there is no gradient to compare: pass a module, or "
            "Custom(function, parameters)"
        )


class TangentKernel(AbstractKernel):
    """`sum_o grad f_o(x) . grad f_o(z)`: gradients of the outputs f_o of a network in parameters.

    It is the neural tangent kernel of this network at these parameters (Jacot et al. 2018, eq. 3),
    summed over several outputs. Gradient descent on the squared loss in a wide network gives nearly
    the same fit as `kernel_ridge` with this kernel and a ridge near zero. The parameters of the
    kernel are those of the network.

    A Gram matrix is a product of gradients (n, p) for p parameters, of which no more than a fixed
    budget is in memory at one time; a Jacobian-vector product for each pair would take twice as
    long. With fewer parameters than points, the gradients are explicit features, and K is never
    formed. A single prediction computes the gradients at all n points; `values` of an expansion
    keeps to the budget.

    Examples:
        >>> import equinox as eqx
        >>> network = eqx.nn.MLP(1, 1, width_size=8, depth=1, key=jax.random.key(0))
        >>> k = kernax.kernels.TangentKernel(network)
        >>> kernax.gram(k, jnp.linspace(0.0, 1.0, 5)[:, None]).shape
        (5, 5)
    """

    network: Callable = function_field()

    mirrors: ClassVar[bool] = True

    def __check_init__(self):
        _check_has_parameters(self.network, "network")

    def __call__(self, x, z):
        return dot(_gradients(self.network, x), _gradients(self.network, z))

    def explicit_features(self):
        return lambda x: jnp.concatenate([slope.ravel() for slope in _gradients(self.network, x)])


class FisherKernel(AbstractKernel):
    """`U(x)^T J^-1 U(z)`, scores `U(x) = grad log p(x)` of a density in its p parameters.

    Two points are similar if the likelihood of each rises in the same direction of the parameters
    (Jaakkola & Haussler 1999, section 2). J is the `information` (p, p), Fisher's matrix `E U(x)
    U(x)^T`, with parameters in the order of `kernax.describe(log_density)`; without one it is the
    identity, as is usual where p is large. `of_sample` estimates J from a sample. With Fisher's
    matrix the kernel does not depend on how the density is parametrised.

    Raises ValueError for a matrix that is not symmetric positive definite, and for a density
    without parameters.

    Examples:
        >>> import equinox as eqx
        >>> class Normal(eqx.Module):
        ...     mean: jax.Array = kernax.fields.real()
        ...     def __call__(self, x):
        ...         return -0.5 * jnp.sum((x - self.mean) ** 2)
        ...
        >>> k = kernax.kernels.FisherKernel(Normal(1.0))
        >>> float(k(jnp.array([2.0]), jnp.array([4.0])))  # the scores are x - mean: 1 * 3
        3.0
    """

    log_density: Callable = function_field()
    information: Float[Array, "p p"] | None = data(
        converter=partial(matrix_or_none, name="information"), default=None
    )

    mirrors: ClassVar[bool] = True

    def __check_init__(self):
        _check_has_parameters(self.log_density, "log_density")
        J = self.information
        if J is None:
            return
        size = sum(entry.value.size for entry in parameters(self.log_density))
        if J.shape != (size, size):
            raise ValueError(
                f"information must have shape {size, size}, for {size} parameters, but has shape "
                f"{J.shape}"
            )
        if not is_concrete(J):
            return
        values = np.asarray(J, float)
        if not np.isfinite(values).all():
            raise ValueError("information must be finite, but holds NaN or inf")
        check_symmetric(values, "information", 1e-5)
        eigenvalues = np.linalg.eigvalsh(values)
        if not eigenvalues[0] > size * float(jnp.finfo(J.dtype).eps) * eigenvalues[-1]:
            raise ValueError(
                "information must be positive definite, but its eigenvalues go from "
                f"{eigenvalues[0]:.3g} to {eigenvalues[-1]:.3g}: a sample needs more points than "
                "there are parameters, and no parameter may be redundant"
            )

    @staticmethod
    def of_sample(log_density: Callable, X: PyTree) -> "FisherKernel":
        """The kernel with `J = mean_i U(x_i) U(x_i)^T` over a batch of more points than parameters.
        If the points come from the density, J tends to Fisher's information.
        """
        X = as_stack(X, "X")
        model = cast(as_module(log_density, "log_density"), dtype_of(X))
        U = jax.vmap(FisherKernel(model).score)(X)
        return FisherKernel(model, matmul(U.T, U) / len(U))

    def __call__(self, x, z):
        return dot(self.score(x), self.score(z))

    def score(self, x: PyTree) -> Float[Array, " p"]:
        """`L^-1 U(x)` with `J = L L^T`."""
        slopes = _gradients(self.log_density, x)
        entries = parameters(self.log_density)
        if any(slope.ndim > entry.value.ndim for slope, entry in zip(slopes, entries)):
            raise ValueError("log_density must return a scalar, log p(x)")
        U = jnp.concatenate([slope.ravel() for slope in slopes])
        if self.information is None:
            return U
        return solve_lower(jnp.linalg.cholesky(self.information), U)

    def explicit_features(self):
        return self.score
