"""The public names of kernax.files, and the module that each comes from."""

from kernax.files.container import load_notes
from kernax.files.predictor_files import load_predictor, save_predictor
from kernax.files.registry import register

__all__ = [
    "load_notes",
    "load_predictor",
    "register",
    "save_predictor",
]
