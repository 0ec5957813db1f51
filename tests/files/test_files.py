"""Models in files: bitwise round trips, clear errors for damaged and foreign files, nothing
executed.
"""

import contextlib
import json
import pickle
import resource
import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from conftest import DTYPE, needs_x32, needs_x64, untyped

import kernax
from kernax import load, save
from kernax.errors import KernaxFileError
from kernax.files import load_notes, register, registry
from kernax.kernels import KERNELS as TABLE

SCALES = np.array([0.1, 2.0])
KERNELS = {
    "rbf": kernax.RBF(SCALES),
    "composite": 2.0 * kernax.Matern52(0.3) * kernax.Periodic(period=1.1)
    + kernax.Linear() ** 2
    + 0.5,
    "parts": kernax.On(kernax.RBF(), (0, 1))
    + kernax.On(kernax.RBF(), slice(0, 5, 2))
    + kernax.On(kernax.RBF(), 1),
    "warped": kernax.kernels.ExpOf(kernax.Polynomial(3, 0.5))
    + kernax.Normalised(kernax.kernels.PolynomialOf(kernax.RBF(), np.ones(3))),
    "precomputed": kernax.Precomputed.from_blocks(np.eye(2), np.ones((2, 1)), np.ones(1)),
    "centred": kernax.kernels.Centred(kernax.kernels.GaussianOf(kernax.RBF(), 0.5), np.eye(3)),
    "gibbs": kernax.kernels.Gibbs(kernax.bases.GaussianBasis(np.ones((2, 2)), 0.5)),
    "bases": kernax.FeatureMap(kernax.bases.SigmoidBasis(np.ones(2)))
    + kernax.FeatureMap(kernax.bases.PolynomialBasis(2)),
    "bins": kernax.FeatureMap(kernax.bases.IndicatorBins(4, 2)),
    "sines": kernax.FeatureMap(kernax.kernels.Brownian().eigenpairs(3)[1]),
}


@pytest.fixture
def process(rng):
    X, y = rng.normal(size=(9, 2)), rng.normal(size=9)
    prior = kernax.GaussianProcess(KERNELS["rbf"], kernax.LinearMean([1.0, 2.0], 0.5))
    return kernax.condition(prior, X, y, 0.1, weights=np.r_[0.0, np.ones(8)]).value


def same(a, b):
    return eqx.tree_equal(a, b, typematch=True) and jax.tree.structure(a) == jax.tree.structure(b)


# Examples with a function that is not registered cannot be saved.
WITH_FUNCTIONS = {"Gibbs", "Modulated", "SteinKernel", "Warped", "Custom"}
WITH_FUNCTIONS |= {"TangentKernel", "FisherKernel"}
EXAMPLES = {entry.name: entry.examples for entry in TABLE if entry.name not in WITH_FUNCTIONS}


@pytest.mark.parametrize("name", [*KERNELS, *EXAMPLES])
def test_kernels_come_back_bitwise(name, tmp_path):
    """J06."""
    kernels = [KERNELS[name]] if name in KERNELS else EXAMPLES[name]()
    for kernel in kernels:
        save(tmp_path / "k", kernel)
        assert same(load(tmp_path / "k"), kernel)
        assert same(pickle.loads(pickle.dumps(kernel)), kernel)


def test_expansions_processes_and_containers_come_back_bitwise(process, tmp_path):
    """J06."""
    for model in (
        process,
        process.mean,
        {"f": process.mean.update, "parts": (process.covariance, [1.5, None, "a", True])},
        (kernax.trees.encode(["(S a)"]), kernax.strings.encode(["ab"])),
    ):
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


def test_sample_paths_of_a_kernel_of_some_columns_are_saved(tmp_path):
    kernel = 2.0 * kernax.On(kernax.RBF(), [0]) + kernax.Linear()
    x = jnp.ones(2, DTYPE)
    process = kernax.GaussianProcess(kernel)
    paths = kernax.pathwise_sample(process, key=jax.random.key(0), n_samples=2, point=x)
    save(tmp_path / "paths", paths)
    np.testing.assert_array_equal(load(tmp_path / "paths")(x), paths(x))


