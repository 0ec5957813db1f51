"""What the site's tools are told of this package: its public names, and how it writes Markdown."""

from typing import Any

import griffe
from markdown import Extension, Markdown


class PublicNames(griffe.Extension):
    """`from kernax.kernels import *` takes what a table holds, which a parser cannot read: every
    class that the module imports is named as one of `kernax`.
    """

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for name, member in pkg["kernels"].members.items():
            if name[0].isupper() and member.is_alias and name not in pkg.members:
                pkg.set_member(name, griffe.Alias(name, member.target_path, parent=pkg))


class NoQuotations(Extension):
    """A line that begins with `>= 0` is a condition on an argument, not a quotation."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.parser.blockprocessors.deregister("quote")


def makeExtension(**settings: Any) -> Extension:
    """What Markdown calls."""
    return NoQuotations(**settings)
