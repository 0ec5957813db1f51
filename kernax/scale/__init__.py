"""Fits of many points: over centres, in chunks, by random features, over a mesh of devices; and
which way to take.
"""

from kernax.scale.checkpoints import Checkpoints
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
from kernax.scale.parquet import ParquetRows
from kernax.scale.processes import connect
from kernax.scale.random_features import random_fourier_features
from kernax.scale.rates import Rates
from kernax.scale.recommend import Recommendation, recommend
from kernax.scale.routes import Route

__all__ = [
    "AbstractChoice",
    "Checkpoints",
    "Chunks",
    "GreedyPivots",
    "LeverageScores",
    "ParquetRows",
    "Rates",
    "Recommendation",
    "Route",
    "Uniform",
    "choose_centres",
    "connect",
    "falkon",
    "nystrom",
    "random_fourier_features",
    "recommend",
    "rows_over",
]