def test_layers_of_networks_come_back_bitwise(tmp_path):
    kernel = 2.0 * kernax.RBF(0.7)
    X = jnp.linspace(0, 1, 4, dtype=DTYPE)[:, None]
    iterations = kernax.solvers.ConjugateGradient(rtol=1e-3)
    layers = {
        "ridge": kernax.nn.RidgeHead(kernel, 0.1, bias=True, solver=iterations),
        "logistic": kernax.nn.LogisticHead(kernel, 0.2),
        "machine": kernax.nn.SVMHead(kernel, 3.0, solver=kernax.solvers.SMO()),
        "process": kernax.nn.ProcessHead(kernel, 0.1, solver=kernax.solvers.JitteredCholesky()),
        "layer": kernax.nn.KernelLayer(kernel, X, 2, key=jax.random.key(0)),
    }
    save(tmp_path / "layers", layers)
    again = load(tmp_path / "layers")
    assert same(again, layers)
    np.testing.assert_array_equal(again["layer"](X[0]), layers["layer"](X[0]))


@needs_x64
def test_every_class_of_the_registry_is_a_module_and_all_kernels_are_there():
    classes = {name: registry.named(name) for name in registry.own_classes()}
    for name, cls in classes.items():
        assert issubclass(cls, eqx.Module), name
        assert registry.name_of(cls) == name
        assert cls.__module__ == registry.own_classes()[name][0]
    assert {entry.kind for entry in TABLE} <= set(classes.values())
    assert "Static" not in classes


@needs_x64
def test_a_model_in_place_of_the_path_is_told_that_the_path_comes_first(tmp_path):
    with pytest.raises(TypeError, match=r"is of type RBF: the path comes first, save\(path, model"):
        untyped(save)(kernax.RBF(), tmp_path / "rbf.kernax")
    for call in (load, load_notes):
        with pytest.raises(
            TypeError, match=r"path must be a str or os\.PathLike, but is of type RBF"
        ):
            untyped(call)(kernax.RBF())


def test_notes_come_back(tmp_path):
    notes = {"columns": ["a", "b"], "scale": 0.1, "none": None}
    save(tmp_path / "k", kernax.RBF(), notes=notes)
    assert load_notes(tmp_path / "k") == notes


@needs_x64
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
    from kernax.files.archive import checksum

    with safetensors.safe_open(path, framework="numpy") as file:
        header = dict(file.metadata())
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    model = json.loads(header["model"])
    model = change(model, arrays) or model
    header["model"] = json.dumps(model)
    header["sha256"] = checksum(header["model"], header["notes"], arrays)
    path.write_bytes(safetensors.numpy.save(arrays, header))


def lengthscale(part):
    return lambda model, arrays: (arrays.clear(), model["fields"].update(lengthscale=part))[2:]


