"""Prints the oldest versions that pyproject.toml admits, as constraints for pip.

`oldest.py test docs` has those of the package and of these extras.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(extras: list[str]) -> list[str]:
    """What the package and these extras require, extras of extras among them."""
    found = list(PROJECT["dependencies"])
    for extra in extras:
        for requirement in PROJECT["optional-dependencies"][extra]:
            own = re.fullmatch(rf"{PROJECT['name']}\[(.*)\]", requirement)
            found += requirements(own[1].split(",")) if own else [requirement]
    return found


def oldest(requirement: str) -> str:
    """`name==1.2` of `name>=1.2` and of `name==1.2`."""
    match = re.fullmatch(r"([\w-]+)[>=]=([\w.]+)", requirement)
    if match is None:
        raise ValueError(f"{requirement} in pyproject.toml says no oldest version")
    return "==".join(match.groups())


if __name__ == "__main__":
    print("\n".join(sorted({oldest(requirement) for requirement in requirements(sys.argv[1:])})))
