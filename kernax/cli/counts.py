"""`kernax fit` for counts: learns a kernel by a Gaussian process, and scores held-out rows."""

import jax.numpy as jnp
import numpy as np

from kernax.cli.console import waiting
from kernax.cli.job import RMSE, Report, Split, kernel_of
from kernax.cli.latent import evidences, learned_latent
from kernax.cli.naming import parameter_rows
from kernax.cli.plan import Plan
from kernax.errors import NonFiniteError
from kernax.gp.approximation import ApproximatePosterior
from kernax.metrics import root_mean_square_error
from kernax.preparation import GP, CountRegressor
from kernax.selection.recipes.latent import (
    LatentModel,
    constant_log_densities,
    posterior_of,
    start_of,
)


def count(parts: Split, kernel: str, plan: Plan, with_priors: bool) -> Report:
    """Learns a kernel from its expression, and scores it as written and as learned.

    Needs 64-bit mode.
    """
    start = start_of(kernel_of(parts, kernel), plan.likelihood, plan.inference, parts.y)
    with waiting("fitting the kernel as written"):
        written = _regressor(start, parts)
        as_written = _scored(written, parts)
    one_name = np.zeros(len(parts.y), int)
    model, remarks = learned_latent(start, parts, parts.y, one_name, with_priors)
    learned = _regressor(model, parts)
    of_evidence = evidences(plan.inference, len(parts.y), written.model, learned.model)
    return Report(
        title=f"held-out RMSE, in units of {parts.inputs.target}, and mean negative log "
        "probability",
        measures=(RMSE, "NLPD"),
        scores={
            "constant rate": _scores_of_constant(start, parts),
            "gp as written": as_written,
            "gp learned": _scored(learned, parts),
        },
        parameters=parameter_rows(model, parts.inputs.columns),
        predictor=learned,
        remarks=(*remarks, of_evidence),
    )


def _regressor(model: LatentModel, parts: Split) -> CountRegressor:
    """The regressor that a model fits to the rows to learn from."""
    posterior = posterior_of(model, parts.X, jnp.asarray(parts.y)).value
    assert isinstance(posterior, ApproximatePosterior)
    return CountRegressor(parts.inputs, GP, posterior, str(model.inference))


def _scored(regressor: CountRegressor, parts: Split) -> tuple[float, ...]:
    """The scores of a regressor on the held-out rows."""
    mean, _ = regressor.at(parts.X_held_out)
    logarithms = regressor.log_densities(parts.X_held_out, parts.y_held_out)
    if not np.all(np.isfinite([mean, logarithms])):
        raise NonFiniteError(
            "held-out rows are predicted as NaN or inf: this kernel grows too fast for them"
        )
    return _scores(parts, mean, logarithms)


def _scores_of_constant(start: LatentModel, parts: Split) -> tuple[float, ...]:
    """The scores of the mean of the rows to learn from, as the rate of all."""
    logarithms = constant_log_densities(start, jnp.asarray(parts.y_held_out))
    mean = np.full(len(parts.y_held_out), parts.y.mean())
    return _scores(parts, mean, np.asarray(logarithms))


def _scores(parts: Split, mean: np.ndarray, logarithms: np.ndarray) -> tuple[float, ...]:
    """Root mean square error, and the mean negative log probability."""
    return float(root_mean_square_error(parts.y_held_out, mean)), -float(logarithms.mean())