@needs_x64
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, a: m.update({"class": "Static"}), "Static is not a class"),
        (lambda m, a: m.update({"class": "os.system"}), "os.system is not a class"),
        (lambda m, a: m.update({"class": "AbstractKernel"}), "AbstractKernel is not a class"),
        (
            lambda m, a: m["fields"].update({"extra": {"value": 1}}),
            "RBF has fields lengthscale, but the file has",
        ),
        (lambda m, a: m["fields"].clear(), "RBF has fields lengthscale"),
        (lambda m, a: a.update({"7": np.ones(2)}), "arrays 7 belong to no part"),
        (lambda m, a: a.clear(), "cannot be loaded as a kernax model"),
        (lambda m, a: a.update({"0": -a["0"]}), "must be in"),
        (lambda m, a: a.update({"0": a["0"] > 0}), "RBF.lengthscale must be of type"),
        (lambda m, a: a.update({"0": np.ones(2, np.int32)}), "RBF.lengthscale must be of type"),
        (lambda m, a: {"module": "os"}, "not part of a model"),
        (lambda m, a: [1, 2], "not part of a model"),
        (lengthscale({"value": "text"}), "RBF.lengthscale must be of type .* but is 'text'"),
        (lengthscale({"value": True}), "RBF.lengthscale must be of type"),
        (lengthscale({"value": None}), "RBF.lengthscale must be of type"),
        (lengthscale({"value": -1.0}), r"RBF.lengthscale must be in \(0, inf\)"),
        (lengthscale({"value": {"a": 1}}), "is not a value"),
        (lengthscale({"tuple": "text"}), "not a list of parts"),
        (lengthscale({"function": "RBF"}), "RBF is a class, where the file needs a function"),
        (lengthscale({"function": "exec"}), "exec is not a class"),
        (lengthscale({"wrapped": ["exec"]}), "cannot be loaded as a kernax model"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(tmp_path, change, message):
    """J06."""
    path = tmp_path / "k"
    save(path, kernax.RBF(SCALES))
    rewritten(path, change)
    with pytest.raises(KernaxFileError, match=message):
        load(path)


@needs_x64
@pytest.mark.parametrize(
    ("model", "field", "part", "message"),
    [
        (
            kernax.Polynomial(3, 0.5),
            "degree",
            {"value": -1},
            "degree must be a positive integer, but is -1",
        ),
        (
            kernax.Polynomial(3, 0.5),
            "degree",
            {"value": True},
            "Polynomial.degree must be of type int",
        ),
        (
            kernax.Polynomial(3, 0.5),
            "degree",
            {"value": "3"},
            "Polynomial.degree must be of type int",
        ),
        (kernax.kernels.Mismatch(3, 1), "m", {"value": 3}, "m must be less than k"),
        (kernax.kernels.ArcCosine(2), "order", {"value": 3}, "order must be 0, 1 or 2"),
        (
            kernax.kernels.Power(kernax.RBF(), 2),
            "kernel",
            {"value": 1.0},
            "Power.kernel must be of type AbstractKernel",
        ),
        (
            kernax.FeatureMap(kernax.bases.PolynomialBasis(2)),
            "phi",
            {"value": 1.0},
            "FeatureMap.phi must be of type Callable",
        ),
        (
            kernax.On(kernax.RBF(), slice(0, 4, 2)),
            "where",
            {"slice": [{"value": 0}, {"value": 4}]},
            "a slice has a start",
        ),
        (
            kernax.On(kernax.RBF(), slice(0, 4, 2)),
            "where",
            {"slice": [{"value": 0.5}] * 3},
            "a slice has a start",
        ),
    ],
)
def test_a_field_of_the_wrong_type_or_value_is_refused_both_ways(
    model, field, part, message, tmp_path
):
    """Integers that a constructor would refuse, kernels that are numbers, a slice that lost its
    step.
    """
    path = tmp_path / "k"
    save(path, model)

    def change(description, arrays):
        description["fields"][field] = part
        used = json.dumps(description)
        for name in [name for name in arrays if f'"array": "{name}"' not in used]:
            del arrays[name]

    rewritten(path, change)
    with pytest.raises(KernaxFileError, match=message):
        load(path)


@needs_x64
def test_a_parameter_outside_its_support_is_refused_as_a_number_and_as_an_array(tmp_path):
    """A negative offset, put there by surgery when saved, and by an edit when loaded."""
    polynomial = kernax.Polynomial(3, 0.5)
    for offset in (-0.5, jnp.asarray(-0.5), True, "0.5"):
        bad = eqx.tree_at(lambda k: k.offset, polynomial, offset)
        with pytest.raises(KernaxFileError, match=r"cannot be saved: Polynomial.offset must be"):
            save(tmp_path / "k", bad)
        save(tmp_path / "k", polynomial)
        rewritten(tmp_path / "k", with_offset(offset))
        with pytest.raises(KernaxFileError, match=r"Polynomial.offset must be"):
            load(tmp_path / "k")
    # A Python number is a model as good as any.
    number = eqx.tree_at(lambda k: k.offset, polynomial, 2.0)
    save(tmp_path / "k", number)
    assert same(load(tmp_path / "k"), number)


def with_offset(offset):
    def change(description, arrays):
        part = description["fields"]["offset"]
        if isinstance(offset, jax.Array):
            arrays[part["array"]] = np.asarray(offset)
        else:
            del arrays[part["array"]]
            description["fields"]["offset"] = {"value": offset}

    return change


@needs_x64
def test_stacks_of_models_are_checked_as_their_members_are(tmp_path):
    """A class's own checks look at shapes, which a stack of its modules does not have."""
    stack = eqx.filter_vmap(kernax.kernels.BilinearForm)(jnp.ones((3, 2, 2)))
    save(tmp_path / "k", stack)
    assert same(load(tmp_path / "k"), stack)


@needs_x64
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


@needs_x64
def test_notes_too_deep_or_of_another_kind_are_refused(tmp_path):
    path = tmp_path / "k"
    deep = {}
    for _ in range(1000):
        deep = {"deeper": deep}
    shallow = {"list": [[[1, (2, 3)]]]}
    for _ in range(90):
        shallow = {"deeper": shallow}
    save(path, kernax.RBF(), notes=shallow)
    for notes in (deep, {"array": np.ones(2)}):
        with pytest.raises(KernaxFileError, match="the notes cannot be saved"):
            save(path, kernax.RBF(), notes=notes)
    with pytest.raises(KernaxFileError, match="notes must be a dict, but are of type list"):
        untyped(save)(path, kernax.RBF(), notes=[1])
    for text in (
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 1000 + "1" + "}" * 1000,
        "[1]",
        "{",
        "1" * 5000,
    ):
        save(path, kernax.RBF())
        with_notes(path, text)
        with pytest.raises(KernaxFileError, match="has notes that are not"):
            load_notes(path)


def with_notes(path, text):
    from kernax.files.archive import checksum

    with safetensors.safe_open(path, framework="numpy") as file:
        header = dict(file.metadata()) | {"notes": text}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header["sha256"] = checksum(header["model"], header["notes"], arrays)
    path.write_bytes(safetensors.numpy.save(arrays, header))


@pytest.mark.parametrize(
    ("dtype", "size"), [("F8_E4M3", 1), ("F8_E5M2", 1), ("BF16", 2), ("C64", 8), ("I16", 2)]
)
def test_arrays_of_other_dtypes_are_refused(tmp_path, dtype, size):
    """safetensors knows dtypes that NumPy does not, and says so by an AttributeError."""
    texts = {"format": "kernax 1", "model": "{}", "notes": "{}", "sha256": ""}
    entry = {"dtype": dtype, "shape": [2], "data_offsets": [0, 2 * size]}
    header = json.dumps({"__metadata__": texts, "0": entry}).encode()
    (tmp_path / "k").write_bytes(len(header).to_bytes(8, "little") + header + bytes(2 * size))
    with pytest.raises(KernaxFileError):
        load(tmp_path / "k")


@needs_x64
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


@needs_x64
def test_what_cannot_be_saved_is_refused_by_name_and_leaves_nothing_behind(tmp_path):
    class Mine(kernax.AbstractStationary):
        """A user's kernel."""

        lengthscale: jax.Array = kernax.fields.positive(default=1.0)

        def of_squared_distance(self, s):
            return 1 / (1 + s)

    for model, message in (
        (
            Mine() + kernax.RBF(),
            r"model.terms.0 is a Mine.*register\(Mine\), here and .*"
            r"save a dict of its parts instead, {\"lengthscale\": ...}",
        ),
        (kernax.FeatureMap(lambda x: x), "model.phi is a plain function"),
        (
            kernax.metrics.coverage_curve(jnp.zeros(2), 0.0, 1.0),
            r"model is a CoverageCurve, which no file holds: save a dict of its parts, "
            r"{\"level\": ..., \"coverage\": ...}",
        ),
        ({"key": jax.random.key(0)}, "model.key is an array of key"),
        ({1: kernax.RBF()}, "of type dict"),
    ):
        with pytest.raises(KernaxFileError, match=message):
            save(tmp_path / "k", model)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing$"):
        save(tmp_path / "missing" / "k", kernax.RBF())
    for folder in (tmp_path, ".", ""):
        with pytest.raises(IsADirectoryError, match="is a folder, not a file"):
            save(folder, kernax.RBF())
    assert not list(tmp_path.iterdir())


@needs_x32
def test_a_float64_model_is_not_rounded_behind_the_users_back(tmp_path):
    with pytest.raises(
        KernaxFileError,
        match=r"model.a holds float64: call .*'jax_enable_x64', True\) before saving it",
    ):
        save(tmp_path / "k", {"a": np.ones(3)})
    with jax.enable_x64(True):
        save(tmp_path / "k", {"a": np.ones(3)})
    with pytest.raises(KernaxFileError, match=r"it holds float64: .* before loading it"):
        load(tmp_path / "k")


@needs_x64
def test_float32_models_keep_their_precision(tmp_path):
    save(tmp_path / "k", kernax.RBF(np.float32(0.1)))
    assert load(tmp_path / "k").lengthscale.dtype == jnp.float32


@needs_x64
def test_foreign_byte_orders_and_subclasses_of_containers_are_told_apart(tmp_path):
    import collections

    save(tmp_path / "k", (np.arange(3, dtype=">f4"),))
    np.testing.assert_array_equal(load(tmp_path / "k")[0], [0, 1, 2])
    with pytest.raises(KernaxFileError, match="of type Pair"):
        save(tmp_path / "k", collections.namedtuple("Pair", "a b")(1, 2))


@pytest.fixture
def registered(monkeypatch):
    """What is registered in a test is forgotten after it."""
    things = {}
    monkeypatch.setattr(registry, "_registered", things)
    return things


class Cauchy(kernax.AbstractStationary):
    """A user's kernel."""

    lengthscale: jax.Array = kernax.fields.positive(default=1.0)

    def of_squared_distance(self, s):
        return 1 / (1 + s)


@needs_x64  # once: no precision touches it
def test_a_deep_kernel_comes_back_bitwise(tmp_path):
    """A network of another library within a kernel, with functions among its leaves."""
    network = eqx.nn.MLP(2, 3, 4, 1, activation=jnp.tanh, key=jax.random.key(0))
    layers = [network, eqx.nn.Lambda(jax.nn.gelu), eqx.nn.LayerNorm(3)]
    deep = 2.0 * kernax.Warped(kernax.RBF(), eqx.nn.Sequential(layers))
    save(tmp_path / "k", deep)
    again = load(tmp_path / "k")
    assert same(again, deep)
    x, z = jnp.ones((2, 2), DTYPE) * jnp.array([[0.2], [1.0]], DTYPE)
    assert again(x, z) == deep(x, z)


@needs_x64
def test_classes_and_functions_come_back_once_they_are_registered(registered, tmp_path):
    class Two(eqx.Module):
        first: eqx.nn.MLP
        last: Callable

        def __call__(self, x):
            return self.last(self.first(x))

    def doubled(x):
        return 2 * x

    network = Two(eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(0)), doubled)
    deep = 2.0 * kernax.Warped(kernax.RBF(), network) + Cauchy(0.3)
    with pytest.raises(KernaxFileError, match=r"is a Two.*kernax.files.register\(Two\)"):
        save(tmp_path / "k", deep)
    for thing in (Two, Cauchy):
        assert register(thing) is thing
    with pytest.raises(
        KernaxFileError, match=r"phi.last is a plain function, doubled: kernax.files.register it"
    ):
        save(tmp_path / "k", deep)
    register(doubled, name="twice")
    save(tmp_path / "k", deep)
    assert same(load(tmp_path / "k"), deep)
    registered.clear()
    with pytest.raises(
        KernaxFileError, match=r"is not a class of this version of kernax and not registered"
    ):
        load(tmp_path / "k")


