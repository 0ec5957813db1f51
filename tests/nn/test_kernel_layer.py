"""The layer of inducing points: its formula, the kernel that its features have, derivatives, bad
input.
"""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, assert_close, check_derivatives, needs_x64

import kernax
from kernax.nn import KernelLayer

RBF = kernax.RBF(0.8)
KEY = jax.random.key(0)


@pytest.fixture
def layer(rng):
    return KernelLayer(RBF, rng.normal(size=(4, 2)).astype(DTYPE), n_outputs=3, key=KEY)


@pytest.fixture
def X(rng):
    return rng.normal(size=(6, 2)).astype(DTYPE)


def test_outputs_are_those_of_the_formula(layer, X):
    K = np.asarray(kernax.gram(RBF, layer.inducing), np.float64)
    rows = np.asarray(kernax.gram(RBF, X, layer.inducing), np.float64)
    features = np.linalg.solve(np.linalg.cholesky(K), rows.T).T
    outputs = jax.vmap(layer)(X)
    assert outputs.dtype == DTYPE
    assert_close(outputs, features @ np.asarray(layer.weights), TOLERANCE["solve"])


@needs_x64
def test_over_random_weights_outputs_have_the_covariance_of_the_kernel_at_inducing_points(layer):
    many = KernelLayer(RBF, layer.inducing, n_outputs=20_000, key=KEY)
    outputs = jax.vmap(many)(layer.inducing)
    K = kernax.gram(RBF, layer.inducing)
    # The standard error of each entry is at most sqrt(2 / 20,000) = 0.01; the largest was 0.009.
    np.testing.assert_allclose(outputs @ outputs.T / 20_000, K, atol=0.04)


def test_it_is_a_layer_of_a_sequential_network(layer, X):
    network = eqx.nn.Sequential([eqx.nn.Lambda(jnp.tanh), layer])
    assert_close(network(X[0], key=KEY), layer(jnp.tanh(X[0])), 1e-6)


@needs_x64
def test_the_gradient_matches_finite_differences(layer, X):
    theta, rebuild = kernax.unconstrain(layer)
    of = lambda theta, X: jnp.sum(jnp.sin(jax.vmap(rebuild(theta))(X)))
    check_derivatives(of, (theta, X), rtol=1e-6, atol=1e-8)


def test_other_parameters_do_not_compile_again_and_the_factor_is_computed_once(layer, X):
    chex.clear_trace_counter()
    called = eqx.filter_jit(chex.assert_max_traces(lambda layer, X: jax.vmap(layer)(X), n=1))
    called(layer, X)
    called(jax.tree.map(lambda leaf: 2 * leaf, layer), 2 * X)
    program = str(jax.make_jaxpr(jax.vmap(layer))(X))
    assert "triangular_solve" in program
    assert "6,4,4]" not in program  # no factor for each point


def test_points_of_single_precision_have_outputs_of_single_precision(layer, X):
    assert layer(X[0].astype("f")).dtype == np.float32


@needs_x64
def test_bad_input_is_named(layer, X):
    with pytest.raises(ValueError, match=r"x must be one point .*jax.vmap\(layer\)"):
        layer(X)
    with pytest.raises(ValueError, match="inducing must have shape"):
        KernelLayer(RBF, X[0], 2, key=KEY)
    with pytest.raises(ValueError, match=r"KernelLayer.inducing must be real and finite"):
        KernelLayer(RBF, np.nan * X, 2, key=KEY)
    with pytest.raises(ValueError, match="n_outputs must be a positive integer"):
        KernelLayer(RBF, X, 0, key=KEY)


@needs_x64
def test_without_a_factor_outputs_are_nan(layer, X):
    indefinite = kernax.Custom(lambda _, x, z: -jnp.exp(-jnp.sum((x - z) ** 2)))
    assert np.isnan(KernelLayer(indefinite, layer.inducing, 2, key=KEY)(X[0])).all()
