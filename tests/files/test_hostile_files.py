"""Files that somebody wrote by hand, with a checksum that fits: each is refused in words, or holds
what making a model with the same values gives.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import needs_x64
from test_files import KERNELS, rewritten
from typer.testing import CliRunner

import kernax as kx
from kernax.calibration import Platt
from kernax.cli.app import app
from kernax.errors import KernaxFileError
from kernax.files import load_predictor, save_predictor
from kernax.files.model_structure import _module, restored, structure_of
from kernax.likelihoods import Bernoulli
from kernax.preparation import Classifier, Standardised, Standards
from kernax.preparation.cells import Column
from kernax.preparation.encoders import Number, Tokens, learned_text
from kernax.preparation.inputs import Inputs
from kernax.preparation.predictors import GP, RIDGE, SVM, ClassPredictor, Regressor
from kernax.preparation.standards import standards_of_columns

pytestmark = needs_x64  # once: no precision touches it

X = np.random.default_rng(0).normal(size=(6, 2))
Y = np.linspace(-1, 1, 6)
EXPANSION = kx.KernelExpansion(kx.RBF(), jnp.asarray(X), jnp.asarray(Y), jnp.zeros(()))
PROCESS = kx.GaussianProcess(kx.RBF(), kx.LinearMean([1.0, 2.0], 0.5))


def posterior():
    return kx.condition(PROCESS, X, Y, 0.1, weights=np.r_[0.0, np.ones(5)]).value


MODELS = {
    "kernels": lambda: list(KERNELS.values()),
    "strings": lambda: [
        kx.kernels.Mismatch(3, 1),
        kx.Subsequence(2, 0.5),
        kx.strings.encode(["ab", "b"]),
    ],
    "expansions": lambda: [EXPANSION, Standardised(EXPANSION, Standards(np.zeros(2), np.ones(2)))],
    "classifiers": lambda: [Classifier(EXPANSION, ("a", "b"), Platt(*jnp.asarray(X[:3, 0])))],
    "processes": lambda: [
        PROCESS,
        posterior(),
        kx.types.ApproximatePosterior(PROCESS, Bernoulli(), jnp.ones(()), jnp.ones(6), jnp.ones(6)),
    ],
}
OF_ANOTHER_CLASS = (
    {"class": "RBF", "fields": {"lengthscale": {"value": 1.0}}},
    {"class": "PolynomialBasis", "fields": {"degree": {"value": 2}}},
)
PARTS = (
    *({"value": value} for value in (True, None, -1, 0, 1, 0.5, 10**30, float("nan"), "text")),
    *({kind: []} for kind in ("list", "tuple")),
    {"dict": {}},
    {"list": [{"value": 1}]},
    {"tuple": [{"value": True}]},
    {"tuple": [{"value": 0}, {"value": 0.5}]},
    {"slice": [{"value": None}] * 3},
    *OF_ANOTHER_CLASS,
)
OTHERS = [(part, restored(part, {})) for part in PARTS]
REFUSALS = (KernaxFileError, ValueError, KeyError, TypeError, AttributeError)  # as `load` has it


def modules(node):
    """The description of every module in that of a model."""
    if isinstance(node, dict):
        if "class" in node:
            yield node
        for part in node.values():
            yield from modules(part)
    elif isinstance(node, list):
        for part in node:
            yield from modules(part)


def values_in_place_of(original, value):
    """What to put where a value is, of which a file has the description `original`."""
    yield from (other for part, other in OTHERS if part != original)
    yield [value]
    if "array" in original:
        kinds = (bool, np.int32) if value.dtype.kind == "f" else (np.float32,)
        yield from (value.astype(kind) for kind in kinds)


def made(model, field, value):
    """The module that its class makes of the same fields but one, for which a number may stand in
    place of an array.
    """
    declared = {part.name: part.type for part in dataclasses.fields(model)}
    fields = {name: getattr(model, name) for name in declared}
    is_array = hasattr(declared[field], "dtypes") and isinstance(value, (int, float))
    fields[field] = jnp.asarray(value, float) if is_array else value
    if "terms" in fields:  # of a sum or a product
        return type(model)(*fields["terms"])
    if isinstance(model, kx.GaussianProcess):
        return type(model)(fields["covariance"], fields["mean"])
    return type(model)(**fields)


def numbers(model):
    """The leaves as arrays: a Python number stands for an array of it."""
    return [np.asarray(leaf, float) if is_number(leaf) else leaf for leaf in jax.tree.leaves(model)]


def is_number(leaf):
    return isinstance(leaf, (int, float, np.ndarray, jax.Array))


@pytest.mark.parametrize(
    "name",
    [
        "strings",
        "expansions",
        "classifiers",
        pytest.param("processes", marks=pytest.mark.slow),
        pytest.param("kernels", marks=pytest.mark.slow),
    ],
)
def test_a_field_of_another_type_is_refused_or_the_model_is_the_one_that_its_class_makes(name):
    """Numbers of Python, texts, lists, modules of another class, arrays of another type. `True` was
    loaded in place of points, and a list in place of dimensions.
    """
    seen = set()
    loaded = 0
    for model in MODELS[name]():
        arrays = {}
        for module in modules(structure_of(model, arrays, "model")):
            sound = restored(module, dict(arrays))
            fields = {part: getattr(sound, part) for part in module["fields"]}
            for field, original in module["fields"].items():
                place = f"{module['class']}.{field}"
                if place in seen:
                    continue
                seen.add(place)
                for value in values_in_place_of(original, fields[field]):
                    try:
                        found = _module(module["class"], fields | {field: value})
                    except REFUSALS:
                        continue
                    where = f"{place} = {str(value)[:100]}"
                    expected = made(sound, field, value)  # which must not refuse it either
                    assert jax.tree.structure(found) == jax.tree.structure(expected), where
                    for one, other in zip(numbers(found), numbers(expected)):
                        np.testing.assert_array_equal(one, other, where)
                    loaded += 1
    assert loaded > 5


@pytest.mark.parametrize("value", [True, None, 3, 0.5, "text", [], (), {}, [True], (0, 0.5)])
def test_points_are_arrays(value):
    """All of these were loaded as points."""
    fields = {part.name: getattr(EXPANSION, part.name) for part in dataclasses.fields(EXPANSION)}
    with pytest.raises(ValueError, match=r"KernelExpansion.points must be of type PyTree, but is"):
        _module("KernelExpansion", fields | {"points": value})


INPUTS = Inputs((Number("a"), Number("b")), "y", standards_of_columns(X, ("a", "b")))
OF_CLASSES = kx.KernelExpansion(kx.RBF(), jnp.asarray(X), jnp.ones((6, 3)), jnp.zeros(3))
PREDICTORS = {
    "numbers": lambda: Regressor(INPUTS, RIDGE, EXPANSION, 0.1, Standards(0.0, 1.0)),
    "process": lambda: Regressor(INPUTS, GP, posterior(), 0.1, Standards(0.0, 1.0)),
    "classes": lambda: ClassPredictor(INPUTS, SVM, OF_CLASSES, 0.1, ("u", "v", "w")),
}
OTHER_ARRAYS = {
    "integers": lambda a: a.astype(np.int64),
    "the same bytes as integers": lambda a: a.view(np.int64),
    "booleans": lambda a: a > 0,
    "one point less": lambda a: a[:-1],
    "one axis more": lambda a: a[None],
    "an axis at the end": lambda a: a[..., None],
    "one output": lambda a: a.reshape(len(a), -1)[:, :1] if a.ndim == 2 else np.stack([a, a], 1),
    "nothing": lambda a: a[:0],
    "a number": lambda a: a.ravel()[0],
}


def of_coefficients(description):
    """The name of the array of coefficients: of the expansion, which is the update of a mean."""
    fields = [module["fields"] for module in modules(description)]
    return next(each["coefficients"]["array"] for each in fields if "coefficients" in each)


@pytest.mark.parametrize("change", OTHER_ARRAYS)
@pytest.mark.parametrize("name", PREDICTORS)
def test_coefficients_of_another_type_or_shape_are_refused_in_one_line(tmp_path, name, change):
    """They were tracebacks of the kernel's products, or numbers of other shapes."""
    path = tmp_path / "model"
    save_predictor(path, PREDICTORS[name]())
    assert load_predictor(path).kind == PREDICTORS[name]().kind

    def edit(description, arrays):
        place = of_coefficients(description)
        arrays[place] = np.asarray(OTHER_ARRAYS[change](arrays[place]))

    rewritten(path, edit)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    for command in (["describe", path], ["predict", path, tmp_path / "rows.csv"]):
        result = CliRunner().invoke(app, [*map(str, command)])
        assert result.exit_code == 2
        assert isinstance(result.exception, SystemExit)
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert "Traceback" not in result.output
        assert not result.stdout


