"""The shipped conformance suite: it passes for every public kernel, and says what is wrong with a
wrong one.
"""

import importlib
import inspect
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import X64, needs_x64

import kernax
from kernax.core.kernel.kernel import parts_of
from kernax.kernels import KERNELS
from kernax.kernels.entry import Points
from kernax.testing import PROPERTIES, KernelReport, check_conformance, check_kernel

FORMULAS = sorted((Path(kernax.__file__).parent / "kernels").glob("[a-z]*.py"))


class Bend(eqx.Module):
    """A feature function with a parameter."""

    slope: jax.Array = kernax.fields.real(default=0.7)

    def __call__(self, x):
        return jnp.sin(self.slope * x) + x


def soft_sets():
    """Inside the unit square, where every kernel of sets is smooth; two of them the same."""
    X = np.array([[0.2, 0.7], [0.2, 0.7], [0.9, 0.1], [0.4, 0.5], [0.6, 0.3]])
    return X if X64 else X.astype(np.float32)


def texts():
    return kernax.strings.encode(["banana", "banana", "ana", "bandana", "cab"], alphabet="abcdn")


def forest():
    return kernax.trees.encode(
        ["(S (A a) (B b))", "(S (A a) (B b))", "(S (A b) (B b))", "a", "(S (A a) (S (A a) (B b)))"]
    )


def three_series():
    """Of different lengths, two of them the same."""
    first = stack()[:3]
    return kernax.kernels.GlobalAlignment.pad([first, first, stack()[3:], stack()[2:3]])


def numbers():
    """Inside the unit interval, two of them the same."""
    return soft_sets()[:, :1]


def away_from_zero():
    return stack() + np.array([1.0, 0.5], stack().dtype)


def indices():
    return np.array([0, 0, 3, 1, 4], np.int32)


def functionals():
    """Two values, the same, two derivatives, and an integral."""
    few = kernax.functionals
    values = few.values_at(stack()[:2])
    slopes = few.derivatives_at(stack()[2:4], np.array([1.0, -0.5], stack().dtype))
    return few.joined(values, slopes, few.integrals_over(stack()[4:], stack()[3:4] + 2, 2))


def stack():
    """The points of case K04, two of them the same, and two more."""
    X = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.3, -1.1], [-0.8, 0.6]])
    return X if X64 else X.astype(np.float32)


POINTS = {
    Points.VECTORS: stack,
    Points.NONZERO: away_from_zero,
    Points.PLACES: numbers,
    Points.SETS: soft_sets,
    Points.INTEGERS: indices,
    Points.STRINGS: texts,
    Points.TREES: forest,
    Points.SERIES: three_series,
    Points.FUNCTIONALS: functionals,
}


def examples():
    """Those of the table of kernels, under the kernel's name and then a number, and their
    points.
    """
    for entry in KERNELS:
        for number, kernel in enumerate(entry.examples(), 1):
            yield entry.name if number == 1 else f"{entry.name}-{number}", kernel, entry.points


CASES = {name: (kernel, POINTS[points]) for name, kernel, points in examples()} | {
    "Warped-network": (
        kernax.Warped(
            kernax.RBF(), eqx.nn.MLP(2, 2, 3, 1, activation=jnp.tanh, key=jax.random.key(0))
        ),
        stack,
    ),
    "Warped-module": (kernax.Warped(kernax.RBF(), Bend()), stack),
    "Normalised-strings": (kernax.Normalised(kernax.kernels.AllSubsequences(0.6)), texts),
    "ArcCosine-at-zero": (kernax.kernels.ArcCosine(1), stack),
    "FeatureMap-module": (kernax.FeatureMap(Bend()), stack),
    "FeatureMap-sigmoid": (
        kernax.FeatureMap(kernax.bases.SigmoidBasis(np.array([0.2, 0.6]), 0.7)),
        numbers,
    ),
    "FeatureMap-bins": (kernax.FeatureMap(kernax.bases.IndicatorBins(3, 2)), soft_sets),
}
LACKING = {"Tanh": ("symmetric_and_positive_semidefinite",)}