@needs_x64
def test_a_registered_function_comes_back_inside_a_kernel(registered, tmp_path):
    @register
    def phi(x):
        return x**2

    kernel = kernax.FeatureMap(phi)
    save(tmp_path / "k", kernel)
    assert same(load(tmp_path / "k"), kernel)
    rewritten(
        tmp_path / "k",
        lambda model, arrays: model["fields"].update(phi={"class": "phi", "fields": {}}),
    )
    with pytest.raises(KernaxFileError, match="phi is a function, where the file needs a class"):
        load(tmp_path / "k")
    # What reads files is no function between layers.
    rewritten(
        tmp_path / "k",
        lambda model, arrays: model["fields"].update(phi={"wrapped": "jax.numpy.load"}),
    )
    with pytest.raises(KernaxFileError, match=r"jax\.numpy\.load is not a class of this"):
        load(tmp_path / "k")


@needs_x64
def test_registering_refuses_names_that_are_taken_and_what_is_no_class_or_function(registered):
    """A file that would come back as another class; a lambda, which all have one name."""
    own = type("RBF", (kernax.AbstractStationary,), {"of_squared_distance": lambda self, s: s})
    other = type("Cauchy", (Cauchy.__base__,), {"of_squared_distance": lambda self, s: s})
    register(Cauchy)
    assert register(Cauchy) is Cauchy
    register(other, name="Cauchy of another kind")
    for thing, message in (
        (own, "the name RBF is used"),
        (other, "the name Cauchy is used"),
        (kernax.AbstractStationary, "not abstract ones"),
        (dict, "only classes derived from equinox.Module"),
        (kernax.RBF(), "of a module, register its class"),
        (lambda x: x, r"register\(..., name=...\) gives it one"),
        (3, "a class or a function can be registered"),
    ):
        with pytest.raises(ValueError, match=message):
            register(thing)
    first, second = (type("Cell", (eqx.Module,), {"__module__": "__main__"}) for _ in range(2))
    register(first)
    register(second)  # a cell that ran twice
    assert registered["Cell"] is second


