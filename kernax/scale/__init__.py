"""Fits of many points: over centres, in chunks, by random features, over a mesh of devices; and
which way to take.
"""

from kernax.scale.choice import (
    AbstractChoice,
    GreedyPivots,
    LeverageScores,
    Uniform,
    choose_centres,
)
from kernax.scale.chunks import Chunks
from kernax.scale.falkon import falkon
from kernax.scale.mesh import rows_over
from kernax.scale.nystrom import nystrom
from kernax.scale.random_features import random_fourier_features
from kernax.scale.rates import Rates
from kernax.scale.recommend import Recommendation, recommend
from kernax.scale.routes import Route

__all__ = [
    "AbstractChoice",
    "Chunks",
    "GreedyPivots",
    "LeverageScores",
    "Rates",
    "Recommendation",
    "Route",
    "Uniform",
    "choose_centres",
    "falkon",
    "nystrom",
    "random_fourier_features",
    "recommend",
    "rows_over",
]