def kernels_of_the_package():
    """Every class of a kernel that stands under `kernax/kernels`, and those of `core` that are
    public.
    """
    modules = [importlib.import_module(f"kernax.kernels.{path.stem}") for path in FORMULAS]
    for module in (kernax, kernax.kernels, *modules):
        for name, kind in vars(module).items():
            is_kernel = inspect.isclass(kind) and issubclass(kind, kernax.AbstractKernel)
            if is_kernel and not inspect.isabstract(kind) and not name.startswith("_"):
                yield kind


def kinds_within(kernel):
    yield type(kernel)
    for part in parts_of(kernel):
        yield from kinds_within(part)


@needs_x64
def test_every_kernel_of_the_package_has_one_row_in_the_table():
    kinds = [entry.kind for entry in KERNELS]
    assert len(kinds) == len(set(kinds))
    assert set(kernels_of_the_package()) == set(kinds)


@needs_x64
@pytest.mark.parametrize("entry", KERNELS, ids=lambda entry: entry.name)
def test_the_examples_of_a_kernel_hold_it(entry):
    kernels = entry.examples()
    assert kernels
    assert all(entry.kind in set(kinds_within(kernel)) for kernel in kernels)


# Of each family those that are computed in different ways; `make nightly` has all kernels.
OF_FAMILIES = (
    "RBF",
    "Matern12",
    "Matern52",
    "GammaExponential",
    "Periodic",
    "SpectralMixture",
    "Linear",
    "Polynomial",
    "ArcCosine",
    "Brownian",
    "Gibbs",
    "ChangePoint",
    "Precomputed",
    "Coregionalisation",
    "AllSubsets",
    "Tanimoto",
    "Spectrum",
    "Sum",
    "Product",
    "On",
    "Normalised",
    "Warped",
    "FeatureMap",
    "Custom",
    "FisherKernel",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [n if n in OF_FAMILIES else pytest.param(n, marks=pytest.mark.nightly) for n in CASES],
)
def test_every_public_kernel_conforms(name):
    """K04 among others: gradients of sums over duplicate points, for every kernel and parameter."""
    kernel, points = CASES[name]
    check_conformance(kernel, points(), without=LACKING.get(name, ()))


@pytest.mark.slow
@needs_x64
def test_a_kernel_of_mixed_points_conforms():
    X = {"where": stack(), "kind": np.array([0, 1, 2, 0, 1], dtype=np.int32)}
    same = kernax.Custom(lambda _, a, b: jnp.where(a == b, 1.0, 0.0).astype(float))
    check_conformance(kernax.On(kernax.RBF(), "where") * kernax.On(same, "kind"), X)


# Kernels that are wrong in one way each.


class Claims(kernax.AbstractKernel):
    """Says that it is homogeneous, and is not."""

    keeps = kernax.RBF.keeps

    def __call__(self, x, z):
        return jnp.dot(x, z)


class Unbounded(kernax.AbstractKernel):
    """A kernel for offset >= 0, whose field says that any offset will do."""

    offset: jax.Array = kernax.fields.real(default=0.1)

    def __call__(self, x, z):
        return jnp.dot(x, z) + self.offset


class PythonFloat(kernax.AbstractKernel):
    """A parameter that no optimiser would ever see."""

    scale: float = 2.0

    def __call__(self, x, z):
        return jnp.dot(x, z) * self.scale


class FunctionLeaf(kernax.AbstractKernel):
    """A function that is not static: the kernel is no argument for jit."""

    phi: object

    def __call__(self, x, z):
        return jnp.dot(self.phi(x), self.phi(z))


@jax.custom_jvp
def wrong_square(s):
    return s**2


wrong_square.defjvp(
    lambda primals, tangents: (wrong_square(*primals), 3 * primals[0] * tangents[0])
)


@jax.custom_jvp
def careless(x, z):
    return jnp.dot(x, z)


@careless.defjvp
def _careless_jvp(primals, tangents):
    (x, z), (dx, dz) = primals, tangents
    nothing = jnp.where(jnp.all(x == z), jnp.nan, 0.0).astype(x.dtype)
    return careless(x, z), jnp.dot(x, dz) + jnp.dot(dx, z) + nothing * (jnp.sum(dx) + jnp.sum(dz))


