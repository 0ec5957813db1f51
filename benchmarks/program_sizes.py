"""Writes `benchmarks/PROGRAMS.md`: how many operations the programs of kernax have.

`python -m benchmarks.program_sizes` traces functions of the lengthscale, and every learner of
`tests/registry.py` (which needs the packages of the tests), on 100 points, and counts the
operations of the trace, with those inside loops and calls. The time to compile a program grows with
them, and unlike a time they are the same on every machine. NAMES print some of them only.
"""

import argparse
import datetime
import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import jaxtyping
import numpy as np

import kernax as kx

PAGE = Path(__file__).parent / "PROGRAMS.md"
TESTS = Path(__file__).parent.parent / "tests"
POINTS = 100
# The numbers of a problem of the registry on which what is learned depends.
_NUMBERS = ("scale", "size", "X", "y", "weights", "offset", "Z", "strength")
_HEADER = ("program", "value", "gradient")


def data(points: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Points, targets and signs, which are no part of a trace."""
    X = np.random.default_rng(0).normal(size=(points, 3))
    y = np.sin(X[:, 0])
    with jax.ensure_compile_time_eval():
        return jnp.asarray(X), jnp.asarray(y), jnp.asarray(np.sign(y))


def gram(lengthscale, points=POINTS):
    (X, _, _) = data(points)
    return jnp.sum(kx.gram(kx.RBF(lengthscale), X))


def kernel_ridge(lengthscale, points=POINTS):
    (X, y, _) = data(points)
    return jnp.sum(kx.kernel_ridge(kx.RBF(lengthscale), X, y, 0.1, throw=False).value.coefficients)


def leave_one_out(lengthscale, points=POINTS):
    (X, y, _) = data(points)
    return jnp.mean(kx.leave_one_out(kx.RBF(lengthscale), X, y, 0.1) ** 2)


def log_marginal_likelihood(lengthscale, points=POINTS):
    (X, y, _) = data(points)
    return kx.log_marginal_likelihood(kx.RBF(lengthscale), X, y, 0.1)


def condition(lengthscale, points=POINTS):
    """The mean at one point."""
    (X, y, _) = data(points)
    process = kx.GaussianProcess(kx.RBF(lengthscale))
    return kx.condition(process, X, y, 0.1, throw=False).value.mean(X[0])


def svm(lengthscale, points=POINTS):
    (X, _, signs) = data(points)
    return jnp.sum(kx.svm(kx.RBF(lengthscale), X, signs, 1.0, throw=False).value.coefficients)


def kernel_logistic(lengthscale, points=POINTS):
    (X, _, signs) = data(points)
    f = kx.kernel_logistic(kx.RBF(lengthscale), X, signs, 0.1, throw=False).value
    return jnp.sum(f.coefficients)


FUNCTIONS = {
    function.__name__: function
    for function in (
        gram,
        kernel_ridge,
        leave_one_out,
        log_marginal_likelihood,
        condition,
        svm,
        kernel_logistic,
    )
}


def operations(jaxpr: Any) -> int:
    """The operations of a trace, each with those inside it."""
    inner = (jex.jaxprs_in_params(equation.params) for equation in jaxpr.eqns)
    return len(jaxpr.eqns) + sum(operations(part) for parts in inner for part in parts)


def sizes(function: Callable, *arguments: Any, has_gradient: bool = True) -> tuple[int, int | None]:
    """The operations of a function and of its gradient in the first argument."""
    value = operations(jax.make_jaxpr(function)(*arguments).jaxpr)
    if not has_gradient:
        return value, None
    return value, operations(jax.make_jaxpr(jax.grad(function))(*arguments).jaxpr)


def learners() -> dict[str, Any]:
    """The entries of `tests/registry.py`."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    return importlib.import_module("registry").LEARNERS


def sizes_of_learner(entry: Any) -> tuple[int, int | None]:
    """The operations of what was learned from the registry's problem with 100 points, and of its
    gradient in all numbers of the problem.
    """
    rng = np.random.default_rng(0)
    small = entry.problem
    X = rng.normal(size=(POINTS, 2)).astype(small.X.dtype)
    p = replace(
        small,
        X=X,
        y=np.sin(2 * X[:, 0]),
        labels=np.arange(POINTS) % 3,
        weights=rng.uniform(0.5, 1.5, size=POINTS).astype(small.X.dtype),
    )
    options = {"throw": False} if entry.has_status else {}

    def total(numbers):
        q = replace(p, **numbers)
        outputs = jax.tree.leaves(entry.outputs(entry.fit(q, **options), q))
        return sum(jnp.sum(output) for output in outputs)

    numbers = {name: getattr(p, name) for name in _NUMBERS if name not in entry.fixed}
    return sizes(total, jax.tree.map(jnp.asarray, numbers), has_gradient=entry.order > 0)


def rows(names: Sequence[str] = ()) -> tuple[list[tuple], list[tuple]]:
    """The names and sizes of functions and of learners; of some names only if any are given."""
    functions = [
        (name, *sizes(function, 1.0))
        for name, function in FUNCTIONS.items()
        if not names or name in names
    ]
    of_learners = [
        (name, *sizes_of_learner(entry))
        for name, entry in learners().items()
        if not names or name in names
    ]
    return functions, of_learners


def table(lines: Iterable[tuple], header: Sequence[str] = _HEADER) -> str:
    cells = [header, ["---"] * len(header), *lines]
    return "\n".join(
        f"| {' | '.join('' if cell is None else str(cell) for cell in row)} |" for row in cells
    )


def written(functions: list[tuple], of_learners: list[tuple]) -> str:
    """The page."""
    today = datetime.date.today().isoformat()
    return f"""# How large the programs of kernax are

Written by `python -m benchmarks.program_sizes` ({today}, JAX {jax.__version__}, float64): the
operations of each jaxpr on {POINTS} points, with those inside loops and calls. The time to compile
a program grows with them, and they are the same on every machine.

## Functions of a lengthscale

Each function returns a number, the sum of the matrix or of the coefficients, the mean of the
squared residuals, or the mean of the process at one point; its gradient is that in the lengthscale.

{table(functions)}

## Learners

Every learner of `tests/registry.py`: the sum of what it learned, such as the values of a function
at four new points, and its gradient in all numbers of the problem together: the parameters of the
kernel, points, targets, weights and the regularisation. A learner without derivatives has no second
figure.

{table(of_learners)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.program_sizes", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAMES", help="print these only, and write no page"
    )
    names = parser.parse_args().names
    unknown = set(names) - {*FUNCTIONS, *learners()} if names else set()
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    (functions, of_learners) = rows(names)
    if names:
        print(table([*functions, *of_learners]))
    else:
        PAGE.write_text(written(functions, of_learners))
    return 0


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    # The tests check annotations of shapes, which takes much of the time.
    jaxtyping.config.update("jaxtyping_disable", True)
    sys.exit(main())
