"""What learning in stages is made of: priors, folds, rows to hold out, lengthscales that move
together, and which stage is kept.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, needs_x64

import kernax as kx
from kernax.core.base.stacks import points_at
from kernax.selection.choose.folds import count_off, leaving_out
from kernax.selection.optimise.weak_priors import WeakPriors, weak_priors_around
from kernax.selection.recipes import regression_recipe as regression
from kernax.selection.recipes.classification import calibrated_losses, log_losses, signs_of_columns
from kernax.selection.recipes.held_out_rows import first_of_each, held_out_of_each
from kernax.selection.recipes.stages import (
    Learning,
    Stage,
    Together,
    choose,
    everyone,
    last_that_pays,
)


def test_priors_are_normal_in_logarithms_around_the_start_and_an_inverse_gamma_wall_for_noise():
    start = regression.ProcessModel(2.0 * kx.RBF(jnp.array([1.0, 3.0])) + kx.Polynomial(2, 0.0))
    priors = weak_priors_around(start, floored=["noise"])
    assert float(priors.penalty(start)) == pytest.approx(1e-4 / 0.1, rel=1e-6)
    moved = regression.ProcessModel(
        2.0 * kx.RBF(jnp.array([1.0, 3 * np.e**2])) + kx.Polynomial(2, 0.0), jnp.asarray(1e-4)
    )
    assert float(priors.penalty(moved)) == pytest.approx((2 / 2.0) ** 2 / 2 + 1, rel=1e-5)


def test_the_leave_one_out_loss_has_a_floor_under_the_ridge_in_units_of_the_kernel(rng):
    """Without one it drives the ridge to 3e-14 where a polynomial fits, and the fit of that fails.
    Against refits by NumPy.
    """
    X, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    weights = np.repeat([1.0, 2.0, 0.0], 4)  # 12 in all
    K = 5 * np.exp(-((X[:, None] - X) ** 2).sum(2) / 2)
    errors = np.empty(12)
    for i in range(12):
        some = np.delete(np.arange(12), i)
        some = some[weights[some] > 0]
        system = K[np.ix_(some, some)] + np.diag(0.01 / weights[some])
        errors[i] = y[i] - K[i, some] @ np.linalg.solve(system, y[some])
    error = np.average(errors**2, weights=weights)
    expected = error * (1 + 2 * 1e-4 * 5 / (12 * 0.01))
    model = kx.Model(5.0 * kx.RBF(1.0), 0.01)
    given = model, jnp.asarray(X, DTYPE), jnp.asarray(y, DTYPE)
    rtol = 1e-10 if jnp.finfo(DTYPE).bits == 64 else 2e-4  # 3e-6 in float32
    loss = regression.leave_one_out_loss(*given, jnp.asarray(weights, DTYPE))
    assert float(loss) == pytest.approx(expected, rel=rtol)
    folds, together = everyone(12), Together({}, {})
    without, with_floor = (
        regression.ridge_stage_loss(*given, folds, WeakPriors({}, {}, floored), together)
        for floored in ((), ("ridge",))
    )
    ratio = 1 + 2 * 1e-4 * 5 / (12 * 0.01)
    assert float(with_floor / without) == pytest.approx(ratio, rel=1e-6)


def test_folds_balance_every_class_and_those_of_some_rows_have_the_shape_of_those_of_all():
    labels = np.array(["u"] * 10 + ["v"] * 5 + ["w"] * 3)
    folds = count_off(labels, 4)
    for name in "uvw":
        counts = np.bincount(folds[labels == name], minlength=4)
        assert counts.max() - counts.min() <= 1
    assert np.ptp(np.bincount(folds)) <= 1
    some = np.where(folds == 0, -1, folds)
    whole, part = leaving_out(folds, 4), leaving_out(some, 4)
    assert jax.tree.map(jnp.shape, whole) == jax.tree.map(jnp.shape, part)
    for fold in range(1, 4):
        learned = np.asarray(part.learn[fold])[np.asarray(part.learn_weights[fold]) > 0]
        scored = np.asarray(part.score[fold])[np.asarray(part.score_weights[fold]) > 0]
        np.testing.assert_array_equal(np.sort([*learned, *scored]), np.flatnonzero(folds != 0))
        np.testing.assert_array_equal(scored, np.flatnonzero(folds == fold))


def test_lengthscales_move_together_by_their_mean_factor_or_not_at_all():
    model = lambda a, b: kx.Model(3.0 * kx.RBF(jnp.array([a, b])))
    centres = weak_priors_around(model(1.0, 4.0)).centres
    of_vector = lambda *numbers: {"kernel.kernel.lengthscale": jnp.asarray(numbers)}
    together = Together(of_vector(0, 0), centres)(model(2.0, 32.0))
    np.testing.assert_allclose(together.kernel.kernel.lengthscale, [4.0, 16.0], rtol=1e-5)
    apart = Together(of_vector(0, 1), centres)(model(2.0, 32.0))
    np.testing.assert_allclose(apart.kernel.kernel.lengthscale, [2.0, 32.0], rtol=1e-6)


def test_lengthscales_of_the_columns_that_one_column_became_move_together():
    """A lengthscale of its own for a column of 0 and 1 cuts the rows of that category off."""
    start = kx.Model(3.0 * kx.RBF(jnp.array([1.0, 4.0, 1.0, 9.0])))
    learning = Learning(groups=np.array([0, 1, 1, 2]))
    (_, common), (priors, apart) = learning.setting(start, 1), learning.setting(start, 2)
    moved = kx.Model(3.0 * kx.RBF(jnp.array([2.0, 8.0, 8.0, 9.0])))
    factor = (2 * 2 * 8 * 1) ** 0.25
    scales = lambda model: np.asarray(model.kernel.kernel.lengthscale)
    np.testing.assert_allclose(scales(common(moved)), factor * scales(start), rtol=1e-5)
    np.testing.assert_allclose(scales(apart(moved)), [2.0, 16.0, 4.0, 9.0], rtol=1e-5)
    # The two that move together, by a factor of 4, count as one parameter of deviation one.
    expected = (np.log(2.0) ** 2 + np.log(4.0) ** 2) / 2
    assert float(priors.penalty(apart(moved))) == pytest.approx(expected, rel=1e-5)


def test_scales_of_a_mixture_move_together_by_columns_in_each_of_its_terms():
    """They are a matrix, a row a term: in the first stage entries were learned one by one."""
    scales = jnp.asarray([[1.0, 4.0, 1.0], [2.0, 2.0, 8.0]], DTYPE)
    mixture = lambda scales: kx.Model(kx.SpectralMixture(jnp.ones(2), jnp.zeros((2, 3)), scales))
    start = mixture(scales)
    learning = Learning(groups=np.array([0, 1, 1]))
    (_, common), (priors, apart) = learning.setting(start, 1), learning.setting(start, 2)
    factors = np.array([[2.0, 2.0, 8.0], [1.0, 1.0, 4.0]])
    moved = mixture(scales * jnp.asarray(factors, DTYPE))
    of_all = np.exp(np.log(factors).mean())
    np.testing.assert_allclose(common(moved).kernel.scales / scales, of_all, rtol=1e-5)
    expected = [[2.0, 4.0, 4.0], [1.0, 2.0, 2.0]]
    np.testing.assert_allclose(
        apart(moved).kernel.scales / scales, expected * np.ones((2, 3)), rtol=1e-5
    )
    # Four parameters of deviation one, two of them of two entries each.
    penalty = np.sum(np.log([2.0, 4.0, 1.0, 2.0]) ** 2) / 2
    assert float(priors.penalty(apart(moved))) == pytest.approx(penalty, rel=1e-5)


@needs_x64
def test_a_stage_of_numbers_gains_in_density_or_error_and_does_not_lose_in_the_other():
    """As written it predicted better: what was saved had a better noise and worse means."""
    stage = lambda name, loss, error: Stage(name, name, np.full(9, loss), np.full(9, error))
    written = stage("written", 1.0, 1.0)
    for loss, error, name in (
        (0.5, 1.21, "written"),
        (0.5, 1.0, "learned"),
        (1.0, 0.8, "learned"),
        (1.1, 0.8, "written"),
        (1.0, 1.0, "written"),
    ):
        assert last_that_pays([written, stage("learned", loss, error)]).kept.name == name
    choice = last_that_pays([written, stage("learned", 0.5, 1.21)])
    assert str(choice.comparisons[0]) == (
        "better by 0.5000, standard error 0.0000; squares worse by 0.2100, standard error 0.0000: "
        "not kept"
    )


@needs_x64
def test_a_stage_is_kept_if_it_is_better_by_more_than_its_standard_error_than_the_one_kept_before():
    noise = np.tile([1.0, -1.0], 50)  # a standard error of 0.1 of any difference with it
    stage = lambda name, level, amount: Stage(name, name, level + amount * noise)
    stages = [
        stage("written", 1.0, 0.0),
        stage("worse", 1.2, 0.0),
        stage("unsure", 0.95, 1.0),
        stage("sure", 0.85, 1.0),
    ]
    for count, kept in ((1, "written"), (2, "written"), (3, "written"), (4, "sure")):
        choice = last_that_pays(stages[:count])
        assert choice.kept.name == kept
        assert choice.account("log loss")[-1] == f"saved: {kept}"
    assert (
        choice.account("log loss")[2]
        == "  1.2000  worse: worse by 0.2000, standard error 0.0000: not kept"
    )
    assert (
        choice.account("log loss")[3]
        == "  0.9500  unsure: better by 0.0500, standard error 0.1005: not kept"
    )


@needs_x64
def test_a_stage_that_can_be_computed_is_kept_after_one_that_cannot():
    """NaN is not more than its standard error."""
    written = Stage("written", "written", np.array([1.0, np.nan, 1.0]))
    learned = Stage("learned", "learned", np.ones(3))
    assert last_that_pays([written, learned]).kept is learned
    assert last_that_pays([learned, written]).kept is learned


@needs_x64
def test_a_stage_that_cannot_be_computed_is_infinitely_worse():
    """It was worse by nan."""
    sound = Stage("sound", "sound", np.ones(3))
    failed = Stage("failed", "failed", np.full(3, np.inf))
    (comparison,) = last_that_pays([sound, failed]).comparisons
    assert str(comparison) == "worse by inf, standard error 0.0000: not kept"


@needs_x64
def test_a_quarter_of_each_class_is_held_out_but_never_all_of_one():
    names = np.array(["u"] * 8 + ["v"] * 2 + ["w"])
    held_out = held_out_of_each(names, 0.25)
    assert [int(held_out[names == name].sum()) for name in "uvw"] == [2, 1, 0]
    assert held_out[0]
    assert held_out[8]
    assert not held_out_of_each(names, 0.75)[10]


def test_the_first_rows_of_each_class_keep_its_proportion_and_no_class_is_left_out():
    names = np.array(["u"] * 8 + ["v"] * 4 + ["w"])
    chosen = first_of_each(names, 7)
    np.testing.assert_array_equal(chosen, [0, 1, 2, 3, 8, 9, 12])
    assert set(names[first_of_each(names, 3)]) == set("uvw")
    np.testing.assert_array_equal(first_of_each(names, 100), np.arange(13))


def test_rows_are_taken_from_every_part_of_a_stack():
    stack = (np.arange(6).reshape(3, 2), {"a": np.arange(3)})
    some = points_at(stack, np.array([2, 0]))
    np.testing.assert_array_equal(some[0], [[4, 5], [0, 1]])
    np.testing.assert_array_equal(some[1]["a"], [2, 0])
    assert points_at(stack, 1)[1]["a"] == 1


def test_columns_of_two_classes_are_one_sign_and_of_three_a_sign_each():
    np.testing.assert_array_equal(signs_of_columns(np.eye(2)), [-1, 1])
    np.testing.assert_array_equal(signs_of_columns(np.eye(3)), 2 * np.eye(3) - 1)


def test_losses_of_two_classes_by_log_odds_are_those_by_a_value_for_each():
    Y = jnp.asarray(np.eye(2)[[0, 1, 1]], DTYPE)
    f = jnp.asarray([0.3, -2.0, 5.0], DTYPE)
    both = jnp.stack([jnp.zeros_like(f), f], 1)
    np.testing.assert_allclose(log_losses(f, Y), log_losses(both, Y), rtol=1e-5)


def test_decision_values_of_a_fit_that_failed_have_no_loss_and_leave_the_others_alone():
    Y = jnp.asarray(np.eye(2)[np.arange(20) % 2], DTYPE)
    values = jnp.asarray(np.where(np.arange(20) % 2, 1.0, -1.0) + np.arange(20) / 10, DTYPE)
    losses = calibrated_losses(values, Y)
    assert np.all(np.isfinite(losses))
    np.testing.assert_allclose(calibrated_losses(10 * values, Y), losses, rtol=1e-2)
    assert np.all(np.isnan(calibrated_losses(values.at[3].set(jnp.nan), Y)))


def test_stages_are_chosen_by_rows_that_they_have_not_seen_and_progress_sees_every_run():
    """A constant that is learned from the rows of a fold: its loss elsewhere decides."""
    labels = np.array(["u", "v"] * 12)
    Y = jnp.asarray(np.eye(2)[np.arange(24) % 2], DTYPE)
    X = jnp.zeros((24, 1), DTYPE)

    def loss(model, X, Y, folds, priors, together):
        level = together(model).kernel.scale
        return jnp.sum(folds.score_weights * (level - 4) ** 2) / jnp.sum(folds.score_weights)

    def values(model, X, Y, fold):
        return jnp.full(fold.score.shape, model.kernel.scale)

    jobs = []

    def progress(given):
        jobs.extend(given)
        return given

    start = kx.Model(3.0 * kx.RBF())
    off = lambda scored, Y: (scored - 4) ** 2 + jnp.arange(24.0) / 1e6
    choice = choose(start, X, Y, labels, loss, values, off, progress=progress)
    assert len(jobs) == 5
    assert choice.stages[0].name == "as written"
    assert choice.kept is choice.stages[1]
    assert float(choice.kept.model.kernel.scale) == pytest.approx(4, abs=0.1)
