"""Folders with a checksum of every file, which detect any change since they were written."""

import hashlib
import json
from pathlib import Path

from kernax.core.base.whole_files import write_through

SEAL = "checkpoint.json"
_MARK = "kernax checkpoints 1"  # name and version of the format


def seal(folder: Path, facts: dict[str, str]) -> None:
    """Writes facts, and the checksums of all files of a folder, into a file of that folder, and
    waits until they are on the disk, so that they are complete after a power cut.
    """
    for path in folder.rglob("*"):
        write_through(path)
    contents = {"format": _MARK, "facts": facts, "files": _checksums(folder)}
    text = json.dumps(contents | {"sha256": _checksum_of(contents)}, indent=1)
    path = folder / SEAL
    path.write_text(text)
    write_through(path)


def facts_in(folder: Path) -> dict[str, str]:
    """The facts in the seal of a folder that is not damaged."""
    return json.loads((folder / SEAL).read_text())["facts"]


def damage(folder: Path) -> str | None:
    """A description of the damage to a folder; None if it is unchanged since it was sealed."""
    try:
        # The seal itself.
        found = json.loads((folder / SEAL).read_text())
        checksum = found.pop("sha256")
        if found["format"] != _MARK:
            return f"its format is {found['format']!r}, not that of this version, {_MARK!r}"
        if _checksum_of(found) != checksum:
            return f"{SEAL} does not match its own checksum"
        if not all(isinstance(text, str) for fact in found["facts"].items() for text in fact):
            return f"{SEAL} has facts that are not texts"
        # The files that an undamaged seal lists.
        written = found["files"]
        files = _checksums(folder)
        for name in sorted(written.keys() | files.keys()):
            if name not in files:
                return f"{name} is missing"
            if name not in written:
                return f"{name} was added"
            if files[name] != written[name]:
                return f"{name} does not match its checksum"
        return None
    except OSError as problem:
        return f"it cannot be read: {problem}"
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        return f"{SEAL} is truncated or changed: {problem!r}"


def _checksums(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file below a folder except the seal, by its relative path."""
    checksums = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / SEAL:
            with path.open("rb") as file:
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
            checksums[path.relative_to(folder).as_posix()] = checksum
    return checksums


def _checksum_of(contents: dict) -> str:
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()
