"""The rules that a program can check: who may import whom, and what importing costs.

The `__init__` of a package says what its modules may import ("# May import: ..."); a folder inside
a package that says nothing itself follows the package.
"""

import ast
import re
import shutil
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from conftest import needs_x64

import kernax
import kernax.sklearn

pytestmark = needs_x64  # once: no precision touches it

PACKAGE = Path(__file__).parent.parent / "kernax"
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
PATHS = {
    ".".join(("kernax", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
PACKAGES = sorted(name for name, path in PATHS.items() if path.name == "__init__.py")
INSIDE = sorted(name for name in PATHS if any(name.startswith(f"{p}.") for p in PACKAGES[1:]))


def imports_of(path: Path) -> set[str]:
    """The modules of kernax that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in PATHS else node.module for name in members}
    return {name for name in found if name.split(".")[0] == "kernax"}


def package_of(module: str) -> str:
    """The innermost package that holds a module, or the package itself."""
    return module if module in PACKAGES else module.rpartition(".")[0]


def may_import(package: str) -> set[str]:
    """What the `__init__` of a package, or of the one around it, lists; itself; errors."""
    rule = re.search(r"^# May import: ((?:.|\n# )*)\.$", PATHS[package].read_text(), re.MULTILINE)
    if rule is None:
        return may_import(package.rpartition(".")[0])
    return {package, "kernax.errors", *re.findall(r"[\w.]+", rule[1].replace("\n#", ""))}


def is_inside(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


@pytest.mark.parametrize("module", INSIDE)
def test_a_module_imports_only_what_its_package_may(module):
    allowed = may_import(package_of(module))
    for imported in imports_of(PATHS[module]):
        assert any(is_inside(imported, package) for package in allowed), f"imports {imported}"


def messages_of(path: Path) -> list[str]:
    """The texts of a file, except for docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [node.value for node in texts if isinstance(node.value, str) and node not in docstrings]


def named_in(texts: list[str]) -> dict[str, Any]:
    """The objects that texts name by an address of kernax. Raises AttributeError for no object."""
    names = re.findall(r"\bkernax\.((?:\w+\.)*\w+)", " ".join(texts))
    return {name: attrgetter(name)(kernax) for name in names}


@pytest.mark.parametrize("module", INSIDE)
def test_a_message_names_nothing_above_the_package_that_says_it(module):
    """What a user calls has nothing above it that could hand such advice down: `_advice` has it."""
    allowed = may_import(package_of(module))
    for name, thing in named_in(messages_of(PATHS[module])).items():
        home = getattr(thing, "__module__", None) or thing.__name__
        if home not in INSIDE or any(is_inside(home, package) for package in allowed):
            continue
        of_home = may_import(package_of(home))
        assert not any(is_inside(module, package) for package in of_home), f"names kernax.{name}"


def test_advice_names_what_exists():
    assert {"falkon", "nystrom", "recommend"} <= named_in(
        messages_of(PATHS["kernax._advice"])
    ).keys()


RULES_OF_JAX = ("jax.custom_jvp", "filter_custom_jvp", "nn.softplus", "log_sigmoid", "logaddexp")
WITH_RULES = ("kernax.core.base.derivatives", "kernax.core.base.special_functions")


@pytest.mark.parametrize("module", [name for name in INSIDE if name not in WITH_RULES])
def test_no_function_has_a_rule_of_jax_that_loops_lose(module):
    """See `kernax.core.base.derivatives.custom_jvp`."""
    text = PATHS[module].read_text()
    assert [name for name in RULES_OF_JAX if name in text] == []


def circle_in(edges: dict[str, set[str]]) -> list[str]:
    """Nodes of a directed graph that come back to where they began; none if there is no circle."""
    done: set[str] = set()

    def walk(node: str, way: list[str]) -> list[str]:
        if node in way:
            return [*way[way.index(node) :], node]
        if node not in done:
            for other in sorted(edges.get(node, ())):
                if circle := walk(other, [*way, node]):
                    return circle
            done.add(node)
        return []

    return next((circle for node in sorted(edges) if (circle := walk(node, []))), [])


@pytest.mark.slow
def test_no_module_imports_itself_by_a_detour():
    # The __init__ of a package is what users import: nothing but its own modules stands below it.
    modules = {module: imports_of(path) - set(PACKAGES) for module, path in PATHS.items()}
    assert not circle_in(modules)


@pytest.mark.slow
def test_no_package_imports_itself_by_a_detour():
    edges: dict[str, set[str]] = {}
    for module in INSIDE:
        package = package_of(module)
        found = {package_of(imported) for imported in imports_of(PATHS[module])}
        # What a package's __init__ shows of its own folders is not an arrow.
        edges.setdefault(package, set()).update(
            other for other in found if not is_inside(other, package)
        )
    assert not circle_in(edges)


def test_the_rules_would_catch_a_learner_that_knows_a_kernel_and_a_circle():
    allowed = may_import("kernax.supervised.ridge")
    assert not any(is_inside("kernax.kernels.stationary", package) for package in allowed)
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


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


@pytest.mark.slow
def test_importing_kernax_imports_no_face_and_leaves_the_configuration_of_jax_alone():
    """P01, second half."""
    program = """
import sys, jax
before = dict(jax.config.values)
import kernax
kernax.plot, kernax.testing, kernax.files, kernax.losses  # there without an import of their own
# What faces share, and `import kernax` leaves out, knows nothing of them either.
import kernax.preparation
from kernax.selection.recipes import classification, regression_recipe
after = dict(jax.config.values)
assert {name: after[name] for name in before} == before
heavy = {"sklearn", "matplotlib", "typer", "rich", "pandas", "safetensors"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
def test_a_name_is_imported_when_it_is_first_used():
    program = """
import sys
import kernax
ours = lambda: {name for name in sys.modules if name.startswith("kernax.")}
assert not ours() and "jax" not in sys.modules
kernax.kernel_ridge(kernax.RBF(), [[0.0], [1.0]], [0.0, 1.0], 0.1)
rooms = ("gp", "sparse", "online", "unsupervised", "scale", "selection", "files", "plot", "cli")
assert not [name for name in ours() if name.split(".")[1] in rooms]
assert "kernax.core.linalg.conjugate_gradient" not in ours()  # a dense fit needs no iteration
assert set(kernax.__all__) <= set(dir(kernax))
assert not hasattr(kernax, "RFB") and not hasattr(kernax, "_RBF")
import kernax.sklearn
assert "sklearn" not in sys.modules and "SVC" in dir(kernax.sklearn)
from kernax.sklearn import KernelRidge
assert "kernax.selection.recipes" not in sys.modules and "kernax.scale" not in sys.modules
assert "kernax.kernels.texts" not in ours()
from kernax import *
assert GaussianProcess is kernax.gp.process.GaussianProcess
"""
    subprocess.run([sys.executable, "-c", program], check=True)


WITHOUT_REPRESENTATIONS = """
import importlib.util
import jax, numpy as np
import kernax
for folder in ("line", "grid"):
    assert (importlib.util.find_spec(f"kernax.core.{folder}") is not None) == EXISTS, folder
X = np.random.default_rng(0).uniform(0, 60, (1000, 1))  # so many are taken along a line
y = np.sin(X[:, 0])
kernel = kernax.Matern32(0.7)
f = kernax.kernel_ridge(kernel, X, y, 0.1).value
posterior = kernax.condition(kernax.GaussianProcess(kernel), X, y, 0.1).value
evidence = kernax.log_marginal_likelihood(kernel, X, y, 0.1)
few = posterior.sample(X[:5], key=jax.random.key(0))
assert np.all(np.isfinite(few))
print(*f.values(X)[:5], *map(posterior.mean, X[:5]), *map(posterior.variance, X[:5]), evidence)
"""


@pytest.mark.slow
def test_without_the_folders_of_line_and_grid_ridge_and_processes_are_the_same(tmp_path):
    copy = tmp_path / "kernax"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("line", "grid"):
        shutil.rmtree(copy / "core" / folder)
    answers = []
    for where, exists in ((PACKAGE.parent, True), (tmp_path, False)):
        program = WITHOUT_REPRESENTATIONS.replace("EXISTS", str(exists))
        command = [sys.executable, "-c", program]
        ran = subprocess.run(command, cwd=where, check=True, capture_output=True, text=True)
        answers.append([float(number) for number in ran.stdout.split()])
    with_line, without_line = answers
    assert with_line == pytest.approx(without_line, rel=1e-8, abs=1e-10)
    assert with_line != without_line  # the line and the matrix round in their own ways
