"""Runs that are killed go on to the same result, bitwise; files that do not fit are refused."""

import os
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import needs_x64, untyped

import kernax
from kernax.core.checkpoint import sealed
from kernax.errors import DamagedCheckpointWarning, KernaxFileError

pytestmark = needs_x64  # once: steps of an optimiser are the same program in either precision

ADAM, LBFGS = optax.adam(0.1), optax.lbfgs()
STEPS = 12


class Killed(BaseException):
    """Stands for a signal, in tests that need no process of their own."""


def killed_at(step):
    def callback(seen):
        if seen.stats["steps"] == step:
            raise Killed

    return callback


def banana(model, scale):
    """Rosenbrock's function, whose minimum no method finds in a few steps."""
    a, b = model["a"], model["b"]
    return jnp.sum((1 - a) ** 2 + scale * (b - a**2) ** 2)


def distance(model, target):
    return jnp.sum((model["a"] - target) ** 2)


def start(a=-1.0):
    return {"a": jnp.full(2, a), "b": jnp.zeros(2)}


TASK = {
    "loss": banana,
    "model": start(),
    "optimiser": ADAM,
    "steps": STEPS,
    "args": (jnp.asarray(5.0, float),),
}
VALIDATION = kernax.selection.Validation(distance, args=(jnp.asarray(-0.5, float),))


def learn(checkpoint=None, **changes):
    task = TASK | changes
    required = [task.pop(name) for name in ("loss", "model", "optimiser", "steps")]
    return kernax.minimise(*required, checkpoint=checkpoint, throw=False, **task)


def learn_many(checkpoint=None, starts=(-1.0, 0.0, 2.0), **options):
    models = [start(a) for a in starts]
    optimiser = options.pop("optimiser", ADAM)
    args = TASK["args"]
    return kernax.multi_start(
        banana, models, optimiser, STEPS, args=args, checkpoint=checkpoint, throw=False, **options
    )


def contents_of(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder): path.read_bytes() for path in files}


CASES = {
    "adam": (learn, {}),
    "lbfgs": (learn, {"optimiser": LBFGS}),
    "validation": (learn, {"validation": VALIDATION}),
    "many starts": (learn_many, {"optimiser": LBFGS}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "options"), CASES.values(), ids=CASES)
def test_a_run_that_was_killed_twice_ends_bitwise_where_it_would_have(verb, options, tmp_path):
    path = kernax.Checkpoint(tmp_path / "run", every=3)
    for step in (5, 7):
        with pytest.raises(Killed):
            verb(path, callback=killed_at(step), **options)
    shown = []
    resumed = verb(path, callback=lambda seen: shown.append(int(seen.stats["steps"])), **options)
    assert shown == list(range(7, STEPS + 1))
    chex.assert_trees_all_equal(resumed, verb(**options))


def test_a_finished_run_gives_its_result_at_once_and_leaves_the_folder_alone(tmp_path):
    path = tmp_path / "run"
    first = learn(path)
    contents = contents_of(path)
    again = learn(str(path), callback=killed_at(STEPS))  # which is not called
    chex.assert_trees_all_equal(again, first)
    assert contents_of(path) == contents
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    assert sorted(file.name for file in path.iterdir()) == ["11", "12"]


def test_a_run_that_a_callback_ended_stays_ended(tmp_path):
    ends = lambda seen: bool(seen.stats["steps"] == 4)
    first = learn(tmp_path / "run", callback=ends)
    assert first.stats["steps"] == 4
    chex.assert_trees_all_equal(learn(tmp_path / "run"), first)


def test_a_run_that_a_callback_ended_at_its_last_step_stays_ended(tmp_path):
    first = learn(tmp_path / "run", steps=4, callback=lambda seen: bool(seen.stats["steps"] == 4))
    again = learn(tmp_path / "run", steps=9)
    assert again.stats["steps"] == 4
    chex.assert_trees_all_equal(again.value, first.value)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"optimiser": LBFGS}], ids=["adam", "lbfgs"])
def test_more_steps_go_on_where_fewer_ended_and_fewer_are_refused(options, tmp_path):
    """To the last bit here; in principle the programs differ in the length of one array."""
    learn(tmp_path / "run", validation=VALIDATION, steps=5, **options)
    shown = []
    longer = learn(
        tmp_path / "run",
        validation=VALIDATION,
        callback=lambda seen: shown.append(int(seen.stats["steps"])),
        **options,
    )
    assert shown == list(range(6, STEPS + 1))
    chex.assert_trees_all_equal(longer, learn(validation=VALIDATION, **options))
    with pytest.raises(KernaxFileError, match=r"What differs: steps \(5 in this call, 12 in the"):
        learn(tmp_path / "run", validation=VALIDATION, steps=5, **options)