def python_branch(parameters, x, z):
    return jnp.dot(x, z) * (2 if parameters > 0 else 3)


def plain_root(_, x, z):
    return jnp.exp(-jnp.sqrt(jnp.sum((x - z) ** 2)))


WRONG = {
    "unsymmetric": (
        kernax.Custom(lambda _, x, z: jnp.exp(jnp.sum(x - 2 * z))),
        "symmetric_and_positive_semidefinite",
    ),
    "indefinite": (
        kernax.Custom(lambda _, x, z: jnp.sum((x - z) ** 2) + 1),
        "symmetric_and_positive_semidefinite",
    ),
    "a root of zero": (
        kernax.Custom(plain_root),
        "gradient_where_points_coincide: d/dx is NaN or inf in reverse mode",
    ),
    "NaN gradient at coincidence": (
        kernax.Custom(lambda _, x, z: careless(x, z)),
        "gradient_where_points_coincide",
    ),
    "vector valued": (
        kernax.Custom(lambda _, x, z: jnp.dot(x, z)[None]),
        "one_number_in_the_precision_of_the_points",
    ),
    "wrong precision": (
        kernax.Custom(lambda _, x, z: jnp.dot(x, z).astype(jnp.float16)),
        "one_number",
    ),
    "false claim": (Claims(), "is_stationary is claimed, but a translation"),
    "too wide an interval": (Unbounded(), "inside their declared intervals"),
    "a Python float": (PythonFloat(), "a_pytree_of_arrays_compiled_once: .scale is a float"),
    "a function leaf": (FunctionLeaf(jnp.sin), "a_pytree_of_arrays_compiled_once: .phi"),
    "a Python branch": (kernax.Custom(python_branch, jnp.array(1.0)), "TracerBoolConversionError"),
}


@needs_x64
@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_kernel_is_refused_by_the_name_of_the_property(fault):
    kernel, words = WRONG[fault]
    with pytest.raises(AssertionError) as caught:
        check_conformance(kernel, stack())
    assert words in str(caught.value)


@needs_x64
def test_a_wrong_gradient_is_refused_with_both_values():
    kernel = kernax.Custom(lambda p, x, z: jnp.exp(p) * wrong_square(jnp.dot(x, z)), jnp.array(0.3))
    with pytest.raises(
        AssertionError, match=r"gradient_in_the_points: d/dx.* by central differences"
    ):
        check_conformance(kernel, stack())
    in_parameters = kernax.Custom(lambda p, x, z: wrong_square(p) * jnp.dot(x, z), jnp.array(0.3))
    with pytest.raises(
        AssertionError,
        match=r"gradient_in_the_parameters: d/dparameters is .* by central differences",
    ):
        check_conformance(in_parameters, stack())


@needs_x64
def test_only_the_property_that_fails_is_named():
    with pytest.raises(AssertionError) as caught:
        check_conformance(Claims(), stack())
    assert [holds.__name__ for holds in PROPERTIES if holds.__name__ in str(caught.value)] == [
        "facts_that_hold"
    ]


@needs_x64
def test_a_property_can_be_left_out_by_name_and_only_by_name():
    check_conformance(Claims(), stack(), without=["facts_that_hold"])
    with pytest.raises(ValueError, match="must hold names of properties: one_number"):
        check_conformance(Claims(), stack(), without=["facts"])
    with pytest.raises(ValueError, match=r"such as \['facts_that_hold'\]"):
        check_conformance(Claims(), stack(), without="facts_that_hold")


@needs_x64
def test_points_whose_derivatives_would_not_be_tested_are_refused():
    for X, words in ((stack()[:1], "two points, but holds 1"), (stack()[:2], "must differ")):
        with pytest.raises(ValueError, match=words):
            check_conformance(kernax.RBF(), X)


