"""How a solve ended: which of several statuses it has."""

import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from conftest import needs_x64, untyped

import kernax
from kernax.core.base.solution import RESULTS, Solution, finish, first_that_holds, warn
from kernax.errors import ConditionWarning

pytestmark = needs_x64  # once: no precision touches it


def status(first, second):
    return first_that_holds(
        [(first, RESULTS.nonfinite), (second, RESULTS.successful)], otherwise=RESULTS.inaccurate
    )


def test_the_first_status_that_holds_comes_before_later_ones_and_the_last_before_none():
    statuses = jax.vmap(status)(
        jnp.array([True, True, False, False]), jnp.array([True, False, True, False])
    )
    assert list(statuses == RESULTS.nonfinite) == [True, True, False, False]
    assert list(statuses == RESULTS.successful) == [False, False, True, False]
    assert list(statuses == RESULTS.inaccurate) == [False, False, False, True]


def test_a_result_without_a_status_that_holds_is_left_as_it_was():
    result = jax.jit(lambda no: first_that_holds([(no, RESULTS.diverged)], RESULTS.not_psd))(False)
    assert result == RESULTS.not_psd
    assert first_that_holds([], otherwise=RESULTS.not_psd) == RESULTS.not_psd


def test_a_warning_names_the_line_of_a_user_whose_file_begins_like_the_package():
    file = f"{Path(kernax.__file__).parent}_of_mine.py"
    program = compile("warn('careful', UserWarning)", file, "exec")
    with pytest.warns(UserWarning, match="careful") as caught:
        exec(program, {"warn": untyped(warn)})
    assert caught[0].filename == file


def batch(succeeded, jitter):
    result = jax.vmap(lambda ok: RESULTS.where(ok, RESULTS.successful, RESULTS.not_psd))(succeeded)
    return Solution(jnp.zeros(len(succeeded)), result, {"jitter": jitter})


def test_only_jitter_of_solves_that_succeeded_is_warned_of():
    with pytest.warns(ConditionWarning, match=r"in 1 of 3 solves \(index 2\): up to 1\.0e-08"):
        finish(batch(jnp.array([True, False, True]), jnp.array([0, 1e-3, 1e-8])), throw=False)
    with warnings.catch_warnings(action="error"):
        finish(batch(jnp.array([True, False]), jnp.array([0, 1e-3])), throw=False)
        finish(batch(jnp.array([True, True]), jnp.array([1e-3, 0])), throw=False, quiet=True)


def test_a_long_batch_is_warned_of_by_its_first_solves_alone():
    jitter = jnp.full(30, 1e-8)
    with pytest.warns(
        ConditionWarning, match=r"in 30 of 30 .*index 0, 1, 2, 3, 4, 5, 6, 7, \.\.\.\)"
    ):
        finish(batch(jitter > 0, jitter), throw=False)
