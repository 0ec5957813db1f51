"""Folds of rows, as indices in one static shape.

A fit without some rows is therefore compiled once for all folds.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from kernax.core.base.boundary import check_key
from kernax.core.base.deprecation import renamed
from kernax.core.base.parameters import check_count
from kernax.core.base.printing import Printed

Rows = Int[np.ndarray, "..."]
Names = Sequence | np.ndarray | Array


class Folds(Printed):
    """Training rows and held-out rows of one fold, or of k folds along a first axis of each array.

    Attributes:
        learn: indices of the training rows, padded with row 0 to one length for all folds.
        learn_weights: 1, or 0 for padding.
        score: indices of the held-out rows, padded in the same way.
        score_weights: 1, or 0 for padding.

    Examples:
        >>> folds = kernax.k_folds(5, 2)
        >>> folds.score
        Array([[0, 2, 4],
               [1, 3, 0]], dtype=int64)
        >>> folds.score_weights  # row 0 of weight zero fills the shorter part up
        Array([[1., 1., 1.],
               [1., 1., 0.]], dtype=float64)
    """

    learn: Int[Array, "*k m"]
    learn_weights: Float[Array, "*k m"]
    score: Int[Array, "*k v"]
    score_weights: Float[Array, "*k v"]


@renamed(repeats="n_repeats")
def k_folds(
    n: int,
    k: int,
    *,
    key: PRNGKeyArray | None = None,
    labels: Names | None = None,
    groups: Names | None = None,
    n_repeats: int = 1,
) -> Folds:
    """Divides n rows into k parts of equal sizes, up to one row or whole groups; fold i holds out
    part i and trains on all other parts.

    Arguments:
        n: the number of rows.
        k: the number of parts, from 2 to n.
        key: shuffles the rows; without it row i is in part i modulo k.
        labels: (n,) numbers or text; each class is spread evenly over the parts (stratified).
        groups: (n,) numbers or text; rows of one group are in the same part. Each group is assigned
            to the smallest part so far, in a random order, or without a key the largest group
            first, so that parts are about equal. With labels as well, each group is assigned to the
            part that spreads every class most evenly, groups of the most uneven classes first, as
            in `sklearn.model_selection.StratifiedGroupKFold`.
        n_repeats: how often to divide the rows, each time in another random order, which makes
            `n_repeats k` folds.

    Raises:
        ValueError: bad shapes or values, fewer groups than parts, repeats without a key.

    Examples:
        >>> folds = kernax.k_folds(6, 3)
        >>> folds.score  # the rows that each fold scores
        Array([[0, 3],
               [1, 4],
               [2, 5]], dtype=int64)
        >>> folds.learn.shape
        (3, 4)
    """
    n = check_count(n, "n", 2, ": pass the number of rows, len(X)" if np.ndim(n) else "")
    k = check_count(k, "k", 2)
    n_repeats = check_count(n_repeats, "n_repeats")
    if n_repeats > 1 and key is None:
        raise ValueError(
            "repeats need a key, such as jax.random.key(0): without it all repeats are equal"
        )
    part_of = _parts_of(n, k, key, labels, groups)
    # The orders in which rows are dealt to parts.
    orders = [np.arange(n)]
    if key is not None:
        check_key(key)
        keys = jax.random.split(key, n_repeats)
        orders = [np.asarray(jax.random.permutation(one, n)) for one in keys]
    pairs = []
    for order in orders:
        parts = np.empty(n, int)
        parts[order] = part_of(order)
        pairs += [(np.flatnonzero(parts != i), np.flatnonzero(parts == i)) for i in range(k)]
    return _stacked(pairs)


def _parts_of(
    n: int, k: int, key: Any, labels: Names | None, groups: Names | None
) -> Callable[[Rows], Rows]:
    """The part of each of n rows, as a function of the order in which they are dealt."""
    if groups is not None:
        groups = _numbers(groups, "groups", n)
        _check_parts(k, len(np.unique(groups)), "groups")
        if labels is not None:
            labels = _numbers(labels, "labels", n)
            return lambda order: _dealt_evenly(groups[order], labels[order], k)
        return lambda order: _dealt(groups[order], k, largest_first=key is None)
    labels = _numbers(labels, "labels", n)
    _check_parts(k, n, "rows")
    return lambda order: count_off(labels[order], k)


def _check_parts(k: int, most: int, what: str) -> None:
    """Raises ValueError if some parts would be empty."""
    if k > most:
        raise ValueError(f"k must be at most {most}, the number of {what}, but is {k}")


def time_folds(n: int, k: int, *, gap: int = 0) -> Folds:
    """Divides n rows in the order of time into `k + 1` blocks of equal lengths (the first one has
    the remainder as well); fold i holds out block i + 1 and trains on all rows before it.

    Arguments:
        n: the number of rows, more than k.
        k: the number of folds.
        gap: how many rows just before the held-out ones are left out of training; fewer than the
            first block has.

    Raises ValueError if no row would remain for training.

    Examples:
        >>> folds = kernax.selection.time_folds(6, 2)
        >>> folds.score
        Array([[2, 3],
               [4, 5]], dtype=int64)
    """
    n = check_count(n, "n", 2)
    k = check_count(k, "k")
    gap = check_count(gap, "gap", 0)
    # n = first + k length with first >= length.
    length = n // (k + 1)
    first = n - k * length
    if not length or gap >= first:
        raise ValueError(
            f"{k} folds of n = {n} rows with a gap of {gap} leave none to learn from: use fewer "
            "folds, or a smaller gap"
        )
    starts = [first + i * length for i in range(k)]
    return _stacked([(np.arange(s - gap), np.arange(s, s + length)) for s in starts])


def _numbers(names: Names | None, name: str, n: int) -> Rows:
    """A number from 0 for each row, equal for equal names; zeros for None."""
    if names is None:
        return np.zeros(n, int)
    names = np.asarray(names)
    if names.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},), one per row, but have {names.shape}")
    return np.unique(names, return_inverse=True)[1]


def _dealt(groups: Rows, k: int, *, largest_first: bool) -> Rows:
    """A part from 0 to k - 1 for each row, the same for all rows of a group; groups come in the
    order of their first rows, or the largest first.
    """
    names, first, sizes = np.unique(groups, return_index=True, return_counts=True)
    part = np.empty(len(names), int)
    filled = np.zeros(k, int)
    # Greedily: each group goes to the part with the fewest rows so far.
    for group in np.lexsort((first, -sizes)) if largest_first else np.argsort(first):
        part[group] = np.argmin(filled)
        filled[part[group]] += sizes[group]
    return part[np.searchsorted(names, groups)]


def _dealt_evenly(groups: Rows, labels: Rows, k: int) -> Rows:
    """A part from 0 to k - 1 for each row, the same for all rows of a group, so that the share of
    every class in each part is about `1 / k`.

    Groups are sorted by the standard deviation of their numbers of rows of each class, the largest
    first, then in the order of their first rows. Each goes to the part for which the deviation of
    the shares over the parts, averaged over classes, becomes smallest; among equal ones to the part
    with the fewest rows.
    """
    names, first = np.unique(groups, return_index=True)
    in_order = np.argsort(first)
    counts = np.zeros((len(names), labels.max() + 1), int)
    np.add.at(counts, (np.searchsorted(names, groups), labels), 1)
    of_classes = counts.sum(0)
    part = np.empty(len(names), int)
    filled = np.zeros((k, counts.shape[1]))
    for group in in_order[np.argsort(-counts[in_order].std(1), kind="stable")]:
        # (k, k, classes): the contents of every part if the group goes to the first, the second,
        # ...
        then = filled + np.eye(k)[:, :, None] * counts[group]
        # The standard deviation over parts of n_pc / n_c, averaged over the classes c.
        uneven = (then / of_classes).std(1).mean(1)
        best = np.flatnonzero(np.isclose(uneven, uneven.min()))
        part[group] = best[np.argmin(filled[best].sum(1))]
        filled[part[group]] += counts[group]
    return part[np.searchsorted(names, groups)]


def count_off(labels: np.ndarray, k: int) -> Int[np.ndarray, " n"]:
    """A fold from 0 to k - 1 for each row.

    The sizes of folds, and of each class in them, differ by one at most.
    """
    folds = np.empty(len(labels), int)
    seen = 0
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        # Row j of a class is in fold (s + j) mod k, after s rows of the classes before it.
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
    pairs = []
    for fold in range(k):
        in_others = (folds >= 0) & (folds != fold)
        pairs.append((np.flatnonzero(in_others), np.flatnonzero(folds == fold)))
    return _stacked(pairs, most_learned=n - n // k, most_scored=-(-n // k))


def _stacked(
    pairs: Sequence[tuple[Rows, Rows]], most_learned: int = 0, most_scored: int = 0
) -> Folds:
    """Folds of the rows of each pair, padded to the given lengths, or to as many as needed."""
    most_learned = max(most_learned, *(len(learn) for learn, _ in pairs))
    most_scored = max(most_scored, *(len(score) for _, score in pairs))
    padded = [(*_padded(a, most_learned), *_padded(b, most_scored)) for a, b in pairs]
    stacked = [jnp.asarray(np.stack(of_each)) for of_each in zip(*padded)]
    return Folds(*stacked)


def _padded(rows: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows, then row 0 with a weight of zero."""
    missing = length - len(rows)
    return np.pad(rows, (0, missing)), np.pad(np.ones(len(rows)), (0, missing))
