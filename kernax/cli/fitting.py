"""What `kernax fit` does with a plan: searches for a kernel, learns, and fits to all rows."""

import dataclasses
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
from rich.console import Console

from kernax.cli.classify import classify, scores_of_classifier
from kernax.cli.console import print_inputs, waiting
from kernax.cli.fit import fit, judged
from kernax.cli.job import FitReport, Split, in_digits, one_per_column
from kernax.cli.latent_fits import count
from kernax.cli.notation import expression_of
from kernax.cli.options import AUTO, RouteName
from kernax.cli.plan import Plan
from kernax.cli.route import Way
from kernax.cli.table import InputTable
from kernax.core.base.threads import linear_algebra_threads
from kernax.core.losses.loss_functions import Logistic
from kernax.errors import ConditionWarning
from kernax.gp.process import GaussianProcess
from kernax.gp.sparse_regression import sgpr
from kernax.preparation.cells import plural, quoted
from kernax.preparation.one_hot import columns_of_classes
from kernax.preparation.predictors import GP, ClassPredictor, Predictor, Regressor
from kernax.preparation.standards import standards_of_target
from kernax.scale.centres.choice import choose_centres
from kernax.scale.centres.falkon import falkon
from kernax.selection.compose.composition import compositional_search, table_of
from kernax.selection.compose.sentences import DataUnits, components_of
from kernax.selection.recipes.classification import signs_of_columns

# Exact enough for scores of four digits; the learned ridge may be so small that rounding allows no
# more.
_RTOL = 1e-4


def check_auto(kernel: str, plan: Plan) -> None:
    """Raises ValueError for a search unless a Gaussian process of numbers is learned."""
    if kernel != AUTO:
        return
    if plan.model != GP:
        raise ValueError(
            "--kernel auto searches by the evidence of a Gaussian process of numbers, and the "
            f"model here is {plan.model}: write a kernel such as '1.0*rbf + 0.1*linear'"
        )
    if plan.is_latent:
        raise ValueError(
            "--kernel auto searches by the evidence of a Gaussian process of numbers, and the "
            f"likelihood here is {plan.likelihood}: write a kernel such as '1.0*rbf', or pass "
            "--likelihood gaussian where classes are numbers"
        )


def written_or_found(console: Console, kernel: str, parts: Split, seed: int) -> str:
    """The expression, or that of the kernel that a search finds.

    Prints the rounds of a search, its components and the expression.
    """
    if kernel != AUTO:
        return kernel
    target = standards_of_target(parts.y, parts.inputs.target)
    y = target.standardised(parts.y)
    columns = parts.inputs.columns
    key = jax.random.key(seed)
    beam = 2 if len(columns) == 1 else 1  # a round over many columns takes minutes
    solution = compositional_search(parts.X, y, key=key, names=columns, beam=beam, progress=True)
    found = solution.value
    # The components in the units of the table, those with the largest share first.
    standards = parts.inputs.standards
    centres = tuple(standards.centre.tolist())
    scales = tuple(standards.scale.tolist())
    units = DataUnits(centres, scales, float(target.centre), float(target.scale))
    components = components_of(found.kernel, float(found.noise), parts.X, y, units, columns)
    in_words = dataclasses.replace(found, components=tuple(components)).sentences()
    for line in (*table_of(found.rounds), "found:", *in_words):
        console.print(line, markup=False)
    for name in solution.stats["left_out"]:
        console.print(f"column {name!r} is constant, and was left out", markup=False)
    text = expression_of(found.kernel)
    console.print(f"--kernel '{text}'", markup=False)
    return text


