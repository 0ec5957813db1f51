"""Models in files: bitwise round trips, clear errors for damaged and foreign files, nothing executed."""

import json
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from conftest import needs_x32, needs_x64

import kernax
from kernax.files import KernaxFileError, _registry, load, load_notes, save

DTYPE = jnp.result_type(float)
SCALES = np.array([0.1, 2.0])
KERNELS = {
    "rbf": kernax.RBF(SCALES),
    "composite": 2.0 * kernax.Matern52(0.3) * kernax.Periodic(period=1.1) + kernax.Linear() ** 2 + 0.5,
    "matern": kernax.Matern(nu=1.7),
    "quadratic": kernax.RationalQuadratic(1.0, 0.3),
    "exponential": kernax.GammaExponential(1.0, 1.3),
    "mixture": kernax.SpectralMixture(np.ones(2), np.ones((2, 2)), np.ones((2, 2))),
    "bilinear": kernax.BilinearForm(np.eye(2)),
    "parts": kernax.On(kernax.RBF(), (0, 1)) + kernax.On(kernax.RBF(), slice(0, 2)) + kernax.On(kernax.RBF(), 1),
    "warped": kernax.ExpOf(kernax.Polynomial(3, 0.5)) + kernax.Normalised(kernax.PolynomialOf(kernax.RBF(), np.ones(3))),
    "precomputed": kernax.Precomputed.from_blocks(np.eye(2), np.ones((2, 1)), np.ones(1)),
    "herglotz": kernax.Herglotz(np.array([0.4, 0.1])),
    "green": kernax.Brownian() + kernax.BrownianBridge() * kernax.IntegratedBrownian(),
    "arc": kernax.ArcCosine(2),
    "centred": kernax.Centred(kernax.GaussianOf(kernax.RBF(), 0.5), np.eye(3)),
    "change": kernax.ChangePoint(kernax.RBF(), kernax.Linear(), 0.2, 0.5, 1),
    "gibbs": kernax.Gibbs(kernax.GaussianBasis(np.ones((2, 2)), 0.5)),
    "bases": kernax.FeatureMap(kernax.SigmoidBasis(np.ones(2))) + kernax.FeatureMap(kernax.PolynomialBasis(2)),
    "bins": kernax.FeatureMap(kernax.IndicatorBins(4, 2)),
    "sines": kernax.FeatureMap(kernax.Brownian().eigenpairs(3)[1]),
}


@pytest.fixture
def process(rng):
    X, y = rng.normal(size=(9, 2)), rng.normal(size=9)
    prior = kernax.GaussianProcess(KERNELS["rbf"], kernax.LinearMean([1.0, 2.0], 0.5))
    return kernax.condition(prior, X, y, 0.1, weights=np.r_[0.0, np.ones(8)]).value


def same(a, b):
    return eqx.tree_equal(a, b, typematch=True) and jax.tree.structure(a) == jax.tree.structure(b)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_come_back_bitwise(name, tmp_path):
    """J06."""
    save(tmp_path / "k", KERNELS[name])
    assert same(load(tmp_path / "k"), KERNELS[name])
    assert same(pickle.loads(pickle.dumps(KERNELS[name])), KERNELS[name])


def test_expansions_processes_and_containers_come_back_bitwise(process, tmp_path):
    """J06."""
    for model in (process, process.mean, {"f": process.mean.update, "parts": (process.covariance, [1.5, None, "a", True])}):
        save(tmp_path / "model", model)
        again = load(tmp_path / "model")
        assert same(again, model)
        assert same(pickle.loads(pickle.dumps(model)), model)
    x = jnp.ones(2, DTYPE)
    assert load_and_predict(tmp_path, process, x) == (process.mean(x), process.variance(x))


def load_and_predict(folder, process, x):
    save(folder / "p", process)
    again = load(folder / "p")
    return again.mean(x), again.variance(x)


def test_every_class_of_the_registry_is_named_once_and_none_runs_code():
    registry = _registry()
    assert {"RBF", "Sum", "GaussianProcess", "KernelExpansion", "PosteriorKernel", "On"} <= set(registry)
    assert "Static" not in registry


def test_notes_come_back(tmp_path):
    notes = {"columns": ["a", "b"], "scale": 0.1, "none": None}
    save(tmp_path / "k", kernax.RBF(), notes=notes)
    assert load_notes(tmp_path / "k") == notes


@pytest.mark.parametrize("seed", range(5))
def test_a_damaged_file_is_an_error_or_loads_bitwise(process, tmp_path, seed):
    """J06: five hundred corruptions, a hundred in each run."""
    rng = np.random.default_rng(seed)
    save(tmp_path / "sound", process)
    sound = bytearray((tmp_path / "sound").read_bytes())
    survived = 0
    for _ in range(100):
        damaged = corrupted(bytearray(sound), rng)
        (tmp_path / "damaged").write_bytes(damaged)
        try:
            model = load(tmp_path / "damaged")
        except KernaxFileError:
            pass
        else:
            survived += 1
            assert same(model, process)
    assert survived < 50


def corrupted(data: bytearray, rng) -> bytes:
    kind, place = rng.integers(5), int(rng.integers(len(data)))
    if kind == 0:
        return bytes(data[:place])
    if kind == 1:
        data[place] ^= 1 << int(rng.integers(8))
    elif kind == 2:
        place = int(rng.integers(200))  # the header, where sizes stand
        data[place] ^= 1 << int(rng.integers(8))
    elif kind == 3:
        data[place : place + 8] = rng.bytes(8)
    else:
        return bytes(data) + rng.bytes(16)
    return bytes(data)


