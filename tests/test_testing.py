"""The shipped conformance suite: it passes for every public kernel, and says what is wrong with a wrong one."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import X64, needs_x64

import kernax
from kernax.testing import PROPERTIES, KernelReport, check_conformance, check_kernel


class Bend(eqx.Module):
    """A feature function with a parameter."""

    slope: jax.Array = kernax.real(default=0.7)

    def __call__(self, x):
        return jnp.sin(self.slope * x) + x


def weighted(parameters, x, z):
    return jnp.sum(jnp.exp(parameters) * x * z)


def soft_sets():
    """Inside the unit square, where every kernel of sets is smooth; two of them the same."""
    X = np.array([[0.2, 0.7], [0.2, 0.7], [0.9, 0.1], [0.4, 0.5], [0.6, 0.3]])
    return X if X64 else X.astype(np.float32)


def texts():
    return kernax.strings.encode(["banana", "banana", "ana", "bandana", "cab"], alphabet="abcdn")


def forest():
    return kernax.trees.encode(["(S (A a) (B b))", "(S (A a) (B b))", "(S (A b) (B b))", "a", "(S (A a) (S (A a) (B b)))"])


def numbers():
    """Inside the unit interval, two of them the same."""
    return soft_sets()[:, :1]


def away_from_zero():
    return stack() + np.array([1.0, 0.5], stack().dtype)


def indices():
    return np.array([0, 0, 3, 1, 4], np.int32)


# One conforming instance (or more) of every public kernel: a new one is entered here in the commit that exports it.
KERNELS = {
    "RBF": kernax.RBF(0.8),
    "RBF-ard": kernax.RBF(np.array([0.5, 2.0])),
    "Matern12": kernax.Matern12(1.3),
    "Matern12-ard": kernax.Matern12(np.array([0.5, 2.0])),
    "Matern32": kernax.Matern32(np.array([0.5, 2.0])),
    "Matern52": kernax.Matern52(np.array([0.5, 2.0])),
    "Matern": kernax.Matern(1.2, np.array([0.5, 2.0])),
    "RationalQuadratic": kernax.RationalQuadratic(np.array([0.5, 2.0]), 1.5),
    "GammaExponential": kernax.GammaExponential(np.array([0.5, 2.0]), 1.3),
    "GammaExponential-2": kernax.GammaExponential(1.0, 2.0),
    "Periodic": kernax.Periodic(np.array([0.8, 1.5]), np.array([1.7, 2.9])),
    "Cosine": kernax.Cosine(np.array([1.7, 2.9])),
    "SpectralMixture": kernax.SpectralMixture(
        np.array([0.7, 0.4]), np.array([[0.3, 0.1], [-0.2, 0.5]]), np.array([[0.2, 0.3], [0.1, 0.25]])
    ),
    "Linear": kernax.Linear(),
    "Polynomial": kernax.Polynomial(3, 0.5),
    "Polynomial-homogeneous": kernax.Polynomial(2, 0.0),
    "BilinearForm": kernax.BilinearForm(np.array([[1.0, 0.2], [0.3, -0.5]])),
    "Constant": kernax.Constant(0.6),
    "Tanh": kernax.Tanh(0.5, 0.1, indefinite=True),
    "Sum": kernax.RBF() + kernax.Linear() + 0.5,
    "Product": kernax.RBF() * kernax.Polynomial(),
    "Scaled": 0.7 * kernax.Matern32(),
    "Power": kernax.Polynomial(1, 0.3) ** 3,
    "Warped": kernax.Warped(kernax.RBF(), Bend()),
    "Warped-network": kernax.Warped(kernax.RBF(), eqx.nn.MLP(2, 2, 3, 1, activation=jnp.tanh, key=jax.random.key(0))),
    "Modulated": kernax.Modulated(kernax.RBF(), kernax.Custom(lambda p, x: jnp.sum(p * x), jnp.array([0.5, 2.0]))),
    "ExpOf": kernax.ExpOf(0.5 * kernax.Linear()),
    "PolynomialOf": kernax.PolynomialOf(kernax.RBF(), np.array([0.1, 0.0, 2.0])),
    "Normalised": kernax.Normalised(kernax.Polynomial()),
    "On": kernax.On(kernax.RBF(), 1) * kernax.On(kernax.Linear(), slice(0, 1)),
    "FeatureMap": kernax.FeatureMap(Bend()),
    "Custom": kernax.Custom(weighted, jnp.array([0.5, -0.3])),
    "Spectrum": kernax.Spectrum(2),
    "Spectrum-compared": kernax.Spectrum(7),
    "BlendedSpectrum": kernax.BlendedSpectrum(3, 0.8),
    "AllSubstrings": kernax.AllSubstrings(0.8),
    "Mismatch": kernax.Mismatch(3, 1),
    "Mismatch-many": kernax.Mismatch(7, 2),
    "Subsequence": kernax.Subsequence(3, 0.6),
    "AllSubsequences": kernax.AllSubsequences(0.6),
    "Normalised-strings": kernax.Normalised(kernax.AllSubsequences(0.6)),
    "AllSubsets": kernax.AllSubsets(np.array([0.5, 2.0])),
    "Monomials": kernax.Monomials(np.array([0.5, 2.0])),
    "Intersection": kernax.Intersection(),
    "Jaccard": kernax.Jaccard(),
    "Tanimoto": kernax.Tanimoto(),
    "SubsetTree": kernax.SubsetTree(0.6),
    "Brownian": kernax.Brownian(),
    "BrownianBridge": kernax.BrownianBridge(),
    "IntegratedBrownian": kernax.IntegratedBrownian(),
    "Gibbs": kernax.Gibbs(kernax.Custom(lambda p, x: jnp.exp(p * x), jnp.array([0.3, -0.2]))),
    "ChangePoint": kernax.ChangePoint(kernax.RBF(0.8), kernax.Linear(), 0.2, 0.5, dimension=1),
    "ArcCosine-0": kernax.ArcCosine(0),
    "ArcCosine-1": kernax.ArcCosine(1),
    "ArcCosine-2": kernax.ArcCosine(2),
    "GaussianOf": kernax.GaussianOf(kernax.Polynomial(), 0.3),
    "Centred": kernax.Centred(kernax.Matern32(), np.array([[0.0, 0.0], [1.0, -0.5]])),
    "Precomputed": kernax.Precomputed(np.minimum.outer(np.arange(1.0, 6.0), np.arange(1.0, 6.0))),
    "Precomputed-blocks": kernax.Precomputed.from_blocks(2 * np.eye(3), np.ones((3, 2)), 3 * np.eye(2)),
    "Herglotz": kernax.Herglotz(np.array([0.4, 0.1, 1.3])),
    "FeatureMap-polynomial": kernax.FeatureMap(kernax.PolynomialBasis(3)),
    "FeatureMap-gaussian": kernax.FeatureMap(kernax.GaussianBasis(np.array([[0.2, 0.3], [0.6, 0.9]]), 0.7)),
    "FeatureMap-sigmoid": kernax.FeatureMap(kernax.SigmoidBasis(np.array([0.2, 0.6]), 0.7)),
    "FeatureMap-bins": kernax.FeatureMap(kernax.IndicatorBins(3, 2)),
}
LACKING = {"Tanh": ("symmetric_and_positive_semidefinite",)}
POINTS = {  # of the kernels that compare something else than vectors of the plane
    **dict.fromkeys(("Brownian", "BrownianBridge", "IntegratedBrownian", "FeatureMap-sigmoid"), numbers),
    **dict.fromkeys(("Precomputed", "Precomputed-blocks", "Herglotz"), indices),
    **dict.fromkeys(("ArcCosine-0", "ArcCosine-2"), away_from_zero),  # at zero the first or second derivative jumps
    "Tanimoto": away_from_zero,  # where it warns that there are no features
    "FeatureMap-bins": soft_sets,
    **dict.fromkeys(("AllSubsets", "Monomials", "Intersection", "Jaccard"), soft_sets),
    "SubsetTree": forest,
    **dict.fromkeys(("Spectrum", "Spectrum-compared", "BlendedSpectrum", "AllSubstrings", "Mismatch", "Mismatch-many"), texts),
    **dict.fromkeys(("Subsequence", "AllSubsequences", "Normalised-strings"), texts),
}


def stack():
    """The points of case K04, two of them the same, and two more."""
    X = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.3, -1.1], [-0.8, 0.6]])
    return X if X64 else X.astype(np.float32)


def public_kernels():
    found = {getattr(kernax, name) for name in dir(kernax) if inspect.isclass(getattr(kernax, name))}
    return {kind for kind in found if issubclass(kind, kernax.AbstractKernel) and not inspect.isabstract(kind)}


def kinds_within(kernel):
    yield type(kernel)
    nodes = jax.tree.leaves(vars(kernel), is_leaf=lambda node: isinstance(node, kernax.AbstractKernel))
    for node in nodes:
        if isinstance(node, kernax.AbstractKernel):
            yield from kinds_within(node)


@needs_x64
def test_every_public_kernel_is_in_the_registry():
    missing = public_kernels() - {type(kernel) for kernel in KERNELS.values()} - {kernax.On}
    assert not missing
    assert kernax.On in set(kinds_within(KERNELS["On"]))


SLOW = [
    "Normalised-strings",
    "AllSubsequences",
    "BlendedSpectrum",
    "Mismatch-many",
    "Mismatch",
    "Subsequence",
    "SubsetTree",
    "Centred",
]  # to compile
if not X64:  # the quick tier has some of each family in float32, and all of them in float64
    QUICK = ["RBF-ard", "Matern32", "Periodic", "Polynomial", "Constant", "Product", "Normalised", "Spectrum", "AllSubsets"]
    SLOW = KERNELS.keys() - QUICK - {"Tanimoto", "Brownian", "ArcCosine-1", "Precomputed", "Herglotz", "FeatureMap-gaussian"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in KERNELS])
def test_every_public_kernel_conforms(name):
    """K04 among others: gradients of sums over duplicate points, for every kernel and parameter."""
    check_conformance(KERNELS[name], POINTS.get(name, stack)(), without=LACKING.get(name, ()))


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

    offset: jax.Array = kernax.real(default=0.1)

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


wrong_square.defjvp(lambda primals, tangents: (wrong_square(*primals), 3 * primals[0] * tangents[0]))


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
    "unsymmetric": (kernax.Custom(lambda _, x, z: jnp.exp(jnp.sum(x - 2 * z))), "symmetric_and_positive_semidefinite"),
    "indefinite": (kernax.Custom(lambda _, x, z: jnp.sum((x - z) ** 2) + 1), "symmetric_and_positive_semidefinite"),
    "a root of zero": (kernax.Custom(plain_root), "gradient_where_points_coincide: d/dx is NaN or inf in reverse mode"),
    "NaN gradient at coincidence": (kernax.Custom(lambda _, x, z: careless(x, z)), "gradient_where_points_coincide"),
    "vector valued": (kernax.Custom(lambda _, x, z: jnp.dot(x, z)[None]), "one_number_in_the_precision_of_the_points"),
    "wrong precision": (kernax.Custom(lambda _, x, z: jnp.dot(x, z).astype(jnp.float16)), "one_number"),
    "false claim": (Claims(), "is_stationary is claimed, but a translation"),
    "too wide a support": (Unbounded(), "inside their declared supports"),
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
    with pytest.raises(AssertionError, match=r"gradient_in_the_points: d/dx.* by central differences"):
        check_conformance(kernel, stack())
    in_parameters = kernax.Custom(lambda p, x, z: wrong_square(p) * jnp.dot(x, z), jnp.array(0.3))
    with pytest.raises(AssertionError, match=r"gradient_in_the_parameters: d/dparameters is .* by central differences"):
        check_conformance(in_parameters, stack())


@needs_x64
def test_only_the_property_that_fails_is_named():
    with pytest.raises(AssertionError) as caught:
        check_conformance(Claims(), stack())
    assert [holds.__name__ for holds in PROPERTIES if holds.__name__ in str(caught.value)] == ["facts_that_hold"]


@needs_x64
def test_a_property_can_be_left_out_by_name_and_only_by_name():
    check_conformance(Claims(), stack(), without=["facts_that_hold"])
    with pytest.raises(ValueError, match="names no property"):
        check_conformance(Claims(), stack(), without=["facts"])


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
    assert check_kernel(looked_up(table), INDICES, tolerance=1e-3).passed


def test_values_that_are_not_finite_do_not_pass():
    report = check_kernel(kernax.Custom(lambda _, i, j: jnp.where(i == j, 1.0, jnp.nan)), INDICES)
    assert not report.passed
    assert "NaN" in str(report)


@needs_x64
def test_a_kernel_that_is_not_scalar_is_refused():
    with pytest.raises(ValueError, match=r"must be a scalar, but Custom returned shape \(2,\)"):
        check_kernel(kernax.Custom(lambda _, x, z: x * z), stack())


def periodic_of_the_distance(_, x, z):
    s = jnp.sum((x - z) ** 2)
    return jnp.exp(-2 * jnp.sin(jnp.pi * jnp.sqrt(s)) ** 2)


@needs_x64
@pytest.mark.parametrize(
    "kernel",
    [kernax.Tanh(1.0, -1.0, indefinite=True), kernax.Custom(periodic_of_the_distance)],
    ids=["tanh", "periodic of the Euclidean distance"],
)
def test_famous_impostors_are_refuted_with_a_witness(kernel):
    """K17."""
    side = np.linspace(0, 1, 4)
    X = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2).astype(np.float64 if X64 else np.float32)
    report = check_kernel(kernel, X)
    assert isinstance(report, KernelReport)
    assert report.symmetric
    K = np.asarray(jax.vmap(lambda x: jax.vmap(lambda z: kernel(x, z))(X))(X), np.float64)
    assert report.witness @ K @ report.witness < -1e-3
    assert report.witness @ K @ report.witness == pytest.approx(report.smallest_eigenvalue, rel=1e-4)
