"""Prepares a release: `make release VERSION=0.3.0`.

Writes the version where it stands, gives the section `Unreleased` of the changelog its number and
its date, and prints what remains to be done. It neither commits nor tags.
`prepare_release.py --notes 0.3.0` prints the notes of a version, which the release workflow keeps.
"""

import datetime
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
# Where the version stands, as a pattern whose first group is in front of it.
PLACES = {
    "pyproject.toml": r'^(version = ")[^"]+',
    "kernax/__init__.py": r'^(__version__ = ")[^"]+',
    "CITATION.cff": r"^(version: ).+",
}


class ReleaseError(Exception):
    """Why nothing was written."""


def numbers(version: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseError(f"VERSION must be three numbers, such as 0.3.0, but is {version!r}")
    return tuple(int(part) for part in version.split("."))


def section(changelog: str, title: str) -> str:
    """The text below the heading of a version, without the heading."""
    match = re.search(
        rf"^## {re.escape(title)}(?: \([^)]*\))?\n(.*?)(?=^## |\Z)", changelog, re.M | re.S
    )
    if match is None:
        raise ReleaseError(f"CHANGELOG.md has no section {title}")
    return match[1].strip()


def check_section(text: str) -> None:
    """Raises where a section is empty or has headings of its own."""
    headings = re.findall(r"^### (.*)$", text, re.M)
    if not headings or "- " not in text:
        raise ReleaseError("the section Unreleased of CHANGELOG.md has no entries")
    unknown = [heading for heading in headings if heading not in SECTIONS]
    if unknown:
        raise ReleaseError(f"headings of CHANGELOG.md are {SECTIONS}, but one is {unknown[0]}")
    twice = [heading for heading in headings if headings.count(heading) > 1]
    if twice:
        raise ReleaseError(f"CHANGELOG.md has the heading {twice[0]} twice in Unreleased")


def replaced(text: str, pattern: str, version: str, name: str) -> str:
    text, count = re.subn(pattern, rf"\g<1>{version}", text, flags=re.M)
    if count != 1:
        raise ReleaseError(f"{name} has the version {count} times, not once")
    return text


def prepare(root: Path, version: str, date: str) -> None:
    """Writes the version and the date of a release; on an error nothing is written."""
    texts = {name: (root / name).read_text(encoding="utf-8") for name in [*PLACES, "CHANGELOG.md"]}
    current = re.search(r'^version = "(.*)"', texts["pyproject.toml"], re.M)
    if current is None or numbers(version) <= numbers(current[1]):
        was = current[1] if current else "not there"
        raise ReleaseError(f"VERSION must be later than that of pyproject.toml, which is {was}")
    check_section(section(texts["CHANGELOG.md"], "Unreleased"))
    for name, pattern in PLACES.items():
        texts[name] = replaced(texts[name], pattern, version, name)
    texts["CITATION.cff"] = replaced(
        texts["CITATION.cff"], r"^(date-released: ).+", date, "CITATION.cff"
    )
    texts["CHANGELOG.md"] = texts["CHANGELOG.md"].replace(
        "## Unreleased\n", f"## {version} ({date})\n", 1
    )
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> str:
    """What is printed."""
    if len(arguments) == 2 and arguments[0] == "--notes":
        changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        return section(changelog, arguments[1])
    if len(arguments) != 1:
        raise ReleaseError("say which version: make release VERSION=0.3.0")
    prepare(ROOT, arguments[0], datetime.date.today().isoformat())
    return (
        f"prepared {arguments[0]}. Read `git diff`, run `make dist-check`, commit, and push the tag"
        f" v{arguments[0]}: the workflow builds the release and keeps its notes."
    )


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))
    except ReleaseError as error:
        sys.exit(f"error: {error}")
