"""The derivative of a fit on a subset of the points, and how accurate the fit is."""

from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.base.derivatives import implicit
from kernax.core.base.numerics import matmul, positive_or_one, stop_gradient
from kernax.core.learner.learner_problem import LearnerProblem
from kernax.core.linalg.refinement import refined
from kernax.core.linalg.solves import solve_lower, solve_lower_transposed
from kernax.core.operators.blocked import BlockedGram
from kernax.sparse.import_search import Subset
from kernax.sparse.subset_risk import (
    AbstractClassLoss,
    Centre,
    Quadratic,
    SubsetRisk,
    curvature_of_shift,
)


class SubsetFit(eqx.Module):
    """The fit on chosen points as a function of the coefficients a, stacked above the bias b; these
    are the variables of its derivative.

    Attributes:
        K: `K_XS`, zero in unused slots, as are the features.
        K_SS: K at the chosen points, with ones on the diagonal in unused slots, as in the factor L.
        features: `F = K_XS L^-T`, centred, without derivative.
        means: those of F, if there is a bias.
        end: the coefficients and the bias at the minimum, without derivative.
    """

    K: Float[Array, "n m"]
    K_SS: Float[Array, "m m"]
    loss: AbstractClassLoss
    ridge: Float[Array, ""]
    features: Float[Array, "n m"]
    means: Float[Array, " m"]
    factor: Float[Array, "m m"]
    end: Float[Array, "m1 c"]
    bias: bool = eqx.field(static=True)

    @staticmethod
    def of(
        problem: LearnerProblem,
        subset: Subset,
        loss: AbstractClassLoss,
        ridge: Float[Array, ""],
        bias: bool,
    ) -> "SubsetFit":
        """The fit that a search ends with. Only rows of chosen points are computed, and
        differentiated.
        """
        there = subset.is_chosen
        K = BlockedGram(problem.kernel, problem.X, 1).rows(subset.indices).T
        both = there[:, None] & there[None, :]
        K_SS = jnp.where(both, K[subset.indices], jnp.eye(len(there), dtype=K.dtype))
        K = jnp.where(there[None], K, 0)
        centre = Centre.of(loss, bias)
        F = centre.apply(subset.features)
        m = centre.means(subset.features)
        F, m, L, x = stop_gradient((F, m, subset.factor(), subset.x))
        fit = SubsetFit(K, K_SS, loss, ridge, F, m, L, x, bias)
        return eqx.tree_at(lambda fit: fit.end, fit, stop_gradient(fit.coefficients(x)))

    def coefficients(self, x: Float[Array, "m1 c"]) -> Float[Array, "m1 c"]:
        """`a = L^-T u` above `b = b' - m.u`, from the weights u of the centred features above
        b'.
        """
        u = x[:-1]
        return jnp.append(
            solve_lower_transposed(self.factor, u), x[-1:] - matmul(self.means, u)[None], 0
        )

    def pulled_back(self, r: Float[Array, "m1 c"]) -> Float[Array, "m1 c"]:
        """The gradient in u and b' of a function with the gradient r in a and b: `L^-1 r_a - m r_b`
        above r_b.
        """
        of_u = solve_lower(self.factor, r[:-1]) - self.means[:, None] * r[-1:]
        return jnp.append(of_u, r[-1:], 0)

    def values(self, x: Float[Array, "m1 c"]) -> Float[Array, "n c"]:
        """f."""
        return matmul(self.K, x[:-1]) + x[-1:]

    def minimum(self) -> Float[Array, "m1 c"]:
        """The coefficients above the bias, with their derivative."""
        # The known minimum, and one more Newton step, which has its derivative.
        return implicit(lambda fit: fit.end, lambda x, fit: x + fit.correction(x), self)

    def objective(self, x: Float[Array, "m1 c"], value: Float[Array, ""]) -> Float[Array, ""]:
        """The objective: the known `value`, with the derivative of its formula."""
        computed = self._objective(x)
        return value + (computed - stop_gradient(computed))

    def residual(self, value: Float[Array, ""]) -> Float[Array, ""]:
        """The fraction by which another Newton step would lower the objective, or by which rounding
        the coefficients changes it, whichever is larger.
        """
        W = self.loss.hessian(self.values(self.end))
        r = self.pulled_back(self.gradient(self.end))
        # A Newton step lowers a quadratic function of gradient r and Hessian H by r.H^-1 r / 2.
        lower = jnp.sum(r * Quadratic.of(self.risk(), W).solve(r)) / 2
        off = abs(self._objective(self.end) - value)
        return jnp.maximum(lower, off) / positive_or_one(value)

    def _objective(self, x: Float[Array, "m1 c"]) -> Float[Array, ""]:
        a = x[:-1]
        # The penalty is ridge/2 |u|^2 with u = L^T a.
        penalty = self.ridge / 2 * jnp.sum(a * matmul(self.K_SS, a))
        return self.loss.total(self.values(x)) + penalty

    def risk(self) -> SubsetRisk:
        """The same problem in the weights of the features."""
        return SubsetRisk(self.features, self.loss, self.ridge, self.end, self.bias)

    def stacked(
        self, G: Float[Array, "n c"], a: Float[Array, "m c"], of_bias: Float[Array, "1 c"]
    ) -> Float[Array, "m1 c"]:
        """`K_SX G + ridge K_SS a`, above the sum of G or, without a bias, `of_bias`."""
        of_a = matmul(self.K.T, G) + self.ridge * matmul(self.K_SS, a)
        return jnp.append(of_a, jnp.sum(G, 0, keepdims=True) if self.bias else of_bias, 0)

    def gradient(self, x: Float[Array, "m1 c"]) -> Float[Array, "m1 c"]:
        """The gradient of the objective."""
        return self.stacked(self.loss.gradient(self.values(x)), x[:-1], jnp.zeros_like(x[-1:]))

    def correction(self, x: Float[Array, "m1 c"]) -> Float[Array, "m1 c"]:
        """Newton's step, differentiable through the products with the Hessian."""
        W = self.loss.hessian(self.values(x))
        fixed, fixed_W = stop_gradient((self, W))

        def solve(_: Any, r: Float[Array, "m1 c"]) -> Float[Array, "m1 c"]:
            # H^-1 r, by the Hessian in the weights of the features.
            quadratic = Quadratic.of(fixed.risk(), fixed_W)
            roughly = lambda r: fixed.coefficients(quadratic.solve(fixed.pulled_back(r)))
            return refined(roughly, partial(_applied, fixed, fixed_W), r)[0]

        apply = partial(_applied, self, W)
        step = lax.custom_linear_solve(apply, -self.gradient(x), solve, symmetric=True)
        return self.loss.balanced(step)


def _applied(
    fit: SubsetFit, W: Float[Array, "n c c"], v: Float[Array, "m1 c"]
) -> Float[Array, "m1 c"]:
    """The Hessian of the objective times v."""
    # K_SX W (K_XS v_a + v_b) + ridge K_SS v_a, and the sum of W (K_XS v_a + v_b) for the bias.
    change = jnp.einsum("icd,id->ic", W, fit.values(v), precision="highest")
    product = fit.stacked(change, v[:-1], v[-1:])
    if not (fit.bias and fit.loss.has_free_shift):
        return product
    return product.at[-1].add(matmul(curvature_of_shift(W), v[-1]))
