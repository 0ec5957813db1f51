"""Fits over centres that are killed go on from their last product, to the same result."""

import sys
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_close, needs_x64, untyped

import kernax
import kernax.scale.centres.kept_minimum as kept_minimum
from kernax import Checkpoint
from kernax.core.checkpoint import checkpoint as checkpoint_module
from kernax.errors import KernaxFileError, MaxStepsError
from kernax.losses import Huber, Squared

pytestmark = needs_x64  # once: bits are kept, of either precision

RNG = np.random.default_rng(0)
N = 150
X = RNG.normal(size=(N, 2))
Z = X[:12] + 0.01
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=N)
WEIGHTS = RNG.integers(0, 3, N).astype(float)
NEW = RNG.normal(size=(5, 2))
KERNEL = 1.3 * kernax.RBF(1.2)
module = sys.modules["kernax.scale.centres.falkon"]  # behind the function of that name
SQUARES = Squared()


def fit(loss=SQUARES, X=X, y=Y, ridge=0.01, centres=Z, **options):
    return kernax.falkon(KERNEL, X, y, ridge, centres, loss=loss, **options)


@pytest.fixture
def sample(monkeypatch):
    """A Hessian of few rows, so that solves take many products, and their end is measured."""
    monkeypatch.setattr(module, "size_of_sample", lambda *_: 40)


class Killed(Exception):
    """Stands for a signal."""


def killed(writes, monkeypatch, **options):
    """A fit that is killed when it has written so many states."""
    keep = checkpoint_module.keep_state
    written = []

    def keep_or_die(*arguments):
        if len(written) == writes:
            raise Killed
        written.append(0)
        keep(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_module, "keep_state", keep_or_die)
        with pytest.raises(Killed):
            fit(**options)


def steps_in(folder):
    return sorted(int(path.name) for path in Path(folder).iterdir())


TWO = np.stack([Y, np.cos(Y)], 1)


@pytest.mark.nightly
def test_a_fit_that_is_killed_again_and_again_is_the_one_that_is_not(sample, tmp_path, monkeypatch):
    options = {"y": TWO, "bias": True, "weights": WEIGHTS}
    plain = fit(**options)
    undisturbed = fit(**options, checkpoint=Checkpoint(tmp_path / "undisturbed"))
    last = steps_in(tmp_path / "undisturbed")[-1]
    assert last > plain.stats["products"] > 8
    folder = tmp_path / "killed"
    each = last // 5
    for reached in range(each, last, each):
        killed(each, monkeypatch, **options, checkpoint=Checkpoint(folder))
        assert steps_in(folder)[-1] == reached
    resumed = fit(**options, checkpoint=Checkpoint(folder))
    assert steps_in(folder)[-1] == last
    for found in (undisturbed, resumed):
        assert_close(found.value.values(NEW), plain.value.values(NEW), 1e-10)
        assert found.stats.keys() == plain.stats.keys()
        assert found.stats["products"] == plain.stats["products"]
    same = jax.tree.map(np.array_equal, jax.tree.leaves(resumed), jax.tree.leaves(undisturbed))
    assert all(same)


def not_to_be_reached(*_):
    raise AssertionError("a step")


@pytest.mark.slow
def test_a_fit_that_is_over_is_returned_at_once_and_another_compiles_nothing(tmp_path, monkeypatch):
    counted = chex.assert_max_traces(kept_minimum._with_product, n=1)
    monkeypatch.setattr(kept_minimum, "_with_product", counted)
    for ridge in (0.1, 0.01):
        folder = tmp_path / str(ridge)
        options = {"loss": Huber(0.1), "ridge": ridge, "checkpoint": Checkpoint(folder, every=99)}
        first = fit(**options)
        assert len(steps_in(folder)) == 1
    assert_close(first.value.values(NEW), fit(Huber(0.1)).value.values(NEW), 1e-10)
    monkeypatch.setattr(kept_minimum, "_advanced", not_to_be_reached)
    assert_close(fit(**options).value.coefficients, first.value.coefficients, 0)


@pytest.mark.slow
def test_a_fit_of_chunks_goes_on_and_is_returned_at_once(sample, tmp_path, monkeypatch):
    chunks = kernax.scale.Chunks.of_arrays(X, Y, chunk_size=N // 2)
    options = {"X": chunks, "y": None}
    plain = fit(**options)
    options |= {"checkpoint": Checkpoint(tmp_path)}
    killed(7, monkeypatch, **options)
    assert steps_in(tmp_path) == [6, 7]
    found = fit(**options)
    assert found.stats["products"] == plain.stats["products"] > 8
    assert_close(found.value.values(NEW), plain.value.values(NEW), 1e-10)
    monkeypatch.setattr(kept_minimum, "_advanced", not_to_be_reached)
    assert_close(fit(**options).value.coefficients, found.value.coefficients, 0)


@pytest.mark.nightly
def test_too_few_steps_fail_and_say_so_again(tmp_path):
    for _ in range(2):
        with pytest.raises(MaxStepsError):
            fit(Huber(0.1), ridge=1e-3, max_steps=1, checkpoint=Checkpoint(tmp_path))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    fit(checkpoint=Checkpoint(folder, name="y.npy"), weights=WEIGHTS)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ridge": 0.1}, r"ridge \(0.1 in this call, 0.01 in the file\)"),
        ({"rtol": 1e-3}, r"rtol \(0.001 in this call, None in the file\)"),
        ({"weights": None}, rf"number of points \({N} in this call, \d+ in the file\)"),
        ({"centres": Z + 1}, r"the values of functions.Z"),
        ({"centres": Z[1:]}, r"functions.Z \(float64\[11, 2\] in this call, float64\[12, 2\]"),
        ({"loss": Huber()}, r"structure of loss"),
        ({"name": "other.npy"}, r"name \(other.npy in this call, y.npy in the file\)"),
    ],
)
def test_the_folder_of_another_fit_is_refused_by_what_differs(changed, words, kept):
    name = changed.pop("name", "y.npy")
    options = {"weights": WEIGHTS, "checkpoint": Checkpoint(kept, name=name)} | changed
    with pytest.raises(KernaxFileError, match=words):
        fit(**options)


def test_a_kept_fit_is_not_transformed(tmp_path):
    value = lambda ridge: fit(ridge=ridge, checkpoint=Checkpoint(tmp_path)).value.norm
    ridge = jnp.asarray(0.1)
    for transformed in (jax.jit(value), jax.grad(value)):
        with pytest.raises(ValueError, match="checkpoint must be None under jit, grad and vmap"):
            transformed(ridge)
    with pytest.raises(ValueError, match="checkpoint must be None under jit, grad and vmap"):
        jax.vmap(value)(ridge[None])
    with pytest.raises(ValueError, match="checkpoint must be None under jit"):
        jax.jit(lambda: value(0.1))()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_path_is_a_checkpoint_and_what_is_none_is_refused(tmp_path, monkeypatch):
    first = fit(checkpoint=str(tmp_path / "run"))
    assert steps_in(tmp_path / "run")
    assert_close(
        fit(checkpoint=Checkpoint(tmp_path / "run")).value.values(NEW), first.value.values(NEW), 0
    )
    monkeypatch.setattr(Checkpoint, "__init__", untyped(Checkpoint.__init__))
    with pytest.raises(
        ValueError, match=r"must be a path, or kernax.Checkpoint\(path.*is of type int"
    ):
        untyped(kernax.falkon)(KERNEL, X, Y, 0.1, Z, checkpoint=3)
