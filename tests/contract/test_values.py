"""One batch of small problems for each learner: what weights, units and failures do to a fit, and
that members of a batch are fits of their own. A learner has one program here, and one without a
batch, of which a file keeps what it learned.
"""

from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import X64
from registry import LEARNERS, cases, options_of, stacked

import kernax

FAULTS = {
    "not finite",
    "no weights",
    "negative weight",
    "negative lengthscale",
    "one class",
    "out of range",
}
C = 4.0**50 if X64 else 4.0**10  # how many times as large another unit is


def with_copies(p):
    """Two points that weigh more than one, and two without a weight that coincide with them."""
    rows = np.r_[: len(p.weights) - 2, 3, 4]
    weights = np.array(p.weights)
    weights[[3, 4, -2, -1]] = 2, 25, 0, 0
    return replace(p, X=p.X[rows], y=p.y[rows], labels=p.labels[rows], weights=weights)


def with_shared_weights(p):
    """The same weights, of which the copies have a part."""
    weights = np.array(p.weights)
    weights[[3, 4, -2, -1]] = 1, 20, 1, 5
    return replace(p, weights=weights)


def with_other_points_of_weight_zero(p, unknown):
    """Whose targets are unknown, or infinite, where a learner removes such points."""
    last = p.weights == 0
    missing = np.where(np.arange(len(p.y)) % 2, np.nan, np.inf)
    return replace(
        p,
        X=np.where(last[:, None], p.X + 7, p.X),
        y=np.where(last, missing if unknown else -30 * p.y, p.y),
        labels=np.where(last, 2 - p.labels, p.labels),
    )


def without_points_of_weight_zero(p):
    kept = p.weights > 0
    return replace(p, X=p.X[kept], y=p.y[kept], labels=p.labels[kept], weights=p.weights[kept])


def with_a_point_that_is_not_finite(p):
    """Or a target, which is all that some functions take."""
    second = np.arange(len(p.y)) == 2
    return replace(p, X=np.where(second[:, None], np.nan, p.X), y=np.where(second, np.nan, p.y))


def without_weights(p):
    return replace(p, weights=np.zeros_like(p.weights))


def with_a_number_out_of_range(p):
    return replace(p, strength=-p.strength)


def with_a_negative_weight(p):
    return replace(p, weights=np.where(np.arange(len(p.weights)) == 2, -1, p.weights))


def with_a_negative_lengthscale(p):
    return replace(p, scale=-p.scale)


def with_one_class(p):
    return replace(p, labels=np.ones_like(p.labels))


def figures(entry, found, p):
    """What was learned, and whether that was said to be a success."""
    fine = found.result == kernax.RESULTS.successful if entry.has_status else True
    return entry.outputs(found, p), jnp.asarray(fine)


@cache
def alone(name):
    """A problem without points of weight zero, and what a learner returns of it outside of jit."""
    entry = LEARNERS[name]
    plain = with_copies(entry.problem)
    p = without_points_of_weight_zero(plain) if entry.weights else plain
    return p, entry.fit(p, **options_of(entry))


@cache
def batch(name):
    """What was learned of each member, by what it is called."""
    entry = LEARNERS[name]
    plain = with_copies(entry.problem)
    unknown = entry.weights == "repeat" and entry.target == "y"
    members = {
        "plain": plain,
        "shared weights": with_shared_weights(plain),
        "other points of weight zero": with_other_points_of_weight_zero(plain, unknown),
        "not finite": with_a_point_that_is_not_finite(plain),
    }
    if entry.weights == "repeat":
        members["no weights"] = without_weights(plain)
    if entry.number:
        members["out of range"] = with_a_number_out_of_range(plain)
    if entry.weights and not entry.of_stream:
        members["negative weight"] = with_a_negative_weight(plain)
    if entry.kernel:
        members["negative lengthscale"] = with_a_negative_lengthscale(plain)
    has_classes = entry.target in ("signs", "classes")
    if has_classes and "one class" not in entry.takes:
        members["one class"] = with_one_class(plain)
    if entry.in_units is not None:
        members["units"] = entry.in_units(plain, C)
    learned = lambda p: figures(entry, entry.fit(p, **options_of(entry)), p)
    found = jax.jit(jax.vmap(learned))(stacked(members.values()))
    found = jax.tree.map(np.asarray, found)
    return plain, {
        member: jax.tree.map(lambda leaf, i=i: leaf[i], found) for i, member in enumerate(members)
    }


def assert_learned(entry, found, expected):
    """The same numbers, and a success."""
    outputs, fine = found
    assert np.all(fine)
    for a, b in zip(jax.tree.leaves(outputs), jax.tree.leaves(expected), strict=True):
        scale = np.max(np.abs(b))
        assert np.isfinite(scale)
        np.testing.assert_allclose(a, b, rtol=0, atol=entry.close * scale)


@pytest.mark.parametrize("name", cases("tier"))
def test_a_member_with_points_of_weight_zero_is_the_fit_without_them(name):
    """Catches members that see each other, a removed point that is counted, and another result
    inside jit and vmap.
    """
    entry = LEARNERS[name]
    p, found = alone(name)
    expected, fine = figures(entry, found, p)
    assert np.all(fine)
    _, members = batch(name)
    assert_learned(entry, members["plain"], expected)


@pytest.mark.parametrize(
    "name", cases("tier", lambda entry: entry.has_status and not entry.of_stream)
)
def test_what_was_learned_comes_back_from_a_file_bitwise(name, tmp_path):
    _, found = alone(name)
    kernax.save(tmp_path / "value", found.value)
    assert eqx.tree_equal(kernax.load(tmp_path / "value"), found.value, typematch=True)


@pytest.mark.parametrize("name", cases("tier", lambda entry: entry.weights))
def test_where_a_point_of_weight_zero_is_says_nothing(name):
    _, members = batch(name)
    assert_learned(LEARNERS[name], members["other points of weight zero"], members["plain"][0])


@pytest.mark.parametrize("name", cases("tier", lambda entry: entry.weights == "repeat"))
def test_a_weight_is_as_many_points_at_one_place(name):
    """Of 25 as well: a bound of ten would pass a test of small weights."""
    _, members = batch(name)
    assert_learned(LEARNERS[name], members["shared weights"], members["plain"][0])


@pytest.mark.parametrize("name", cases("tier", lambda entry: entry.in_units))
def test_a_kernel_in_other_units_is_the_same_fit_in_these(name):
    entry = LEARNERS[name]
    plain, members = batch(name)
    assert_learned(entry, members["units"], entry.of_units(members["plain"][0], plain, C))


@pytest.mark.parametrize("name", cases("tier"))
def test_members_that_fail_say_so_and_have_no_numbers(name):
    """Of what is refused by name outside of jit. The other members are those of the other tests."""
    entry = LEARNERS[name]
    _, members = batch(name)
    for fault in FAULTS & members.keys():
        outputs, fine = members[fault]
        assert not entry.has_status or not np.any(fine), fault
        for output in jax.tree.leaves(outputs):
            assert np.all(np.isnan(output)), (fault, output)
