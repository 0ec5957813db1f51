"""Models in files: one self-describing safetensors file each, no pickle. Needs `pip install 'kernax-toolkit[files]'`.

A file holds the model's arrays and, as JSON in the header, its structure: classes of a closed list, by name, with their
fields. Nothing in it is ever executed. The list holds kernax's own classes and those that you `register`. A checksum over
both tells a damaged file from a sound one.
"""

from kernax.files.container import check_place, load, load_notes, save, write_whole
from kernax.files.registry import KernaxFileError, register

__all__ = ["KernaxFileError", "check_place", "load", "load_notes", "register", "save", "write_whole"]
