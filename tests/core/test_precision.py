"""Products of matrices in full precision: on a CPU they are anyway, so that only their traces can
tell.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64, needs_x32
from jax import lax
from jax.extend import core as jex

import kernax
from kernax.core.base.numerics import matmul
from kernax.core.losses.stationarity import values_at_points
from kernax.core.operators.cancellation import compensated_product
from kernax.core.operators.operators import DenseGram

X = np.random.default_rng(0).normal(size=(12, 10))
Y = np.sin(X[:, 0])
SIGNS = np.where(X[:, 0] > 0, 1.0, -1.0)
WEIGHTS = np.arange(12.0)


def products(jaxpr):
    """Every product in a trace, however deep, with its precision."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            yield equation
        for inner in jex.jaxprs_in_params(equation.params):
            yield from products(inner)


def total(value):
    return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(eqx.filter(value, eqx.is_inexact_array)))


def of_blocks(kernel):
    return kernax.kernel_ridge(
        kernel, X, Y, 0.3, block_size=5, bias=True, weights=WEIGHTS, throw=False
    ).value.coefficients


def predictions(kernel):
    process = kernax.condition(
        kernax.GaussianProcess(kernel), X, Y, 0.3, weights=WEIGHTS, throw=False
    ).value
    return jax.vmap(process.mean)(X + 1), jax.vmap(process.variance)(X + 1)


def draw(kernel):
    return kernax.GaussianProcess(kernel).sample(X, key=jax.random.key(0))


LEARNERS = {
    "gram": lambda kernel: kernax.gram(kernel, X),
    "gram of two stacks": lambda kernel: kernax.gram(kernel, X, X + 1),
    "operator": lambda kernel: kernax.gram_operator(kernel, X, ridge=0.1, block_size=5).mv(
        jnp.asarray(Y)
    ),
    "kernel_ridge": lambda kernel: kernax.kernel_ridge(
        kernel, X, Y, 0.3, weights=WEIGHTS, bias=True, throw=False
    ).value(X[0]),
    "kernel_ridge in blocks": of_blocks,
    "leave_one_out": lambda kernel: kernax.leave_one_out(
        kernel, X, Y, 0.3, weights=WEIGHTS, bias=True
    ),
    "condition": predictions,
    "sample": draw,
    "evidence": lambda kernel: kernax.log_marginal_likelihood(kernel, X, Y, 0.3, weights=WEIGHTS),
    "kernel_logistic": lambda kernel: (
        kernax.kernel_logistic(kernel, X, SIGNS, 0.3, throw=False).value.coefficients
    ),
    "svm": lambda kernel: kernax.svm(kernel, X, SIGNS, 1.0, throw=False).value.coefficients,
    "empirical_features": lambda kernel: kernax.bases.empirical_features(kernel, X).coefficients,
    "centred": lambda kernel: kernax.gram(kernax.kernels.Centred(kernel, X), X),
}


@needs_x32
@pytest.mark.parametrize("name", LEARNERS)
def test_no_product_leaves_the_precision_to_the_device(name):
    """In value and gradient: TF32 or bfloat16 products would leave three digits of a distance, a
    residual, an inverse.
    """

    def value(lengthscale):
        return total(LEARNERS[name](2.0 * kernax.RBF(lengthscale) + kernax.Linear()))

    trace = jax.make_jaxpr(jax.value_and_grad(value))(jnp.ones(10))
    found = list(products(trace.jaxpr))
    assert found
    careless = [
        equation
        for equation in found
        if equation.params["precision"] != (lax.Precision.HIGHEST,) * 2
    ]
    assert not careless, careless[0]


def falkon(kernel):
    f = kernax.falkon(kernel, X, Y, 0.3, X[:6], throw=False).value
    return f.values(X)


def ridge_in_features(features):
    f = kernax.kernel_ridge(features, X, Y, 0.3, throw=False).value
    return f.values(X)


def random_features(kernel):
    features = kernax.random_fourier_features(kernel, 3, 10, key=jax.random.key(0))
    return ridge_in_features(features)


def nystrom_features(kernel):
    return ridge_in_features(kernax.nystrom(kernel, X, X[:4]))


