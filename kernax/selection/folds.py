"""Folds of rows, as indices of one static shape.

What is learned without some rows is compiled once.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


class Folds(eqx.Module):
    """Rows to learn from and rows to score, one pair a fold.

    Places of weight zero pad them to the same length.
    """

    learn: Int[Array, "*k m"]
    learn_weights: Float[Array, "*k m"]
    score: Int[Array, "*k v"]
    score_weights: Float[Array, "*k v"]


def count_off(labels: np.ndarray, k: int) -> Int[np.ndarray, " n"]:
    """A fold from 0 to k - 1 for each row.

    The sizes of folds, and of each class in them, differ by one at most.
    """
    folds = np.empty(len(labels), int)
    seen = 0
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        folds[rows] = (seen + np.arange(len(rows))) % k
        seen += len(rows)
    return folds


def leaving_out(folds: Int[np.ndarray, " n"], k: int) -> Folds:
    """The k folds that leave out the rows of each number in turn.

    A row of a negative number is in none.

    Their shape depends on n and k alone, so that folds among some of n rows run in the program of
    folds of all.
    """
    n = len(folds)
    most_learned = n - n // k
    most_scored = -(-n // k)
    pairs = []
    for fold in range(k):
        in_others = (folds >= 0) & (folds != fold)
        learn = _padded(np.flatnonzero(in_others), most_learned)
        score = _padded(np.flatnonzero(folds == fold), most_scored)
        pairs.append((*learn, *score))
    stacked = [jnp.asarray(np.stack(of_each)) for of_each in zip(*pairs)]
    return Folds(*stacked)


def _padded(rows: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows, then row 0 with a weight of zero."""
    missing = length - len(rows)
    return np.pad(rows, (0, missing)), np.pad(np.ones(len(rows)), (0, missing))
