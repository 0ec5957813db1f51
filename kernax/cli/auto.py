"""`kernax fit --kernel auto`: a search for a kernel, reported as an expression and in words."""

import dataclasses

import jax
from rich.console import Console

from kernax.cli.job import Split
from kernax.cli.notation import expression_of
from kernax.cli.plan import Plan
from kernax.preparation.predictors import GP
from kernax.preparation.standards import standards_of_target
from kernax.selection.compose.composition import compositional_search, table_of
from kernax.selection.compose.sentences import DataUnits, components_of

AUTO = "auto"


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
