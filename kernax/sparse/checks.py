"""Checks of the arguments of a relevance vector machine other than its points."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from kernax.core.base.labels import as_one_hot
from kernax.core.base.parameters import with_arrays
from kernax.core.base.printing import described
from kernax.core.losses.loss_functions import (
    NAMES_OF_LIKELIHOODS,
    AbstractLikelihood,
    as_targets_of,
    check_convex,
)
from kernax.core.losses.observation_likelihoods import Categorical, Gaussian
from kernax.sparse.sequential import SequentialEvidence
from kernax.sparse.solver import AbstractRelevanceSolver


def check_likelihood(likelihood: Any, noise: Any) -> None:
    """Raises ValueError for anything but a likelihood, for one that is not convex, and for noise
    together with a likelihood.
    """
    if likelihood is None:
        return
    if not isinstance(likelihood, AbstractLikelihood | Categorical):
        raise ValueError(
            "likelihood must be None for numbers, or one of kernax.likelihoods, such as "
            "Bernoulli() for signs and Categorical() for one-hot rows, but is "
            f"{described(likelihood, NAMES_OF_LIKELIHOODS)}"
        )
    if noise is not None:
        raise ValueError("noise is only for numbers: leave it out if likelihood is given")
    if isinstance(likelihood, Gaussian):
        raise ValueError(
            "likelihood must not be Gaussian: numbers with normal noise are the default, whose "
            "variance is noise="
        )
    check_convex("relevance_vector_machine", likelihood)


def checked_solver(solver: Any) -> AbstractRelevanceSolver:
    """The solver, or the default. Raises ValueError for anything else."""
    if solver is not None and not isinstance(solver, AbstractRelevanceSolver):
        raise ValueError(
            "solver must be kernax.solvers.SequentialEvidence() or EvidenceIteration(), but "
            f"is {described(solver)}"
        )
    return with_arrays(SequentialEvidence() if solver is None else solver)


def targets_of(likelihood: AbstractLikelihood | Categorical | None) -> Any:
    """The function that checks y, for `check_problem`."""

    def checked(y: Any, n: int, dtype: Any, weights: Any) -> Array:
        if isinstance(likelihood, Categorical):
            return as_one_hot(y, n, dtype, weights, every=False)
        loss = Gaussian(jnp.ones((), dtype)) if likelihood is None else likelihood
        return as_targets_of(loss, y, n, dtype, weights)

    return checked
