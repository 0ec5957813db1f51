"""What the site's tools are told of how this package writes Markdown."""

from typing import Any

from markdown import Extension, Markdown


class NoQuotations(Extension):
    """A line that begins with `>= 0` is a condition on an argument, not a quotation."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.parser.blockprocessors.deregister("quote")


def makeExtension(**settings: Any) -> Extension:
    """What Markdown calls."""
    return NoQuotations(**settings)
