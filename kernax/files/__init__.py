"""Models in files: one self-describing safetensors file each, no pickle.

Needs `pip install 'kernax-toolkit[files]'`.

A file holds the model's arrays and, as JSON in the header, its structure: classes of a closed list,
by name, with their fields. Nothing in it is ever executed. The list holds kernax's own classes and
those that you `register`. `kernax.save` and `kernax.load` write and read models; here is the rest.
A checksum over everything detects damaged files.
"""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale, kernax.selection, kernax.metrics,
# kernax.preparation.

from kernax.errors import KernaxFileError as KernaxFileError
from kernax.files.container import load as load
from kernax.files.container import load_notes
from kernax.files.container import save as save
from kernax.files.predictor_files import load_predictor, save_predictor
from kernax.files.registry import register

__all__ = [
    "load_notes",
    "load_predictor",
    "register",
    "save_predictor",
]


def __dir__() -> list[str]:
    return __all__