def test_the_state_is_written_after_as_many_steps_or_seconds_as_asked_for(tmp_path):
    """A callback is called before the state is written."""
    newest = []

    def look(seen):
        newest.append(max((int(path.name) for path in Path(folder).iterdir()), default=0))

    folder = tmp_path / "steps"
    learn(kernax.Checkpoint(folder, every=4), callback=look)
    assert newest == [0] * 4 + [4] * 4 + [8] * 4
    learn(kernax.Checkpoint(tmp_path / "fifty", keep=99), steps=100)
    assert len(list((tmp_path / "fifty").iterdir())) == 50
    newest.clear()
    folder = tmp_path / "seconds"
    learn(kernax.Checkpoint(folder, seconds=1e-9), callback=look)
    assert newest == list(range(STEPS))
    newest.clear()
    folder = tmp_path / "never"
    learn(kernax.Checkpoint(folder, seconds=1e9), callback=look)
    assert newest == [0] * STEPS


@pytest.mark.slow
def test_a_state_of_random_keys_and_of_short_floats_comes_back(tmp_path):
    optimiser = optax.chain(
        optax.add_noise(0.1, 0.5, jax.random.key(3)), optax.adam(0.1, mu_dtype=jnp.bfloat16)
    )
    with pytest.raises(Killed):
        learn(
            kernax.Checkpoint(tmp_path / "run", every=1),
            optimiser=optimiser,
            callback=killed_at(6),
        )
    chex.assert_trees_all_equal(
        learn(tmp_path / "run", optimiser=optimiser), learn(optimiser=optimiser)
    )


def of_the_same_name(scale):
    def loss(model, scale_of_data):
        return scale * banana(model, scale_of_data)

    return loss


