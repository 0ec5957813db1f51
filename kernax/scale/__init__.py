"""Fits of many points: over centres, in chunks, by random features, over a mesh of devices; and
which way to take.
"""

# May import: kernax.core.

import warnings
from typing import Any

from kernax.core.checkpoint.checkpoint import Checkpoint
from kernax.scale.centres.choice import (
    AbstractChoice,
    GreedyPivots,
    LeverageScores,
    RandomPivots,
    Uniform,
    choose_centres,
)
from kernax.scale.centres.falkon import falkon
from kernax.scale.cluster.rows_over import rows_over
from kernax.scale.data.chunks import Chunks
from kernax.scale.data.parquet import ParquetRows
from kernax.scale.features.nystrom import nystrom
from kernax.scale.features.random_features import random_fourier_features
from kernax.scale.recommend import Recommendation, Route, recommend

__all__ = [
    "AbstractChoice",
    "Chunks",
    "GreedyPivots",
    "LeverageScores",
    "ParquetRows",
    "RandomPivots",
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


def __getattr__(name: str) -> Any:
    if name != "Checkpoints":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "kernax.scale.Checkpoints is kernax.Checkpoint now, whose folder is called path; the old "
        "name goes in 0.4",
        DeprecationWarning,
        stacklevel=2,
    )
    return Checkpoint