def print_split(
    console: Console, plan: Plan, data: Path, table: InputTable, parts: Split, few: Split
) -> None:
    """Prints the rows and columns that are learned from, and how columns became numbers."""
    if plan.reason:
        console.print(plan.reason, markup=False)
    of_all = f" of {len(parts.y) + parts.unused}" if parts.unused else ""
    inputs = []
    columns = len(parts.inputs.encoders) - len(parts.inputs.texts)
    numbers = len(parts.inputs.columns)
    if columns:
        became = "" if columns == numbers else f" as {numbers} numbers"
        inputs.append(plural(columns, "input column") + became)
    inputs += [f"the {text.tokens} of {quoted(text.name)}" for text in parts.inputs.texts]
    console.print(
        f"{data}: {table.count} rows, {' and '.join(inputs)}; "
        f"learning from {len(parts.y)}{of_all} rows, {len(parts.y_held_out)} held out",
        markup=False,
    )
    print_inputs(console, table, parts.inputs)
    if not one_per_column(few):
        console.print(
            "fewer than 20 rows a column to learn from: lengthscales are shared by all columns"
        )


def learn(
    parts: Split, kernel: str, plan: Plan, restarts: int, seed: int, priors: bool
) -> FitReport:
    """Fits a classifier, a model of counts, or a regressor."""
    if plan.likelihood.of_classes:
        return classify(parts, kernel, plan, priors)
    if plan.likelihood.of_counts:
        return count(parts, kernel, plan, priors)
    return fit(parts, kernel, plan.model, restarts, seed, priors)


def fitted_to_all(
    report: FitReport, few: Split, parts: Split, way: Way, seed: int, threads: int | None
) -> FitReport:
    """The report for a kernel that was learned from few rows. If the method is centres, the kernel
    is then fitted to all rows, and scored. Needs 64-bit mode.
    """
    if way.name != RouteName.CENTRES:
        return report
    scores = {}
    for name, row in report.scores.items():
        is_fit = name.endswith(("written", "learned"))
        scores[f"{name}, {len(few.y)} rows" if is_fit else name] = row
    what = f"fitting {len(parts.y)} rows over centres"
    with linear_algebra_threads(len(parts.y), threads), waiting(what):
        predictor = _fitted(report.predictor, parts, way.centres, seed)
    if isinstance(predictor, ClassPredictor):
        last, excess = scores_of_classifier(predictor, parts), {}
    else:
        assert isinstance(predictor, Regressor)
        last, excess = judged(predictor, parts)
    scores[f"{predictor.kind}, {len(parts.y)} rows, {way.centres} centres"] = last
    errors = [f"{name} {in_digits(name, score)}" for name, score in last.items()]
    to_expect = (
        f"expect {', '.join(errors)} of rows like those held out; a larger --centres M shows "
        "whether more centres would help"
    )
    remarks = (*report.remarks, to_expect)
    return dataclasses.replace(
        report, scores=scores, predictor=predictor, remarks=remarks, excess=excess
    )


def _fitted(learned: Predictor, parts: Split, centres: int, seed: int) -> Predictor:
    """A predictor with the kernel of another, fitted to all rows over centres."""
    X = jnp.asarray(parts.X)
    key = jax.random.key(seed)
    if isinstance(learned, ClassPredictor):
        assert learned.penalty is not None  # as every classifier by logistic regression has
        signs = jnp.asarray(signs_of_columns(columns_of_classes(parts.y, parts.classes)))
        given = {"loss": Logistic(), "bias": True, "key": key, "rtol": _RTOL}
        logistic = falkon(learned.kernel, X, signs, learned.penalty, centres, **given)
        return dataclasses.replace(learned, model=logistic.value)
    assert isinstance(learned, Regressor)
    y = jnp.asarray(learned.target.standardised(parts.y))
    if learned.kind != GP:
        ridge = falkon(learned.kernel, X, y, learned.noise, centres, key=key, rtol=_RTOL)
        return dataclasses.replace(learned, model=ridge.value)
    Z = choose_centres(learned.kernel, X, centres, key=key)
    with warnings.catch_warnings():
        # The bound, which is not used: the process itself is judged by its residual.
        warnings.filterwarnings("ignore", ".*digits of the bound", ConditionWarning)
        process = sgpr(GaussianProcess(learned.kernel), X, y, learned.noise, Z)
    return dataclasses.replace(learned, model=process.value)
