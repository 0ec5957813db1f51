"""The table of all kernels, by families."""

# There is one class for each kernel, and one table that registers them, `FAMILIES`. It determines
# which classes files may name, which kernels the command line knows, what the API page lists and
# which examples are tested for conformance.

import jax.numpy as jnp

from kernax.core.functionals.linear_functionals import OfFunctionals
from kernax.core.functionals.stein import SteinKernel
from kernax.core.kernel.kernel import Constant, Custom, Power, Product, Scaled, Sum
from kernax.core.kernel.mahalanobis import Mahalanobis
from kernax.core.kernel.on import On
from kernax.core.operators.feature_map import FeatureMap
from kernax.kernels.basis_expansions import GaussianBasis, PolynomialBasis, SigmoidBasis
from kernax.kernels.combinators import (
    Centred,
    ExpOf,
    GaussianOf,
    Modulated,
    Normalised,
    PolynomialOf,
    Warped,
)
from kernax.kernels.dot_product import BilinearForm, Linear, Polynomial, ShiftedLinear, Tanh
from kernax.kernels.entry import Entry, Points
from kernax.kernels.global_alignment import GlobalAlignment
from kernax.kernels.integers import Coregionalisation, Exchangeable, Herglotz, Precomputed
from kernax.kernels.nonstationary import (
    ArcCosine,
    Brownian,
    BrownianBridge,
    ChangePoint,
    Gibbs,
    IntegratedBrownian,
    LinearSpline,
)
from kernax.kernels.sets import AllSubsets, Intersection, Jaccard, Monomials, Tanimoto
from kernax.kernels.spectrum import AllSubstrings, BlendedSpectrum, Mismatch, Spectrum
from kernax.kernels.stationary import (
    RBF,
    Cosine,
    DampedOscillator,
    GammaExponential,
    LpLaplace,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SpectralMixture,
    ZeroMeanPeriodic,
)
from kernax.kernels.subsequences import AllSubsequences, Subsequence
from kernax.kernels.subset_trees import SubsetTree
from kernax.kernels.tangent_kernels import FisherKernel, TangentKernel


def _weighted(weights, x, z):
    return jnp.sum(jnp.exp(weights) * x * z)


def _weighted_sum(weights, x):
    return jnp.sum(weights * x)


def _growing(rates, x):
    return jnp.exp(rates * x)


def _two_bends(rates, x):
    return jnp.stack([jnp.sin(jnp.sum(rates[0] * x)), jnp.sum(jnp.tanh(rates[1] * x))])


def _log_bell(centre, x):
    return -jnp.sum(jnp.cosh(x - centre))


def _log_quartic(x):
    return -jnp.sum(x**4)


