"""The Hessian of the softmax loss over all classes, and the inverse of the matrix of Newton's
method.
"""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.numerics import eps_of, matmul, positive_or_one
from kernax.core.linalg.cholesky import cholesky_factor
from kernax.core.linalg.factorisation import direct_accuracy
from kernax.core.linalg.jitter import range_of_jitter
from kernax.core.linalg.refinement import refined
from kernax.core.linalg.solves import solve_lower
from kernax.core.operators.operators import AbstractGram, DenseGram, LowRankGram


def hessian(P, weights, v):
    """`w_i (P_i v_i - P_i (P_i . v_i))`, the second derivative of the loss in f applied to v (n,
    classes).

    It is computed relative to the value at the likeliest class, because the difference would cancel
    if that class is nearly certain.
    """
    # The entries of P_i sum to one, so adding a constant to v_i changes nothing.
    v = v - jnp.sum(_likeliest(P) * v, 1, keepdims=True)
    return weights[:, None] * P * (v - jnp.sum(P * v, 1, keepdims=True))


def sum_of_others(P):
    """`1 - P` to full relative precision."""
    likeliest = _likeliest(P)
    return jnp.where(likeliest > 0, jnp.sum((1 - likeliest) * P, 1, keepdims=True), 1 - P)


def _likeliest(P):
    """One at the first class of the largest probability, zero elsewhere."""
    return jax.nn.one_hot(jnp.argmax(P, 1), P.shape[1], dtype=P.dtype)


