"""Points near to functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from conftest import DTYPE, TOLERANCE, assert_close, check_derivatives, needs_x64, untyped

import kernax
from kernax.errors import BreakdownError

rng = np.random.default_rng(0)
ANGLES = rng.uniform(0, 2 * np.pi, 40)
RING = (np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1) + 0.05 * rng.normal(size=(40, 2))).astype(
    DTYPE
)
FAR = np.array([1.3, 0.2], DTYPE)


def projected(kernel, x, **options):
    """The function of a point's leading components."""
    components = kernax.kernel_pca(kernel, RING, 4, throw=False, **options).value
    return components.reconstruction(components(x))


def distance(f, x):
    """`|k(x, .) - f|^2`, written out."""
    row = np.asarray(kernax.gram(f.kernel, x[None], f.points))[0]
    square = np.asarray(f.coefficients) @ np.asarray(kernax.gram(f.kernel, f.points))
    return (
        float(f.kernel(jnp.asarray(x), jnp.asarray(x)))
        - 2 * row @ np.asarray(f.coefficients)
        + square @ np.asarray(f.coefficients)
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fixed_point", "gradients"])
def test_a_point_off_the_ring_is_brought_back_to_it(method):
    f = projected(kernax.RBF(), FAR)
    found = kernax.pre_image(f, method=method)
    assert abs(np.linalg.norm(found.value) - 1) < 0.05 < np.linalg.norm(FAR) - 1
    np.testing.assert_allclose(
        found.stats["distance"] ** 2, distance(f, found.value), atol=10 * TOLERANCE["value"]
    )


@pytest.mark.nightly
@needs_x64
def test_it_is_the_minimum_that_scipy_finds():
    kernel = kernax.RBF(np.array([1.0, 1.5])) * 1.0
    f = projected(kernel, FAR)
    peer = scipy.optimize.minimize(lambda x: distance(f, x), FAR, tol=1e-12)
    for start in (None, FAR):
        found = kernax.pre_image(f, start)
        np.testing.assert_allclose(found.value, peer.x, atol=1e-5)


@pytest.mark.slow
@needs_x64
@needs_x64
def test_it_is_exact_where_the_terms_of_its_objective_cancel():
    """Near zero, rounding of the objective was mistaken for a rise: the last steps were refused."""
    X = np.random.default_rng(3).normal(size=(9, 2))[:5]
    c = jnp.asarray([0.5, 0.3, 0.2, 0.1, 0.2])
    kernel = kernax.RBF(1.1)
    objective = lambda x: 1 - 2 * jnp.sum(c * jax.vmap(lambda point: kernel(x, point))(X))
    found = kernax.pre_image(kernax.KernelExpansion(kernel, X, c, jnp.zeros(()))).value
    assert abs(objective(found)) < 0.1
    step = jnp.linalg.solve(jax.hessian(objective)(found), jax.grad(objective)(found))
    np.testing.assert_allclose(step, 0, atol=1e-14)


def test_whitened_components_have_the_same_reconstruction():
    plain = projected(kernax.RBF(), FAR)
    whitened = projected(kernax.RBF(), FAR, whiten=True)
    assert_close(whitened.coefficients, plain.coefficients)


@pytest.mark.slow
@needs_x64
def test_a_reconstruction_by_all_components_is_the_point_itself():
    components = kernax.kernel_pca(kernax.RBF(), RING, 39).value
    f = components.reconstruction(components(RING[3]))
    found = kernax.pre_image(f, RING[3] + 0.01)
    np.testing.assert_allclose(found.value, RING[3], atol=1e-6)
    np.testing.assert_allclose(found.stats["distance"], 0, atol=1e-6)


@pytest.mark.nightly
@needs_x64
@pytest.mark.parametrize("method", ["fixed_point", "gradients"])
def test_derivatives_go_through_the_components(method):
    def denoised(scale, x):
        return kernax.pre_image(projected(kernax.RBF(scale), x), method=method, throw=False).value

    check_derivatives(denoised, (jnp.asarray(1.0), jnp.asarray(FAR)), rtol=1e-6, atol=1e-7)


@pytest.mark.slow
@needs_x64
def test_a_batch_of_points_is_a_loop():
    components = kernax.kernel_pca(kernax.RBF(), RING, 4).value
    points = jnp.asarray(RING[:3] * 1.2)
    denoised = lambda x: (
        kernax.pre_image(components.reconstruction(components(x)), throw=False).value
    )
    batch = jax.jit(jax.vmap(denoised))(points)
    for i in range(3):
        np.testing.assert_allclose(batch[i], denoised(points[i]), atol=1e-9)


@pytest.mark.slow
@needs_x64
def test_a_mean_of_a_cluster_has_a_pre_image():
    two = np.concatenate([RING * 0.1, RING * 0.1 + 3.0])
    key = jax.random.key(0)
    f = kernax.kernel_kmeans(kernax.RBF(), two, 2, key=key).value.function
    for j in range(2):
        one = kernax.KernelExpansion(f.kernel, f.points, f.coefficients[:, j], f.bias[j])
        x = kernax.pre_image(one).value
        near = min(np.linalg.norm(x - two[:40].mean(0)), np.linalg.norm(x - two[40:].mean(0)))
        assert near < 0.01


@pytest.mark.slow
@needs_x64
def test_what_has_no_pre_image_is_refused_or_fails():
    f = projected(kernax.RBF(), FAR)
    search = untyped(kernax.pre_image)
    with pytest.raises(ValueError, match="takes one function, but f has outputs of shape"):
        search(kernax.kernel_pca(kernax.RBF(), RING, 2).value.function)
    with pytest.raises(ValueError, match=r"f must be a KernelExpansion, .* of type RBF"):
        search(kernax.RBF())
    with pytest.raises(ValueError, match="method must be one of fixed_point, gradients"):
        search(f, method="newton")
    with pytest.raises(ValueError, match="is for stationary kernels, and Sum is not"):
        search(projected(kernax.RBF() + kernax.Linear(), FAR), method="fixed_point")
    with pytest.raises(ValueError, match=r"start must have shape \(2,\), but has shape \(3,\)"):
        search(f, np.ones(3))
    words = kernax.strings.encode(["abba", "baba", "aab"])
    spelt = kernax.kernel_pca(kernax.Spectrum(2), words, 1).value
    with pytest.raises(ValueError, match="points that are vectors"):
        search(spelt.reconstruction(jnp.ones(1)))
    components = kernax.kernel_pca(kernax.RBF(), RING, 2).value
    with pytest.raises(ValueError, match=r"projections must have shape \(2,\), those of one point"):
        components.reconstruction(components.values(RING))
    with pytest.raises(BreakdownError):
        search(f, FAR + 100.0)  # where the distance is flat
    nothing = kernax.KernelExpansion(f.kernel, f.points, f.coefficients * jnp.nan, f.bias)
    assert search(nothing, throw=False).result == kernax.RESULTS.nonfinite