APPROXIMATE = {
    "falkon": falkon,
    "random features": random_features,
    "Nystrom features": nystrom_features,
    "blocks": of_blocks,
}


@needs_x32
@pytest.mark.parametrize("name", APPROXIMATE)
@pytest.mark.parametrize("requested", ["TF32_TF32_F32_X3", "tensorfloat32"])
def test_only_products_of_features_and_coefficients_follow_a_split_that_is_requested(
    name, requested, monkeypatch
):
    """On a GPU. The distances of the Gram matrix keep full precision, and plain TF32, which a
    network may have asked for, changes nothing.
    """
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")

    def value(lengthscale):
        return total(APPROXIMATE[name](kernax.RBF(lengthscale)))

    with jax.default_matmul_precision(requested):
        trace = jax.make_jaxpr(jax.value_and_grad(value))(jnp.ones(10))
    precisions = [equation.params["precision"] for equation in products(trace.jaxpr)]
    split = [precision for precision in precisions if precision != (lax.Precision.HIGHEST,) * 2]
    assert bool(split) == (requested == "TF32_TF32_F32_X3")
    assert set(split) <= {lax.DotAlgorithmPreset.TF32_TF32_F32_X3}
    assert len(split) < len(precisions)


@pytest.mark.slow
@needs_x32
def test_a_cpu_computes_in_full_precision_whatever_is_requested():
    kernel = kernax.RBF(jnp.ones(10))
    with jax.default_matmul_precision("BF16_BF16_F32_X6"):
        values = falkon(kernel)
    np.testing.assert_array_equal(values, falkon(kernel))


def test_of_terms_that_cancel_more_is_left_than_in_a_product(rng):
    """Rows of K that are the same but for a little: next to the sum in the widest floats, 100 times
    closer in float64, 10 in float32; and the same where nothing cancels.
    """
    v = rng.normal(size=300).astype(DTYPE)
    K = (1e6 + rng.normal(size=(200, 300))).astype(DTYPE)
    K[:, 0] = -(K[:, 1:] @ v[1:]) / v[0]
    K[100:] = rng.normal(size=(100, 300))
    exact = K.astype(np.longdouble) @ v.astype(np.longdouble)
    K, v = jnp.asarray(K), jnp.asarray(v)
    off = [
        np.max(abs(np.reshape(np.asarray(f(K, v)) - exact, (2, 100))), 1)
        for f in (matmul, compensated_product)
    ]
    assert off[1][0] < off[0][0] / (100 if X64 else 10)
    np.testing.assert_array_less(off[1][1], 1e3 * np.finfo(DTYPE).eps)


def test_in_a_batch_each_member_has_the_values_that_it_has_alone(rng):
    """Of two, one has values of which half of the digits cancel, and takes careful products."""
    n = 60
    near = np.exp(-((rng.normal(size=(n, 1)) - rng.normal(size=(1, n))) ** 2) * 1e-9)
    grams = np.stack([near, np.eye(n)]).astype(DTYPE)
    grams = (grams + grams.transpose(0, 2, 1)) / 2
    a = rng.normal(size=(2, n)).astype(DTYPE)
    a[0] -= np.mean(a[0])

    def total(K, a):
        f = values_at_points(DenseGram(K), a)
        return jnp.sum(jnp.cos(f)), f

    value_and_grad = jax.value_and_grad(total, (0, 1), has_aux=True)
    (_, together), slopes = jax.jit(jax.vmap(value_and_grad))(grams, a)
    for i, K in enumerate(grams):
        (_, alone), slopes_alone = jax.jit(value_and_grad)(K, a[i])
        # With JAX 0.12 they are 2e-6 eps apart.
        apart = 0 if jax.__version_info__ < (0, 12) else 1e-5 * np.finfo(DTYPE).eps
        np.testing.assert_allclose(together[i], alone, rtol=0, atol=apart)
        for one, other in zip(slopes, slopes_alone):
            np.testing.assert_allclose(one[i], other, rtol=1e-6)
    exact = grams[0].astype(np.longdouble) @ a[0].astype(np.longdouble)
    off = [np.max(abs(np.asarray(f) - exact)) for f in (together[0], matmul(grams[0], a[0]))]
    assert off[0] < off[1] / 3
