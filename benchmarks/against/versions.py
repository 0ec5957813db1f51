"""Two versions of kernax in one process: another commit in a temporary directory, and modules that
change places in `sys.modules`.
"""

import importlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parents[2]


class NoSuchCommit(ValueError):
    """Git knows no such commit, or there is no git, or no repository."""


@dataclass(frozen=True)
class Version:
    """One version of kernax: where it lies, and its modules, which are in `sys.modules` only while
    it is `at_work`.
    """

    name: str
    root: Path
    modules: dict[str, ModuleType]

    @property
    def kernax(self) -> Any:
        return self.modules["kernax"]


def git(*arguments: str) -> bytes:
    """What git answers about this repository. Raises NoSuchCommit where it refuses."""
    # An unpacked release may lie inside of another repository, which knows nothing of it.
    env = os.environ | {"GIT_CEILING_DIRECTORIES": str(HERE.parent)}
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=HERE, env=env, capture_output=True, check=True
        )
    except FileNotFoundError as error:
        raise NoSuchCommit("git is not installed") from error
    except subprocess.CalledProcessError as error:
        raise NoSuchCommit(error.stderr.decode().strip()) from error
    return done.stdout


def short_name(commit: str) -> str:
    return git("rev-parse", "--short", "--verify", f"{commit}^{{commit}}").decode().strip()


def this_checkout() -> str:
    """The commit that is checked out, and whether anything in the package was changed since."""
    changed = git("status", "--porcelain", "--", "kernax").strip()
    return short_name("HEAD") + ("+changes" if changed else "")


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The package as of a commit, in a temporary directory that is removed whatever happens."""
    packed = git("archive", "--format=tar", commit, "kernax")
    with tempfile.TemporaryDirectory(prefix="kernax-") as directory:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(directory, filter="data")
        yield Path(directory)


def imported(name: str, root: Path) -> Version:
    """Imports the kernax that lies under `root`, beside any other that has been imported."""
    version = Version(name, root, {})
    with at_work(version):
        kernax = importlib.import_module("kernax")
        for public in kernax.__all__:  # now, as a first use would find the version that is at work
            module = getattr(kernax, public)
            for inner in getattr(module, "__all__", ()):
                getattr(module, inner)
    found = Path(version.kernax.__file__).resolve()
    if not found.is_relative_to(root.resolve()):
        raise ImportError(f"kernax was to come from {root}, but came from {found}")
    return version


@contextmanager
def at_work(version: Version) -> Iterator[Any]:
    """`import kernax` means this version, also where its functions import while they run."""
    others = _taken_out()
    sys.modules.update(version.modules)
    sys.path.insert(0, str(version.root))
    try:
        yield version.modules.get("kernax")
    finally:
        sys.path.remove(str(version.root))
        version.modules.update(_taken_out())
        sys.modules.update(others)


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.split(".")[0] == "kernax"]
    return {name: sys.modules.pop(name) for name in names}
