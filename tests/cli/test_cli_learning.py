"""What the command line learns of classes and numbers, and the scores that it prints, computed a
second time without it.
"""

import re
import warnings
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from conftest import needs_x32, real_data
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from typer.testing import CliRunner

from kernax.cli import classify as classes
from kernax.cli.app import app
from kernax.cli.compared_columns import compared_columns
from kernax.cli.fit import fit, remark_on_no_gain
from kernax.cli.job import FitReport, Split, remark_on_baseline, split_rows
from kernax.cli.latent_fits import count
from kernax.cli.plan import Plan
from kernax.cli.table import InputTable
from kernax.core.base.solution import RESULTS, Solution
from kernax.preparation.cells import Column
from kernax.preparation.encoders import Tokens
from kernax.selection.recipes import data_starts
from kernax.selection.recipes.latent import Likelihood

pytestmark = (
    needs_x32  # once, in a process as users have it: the command line sets its own precision
)

runner = CliRunner()
LOGISTIC_REGRESSION = Plan("logistic", Likelihood.BERNOULLI)


def write(path, header, columns):
    rows = [",".join(map(str, row)) for row in zip(*columns)]
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def table_scores(output, name):
    """The figures in a row of the table of held-out scores."""
    line = next(line for line in output.splitlines() if name in line)
    return [float(figure) for figure in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", line.split(name)[1])]


def standardised(X, kept):
    """By the rows to learn from alone."""
    return (X - X[kept].mean(0)) / X[kept].std(0)


@pytest.mark.slow
def test_scores_of_numbers_are_those_of_a_second_computation_from_the_same_split(
    tmp_path, rng, monkeypatch
):
    """Would catch a wrong NLPD of the process or of the mean, and standardising with held-out rows,
    of which one is far out.
    """
    monkeypatch.setattr(
        data_starts,
        "minimise",
        lambda loss, model, *_, **__: Solution(model, RESULTS.successful, {}),
    )
    X = rng.normal(size=(40, 2)).round(3)
    y = (3 + 5 * X[:, 0] + rng.normal(size=40)).round(3)
    order = np.random.default_rng(0).permutation(40)
    held_out, kept = order[:10], order[10:]
    X[held_out[0]] = 9, -7
    data = write(tmp_path / "numbers.csv", "a,b,y", (*X.T, y))
    result = runner.invoke(
        app, ["fit", str(data), "--target", "y", "--kernel", "2*rbf(1.5)", "--model", "gp"]
    )
    assert result.exit_code == 0, result.stderr
    level, unit = y[kept].mean(), y[kept].std()
    peer = GaussianProcessRegressor(ConstantKernel(2.0) * RBF(1.5), alpha=0.1, optimizer=None)
    Z = standardised(X, kept)
    mean, deviation = peer.fit(Z[kept], (y[kept] - level) / unit).predict(
        Z[held_out], return_std=True
    )
    of_process = norm(level + unit * mean, unit * np.sqrt(deviation**2 + 0.1))
    for name, density in (
        ("gp as written", of_process),
        ("gp learned", of_process),
        ("mean of the target", norm(level, unit)),
    ):
        error = np.sqrt(np.mean((y[held_out] - density.mean()) ** 2))
        expected = error, -density.logpdf(y[held_out]).mean()  # pyright: ignore[reportAttributeAccessIssue]
        np.testing.assert_allclose(table_scores(result.stdout, name), expected, rtol=2e-4)


@pytest.mark.slow
def test_scores_of_classes_are_those_of_a_second_computation_from_the_same_split(
    tmp_path, rng, monkeypatch
):
    """Would catch a wrong log loss of the model or of the frequencies, and standardising with
    held-out rows.
    """
    monkeypatch.setattr(classes, "_learned", lambda start, *_: (start, ()))
    X = rng.normal(size=(44, 2)).round(3)
    named = np.where(X[:, 0] + rng.normal(size=44) > 0.6, "u", "v")
    order = np.random.default_rng(0).permutation(44)
    first = lambda name: [row for row in order if named[row] == name][
        : round(0.25 * np.sum(named == name))
    ]
    held_out = np.array([*first("u"), *first("v")])
    kept = np.setdiff1d(order, held_out)
    X[held_out[0]] = 9, -7
    data = write(tmp_path / "classes.csv", "a,b,kind", (*X.T, named))
    result = runner.invoke(
        app, ["fit", str(data), "--target", "kind", "--kernel", "2*rbf(1.5)", "--model", "logistic"]
    )
    assert result.exit_code == 0, result.stderr
    Z, sign, true = (
        standardised(X, kept),
        np.where(named == "v", 1.0, -1.0)[kept],
        named[held_out] == "v",
    )
    gram = lambda A, B: 2 * np.exp(-((A[:, None] - B) ** 2).sum(2) / (2 * 1.5**2))
    K = gram(Z[kept], Z[kept])

    def objective(a):
        f = K @ a[1:] + a[0]
        slope = -sign * expit(-sign * f)
        return np.logaddexp(0, -sign * f).sum() + a[1:] @ K @ a[1:] / 2, np.append(
            slope.sum(), K @ (slope + a[1:])
        )

    a = minimize(
        objective,
        np.zeros(len(kept) + 1),
        jac=True,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-9},
    ).x
    p = expit(gram(Z[held_out], Z[kept]) @ a[1:] + a[0])
    expected = accuracy_score(true, p > 0.5), log_loss(true, p), roc_auc_score(true, p)
    np.testing.assert_allclose(
        table_scores(result.stdout, "logistic as written"), expected, atol=1e-4
    )
    share = np.mean(sign > 0)
    guess = (
        accuracy_score(true, np.full(len(true), share > 0.5)),
        log_loss(true, np.full(len(true), share)),
        0.5,
    )
    np.testing.assert_allclose(table_scores(result.stdout, "most frequent class"), guess, atol=1e-4)
    assert (
        abs(
            log_loss(true, np.full(len(true), share))
            - log_loss(true, np.full(len(true), true.mean()))
        )
        > 2e-4
    )


