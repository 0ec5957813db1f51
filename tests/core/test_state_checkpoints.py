"""Loops that keep their state go on bitwise; no damaged checkpoint is ever read."""

import itertools
import json
import os
import random
import shutil
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import needs_x64, untyped

import kernax
from kernax import Checkpoint
from kernax.core.checkpoint import checkpoint as checkpoint_module
from kernax.core.checkpoint import sealed, stored
from kernax.errors import DamagedCheckpointWarning, KernaxFileError

pytestmark = needs_x64  # once: bits are kept, of either precision

MOMENTUM = optax.sgd(0.01, momentum=0.9)
T = jnp.linspace(0.0, 1.0, 7)


class Killed(Exception):
    """Stands for a signal."""


@jax.jit
def learned(state, y):
    """A step of gradient descent with momentum."""
    loss = lambda kernel: jnp.sum((jax.vmap(lambda t: kernel(t[None], T[:1]))(T) - y) ** 2)
    kernel, moments = state
    updates, moments = MOMENTUM.update(jax.grad(loss)(kernel), moments)
    return optax.apply_updates(kernel, updates), moments


def start():
    kernel = kernax.RBF(0.5)
    return kernel, MOMENTUM.init(kernel)


Y = jnp.sin(5 * T)


def after(steps):
    state = start()
    for _ in range(steps):
        state = learned(state, Y)
    return state


def killed_at(last):
    """`learned`, which is killed in a step."""
    count = itertools.count(1)

    def advance(state, y):
        if next(count) == last:
            raise Killed
        return learned(state, y)

    return advance


