"""The search for a kernel among sums and products: its grammar, its one program, its words."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, assert_close, matrix, needs_x64

import kernax
from kernax.cli.expression import parse_kernel
from kernax.cli.notation import expression_of
from kernax.selection.compose import composition
from kernax.selection.compose.base_kernels import BASES, ColumnScale
from kernax.selection.compose.composition import _StandardisedTable, kernel_of, spread_rows
from kernax.selection.compose.composition_rounds import CompositionSearch
from kernax.selection.compose.composition_starts import Draws, columns_of
from kernax.selection.compose.grammar import CONSTANT, Factor, Grammar, written
from kernax.selection.compose.periods import leading_periods
from kernax.selection.compose.sentences import DataUnits, components_of, number
from kernax.selection.compose.sum_of_products import (
    Values,
    composition_loss,
    count_of_parameters,
    model_of,
    scored,
)

KEY = jax.random.key(0)
RBF, PER, LIN, RQ = map(
    Factor, ("rbf", "zero_mean_periodic", "shifted_linear", "rational_quadratic")
)
ALIKE = {base.word: (base.family, base.most) for base in BASES}
GRAMMAR = Grammar((RBF, PER, LIN), ALIKE, most_terms=3, most_factors=2)


def structures(structure, grammar=GRAMMAR):
    return {candidate.structure for candidate in grammar.neighbours(structure)}


# The grammar


@needs_x64
def test_the_steps_from_a_constant_are_one_base_kernel_with_it_or_instead_of_it():
    single = {(CONSTANT, (factor,)) for factor in (RBF, PER, LIN)}
    alone = {((factor,),) for factor in (RBF, PER, LIN)}
    assert structures((CONSTANT,)) == single | alone


@needs_x64
def test_the_steps_from_a_product_add_multiply_replace_and_leave_out():
    found = structures(((RBF, PER),))
    added = {(CONSTANT, (RBF, PER)), *((*sorted([(RBF, PER), (f,)]),) for f in (RBF, PER, LIN))}
    replaced = {(tuple(sorted([PER, LIN])),), (tuple(sorted([LIN, RBF])),)}
    left_out = {((PER,),), ((RBF,),)}
    # A third factor is more than this grammar has; LIN * LIN in place of one needs two steps.
    assert found == added | replaced | left_out


@needs_x64
def test_sums_and_products_are_the_same_in_any_order_and_come_once():
    grammar = Grammar((RBF, PER, LIN, RQ), ALIKE, most_terms=4, most_factors=3)
    start = ((RBF,), (PER,))
    candidates = grammar.neighbours(start)
    found = [candidate.structure for candidate in candidates]
    assert len(found) == len(set(found))
    assert start not in found
    for structure in found:
        assert structure == tuple(sorted(tuple(sorted(term)) for term in structure))
    # rbf*periodic comes of multiplying either term.
    assert ((RBF,), (RBF, PER)) in found
    assert ((RBF, PER), (PER,)) in found


@needs_x64
@pytest.mark.parametrize(
    ("structure", "why"),
    [
        (((RBF, RBF),), "a product of two RBFs is an RBF"),
        (((RBF, RQ),), "nearly so with a rational quadratic"),
        ((CONSTANT, CONSTANT), "two constants are one"),
        (((LIN,), (LIN,)), "two lines span what a line and a constant do"),
        (((RBF,),) * 3, "three lengthscales"),
        (((LIN, LIN, LIN),), "more factors than allowed"),
        ((CONSTANT, (LIN,), (PER,), (RBF,)), "more terms than allowed"),
        ((), "nothing"),
    ],
)
def test_what_can_be_merged_or_is_too_large_is_no_structure(structure, why):
    assert not GRAMMAR.allows(structure), why


@needs_x64
def test_two_lengthscales_in_a_sum_and_kernels_of_two_columns_in_a_product_are_allowed():
    assert GRAMMAR.allows(((RBF,), (RBF,)))
    assert GRAMMAR.allows(((Factor("rbf", 0), Factor("rbf", 1)),))


@needs_x64
def test_what_is_kept_of_a_parent_says_where_it_stood_there():
    parent = ((RBF, PER), (LIN,))
    parent = tuple(sorted(parent))
    for candidate in GRAMMAR.neighbours(parent):
        for term in candidate.terms:
            for heir in term.factors:
                if heir.origin is not None:
                    t, f = heir.origin
                    assert parent[t][f] == heir.factor
                    assert term.origin == t


@needs_x64
def test_structures_are_written_with_the_columns_where_there_are_several():
    structure = (CONSTANT, (Factor("rbf", 0), Factor("zero_mean_periodic", 1)))
    assert written(structure) == "constant + rbf*zero_mean_periodic"
    assert written(structure, ("age", "dose")) == "constant + rbf[age]*zero_mean_periodic[dose]"


# The kernel whose structure is data

STRUCTURE = (
    CONSTANT,
    (Factor("zero_mean_periodic", 0), Factor("rbf", 1)),
    (Factor("shifted_linear", 1),),
    (Factor("matern52", 0), Factor("shifted_linear", 0)),
    (Factor("rational_quadratic", 0),),
)


def values_for(structure, factors=3, terms=6):
    rng = np.random.default_rng(1)
    theta = 0.4 * rng.normal(size=(terms, factors, 2))
    return Values(0.3 * rng.normal(size=terms), theta, -1.0)


def points(n=7, d=2):
    return np.random.default_rng(2).normal(size=(n, d)).astype(DTYPE)


@pytest.mark.nightly
def test_the_universal_kernel_is_the_sum_of_products_that_its_data_say():
    values = values_for(STRUCTURE)
    universal = model_of(STRUCTURE, values, DTYPE).kernel
    K = kernel_of(STRUCTURE, values, DataUnits.unchanged(2))
    assert_close(matrix(universal, points()), matrix(K, points()))
    assert_close(matrix(universal, points(), points(3)), matrix(K, points(), points(3)))


@pytest.mark.slow
def test_the_kernel_in_the_units_of_the_data_is_that_of_standardised_points():
    values = values_for(STRUCTURE)
    units = DataUnits((20.0, -3.0), (5.0, 0.2), 100.0, 4.0)
    X = points()
    raw = X * np.array(units.scales, DTYPE) + np.array(units.centres, DTYPE)
    expected = 16 * matrix(kernel_of(STRUCTURE, values, DataUnits.unchanged(2)), X)
    # In float32 x has lost digits beside its centre, which periods see.
    tolerance = TOLERANCE["value"] if X64 else 1e-4
    assert_close(matrix(kernel_of(STRUCTURE, values, units), raw), expected, tolerance)


@pytest.mark.nightly
@needs_x64
def test_its_evidence_and_gradient_are_those_of_the_expression():
    values = values_for(STRUCTURE)
    model = model_of(STRUCTURE, values, DTYPE)
    X, y = jnp.asarray(points()), jnp.arange(7.0) / 3

    def plain(log_scales, theta, log_noise):
        written_out = kernel_of_traced(log_scales, theta)
        return kernax.log_marginal_likelihood(written_out, X, y, jnp.exp(log_noise))

    def kernel_of_traced(scales, theta):
        on, e = kernax.On, jnp.exp
        return (
            kernax.Constant(e(scales[0]))
            + e(scales[1])
            * on(kernax.kernels.ZeroMeanPeriodic(e(theta[1, 0, 0]), e(theta[1, 0, 1])), 0)
            * on(kernax.RBF(e(theta[1, 1, 0])), 1)
            + e(scales[2]) * on(kernax.kernels.ShiftedLinear(theta[2, 0, 0]), 1)
            + e(scales[3])
            * on(kernax.Matern52(e(theta[3, 0, 0])), 0)
            * on(kernax.kernels.ShiftedLinear(theta[3, 1, 0]), 0)
            + e(scales[4]) * on(kernax.RationalQuadratic(e(theta[4, 0, 0]), e(theta[4, 0, 1])), 0)
        )

    def universal(log_scales, theta, log_noise):
        kernel = dataclasses.replace(model.kernel, log_scales=log_scales, theta=theta)
        return kernax.log_marginal_likelihood(kernel, X, y, jnp.exp(log_noise))

    arguments = (model.kernel.log_scales, model.kernel.theta, model.log_noise)
    (a, of_a), (b, of_b) = (
        jax.jit(jax.value_and_grad(function, argnums=(0, 1, 2)))(*arguments)
        for function in (universal, plain)
    )
    assert_close(a, b)
    for one, other in zip(of_a, of_b):
        assert_close(one, other, TOLERANCE["gradient"])


@pytest.mark.nightly
def test_the_priors_are_normal_in_what_is_there_and_keep_the_noise_from_zero():
    structure = ((PER,), (LIN,))
    values = values_for(structure)
    X, y = jnp.asarray(points(7, 1)), jnp.arange(7, dtype=DTYPE) / 3
    model = model_of(structure, values, DTYPE)
    evidence = kernax.log_marginal_likelihood(model.kernel, X, y, model.noise)
    theta, scales = values.theta, values.log_scales
    # Of the logarithms of lengthscale and period, of the location, and of two scales.
    penalty = theta[0, 0, 0] ** 2 + ((theta[0, 0, 1] + 1) / 3) ** 2 + (theta[1, 0, 0] / 2) ** 2
    penalty += np.sum((scales[:2] / 3) ** 2)
    expected = (penalty / 2 + 1e-4 * math.e - evidence) / 7
    assert_close(composition_loss(model, X, y), expected)


@needs_x64
def test_parameters_are_counted_with_a_scale_for_each_term_and_the_noise():
    # constant 1, periodic*rbf 1 + 2 + 1, line 1 + 1, matern*line 1 + 1 + 1, rq 1 + 2, noise 1
    assert count_of_parameters(STRUCTURE) == 14


@pytest.mark.nightly
@needs_x64
def test_a_model_that_needs_jitter_has_no_score_and_one_that_does_not_has_its_evidence():
    X = jnp.asarray(np.repeat(np.linspace(-1, 1, 6), 2)[:, None])
    y = jnp.asarray(np.random.default_rng(0).normal(size=12))
    values = Values(np.zeros(6), np.zeros((6, 3, 2)), math.log(0.3))
    sound = scored(model_of(((RBF,),), values, DTYPE), X, y)
    expected = kernax.log_marginal_likelihood(kernax.RBF(), X, y, 0.3)
    assert_close(sound.log_evidence, expected)
    mean = kernax.condition(kernax.GaussianProcess(kernax.RBF()), X, y, 0.3).value.mean
    assert_close(sound.residuals, y - jax.vmap(mean)(X), 1e-8)
    noiseless = dataclasses.replace(values, log_noise=-90.0)
    assert np.isnan(scored(model_of(((RBF,),), noiseless, DTYPE), X, y).log_evidence)


# Where to start


@needs_x64
def test_the_periods_of_two_seasons_are_found_beside_a_trend_in_uneven_places():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 30, 150))
    y = 5 + 0.3 * x**2 + 3 * np.sin(2 * np.pi * x / 3.7) + np.sin(2 * np.pi * x / 1.3)
    first, second = leading_periods(x, y, 2)
    assert abs(first - 3.7) < 0.1
    assert abs(second - 1.3) < 0.05


@needs_x64
def test_too_few_places_have_no_periods():
    assert leading_periods(np.array([0.0, 1.0, 1.0, 2.0]), np.ones(4), 3) == []


@needs_x64
def test_the_first_start_is_the_parent_and_the_others_move_what_it_had():
    parent = ((RBF,), (PER,))
    values = values_for(parent)
    columns = (ColumnScale(0.1, 3.0, -1.5, 1.5, (0.7,)),)
    draws = Draws(columns, np.random.default_rng(0))
    candidate = next(c for c in GRAMMAR.neighbours(parent) if c.structure == ((RBF, LIN), (PER,)))
    first, second, *_ = draws.starts(candidate, values, 4)
    np.testing.assert_array_equal(first.theta[0, 0], values.theta[0, 0])
    np.testing.assert_array_equal(first.theta[1, 0], values.theta[1, 0])
    assert first.log_noise == values.log_noise
    location = first.theta[0, 1, 0]
    # The line's mean square goes off the scale, so that the product is about as large as before.
    shift = math.log(1 + location**2)
    assert first.log_scales[0] == pytest.approx(values.log_scales[0] - shift)
    assert second.theta[0, 0, 0] != values.theta[0, 0, 0]


@needs_x64
def test_starts_of_lengthscales_and_periods_lie_between_the_spacing_and_the_range():
    (column,) = columns_of(np.linspace(-1.5, 1.5, 31)[:, None], np.sin(np.linspace(0, 60, 31)))
    rng = np.random.default_rng(0)
    for base in BASES:
        drawn = np.array([base.draw(rng, column, multiplies=False) for _ in range(200)])
        assert drawn.shape == (200, base.parameters)
        if base.family == "local":
            assert np.all(np.exp(drawn[:, 0]) >= column.spacing * 0.999)
            assert np.all(np.exp(drawn[:, 0]) <= column.span * 1.001)
        if base.family == "periodic":
            assert np.all(np.exp(drawn[:, 1]) >= 2 * column.spacing * 0.999)
            assert np.all(np.exp(drawn[:, 1]) <= column.span / 2 * 1.001)


@needs_x64
def test_rows_to_search_on_are_spread_over_the_range_and_differ_from_one_another():
    x = np.random.default_rng(0).permutation(np.linspace(0, 1, 1000))
    rows = spread_rows(x, 50, np.random.default_rng(1))
    assert len(np.unique(rows)) == 50
    in_order = np.sort(x[rows])
    assert np.all(np.floor(in_order * 49.99) == np.arange(50))
    # Not every twentieth one: that would see nothing of a season.
    assert np.std(np.diff(in_order)) > 0.2 / 50
    np.testing.assert_array_equal(spread_rows(x[:20], 50, np.random.default_rng(1)), np.arange(20))


# The words


SENTENCES = {
    "a smooth trend that varies over 45.0": kernax.RBF(45.0),
    "smooth variation over 5.00": 2.0 * kernax.RBF(5.0),
    "variation at short range over 1.50": kernax.Matern52(1.5),
    "variation at many ranges around 5.00": kernax.RationalQuadratic(5.0, 1.0),
    "a linear trend": 0.1 * kernax.kernels.ShiftedLinear(20.0),
    "a quadratic trend": kernax.kernels.ShiftedLinear(20.0) * kernax.kernels.ShiftedLinear(0.0),
    "a periodic component of period 12.0": kernax.Periodic(1.0, 12.0),
    "a periodic component of period 15.0": 2.0 * kernax.kernels.ZeroMeanPeriodic(1.0, 15.0),
    "a periodic component of period 12.0, whose shape changes over 140": 0.3
    * kernax.Periodic(1.0, 12.0)
    * kernax.RBF(140.0),
    "a periodic component of period 12.0, whose shape changes over 140 and whose size grows "
    "linearly": kernax.Periodic(1.0, 12.0) * kernax.RBF(140.0) * kernax.kernels.ShiftedLinear(-3.0),
    "a smooth trend that varies over 45.0, whose size shrinks linearly": kernax.RBF(45.0)
    * kernax.kernels.ShiftedLinear(105.0),
    "smooth variation over 5.00, whose size grows linearly away from 50.0": kernax.RBF(5.0)
    * kernax.kernels.ShiftedLinear(50.0),
    "a constant level": kernax.Constant(2.0),
}


@pytest.mark.nightly
@needs_x64
def test_each_term_is_put_into_words_in_the_units_of_the_data():
    X = np.arange(101.0)[:, None]
    y = np.sin(X[:, 0])
    kernel = kernax.kernels.Sum(*SENTENCES.values())
    found = components_of(kernel, 0.25, X, y, DataUnits.unchanged(1), ("year",))
    assert [component.sentence for component in found] == [
        *SENTENCES,
        "uncorrelated noise of deviation 0.500",
    ]


@pytest.mark.slow
@needs_x64
def test_words_are_in_other_units_where_points_are_standardised_and_name_several_columns():
    X = np.random.default_rng(0).normal(size=(40, 2))
    units = DataUnits((10.0, 0.0), (4.0, 1.0), 3.0, 5.0)
    kernel = kernax.On(kernax.Periodic(1.0, 0.5), 0) * kernax.On(
        kernax.kernels.ShiftedLinear(0.0), 1
    )
    found = components_of(1.0 * kernel, 0.04, X, X[:, 0], units, ("age", "dose"))
    assert [component.sentence for component in found] == [
        "a periodic component of age of period 2.00, multiplied by a linear trend of dose",
        "uncorrelated noise of deviation 1.00",
    ]


@needs_x64
def test_shares_are_variances_of_posterior_means():
    X = np.linspace(0, 10, 60)[:, None]
    line, season = 0.5 * (X[:, 0] - 5), np.sin(2 * np.pi * X[:, 0] / 2.5)
    y = line + season
    kernel = 1.0 * kernax.kernels.ShiftedLinear(5.0) + 1.0 * kernax.Periodic(1.0, 2.5)
    found = components_of(kernel, 1e-4, X, y, DataUnits.unchanged(1), ("x",))
    shares = [component.share for component in found]
    expected = [line.var() / y.var(), season.var() / y.var()]
    np.testing.assert_allclose(shares[:2], expected, atol=0.02)
    assert shares[2] == pytest.approx(1e-4 / y.var())


@needs_x64
def test_figures_have_three_digits():
    assert [number(v) for v in (1.0, 0.0123456, 99.96, 139.6, 1987.4)] == [
        "1.00", "0.0123", "100", "140", "1987",
    ]  # fmt: skip


class Ornament(kernax.AbstractKernel):
    """A kernel that no expression knows."""

    def __call__(self, x, z):
        return kernax.RBF()(x, z)


@pytest.mark.nightly
@needs_x64
def test_an_expression_reads_back_as_the_same_kernel():
    kernel = kernel_of(STRUCTURE, values_for(STRUCTURE), DataUnits.unchanged(2))
    again = parse_kernel(expression_of(kernel), 2)
    # Six digits are written.
    assert_close(matrix(again, points()), matrix(kernel, points()), 1e-4)
    one = 2.0 * kernax.RBF(3.0) * kernax.kernels.ShiftedLinear(-1.5) + 0.5
    assert expression_of(one) == "2*rbf(lengthscale=3)*shifted_linear(location=-1.5) + 0.5"
    for text in (
        "3*(rbf(lengthscale=[1, 2]) + linear)",
        "(rbf(lengthscale=1) + 0.5*linear)**2",
        "(2*linear)**3*matern(lengthscale=1, nu=0.7)",
        "on(periodic(lengthscale=1, period=2), 2) + 0.25",
    ):
        written = expression_of(parse_kernel(text, 2))
        again = parse_kernel(written, 2)
        assert expression_of(again) == written
        assert_close(matrix(again, points()), matrix(parse_kernel(text, 2), points()), 1e-5)
    assert expression_of(kernax.RBF(np.ones(9))) == "rbf(lengthscale=[9 numbers])"
    with pytest.raises(ValueError, match="no expression describes Ornament"):
        expression_of(Ornament())


# The search


SERIES = np.linspace(0, 20, 24)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"X": SERIES[:9], "y": SERIES[:9]}, "at least 10"),
        ({"X": np.zeros((4, 3, 2))}, "at least 10"),
        ({"y": np.ones(24)}, "y is constant"),
        ({"X": np.ones(24)}, "all columns of X are constant"),
        ({"y": np.stack([SERIES, SERIES], 1)}, "y must have shape"),
        ({"y": np.where(SERIES > 5, np.nan, 1.0)}, "y holds NaN"),
        ({"bases": (kernax.Spectrum,)}, "bases must be classes among RBF"),
        ({"bases": ()}, "bases must be classes among RBF"),
        ({"depth": 0}, "depth must be a positive integer"),
        ({"n_starts": 0}, "n_starts must be a positive integer"),
        ({"max_rows": 5}, "max_rows must be an integer >= 10"),
        ({"names": ("a", "b")}, "names must be 1"),
        ({"names": "time"}, r"names must be a list, such as \['time'\]"),
    ],
)
@needs_x64
def test_bad_input_is_refused_by_name(arguments, words):
    given = {"X": SERIES, "y": np.sin(SERIES), "key": KEY} | arguments
    with pytest.raises(ValueError, match=words):
        kernax.selection.compositional_search(given.pop("X"), given.pop("y"), **given)


@pytest.mark.parametrize("kind", [list, np.int32, np.uint8, np.int64])
def test_whole_numbers_in_one_dimension_are_numbers(kind):
    """Years, of which standardised values were cut off to -1, 0 and 1, and targets too."""
    years = np.arange(100, 112)
    X = years.tolist() if kind is list else years.astype(kind)
    y = np.sin(years).astype(DTYPE)
    found = _StandardisedTable.of(X, y, None)
    expected = _StandardisedTable.of(years[:, None].astype(DTYPE), y, None)
    np.testing.assert_allclose(found.X, expected.X, rtol=1e-6)
    np.testing.assert_allclose(found.y, expected.y, rtol=1e-5)
    assert found.X.dtype == found.y.dtype == DTYPE


@pytest.mark.parametrize("size", [1e-152, 1e152] if X64 else [1e-19, 1e19])
def test_units_in_which_a_variance_has_no_float_are_refused(size):
    """The noise was 0 beside a good status, for charges of 1e-19 in float32."""
    X, y = SERIES.astype(DTYPE), np.sin(SERIES).astype(DTYPE)
    with pytest.raises(ValueError, match="y has a standard deviation of"):
        _StandardisedTable.of(X, DTYPE(size) * y, None)
    with pytest.raises(ValueError, match="a column of X has a standard deviation of"):
        _StandardisedTable.of(DTYPE(size) * X, y, None)
    _StandardisedTable.of(DTYPE(1e-12) * X, DTYPE(1e12) * y, None)


class Failing(CompositionSearch):
    """A search in which candidates with a line fail."""

    def _from_starts(self, candidate, parent, draws):
        fit = super()._fit(candidate, self._model(candidate, parent), 0)
        if "shifted_linear" in written(candidate.structure):
            return dataclasses.replace(fit, criterion=math.inf, log_evidence=math.nan)
        return dataclasses.replace(fit, criterion=-1.0)

    def _finished(self, fit):
        return fit


@pytest.mark.slow
@needs_x64
def test_a_candidate_without_a_score_never_wins_and_is_counted():
    X, y = jnp.asarray(SERIES[:, None]), jnp.asarray(np.sin(SERIES))
    rng, shown = np.random.default_rng(0), lambda jobs, label: jobs
    search = Failing(X, y, 1.0, (), GRAMMAR, 1, 1, rng, shown)
    best = search.run(depth=1, beam=1)
    row = search.rounds[-1]
    assert "shifted_linear" not in written(best.structure)
    assert (row.candidates, row.failed) == (7, 2)
    assert row.kept


def series(n=80):
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(1950, 1970, n))
    return x, 300 + 0.3 * (x - 1950) + 2 * np.sin(2 * np.pi * x / 2.5) + 0.3 * rng.normal(size=n)


@pytest.mark.nightly
@needs_x64
def test_a_season_and_the_noise_are_found_forecast_and_the_same_for_the_same_key():
    x, y = series()
    found = kernax.selection.compositional_search(x[:64], y[:64], key=KEY).value
    words = " ".join(found.sentences())
    assert "periodic component of period 2.5" in words
    assert "trend" in words
    assert math.sqrt(found.noise) == pytest.approx(0.3, rel=0.25)
    # The criterion is that of the kernel as it is returned, in the units of y.
    evidence = kernax.log_marginal_likelihood(
        kernax.GaussianProcess(found.kernel, found.mean), x[:64, None], y[:64], found.noise
    )
    # The last round that was kept: a later one may be lower by less than a round must gain.
    kept = [row for row in found.rounds if row.kept][-1]
    assert float(evidence) == pytest.approx(kept.log_evidence, rel=1e-6)
    process = kernax.condition(
        kernax.GaussianProcess(found.kernel, found.mean), x[:64, None], y[:64], found.noise
    ).value
    error = jax.vmap(process.mean)(x[64:, None]) - y[64:]
    assert np.sqrt(np.mean(error**2)) < 0.5
    first, second = (
        kernax.selection.compositional_search(x[:64], y[:64], key=KEY, depth=1).value
        for _ in range(2)
    )
    assert str(first) == str(second)


@needs_x64
def test_a_composition_without_a_score_is_printed_without_components():
    """As `throw=False` returns it; it took the last component for the noise."""
    found = kernax.types.Composition(kernax.RBF(), 0.1, 0.0)
    assert found.sentences() == []
    assert str(found).splitlines() == composition.table_of(())


@pytest.mark.nightly
@needs_x64
def test_pure_noise_ends_the_search_after_one_round_with_a_constant():
    rng = np.random.default_rng(3)
    found = kernax.selection.compositional_search(SERIES, rng.normal(size=24), key=KEY).value
    assert isinstance(found.kernel, kernax.Constant)
    assert [row.kept for row in found.rounds] == [True, False]
    assert "no better: the search ends" in str(found)
    level, noise = found.sentences()
    assert level.startswith("a constant level")
    assert noise.startswith("uncorrelated noise")


@pytest.mark.nightly
@needs_x64
def test_a_constant_column_is_left_out_and_columns_have_kernels_of_their_own():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-2, 2, 60), np.full(60, 7.0), rng.uniform(-2, 2, 60)])
    y = np.sin(2 * X[:, 0]) + X[:, 2] + 0.1 * rng.normal(size=60)
    settings = {"names": ("a", "b", "c"), "max_rows": 50, "depth": 4}
    solution = kernax.selection.compositional_search(X, y, key=KEY, **settings)
    assert solution.stats["left_out"] == ("b",)
    words = " ".join(solution.value.sentences())
    assert "of a that varies over" in words or "variation of a over" in words
    assert "a linear trend of c" in words
    assert "of b" not in words


@needs_x64
def test_a_column_that_is_constant_among_the_rows_that_are_drawn_is_left_out():
    """It was a logarithm of zero."""
    x = np.linspace(-2, 2, 60)
    rare = (np.arange(60) == 17).astype(float)
    both = composition._StandardisedTable.of(np.column_stack([x, rare]), np.sin(2 * x), None)
    few = both.searched_on(np.arange(0, 60, 3))
    grammar = composition._grammar(None, few, 5, 3)
    assert {factor.column for factor in grammar.alphabet} == {0}
    assert both.searched_on(np.arange(60)).varying == (0, 1)
    alone = composition._StandardisedTable.of(rare, np.sin(2 * x), None)
    with pytest.raises(ValueError, match="among the 10 rows that were drawn"):
        alone.searched_on(np.arange(10))