def test_learning_that_does_not_help_the_held_out_rows_says_so():
    assert remark_on_no_gain("NLPD", 4.8, 4.8 + 1e-6) == ()  # the same in what is printed
    assert remark_on_no_gain("RMSE", 4.8, 4.7) == ()
    (line,) = remark_on_no_gain("NLPD", -0.1, 0.2)
    assert line.startswith(
        "learning did not improve the held-out rows: NLPD -0.1000 as written, 0.2000 learned"
    )


def report_of(saved, excess):
    constant = {"RMSE": 2.0, "NLPD": 1.5}
    predictor = SimpleNamespace(inputs=SimpleNamespace(texts=()))
    scores = {"mean of the target": constant, "gp learned": saved}
    return FitReport("", scores, (), predictor, excess=excess)


def test_a_model_worse_than_the_mean_by_a_standard_error_is_warned_of():
    worse = np.array([1.0, 2.0, 3.0])
    unclear = np.array([-3.0, 1.0, 3.0])
    saved = {"RMSE": 9.0, "NLPD": 1.6}
    (line,) = remark_on_baseline(report_of(saved, {"RMSE": worse, "NLPD": unclear}), "rbf")
    assert line == (
        "warning: the saved model predicts the held-out rows worse than the mean of the target: "
        "RMSE 9 against 2, by more than a standard error; try another kernel, or the default "
        "kernel (leave out --kernel)"
    )
    both = report_of(saved, {"RMSE": worse, "NLPD": worse})
    (line,) = remark_on_baseline(both, "1.0*rbf + 0.1*linear")
    assert "RMSE 9 against 2 and NLPD 1.6000 against 1.5000, by" in line
    assert line.endswith("try another kernel, or other inputs")
    one_row = report_of(saved, {"RMSE": worse[:1], "NLPD": -worse[:1]})
    assert "RMSE 9 against 2, by" in remark_on_baseline(one_row, "rbf")[0]
    overflow = report_of(saved, {"RMSE": np.array([1.0, np.inf]), "NLPD": -worse})
    assert "RMSE 9 against 2, by" in remark_on_baseline(overflow, "rbf")[0]
    for silent in (
        report_of(saved, {"RMSE": unclear, "NLPD": -worse}),
        report_of({"RMSE": 2.0, "NLPD": 1.5}, {"RMSE": 1e-9 * worse}),  # the same as printed
        report_of(saved, {}),
    ):
        assert remark_on_baseline(silent, "rbf") == ()


@pytest.mark.parametrize("model", ["gp", "ridge", pytest.param("counts", marks=pytest.mark.slow)])
def test_the_excess_over_a_constant_is_the_difference_of_the_scores(rng, model):
    """Catches an excess of other rows, of another constant, or of the model before learning."""
    X = rng.uniform(-2, 2, (11, 1))
    y = rng.poisson(3.0, 11).astype(float)
    with jax.enable_x64(True):
        table = held_out_table(X, y, ("a",))
        parts = split_rows(table, Tokens.LETTERS, y, np.arange(6), np.arange(6, 11))
        if model == "counts":
            report = count(parts, "rbf", Plan("gp", Likelihood.POISSON), True)
        else:
            report = fit(parts, "rbf", model, 1, 0)
    constant, *_, saved = report.scores.values()
    assert set(report.excess) == set(saved)
    for measure, excess in report.excess.items():
        assert excess.shape == (5,)
        power = 2 if measure == "RMSE" else 1
        expected = saved[measure] ** power - constant[measure] ** power
        np.testing.assert_allclose(excess.mean(), expected, rtol=1e-9)


