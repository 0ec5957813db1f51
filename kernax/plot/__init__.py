"""Pictures, which need matplotlib (`pip install 'kernax-toolkit[plot]'`).

matplotlib is imported when a picture is drawn, not before. Every function draws on the `ax` it is
given, or on a new figure that is not registered with pyplot, and returns the axes:
`predicted_against_true(y, f).figure.savefig("fit.png")`.
"""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale, kernax.metrics.

from kernax.plot.beliefs import gram_picture, kernel_profile
from kernax.plot.classes import decision_regions, losses_over_margin, values_of_classes
from kernax.plot.components import component_fields, embedding
from kernax.plot.confusion import confusion_matrix
from kernax.plot.criticism import coverage, intervals, residual_quantiles
from kernax.plot.fits import (
    learning_curve,
    posterior_band,
    predicted_against_true,
    predictions_and_coverage,
)
from kernax.plot.probabilities import reliability
from kernax.plot.relevance import relevance
from kernax.plot.streams import mistakes_over_time
from kernax.plot.style import score_title
from kernax.plot.surfaces import loss_surface

__all__ = [
    "component_fields",
    "confusion_matrix",
    "coverage",
    "decision_regions",
    "embedding",
    "gram_picture",
    "intervals",
    "kernel_profile",
    "learning_curve",
    "loss_surface",
    "losses_over_margin",
    "mistakes_over_time",
    "posterior_band",
    "predicted_against_true",
    "predictions_and_coverage",
    "relevance",
    "reliability",
    "residual_quantiles",
    "score_title",
    "values_of_classes",
]