FOREIGN = {
    "loss": ({"loss": distance}, r"loss \(test_checkpoints.distance in this call, test_ch"),
    "optimiser": ({"optimiser": LBFGS}, "What differs: what a step of the optimiser computes"),
    "rate": ({"optimiser": optax.adam(0.2)}, "What differs: what a step of the optimiser computes"),
    "structure": (
        {"model": start() | {"c": jnp.ones(1)}},
        r"model\.c \(float64\[1\] in this call, nothing in the file\)",
    ),
    "shape": (
        {"model": {"a": jnp.zeros(3), "b": jnp.zeros(3)}},
        r"model\.a \(float64\[3\] in this call, float64\[2\] in the file\)",
    ),
    "start": ({"model": start(0.5)}, "What differs: the values of model.a. Repeat that call"),
    "data": ({"args": (jnp.asarray(6.0, float),)}, "What differs: the values of args.0. Repeat"),
    "trainable": (
        {"trainable": lambda path, value: path == "['b']" or np.array([True, False])},
        r"trainable \(\['a'\]\[0\], \['b'\] in this call, \['a'\], \['b'\] in the file\)",
    ),
    "validation": ({"validation": VALIDATION}, "structure of validation"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    return path, learn(path)


@pytest.mark.parametrize(("changes", "message"), FOREIGN.values(), ids=FOREIGN)
def test_a_checkpoint_of_another_call_is_refused_by_what_differs_and_kept(
    changes, message, finished
):
    path = finished[0]
    contents = contents_of(path)
    with pytest.raises(KernaxFileError, match=f"checkpoint of another call.*{message}"):
        learn(path, **changes)
    assert contents_of(path) == contents


@pytest.mark.slow
def test_a_loss_that_closes_over_another_number_is_another_loss(tmp_path):
    """Its name is the same, and so is all that it is given."""
    learn(tmp_path / "run", loss=of_the_same_name(1.0))
    learn(tmp_path / "run", loss=of_the_same_name(1.0))
    with pytest.raises(KernaxFileError, match="What differs: what the loss computes"):
        learn(tmp_path / "run", loss=of_the_same_name(1.0 + 1e-15))


def test_another_validation_loss_or_patience_is_another_call(tmp_path):
    options = {"validation": VALIDATION}
    learn(tmp_path / "run", **options)
    for other, message in (
        (kernax.selection.Validation(banana, VALIDATION.args), "validation.loss"),
        (
            kernax.selection.Validation(distance, VALIDATION.args, 3),
            r"validation.patience \(3 in this call",
        ),
        (
            kernax.selection.Validation(distance, (jnp.asarray(-0.4, float),)),
            "values of validation.args.0",
        ),
    ):
        with pytest.raises(KernaxFileError, match=message):
            learn(tmp_path / "run", validation=other)


@pytest.mark.slow
def test_another_number_of_starts_another_verb_and_another_start_are_refused(tmp_path):
    learn_many(tmp_path / "run")
    with pytest.raises(KernaxFileError, match=r"number of starts \(2 in this call, 3 in the file"):
        learn_many(tmp_path / "run", starts=(-1.0, 0.0))
    with pytest.raises(KernaxFileError, match=r"verb \(minimise in this call, multi_start in the"):
        learn(tmp_path / "run")
    with pytest.raises(KernaxFileError, match=r"the values of model.1.a"):
        learn_many(tmp_path / "run", starts=(-1.0, 0.1, 2.0))


def test_another_precision_or_version_is_refused(finished, monkeypatch):
    path = finished[0]
    with (
        jax.enable_x64(False),
        pytest.raises(KernaxFileError, match=r"precision \(float32 in this call, float64 in the"),
    ):
        learn(path, model=start(), args=(jnp.asarray(5.0, float),))
    monkeypatch.setattr(optax, "__version__", "0.0.1")
    with pytest.raises(KernaxFileError, match=r"version of optax \(0.0.1 in this call, "):
        learn(path)


@pytest.mark.parametrize("name", ["state.npz", "checkpoint.json"])
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one_to_the_same_result(
    name, finished, tmp_path
):
    """Cut short, or with bits and bytes that changed."""
    rng = np.random.default_rng(0)
    for number in range(5):
        copy = shutil.copytree(finished[0], tmp_path / str(number))
        path = copy / "12" / name
        path.write_bytes(corrupted(bytearray(path.read_bytes()), rng))
        with pytest.warns(DamagedCheckpointWarning, match=r"12 is damaged \("):
            resumed = learn(copy)
        chex.assert_trees_all_equal(resumed, finished[1])


def corrupted(data, rng):
    kind, place = rng.integers(4), int(rng.integers(len(data)))
    if kind == 0:
        return bytes(data[:place])
    if kind == 1:
        data[place] ^= 1 << int(rng.integers(8))
    elif kind == 2:
        place = int(rng.integers(200))  # the header, where sizes stand
        data[place] ^= 1 << int(rng.integers(8))
    else:
        data[place : place + 8] = rng.bytes(len(data[place : place + 8]))
    return bytes(data)


def test_files_as_of_version_0_2_and_facts_that_are_forged_are_refused(finished, tmp_path):
    path = tmp_path / "run"
    kernax.save(path, kernax.RBF())
    contents = path.read_bytes()
    for ask in (learn, lambda path: kernax.Checkpoint(path).latest(0)):
        with pytest.raises(KernaxFileError, match=r"is a file, and a checkpoint is a folder.*0\.2"):
            ask(path)
    assert path.read_bytes() == contents
    with pytest.raises(IsADirectoryError):
        kernax.load(finished[0])
    for facts, message in (
        ({}, "the checkpoint of another call"),
        ({"name": 3}, "checkpoint.json has facts that are not texts"),
        ([1], "checkpoint.json is truncated or changed"),
    ):
        copy = shutil.copytree(finished[0], tmp_path / "forged", dirs_exist_ok=True)
        shutil.rmtree(copy / "11")
        untyped(sealed.seal)(copy / "12", facts)
        with (
            warnings.catch_warnings(action="ignore"),
            pytest.raises(KernaxFileError, match=message),
        ):
            learn(copy)


def test_a_place_that_cannot_be_written_is_an_error_before_anything_is_learned(tmp_path):
    called = []
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "file" / "run", tmp_path / "pipe"):
        with pytest.raises(KernaxFileError, match="cannot be created as a folder"):
            learn(path, callback=called.append)
    assert not called


def test_checkpoints_are_refused_under_a_transformation_and_what_is_none_by_name(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(kernax, "minimise", untyped(kernax.minimise))
    monkeypatch.setattr(kernax.Checkpoint, "__init__", untyped(kernax.Checkpoint.__init__))
    with pytest.raises(ValueError, match="callback and checkpoint need concrete values: leave"):
        jax.vmap(lambda a: learn(tmp_path / "run", model={"a": a, "b": a}))(jnp.ones((2, 2)))
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"checkpoint must be a path, or kernax.Checkpoint\(path"):
        learn(3)
    with pytest.raises(ValueError, match="every of a Checkpoint must be a positive integer"):
        kernax.Checkpoint("run", every=0)


PROGRAM = """
import json, os, signal, sys
import jax.numpy as jnp, numpy as np, optax
import kernax

folder, name, kills = sys.argv[1:]
optimiser = {"adam": optax.adam(0.02), "lbfgs": optax.lbfgs()}[name]
rng = np.random.default_rng(0)


def valley(x):
    # Rosenbrock's function of forty numbers, along which line searches are long.
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def learn(write, **options):
    # Every step tells the parent, so that it can end this process while one is under way.
    def told(seen):
        os.write(write, b".")

    start = jnp.asarray(np.linspace(-1.5, 1.2, 40))
    solution = kernax.minimise(valley, start, optimiser, 300, callback=told, **options)
    assert solution.stats["steps"] > 150  # far from an end at all times
    found = [solution.value, solution.stats["losses"], solution.stats["loss"]]
    return json.dumps([np.asarray(array).tobytes().hex() for array in found])


def life(steps, **options):
    # A process that learns, and is killed some moment after it has told of so many steps.
    read, write = os.pipe()
    child = os.fork()  # before anything runs on JAX, whose threads a fork would not have
    if child == 0:
        result = learn(write, **options)
        with open(os.path.join(folder, "result"), "w") as file:
            file.write(result)
        os._exit(0)
    os.close(write)
    while steps > 0 and os.read(read, 1):
        steps -= 1
    for _ in range(rng.integers(20_000)):
        pass
    if steps == 0:
        os.kill(child, signal.SIGKILL)
    os.close(read)
    return os.waitpid(child, 0)[1]


def whole_life(**options):
    assert life(float("inf"), **options) == 0
    with open(os.path.join(folder, "result")) as file:
        result = file.read()
    os.remove(os.path.join(folder, "result"))
    return result


uninterrupted = whole_life()
checkpoint = kernax.Checkpoint(os.path.join(folder, "run"), every=2)
for _ in range(int(kills)):
    assert life(int(rng.integers(1, 8)), checkpoint=checkpoint) == signal.SIGKILL
assert whole_life(checkpoint=checkpoint) == uninterrupted
left = os.listdir(folder)
assert left == ["run"], left
print("the same after", kills)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("optimiser", ["adam", "lbfgs"])
def test_a_run_killed_twenty_times_by_a_signal_ends_bitwise_where_it_would_have(
    optimiser, tmp_path
):
    """Each life begins with the import behind it; all are children of one process, which waits."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path), optimiser, "20"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "the same after 20\n"


IN_ANOTHER_PROCESS = """
import os, signal, sys
import equinox as eqx, jax, jax.numpy as jnp, numpy as np, optax
import kernax

path, step = sys.argv[1], int(sys.argv[2])
optimiser = optax.chain(
    optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(0.1, 50))
)
rng = np.random.default_rng(0)
words = kernax.strings.encode(["gattaca", "tagacat", "catgatt", "ttagaca"] * 4)
X, y = rng.normal(size=(16, 3)), rng.normal(size=16)


def loss(model, X, words, y, options):
    kernel, offset = model
    learned = kernax.kernel_ridge(kernel, (X, words), y - offset, options["ridge"], bias=True)
    residuals = kernax.leave_one_out(kernel, (X, words), y, options["ridge"])
    return jnp.mean(residuals**2) + jnp.mean(learned.value.coefficients**2)


network = eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0))
of_vectors = kernax.Warped(kernax.RBF(np.ones(2)) + kernax.Custom(lambda p, x, z: x @ z), network)
model = kernax.On(of_vectors, 0) * 0.5 + kernax.On(kernax.Spectrum(2), 1), jnp.asarray(0.1)


def killed(seen):
    if seen.stats["steps"] == step:
        os.kill(os.getpid(), signal.SIGKILL)


def learn(**options):
    data = (X, words, y, {"ridge": 0.5, "name": "here"})
    trainable = lambda path, value: np.ndim(value) > 0
    held_out = lambda model, y: jnp.sum(y**2) * model[1]
    return kernax.minimise(
        loss,
        model,
        optimiser,
        20,
        args=data,
        trainable=trainable,
        validation=kernax.selection.Validation(held_out, args=(y,)),
        **options,
    )


resumed = learn(checkpoint=kernax.Checkpoint(path, every=1), callback=killed)
assert eqx.tree_equal(resumed, learn()), "it differs"
"""


@pytest.mark.nightly
def test_another_process_with_another_order_of_sets_takes_a_rich_model_for_the_same(tmp_path):
    """Networks, strings, checks at run time, lambdas: nothing of them may look like another call
    because an address or a hash is another one.
    """
    for seed, step, ending in (("1", "8", -signal.SIGKILL), ("2", "99", 0)):
        command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path / "run"), step]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        ended = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert ended.returncode == ending, ended.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
