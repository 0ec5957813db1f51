"""Learners and features for many points: over centres, in chunks, by random features."""

from kernax.scale.choice import (
    AbstractChoice,
    GreedyPivots,
    LeverageScores,
    Uniform,
    choose_centres,
)
from kernax.scale.chunks import Chunks
from kernax.scale.falkon import falkon
from kernax.scale.nystrom import nystrom
from kernax.scale.random_features import random_fourier_features

__all__ = [
    "AbstractChoice",
    "Chunks",
    "GreedyPivots",
    "LeverageScores",
    "Uniform",
    "choose_centres",
    "falkon",
    "nystrom",
    "random_fourier_features",
]