def names_in(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def assert_same(a, b):
    """Bitwise, of one type and one place."""
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert type(one) is type(other)
        if isinstance(one, jax.Array) and jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        if isinstance(one, jax.Array):
            assert (one.sharding, one.committed) == (other.sharding, other.committed)
        if np.asarray(one).dtype != object:
            assert np.asarray(one).dtype == np.asarray(other).dtype
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_a_loop_that_was_killed_twice_ends_bitwise_where_it_would_have(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run", every=3)
    for last in (5, 4):  # from 0, and from 3 on
        with pytest.raises(Killed):
            list(checkpoint.steps(killed_at(last), start(), 9, args=(Y,)))
    seen = list(checkpoint.steps(learned, start(), 9, args=(Y,)))
    assert [step for step, _ in seen] == [6, 7, 8, 9]
    assert_same(seen[-1][1], after(9))
    assert names_in(tmp_path / "run") == ["6", "9"]
    again = list(checkpoint.steps(killed_at(1), start(), 9, args=(Y,)))
    assert [step for step, _ in again] == [9]
    assert_same(again[-1][1], after(9))


STATE = {
    "key": jax.random.key(3),
    "keys": jax.random.split(jax.random.key(0), 3),
    "half": jnp.ones(3, jnp.bfloat16),
    "none": None,
    "number": 3,
    "fraction": 0.1,
    "truth": True,
    "numpy": np.arange(3, dtype=np.int8),
    "scalar": np.float32(3),
    "nothing": jnp.zeros((0, 3)),
    "committed": jax.device_put(jnp.ones(2), jax.devices()[0]),
    "function": jnp.sin,
    "module": kernax.RBF([1.0, 2.0]),
    "nan": jnp.asarray([jnp.nan, -0.0, jnp.inf]),
}


def test_a_state_of_any_kind_comes_back_as_it_was(tmp_path):
    list(Checkpoint(tmp_path).steps(lambda state: state, STATE, 1))
    step, kept = Checkpoint(tmp_path).latest(STATE)
    assert step == 1
    assert_same(kept, STATE)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder of two checkpoints, and a state like those."""
    folder = tmp_path_factory.mktemp("kept")
    rng = np.random.default_rng(0)
    state = {"a": jnp.asarray(rng.normal(size=(100, 5))), "b": np.arange(4), "c": 1}
    advance = lambda state: state | {"a": state["a"] + 1, "c": state["c"] + 1}
    list(Checkpoint(folder, every=1).steps(advance, state, 2))
    assert names_in(folder) == ["1", "2"]
    return folder, state, {1: advance(state), 2: advance(advance(state))}


def damage(folder, chance):
    """Cuts a file of a folder, changes a bit of it, or removes it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = chance.choice(files)
    contents = bytearray(path.read_bytes())
    place = chance.randrange(len(contents))
    way = chance.choice(["cut", "flipped", "removed"])
    if way == "removed":
        path.unlink()
        return
    if way == "cut":
        contents = contents[:place]
    else:
        contents[place] ^= 1 << chance.randrange(8)
    path.write_bytes(contents)


def test_of_fifty_damaged_checkpoints_none_is_read_and_the_one_before_is_taken(kept, tmp_path):
    folder, start, states = kept
    chance = random.Random(0)
    for number in range(50):
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        damage(copy / "2", chance)
        with pytest.warns(DamagedCheckpointWarning, match=r"2 is damaged \("):
            step, found = Checkpoint(copy).latest(start)
        assert step == 1
        assert_same(found, states[1])
        shutil.rmtree(copy)


def test_where_none_is_sound_an_error_says_so_and_nothing_is_touched(kept, tmp_path):
    folder, start, _ = kept
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "1" / "state.npz").unlink()
    seal = copy / "2" / "checkpoint.json"
    seal.write_text(seal.read_text()[:-9])
    how = r"damaged, 2 \(checkpoint.json is truncated .*\), 1 \(state.npz is missing\): remove"
    with (
        pytest.warns(DamagedCheckpointWarning),
        pytest.raises(KernaxFileError, match=rf"every checkpoint in .* is {how}"),
    ):
        Checkpoint(copy).latest(start)
    assert names_in(copy) == ["1", "2"]


def test_a_file_that_was_added_is_said_to_be(tmp_path):
    """It was said not to match its checksum, of which there is none."""
    (tmp_path / "state").write_text("1")
    sealed.seal(tmp_path, {"name": "run"})
    assert sealed.damage(tmp_path) is None
    assert sealed.facts_in(tmp_path) == {"name": "run"}
    (tmp_path / "notes").write_text("2")
    assert sealed.damage(tmp_path) == "notes was added"


def test_a_damaged_checkpoint_is_replaced_as_the_loop_comes_to_its_step_again(kept, tmp_path):
    folder, start, states = kept
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    damage(copy / "2", random.Random(5))
    advance = lambda state: state | {"a": state["a"] + 1, "c": state["c"] + 1}
    with pytest.warns(DamagedCheckpointWarning):
        seen = list(Checkpoint(copy, every=1).steps(advance, start, 2))
    assert [step for step, _ in seen] == [1, 2]
    step, found = Checkpoint(copy).latest(start)
    assert step == 2
    assert_same(found, states[2])


def test_what_was_being_written_when_a_process_was_killed_is_removed(kept, tmp_path):
    folder, start, states = kept
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for name in ("3.unfinished", "0.removed"):
        shutil.copytree(folder / "2", copy / name)
    with warnings.catch_warnings(action="error"):
        found = Checkpoint(copy).latest(start)
        assert len(names_in(copy)) == 4  # another job may be writing
        seen = list(Checkpoint(copy).steps(lambda state: state, start, 2))
    for step, state in (found, *seen):
        assert step == 2
        assert_same(state, states[2])
    assert names_in(copy) == ["1", "2"]


def test_names_of_others_are_no_steps_and_are_left_alone(kept, tmp_path):
    """`²` is a digit to `isdigit`, which `int` refuses; a folder of notes was removed."""
    folder, start, states = kept
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    others = ["notes.removed", "draft.unfinished", "²", "٣", "007", "-1", "3.5"]
    for name in others:
        (copy / name).mkdir()
        (copy / name / "mine").write_text("1")
    seen = list(Checkpoint(copy, keep=1, every=1).steps(lambda state: state, start, 3))
    assert [step for step, _ in seen] == [2, 3]
    assert_same(seen[0][1], states[2])
    assert names_in(copy) == sorted(["3", *others])
    assert all((copy / name / "mine").read_text() == "1" for name in others)


@pytest.mark.parametrize("name", ["9.unfinished", "9.removed", "3", "2024"])
@pytest.mark.parametrize("kind", ["file", "link", "broken link", "folder of notes"])
def test_something_else_of_the_name_of_a_checkpoint_is_refused_and_stays(
    kept, tmp_path, name, kind
):
    folder, start, _ = kept
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes").write_text("1")
    if kind == "file":
        (copy / name).write_text("1")
    elif kind == "folder of notes":
        shutil.copytree(mine, copy / name)
    else:
        (copy / name).symlink_to(mine if kind == "link" else tmp_path / "nowhere")
    before = names_in(copy)
    with pytest.raises(KernaxFileError, match=f"{name} has the name of a checkpoint, but is some"):
        list(Checkpoint(copy).steps(lambda state: state, start, 4))
    assert names_in(copy) == before
    assert (mine / "notes").read_text() == "1"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "another"}, r"name \(another in this call, nothing in the file\)"),
        ({"a": jnp.zeros((3, 5))}, r"state.a \(float64\[3, 5\] in this call, float64\[100, 5\]"),
        ({"a": jnp.zeros((100, 5), jnp.float32)}, r"state.a \(float32\[100, 5\] in this call"),
        ({"d": 1}, r"state.d \(int64\[\] in this call, nothing in the file\)"),
    ],
)
def test_the_folder_of_another_call_is_refused_by_what_differs(change, words, kept):
    folder, start, _ = kept
    name = change.pop("name", "")
    with pytest.raises(KernaxFileError, match=words):
        Checkpoint(folder, name=name).latest(start | change)


def test_fewer_steps_than_were_made_are_refused(kept):
    folder, start, _ = kept
    with pytest.raises(KernaxFileError, match=r"n_steps \(1 in this call, 2 in the file\)"):
        list(Checkpoint(folder).steps(lambda state: state, start, 1))


