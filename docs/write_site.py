"""Writes the pages of the documentation site and its configuration: `make docs`.

The pages are those of this folder, the contributing page and the benchmarks page, the notebooks as
they were executed, and a page of docstrings for each heading of `docs/api.md`, whose list of names
`write_api.py` reads off the package. Formulas become MathML here, pictures become files, and links
between files of the repository become links between pages, so that the site needs no network and
no script to be read. Zensical builds it; a warning of it or of the tools that it calls is an error.
"""

import base64
import html
import importlib
import inspect
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import latex2mathml.converter
import write_api
import yaml

import kernax
from kernax.kernels import FAMILIES

ROOT = Path(__file__).parent.parent
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
BARRED = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")
LISTED = re.compile(r"^- `(kernax[\w.]+)(.*?)`", re.MULTILINE)
LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"([^\"]+)")
NAME = re.compile(r"(?<!\[)`(kernax(?:\.\w+)+)`")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
INCLUDED = re.compile(r"<!-- include (\S+)#(.+?) -->")
# The pictures of the first page: the picture, the page that it leads to, and what it shows.
GALLERY = [
    ("first_process.png", "first_process.html", "A Gaussian process with its uncertainty"),
    ("deep_kernels.png", "deep_kernels.html", "A kernel inside a network, which follows a jump"),
    ("notebooks/gallery-13-0.png", "notebooks/gallery.html", "The probability of a class"),
    ("notebooks/classification-9-0.png", "notebooks/classification.html", "Three species of iris"),
    ("notebooks/choosing_a_kernel-9-0.png", "learning.html", "Gradients on a cross-validated loss"),
    ("notebooks/components_and_clusters-3-2.png", "components.html", "Kernel principal components"),
    ("notebooks/sparse_machines-5-0.png", "classifiers.html", "Import, relevance, support vectors"),
    ("notebooks/kernels-7-0.png", "kernels.html", "Kernels of positions, and functions under them"),
    ("co2.png", "command_line.html", "A forecast of CO2 from the command line"),
]
# Pages that stand elsewhere in the repository.
ELSEWHERE = {
    "README.md": "index.md",
    ".github/CONTRIBUTING.md": "contributing.md",
    ".github/CODE_OF_CONDUCT.md": "code_of_conduct.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/SCALING.md": "scaling.md",
}


def main(folder: Path) -> None:
    """Writes `folder/mkdocs.yml` and `folder/pages`."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    reference = reference_pages()
    public = public_names()
    written = {f"docs/{path.name}": path.name for path in (ROOT / "docs").glob("*.md")}
    written |= ELSEWHERE
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    written |= {f"notebooks/{path.name}": f"notebooks/{path.stem}.md" for path in notebooks}
    for source, page in written.items():
        if source.endswith(".ipynb"):
            text = notebook(ROOT / source, pages / page)
        else:
            text = (ROOT / source).read_text(encoding="utf-8")
        if page == "index.md":
            text = text.replace("\n## Install\n", f"\n{gallery()}\n## Install\n", 1)
        write(pages / page, rendered(text, source, written, public))
    for page, (_, text) in reference.items():
        write(pages / page, text)
    for picture in [*(ROOT / "docs").glob("*.png"), ROOT / "docs" / "site.css"]:
        shutil.copy(picture, pages)
    write(folder / "mkdocs.yml", configuration(reference, notebooks))


def write(path: Path, text: str) -> None:
    """A file, in a folder that is made for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def gallery() -> str:
    """The pictures of the first page, each a link."""
    figures = [
        f'<a href="{page}"><img src="{picture}" alt="{title}"><span>{title}</span></a>'
        for picture, page, title in GALLERY
    ]
    return '<div class="gallery">\n' + "\n".join(figures) + "\n</div>\n"