def rewritten(path, change):
    """The file with its description changed and its checksum made to fit, as an adversary would."""
    from kernax.files import _checksum

    with safetensors.safe_open(path, framework="numpy") as file:
        header = dict(file.metadata())
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    model = json.loads(header["model"])
    model = change(model, arrays) or model
    header["model"] = json.dumps(model)
    header["sha256"] = _checksum(header["model"], header["notes"], arrays)
    path.write_bytes(safetensors.numpy.save(arrays, header))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, a: m.update({"class": "Static"}), "Static is no class"),
        (lambda m, a: m.update({"class": "os.system"}), "os.system is no class"),
        (lambda m, a: m.update({"class": "AbstractKernel"}), "AbstractKernel is no class"),
        (lambda m, a: m["fields"].update({"extra": {"value": 1}}), "RBF has fields lengthscale, but the file has"),
        (lambda m, a: m["fields"].clear(), "RBF has fields lengthscale"),
        (lambda m, a: a.update({"7": np.ones(2)}), "arrays 7 belong to no part"),
        (lambda m, a: a.clear(), "cannot be loaded as a kernax model"),
        (lambda m, a: a.update({"0": -a["0"]}), "must be in"),
        (lambda m, a: {"module": "os"}, "no part of a model"),
        (lambda m, a: [1, 2], "no part of a model"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(tmp_path, change, message):
    """J06."""
    path = tmp_path / "k"
    save(path, kernax.RBF(SCALES))
    rewritten(path, change)
    with pytest.raises(KernaxFileError, match=message):
        load(path)


def test_a_nest_too_deep_is_refused_both_ways(tmp_path):
    model = kernax.RBF()
    for _ in range(150):
        model = (model,)
    with pytest.raises(KernaxFileError, match="nested too deeply"):
        save(tmp_path / "k", model)
    save(tmp_path / "k", (kernax.RBF(),))

    def deepen(node, _):
        for _ in range(150):
            node = {"tuple": [node]}
        return node

    rewritten(tmp_path / "k", deepen)
    with pytest.raises(KernaxFileError, match="nested too deeply"):
        load(tmp_path / "k")


def test_foreign_files_are_refused(tmp_path):
    """J06: an object array of NumPy's, an empty file, text, another safetensors file."""
    np.save(tmp_path / "a.npy", np.array([object()], dtype=object), allow_pickle=True)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("kernel,1\n")
    safetensors.numpy.save_file({"a": np.ones(3)}, tmp_path / "weights")
    for name in ("a.npy", "empty", "text", "weights"):
        with pytest.raises(KernaxFileError, match=name):
            load(tmp_path / name)
    with pytest.raises(KernaxFileError, match="text is not a kernax model, or is cut short"):
        load(tmp_path / "text")
    with pytest.raises(FileNotFoundError, match="no file"):
        load(tmp_path / "missing")
    with pytest.raises(IsADirectoryError, match="is a folder, not a file"):
        load(tmp_path)


def test_what_cannot_be_saved_is_refused_by_name_and_leaves_nothing_behind(tmp_path):
    class Mine(kernax.AbstractStationary):
        """A user's kernel."""

        lengthscale: jax.Array = kernax.positive(default=1.0)

        def of_squared_distance(self, s):
            return 1 / (1 + s)

    for model, message in (
        (
            Mine() + kernax.RBF(),
            r"model.terms.0 is a Mine.*save a dict of its parts instead, {\"lengthscale\": ...}, or .*equinox.tree_serialise_",
        ),
        (kernax.FeatureMap(lambda x: x), "model.phi is a plain function"),
        ({"key": jax.random.key(0)}, "model.key is an array of key"),
        ({1: kernax.RBF()}, "of type dict"),
    ):
        with pytest.raises(KernaxFileError, match=message):
            save(tmp_path / "k", model)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing$"):
        save(tmp_path / "missing" / "k", kernax.RBF())
    assert not list(tmp_path.iterdir())


@needs_x32
def test_a_float64_model_is_not_rounded_behind_the_users_back(tmp_path):
    with pytest.raises(KernaxFileError, match=r"model.a holds float64: call .*'jax_enable_x64', True\) before saving it"):
        save(tmp_path / "k", {"a": np.ones(3)})
    with jax.enable_x64(True):
        save(tmp_path / "k", {"a": np.ones(3)})
    with pytest.raises(KernaxFileError, match=r"it holds float64: .* before loading it"):
        load(tmp_path / "k")


@needs_x64
def test_float32_models_keep_their_precision(tmp_path):
    save(tmp_path / "k", kernax.RBF(np.float32(0.1)))
    assert load(tmp_path / "k").lengthscale.dtype == jnp.float32


def test_foreign_byte_orders_and_subclasses_of_containers_are_told_apart(tmp_path):
    import collections

    save(tmp_path / "k", (np.arange(3, dtype=">f4"),))
    np.testing.assert_array_equal(load(tmp_path / "k")[0], [0, 1, 2])
    with pytest.raises(KernaxFileError, match="of type Pair"):
        save(tmp_path / "k", collections.namedtuple("Pair", "a b")(1, 2))