def test_a_loop_without_a_number_of_steps_ends_with_the_state_that_is_over(tmp_path):
    is_over = lambda state: state == 4
    loop = lambda advance: list(Checkpoint(tmp_path).steps(advance, 0, None, is_over=is_over))
    assert loop(lambda state: state + 1)[-1] == (4, 4)
    assert names_in(tmp_path) == ["3", "4"]
    assert loop(killed_at(1)) == [(4, 4)]
    with pytest.raises(ValueError, match="n_steps must be a number of steps"):
        list(Checkpoint(tmp_path).steps(lambda state: state, 0, None))


def test_facts_identify_a_call_beside_its_state(tmp_path):
    loop = lambda facts: list(Checkpoint(tmp_path).steps(lambda x: x, 0, 1, facts=facts))
    loop({"ridge": "1.0"})
    with pytest.raises(KernaxFileError, match=r"ridge \(2.0 in this call, 1.0 in the file\)"):
        loop({"ridge": "2.0"})


def test_a_step_that_changes_the_kind_of_its_state_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"state was float64\[3\] and is float64\[4\]"):
        list(Checkpoint(tmp_path).steps(lambda x: jnp.append(x, 1.0), jnp.zeros(3), 1))


@pytest.mark.parametrize(
    ("options", "n_steps", "steps"),
    [
        ({"every": 4}, 10, [4, 8, 10]),
        ({"seconds": 1e-9}, 10, range(1, 11)),
        ({"seconds": 10**9}, 10, [10]),
        ({"seconds": 1e9, "every": 6}, 10, [6, 10]),
        ({}, 10, range(1, 11)),
        ({}, 100, range(2, 101, 2)),  # fifty checkpoints of a run unless it is told otherwise
    ],
)
def test_a_state_is_kept_after_as_many_steps_or_seconds_as_asked_for(
    options, n_steps, steps, tmp_path
):
    checkpoint = Checkpoint(tmp_path / "run", keep=100, **options)
    list(checkpoint.steps(lambda state: state + 1, 0, n_steps))
    assert sorted(map(int, names_in(tmp_path / "run"))) == list(steps)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": 3}, r"checkpoint must be a path, or kernax.Checkpoint\(path"),
        ({"name": 3}, "name of a Checkpoint must be a text"),
        ({"every": 0}, "every of a Checkpoint"),
        ({"seconds": 0.0}, "seconds of a Checkpoint must be positive"),
        ({"keep": 0}, "keep of a Checkpoint"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(arguments, words, monkeypatch):
    monkeypatch.setattr(Checkpoint, "__init__", untyped(Checkpoint.__init__))
    with pytest.raises(ValueError, match=words):
        Checkpoint(**{"path": "run"} | arguments)


def test_a_folder_that_cannot_be_is_refused_before_the_first_step(tmp_path):
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "file" / "run", tmp_path / "pipe"):
        steps = Checkpoint(place).steps(lambda state: state + 1, 0, 10)
        with pytest.raises(KernaxFileError, match="cannot be created as a folder"):
            next(steps)


@pytest.fixture
def of_processes(monkeypatch):
    """Folders as several processes write them, and as kernax 0.2 did."""
    pytest.importorskip("orbax.checkpoint")
    by_orbax = lambda folder, state: stored.write_by_orbax(
        folder, {name: stored._to_write(leaf) for name, leaf in stored._named(state)}
    )
    monkeypatch.setattr(checkpoint_module, "write_state", by_orbax)


@pytest.mark.slow
def test_what_several_processes_wrote_is_read_by_one(of_processes, tmp_path):
    list(Checkpoint(tmp_path).steps(lambda state: state, STATE, 1))
    assert sorted(path.name for path in (tmp_path / "1").iterdir()) == ["checkpoint.json", "state"]
    step, kept = Checkpoint(tmp_path).latest(STATE)
    assert step == 1
    assert_same(kept, STATE)


def test_without_orbax_the_message_says_what_to_install(of_processes, monkeypatch, tmp_path):
    list(Checkpoint(tmp_path).steps(lambda state: state, 0, 1))
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(ImportError, match=r"pip install 'kernax-toolkit\[cluster\]'"):
        Checkpoint(tmp_path).latest(0)


def test_one_process_needs_no_orbax(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    list(Checkpoint(tmp_path).steps(lambda state: state + 1, 0, 3))
    assert Checkpoint(tmp_path).latest(0) == (3, 3)


def test_the_old_name_is_the_class_and_says_so(tmp_path):
    with pytest.warns(DeprecationWarning, match="Checkpoints is kernax.Checkpoint now"):
        assert kernax.scale.Checkpoints is Checkpoint
    assert not hasattr(kernax.scale, "Checkpointer")


def test_a_seal_of_another_version_is_not_read(kept, tmp_path):
    folder, start, _ = kept
    copy = tmp_path / "copy"
    shutil.copytree(folder / "2", copy / "2")
    seal = copy / "2" / "checkpoint.json"
    seal.write_text(json.dumps(json.loads(seal.read_text()) | {"format": "later"}))
    with (
        pytest.warns(DamagedCheckpointWarning, match="its format is 'later'"),
        pytest.raises(KernaxFileError),
    ):
        Checkpoint(copy).latest(start)
