"""Cases that kernel libraries get wrong: offsets, extreme lengthscales, overflow, shapes,
integers.
"""

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import X64, marked, needs_x64

import kernax
from kernax.core.base.numerics import squared_distance
from kernax.errors import NonFiniteError

ONE = np.float32(1)


def squares(a, b):
    return jax.vmap(lambda x: jax.vmap(lambda z: squared_distance(x, z, jnp.asarray(ONE)))(b))(a)


@pytest.mark.slow
def test_a_distance_far_from_the_origin_is_exact_in_float32_and_so_is_its_gradient():
    """K01."""
    a, b = jnp.asarray([[1e4]], jnp.float32), jnp.asarray([[10001.0]], jnp.float32)
    assert squares(a, b)[0, 0] == 1.0
    assert jax.grad(lambda a: squares(a, b)[0, 0])(a)[0, 0] == -2.0
    single = lambda x, z: squared_distance(x, z, jnp.asarray(ONE))
    assert single(a[0], b[0]) == 1.0
    assert jax.grad(single)(a[0], b[0])[0] == -2.0
    assert jax.grad(single, 1)(a[0], b[0])[0] == 2.0


@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4, 1e6])
def test_a_float32_gram_matrix_is_right_at_any_offset(offset):
    """K02."""
    X = (np.random.default_rng(0).normal(size=(50, 3)) + offset).astype(np.float32)
    K = np.asarray(kernax.gram(2.5 * kernax.RBF(), X))
    exact = ((X[:, None].astype(np.float64) - X[None]) ** 2).sum(-1)
    assert K.dtype == np.float32
    assert np.max(np.abs(K - 2.5 * np.exp(-exact / 2))) <= 2.5e-6
    assert np.max(np.abs(np.asarray(kernax.gram(kernax.RBF(), X)) - np.exp(-exact / 2))) <= 1e-6
    assert np.array_equal(K, K.T)
    assert np.all(np.diagonal(K) == np.float32(2.5))
    assert np.all(np.asarray(squares(X, X)) >= 0)


@pytest.mark.parametrize("d", [9, 40])
def test_squared_distances_are_never_negative_in_many_dimensions_either(d):
    """K02's family: nearly equal points, where the expanded form cancels."""
    X = np.repeat(np.random.default_rng(0).normal(size=(10, d)), 3, 0).astype(np.float32)
    X = X + 1e-4 * np.random.default_rng(1).normal(size=X.shape).astype(np.float32)
    K = np.asarray(kernax.gram(kernax.RBF(), X))
    assert np.all(np.asarray(squares(X, X)) >= 0)
    assert np.max(K) == 1
    assert np.array_equal(K, K.T)
    assert np.all(np.diagonal(K) == 1)


KINDS = [kernax.RBF, kernax.Matern12, kernax.Matern32, kernax.Matern52]


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_lengthscales_give_zero_or_one_and_no_nan(kind):
    """K08."""
    x, z = jnp.zeros(1, jnp.float32), jnp.ones(1, jnp.float32)
    value = jax.jit(lambda lengthscale, x, z: kind(lengthscale)(x, z))
    gradient = jax.jit(
        jax.grad(lambda lengthscale, x, z: kind(lengthscale)(x, z), argnums=(0, 1, 2))
    )
    small, large = jnp.asarray(1e-25, jnp.float32), jnp.asarray(1e10, jnp.float32)
    assert value(small, x, z) == 0
    assert all(np.all(np.asarray(g) == 0) for g in gradient(small, x, z))
    assert value(large, x, z) == 1
    assert all(np.all(np.abs(g) < 1e-8) for g in gradient(large, x, z))
    assert value(small, x, x) == 1
    assert all(np.all(np.asarray(g) == 0) for g in gradient(small, x, x))


def test_an_overflow_is_an_error_that_names_the_kernel_and_the_remedy():
    """K09."""
    X = 1e4 * np.ones((2, 3), np.float32)
    with pytest.raises(NonFiniteError, match=r"Polynomial .*rescale inputs"):
        kernax.gram(kernax.Polynomial(10), X)
    with pytest.raises(NonFiniteError, match="rescale inputs"):
        kernax.gram(kernax.Polynomial(10), X, X)


@needs_x64
def test_what_overflows_in_float32_is_right_in_float64():
    """K09."""
    K = kernax.gram(kernax.Polynomial(10), 1e4 * np.ones((2, 3)))
    np.testing.assert_allclose(K, 5.905e84, rtol=1e-3)


