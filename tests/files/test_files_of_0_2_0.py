"""Files that version 0.2.0 wrote load, and predict what they predicted.

`written_by_0_2_0` holds a model of each kind, of twelve points, and `values.json` what that version
computed from it.
"""

import json
import pathlib
import re

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
from conftest import needs_x64
from typer.testing import CliRunner

import kernax
from kernax.cli.app import app

FOLDER = pathlib.Path(__file__).parent / "written_by_0_2_0"
VALUES = json.loads((FOLDER / "values.json").read_text())
X = jnp.asarray(np.random.default_rng(0).normal(size=(12, 2)))
AT = X[0] + 0.1
TIME = jnp.array([0.1])
TABLE = """a,b,colour
0.1257,-0.4364,green
-0.1321,-1.1698,green
0.6404,1.7394,red
"""


def of_process(process, x):
    return [process.mean(x), process.variance(x)]


COMPUTED = {
    "ridge": lambda f: f(AT),
    "svm": lambda f: f(AT),
    "strings": lambda f: f.coefficients,
    "model": lambda model: [model.ridge],
    "process": lambda process: of_process(process, AT),
    "process_ConjugateGradient": lambda process: of_process(process, TIME),
    "process_Grid": lambda process: of_process(process, TIME),
    "process_StateSpace": lambda process: of_process(process, TIME),
    "sgpr": lambda process: of_process(process, AT),
    "laplace": lambda posterior: posterior.probability(AT),
    "laplace_classes": lambda posterior: posterior.probability(AT),
    "rvm": lambda machine: machine.function(AT),
    "ivm": lambda machine: machine.function(AT),
    "pca": lambda components: components.function(AT),
    "cca": lambda pairs: pairs.correlations,
    "discriminant": lambda discriminant: discriminant.function(AT),
    "nystrom": lambda kernel: kernel(AT, X[1]),
    "rff": lambda kernel: kernel(AT, X[1]),
    "platt": lambda probability: probability(0.3),
}
PREDICTORS = [name for name in VALUES if name.startswith("predictor")]


def test_every_file_of_the_folder_is_looked_at():
    files = {file.stem for file in FOLDER.glob("*.kernax")}
    assert files == {*COMPUTED, *PREDICTORS} == set(VALUES)


@needs_x64
@pytest.mark.parametrize("name", COMPUTED)
def test_a_model_that_0_2_0_saved_has_the_values_that_it_had(name):
    model = kernax.load(FOLDER / f"{name}.kernax")
    computed = np.ravel(COMPUTED[name](model))
    # Conjugate gradients end at a residual of 4e-11; their values have moved by 2.5e-11 since.
    tolerance = 1e-10 if name == "process_ConjugateGradient" else 1e-12
    np.testing.assert_allclose(computed, VALUES[name], rtol=tolerance, atol=1e-12)


def names_in(path):
    with safetensors.safe_open(path, framework="numpy") as file:
        return set(re.findall(r'"(\w+)"', file.metadata()["model"]))


@needs_x64
@pytest.mark.parametrize("name", [name for name in COMPUTED if name.startswith("process_")])
def test_classes_and_fields_that_were_renamed_keep_their_names_in_files(name, tmp_path):
    kernax.save(tmp_path / name, kernax.load(FOLDER / f"{name}.kernax"))
    before = names_in(FOLDER / f"{name}.kernax")
    assert {"ExplainedPosteriorKernel", "explanation"} <= before <= names_in(tmp_path / name)


@needs_x64
@pytest.mark.parametrize("name", PREDICTORS)
def test_a_predictor_that_0_2_0_saved_predicts_what_it_predicted(name, tmp_path):
    table = tmp_path / "new.csv"
    table.write_text(TABLE)
    printed = CliRunner().invoke(app, ["predict", str(FOLDER / f"{name}.kernax"), str(table)])
    assert printed.exit_code == 0, printed.output
    header, *rows = [line.split(",") for line in printed.stdout.strip().splitlines()]
    before, *rows_before = VALUES[name]
    assert header == before
    for row, row_before in zip(rows, rows_before, strict=True):
        for cell, cell_before in zip(row, row_before, strict=True):
            if cell_before in ("yes", "no"):
                assert cell == cell_before
            else:
                assert abs(float(cell) - float(cell_before)) < 1e-8
