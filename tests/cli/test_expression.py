"""Kernels written as text: values against kernels built by hand, and one clear sentence for
everything refused.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import needs_x64

import kernax as kx
from kernax.cli.compared_columns import kernel_of_inputs
from kernax.cli.expression import parse_kernel
from kernax.cli.notation import (
    KERNELS,
    NUMBERS,
    STRING_KERNELS,
    TEXT,
    compared,
    parameter_names,
)
from kernax.cli.words import OF_NUMBERS, OF_STRINGS, check_words
from kernax.core.base.parameters import parameters
from kernax.preparation import Standards
from kernax.preparation.encoders import Number, Text, Tokens
from kernax.preparation.inputs import Inputs

pytestmark = needs_x64  # once: no precision touches it

DEFAULT = np.sqrt(3)  # the lengthscale that a text does not mention, for points of three dimensions


def assert_same(text, kernel, rng, dimensions=None):
    X = jnp.asarray(rng.normal(size=(6, 3)), float)
    np.testing.assert_array_equal(kx.gram(parse_kernel(text, dimensions), X), kx.gram(kernel, X))


def _refusal_of_words(text):
    try:
        check_words(text)
    except ValueError as refusal:
        return str(refusal)


def test_the_words_are_those_of_the_table_of_kernels():
    assert (tuple(KERNELS), tuple(STRING_KERNELS)) == (OF_NUMBERS, OF_STRINGS)


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("rbf", kx.RBF()),
        (" ( rbf ) ", kx.RBF()),
        ("rbf()", kx.RBF()),
        ("rbf(2)", kx.RBF(2.0)),
        ("rbf(lengthscale=2.0)", kx.RBF(2.0)),
        ("rbf([1, 2, 3.5])", kx.RBF(np.array([1, 2, 3.5]))),
        ("matern(2.5, lengthscale=0.7)", kx.Matern(2.5, 0.7)),
        ("rational_quadratic(alpha=3)", kx.RationalQuadratic(alpha=3.0)),
        ("gamma_exponential(gamma=2)", kx.kernels.GammaExponential(gamma=2.0)),
        ("periodic(1.5, period=[1, 2, 3])", kx.Periodic(1.5, np.array([1.0, 2.0, 3.0]))),
        ("cosine(4)", kx.kernels.Cosine(4.0)),
        ("polynomial(degree=3)", kx.Polynomial(3)),
        ("polynomial(3, 0)", kx.Polynomial(3, 0.0)),
        ("constant(2)", kx.Constant(2.0)),
        ("2.5", kx.Constant(2.5)),
        ("rbf + linear", kx.RBF() + kx.Linear()),
        ("rbf + 3", kx.RBF() + kx.Constant(3.0)),
        ("3 + rbf", kx.RBF() + kx.Constant(3.0)),
        ("2.0*rbf + linear", 2.0 * kx.RBF() + kx.Linear()),
        ("rbf*2", 2.0 * kx.RBF()),
        ("rbf/4", 0.25 * kx.RBF()),
        ("+rbf", kx.RBF()),
        ("rbf(+2)", kx.RBF(2.0)),
        ("1/2*rbf", 0.5 * kx.RBF()),
        ("rbf +\n matern12", kx.RBF() + kx.Matern12()),
        ("normalised(rbf + linear)*2", 2.0 * kx.Normalised(kx.RBF() + kx.Linear())),
        ("shifted_linear(-2)", kx.kernels.ShiftedLinear(-2.0)),
        ("2*on(rbf(3), 2) + linear", 2.0 * kx.On(kx.RBF(3.0), 1) + kx.Linear()),
        ("on(rbf + periodic, 1)", kx.On(kx.RBF() + kx.Periodic(), 0)),
    ],
)
def test_a_text_means_the_kernel_built_by_hand(text, kernel, rng):
    assert_same(text, kernel, rng)


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("spectrum(2)", kx.Spectrum(2)),
        ("blended_spectrum(2, decay=0.5)", kx.kernels.BlendedSpectrum(2, 0.5)),
        ("all_substrings", kx.kernels.AllSubstrings()),
        ("mismatch(3)", kx.kernels.Mismatch(3, 1)),
        ("subsequence(2, 0.3)", kx.Subsequence(2, 0.3)),
        ("normalised(all_subsequences)", kx.Normalised(kx.kernels.AllSubsequences())),
        ("2*normalised(spectrum(k=2))**2 + 1", 2.0 * kx.Normalised(kx.Spectrum(2)) ** 2 + 1.0),
    ],
)
def test_a_text_means_the_string_kernel_built_by_hand_whatever_the_dimensions(text, kernel):
    for dimensions in (None, 0, 3):
        assert eqx.tree_equal(parse_kernel(text, dimensions), kernel)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("2 + constant", []),
        ("normalised(linear + 1)*rbf**2", [NUMBERS]),
        ("2*mismatch(3) + 1", [TEXT]),
        ("normalised(rbf + 2*spectrum(1))", [NUMBERS, TEXT]),
    ],
)
def test_what_a_kernel_compares_is_known(text, kinds):
    assert compared(parse_kernel(text)) == set(kinds)


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "matern"])
def test_every_name_alone_is_the_kernel_with_its_defaults(name, rng):
    assert_same(name, KERNELS[name](), rng)


def test_powers_bind_before_products_and_products_before_sums(rng):
    assert_same("1 + 2*linear**2*rbf", 2.0 * (kx.Linear() ** 2) * kx.RBF() + 1.0, rng)
    assert_same("(1 + 2*linear)**2*rbf", (2.0 * kx.Linear() + 1.0) ** 2 * kx.RBF(), rng)
    assert_same("2*(rbf + linear)", 2.0 * (kx.RBF() + kx.Linear()), rng)


def test_a_lengthscale_that_is_not_mentioned_becomes_one_per_dimension(rng):
    kernel = parse_kernel("2*rbf + matern32(lengthscale=1.5) + periodic", dimensions=3)
    scaled, matern, periodic = kernel.terms  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(scaled.kernel.lengthscale, np.full(3, DEFAULT), rtol=1e-6)
    assert matern.lengthscale.shape == ()
    assert periodic.lengthscale.shape == (3,)
    assert periodic.period.shape == ()
    assert_same("rbf", kx.RBF(np.full(3, DEFAULT)), rng, dimensions=3)
    assert_same(
        "rational_quadratic(alpha=2)",
        kx.RationalQuadratic(np.full(3, DEFAULT), 2.0),
        rng,
        dimensions=3,
    )


def test_a_single_dimension_gets_a_lengthscale_of_length_one():
    assert parse_kernel("rbf", dimensions=1).lengthscale.shape == (1,)  # pyright: ignore[reportAttributeAccessIssue]


def test_every_parameter_of_a_parsed_kernel_is_learnable():
    rows = kx.describe(parse_kernel("2*rbf + polynomial(2) + 0.5", dimensions=2)).rows
    assert [row[0] for row in rows] == [
        "terms[0].kernel.lengthscale",
        "terms[0].scale",
        "terms[1].offset",
        "terms[2].value",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("rbf + ", "cannot be parsed at its end"),
        ("  rbf + * linear", "at column 9"),
        ("rbf linear", "cannot be parsed at column"),
        ("(rbf", "never closed"),
        ("rbf = 2", "cannot be parsed"),
        ("rbf; linear", "cannot be parsed"),
        ("rbf\0", "cannot be parsed"),
        ("rbff", "no kernel called rbff: did you mean rbf"),
        ("RBF", "did you mean rbf"),
        ("matern42", "did you mean matern"),
        ("wiggle", "the kernels are rbf, matern12"),
        ("rbf - linear", "a difference of kernels is not a kernel"),
        ("2 - rbf", "a difference of kernels is not a kernel"),
        ("-rbf", "minus a kernel is not a kernel"),
        ("-2*rbf", "Scaled.scale must be in [0, inf) and finite, but is -2"),
        ("rbf + -1", "Constant.value must be in [0, inf)"),
        ("rbf(-1)", "RBF.lengthscale must be in (0, inf)"),
        ("rbf(0)", "RBF.lengthscale must be in (0, inf)"),
        ("rbf([1, -2, 3])", "RBF.lengthscale must be in (0, inf)"),
        ("gamma_exponential(gamma=3)", "must be in (0, 2]"),
        ("1/rbf", "a number divided by a kernel is not a kernel"),
        ("rbf/linear", "nor is a quotient of two kernels"),
        ("rbf/0", "divides by zero"),
        ("rbf // 2", "no meaning"),
        ("rbf % 2", "no meaning"),
        ("rbf @ linear", "no meaning"),
        ("on(rbf)", "on takes one kernel and the number of a column"),
        ("on", "on takes one kernel and the number of a column"),
        ("on(2, 1)", "on takes one kernel and the number of a column"),
        ("on(rbf, 0)", "the column of on must be a positive integer"),
        ("on(rbf, rbf)", "the column of on must be a positive integer"),
        ("on(rbf, 4)", "on names column 4, but there are 3 columns"),
        ("on(spectrum(2), 1)", "compares text"),
        ("rbf**0.5", "degree must be a positive integer"),
        ("rbf**0", "degree must be a positive integer"),
        ("rbf**-1", "degree must be a positive integer"),
        ("rbf**rbf", "** takes a kernel and a positive integer"),
        ("2**rbf", "** takes a kernel and a positive integer"),
        ("9**9**9**9*rbf", "** takes a kernel and a positive integer"),
        ("rbf**9999999", "degree must be at most 1000"),
        ("polynomial(degree=2.5)", "degree must be a positive integer"),
        ("polynomial(degree=9999999)", "degree must be at most 1000"),
        ("log(rbf)", "log of a kernel is not a kernel"),
        ("sqrt(rbf)", "sqrt of a kernel is not a kernel"),
        ("exp(rbf)", "kernax.kernels.ExpOf"),
        ("sin(linear)", "sin of a kernel is not a kernel"),
        ("rbf.lengthscale", "no meaning"),
        ("rbf.__class__()", "cannot be called"),
        ("(lambda: rbf)()", "cannot be called"),
        ("__import__('os')", "no kernel called __import__"),
        ("rbf < linear", "no meaning"),
        ("rbf and linear", "no meaning"),
        ("not rbf", "no meaning"),
        ("~rbf", "no meaning"),
        ("rbf if 1 else linear", "no meaning"),
        ("rbf[0]", "no meaning"),
        ("[rbf]", "no meaning"),
        ("'rbf'", "no meaning"),
        ("True*rbf", "no meaning"),
        ("1j*rbf", "no meaning"),
        ("None", "no meaning"),
        ("f'{rbf}'", "no meaning"),
        ("{x for x in rbf}", "no meaning"),
        ("1e999*rbf", "too large"),
        ("1e300*1e300*rbf", "too large"),
        ("9" * 900 + "*rbf", "too large"),
        ("rbf(scale=2)", "rbf has no parameter scale: it takes lengthscale"),
        ("rational_quadratic(beta=2)", "it takes lengthscale and alpha"),
        ("linear(2)", "linear takes no parameters, but 1 value"),
        ("rbf(1, 2)", "rbf takes lengthscale, but 2 values"),
        ("rbf(1, lengthscale=2)", "lengthscale twice"),
        ("rbf(lengthscale=linear)", "rbf's lengthscale must be a number or a list of numbers"),
        ("rbf('1')", "rbf's lengthscale must be a number or a list of numbers"),
        ("rbf(True)", "rbf's lengthscale must be a number or a list of numbers"),
        ("rbf(--1)", "rbf's lengthscale must be a number or a list of numbers"),
        ("rbf([])", "a list of 0 numbers"),
        ("rbf([[1, 2, 3]])", "must be a number or a list of numbers"),
        ("rbf([1, 2])", "a list of 2 numbers, but must have 3, one per column"),
        ("polynomial([2])", "polynomial's degree must be a number, but is a list"),
        ("spectrum", "spectrum lacks its k: write spectrum(3)"),
        ("subsequence(decay=0.5)", "subsequence lacks its length: write subsequence(2)"),
        ("spectrum(2.5)", "k must be a positive integer, but is 2.5"),
        ("spectrum(0)", "k must be a positive integer, but is 0"),
        ("spectrum(999)", "spectrum's k must be at most 50 in a kernel expression, but is 999"),
        ("mismatch(3, 3)", "m must be less than k"),
        ("mismatch([1, 2, 3])", "mismatch's k must be a number, but is a list"),
        ("all_substrings(decay=0)", "AllSubstrings.decay must be in (0, inf)"),
        ("spectrm(3)", "did you mean spectrum"),
        ("normalized(rbf)", "did you mean normalised"),
        ("normalised", "normalised takes one kernel, as in normalised(spectrum(3))"),
        ("normalised()", "normalised takes one kernel"),
        ("normalised(rbf, linear)", "normalised takes one kernel"),
        ("normalised(kernel=rbf)", "normalised takes one kernel"),
        (
            "normalised(2)",
            "normalised takes one kernel, as in normalised(spectrum(3)), but is given 2",
        ),
        ("normalised(rbf - linear)", "a difference of kernels is not a kernel"),
        (
            "normalised(" * 4 + "linear" + " + 1)" * 4,
            "normalised may be nested at most 3 times",
        ),
        ("normalised(" * 60 + "linear" + ")" * 60, "nested too deeply"),
        ("rbf(*[1])", "must be a number or a list of numbers"),
        ("rbf(**linear)", "has no parameter **"),
        ("polynomial(offset=[1, 2, 3])", "polynomial's offset must be a number"),
        ("polynomial(degree=[1, 2, 3])", "polynomial's degree must be a number"),
        ("rbf+" * 250, "cannot be parsed at its end"),
        ("rbf+" * 251, "1004 characters, but at most 1000"),
        ("+".join(["rbf"] * 100), "nested too deeply"),
        ("(" * 450 + "rbf" + ")" * 450, "cannot be parsed"),
        ("(" * 60 + "rbf" + "+1)" * 60, "nested too deeply"),
        ("-" * 990 + "rbf", "nested too deeply"),
        ("rbf" + ".x" * 498, "nested too deeply"),
        ("rbf(" + "-" * 900 + "1)", "nested too deeply"),
        ("rbf" + "**2" * 300, "nested too deeply"),
        ("text(name, spectrum(3))", "text takes the name of a column in quotes"),
        ("on(rbf, x)", "the column of on must be a positive integer"),
        ("normalised(linear, x)", "normalised takes one kernel"),
        ("rbf // foo", "has no meaning in a kernel expression"),
        ("~foo", "has no meaning in a kernel expression"),
    ],
)
def test_what_is_no_kernel_is_refused_in_one_sentence(text, words):
    with pytest.raises(ValueError) as refused:
        parse_kernel(text, dimensions=3)
    message = str(refused.value)
    assert words in message
    assert _refusal_of_words(text) in (message, None)  # the command line checks the words first
    assert "\n" not in message
    assert len(message) < 250  # the names of all kernels take 200


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("rbf", ["rbf.lengthscale"]),
        ("1.0*rbf + 0.1*linear", ["rbf.lengthscale", "rbf.scale", "linear.scale"]),
        (
            "2*(rbf*periodic) + 1",
            ["rbf.lengthscale", "periodic.lengthscale", "periodic.period", "(rbf*periodic).scale"],
        ),
        (
            "3*(rbf + rbf)*rbf",
            [
                "rbf (1).lengthscale",
                "rbf (2).lengthscale",
                "(rbf + rbf).scale",
                "rbf (3).lengthscale",
            ],
        ),
        (
            "2*normalised(spectrum(3) + 2*rbf)",
            ["rbf.lengthscale", "rbf.scale", "normalised(spectrum + rbf).scale"],
        ),
        (
            "2*(normalised(spectrum(3)) + rbf)",
            ["rbf.lengthscale", "(normalised(spectrum) + rbf).scale"],
        ),
        (
            "2*(2*rbf + 1)**2",
            ["rbf.lengthscale", "rbf.scale", "constant.value", "((rbf + constant)**2).scale"],
        ),
        (
            "2*(rbf*matern32)**2 + 3*(rbf*matern32**2)",
            ["((rbf*matern32)**2).scale", "(rbf*matern32**2).scale", "rbf (2).lengthscale"],
        ),
        ("2*(rbf**2)**3", ["((rbf**2)**3).scale", "rbf.lengthscale"]),
        ("2*(3*rbf)", ["rbf.lengthscale", "rbf.scale (1)", "rbf.scale (2)"]),
    ],
)
def test_parameters_are_called_by_the_names_of_the_expression(text, names):
    kernel = parse_kernel(text, 3)
    found = parameter_names(kernel, "kernel.")
    paths = [f"kernel.{entry.path}" for entry in parameters(kernel)]
    assert set(found) == set(paths)
    assert set(names) <= {found[path] for path in paths}
    assert len(set(found.values())) == len(paths)


def test_parts_that_see_some_columns_alone_keep_their_names():
    encoders = (Number("a"), Text("dna", Tokens.LETTERS, ("A",)))
    inputs = Inputs(encoders, "y", Standards(np.zeros(1), np.ones(1)))
    kernel = kernel_of_inputs(inputs, "2*rbf + mismatch(3)", per_column=True)
    assert parameter_names(kernel)["terms[0].kernel.kernel.lengthscale"] == "rbf.lengthscale"
    assert parameter_names(kernel)["terms[0].kernel.scale"] == "rbf.scale"
