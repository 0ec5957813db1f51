"""Fits of many points: over centres, in chunks, with random features, over a mesh of devices; and a
recommendation of a method.
"""

# May import: kernax.core.

from kernax.core.base.deprecation import moved
from kernax.scale.centres.choice import (
    AbstractChoice,
    GreedyPivots,
    LeverageScores,
    RandomPivots,
    Uniform,
)
from kernax.scale.cluster.rows_over import rows_over
from kernax.scale.data.chunks import Chunks
from kernax.scale.data.parquet import ParquetRows

__all__ = [
    "AbstractChoice",
    "Chunks",
    "GreedyPivots",
    "LeverageScores",
    "ParquetRows",
    "RandomPivots",
    "Uniform",
    "rows_over",
]


__getattr__ = moved(
    __name__,
    {
        "Checkpoints": "kernax.Checkpoint",
        "Recommendation": "kernax.types.Recommendation",
        "Route": "kernax.types.Route",
        "choose_centres": "kernax.choose_centres",
        "falkon": "kernax.falkon",
        "nystrom": "kernax.nystrom",
        "random_fourier_features": "kernax.random_fourier_features",
        "recommend": "kernax.recommend",
    },
)


def __dir__() -> list[str]:
    return __all__
