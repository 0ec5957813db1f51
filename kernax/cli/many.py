"""`kernax fit` for many rows: learns a kernel from some of them, then fits all over centres."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp

from kernax.cli.choices import RouteName
from kernax.cli.classify import scores_of_classifier
from kernax.cli.console import waiting
from kernax.cli.fit import scores_of_regressor
from kernax.cli.job import FitReport, Split, in_digits
from kernax.cli.route import Way
from kernax.core.base.threads import linear_algebra_threads
from kernax.core.losses.loss_functions import Logistic
from kernax.errors import ConditionWarning
from kernax.gp.process import GaussianProcess
from kernax.gp.sparse_regression import sgpr
from kernax.preparation.one_hot import columns_of_classes
from kernax.preparation.predictors import GP, ClassPredictor, Predictor, Regressor
from kernax.scale.centres.choice import choose_centres
from kernax.scale.centres.falkon import falkon
from kernax.selection.recipes.classification import signs_of_columns

# Exact enough for scores of four digits; the learned ridge may be so small that rounding allows no
# more.
_RTOL = 1e-4


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
        last = scores_of_classifier(predictor, parts)
    else:
        assert isinstance(predictor, Regressor)
        last = scores_of_regressor(predictor, parts)
    scores[f"{predictor.kind}, {len(parts.y)} rows, {way.centres} centres"] = last
    errors = [f"{name} {in_digits(name, score)}" for name, score in last.items()]
    to_expect = (
        f"expect {', '.join(errors)} of rows like those held out; a larger --centres M shows "
        "whether more centres would help"
    )
    remarks = (*report.remarks, to_expect)
    return dataclasses.replace(report, scores=scores, predictor=predictor, remarks=remarks)


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
