"""Fits of classes and of counts by a Gaussian process: their common part, and the fit of counts."""

import jax
import jax.numpy as jnp
import numpy as np

from kernax.cli.console import waiting, with_a_bar
from kernax.cli.fixed_texts import with_fixed_texts, with_texts
from kernax.cli.job import RMSE, FitReport, Split, check_finite_scores, excess_of, kernel_of
from kernax.cli.notation import parameter_rows
from kernax.cli.plan import Plan
from kernax.core.base.stacks import points_at
from kernax.gp.approximation import ApproximatePosterior
from kernax.metrics import root_mean_square_error
from kernax.preparation.predictors import GP, CountRegressor
from kernax.selection.recipes.held_out_rows import first_of_each
from kernax.selection.recipes.latent import (
    LatentModel,
    Posterior,
    constant_log_densities,
    learn_latent,
    most_rows,
    posterior_of,
    start_of,
)
from kernax.selection.recipes.latent_choices import Inference

_WORDS = {
    Inference.LAPLACE: "log evidence, by Laplace's approximation,",
    Inference.EP: "log evidence, by expectation propagation,",
    Inference.VARIATIONAL: "lower bound of the log evidence",
}


def learned_latent(
    start: LatentModel, parts: Split, y: np.ndarray, labels: np.ndarray, with_priors: bool
) -> tuple[LatentModel, tuple[str, ...]]:
    """The model that is kept, and remarks on why.

    Arguments:
        y: targets of the rows to learn from: -1 and +1, or counts (n,).
        labels: names by which folds are balanced (n,).
    """
    rows = first_of_each(labels, most_rows(start.inference))
    fixed, X = with_fixed_texts(start, jax.tree.map(jnp.asarray, points_at(parts.X, rows)))
    targets = jnp.asarray(y[rows])
    choice = learn_latent(
        fixed,
        X,
        targets,
        labels[rows],
        groups=parts.inputs.groups,
        with_priors=with_priors,
        progress=with_a_bar,
    )
    return with_texts(choice.kept.model, start), choice.account("negative log density")


def evidences(inference: Inference, rows: int, written: Posterior, learned: Posterior) -> str:
    """A remark on the evidence of the training rows."""
    before = f"{float(written.log_evidence):.3f}"
    after = f"{float(learned.log_evidence):.3f}"
    return f"{_WORDS[inference]} of {rows} rows: {before} as written, {after} learned"


def count(parts: Split, kernel: str, plan: Plan, with_priors: bool) -> FitReport:
    """Learns a kernel from its expression, and scores it as written and as learned.

    Needs 64-bit mode.
    """
    start = start_of(kernel_of(parts, kernel), plan.likelihood, plan.inference, parts.y)
    with waiting("fitting the kernel as written"):
        written = _regressor(start, parts)
        as_written = _scores(parts, *_predicted(written, parts))
    one_name = np.zeros(len(parts.y), int)
    model, remarks = learned_latent(start, parts, parts.y, one_name, with_priors)
    learned = _regressor(model, parts)
    of_evidence = evidences(plan.inference, len(parts.y), written.model, learned.model)
    # The scores of the mean of the training rows as a constant rate.
    logarithms = constant_log_densities(start, jnp.asarray(parts.y_held_out))
    constant = np.full(len(parts.y_held_out), parts.y.mean()), np.asarray(logarithms)
    predicted = _predicted(learned, parts)
    return FitReport(
        title=f"held-out RMSE, in units of {parts.inputs.target}, and mean negative log "
        "probability",
        scores={
            "constant rate": _scores(parts, *constant),
            "gp as written": as_written,
            "gp learned": _scores(parts, *predicted),
        },
        parameters=parameter_rows(model, parts.inputs.columns),
        predictor=learned,
        remarks=(*remarks, of_evidence),
        excess=excess_of(_losses(parts, *predicted), _losses(parts, *constant)),
    )


def _regressor(model: LatentModel, parts: Split) -> CountRegressor:
    posterior = posterior_of(model, parts.X, jnp.asarray(parts.y)).value
    assert isinstance(posterior, ApproximatePosterior)
    return CountRegressor(parts.inputs, GP, posterior, str(model.inference))


def _predicted(regressor: CountRegressor, parts: Split) -> tuple[np.ndarray, np.ndarray]:
    """The means of the held-out rows, and the log probabilities of their counts."""
    mean, _ = regressor.at(parts.X_held_out)
    logarithms = regressor.log_densities(parts.X_held_out, parts.y_held_out)
    check_finite_scores(mean, logarithms)
    return mean, logarithms


def _losses(parts: Split, mean: np.ndarray, logarithms: np.ndarray) -> dict[str, np.ndarray]:
    """The squared error and the negative log probability of each held-out row."""
    with np.errstate(over="ignore"):
        return {RMSE: np.square(parts.y_held_out - mean), "NLPD": -logarithms}


def _scores(parts: Split, mean: np.ndarray, logarithms: np.ndarray) -> dict[str, float]:
    error = float(root_mean_square_error(parts.y_held_out, mean))
    return {RMSE: error, "NLPD": -float(logarithms.mean())}
