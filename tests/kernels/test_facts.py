"""What a kernel knows about itself, and what it refuses to be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, needs_x64

import kernax
from kernax.core.kernel.kernel import as_kernel

X = np.random.default_rng(0).normal(size=(5, 2)).astype(DTYPE)
ARD = np.array([0.5, 2.0])
RBF, LINEAR, PERIODIC = kernax.RBF(0.8), kernax.Linear(), kernax.Periodic()
MIXTURE = kernax.SpectralMixture(np.ones(1), np.full((1, 2), 0.3), np.full((1, 2), 0.2))

# kernel, is_stationary, is_homogeneous
FACTS = {
    "RBF": (RBF, True, True),
    "Matern12": (kernax.Matern12(), True, True),
    "Matern32": (kernax.Matern32(), True, True),
    "Matern52": (kernax.Matern52(), True, True),
    "Matern": (kernax.Matern(0.8), True, True),
    "RationalQuadratic": (kernax.RationalQuadratic(), True, True),
    "GammaExponential": (kernax.kernels.GammaExponential(1.0, 1.3), True, True),
    "Constant": (kernax.Constant(0.4), True, True),
    "RBF with a lengthscale per dimension": (kernax.RBF(ARD), True, False),
    "Matern12 with a lengthscale per dimension": (kernax.Matern12(ARD), True, False),
    "Periodic": (PERIODIC, True, False),
    "ZeroMeanPeriodic": (kernax.kernels.ZeroMeanPeriodic(), True, False),
    "Cosine": (kernax.kernels.Cosine(1.7), True, False),
    "SpectralMixture": (MIXTURE, True, False),
    "Linear": (LINEAR, False, False),
    "Polynomial": (kernax.Polynomial(), False, False),
    "BilinearForm": (kernax.kernels.BilinearForm(np.eye(2)), False, False),
    "Tanh": (kernax.kernels.Tanh(indefinite=True), False, False),
    "FeatureMap": (kernax.FeatureMap(jnp.sin), False, False),
    "Custom": (kernax.Custom(lambda _, x, z: jnp.sum(x * z)), False, False),
    "sum of homogeneous": (RBF + kernax.Matern32() + 0.3, True, True),
    "sum with ARD": (RBF + kernax.RBF(ARD), True, False),
    "sum with Linear": (RBF + LINEAR, False, False),
    "product of homogeneous": (RBF * kernax.Matern52(), True, True),
    "product with Periodic": (RBF * PERIODIC, True, False),
    "product with Linear": (RBF * LINEAR, False, False),
    "scaled": (2.0 * RBF, True, True),
    "scaled ARD": (2.0 * kernax.RBF(ARD), True, False),
    "power": (RBF**2, True, True),
    "power of Linear": (LINEAR**2, False, False),
    "ExpOf": (kernax.kernels.ExpOf(RBF), True, True),
    "PolynomialOf": (kernax.kernels.PolynomialOf(PERIODIC, np.ones(3)), True, False),
    "Normalised": (kernax.Normalised(2.0 * RBF), True, True),
    "Normalised Linear": (kernax.Normalised(LINEAR), False, False),
    "On": (kernax.On(RBF, 0), True, False),
    "On of Linear": (kernax.On(LINEAR, 0), False, False),
    "Warped": (kernax.Warped(RBF, jnp.sin), False, False),
    "Modulated": (kernax.kernels.Modulated(RBF, jnp.sum), False, False),
    "deep": (kernax.kernels.ExpOf(2.0 * (RBF + kernax.Normalised(PERIODIC)) ** 2), True, False),
    "deep with one that is not": (
        kernax.kernels.ExpOf(2.0 * (RBF + kernax.Normalised(LINEAR + 1.0)) ** 2),
        False,
        False,
    ),
}


def change(kernel, moved):
    a, b = (np.asarray(kernax.gram(kernel, points)) for points in (X, moved))
    return np.max(np.abs(a - b))


@needs_x64
@pytest.mark.parametrize("name", FACTS)
def test_a_kernel_knows_what_leaves_it_unchanged_and_nothing_else_does(name):
    """K9: also through the combinators of K7. Points rounded after a motion differ in their last
    digit, and so do values.
    """
    kernel, stationary, homogeneous = FACTS[name]
    assert (kernel.is_stationary, kernel.is_homogeneous) == (stationary, homogeneous)
    rng = np.random.default_rng(3)
    by_translation = change(kernel, X + rng.normal(size=2))
    assert by_translation < 1e-12 if stationary else by_translation > 1e-3
    if stationary:
        rotations = [np.linalg.qr(rng.normal(size=(2, 2)))[0] for _ in range(3)]
        by_rotation = max(change(kernel, X @ rotation) for rotation in rotations)
        assert by_rotation < 1e-12 if homogeneous else by_rotation > 1e-3


# K8: refusals.

NAN = float("nan")
REFUSED = {
    "a negative scale": (lambda: -2.0 * RBF, r"Scaled\.scale must be in \[0, inf\)"),
    "a negative scale on the right": (lambda: RBF * -2.0, r"Scaled\.scale must be in \[0, inf\)"),
    "a negative NumPy scale": (lambda: np.float64(-2.0) * RBF, r"Scaled\.scale"),
    "division by a negative number": (lambda: RBF / -2.0, r"Scaled\.scale"),
    "a negative constant": (lambda: RBF + -1.0, r"Constant\.value"),
    "minus a kernel": (
        lambda: -RBF,
        "minus a kernel is not a kernel in general.*positive semidefinite",
    ),
    "a difference": (lambda: RBF - LINEAR, "a difference of kernels is not a kernel in general"),
    "a difference with a number": (lambda: RBF - 1.0, "a difference of kernels"),
    "a number minus a kernel": (lambda: 1.0 - RBF, "a difference of kernels"),
    "a NumPy number minus a kernel": (lambda: np.float64(1.0) - RBF, "a difference of kernels"),
    "a logarithm": (lambda: np.log(RBF), "numpy.log of a kernel is not a kernel in general"),
    "a root": (lambda: np.sqrt(RBF), "numpy.sqrt of a kernel"),
    "a sum with a class": (
        lambda: RBF + kernax.Linear,
        "kernel must be a kernel, but is the class Linear: call it",
    ),
    "a product with a class": (
        lambda: kernax.Linear * RBF,
        "kernel must be a kernel, but is the class Linear: call it",
    ),
    "a scaled class": (
        lambda: kernax.kernels.Scaled(kernax.Linear, 2.0),
        "is the class Linear: call it",
    ),
    "a sum of nothing": (lambda: kernax.kernels.Sum(), "Sum takes one kernel or more"),
    "a product of nothing": (lambda: kernax.kernels.Product(), "Product takes one kernel or more"),
    "features by a class": (
        lambda: kernax.FeatureMap(kernax.bases.PolynomialBasis),
        "is the class PolynomialBasis: call it",
    ),
    "negative coefficients": (
        lambda: kernax.kernels.PolynomialOf(RBF, np.array([1.0, -0.1])),
        r"PolynomialOf\.coefficients must be in \[0, inf\)",
    ),
    "no coefficients": (
        lambda: kernax.kernels.PolynomialOf(RBF, np.array([])),
        "coefficients must have shape",
    ),
    "an indefinite B": (
        lambda: kernax.kernels.BilinearForm.from_matrix(np.array([[1.0, 2.0], [2.0, 1.0]])),
        "B must be positive semidefinite, but has the eigenvalue -1",
    ),
    "an unsymmetric B": (
        lambda: kernax.kernels.BilinearForm.from_matrix(np.array([[1.0, 0.5], [0.0, 1.0]])),
        "B must be symmetric",
    ),
    "a B that is not square": (
        lambda: kernax.kernels.BilinearForm.from_matrix(np.ones((2, 3))),
        "square",
    ),
    "a B without entries": (
        lambda: kernax.kernels.BilinearForm.from_matrix(np.ones((0, 0))),
        "square",
    ),
    "a B of NaN": (
        lambda: kernax.kernels.BilinearForm.from_matrix(np.array([[1.0, NAN], [NAN, 1.0]])),
        "B must be finite, but holds NaN",
    ),
    "a factor without columns": (
        lambda: kernax.kernels.BilinearForm(np.ones((2, 0))),
        r"factor must have shape \(d, r\), r >= 1",
    ),
    "a negative offset": (
        lambda: kernax.Polynomial(2, -0.1),
        r"Polynomial\.offset must be in \[0, inf\)",
    ),
    "degree 2.0": (lambda: kernax.Polynomial(2.0), "degree must be a positive integer, but is 2.0"),
    "degree 0": (lambda: kernax.Polynomial(0), "degree must be a positive integer, but is 0"),
    "degree -1": (lambda: kernax.Polynomial(-1), "degree must be a positive integer"),
    "degree True": (
        lambda: kernax.Polynomial(True),
        "degree must be a positive integer, but is True",
    ),
    "power 0": (lambda: RBF**0, "degree must be a positive integer, but is 0"),
    "power True": (lambda: RBF**True, "degree must be a positive integer, but is True"),
    "degree 1/2": (lambda: RBF**0.5, "other powers of a kernel are not kernels"),
    "power -1": (lambda: RBF**-1, "degree must be a positive integer"),
    "gamma of 0": (
        lambda: kernax.kernels.GammaExponential(1.0, 0.0),
        r"GammaExponential\.gamma must be in \(0, 2\]",
    ),
    "gamma above 2": (
        lambda: kernax.kernels.GammaExponential(1.0, 2.01),
        r"GammaExponential\.gamma must be in \(0, 2\]",
    ),
    "tanh": (lambda: kernax.kernels.Tanh(), "not positive semidefinite.*indefinite=True"),
    "a lengthscale of 0": (
        lambda: kernax.RBF(0.0),
        r"RBF\.lengthscale must be in \(0, inf\) and finite, but is 0",
    ),
    "a negative lengthscale": (
        lambda: kernax.Matern32(-1.0),
        r"Matern32\.lengthscale .* but is -1",
    ),
    "a period of 0": (lambda: kernax.Periodic(1.0, 0.0), r"Periodic\.period"),
    "an order of 0": (lambda: kernax.Matern(0.0), r"Matern\.nu"),
    "an alpha of 0": (lambda: kernax.RationalQuadratic(1.0, 0.0), r"RationalQuadratic\.alpha"),
    "a spectral mixture of nothing": (
        lambda: kernax.SpectralMixture(np.ones(0), np.ones((0, 2)), np.ones((0, 2))),
        "SpectralMixture needs weights .* but got shapes",
    ),
    "shapes of a spectral mixture": (
        lambda: kernax.SpectralMixture(np.ones(2), np.ones((1, 2)), np.ones((1, 2))),
        r"SpectralMixture needs weights \(q,\), means \(q, d\) and scales \(q, d\)",
    ),
}


@needs_x64
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_a_kernel_is_refused_with_a_reason(what):
    """K8."""
    make, words = REFUSED[what]
    with pytest.raises(ValueError, match=words):
        make()


@needs_x64
def test_a_text_is_no_kernel_and_the_message_says_what_to_write():
    with pytest.raises(ValueError, match="the text 'rbf': call the class of that name"):
        as_kernel("rbf")


def test_a_kernel_is_printed_with_its_numbers_and_also_while_tracing():
    """Of two kernels in a grid one could not see which is which."""
    kernel = 3.0 * kernax.RBF([0.5, 2.0]) + kernax.Linear()
    printed = "Sum(terms=(Scaled(kernel=RBF(lengthscale=[0.5, 2.0]), scale=3.0), Linear()))"
    assert repr(kernel) == printed
    assert repr(kernax.Model(2.0 * kernax.RBF(0.5), 0.25)) == (
        "Model(kernel=Scaled(kernel=RBF(lengthscale=0.5), scale=2.0), ridge=0.25)"
    )
    prior = kernax.GaussianProcess(kernax.RBF(0.5), kernax.ConstantMean(1.5))
    said = "GaussianProcess(covariance=RBF(lengthscale=0.5), mean=ConstantMean(value=1.5))"
    assert repr(prior) == said
    assert repr(kernax.likelihoods.StudentT(4.0, 0.5)) == "StudentT(degrees=4.0, scale=0.5)"
    assert repr(kernax.priors.Normal(1.0, 2.0)) == "Normal(mean=1.0, deviation=2.0)"
    shown = []
    jax.jit(lambda kernel: shown.append(repr(kernel)))(kernel)
    assert shown[0].startswith("Sum(")


@needs_x64
def test_what_lies_at_the_edge_is_allowed():
    for kernel in (
        0.0 * RBF,
        kernax.Polynomial(np.int64(1), 0.0),
        kernax.kernels.GammaExponential(1.0, 2.0),
        kernax.kernels.PolynomialOf(RBF, np.array([0.0, 1.0])),
        kernax.kernels.BilinearForm.from_matrix(np.zeros((2, 2))),
        kernax.kernels.BilinearForm.from_matrix(np.array([[1.0, 1.0], [1.0, 1.0]])),
    ):
        assert np.all(np.isfinite(kernax.gram(kernel, X)))