def test_columns_that_a_model_was_not_made_for_are_refused(tmp_path):
    """Three columns in the notes, two in the points of the model."""
    columns = (Number("a"), Number("b"), Number("c"))
    more = Inputs(columns, "y", Standards(np.zeros(3), np.ones(3)))
    save_predictor(tmp_path / "model", Regressor(more, RIDGE, EXPANSION, 0.1, Standards(0.0, 1.0)))
    with pytest.raises(KernaxFileError, match="its arrays cannot be used for predictions"):
        load_predictor(tmp_path / "model")


def test_a_predictor_of_text_and_numbers_still_loads(tmp_path):
    text = learned_text("note", ["ab", "b"], Tokens.LETTERS)
    inputs = Inputs((Number("a"), text), "y", Standards(np.zeros(1), np.ones(1)))
    cells = Column("note", ("ab", "b"), ("row 1", "row 2"))
    points = inputs.points([Column.of_numbers("a", [1.0, 2.0]), cells])
    kernel = kx.On(kx.RBF(), 0) + kx.On(kx.Spectrum(1), 1)
    model = kx.KernelExpansion(
        kernel, jax.tree.map(jnp.asarray, points), jnp.ones(2), jnp.zeros(())
    )
    predictor = Regressor(inputs, RIDGE, model, 0.1, Standards(0.0, 1.0))
    save_predictor(tmp_path / "model", predictor)
    again = load_predictor(tmp_path / "model")
    assert isinstance(again, Regressor)
    np.testing.assert_array_equal(again.at(points)[0], predictor.at(points)[0])