FUZZED = {
    "sum": KERNELS["composite"] + KERNELS["parts"] + KERNELS["warped"],
    "strings": kernax.kernels.Mismatch(3, 1) + kernax.Subsequence(2, 0.5),
    "expansion": kernax.KernelExpansion(
        kernax.RBF(SCALES), jnp.ones((3, 2)), jnp.ones(3), jnp.zeros(())
    ),
}
# The sum is large.
EDITS = [
    ("sum", 50),
    ("strings", 200),
    ("expansion", 200),
    pytest.param("sum", 200, marks=pytest.mark.slow),
]
PARTS = (
    *(
        {"value": value}
        for value in (None, True, -1, 0, 10**30, 0.5, -1e300, float("nan"), "text", [1], {})
    ),
    *(
        {kind: content}
        for kind in ("array", "tuple", "dict", "slice", "function", "wrapped")
        for content in ("0", [], {}, None)
    ),
    {"class": "RBF", "fields": {}},
    {"class": "RBF", "fields": {"lengthscale": {"value": 1.0}}},
    {"class": ["RBF"], "fields": None},
    {},
    [],
    None,
    3,
)


@pytest.mark.slow
@needs_x64  # once: no precision touches it
@pytest.mark.parametrize(("name", "edits"), EDITS)
def test_a_changed_description_with_a_fitting_checksum_is_refused_or_a_sound_model(
    name, edits, tmp_path
):
    """Many edits each: parts replaced, exchanged, renamed and removed, arrays of other types and
    signs.
    """
    rng = np.random.default_rng(0)
    save(tmp_path / "k", FUZZED[name])
    saved = (tmp_path / "k").read_bytes()
    for _ in range(edits):
        (tmp_path / "k").write_bytes(saved)
        rewritten(tmp_path / "k", lambda model, arrays: edited(model, arrays, rng))
        check_refused_or_sound(tmp_path / "k")


