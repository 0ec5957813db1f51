"""Batches on a CPU are loops: a batched call into LAPACK can hang there, whatever the library that
makes it.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import DTYPE, X64, marked, needs_x64

import kernax
from kernax.core.base.batching import each, in_smallest_size, sequential_vmap


def ridge(kernel, X, y):
    return kernax.kernel_ridge(kernel, X, y, 0.1, throw=False).value.norm


def leave_one_out(kernel, X, y):
    return jnp.sum(kernax.leave_one_out(kernel, X, y, 0.1, weights=jnp.ones_like(y)) ** 2)


def evidence(kernel, X, y):
    return kernax.log_marginal_likelihood(kernel, X, y, 0.1)


def prediction(kernel, X, y):
    process = kernax.condition(kernax.GaussianProcess(kernel), X, y, 0.1, throw=False).value
    return (
        process.mean(X[0])
        + process.variance(X[0])
        + process.sample(X[:3] + 0.5, key=jax.random.key(0))[0]
    )


def softmax(kernel, X, y):
    Y = jnp.stack([y > 0.5, abs(y) <= 0.5, y < -0.5], 1).astype(y.dtype)
    return jnp.sum(kernax.kernel_softmax(kernel, X, Y, 0.1, throw=False).value.values(X)[:, 0] ** 2)


SLOW = [pytest.param(figure, marks=pytest.mark.slow) for figure in (prediction, softmax)]


@needs_x64
@pytest.mark.parametrize(
    "figure",
    marked(pytest.mark.nightly, [ridge, leave_one_out, evidence, *SLOW], "prediction", "softmax"),
)
def test_no_batch_reaches_lapack_and_the_members_keep_their_values_and_gradients(figure, rng):
    X, y = rng.normal(size=(12, 2)).astype(DTYPE), rng.normal(size=12).astype(DTYPE)
    scales = jnp.asarray([0.5, 1.0, 2.0], DTYPE)
    one = jax.jit(jax.value_and_grad(lambda scale, y: figure(kernax.RBF(scale), X, y)))
    batch = jax.jit(jax.vmap(one))
    targets = jnp.stack([y, 2 * y, 3 * y])
    calls = re.findall(
        r"= \(?[a-z0-9]+\[([0-9,]+)\].*custom_call_target=\"lapack_",
        batch.lower(scales, targets).compile().as_text(),
    )
    assert calls
    assert all(shape.count(",") < 2 for shape in calls), calls
    values, gradients = batch(scales, targets)
    tolerance = 1e-8 if X64 else 1e-3
    for i in range(3):
        value, gradient = one(scales[i], targets[i])
        np.testing.assert_allclose(values[i], value, rtol=tolerance)
        np.testing.assert_allclose(gradients[i], gradient, rtol=tolerance, atol=tolerance)


@needs_x64
@pytest.mark.nightly
def test_line_searches_over_several_starts_end(rng):
    """With batched factorisations this waits forever on two cores."""
    X, y = rng.normal(size=(40, 3)).astype(DTYPE), rng.normal(size=40).astype(DTYPE)

    loss = lambda model, X, y: leave_one_out(model.kernel, X, y) + model.ridge
    learn = lambda y: kernax.minimise(
        loss, kernax.Model(kernax.RBF(jnp.ones(3))), optax.lbfgs(), 3, args=(X, y), throw=False
    )
    assert jnp.all(jnp.isfinite(jax.vmap(learn)(jnp.stack([y, 2 * y, 3 * y])).stats["loss"]))


@needs_x64
def test_batches_of_matrices_of_right_hand_sides_and_of_both_nest(rng):
    A, B = (
        jnp.asarray(rng.normal(size=(2, 3, 4, 4)), DTYPE),
        jnp.asarray(rng.normal(size=(3, 5, 4)), DTYPE),
    )
    product = lambda A, b: sequential_vmap(lambda A, b: (A @ b, "static"), A, b)[0]
    both = jax.vmap(jax.vmap(jax.vmap(product, (None, 0))), (0, None))(A, B)
    np.testing.assert_allclose(both, jnp.einsum("uvij,vkj->uvki", A, B), rtol=1e-5, atol=1e-5)
    swapped = jax.vmap(jax.vmap(product, (0, None)), (None, 0))(A[0], B[0])
    np.testing.assert_allclose(swapped, jnp.einsum("vij,kj->kvi", A[0], B[0]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", [[4], [2, 4], [1, 2, 3, 4]])
def test_the_smallest_size_that_is_enough_is_taken_in_a_batch_for_its_largest(sizes):
    def taken(needed):
        size_of = lambda size, factor: jnp.asarray(size, jnp.int32) * factor
        return in_smallest_size(size_of, sizes, needed, jnp.asarray(10, jnp.int32))

    needed = jnp.arange(5, dtype=jnp.int32)
    smallest = [10 * min(size for size in sizes if size >= number) for number in range(5)]
    assert jax.lax.map(taken, needed).tolist() == smallest
    for last in range(1, 6):
        together = jax.jit(jax.vmap(taken))(needed[:last])
        assert together.tolist() == [smallest[last - 1]] * last


@needs_x64
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="there is an accelerator")
def test_without_an_accelerator_only_the_program_of_the_cpu_is_traced():
    traced = []

    def root(x):
        traced.append(x)
        return jnp.sqrt(x)

    program = jax.make_jaxpr(lambda x: each(root, x))(jnp.ones(3))
    assert "platform_index" not in str(program)
    assert len(traced) == 1
