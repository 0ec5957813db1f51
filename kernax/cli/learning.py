"""What `kernax fit` says before it learns, and what it learns with."""

from pathlib import Path

from rich.console import Console

from kernax.cli.classify import classify
from kernax.cli.console import print_inputs
from kernax.cli.fit import fit
from kernax.cli.job import FitReport, Split, one_per_column
from kernax.cli.latent_fits import count
from kernax.cli.plan import Plan
from kernax.cli.table import InputTable
from kernax.preparation.cells import plural, quoted


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
