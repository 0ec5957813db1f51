"""The choice of model, likelihood and inference of a fit: by options, or by the target."""

import dataclasses

from kernax.cli.job import Split, split_classes, split_numbers
from kernax.cli.table import InputTable
from kernax.cli.target import check_counts, why_classes
from kernax.preparation.cells import Column, as_number
from kernax.preparation.predictors import GP, IVM, LOGISTIC, RVM, SVM
from kernax.preparation.tokens import Tokens
from kernax.selection.recipes.latent_choices import Inference, Likelihood

_CLASSIFIERS = (LOGISTIC, SVM, IVM)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be learned, and the reason if the user did not choose it.

    For models other than a Gaussian process the likelihood only says whether targets are classes.
    """

    model: str
    likelihood: Likelihood
    inference: Inference = Inference.LAPLACE
    reason: str | None = None

    @property
    def is_latent(self) -> bool:
        """Whether it is a process with observations that are not normal."""
        return self.model == GP and self.likelihood != Likelihood.GAUSSIAN

    def split(
        self, table: InputTable, seed: int, counted: Tokens | None, most: int | None
    ) -> Split:
        """Training rows and held-out rows; string kernels count letters by default.

        Raises ValueError for targets of another kind.
        """
        tokens = counted or Tokens.LETTERS
        if self.likelihood.of_counts:
            check_counts(table.target, self.likelihood)
        if not self.likelihood.of_classes:
            return split_numbers(table, seed, tokens, most)
        parts = split_classes(table, seed, tokens, most)
        classes = len(parts.classes)
        if self.is_latent and classes > 2:
            asked = []
            if self.likelihood != Likelihood.BERNOULLI:
                asked.append(f"--likelihood {self.likelihood}")
            if self.inference != Inference.LAPLACE:
                asked.append(f"--inference {self.inference}")
            if asked:
                raise ValueError(
                    f"target column {table.target.name!r} holds {classes} classes, but "
                    f"{' '.join(asked)} is for two classes: leave it out, for a softmax of one "
                    "process for each class"
                )
        return parts


def plan_for(
    target: Column,
    model: str | None,
    likelihood: Likelihood | None,
    inference: Inference | None,
    restarts: int,
) -> Plan:
    """The plan for a target. Raises ValueError for options that do not go together."""
    if model is None and (likelihood or inference):
        model = GP
    for option, value in (("--likelihood", likelihood), ("--inference", inference)):
        if value is not None and model != GP:
            raise ValueError(f"{option} {value} is for --model gp, not for {model}")
    plan = _plan_for(target, model, likelihood, inference)
    if inference is not None and not plan.is_latent:
        raise ValueError(
            f"--inference {inference} is for classes and counts: a Gaussian process of numbers "
            "needs no approximation"
        )
    if restarts > 1 and plan.likelihood != Likelihood.GAUSSIAN:
        name = "gp with classes or counts" if plan.is_latent else plan.model
        takers = "of numbers gp and ridge" if plan.is_latent else "gp and ridge"
        raise ValueError(f"--restarts {restarts}: {name} learns from one start; {takers} take more")
    return plan


def _plan_for(
    target: Column,
    model: str | None,
    likelihood: Likelihood | None,
    inference: Inference | None,
) -> Plan:
    if model is None:
        reason = why_classes(target, "the model is logistic regression", "--likelihood gaussian")
        kind = Likelihood.BERNOULLI if reason else Likelihood.GAUSSIAN
        return Plan(LOGISTIC if reason else GP, kind, reason=reason)
    if model in _CLASSIFIERS:
        return Plan(model, Likelihood.BERNOULLI)
    approximation = inference or Inference.LAPLACE
    if model in (GP, RVM) and likelihood is None:
        # A column with text, but with numbers in most of its cells, is one of numbers with
        # mistakes.
        numbers = sum(as_number(cell) is not None for cell in target.cells)
        has_mistakes = target.first_text is not None and 2 * numbers > len(target.cells)
        if not has_mistakes:
            as_numbers = "--likelihood gaussian"
            otherwise = as_numbers if model == GP else f"--model {GP} {as_numbers}"
            reason = why_classes(target, "the likelihood is one of classes", otherwise)
            kind = Likelihood.BERNOULLI if reason else Likelihood.GAUSSIAN
            return Plan(model, kind, approximation, reason)
    return Plan(model, likelihood or Likelihood.GAUSSIAN, approximation)
