"""Success is never claimed where it is not: random problems through every learner, whose promises
NumPy recomputes.

A violation prints the line that runs it again: `again(learner, seed, form, number)`.
`KERNAX_FUZZ_SEED` and `KERNAX_FUZZ_COUNT` choose other problems, and how many there are for each
learner.
"""

import os
import warnings
from functools import cache

import components
import jax
import jax.numpy as jnp
import numpy as np
import processes
import pytest
import referees
import samples
import sparse_fits
import streams
import vectors
from conftest import OPTIMISED, X64, needs_x32
from learners import LEARNERS, VALUES
from problems import FORMS, STRUCTURES, Form, draw, drawn
from referees import widened
from shares import LEAST

import kernax
from kernax.errors import ConditionWarning, MemoryBudgetError, SolveError

SEED = int(os.environ.get("KERNAX_FUZZ_SEED", "0"))
COUNT = int(os.environ.get("KERNAX_FUZZ_COUNT", "400"))

REFEREES = (
    referees.REFEREES
    | processes.REFEREES
    | components.REFEREES
    | samples.REFEREES
    | streams.REFEREES
    | vectors.REFEREES
    | sparse_fits.REFEREES
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def count(form: Form) -> int:
    return round(COUNT * form.share)


def arrays_of(problem: dict) -> dict:
    return {name: value for name, value in problem.items() if name != "structure"}


def points_of(problem: dict, K, form: Form):
    """The kernel and the points that a learner is given."""
    if form.precomputed:
        return kernax.Precomputed(K), jnp.arange(form.n)
    return STRUCTURES[form.structures[0]].build(problem["numbers"]), problem["X"]


def mapped(function, form: Form, *arguments):
    """A function of every problem in a stack, in one program."""
    over = (
        (lambda f, a: jax.lax.map(lambda part: f(*part), a))
        if form.route == "loop"
        else lambda f, a: jax.vmap(f)(*a)
    )
    options = OPTIMISED if form is FORMS["batch"] else None
    return jax.jit(lambda *stacks: over(function, stacks), compiler_options=options)(*arguments)


def stacked(problems: list[dict]) -> dict:
    return {
        name: jnp.asarray(np.stack([problem[name] for problem in problems]))
        for name in arrays_of(problems[0])
    }


def members(outcome: dict, length: int) -> list[dict]:
    arrays = {name: np.asarray(value) for name, value in outcome.items()}
    return [{name: value[i] for name, value in arrays.items()} for i in range(length)]


@cache
def matrices(seed: int, name: str, number: int) -> list[dict | None]:
    """Gram matrices of the problems of a form; None where they are refused."""
    return matrices_of(drawn(seed, name, number), FORMS[name])


def matrices_of(problems: list[dict], form: Form) -> list[dict | None]:
    if form.route == "eager":
        return [
            attempted(
                LEARNERS["gram"],
                problem,
                STRUCTURES[problem["structure"]].build(problem["numbers"]),
                problem["X"],
                form,
            )
            for problem in problems
        ]
    outcomes: list = [None] * len(problems)
    for which in form.structures:
        mine = [i for i, problem in enumerate(problems) if problem["structure"] == which]
        if not mine:
            continue
        fit = lambda problem, which=which: LEARNERS["gram"](
            problem, STRUCTURES[which].build(problem["numbers"]), problem["X"], form
        )
        for i, out in zip(
            mine, members(mapped(fit, form, stacked([problems[i] for i in mine])), len(mine))
        ):
            outcomes[i] = out
    return outcomes


def attempted(learner, problem, kernel, points, form):
    """The outcome, or None for an exception of the house."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ConditionWarning)
        try:
            outcome = learner(arrays_of(problem), kernel, points, form)
        except (ValueError, SolveError, MemoryBudgetError):
            return None
    if "jitter" not in outcome and any(
        issubclass(warning.category, ConditionWarning) for warning in said
    ):
        return None  # of a learner without stats
    return {name: np.asarray(value) for name, value in outcome.items()}


@cache
def outcomes(learner: str, seed: int, name: str, number: int) -> list[dict | None]:
    return outcomes_of(
        learner, drawn(seed, name, number), matrices(seed, name, number), FORMS[name]
    )


def outcomes_of(
    learner: str, problems: list[dict], grams: list[dict | None], form: Form
) -> list[dict | None]:
    outcome_of = LEARNERS[learner]
    if learner == "gram":
        return grams
    if form.route == "eager":
        return [
            attempted(outcome_of, problem, *points_of(problem, None, form), form)
            for problem in problems
        ]
    K = jnp.asarray(np.stack([out["K"] for out in grams]))
    fit = lambda problem, K: outcome_of(problem, *points_of(problem, K, form), form)
    return members(mapped(fit, form, stacked(problems), K), len(problems))


def violations(learner: str, problem: dict, K: np.ndarray, out: dict, form: Form) -> list[str]:
    """What an outcome promises and does not keep."""
    if not out["success"]:
        kept = [
            name
            for name in sorted(VALUES & set(out))
            if out["void"] and not np.all(np.isnan(out[name]))
        ]
        return [f"{name} beside a result that has no value" for name in kept]
    figures = [
        value for name, value in out.items() if value.dtype.kind == "f" and name != "evidence"
    ]
    if not all(np.all(np.isfinite(figure)) for figure in figures):
        return ["NaN or inf, with success"]
    with np.errstate(all="ignore"):
        figures = REFEREES[learner](widened(problem), K.astype(np.longdouble), widened(out), form)
    return [
        f"{name} {figure:.2g} > {bound:.2g}"
        for name, (figure, bound) in figures.items()
        if not (figure <= bound or bound == np.inf)
    ]


def report(learner: str, seed: int, name: str, number: int) -> tuple[list[str], int]:
    """Every violation, with the line that runs it again; and how many problems succeeded."""
    form, problems = FORMS[name], drawn(seed, name, number)
    lines, successes = [], 0
    grams = matrices(seed, name, number)
    for i, (problem, of_K, out) in enumerate(
        zip(problems, grams, outcomes(learner, seed, name, number))
    ):
        if out is None:
            continue
        K = of_K["K"] if of_K is not None else np.full((form.n, form.n), np.nan)
        successes += bool(out["success"])
        for said in violations(learner, problem, K, out, form):
            lines.append(f"again({learner!r}, {seed}, {name!r}, {i})  # {said}")
    return lines, successes


def again(learner: str, seed: int, name: str, number: int) -> tuple[dict, np.ndarray, dict | None]:
    """One problem, its Gram matrix, and what the learner makes of it, by the route of its form."""
    form, problem = FORMS[name], draw(seed, name, number)
    (gram,) = matrices_of([problem], form)
    (out,) = outcomes_of(learner, [problem], [gram], form)
    return problem, None if gram is None else gram["K"], out


# Compilation is most of the time, and takes a third without optimisations. One form has them;
# it and calls one by one run in the precision of most users alone. In CI a learner runs in a loop
# in float64 and by single calls in float32.
IN_FLOAT32 = ("batch", "eager")
# What takes longer than five seconds in one of the precisions, almost all of it to compile. Every
# learner stays in CI in one form at least.
LONG = {
    "eager": ("kernel_logistic on a path",),
    "loop": (
        "laplace of Categorical",
        "expectation_propagation",
        "variational",
        "nu_support_vector_regression",
        "regularised_risk of Poisson",
        "regularised_risk of Absolute",
        "regularised_risk of Pinball",
        "falkon of Huber",
        "falkon of Logistic",
        "falkon of SquaredHinge",
        "import_vector_machine",
        "import_vector_machine of classes",
        "relevance_vector_machine",
    ),
}
QUICK_IN_A_BATCH = (
    "gram",
    "kernel_ridge",
    "kernel_ridge in features",
    "solve",
    "leave_one_out",
    "generalised_cross_validation",
    "log_marginal_likelihood",
    "kernel_perceptron",
    "perceptron of a stream",
    "Adagrad of a stream",
    "Winnow of a stream",
    "isotonic",
    "pairwise_coupling",
    "eigenpairs",
    "empirical_features",
    "kernel_pca",
    "hsic",
    "herding",
    "stein_discrepancy",
)


def is_nightly(learner: str, name: str) -> bool:
    if name == "batch":
        return learner not in QUICK_IN_A_BATCH
    runs_eagerly_in_ci = learner not in LONG["eager"]
    return learner in LONG[name] or (name == "loop" and not X64 and runs_eagerly_in_ci)


def case(learner: str, name: str):
    marks = [needs_x32] * (name in IN_FLOAT32) + [pytest.mark.nightly] * is_nightly(learner, name)
    return pytest.param(learner, name, marks=marks)


@pytest.mark.parametrize(
    ("learner", "name"), [case(learner, name) for learner in LEARNERS for name in FORMS]
)
def test_a_success_keeps_what_it_promises(learner, name):
    lines, successes = report(learner, SEED, name, count(FORMS[name]))
    least = LEAST[learner][0 if X64 else 1] if name == "loop" else 0
    assert successes > least * count(FORMS[name])
    assert not lines, f"{len(lines)} violations\n" + "\n".join(lines[:20])
