"""Pictures, which need matplotlib (`pip install 'kernax-toolkit[plot]'`).

matplotlib is imported when a picture is drawn, not before. Every function draws on the `ax` it is
given, or on a new figure that is not registered with pyplot, and returns the axes:
`predicted_against_true(y, f).figure.savefig("fit.png")`.
"""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale, kernax.metrics.

from kernax.plot.beliefs import kernel_profile
from kernax.plot.classifiers import decision_regions, values_of_classes
from kernax.plot.column_relevance import relevance
from kernax.plot.components import embedding
from kernax.plot.criticism import coverage, intervals, residual_quantiles
from kernax.plot.fits import posterior_band, predicted_against_true
from kernax.plot.probabilities import reliability
from kernax.plot.style import score_title
from kernax.plot.surfaces import loss_surface

__all__ = [
    "coverage",
    "decision_regions",
    "embedding",
    "intervals",
    "kernel_profile",
    "loss_surface",
    "posterior_band",
    "predicted_against_true",
    "relevance",
    "reliability",
    "residual_quantiles",
    "score_title",
    "values_of_classes",
]


def __dir__() -> list[str]:
    return __all__