@pytest.mark.parametrize("kernel", ["1.0*rbf + 0.1*linear", "rbf"])
def test_a_fit_that_is_worse_than_the_mean_says_so_in_one_line(tmp_path, monkeypatch, kernel):
    """Of the parity of six bits, where each row has the sign that its neighbours have not."""
    as_it_was = lambda loss, model, *_, **__: Solution(model, RESULTS.successful, {})
    monkeypatch.setattr(data_starts, "minimise", as_it_was)
    bits = np.arange(64) >> np.arange(6)[:, None] & 1
    data = write(tmp_path / "parity.csv", "a,b,c,d,e,f,y", (*bits, 3 + bits.sum(0) % 2))
    options = ("--target", "y", "--model", "ridge", "--kernel", kernel)
    result = runner.invoke(app, ["fit", str(data), *options])
    assert result.exit_code == 0, result.stderr
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("warning: ")]
    assert "worse than the mean of the target: RMSE " in line
    assert line.endswith("or the default kernel (leave out --kernel)") == (kernel == "rbf")


@pytest.mark.slow
def test_copies_of_rows_do_not_drive_the_learned_noise_to_its_bound_unless_priors_are_off(
    tmp_path, rng
):
    """Would catch a process that believes copies: its noise ends eight powers of ten below its
    start, in rounding.
    """
    X = rng.uniform(-2, 2, (30, 2))
    y = np.sin(X[:, 0]) + 0.2 * X[:, 1] + 0.3 * rng.normal(size=30)
    rows = rng.permutation(np.tile(np.arange(30), 3))[:64]
    data = write(tmp_path / "copies.csv", "a,b,y", (*X[rows].T, y[rows]))
    noises = []
    for priors in ([], ["--no-priors"]):
        options = ("--target", "y", "--kernel", "1.0*rbf + 0.1*linear", *priors)
        result = runner.invoke(app, ["fit", str(data), *options])
        assert result.exit_code == 0, result.stderr
        noises.append(
            float(re.search(r"noise\W+([\d.e-]+)", result.stdout.split("held-out RMSE")[1])[1])
        )
        if not priors:
            density = table_scores(result.stdout, "gp learned")[1]
            assert density < table_scores(result.stdout, "mean of the target")[1] + 0.1
            assert "eight powers" not in result.stderr
    assert noises[0] > 1e-6 > 1e-8 > noises[1]


def held_out_table(X, y, columns):
    names = tuple(f"{value:g}" for value in y)
    inputs = tuple(map(Column.of_numbers, columns, X.T))
    return InputTable(inputs, Column("kind", names, ("",) * len(names)))


def split_of(name, seed, rows, held_out) -> Split:
    data = real_data(name)
    X, y = (
        (np.concatenate([data[f"{key}_train"], data[f"{key}_test"]]) for key in "Xy")
        if "X_train" in data
        else map(data.get, "Xy")
    )
    order = np.random.default_rng(seed).permutation(len(y))[: rows + held_out]
    table = held_out_table(
        np.asarray(X[order], float), y[order], tuple(f"x{i}" for i in range(X.shape[1]))
    )
    names = np.array(table.target.cells)
    order = np.arange(len(order))
    return split_rows(
        table, Tokens.LETTERS, names, order[:rows], order[rows:], tuple(np.unique(names))
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "gain"), [("heart_scale", -0.005), ("ripley", 0.01), ("banana", 0.1)]
)
def test_what_is_learned_is_no_worse_than_what_is_written_on_rows_held_out_and_better_where_it_pays(
    name, gain
):
    """Would catch thirty numbers chosen by a quarter of the rows: 0.07 worse on average on medical
    data.

    Of four splits of ripley the gains are 0.054, -0.036, 0.032 and 0: what pays on average need not
    on each.
    """
    gains = []
    with jax.enable_x64(True):
        for seed in range(4 if name == "ripley" else 2):
            parts = split_of(name, seed, 180, 90 if name == "heart_scale" else 500)
            report = classes.classify(parts, "1.0*rbf + 0.1*linear", LOGISTIC_REGRESSION, True)
            written, learned = (
                float(report.scores[f"logistic {what}"]["log loss"])
                for what in ("as written", "learned")
            )
            gains.append(written - learned)
    assert np.mean(gains) >= gain


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "model", "seed"), [("yacht", "ridge", 2), ("mixed table", "gp", 0)]
)
def test_what_is_saved_of_numbers_predicts_held_out_rows_no_worse_than_what_is_written(
    name, model, seed
):
    """Of yacht the learned ridge fell so far that the fit of all rows failed; of a table of dates
    and categories a lengthscale for each column of 0 and 1 predicted worse than none.
    """
    numbers = pytest.importorskip("benchmarks.learning_numbers")
    if name == "yacht":
        real_data(name)
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of bounds reached
        table = compared_columns(numbers.table_of(name), numbers.KERNEL, None)
        rows = 450 if name == "mixed table" else 200
        _, written, saved = numbers.figures(table, seed, rows, model)["scores"]
    for before, after in zip(written, saved, strict=True):
        assert after <= before + 0.01 * abs(before)
