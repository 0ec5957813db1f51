"""What tests share: the package under test, imported once, its precision, tolerances and checks."""

import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import equinox as eqx
import hypothesis
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from conftest import QUICK_FLAGS

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

hypothesis.settings.register_profile(
    "kernax", deadline=None, max_examples=25, derandomize=True, database=None
)
hypothesis.settings.load_profile("kernax")

# Every annotated shape in the package is checked while the tests run, at a tenth of their time,
# unless JAXTYPING_DISABLE is set. Then nothing is wrapped either, which takes seven seconds.
TYPED = not jaxtyping.config.jaxtyping_disable
with jaxtyping.install_import_hook("kernax", "beartype.beartype") if TYPED else nullcontext():
    import kernax

    for name in kernax.__all__:  # checked from here on, however late a test uses it
        getattr(kernax, name)
    for name in kernax.selection.__all__:
        getattr(kernax.selection, name)

X64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
DTYPE = np.float64 if X64 else np.float32
needs_x64 = pytest.mark.skipif(not X64, reason="a statement about float64")
needs_x32 = pytest.mark.skipif(X64, reason="a statement about a process without 64-bit mode")
DATA = Path(__file__).parent.parent.parent / "shared" / "data"

# How close is close, by precision: the one table of tolerances. `gradient` is for central
# differences in float64 of a float64 function; in float32 differences are too coarse to say
# anything, so those tests run in float64 only.
TOLERANCE = {
    "value": 1e-10 if X64 else 2e-5,
    "solve": 1e-8 if X64 else 2e-3,
    "gradient": 1e-6,
}
# Options of a single program, as users have them.
OPTIMISED = (
    {
        "xla_backend_optimization_level": 3,
        "xla_cpu_use_fusion_emitters": True,
        "xla_cpu_parallel_codegen_split_count": 32,
    }
    if QUICK_FLAGS
    else {}
)
# The same memory, in less time: fused, but not optimised further.
FUSED = OPTIMISED | {"xla_backend_optimization_level": 0} if QUICK_FLAGS else {}


def matrix(kernel, X, Z=None):
    return np.asarray(kernax.gram(kernel, X, Z), np.float64)


def explicit(basis, X):
    """The features of a stack of points, one row each."""
    return np.asarray(eqx.filter_jit(eqx.filter_vmap(basis))(jnp.asarray(X)), np.float64)


def assert_close(a, b, tolerance=TOLERANCE["value"]):
    """Within the tolerance of each entry, or of the largest one."""
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.max(np.abs(b)))


def check_derivatives(function, arguments, *, rtol, atol, step=1e-5):
    """The slope along a random direction against central differences, and the gradient against
    that slope. The slope is that of the linearised function, and the gradient its transpose, so
    that one program has both.
    """
    rng = np.random.default_rng(0)
    normal = lambda tree: jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(size=jnp.shape(leaf)), jnp.result_type(leaf)), tree
    )

    @jax.jit
    def figures(arguments, direction):
        value, linear = jax.linearize(function, *arguments)
        weights = normal(value)
        gradient = jax.linear_transpose(linear, *arguments)(weights)
        return value, linear(*direction), gradient, weights

    arguments = jax.tree.map(jnp.asarray, arguments)
    direction = normal(arguments)
    moved = lambda h: jax.tree.map(lambda a, d: a + h * d, arguments, direction)
    _, slope, gradient, weights = figures(arguments, direction)
    ahead, *_ = figures(moved(step), direction)
    behind, *_ = figures(moved(-step), direction)
    for a, b, c in zip(*map(jax.tree.leaves, (slope, ahead, behind))):
        np.testing.assert_allclose(a, (b - c) / (2 * step), rtol=rtol, atol=atol)
    inner = lambda a, b: sum(np.vdot(u, v) for u, v in zip(jax.tree.leaves(a), jax.tree.leaves(b)))
    np.testing.assert_allclose(
        inner(gradient, direction), inner(weights, slope), rtol=rtol, atol=atol
    )


def assert_refused(result, words):
    """The command line said no, in one line that holds these words."""
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def untyped(function: Any) -> Any:
    """A function without the type checks of the tests."""
    return inspect.unwrap(function) if TYPED else function


def name_of_case(case: object) -> str:
    """What a case of a parametrised test is called: a text itself, a function, a class or an object
    by its name, several values by all of theirs.
    """
    if isinstance(case, tuple):
        return "-".join(name_of_case(part) for part in case)
    if case is None or isinstance(case, (str, int, float)):
        return str(case)
    return getattr(case, "__name__", type(case).__name__)


def marked(mark: pytest.MarkDecorator, cases: Iterable, *names: str, others: bool = False) -> list:
    """Cases of a parametrised test, those of these names, or of names that begin with them, with a
    mark; with `others` all the others have it.
    """
    parts: list = []
    missing = set(names)
    for case in cases:
        if not hasattr(case, "marks"):
            case = pytest.param(*case) if isinstance(case, tuple) else pytest.param(case)
        called = case.id or name_of_case(tuple(case.values))
        own = [name for name in names if f"{called}-".startswith(f"{name}-")]
        missing.difference_update(own)
        marks = case.marks if bool(own) == others else [*case.marks, mark]
        parts.append(pytest.param(*case.values, marks=marks, id=case.id))
    if missing:
        raise ValueError(f"no case is called {', '.join(sorted(missing))}")
    return parts


def assert_passes_on_eight(file: str, marks: str = "") -> None:
    """Runs a test file, or its tests of some marks, in a process of its own with eight devices."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    command = [sys.executable, "-m", "pytest", file, "-n", "0", "-q", "-x", "-m", marks]
    environment = os.environ | {"XLA_FLAGS": flags}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:]


def temporary_bytes(function, *arguments) -> int:
    """What a program holds while it runs, beside arguments and results."""
    return jax.jit(function).lower(*arguments).compile().memory_analysis().temp_size_in_bytes


def real_data(name: str):
    """A data set of the project's shared folder, read in place; the test is skipped where that is
    absent.
    """
    path = DATA / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"the shared data set {name} is not here")
    with np.load(path) as file:
        return dict(file)


def footprints() -> dict[str, Any]:
    """What public functions say that they hold, by their names."""
    from kernax.core.operators.memory import Footprint

    for public in ("calibration", "core.line.line_draws", "online", "samples", "scale"):
        importlib.import_module(f"kernax.{public}")
    modules = [module for name, module in sys.modules.items() if name.startswith("kernax.")]
    values = [value for module in modules for value in vars(module).values()]
    return {value.function_name: value for value in values if isinstance(value, Footprint)}
