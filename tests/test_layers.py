"""The house rules that a machine can check: who may import whom, what importing costs, how large files get."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs_x64

pytestmark = needs_x64  # once: no precision touches it

PACKAGE = Path(__file__).parent.parent / "kernax"
ROOMS = ("kernels", "supervised", "gp", "unsupervised", "online", "sparse", "scale")
FACES = ("sklearn", "plot", "files", "testing")
CORE = (
    ("numerics", "powers", "support", "functions", "sharding"),
    ("parameters", "solution", "batching", "operators", "cancellation"),
    ("boundary", "kernel", "losses", "description"),
    ("labels", "memory", "spectral", "features", "preparation"),
    ("gram", "solvers", "conjugate_gradient"),
    ("linalg",),
    ("density", "refinement"),
    ("newton",),
    ("expansion",),
)


def allowed(module: str) -> set[str]:
    """The modules that a module may import: errors, and those that stand left of it in the design's list of layers."""
    return {"kernax.errors"} | left_of(module)


def left_of(module: str) -> set[str]:
    room = module.split(".")[1] if "." in module else ""
    if room == "core":
        level = next(i for i, names in enumerate(CORE) if module.split(".")[2] in names)
        same = [name for name in ("numerics",) if level == 1]
        return {f"kernax.core.{name}" for names in CORE[:level] for name in names} | {f"kernax.core.{name}" for name in same}
    left = {"kernax.core"}
    if room in ROOMS:
        return left | {f"kernax.{room}"}
    left |= {f"kernax.{name}" for name in ROOMS} | {"kernax.selection"}
    if room == "selection":
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
        assert any(f"{imported}.".startswith(f"{name}.") for name in allowed(module)), f"{module} imports {imported}"


def test_the_layer_rule_would_catch_a_learner_that_knows_a_kernel(tmp_path):
    path = tmp_path / "ridge.py"
    path.write_text("from kernax.kernels.stationary import RBF\n")
    (imported,) = kernax_imports(path)
    assert not any(imported.startswith(name) for name in allowed("kernax.supervised.ridge"))


def test_importing_kernax_imports_no_face_and_leaves_the_configuration_of_jax_alone():
    """P01, second half."""
    program = """
import sys, jax
before = dict(jax.config.values)
import kernax
after = dict(jax.config.values)
assert {name: after[name] for name in before} == before
heavy = {"sklearn", "matplotlib", "typer", "rich", "pandas", "safetensors"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_stay_short_enough_to_live_in(path):
    text = path.read_text()
    assert text.count("\n") <= 260, "split the file"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            first = node.body[1:] if ast.get_docstring(node) else node.body
            assert not first or node.end_lineno - first[0].lineno < 40, f"{node.name} is too long"


def test_every_public_name_has_a_docstring():
    import kernax

    missing = [name for name in kernax.__all__ if not (getattr(kernax, name).__doc__ or "").strip()]
    assert not missing
