"""Saving and loading models, each in one self-describing safetensors file, without pickle.

This needs `pip install 'kernax-toolkit[files]'`.

A file contains the arrays of the model and, as JSON in the header, its structure: the names of
classes and their fields. Only kernax's own classes, the layers of `equinox.nn` with the functions
of `jax.nn`, and what you `register` are allowed, and nothing in a file is ever executed.
`kernax.save` and `kernax.load` write and read models; this package has the other functions. A
checksum over the whole content detects damaged files.
"""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale, kernax.selection, kernax.metrics,
# kernax.preparation, kernax.nn.

from kernax import _lazy
from kernax.core.base.deprecation import moved

_moved = moved(
    __name__,
    {
        "KernaxFileError": "kernax.errors.KernaxFileError",
        "load": "kernax.load",
        "save": "kernax.save",
    },
)

# A name is imported when it is first used; `__init__.pyi` has the names.
__getattr__, __dir__ = _lazy(__name__, __file__, otherwise=_moved)