X2, X3 = np.ones((4, 2), np.float32), np.ones((4, 3), np.float32)
MISSHAPED = {
    "a lengthscale of shape (2, 1)": (
        lambda: kernax.gram(kernax.RBF(np.ones((2, 1))), X2),
        [r"\(2, 1\)", r"\(2,\)", "pass a"],
    ),
    "three lengthscales in two dimensions": (
        lambda: kernax.gram(kernax.RBF(np.ones(3)), X2),
        [r"\(3,\)", r"\(2,\)", "pass a"],
    ),
    "three periods in two dimensions": (
        lambda: kernax.gram(kernax.Periodic(1.0, np.ones(3)), X2),
        [r"\(3,\)", r"\(2,\)", "pass a"],
    ),
    "a stack of numbers": (
        lambda: kernax.gram(kernax.RBF(), X2[:, 0]),
        [r"shape \(\)", r"\(n, 1\)", r"X\[:, None\]"],
    ),
    "a stack of numbers, Linear": (
        lambda: kernax.gram(kernax.Linear(), X2[:, 0]),
        [r"shape \(\)", r"X\[:, None\]"],
    ),
    "two dimensions against three": (
        lambda: kernax.gram(kernax.RBF(), X3, X2),
        [r"\(3,\)", r"\(2,\)", "same d"],
    ),
    "two against three, Linear": (
        lambda: kernax.gram(kernax.Linear(), X3, X2),
        [r"\(3,\)", r"\(2,\)", "same d"],
    ),
    "a factor for three dimensions": (
        lambda: kernax.gram(kernax.kernels.BilinearForm(np.ones((3, 1))), X2),
        [r"\(3,\)", r"\(2,\)"],
    ),
    "a dimension that is not there": (
        lambda: kernax.gram(kernax.On(kernax.RBF(), 2), X2),
        [r"\(2,\)", "2"],
    ),
    "a slice without dimensions": (
        lambda: kernax.gram(kernax.On(kernax.RBF(), slice(5, 9)), X2),
        [r"slice\(5, 9", r"\(2,\)"],
    ),
    "a key that is not there": (
        lambda: kernax.gram(kernax.On(kernax.RBF(), "b"), {"a": X2}),
        ["'b'", r"are \['a'\]"],
    ),
    "a part that is not there": (
        lambda: kernax.gram(kernax.On(kernax.RBF(), 2), (X2, X3)),
        ["2", r"\[-2, -1, 0, 1\]"],
    ),
    "parts of a string": (
        lambda: kernax.gram(kernax.On(kernax.Spectrum(1), 0), kernax.strings.encode(["ab"])),
        ["a point is a Strings"],
    ),
    "no function": (
        lambda: kernax.Warped(kernax.RBF(), 3),
        ["phi must be a function or a module, but is 3"],
    ),
    "a class of kernels": (lambda: kernax.Normalised(kernax.RBF), ["the class RBF"]),
    "a kernel of integers": (
        lambda: kernax.gram(kernax.Custom(lambda _, x, z: jnp.sum(x == z)), X2),
        ["a kernel must return a real scalar, but Custom returns int"],
    ),
    "a mixed point": (
        lambda: kernax.gram(kernax.RBF(), {"a": X2}),
        ["dict", r"On\(kernel, where\)"],
    ),
}


@needs_x64
@pytest.mark.parametrize("what", MISSHAPED)
def test_wrong_shapes_are_refused_with_both_shapes_and_the_remedy_before_anything_compiles(what):
    """K11."""
    make, words = MISSHAPED[what]
    for word in words:  # the first of these calls compiles the check for finite values
        with pytest.raises(ValueError, match=word):
            make()
    compiled = []

    def listen(event, duration, **_):
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        with pytest.raises(ValueError):
            make()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert not compiled


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_integers_are_numbers_and_do_not_wrap(dtype):
    """K13: 0 - 20 in uint8 is 236."""
    X = np.array([[0], [20]], dtype)
    floats = np.array([[0.0], [20.0]], np.float64 if X64 else np.float32)
    for kernel in (
        kernax.RBF(20.0),
        kernax.Linear(),
        kernax.Periodic(1.0, 7.0),
        kernax.Polynomial(),
    ):
        assert np.array_equal(kernax.gram(kernel, X), kernax.gram(kernel, floats))
    assert kernax.gram(kernax.Linear(), X)[1, 1] == 400
    np.testing.assert_allclose(
        -2 * 20.0**2 * np.log(kernax.gram(kernax.RBF(20.0), X)[0, 1]), 400, rtol=1e-6
    )


def test_booleans_are_numbers():
    """K13."""
    X = np.array([[False, True], [True, True]])
    floats = X.astype(np.float64 if X64 else np.float32)
    for kernel in (kernax.RBF(), kernax.Linear()):
        assert np.array_equal(kernax.gram(kernel, X), kernax.gram(kernel, floats))


