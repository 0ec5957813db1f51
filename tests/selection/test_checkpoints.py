"""Runs that are killed go on to the same result, bitwise; files that do not fit are refused."""

import os
import shutil
import signal
import subprocess
import sys
import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import needs_x64, untyped

import kernax
from kernax.core.checkpoint import sealed
from kernax.errors import KernaxFileError

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
@pytest.mark.parametrize(("function", "options"), CASES.values(), ids=CASES)
def test_a_run_that_was_killed_twice_ends_bitwise_where_it_would_have(function, options, tmp_path):
    path = kernax.Checkpoint(tmp_path / "run", every=3)
    for step in (5, 7):
        with pytest.raises(Killed):
            function(path, callback=killed_at(step), **options)
    shown = []
    resumed = function(
        path, callback=lambda seen: shown.append(int(seen.stats["steps"])), **options
    )
    assert shown == list(range(7, STEPS + 1))
    chex.assert_trees_all_equal(resumed, function(**options))


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


def of_the_same_name(scale):
    def loss(model, scale_of_data):
        return scale * banana(model, scale_of_data)

    return loss


FOREIGN = {
    "loss": ({"loss": distance}, r"loss \(test_checkpoints.distance in this call, test_ch"),
    "optimiser": ({"optimiser": LBFGS}, "What differs: what a step of the optimiser computes"),
    "rate": ({"optimiser": optax.adam(0.2)}, "What differs: what a step of the optimiser computes"),
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
def test_another_number_of_starts_another_function_and_another_start_are_refused(tmp_path):
    learn_many(tmp_path / "run")
    with pytest.raises(KernaxFileError, match=r"number of starts \(2 in this call, 3 in the file"):
        learn_many(tmp_path / "run", starts=(-1.0, 0.0))
    with pytest.raises(
        KernaxFileError, match=r"function \(minimise in this call, multi_start in the"
    ):
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


def test_checkpoints_are_refused_under_a_transformation(tmp_path):
    with pytest.raises(ValueError, match="callback and checkpoint need concrete values: leave"):
        jax.vmap(lambda a: learn(tmp_path / "run", model={"a": a, "b": a}))(jnp.ones((2, 2)))
    assert not list(tmp_path.iterdir())


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
