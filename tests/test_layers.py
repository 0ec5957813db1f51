"""The rules that a program can check: who may import whom, and what importing costs."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import slow_tests
from conftest import needs_x64

pytestmark = needs_x64  # once: no precision touches it

PACKAGE = Path(__file__).parent.parent / "kernax"
ROOMS = ("kernels", "supervised", "gp", "unsupervised", "online", "sparse", "scale")
SHARED = ("selection", "metrics", "preparation")
FACES = ("sklearn", "plot", "files", "testing")
NAMES = (  # modules that only say where a user finds what the package has
    "bases",
    "calibration",
    "conformal",
    "fields",
    "functionals",
    "likelihoods",
    "losses",
    "priors",
    "samples",
    "solvers",
    "strings",
    "trees",
)
CORE = (
    ("numerics", "powers", "intervals", "functions", "sharding"),
    (
        "archive",
        "axes",
        "identity",
        "bar",
        "guards",
        "parameters",
        "solution",
        "batching",
        "cancellation",
        "weights",
        "ranks",
        "implicit",
        "krylov",
        "stacks",
        "threads",
        "special_functions",
    ),
    ("operators", "solves", "lanczos", "standard_normals", "gamma_quantiles"),
    ("unheld",),
    ("boundary", "kernel", "losses", "description", "foreign", "undeclared"),
    ("eigenproblem", "mesh"),
    (
        "labels",
        "likelihoods",
        "memory",
        "model",
        "spectral_densities",
        "features",
        "state_space",
        "preparation",
        "pairs",
        "priors",
        "columns",
        "structure",
        "whole",
    ),
    ("recursions",),
    ("computed", "parallel_recursions"),
    ("line", "tiles", "kronecker", "levinson", "spectra"),
    ("toeplitz", "mesh_gram", "tall"),
    ("grid",),
    ("gridding",),
    ("gram", "factors", "quadrature", "quasi_random", "functionals", "draws"),
    ("task", "solvers", "low_rank", "stein", "pivots", "iteration"),
    ("preconditioners",),
    ("linalg", "krylov_factor", "sketch_and_project", "kalman", "grid_factor"),
    ("conjugate_gradient",),
    ("inverse", "refinement"),
    ("line_inverse", "grid_inverse", "krylov_inverse"),
    ("density", "newton", "softmax_hessian"),
    ("misfit", "centres"),
    ("modes", "softmax", "expansion", "linear"),
)


def allowed(module: str) -> set[str]:
    """The modules that a module may import: errors, and those that stand left of it in the design's
    list of layers.
    """
    return {"kernax.errors"} | left_of(module)


def left_of(module: str) -> set[str]:
    room = module.split(".")[1] if "." in module else ""
    if room == "core":
        level = next(i for i, names in enumerate(CORE) if module.split(".")[2] in names)
        same = [name for name in ("numerics",) if level == 1]
        return {f"kernax.core.{name}" for names in CORE[:level] for name in names} | {
            f"kernax.core.{name}" for name in same
        }
    left = {"kernax.core"}
    if room in ROOMS:
        return left | {f"kernax.{room}"}
    left |= {f"kernax.{name}" for name in ROOMS}
    if room in SHARED:
        return left | {f"kernax.{room}"}
    left |= {f"kernax.{name}" for name in SHARED}
    if room in NAMES:
        return left
    if room in FACES:
        return left | {f"kernax.{room}"}
    left |= {f"kernax.{name}" for name in FACES}
    return left | {"kernax.cli"}


def kernax_imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names}
                if node.module in ("kernax", "kernax.core")
                else {node.module}
            )
    return {name for name in found if name.split(".")[0] == "kernax"}


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_the_layers_below_it(path):
    parts = ("kernax", *path.relative_to(PACKAGE).with_suffix("").parts)
    module = ".".join(part for part in parts if part != "__init__")
    if module == "kernax.core":
        assert not kernax_imports(path)
        return
    for imported in kernax_imports(path):
        assert any(f"{imported}.".startswith(f"{name}.") for name in allowed(module)), (
            f"{module} imports {imported}"
        )


def test_the_map_lists_core_line_by_line_as_it_is_enforced():
    text = (PACKAGE.parent / ".github" / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", text, re.MULTILINE)
    lines = [tuple(re.findall(r"`(\w+)`", row)) for row in rows]
    start = lines.index(CORE[0])
    assert tuple(lines[start : start + len(CORE)]) == CORE


def test_the_layer_rule_would_catch_a_learner_that_knows_a_kernel(tmp_path):
    path = tmp_path / "ridge.py"
    path.write_text("from kernax.kernels.stationary import RBF\n")
    (imported,) = kernax_imports(path)
    assert not any(imported.startswith(name) for name in allowed("kernax.supervised.ridge"))


@pytest.mark.parametrize("name", NAMES)
def test_a_module_of_names_only_imports_what_it_lists(name):
    docstring, *imports, listed = ast.parse((PACKAGE / f"{name}.py").read_text()).body
    assert isinstance(docstring, ast.Expr)
    assert isinstance(listed, ast.Assign)
    imported = []
    for statement in imports:
        assert isinstance(statement, ast.ImportFrom)
        imported += [alias.name for alias in statement.names]
    assert sorted(imported) == sorted(ast.literal_eval(listed.value))


def test_importing_kernax_imports_no_face_and_leaves_the_configuration_of_jax_alone():
    """P01, second half."""
    program = """
import sys, jax
before = dict(jax.config.values)
import kernax
kernax.plot, kernax.testing, kernax.files, kernax.losses  # there without an import of their own
# What faces share, and `import kernax` leaves out, knows nothing of them either.
import kernax.preparation, kernax.selection.classification, kernax.selection.regression
after = dict(jax.config.values)
assert {name: after[name] for name in before} == before
heavy = {"sklearn", "matplotlib", "typer", "rich", "pandas", "safetensors"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_function_of_the_list_of_slow_tests_exists():
    tests = Path(__file__).parent
    text = {path.name: path.read_text() for path in tests.rglob("test_*.py")}
    for name in slow_tests.listed():
        file, function = name.split("::")
        assert f"def {function}(" in text[Path(file).name], name


def test_what_takes_long_is_added_to_the_list_of_slow_tests(tmp_path, monkeypatch):
    monkeypatch.setattr(slow_tests, "LIST", tmp_path / "slow.txt")
    slow_tests.LIST.write_text("tests/test_a.py::test_known\n")
    durations = slow_tests.Durations()
    for nodeid, seconds in (
        ("tests/test_a.py::test_long[1-x]", 1.0),
        ("tests/test_a.py::test_long[1-x]", 0.6),  # set up, and called
        ("tests/test_a.py::test_short[2]", 1.4),
        ("tests/test_a.py::test_known", 0.1),
    ):
        durations.pytest_runtest_logreport(SimpleNamespace(nodeid=nodeid, duration=seconds))
    durations.pytest_sessionfinish()
    assert slow_tests.listed() == {"tests/test_a.py::test_known", "tests/test_a.py::test_long"}