CONSTANT_WHERE_SMALL = {
    "ChangePoint": lambda width: kernax.ChangePoint(kernax.RBF(), 2.0 * kernax.RBF(), 0.3, width),
    "Gibbs": lambda lengthscale: kernax.kernels.Gibbs(
        kernax.Custom(lambda lengthscale, x: lengthscale * (1 + x[0] ** 2), lengthscale)
    ),
    "Periodic": kernax.Periodic,
    "ZeroMeanPeriodic": kernax.kernels.ZeroMeanPeriodic,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", marked(pytest.mark.nightly, CONSTANT_WHERE_SMALL, "ZeroMeanPeriodic")
)
def test_derivatives_are_right_where_a_small_scale_leaves_a_kernel_constant(name):
    """0 * inf is NaN where the square of a scale underflows, below 1e-19 and 1e-154."""
    make = CONSTANT_WHERE_SMALL[name]
    powers = np.arange(-300.0, -2, 4) if X64 else np.arange(-36.0, -2)
    scales = jnp.asarray(10**powers)
    x, z = jnp.asarray([0.1]), jnp.asarray([0.83])
    # Where x is below the change, at 0.3, and z above it, the kernel is zero.
    slopes = jax.vmap(jax.grad(lambda scale: make(scale)(x, z)))
    in_points = jax.vmap(jax.grad(lambda scale, x: make(scale)(x, z), 1), (0, None))
    expected = np.zeros(len(powers))
    if name == "ZeroMeanPeriodic":  # -m / (1 - m) with m = lengthscale / sqrt(2 pi)
        is_above_floor = np.asarray(scales) > float(jnp.finfo(scales.dtype).tiny) ** (1 / 3)
        expected = np.where(is_above_floor, -1 / np.sqrt(2 * np.pi), 0)
    np.testing.assert_allclose(slopes(scales), expected, rtol=0, atol=1e-3)
    assert np.all(np.asarray(in_points(scales, x)) == 0)


def test_a_gibbs_kernel_of_a_small_constant_lengthscale_is_the_gaussian():
    """In float32 the square of a squared lengthscale underflows from 1e-10 on."""
    small = jnp.asarray(1e-60 if X64 else 1e-11)
    gibbs = lambda lengthscale, x, z: kernax.kernels.Gibbs(
        kernax.Custom(lambda lengthscale, x: lengthscale, lengthscale)
    )(x, z)
    x, z = small * jnp.asarray([0.1, 0.2]), small * jnp.asarray([0.7, -0.5])
    np.testing.assert_allclose(gibbs(small, x, z), np.exp(-0.85 / 2), rtol=1e-5)
    slope = jax.grad(gibbs)(small, x, z)
    np.testing.assert_allclose(slope * small, 0.85 * np.exp(-0.85 / 2), rtol=1e-5)


OF_SCALES = {
    "Cosine": kernax.kernels.Cosine,
    "Gibbs": CONSTANT_WHERE_SMALL["Gibbs"],
    "Periodic": kernax.Periodic,
    "Periodic of a small period": lambda period: kernax.Periodic(1.0, period),
    "RationalQuadratic": kernax.RationalQuadratic,
    "SpectralMixture of a small width": lambda width: kernax.SpectralMixture(
        jnp.ones(1, width.dtype),
        jnp.ones((1, 1), width.dtype),
        jnp.exp(-jnp.log(width))[None, None],
    ),
    "ZeroMeanPeriodic": kernax.kernels.ZeroMeanPeriodic,
    "ZeroMeanPeriodic of a small period": lambda period: kernax.kernels.ZeroMeanPeriodic(
        1.0, period
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    marked(
        pytest.mark.nightly,
        OF_SCALES,
        "Cosine",
        "Gibbs",
        "SpectralMixture of a small width",
        others=True,
    ),
)
def test_hessians_in_small_scales_and_points_are_finite(name):
    """Powers of a scale in a derivative overflow long before the scale underflows. In the logarithm
    of the scale, at points that differ and at one point.
    """
    value = lambda log_scale, x, z: OF_SCALES[name](jnp.exp(log_scale))(x, z)
    hessians = jax.jit(jax.vmap(jax.hessian(value, (0, 1)), (0, None, None)))
    powers = np.arange(-290.0, -2, 6) if X64 else np.arange(-36.0, -2)
    if "Mixture" in name:  # the square of its frequency, one over the width, is in a derivative
        powers = powers[powers > (-150 if X64 else -18)]
    log_scales = jnp.asarray(powers * np.log(10))
    x, z = jnp.asarray([0.1]), jnp.asarray([0.83])
    for other in (z, x):
        for leaf in jax.tree.leaves(hessians(log_scales, x, other)):
            assert np.all(np.isfinite(leaf))
    if name in ("Periodic", "SpectralMixture of a small width"):  # constant where they are zero
        (by_scale, _), (_, by_x) = hessians(log_scales[: len(powers) // 2], x, z)
        assert np.all(np.asarray(by_scale) == 0)
        assert np.all(np.asarray(by_x) == 0)