class SoftmaxSystem(eqx.Module):
    """The matrix `J (a, b) = (W (K a + b) + ridge a, ridge sum a)` of Newton's method, of
    coefficients a above biases b; the sum is over points. Without a bias the last row is b.

    With a bias, J maps biases that are equal for all classes to zero. J and its transpose map
    arrays with sums of zero over the classes to such arrays, and are regular among them; right-hand
    sides and solutions are of that kind.

    Attributes:
        P: probabilities, of which W is the Hessian.
    """

    gram: AbstractGram
    P: Float[Array, "n c"]
    ridge: Float[Array, ""]
    weights: Float[Array, " n"]
    bias: bool = eqx.field(static=True)

    def apply(self, x: Float[Array, "m c"]) -> Float[Array, "m c"]:
        """`J x`, m = n + 1."""
        a = x[:-1]
        b = x[-1:]
        values = self.gram.mv(a)
        if not self.bias:
            return jnp.append(self._curved(values) + self.ridge * a, b, 0)
        of_points = self._curved(values + b) + self.ridge * a
        return jnp.append(of_points, self.ridge * jnp.sum(a, 0, keepdims=True), 0)

    def apply_transposed(self, x: Float[Array, "m c"]) -> Float[Array, "m c"]:
        """`J^T x`."""
        a = x[:-1]
        b = x[-1:]
        curved = self._curved(a)
        of_points = self.gram.mv(curved) + self.ridge * a
        if not self.bias:
            return jnp.append(of_points, b, 0)
        return jnp.append(of_points + self.ridge * b, jnp.sum(curved, 0, keepdims=True), 0)

    def solve(self, rhs: Float[Array, "m c"]) -> Float[Array, "m c"]:
        """`J^-1 rhs`, differentiable in all arguments; NaN unless its residual is as small as that
        of a direct solve.
        """

        def unless_left(solution, share):
            return jnp.where(share <= direct_accuracy(rhs.dtype), solution, jnp.nan)

        # A batch is solved one by one on a CPU, each member in as many steps as it needs.
        def solve(_, r):
            return sequential_vmap(lambda system, r: unless_left(*system.solved(r)), self, r)

        def solve_transposed(_, r):
            solved = lambda system, r: unless_left(*system.solved_transposed(r))
            return sequential_vmap(solved, self, r)

        solution = lax.custom_linear_solve(self.apply, balanced(rhs), solve, solve_transposed)
        return balanced(solution)

    def solved(self, rhs: Float[Array, "m c"]) -> tuple[Float[Array, "m c"], Float[Array, ""]]:
        """`J^-1 rhs`, and the fraction of rhs that is left; not to be differentiated."""
        # For small ridges the sum over the classes is so close to singular that the second digit
        # may be lost in float32.
        return refined(self._rough_inverse(), self.apply, balanced(rhs))

    def solved_transposed(
        self, rhs: Float[Array, "m c"]
    ) -> tuple[Float[Array, "m c"], Float[Array, ""]]:
        """`J^-T rhs`, in the same way."""
        rough = self._rough_inverse()

        def roughly(r):
            # K W a + ridge (a + b) = r and sum (W a) = total: then z = W a and ridge b solve J (z,
            # ridge b) = (W r, ridge total), and a = (r - K z) / ridge - b.
            inside = jnp.append(self._curved(r[:-1]), self.ridge * r[-1:], 0)
            z, _ = refined(rough, self.apply, inside)
            a = (r[:-1] - self.gram.mv(z[:-1])) / self.ridge
            b = z[-1:] / self.ridge
            return jnp.append(a - b if self.bias else a, b, 0)

        return refined(roughly, self.apply_transposed, balanced(rhs))

    def _curved(self, v: Float[Array, "n c"]) -> Float[Array, "n c"]:
        """`W v`."""
        return hessian(self.P, self.weights, v)

    def _rough_inverse(self) -> Callable[[Array], Array]:
        """`J^-1`, accurate to at least one or two digits."""
        has_features = isinstance(self.gram, LowRankGram)
        kind = HessianInverseOfFeatures if has_features else HessianInverse
        inverse = kind(self.gram, self.P, self.ridge, self.weights)
        if not self.bias:
            return lambda rhs: balanced(jnp.append(inverse.solve(rhs[:-1]), rhs[-1:], 0))

        # The border W 1 of each class, (c, n, c), and (W K + ridge)^-1 border, (n, c, c).
        units = jnp.eye(self.P.shape[1], dtype=self.P.dtype)
        border = jax.vmap(lambda unit: self._curved(jnp.broadcast_to(unit, self.P.shape)))(units)
        of_border = jnp.moveaxis(jax.vmap(inverse.solve)(border), 0, 2)
        # Use units of the border's solution, because with a tiny ridge its sum would overflow.
        size = positive_or_one(jnp.max(abs(of_border)))
        pull = jnp.sum(of_border / size, 0)
        trace = jnp.trace(pull)
        # The inverse of the pull, which maps constants to zero, for vectors without a constant
        # part. In pull + tr(pull) / c^2 1 1^T constants have the eigenvalue tr(pull) / c, and the
        # rest is unchanged. A pull of zero, where the class of every point is certain, counts as
        # the identity.
        certain = jnp.where(trace > 0, 0, jnp.eye(len(pull), dtype=pull.dtype))
        inverse_of_pull = jnp.linalg.inv(pull + trace / len(pull) ** 2 + certain)

        def solve(rhs):
            # a = u - (W K + ridge)^-1 border b, u = (W K + ridge)^-1 r, and sum a = total give b.
            u = inverse.solve(rhs[:-1])
            sums = jnp.sum(u / size, 0) - rhs[-1] / self.ridge / size
            b = matmul(inverse_of_pull, sums)
            return balanced(jnp.append(u - matmul(of_border, b), b[None], 0))

        return solve


def balanced(x: Float[Array, "m c"]) -> Float[Array, "m c"]:
    """Rows shifted to sum to zero, as at the minimum. Rounding of the gradient divided by the ridge
    may be much larger than x.
    """
    return x - jnp.mean(x, 1, keepdims=True)


class AbstractHessianInverse(abc.ABC):
    """`(W K + ridge I)^-1`, accurate to at least one or two digits, without derivatives."""

    @abc.abstractmethod
    def solve(self, r: Float[Array, "n c"]) -> Float[Array, "n c"]:
        """The product with r."""


