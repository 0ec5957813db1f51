"""What fits of classes and of counts by a Gaussian process have in common."""

import jax
import jax.numpy as jnp
import numpy as np

from kernax.cli.console import with_a_bar
from kernax.cli.job import Split
from kernax.core.base.stacks import points_at
from kernax.selection.recipes.latent import (
    Inference,
    LatentModel,
    Posterior,
    learn_latent,
    most_rows,
)
from kernax.selection.recipes.rows import first_of_each

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
    X = jax.tree.map(jnp.asarray, points_at(parts.X, rows))
    targets = jnp.asarray(y[rows])
    choice = learn_latent(
        start,
        X,
        targets,
        labels[rows],
        groups=parts.inputs.groups,
        with_priors=with_priors,
        progress=with_a_bar,
    )
    return choice.kept.model, choice.account("negative log density")


def evidences(inference: Inference, rows: int, written: Posterior, learned: Posterior) -> str:
    """A remark on the evidence of the rows to learn from."""
    before = f"{float(written.log_evidence):.3f}"
    after = f"{float(learned.log_evidence):.3f}"
    return f"{_WORDS[inference]} of {rows} rows: {before} as written, {after} learned"