def version() -> str:
    """The version of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["version"]


def configuration(reference: dict[str, tuple[str, str]], notebooks: Iterable[Path]) -> str:
    """`site.yml`, with the notebooks and the pages of docstrings in its menu."""
    settings = yaml.safe_load((ROOT / "docs" / "site.yml").read_text(encoding="utf-8"))
    settings["site_name"] = f"kernax {version()}"
    settings["copyright"] = f"kernax {version()}, Apache-2.0"
    named = {title: entries for entry in settings["nav"] for title, entries in entry.items()}
    named["Notebooks"] += [{heading_of(path): f"notebooks/{path.stem}.md"} for path in notebooks]
    named["Reference"] += [{title: page} for page, (title, _) in reference.items()]
    return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)


def heading_of(path: Path) -> str:
    """The first heading of a notebook."""
    first, *_ = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "".join(first["source"]).splitlines()[0].removeprefix("# ")


# Pages of docstrings.


def reference_pages() -> dict[str, tuple[str, str]]:
    """For each page its title and its text."""
    headings = write_api.flat_names()
    modules = sorted([*headings.pop("modules"), *write_api.OWN_IMPORT])
    del headings["kernels"]  # which have a page for each family
    pages = {}
    for heading, names in headings.items():
        title = write_api.sentence(heading)
        things = {f"kernax.{name}": getattr(kernax, name) for name in names}
        pages[f"reference/{slug(title)}.md"] = title, docstrings(title, things)
    for title, entries in FAMILIES.items():
        things = {write_api.address(entry.name): entry.kind for entry in entries}
        pages[f"reference/{slug(title)}.md"] = title, docstrings(title, things)
    for name in modules:
        place = f"kernax.{name}"
        module = importlib.import_module(place)
        opening = inspect.getdoc(module) or ""
        page = docstrings(place, write_api.members(module), opening)
        pages[f"reference/{place}.md"] = place, page
    return pages


def docstrings(title: str, things: dict[str, Any], opening: str = "") -> str:
    """A page that mkdocstrings fills in."""
    parts = [f"# {title}", opening]
    parts += [entry(name, thing) for name, thing in things.items()]
    return "\n\n".join(part for part in parts if part) + "\n"


def entry(name: str, thing: object) -> str:
    """A public name; of a class, whose arguments are its fields, with the arguments."""
    if isinstance(thing, tuple) or thing is kernax.RESULTS:  # values, which have no source to read
        return f"## {name} {{#{name}}}\n\n{write_api.first_paragraph(thing)}"
    if not inspect.isclass(thing):
        return f"::: {name}"
    short = thing.__name__
    heading = f'## {name} {{#{name} data-toc-label="{short}"}}'
    options = ["show_root_heading: false", "show_root_toc_entry: false", "heading_level: 3"]
    body = "\n      ".join([f"::: {name}\n    options:", *options])
    parts = [heading, body]
    if not issubclass(thing, Exception):
        parts.insert(1, f"```python\n{call_of(short, write_api.signature(thing))}\n```")
    return "\n\n".join(parts)


def call_of(name: str, arguments: str) -> str:
    """A call with its arguments, one a line where they do not fit into one."""
    if len(name + arguments) <= 72 or arguments == "()":
        return name + arguments
    pieces, depth = [""], 0
    for letter in arguments[1:-1]:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    return "\n".join([f"{name}(", *(f"    {piece.strip()}," for piece in pieces), ")"])


def slug(title: str) -> str:
    """`Gram matrices` as `gram-matrices`."""
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def public_names() -> set[str]:
    """What has a place on a page of docstrings."""
    lines = write_api.page().splitlines()
    return {re.split(r"[`(]", line)[1] for line in lines if line.startswith("- `kernax.")}


# Pages of text.


def rendered(text: str, source: str, written: dict[str, str], public: set[str]) -> str:
    """A page of the repository as a page of the site: what stands in code is left as it is.

    Arguments:
        source: its path in the repository.
        written: the pages of the site, by their paths in the repository.
        public: the names that have a docstring on the site, to which they are linked.
    """
    text = included(shown_once(text, source)).replace('src="docs/', 'src="')
    pieces = FENCED.split(text)
    for place in range(0, len(pieces), 2):
        piece = LINK.sub(lambda found: link(found, source, written), pieces[place])
        if source == "docs/api.md":
            piece = LISTED.sub(r"- [`\1\2`][\1]", piece)
        else:
            piece = NAME.sub(lambda found: reference(found, public), piece)
        pieces[place] = mathematics(BARRED.sub(barred, piece))
    return "".join(pieces)


def included(text: str) -> str:
    """With the parts of other pages that a page names: `<!-- include FILE#HEADING -->`."""

    def part(found: re.Match[str]) -> str:
        page, heading = found.groups()
        return section((ROOT / page).read_text(encoding="utf-8"), heading)

    return INCLUDED.sub(part, text)


def section(text: str, heading: str) -> str:
    """What stands under a heading of a page."""
    _, begun = text.split(f"\n## {heading}\n", 1)
    return begun.split("\n## ", 1)[0].strip()


def shown_once(text: str, source: str) -> str:
    """A page without the parts of it that another page includes, but for a link to that."""
    for page in (ROOT / "docs").glob("*.md"):
        for file, heading in INCLUDED.findall(page.read_text(encoding="utf-8")):
            if file == source:
                there = posixpath.relpath(f"docs/{page.name}", posixpath.dirname(source))
                text = text.replace(section(text, heading), f"It stands on [its page]({there}).")
    return text


def link(found: re.Match[str], source: str, written: dict[str, str]) -> str:
    """A link to a page, relative to the page that it stands on; of what is no page, its words."""
    words, target, anchor = found.groups()
    if "://" in target:
        return found.group(0)
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if wanted not in written:
        assert (ROOT / wanted).exists(), f"{source} links {target}, which does not exist"
        return words if wanted in words.strip("`") else f"{words} (`{wanted}`)"
    here = posixpath.dirname(written.get(source, source)) or "."
    return f"[{words}]({posixpath.relpath(written[wanted], here)}{anchor or ''})"


def reference(found: re.Match[str], public: set[str]) -> str:
    """A public name in code, linked to its docstring."""
    name = found.group(1)
    return f"[`{name}`][{name}]" if name in public else found.group(0)


def barred(found: re.Match[str]) -> str:
    """Code in a table whose bars are escaped, as they have to be on other sites."""
    code = html.escape(found.group(1).replace("\\|", "|"))
    return f"<code>{code.replace('|', '&#124;')}</code>"


def mathematics(text: str) -> str:
    """Formulas between dollar signs as MathML, which browsers draw by themselves."""

    def displayed(found: re.Match[str]) -> str:
        formula = " ".join(found.group(1).split())
        return f"<div>{latex2mathml.converter.convert(formula, display='block')}</div>"

    def inline(found: re.Match[str]) -> str:
        return latex2mathml.converter.convert(found.group(1))

    text = re.sub(r"^\$\$\n(.*?)\n\$\$$", displayed, text, flags=re.MULTILINE | re.DOTALL)
    pieces = re.split(r"(`+[^`]*`+)", text)
    pieces[::2] = [re.sub(r"\$([^$\n]+)\$", inline, piece) for piece in pieces[::2]]
    return "".join(pieces)


# Notebooks.


def notebook(path: Path, page: Path) -> str:
    """Its text, code and what the code showed; its pictures become files beside the page."""
    parts = []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for place, output in enumerate(cell["outputs"]):
            parts.append(shown(output, page.with_name(f"{page.stem}-{number}-{place}.png")))
    return "\n\n".join(parts) + "\n"


def shown(output: dict, picture: Path) -> str:
    """What one output of a cell shows."""
    data = output.get("data", {})
    if "image/png" in data:
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_bytes(base64.b64decode(data["image/png"]))
        return f"![Picture of the cell above]({picture.name})"
    text = data.get("text/plain", output.get("text", ""))
    return f"```text\n{''.join(text).rstrip()}\n```"


# The built site.


def build(folder: Path) -> None:
    """Builds `folder/html`. Ends the process where anything is wrong with it."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", "mkdocs.yml"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    printed = done.stdout + done.stderr
    warned = re.search(r"^(griffe|warning)", printed, re.IGNORECASE | re.MULTILINE)
    if done.returncode or warned:
        sys.exit(printed)
    foreign = elsewhere(folder / "html")
    if foreign:
        sys.exit("pages need what is not on this site:\n" + "\n".join(foreign))


def elsewhere(site: Path) -> list[str]:
    """What pages would load from another host, or from a place where nothing is."""
    found = []
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":  # which a server shows at any address, with paths from its root
            continue
        text = page.read_text(encoding="utf-8")
        for target in LOADED.findall(text):
            path = target.split("#")[0].split("?")[0]
            if "//" in path or not (page.parent / path).exists():
                found.append(f"{page.relative_to(site)}: {target}")
    return found


if __name__ == "__main__":
    main(ROOT / "site")
    build(ROOT / "site")
    print("site/html/index.html; to search it: python -m http.server -d site/html")
