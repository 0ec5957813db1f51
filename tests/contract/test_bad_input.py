"""What no learner can use is refused by name before anything is compiled."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import needs_x64
from registry import ENTRIES, LEARNERS, N


def has_weights(entry):
    return entry.weights and not entry.of_stream


def changed(array, place, value):
    array = np.array(array)
    array[place] = value
    return array


# What is changed, which learners it is for, and words of the message.
FAULTS = {
    "points that are not finite": (
        lambda p: replace(p, X=changed(p.X, 2, np.nan)),
        lambda entry: entry.points,
        r"holds NaN or inf, first in row 2",
    ),
    "points that are a vector": (
        lambda p: replace(p, X=p.X[:, 0]),
        lambda entry: entry.points,
        r"must\s+have shape \(n, 1\); pass X\[:, None\]",
    ),
    "targets that are not finite": (
        lambda p: replace(p, y=changed(p.y, 2, np.nan)),
        lambda entry: entry.target == "y",
        r"y holds NaN or inf, first in row 2",
    ),
    "one target less": (
        lambda p: replace(p, y=p.y[1:], labels=p.labels[1:]),
        lambda entry: entry.target,
        rf"must have shape|{N} and {N - 1}",
    ),
    "one class": (
        lambda p: replace(p, labels=np.ones_like(p.labels)),
        lambda entry: entry.target in ("signs", "classes"),
        "[yY] holds one class only",
    ),
    "one weight less": (
        lambda p: replace(p, weights=p.weights[1:]),
        has_weights,
        rf"weights must have shape \({N},\)",
    ),
    "a negative weight": (
        lambda p: replace(p, weights=changed(p.weights, 2, -1)),
        has_weights,
        "weights must not be negative",
    ),
    "no weights": (
        lambda p: replace(p, weights=np.zeros(N)),
        has_weights,
        "weights must not all be zero",
    ),
    "a number out of range": (
        lambda p: replace(p, strength=-p.strength),
        lambda entry: entry.number,
        "{number} must be",
    ),
    "a number that is none": (
        lambda p: replace(p, strength=np.nan),
        lambda entry: entry.number,
        "{number} must be",
    ),
    "a number for each point": (
        lambda p: replace(p, strength=np.full(3, 0.3)),
        lambda entry: entry.number,
        "{number} must (be a|have shape)",
    ),
    "a lengthscale that is negative": (
        lambda p: replace(p, scale=-1.0),
        lambda entry: entry.kernel,
        "lengthscale must be",
    ),
}


CASES = [
    (entry.name, fault)
    for entry in ENTRIES
    for fault, (_, concerns, _) in FAULTS.items()
    if concerns(entry) and fault not in entry.takes
]


@needs_x64
@pytest.mark.parametrize(("name", "fault"), CASES)
def test_what_is_no_input_is_refused_by_name(name, fault):
    entry = LEARNERS[name]
    change, _, words = FAULTS[fault]
    with pytest.raises(ValueError, match=words.format(number=entry.number)):
        entry.fit(change(entry.problem))


OF_NUMBERS = [e.name for e in ENTRIES if e.has_status and (e.number or e.kernel)]


@needs_x64
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_a_traced_number_outside_of_its_interval_is_named_with_its_value(name):
    """Of the learner, or else of its kernel: where its value is known in spite of the trace."""
    entry = LEARNERS[name]
    p = entry.problem
    field = "strength" if entry.number else "scale"
    outside = -getattr(p, field)
    function_name = "online.run" if entry.of_stream else name.split(" ")[0]

    def learned(number):
        found = entry.fit(replace(p, **{field: number}))
        return eqx.filter(found, eqx.is_inexact_array)

    number = entry.number or "lengthscale"
    words = rf"{number} must be in .*, but (is|holds) {outside:g} in {function_name}"
    with pytest.raises(ValueError, match=words):
        jax.jvp(learned, (outside,), (jnp.ones_like(outside),))
