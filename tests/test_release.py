"""`make release` writes a version everywhere or nowhere, and the oldest versions are read off
pyproject.toml.
"""

import importlib.util
import shutil
from pathlib import Path

import pytest
from conftest import needs_x64

pytestmark = needs_x64

ROOT = Path(__file__).parent.parent


def script(name):
    """A module of the folder .ci."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = script("prepare_release")
oldest = script("oldest")


@pytest.fixture
def project(tmp_path):
    """A copy of the files that say the version, with a changelog of one entry."""
    for name in release.PLACES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changes\n\n## Unreleased\n\n### Fixed\n\n- A sign.\n\n## 0.1.0 (2020-01-01)\n\nFirst.\n",
        encoding="utf-8",
    )
    return tmp_path


def contents(folder):
    return {path: path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()}


def test_a_release_has_its_version_and_date_in_every_file(project):
    release.prepare(project, "99.1.0", "2031-02-03")
    for name in release.PLACES:
        assert "99.1.0" in (project / name).read_text("utf-8"), name
    assert "date-released: 2031-02-03\n" in (project / "CITATION.cff").read_text("utf-8")
    changelog = (project / "CHANGELOG.md").read_text("utf-8")
    assert "## 99.1.0 (2031-02-03)\n" in changelog
    assert "Unreleased" not in changelog
    assert release.section(changelog, "99.1.0") == "### Fixed\n\n- A sign."


@pytest.mark.parametrize(
    ("version", "entry", "words"),
    [
        ("1.0", "### Fixed\n\n- A sign.", "three numbers"),
        ("0.0.1", "### Fixed\n\n- A sign.", "must be later than"),
        ("99.0.0", "", "no entries"),
        ("99.0.0", "### Fixed\n", "no entries"),
        ("99.0.0", "### News\n\n- A sign.", "one is News"),
        ("99.0.0", "### Fixed\n\n- A.\n\n### Fixed\n\n- B.", "Fixed twice"),
        ("99.0.0", None, "no section Unreleased"),
    ],
)
def test_a_release_that_is_refused_changes_no_file(project, version, entry, words):
    text = "# Changes\n" if entry is None else f"# Changes\n\n## Unreleased\n\n{entry}\n"
    (project / "CHANGELOG.md").write_text(text, encoding="utf-8")
    before = contents(project)
    with pytest.raises(release.ReleaseError, match=words):
        release.prepare(project, version, "2031-02-03")
    assert contents(project) == before


def test_all_files_say_one_version_and_the_changelog_can_be_released(tmp_path):
    version = oldest.PROJECT["version"]
    for name in release.PLACES:
        assert version in (ROOT / name).read_text("utf-8"), name
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    if "## Unreleased" in changelog:
        release.check_section(release.section(changelog, "Unreleased"))
    assert release.section(changelog, version)


def test_every_requirement_says_its_oldest_version():
    extras = list(oldest.PROJECT["optional-dependencies"])
    found = [oldest.oldest(requirement) for requirement in oldest.requirements(extras)]
    assert "jax==0.10.2" in found
    with pytest.raises(ValueError, match="no oldest version"):
        oldest.oldest("jax")
