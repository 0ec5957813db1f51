"""Nystrom features: a kernel projected onto the functions that it spans at some points."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from kernax.core.base.boundary import cast, dtype_of
from kernax.core.base.compiled import compiled
from kernax.core.base.numerics import requested_matmul
from kernax.core.base.parameters import data
from kernax.core.base.solution import Solution, finish, void_unless_known
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import prepare_stacks
from kernax.core.linalg.centre_factor import factor_of_gram, wide
from kernax.core.linalg.solves import inverse_of_lower
from kernax.core.operators.feature_map import FeatureMap
from kernax.core.operators.gram import gram_of_prepared
from kernax.core.operators.memory import Footprint, check_memory
from kernax.scale.centres.choice import checked_centres

# Matrices of m x m, in float64 whatever the points are.
_FOOTPRINT = Footprint("nystrom", 6.5, fewer="fewer centres")


class NystromFeatures(eqx.Module):
    """The Nystrom features `phi(x) = L^-1 k(Z, x)`, `L L^T = k(Z, Z)`: one feature for each of m
    centres Z.

    Attributes:
        kernel: k.
        centres: Z, a batch of m points.
        whitening: `L^-1`, (m, m).
    """

    kernel: AbstractKernel = data()
    centres: PyTree = data()
    whitening: Float[Array, "m m"] = data()

    def __call__(self, x: PyTree) -> Float[Array, " m"]:
        # phi(x).phi(z) = k(x, Z) (L L^T)^-1 k(Z, z).
        row = jax.vmap(lambda centre: self.kernel(centre, x))(self.centres)
        return requested_matmul(self.whitening, row)


def nystrom(
    kernel: AbstractKernel,
    X: PyTree,
    centres: PyTree | int,
    *,
    key: PRNGKeyArray | None = None,
    throw: bool = True,
) -> FeatureMap:
    """The Nystrom approximation of a kernel over m centres Z: `k(x, Z) k(Z, Z)^-1 k(Z, z)` in place
    of `k(x, z)` (Williams & Seeger 2001).

    It is the kernel of the functions `sum_j a_j k(., z_j)`: exact where x or z is a centre, and for
    x = z at most `k(x, x)`. With it, functions that use explicit features, such as `kernel_ridge`,
    `kernel_logistic`, `svm`, `condition` or `kernel_pca`, take O(n m^2) operations and O(n m)
    memory; `falkon` takes O(m^2) memory.

    Arguments:
        kernel: any kernel.
        X: a batch of n points of any kind.
        centres: m points, such as those of `choose_centres`; or their number, to draw points of X
            by `key`.
        throw: raise where k(Z, Z) has no factor; False returns NaN features.

    Returns:
        A `FeatureMap`, itself a kernel; `jax.vmap(features.phi)(X)` are the features (n, m). It is
        differentiable in the kernel, X and the centres. Its parts are data: to learn the parameters
        of `kernel`, build the map inside the loss. Where k(Z, Z) is singular to working precision,
        as where centres coincide, jitter is added to its diagonal, and a `ConditionWarning` says
        so: the kernel is then smaller by about that jitter.

    Raises:
        ValueError: bad points, centres of another kind than the points, or a number of centres
            without a key.
        NotPSDError, NonFiniteError: k(Z, Z) is not positive semidefinite, or not finite.
        MemoryBudgetError: m x m numbers do not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> approximation = kernax.nystrom(kernax.RBF(0.3), X, centres=X[:3])
        >>> x, z = X[0], X[4]
        >>> bool(jnp.isclose(approximation(x, z), kernax.RBF(0.3)(x, z)))  # exact at a centre
        True
        >>> jax.vmap(approximation.features)(X).shape
        (5, 3)
    """
    kernel, X, _ = prepare_stacks(kernel, X, thrown_by="nystrom" if throw else None)
    Z = checked_centres(kernel, X, centres, key)
    # k(x_1, z_1) raises for centres of another kind.
    first_value = lambda X, Z: kernel(points_at(X, 0), points_at(Z, 0))
    eqx.filter_eval_shape(first_value, X, Z)
    check_memory(Z, footprint=_FOOTPRINT, dtype=wide(dtype_of(X)))
    hint = "nystrom: fewer centres, or centres further apart, need no jitter."
    return FeatureMap(finish(_nystrom(kernel, Z), throw, hint).value)


@compiled
def _nystrom(kernel, Z):
    dtype = dtype_of(Z)
    within = wide(dtype)
    K = gram_of_prepared(cast(kernel, within), cast(Z, within))
    at = factor_of_gram(K, cross_dtype=dtype)
    whitening = void_unless_known(inverse_of_lower(at.lower).astype(dtype), at.result)
    return Solution(NystromFeatures(kernel, Z, whitening), at.result, {"jitter": at.jitter})