@pytest.mark.slow
@needs_x64  # once: no precision touches it
@pytest.mark.parametrize(("name", "edits"), EDITS)
def test_flipped_bits_with_a_fitting_checksum_are_refused_or_a_sound_model(name, edits, tmp_path):
    rng = np.random.default_rng(1)
    save(tmp_path / "k", FUZZED[name])
    saved = (tmp_path / "k").read_bytes()
    for _ in range(edits):
        data = bytearray(saved)
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        (tmp_path / "k").write_bytes(data)
        with contextlib.suppress(Exception):  # of a file that this test cannot read either
            rewritten(tmp_path / "k", lambda model, arrays: model)
        check_refused_or_sound(tmp_path / "k")


def check_refused_or_sound(path):
    """Only the house's own error, or a model that can be described, learned and saved again."""
    try:
        model = load(path)
    except KernaxFileError:
        return
    str(kernax.describe(model))
    kernax.unconstrain(model)
    save(path, model)
    again = load(path)
    assert jax.tree.structure(again) == jax.tree.structure(model)


def edited(model, arrays, rng):
    """The description with one or two random changes; `model` itself may be replaced."""
    holder = {"model": model}
    for _ in range(int(rng.integers(1, 3))):
        places = list(slots(holder, "model"))
        container, key = places[int(rng.integers(len(places)))]
        other, other_key = places[int(rng.integers(len(places)))]
        kind = rng.integers(5)
        if kind == 0:
            container[key] = PARTS[int(rng.integers(len(PARTS)))]
        elif kind == 1:
            container[key] = json.loads(json.dumps(other[other_key]))
        elif kind == 2 and isinstance(container, dict) and container is not holder:
            container[["class", "fields", "degree", "value", "array"][int(rng.integers(5))]] = (
                container.pop(key)
            )
        elif kind == 3 and container is not holder:
            del container[key]
        else:
            change_array(arrays, rng)
    return holder["model"]


