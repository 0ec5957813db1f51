"""What every learner of a stream promises: it goes on from a state, also by hand and from a file,
and passes over points that are not present.
"""

from functools import cache

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import TOLERANCE, assert_close
from registry import LEARNERS, NEW, N, cases

import kernax
from kernax.online import run

HALF = N // 2
each = pytest.mark.parametrize("name", cases("tier", lambda entry: entry.of_stream))


@cache
def stream(name):
    """A learner, its points and targets, and what it learns of the whole and of the first half."""
    entry = LEARNERS[name]
    assert entry.learner is not None
    p = entry.problem
    learner, X, y = entry.learner(p), p.X, np.asarray(p.targets)
    return learner, X, y, run(learner, X, y), run(learner, X[:HALF], y[:HALF])


@each
def test_a_stream_in_parts_is_the_stream(name):
    learner, X, y, whole, head = stream(name)
    tail = run(learner, X[HALF:], y[HALF:], state=head.value.state)
    assert_close(head.value.predictions, whole.value.predictions[:HALF])
    assert_close(tail.value.predictions, whole.value.predictions[HALF:])
    assert_close(tail.value.function.values(NEW), whole.value.function.values(NEW))
    assert head.stats["updates"] + tail.stats["updates"] == whole.stats["updates"]


@each
def test_updates_by_hand_are_those_of_a_run(name):
    learner, X, y, whole, _ = stream(name)
    state = learner.init(jnp.asarray(X[0]))
    update = eqx.filter_jit(learner.update)
    for i in range(HALF):
        state, f = update(state, jnp.asarray(X[i]), jnp.asarray(y[i]))
        assert_close(f, whole.value.predictions[i], TOLERANCE["solve"])


@each
def test_a_point_that_is_not_present_is_predicted_and_not_learned_from(name):
    learner, X, y, _, _ = stream(name)
    present = np.arange(N) % 2 == 0
    gaps = run(learner, X, y, present=present).value
    half = run(learner, X[present], y[present]).value
    assert_close(gaps.predictions[present], half.predictions, TOLERANCE["solve"])
    assert_close(gaps.function.values(NEW), half.function.values(NEW), TOLERANCE["solve"])
    assert np.all(gaps.losses[~present] == 0)
    assert not np.any(gaps.mistakes[~present])
    assert np.any(gaps.predictions[~present] != 0)


@each
def test_a_learner_and_its_state_go_on_from_a_file(name, tmp_path):
    learner, X, y, _, head = stream(name)
    kernax.save(tmp_path / "stream", (learner, head.value.state))
    again, state = kernax.load(tmp_path / "stream")
    found = run(again, X[HALF:], y[HALF:], state=state).value
    expected = run(learner, X[HALF:], y[HALF:], state=head.value.state).value
    np.testing.assert_array_equal(found.predictions, expected.predictions)
    np.testing.assert_array_equal(found.function(X[0]), expected.function(X[0]))
