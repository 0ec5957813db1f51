"""Files of models: their arrays, and their structure and notes as texts."""

import json
import os
from typing import Any

import numpy as np
from jaxtyping import PyTree

from kernax.errors import KernaxFileError
from kernax.files.archive import read_archive, write_archive
from kernax.files.model_structure import restored, structure_of

_LONGEST_REASON = 500  # characters of the description of a problem
_DEEPEST_NOTES = 100  # dicts and lists inside each other


def save(path: str | os.PathLike, model: PyTree, *, notes: dict[str, Any] | None = None) -> None:
    """Writes a model to a file, from which `load` restores it bitwise.

    A model is a kernel, an expansion, a Gaussian process, or tuples, lists and dicts of them.
    `notes` is a dict that JSON can represent; `load_notes` reads it, with tuples as lists. The file
    is written completely or not at all; symbolic links are followed.

    Raises KernaxFileError for a model with functions, or with modules of classes that are not
    kernax's own (`register` them, or save a dict of their parts), for fields of the wrong type, for
    float64 arrays while JAX's 64-bit mode is off, and for notes that are not a dict or that JSON
    cannot represent. Raises OSError if the folder does not exist, and for a device or a pipe, and
    TypeError if `path` is not a path.
    """
    _check_path(path, "save(path, model)")
    arrays: dict[str, np.ndarray] = {}
    structure = json.dumps(structure_of(model, arrays, "model"))
    notes = {} if notes is None else notes
    if not isinstance(notes, dict):
        raise KernaxFileError(f"notes must be a dict, but are of type {type(notes).__name__}")
    try:
        text = json.dumps(notes)
        _check_depth(notes)
    except (TypeError, ValueError, RecursionError) as problem:
        raise KernaxFileError(f"the notes cannot be saved: {problem}") from problem
    write_archive(path, structure, text, arrays)


def _check_path(path: Any, call: str) -> None:
    """Raises TypeError unless `path` is a path, for example if the arguments are exchanged."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"path must be a str or os.PathLike, but is of type {type(path).__name__}: the path "
            f"comes first, {call}"
        )


def _check_depth(notes: Any) -> None:
    """Raises ValueError for notes nested more deeply than some versions of Python can read."""
    layer = [notes]
    for _ in range(_DEEPEST_NOTES):
        parts = [list(node.values()) if isinstance(node, dict) else node for node in layer]
        layer = [part for node in parts if isinstance(node, (list, tuple)) for part in node]
        if not layer:
            return
    raise ValueError(f"they are nested deeper than {_DEEPEST_NOTES} levels")


def load(path: str | os.PathLike) -> Any:
    """Reads a model from a file that `save` wrote; it is bitwise equal.

    Raises KernaxFileError for a file that is damaged, has another format or comes from a newer
    kernax, or that names a class or function which is not registered; for fields of a type that
    their classes do not declare; and for float64 arrays while JAX's 64-bit mode is off. Shapes are
    those in the file, and the values of arrays are checked only against the intervals of
    parameters. Raises OSError for a missing file or a folder, and TypeError if `path` is not a
    path.
    """
    _check_path(path, "load(path)")
    texts, arrays = read_archive(path)
    unused = dict(arrays)
    try:
        model = restored(json.loads(texts["model"]), unused)
        if unused:
            raise KernaxFileError(f"arrays {', '.join(unused)} belong to no part of the model")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        what = str(problem)[:_LONGEST_REASON]  # it may quote a name of any length
        raise KernaxFileError(f"{path} cannot be loaded as a kernax model: {what}") from problem
    return model


def load_notes(path: str | os.PathLike) -> dict[str, Any]:
    """Reads the notes that were given to `save`; an empty dict if there were none.

    Raises KernaxFileError for a file that is damaged or has another format, OSError for a missing
    file, and TypeError if `path` is not a path.
    """
    _check_path(path, "load_notes(path)")
    texts, _ = read_archive(path)
    try:
        notes = json.loads(texts["notes"])
        _check_depth(notes)
    except (ValueError, RecursionError) as problem:
        raise KernaxFileError(f"{path} has notes that are not valid JSON: {problem}") from problem
    if not isinstance(notes, dict):
        raise KernaxFileError(f"{path} has notes that are not a dict")
    return notes
