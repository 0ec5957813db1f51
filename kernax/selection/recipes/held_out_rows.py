"""Choices of training rows and held-out rows: by index, or a share of each class."""

import numpy as np
from jaxtyping import Bool, Int


def first_of_each(labels: np.ndarray, most: int) -> Int[np.ndarray, " m"]:
    """Indices of at most `most` rows, ascending: the first rows of each class, in its proportion.

    The very first row of each class comes before any second, so that no class is left out unless
    there are more classes than rows. Labels (n,) are numbers or text.
    """
    share = np.zeros(len(labels))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        share[rows] = np.arange(len(rows)) / len(rows)
    return np.sort(np.argsort(share, kind="stable")[:most])


def held_out_of_each(labels: np.ndarray, share: float) -> Bool[np.ndarray, " n"]:
    """A mask of rows to hold out: the first `share` of each class, rounded.

    At least one row of a class of two or more is held out, and none of a class of a single row.
    Labels (n,) are numbers or text; for a random choice let the rows be in a random order.
    """
    chosen = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        if len(rows) > 1:
            count = max(round(share * len(rows)), 1)
            chosen[rows[:count]] = True
    return chosen