FAMILIES: dict[str, tuple[Entry, ...]] = {
    "Stationary kernels": (
        Entry(RBF, Points.VECTORS, lambda: [RBF(0.8), RBF([0.5, 2.0])], in_expressions=True),
        Entry(
            Matern12,
            Points.VECTORS,
            lambda: [Matern12(1.3), Matern12([0.5, 2.0])],
            in_expressions=True,
        ),
        Entry(Matern32, Points.VECTORS, lambda: [Matern32([0.5, 2.0])], in_expressions=True),
        Entry(Matern52, Points.VECTORS, lambda: [Matern52([0.5, 2.0])], in_expressions=True),
        Entry(Matern, Points.VECTORS, lambda: [Matern(1.2, [0.5, 2.0])], in_expressions=True),
        Entry(
            RationalQuadratic,
            Points.VECTORS,
            lambda: [RationalQuadratic([0.5, 2.0], 1.5)],
            in_expressions=True,
        ),
        Entry(
            GammaExponential,
            Points.VECTORS,
            lambda: [GammaExponential([0.5, 2.0], 1.3), GammaExponential(1.0, 2.0)],
            in_expressions=True,
        ),
        Entry(
            LpLaplace,
            Points.VECTORS,
            lambda: [LpLaplace(0.8), LpLaplace([0.5, 2.0], 1.3, 0.7)],
        ),
        Entry(
            Periodic,
            Points.VECTORS,
            lambda: [Periodic([0.8, 1.5], [1.7, 2.9])],
            in_expressions=True,
        ),
        Entry(
            ZeroMeanPeriodic,
            Points.VECTORS,
            lambda: [ZeroMeanPeriodic([0.8, 1.5], [1.7, 2.9])],
            in_expressions=True,
        ),
        Entry(Cosine, Points.VECTORS, lambda: [Cosine([1.7, 2.9])], in_expressions=True),
        Entry(
            DampedOscillator,
            Points.PLACES,
            lambda: [DampedOscillator(0.3, 3.0), DampedOscillator(0.7, 0.2)],
        ),
        Entry(
            SpectralMixture,
            Points.VECTORS,
            lambda: [
                SpectralMixture([0.7, 0.4], [[0.3, 0.1], [-0.2, 0.5]], [[0.2, 0.3], [0.1, 0.25]])
            ],
        ),
    ),
    "Kernels of inner products": (
        Entry(Linear, Points.VECTORS, lambda: [Linear()], in_expressions=True),
        Entry(
            ShiftedLinear,
            Points.VECTORS,
            lambda: [ShiftedLinear(0.4), ShiftedLinear([0.4, -1.2])],
            in_expressions=True,
        ),
        Entry(
            Polynomial,
            Points.VECTORS,
            lambda: [Polynomial(3, 0.5), Polynomial(2, 0.0)],
            in_expressions=True,
        ),
        Entry(BilinearForm, Points.VECTORS, lambda: [BilinearForm([[1.0, 0.2], [0.3, -0.5]])]),
        Entry(Constant, Points.VECTORS, lambda: [Constant(0.6)], in_expressions=True),
        # Of orders 0 and 2 the first or the second derivative jumps at zero.
        Entry(ArcCosine, Points.NONZERO, lambda: [ArcCosine(0), ArcCosine(1), ArcCosine(2)]),
        Entry(Tanh, Points.VECTORS, lambda: [Tanh(0.5, 0.1, indefinite=True)]),
    ),
    "Nonstationary kernels": (
        Entry(Brownian, Points.PLACES, lambda: [Brownian()]),
        Entry(BrownianBridge, Points.PLACES, lambda: [BrownianBridge()]),
        Entry(IntegratedBrownian, Points.PLACES, lambda: [IntegratedBrownian()]),
        Entry(LinearSpline, Points.PLACES, lambda: [LinearSpline()]),
        Entry(Gibbs, Points.VECTORS, lambda: [Gibbs(Custom(_growing, jnp.array([0.3, -0.2])))]),
        Entry(
            ChangePoint,
            Points.VECTORS,
            lambda: [ChangePoint(RBF(0.8), Linear(), 0.2, 0.5, dimension=1)],
        ),
    ),
    "Kernels of integers": (
        Entry(
            Precomputed,
            Points.INTEGERS,
            lambda: [
                Precomputed(jnp.minimum.outer(jnp.arange(1.0, 6.0), jnp.arange(1.0, 6.0))),
                Precomputed.from_blocks(2 * jnp.eye(3), jnp.ones((3, 2)), 3 * jnp.eye(2)),
            ],
        ),
        Entry(Herglotz, Points.INTEGERS, lambda: [Herglotz([0.4, 0.1, 1.3])]),
        Entry(
            Coregionalisation,
            Points.INTEGERS,
            lambda: [
                Coregionalisation([[0.5], [1.0], [-0.3], [0.8], [0.1]], [0.1, 0.2, 0.0, 0.4, 1.0])
            ],
        ),
        Entry(Exchangeable, Points.INTEGERS, lambda: [Exchangeable(0.3)]),
    ),
    "Kernels of sets": (
        Entry(AllSubsets, Points.SETS, lambda: [AllSubsets([0.5, 2.0])]),
        Entry(Monomials, Points.SETS, lambda: [Monomials([0.5, 2.0])]),
        Entry(Intersection, Points.SETS, lambda: [Intersection()]),
        Entry(Jaccard, Points.SETS, lambda: [Jaccard()]),
        # It warns of a point at zero, which has no features.
        Entry(Tanimoto, Points.NONZERO, lambda: [Tanimoto()]),
    ),
    "Kernels of strings": (
        Entry(Spectrum, Points.STRINGS, lambda: [Spectrum(2), Spectrum(7)], in_expressions=True),
        Entry(
            BlendedSpectrum, Points.STRINGS, lambda: [BlendedSpectrum(3, 0.8)], in_expressions=True
        ),
        Entry(AllSubstrings, Points.STRINGS, lambda: [AllSubstrings(0.8)], in_expressions=True),
        Entry(
            Mismatch, Points.STRINGS, lambda: [Mismatch(3, 1), Mismatch(7, 2)], in_expressions=True
        ),
        Entry(Subsequence, Points.STRINGS, lambda: [Subsequence(3, 0.6)], in_expressions=True),
        Entry(AllSubsequences, Points.STRINGS, lambda: [AllSubsequences(0.6)], in_expressions=True),
    ),
    "Kernels of trees": (Entry(SubsetTree, Points.TREES, lambda: [SubsetTree(0.6)]),),
    "Kernels of time series": (
        Entry(GlobalAlignment, Points.SERIES, lambda: [GlobalAlignment(RBF([0.8, 2.0]))]),
    ),
    "Kernels of other kernels": (
        Entry(Sum, Points.VECTORS, lambda: [RBF() + Linear() + 0.5]),
        Entry(Product, Points.VECTORS, lambda: [RBF() * Polynomial()]),
        Entry(Scaled, Points.VECTORS, lambda: [0.7 * Matern32()]),
        Entry(Power, Points.VECTORS, lambda: [Polynomial(1, 0.3) ** 3]),
        Entry(On, Points.VECTORS, lambda: [On(RBF(), 1) * On(Linear(), slice(0, 1))]),
        Entry(
            Mahalanobis,
            Points.VECTORS,
            lambda: [
                Mahalanobis(Matern32(), [[1.0, 0.4], [-0.3, 0.8]]),
                Mahalanobis(Polynomial(), [[0.5, 1.2]]),
            ],
        ),
        Entry(Normalised, Points.VECTORS, lambda: [Normalised(Polynomial())]),
        Entry(
            Centred,
            Points.VECTORS,
            lambda: [Centred(Matern32(), jnp.array([[0.0, 0.0], [1.0, -0.5]]))],
        ),
        Entry(ExpOf, Points.VECTORS, lambda: [ExpOf(0.5 * Linear())]),
        Entry(PolynomialOf, Points.VECTORS, lambda: [PolynomialOf(RBF(), [0.1, 0.0, 2.0])]),
        Entry(GaussianOf, Points.VECTORS, lambda: [GaussianOf(Polynomial(), 0.3)]),
        Entry(
            Modulated,
            Points.VECTORS,
            lambda: [Modulated(RBF(), Custom(_weighted_sum, jnp.array([0.5, 2.0])))],
        ),
    ),
    "Kernels of linear functionals": (
        Entry(OfFunctionals, Points.FUNCTIONALS, lambda: [OfFunctionals(RBF([0.8, 2.0]))]),
        Entry(
            SteinKernel,
            Points.VECTORS,
            lambda: [
                SteinKernel(RBF([0.8, 2.0]), Custom(_log_bell, jnp.array([0.5, -0.3]))),
                SteinKernel(RationalQuadratic(1.2, 0.5), _log_quartic),
            ],
        ),
    ),
    "Kernels of functions": (
        Entry(
            Warped,
            Points.VECTORS,
            lambda: [Warped(RBF(), Custom(_growing, jnp.array([0.3, -0.2])))],
        ),
        Entry(
            FeatureMap,
            Points.VECTORS,
            lambda: [
                FeatureMap(PolynomialBasis(3)),
                FeatureMap(GaussianBasis([[0.2, 0.3], [0.6, 0.9]], 0.7)),
                FeatureMap(SigmoidBasis([[0.2, 0.3], [0.6, 0.9]], 0.7)),
            ],
        ),
        Entry(Custom, Points.VECTORS, lambda: [Custom(_weighted, jnp.array([0.5, -0.3]))]),
        Entry(
            TangentKernel,
            Points.VECTORS,
            lambda: [TangentKernel(Custom(_two_bends, jnp.array([[0.5, 1.2], [-0.4, 0.8]])))],
        ),
        Entry(
            FisherKernel,
            Points.VECTORS,
            lambda: [
                FisherKernel(Custom(_log_bell, jnp.array([0.5, -0.3]))),
                FisherKernel(
                    Custom(_log_bell, jnp.array([0.5, -0.3])), jnp.array([[1.0, 0.2], [0.2, 2.0]])
                ),
            ],
        ),
    ),
}
KERNELS: tuple[Entry, ...] = tuple(entry for family in FAMILIES.values() for entry in family)
