"""Kernel-target alignment: how much a Gram matrix looks like the products of the targets."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import compiled
from kernax.core.base.numerics import eps_of, is_concrete, matmul, positive_or_one, stop_gradient
from kernax.core.base.powers import exponent_of, in_own_unit, times_power_of_two
from kernax.core.base.weights import PointWeights
from kernax.core.kernel.kernel import AbstractKernel, Scaled, Sum
from kernax.core.learner.learner_problem import LearnerProblem, check_problem
from kernax.core.operators.memory import Footprint, check_memory
from kernax.unsupervised.centring import shares

# K and K centred.
_ALIGNMENT = Footprint("alignment", 2.0)
# Two matrices for each kernel.
_ALIGNED_SUM = Footprint(
    "aligned_sum",
    0.0,
    "kernax.selection.alignment(kernel, X, y) of one kernel at a time",
    of_each_column=2.0,
)


def alignment(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    *,
    centred: bool = True,
    weights: ArrayLike | None = None,
) -> Float[Array, ""]:
    """The kernel-target alignment `<K, Y Y^T> / (|K| |Y Y^T|)` in the Frobenius product, with K and
    Y centred.

    It is at most 1, and 1 where K is a multiple of `Y Y^T`. It measures, without a learner, how
    well a kernel suits the targets, and can be maximised over the kernel's parameters (Cristianini,
    Shawe-Taylor, Elisseeff & Kandola 2002). Centred, it is the normalised HSIC of points and
    targets: it is never negative, and if it is large, a predictor with a small error exists
    (Cortes, Mohri & Rostamizadeh 2012, section 3). Without centring, a constant added to the kernel
    changes it, and so do classes of unequal size.

    Arguments:
        kernel: any kernel.
        X: a batch of n points.
        y: numbers or signs (n,), or one-hot classes or several numbers (n, outputs).
        centred: whether means over the points are subtracted, in the feature space of the kernel.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed.

    Returns:
        A number, differentiable in the kernel, X, y and weights. It is NaN where K or the targets
        are traced and constant.

    Raises ValueError for bad shapes or values, and for a K or targets that are constant, or zero if
    not centred.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> round(float(kernax.selection.alignment(kernax.RBF(0.3), X, y)), 2)
        0.78
    """
    problem = check_problem("alignment", kernel, X, y, weights, footprint=_ALIGNMENT)
    _check_targets_differ(problem, centred)
    value, is_constant = _alignment(problem, bool(centred))
    if is_concrete(is_constant) and bool(is_constant):
        if centred:
            raise ValueError(
                f"{problem.kernel_name} is constant over X up to rounding, so that nothing is left "
                "after centring"
            )
        raise ValueError(
            f"{problem.kernel_name} is zero over X, and so has no alignment with the targets"
        )
    return value


def _check_targets_differ(problem: LearnerProblem, centred: bool) -> None:
    """Raises ValueError for targets that are all equal, or, without centring, all zero."""
    kept = problem.weights.kept() if is_concrete(problem.y, problem.weights) else None
    if kept is None:
        return
    values = np.asarray(problem.y)[kept]  # not its columns, which are traced inside of jit
    origin = values[:1] if centred else 0
    if np.any(values - origin):
        return
    if centred:
        raise ValueError(
            "y holds the same value for all points, so that nothing is left after centring"
        )
    raise ValueError("y holds only zeros, for which the alignment is undefined")


@compiled
def _alignment(problem, centred):
    """`<K, Y Y^T> / (|K| |Y Y^T|)`, and whether K is constant, or zero, up to rounding."""
    problem = _with_weights_in_own_unit(problem)
    K, _ = _prepared(problem, centred)
    Y = _targets(problem, centred)
    # sum_ij w_i w_j K_ij^2
    square = jnp.sum(problem.weights.times(matmul(K * K, problem.weights.values)))
    # sum_ij w_i w_j (Y Y^T)_ij^2
    of_targets = jnp.sum(matmul(Y.T, problem.weights.times(Y)) ** 2)
    # Centring a constant leaves rounding.
    total = jnp.sum(problem.weights.values)
    least = 16 * eps_of(K)
    smallest = (least * total) ** 2
    known = (square > smallest) & (of_targets > (least**2 * total) ** 2)
    # <K, Y Y^T> / (|K| |Y Y^T|).
    roots = jnp.sqrt(jnp.where(known, square, 1)) * jnp.sqrt(jnp.where(known, of_targets, 1))
    value = jnp.where(known, _along_targets(K, Y, problem) / roots, jnp.nan)
    return value, square <= smallest


def _with_weights_in_own_unit(problem: LearnerProblem) -> LearnerProblem:
    """The same problem with weights of about one. A common factor of all weights changes nothing,
    but products of two very small or very large weights would leave the range of floats.
    """
    if problem.weights.given is None:
        return problem
    weights = PointWeights(in_own_unit(problem.weights.values)[0])
    return eqx.tree_at(lambda problem: problem.weights, problem, weights)


# Products of matrices are sums over pairs of points, weighted by both weights. They are smooth in
# the weights at zero, unlike in their roots.


def _along_targets(
    K: Float[Array, "n n"], Y: Float[Array, "n p"], problem: LearnerProblem
) -> Float[Array, ""]:
    """`sum_ij w_i w_j K_ij (Y Y^T)_ij`."""
    weighted = problem.weights.times(Y)
    return jnp.sum(weighted * matmul(K, weighted))


def _in_unit(
    values: Float[Array, "n m"], present: Bool[Array, "n #m"]
) -> tuple[Float[Array, "n m"], Int[Array, ""]]:
    """`2^-e values`, and e, the exponent of the largest of the values that are present."""
    unit = exponent_of(jnp.max(jnp.where(present, jnp.abs(values), 0)))
    return times_power_of_two(values, -unit), unit


def _prepared(problem: LearnerProblem, centred: bool) -> tuple[Float[Array, "n n"], Int[Array, ""]]:
    """K, centred or not, in a unit near its largest number, and the exponent of the unit."""
    present = problem.weights.values > 0
    K, unit = _in_unit(problem.gram().as_matrix(), present[:, None] & present[None, :])
    if not centred:
        return K, unit
    # H K H^T = K - m 1^T - 1 m^T + (p.m) 1 1^T with H = I - 1 p^T and m = K p.
    p = shares(problem.weights)
    means = matmul(K, p)
    return K - means[:, None] - means[None, :] + jnp.sum(p * means), unit


def _targets(problem: LearnerProblem, centred: bool) -> Float[Array, "n p"]:
    """Y, centred or not, in a unit near its largest number."""
    Y, _ = _in_unit(problem.columns, (problem.weights.values > 0)[:, None])
    # H Y = Y - 1 (p^T Y).
    return Y - matmul(shares(problem.weights), Y)[None, :] if centred else Y


def aligned_sum(
    kernels: Sequence[AbstractKernel],
    X: PyTree,
    y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
) -> Sum:
    """Multiple kernel learning by alignment: the sum `sum_k m_k k_k`, m >= 0 with sum 1, of given
    kernels with the largest centred `alignment`.

    No learner is involved: m is the minimiser of `m.M m - 2 m.a` over m >= 0, rescaled, with `M_kl
    = <K_k, K_l>` and `a_k = <K_k, Y Y^T>` of centred matrices (Cortes, Mohri & Rostamizadeh 2012,
    proposition 9). Kernels that add no information about the targets get a weight of exactly zero.

    The sum is an ordinary kernel, and its scales are parameters: `minimise` learns them through any
    learner and any loss, starting from these or from equal ones. Learned scales stay positive:
    those of useless kernels become small, not zero; scales that are zero here stay zero with
    `trainable=lambda path, value: value > 0`. Either may be worse than equal weights, because many
    kernels overfit few points.

    Arguments:
        kernels: at least one; all take the same points, such as `On(RBF(), [j])` for each column.
        X: a batch of n points.
        y: as in `alignment`.
        weights: (n,) >= 0, the weights of the points.

    The weights of the kernels have no derivative. All Gram matrices are in memory at once.

    Raises ValueError as `alignment` does, for no kernels, and where none is aligned with the
    targets.

    Examples:
        >>> X = jnp.array([[0.0, 1.0], [0.2, 0.0], [0.6, 0.5], [0.8, 0.9], [1.0, 0.1]])
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])  # depends on the first column
        >>> kernels = [kernax.On(kernax.RBF(0.3), [0]), kernax.On(kernax.RBF(0.3), [1])]
        >>> first, second = kernax.selection.aligned_sum(kernels, X, y).terms
        >>> bool(first.scale > second.scale)
        True
    """
    kernels = tuple(kernels)
    if not kernels:
        raise ValueError("kernels must hold at least one kernel, but is empty")
    # Rows over a mesh need other advice: one kernel at a time does not help.
    footprint = _ALIGNED_SUM._replace(instead=None)
    problems = [
        check_problem("aligned_sum", kernel, X, y, weights, footprint=footprint)
        for kernel in kernels
    ]
    _check_targets_differ(problems[0], centred=True)
    first = lambda: eqx.filter_eval_shape(_aligned, tuple(problems))
    check_memory(problems[0].X, footprint=_ALIGNED_SUM, columns=len(kernels), first=first)
    shares_of_kernels = _aligned(tuple(problems))
    if is_concrete(shares_of_kernels) and not np.all(np.isfinite(shares_of_kernels)):
        raise ValueError(
            "kernels must vary with the targets, but none does: each is constant over X, or has no "
            "positive alignment with y"
        )
    return Sum(*(Scaled(k, m) for k, m in zip(kernels, shares_of_kernels)))


@compiled
def _aligned(problems):
    problems = [_with_weights_in_own_unit(problem) for problem in problems]
    problem = problems[0]
    grams, units = zip(*(_prepared(stop_gradient(one), True) for one in problems))
    Y = _targets(problem, True)
    # m minimises m.M m - 2 m.a over m >= 0, M_kl = <K_k, K_l> and a_k = <K_k, Y Y^T>.
    # `M_kl = sum_ij w_i w_j K_ij L_ij` of all pairs of matrices.
    # Row by row, `M += w_i A diag(w) A^T` with the i-th rows of all matrices in A (k, n): no
    # product of two matrices is stored.
    w = problem.weights.values

    def with_row(M, row):
        w_i, rows = row
        A = jnp.stack(rows)
        return M + w_i * matmul(A * w[None, :], A.T), None

    nothing = jnp.zeros((len(grams), len(grams)), problem.dtype)
    M = lax.scan(with_row, nothing, (w, grams))[0]
    a = jnp.stack([_along_targets(K, Y, problem) for K in grams])
    # The weights of the matrices in the units of the kernels.
    m = times_power_of_two(_nonnegative_minimiser(M, a), -jnp.stack(units))
    return m / jnp.sum(m)


class _CoordinateDescent(eqx.Module):
    """Weights after some sweeps, and how far the last one moved them."""

    m: Float[Array, " k"]
    moved: Float[Array, ""]
    sweeps: Int[Array, ""]


def _nonnegative_minimiser(M: Float[Array, "k k"], a: Float[Array, " k"]) -> Float[Array, " k"]:
    """The m >= 0 with the smallest `m.M m - 2 m.a`, by coordinate descent in units of `M_kk`."""
    # With c_k = size_k m_k: m.M m - 2 m.a = c.C c - 2 c.(a / size), C the correlations.
    size = jnp.sqrt(positive_or_one(jnp.diagonal(M)))
    correlations = M / (size[:, None] * size[None, :])
    goals = a / size

    def sweep(now: _CoordinateDescent) -> _CoordinateDescent:
        """Each weight in turn at its minimum, given the others."""

        def along(k, c):
            # c_k = max(0, goal_k - sum_{l != k} C_kl c_l), as C_kk = 1.
            others = matmul(correlations[k], c) - c[k]
            return c.at[k].set(jnp.maximum(goals[k] - others, 0))

        c = lax.fori_loop(0, len(goals), along, now.m)
        return _CoordinateDescent(c, jnp.max(jnp.abs(c - now.m)), now.sweeps + 1)

    def go_on(now: _CoordinateDescent) -> Array:
        return (now.moved > 8 * eps_of(now.m) * jnp.max(now.m)) & (now.sweeps < 10_000)

    infinite = jnp.full_like(a[0], jnp.inf)
    start = _CoordinateDescent(jnp.zeros_like(a), infinite, jnp.zeros((), jnp.int32))
    return lax.while_loop(go_on, sweep, start).m / size