def slots(container, key):
    """Every place in a description that holds something, as a container and a key of it."""
    yield container, key
    node = container[key]
    if isinstance(node, (dict, list)):
        for within in node if isinstance(node, dict) else range(len(node)):
            yield from slots(node, within)


def change_array(arrays, rng):
    if arrays:
        name = list(arrays)[int(rng.integers(len(arrays)))]
        change = (
            lambda a: -1 * a,
            lambda a: a > 0,
            lambda a: a.astype(np.int32),
            lambda a: a[None],
            lambda a: a.astype(np.float16),
        )
        arrays[name] = np.asarray(change[int(rng.integers(len(change)))](arrays[name]))


@needs_x64
def test_a_solution_is_told_to_be_saved_by_its_value(tmp_path):
    solution = kernax.kernel_ridge(kernax.RBF(), np.eye(3), np.ones(3), 0.1)
    with pytest.raises(KernaxFileError, match=r"save solution\.value"):
        kernax.save(tmp_path / "solution", solution)


def written_by_hand(header, data=b"", length=None):
    """A file of safetensors with any header, as text or as what JSON can hold."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    size = len(text) if length is None else length
    return size.to_bytes(8, "little") + text + data


def with_texts(model, notes="{}"):
    """A file without arrays whose checksum fits any texts."""
    from kernax.files.archive import checksum

    known = {"format": "kernax 1", "model": model, "notes": notes}
    return written_by_hand({"__metadata__": known | {"sha256": checksum(model, notes, {})}})


def of_array(**changed):
    """A file of one array that is not as its header says."""
    array = {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]} | changed
    return written_by_hand({"__metadata__": {"format": "kernax 1"}, "0": array}, bytes(16))


FORGED = {
    "nothing": b"",
    "a length alone": (8).to_bytes(8, "little"),
    "a length of all memory": written_by_hand("{}", length=2**63),
    "a length of a gigabyte": written_by_hand("{}", length=2**30),
    "a header that is no JSON": written_by_hand("{" * 1000),
    "a header that is a list": written_by_hand([]),
    "a deep header": written_by_hand("[" * 200_000 + "]" * 200_000),
    "metadata that are no texts": written_by_hand({"__metadata__": {"format": 1}}),
    "another format": written_by_hand({"__metadata__": {"format": "kernax 999"}}),
    "a huge shape": of_array(shape=[2**40, 2**40]),
    "a shape that overflows": of_array(shape=[2**62, 4, 2]),
    "a negative shape": of_array(shape=[-2]),
    "a shape of fractions": of_array(shape=[0.5]),
    "offsets beyond the end": of_array(data_offsets=[0, 2**50]),
    "offsets backwards": of_array(data_offsets=[16, 0]),
    "another width": of_array(dtype="F16"),
    "no such dtype": of_array(dtype="F999"),
    "complex numbers": of_array(dtype="C64"),
    "a deep model": with_texts('{"list": [' * 50_000 + "]}" * 50_000),
    "a wide model of nothing": with_texts('{"array": "' + "9" * 1_000_000 + '"}'),
    "a number of many digits": with_texts('{"value": ' + "9" * 100_000 + "}"),
    "a class of the builtins": with_texts('{"class": "__import__", "fields": {}}'),
    "a function of a module": with_texts('{"function": "os.system"}'),
    "notes that are deep": with_texts('{"value": 1}', "[" * 200_000 + "]" * 200_000),
}


@needs_x64  # once: no precision touches it
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_is_refused_in_few_words_and_takes_no_memory(name, tmp_path):
    path = tmp_path / "forged"
    path.write_bytes(FORGED[name])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    with pytest.raises(KernaxFileError) as caught:
        load_notes(path) if name.startswith("notes") else load(path)
    assert time.process_time() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 2**10  # in KiB
    assert len(str(caught.value)) < 1000
    assert path.name in str(caught.value)