@needs_x64
def test_a_rotation_refutes_a_kernel_that_is_only_stationary():
    class City(kernax.AbstractKernel):
        keeps = kernax.RBF.keeps

        def __call__(self, x, z):
            return jnp.prod(jnp.exp(-jnp.abs(x - z)))

    with pytest.raises(AssertionError, match="is_homogeneous is claimed, but a rotation"):
        check_conformance(City(), stack())


# K17: check_kernel.


def looked_up(table):
    return kernax.Custom(lambda table, i, j: table[i, j], jnp.asarray(table))


INDICES = np.arange(2, dtype=np.int32)


def test_positive_entries_are_not_enough():
    """K17: [[1, 2], [2, 1]] has the witness (1, -1)."""
    report = check_kernel(looked_up([[1.0, 2.0], [2.0, 1.0]]), INDICES)
    assert report.symmetric
    assert not report.passed
    assert report.smallest_eigenvalue == pytest.approx(-1)
    np.testing.assert_allclose(np.abs(report.witness), np.sqrt(0.5) * np.ones(2), rtol=1e-6)
    assert report.witness[0] * report.witness[1] < 0
    assert "c^T K c = -1 < 0" in str(report)


def test_symmetry_is_judged_first():
    """K17."""
    report = check_kernel(looked_up([[1.0, 0.5], [0.0, 1.0]]), INDICES)
    assert not report.symmetric
    assert report.asymmetry == 0.5
    assert report.witness is None
    assert not report.passed
    assert str(report).startswith("not symmetric")


def test_a_positive_definite_table_passes_and_a_singular_one_too():
    for table in ([[2.0, 1.0], [1.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]]):
        report = check_kernel(looked_up(table), INDICES)
        assert report.passed
        assert report.witness is None
        assert "positive semidefinite" in str(report)


def test_the_tolerance_decides_what_is_rounding():
    table = [[1.0, 1.001], [1.001, 1.0]]
    assert not check_kernel(looked_up(table), INDICES).passed
    assert check_kernel(looked_up(table), INDICES, rtol=1e-3).passed


def test_values_that_are_not_finite_do_not_pass():
    report = check_kernel(kernax.Custom(lambda _, i, j: jnp.where(i == j, 1.0, jnp.nan)), INDICES)
    assert not report.passed
    assert not report.symmetric
    assert np.isnan(report.asymmetry)
    assert "NaN" in str(report)


@needs_x64
def test_a_kernel_that_is_not_scalar_is_refused():
    with pytest.raises(ValueError, match=r"Custom returns float64 of shape \(2,\)"):
        check_kernel(kernax.Custom(lambda _, x, z: x * z), stack())
    with pytest.raises(ValueError, match="Custom returns complex128"):
        check_kernel(kernax.Custom(lambda _, x, z: jnp.dot(x, z).astype(complex)), stack())
    with pytest.raises(ValueError, match="Custom returns bool"):
        check_kernel(kernax.Custom(lambda _, x, z: jnp.all(x == z)), stack())


def periodic_of_the_distance(_, x, z):
    s = jnp.sum((x - z) ** 2)
    return jnp.exp(-2 * jnp.sin(jnp.pi * jnp.sqrt(s)) ** 2)


@needs_x64
@pytest.mark.parametrize(
    "kernel",
    [kernax.kernels.Tanh(1.0, -1.0, indefinite=True), kernax.Custom(periodic_of_the_distance)],
    ids=["tanh", "periodic of the Euclidean distance"],
)
def test_famous_impostors_are_refuted_with_a_witness(kernel):
    """K17."""
    side = np.linspace(0, 1, 4)
    X = (
        np.stack(np.meshgrid(side, side), -1)
        .reshape(-1, 2)
        .astype(np.float64 if X64 else np.float32)
    )
    report = check_kernel(kernel, X)
    assert isinstance(report, KernelReport)
    assert report.symmetric
    K = np.asarray(jax.vmap(lambda x: jax.vmap(lambda z: kernel(x, z))(X))(X), np.float64)
    assert report.witness @ K @ report.witness < -1e-3
    assert report.witness @ K @ report.witness == pytest.approx(
        report.smallest_eigenvalue, rel=1e-4
    )