class HessianInverse(AbstractHessianInverse):
    """The inverse for a dense K, by factors of size n for each class and one for all classes.

    The error of the rough solution is about eps times the largest eigenvalue of `w K / ridge`.
    """

    def __init__(self, gram, P, ridge, weights):
        # With K = L L^T, D_c = w P_c and V_c = L R_c^-T, R_c R_c^T = ridge + L^T D_c L, K (ridge +
        # D_c K)^-1 is S_c = V_c V_c^T. Therefore values f_c = K a_c with ridge a_c + D_c (f_c - q)
        # = r_c,
        # q = sum_c P_c f_c, are S_c (r_c + D_c q), and with g_c = w^1/2 P_c (I - sum_c g_c S_c g_c)
        # w^1/2 q = w^1/2 sum_c P_c S_c r_c: a matrix with eigenvalues between 0 and 1, of which
        # sums lose no more than eps.
        self.args = (P, ridge, weights)
        # L L^T = K to a few eps of its mean diagonal; zero if K is zero.
        mean = jnp.mean(gram.diagonal())
        first, _ = range_of_jitter(mean)
        scale = 2 * eps_of(mean) * mean**2 / positive_or_one(first)
        lower = jnp.where(mean == 0, 0, cholesky_factor(gram, scale).lower)
        identity = jnp.eye(len(lower), dtype=P.dtype)
        root_of_weights = jnp.sqrt(weights)

        def with_class(left, P_c):
            A = matmul(lower.T, (weights * P_c)[:, None] * lower) + ridge * identity
            # A = ridge I + L^T D_c L = R_c R_c^T, V_c^T = R_c^-1 L^T, and S_c = V_c V_c^T.
            V_transposed = solve_lower(cholesky_factor(DenseGram(A)).lower, lower.T)
            S = matmul(V_transposed.T, V_transposed)
            g = root_of_weights * P_c
            return left - g[:, None] * S * g[None, :], S

        left, self.of_classes = lax.scan(with_class, identity, P.T)
        self.total = cholesky_factor(DenseGram(left))
        self.root_of_weights = root_of_weights

    def solve(self, r):
        P, ridge, weights = self.args
        # This q is w^1/2 times that of the constructor: f_c = S_c (r_c + w^1/2 P_c q), and the
        # solution is a = (r - W f) / ridge.
        q = self.total.solve(self.root_of_weights * jnp.sum(P * self._values(r), 1))
        # This gives the step for D instead of W <= D, which is shorter but also a descent
        # direction.
        q = jnp.where(self.total.exists, q, 0)
        f = self._values(r + self.root_of_weights[:, None] * P * q[:, None])
        return (r - hessian(P, weights, f)) / ridge

    def _values(self, r):
        """`K (ridge + D_c K)^-1 r_c` for each class."""
        return jax.vmap(matmul, (0, 1), 1)(self.of_classes, r)


class HessianInverseOfFeatures(AbstractHessianInverse):
    """The inverse for `K = F F^T` with D features, by one factor of size D times classes."""

    def __init__(self, gram, P, ridge, weights):
        # u = F^T a solves (ridge + F^T W F) u = F^T r, where W couples the classes, and a is (r - W
        # F u) / ridge.
        self.args = (gram, P, ridge, weights)
        F = gram.features
        others = sum_of_others(P)
        d = F.shape[1]
        c = P.shape[1]

        def block(pair):
            i, j = pair
            # The block of classes i and j is F^T diag(w P_i (delta_ij - P_j)) F.
            of_both = jnp.where(i == j, others[:, i], -P[:, j])
            return matmul(F.T, (weights * P[:, i] * of_both)[:, None] * F)

        # F^T W F over all combinations of features and classes, ordered by class.
        classes = jnp.arange(c)
        blocks = lax.map(block, (jnp.repeat(classes, c), jnp.tile(classes, c)))
        curvature = blocks.reshape(c, c, d, d).transpose(0, 2, 1, 3).reshape(c * d, c * d)
        identity = jnp.eye(len(curvature), dtype=P.dtype)
        self.inside = cholesky_factor(DenseGram(curvature + ridge * identity))

    def solve(self, r):
        gram, P, ridge, weights = self.args
        F = gram.features
        of_features = matmul(F.T, r)
        u = self.inside.solve(of_features.T.reshape(-1)).reshape(of_features.T.shape).T
        return (r - hessian(P, weights, matmul(F, u))) / ridge
