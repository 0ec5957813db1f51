"""A kernel that is any sum of products of base kernels; the structure is data.

Compiled once, it serves every structure of a search: a program for each structure of its own would
take half as long to run, but seconds to compile.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.compiled import compiled
from kernax.core.base.parameters import data, real
from kernax.core.base.printing import Printed
from kernax.core.base.solution import RESULTS
from kernax.core.kernel.kernel import AbstractKernel
from kernax.gp.process import GaussianProcess
from kernax.gp.regression import condition, log_marginal_likelihood
from kernax.selection.compose.base_kernels import BASES, BY_WORD, MOST_PARAMETERS, padded
from kernax.selection.compose.grammar import Structure
from kernax.selection.optimise.weak_priors import FLOOR

_KINDS = {base.word: 1 + place for place, base in enumerate(BASES)}  # 0 is no factor
_CENTRES = np.array([padded(()), *(padded(base.centres) for base in BASES)])
_PRECISIONS = np.array([padded(()), *(padded(np.array(base.deviations) ** -2.0) for base in BASES)])
# Bounds the logarithm of the scale of a term: within e^6 of the variance of a standardised target.
_DEVIATION_OF_SCALE = 3.0


class SumOfProducts(AbstractKernel):
    """`sum_t active_t exp(log_scales_t) prod_f k_tf(x[columns_tf], z[columns_tf])`.

    k_tf is the base kernel with number `kinds_tf` and the unconstrained parameters `theta_tf`, or 1
    if that number is 0. Absent factors are not computed, except in a batch on an accelerator.
    """

    active: Bool[Array, " t"] = data()
    kinds: Int[Array, "t f"] = data()
    columns: Int[Array, "t f"] = data()
    log_scales: Float[ParameterArray, " t"] = real()
    theta: Float[ParameterArray, "t f p"] = real()

    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        zero = jnp.zeros((), x.dtype)

        def added(total, term):
            active, *of_product = term
            # Recomputed in the backward pass: a branch would keep the numbers of all branches.
            product = jax.checkpoint(lambda: _product(x, z, *of_product))
            return total + lax.cond(active, product, lambda: zero), None

        terms = (self.active, self.kinds, self.columns, self.log_scales, self.theta)
        return lax.scan(added, zero, terms)[0]


def _product(x, z, kinds, columns, log_scale, theta):
    """The scaled product of one term."""

    def multiplied(product, factor):
        kind, column, theta = factor
        return product * lax.switch(kind, _BRANCHES, theta, x[column], z[column]), None

    return lax.scan(multiplied, jnp.exp(log_scale), (kinds, columns, theta))[0]


def _branch_of(base: Any) -> Any:
    """A base kernel as a function of its parameters and two numbers."""
    return jax.checkpoint(lambda theta, x, z: base.kernel(theta)(x[None], z[None]))


def _no_factor(theta: Array, x: Array, z: Array) -> Array:
    return jnp.ones((), x.dtype)


_BRANCHES = [_no_factor, *(_branch_of(base) for base in BASES)]


class CompositionModel(Printed):
    """A sum of products, and the logarithm of the variance of the noise."""

    kernel: SumOfProducts
    log_noise: Float[ParameterArray, ""] = real()

    @property
    def noise(self) -> Float[Array, ""]:
        return jnp.exp(self.log_noise)


class Values(eqx.Module):
    """The unconstrained parameters of a structure, in NumPy, padded to the same shape for all
    structures.
    """

    log_scales: Float[np.ndarray, " t"]
    theta: Float[np.ndarray, "t f p"]
    log_noise: float

    @staticmethod
    def of(model: CompositionModel) -> "Values":
        kernel = model.kernel
        return Values(
            np.asarray(kernel.log_scales), np.asarray(kernel.theta), float(model.log_noise)
        )

    @staticmethod
    def zeros(most_terms: int, most_factors: int) -> "Values":
        shape = (most_terms, most_factors, MOST_PARAMETERS)
        return Values(np.zeros(most_terms), np.zeros(shape), 0.0)


def model_of(structure: Structure, values: Values, dtype: Any) -> CompositionModel:
    """The model to learn: a structure with its parameters."""
    most_terms, most_factors, _ = values.theta.shape
    kinds = np.zeros((most_terms, most_factors), np.int32)
    columns = np.zeros((most_terms, most_factors), np.int32)
    for t, term in enumerate(structure):
        for f, factor in enumerate(term):
            kinds[t, f] = _KINDS[factor.word]
            columns[t, f] = factor.column
    kernel = SumOfProducts(
        jnp.arange(most_terms) < len(structure),
        jnp.asarray(kinds),
        jnp.asarray(columns),
        jnp.asarray(values.log_scales, dtype),
        jnp.asarray(values.theta, dtype),
    )
    return CompositionModel(kernel, jnp.asarray(values.log_noise, dtype))


def count_of_parameters(structure: Structure) -> int:
    """The number of parameters of a structure, with a scale for each term and the noise."""
    factors = [factor for term in structure for factor in term]
    return sum(BY_WORD[factor.word].parameters for factor in factors) + len(structure) + 1


def composition_loss(
    model: CompositionModel, X: Float[Array, "n d"], y: Float[Array, " n"]
) -> Float[Array, ""]:
    """Minus the log evidence and the log density of weak priors, for each row."""
    kernel = model.kernel
    evidence = log_marginal_likelihood(kernel, X, y, model.noise)
    # The penalty is minus the log density of the priors, up to a constant. They are normal in the
    # unconstrained parameters, with a floor for the noise (see `WeakPriors`).
    dtype = kernel.theta.dtype
    centres = jnp.asarray(_CENTRES, dtype)[kernel.kinds]
    precisions = jnp.asarray(_PRECISIONS, dtype)[kernel.kinds]
    of_theta = jnp.sum(precisions * (kernel.theta - centres) ** 2)
    of_scales = jnp.sum(jnp.where(kernel.active, kernel.log_scales / _DEVIATION_OF_SCALE, 0) ** 2)
    penalty = (of_theta + of_scales) / 2 + FLOOR * jnp.exp(-model.log_noise)
    # 1/n (-log p(y | theta) - log p(theta)).
    return (penalty - evidence) / len(y)


class Score(eqx.Module):
    """The log evidence of a model; NaN if it could not be computed without jitter."""

    log_evidence: Float[Array, ""]
    residuals: Float[Array, " n"]


@compiled
def scored(model: CompositionModel, X: Float[Array, "n d"], y: Float[Array, " n"]) -> Score:
    """The log evidence, and y minus the posterior mean.

    A model that needed jitter, or has an inaccurate solution, has no score.
    """
    solution = condition(GaussianProcess(model.kernel), X, y, model.noise, throw=False)
    sound = (solution.result == RESULTS.successful) & (solution.stats["jitter"] == 0)
    evidence = jnp.where(sound, solution.stats["log_evidence"], jnp.nan)
    # K a + noise a = y, so that y minus the mean K a is noise a.
    expansion: Any = solution.value.mean
    residuals = model.noise * expansion.coefficients
    return Score(evidence, residuals)
