"""The tokens of texts."""

import enum


class Tokens(enum.StrEnum):
    """The tokens that a string kernel counts."""

    LETTERS = "letters"
    WORDS = "words"
