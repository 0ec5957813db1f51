"""Learners inside `jax.shard_map`, in a batch of weights over the devices: values of `vmap`,
gradients of differences.

Public functions are promised there with `check_vma=False`: their loops are JAX's own, and keep no
record of what varies over devices. One device is enough for the quick tier; the slow tier runs
over eight, in a process of its own.
"""

from contextlib import contextmanager
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import TOLERANCE, assert_close, assert_passes_on_eight, marked, needs_x64
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from registry import LEARNERS, N, cases, options_of

import kernax
from kernax.selection.optimise import batches

pytestmark = needs_x64  # what varies over devices has nothing to do with precision

OVER = PartitionSpec("batch")
RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(N, 2)))
T = jnp.asarray(np.sin(2 * RNG.normal(size=N)))
Y = jnp.asarray([1.0, -1.0] * 5)
WEIGHTS = jnp.asarray(RNG.uniform(0.5, 2.0, size=(8, N)))
STEP = 1e-5 * jnp.asarray(RNG.normal(size=(8, N)))
RBF = kernax.RBF(1.0)
SMO = kernax.solvers.SMO(rtol=1e-10)


def over_devices(function, in_specs=OVER):
    """A function of batches, each device with its part of them."""
    mesh = jax.make_mesh(
        (jax.device_count(),), ("batch",), axis_types=(jax.sharding.AxisType.Auto,)
    )
    mapped = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=OVER, check_vma=False)
    return jax.jit(mapped)


def fitted(solution):
    return solution.value.coefficients


def minus_evidence(kernel, w):
    return -kernax.log_marginal_likelihood(kernel, X, T, 0.1, weights=w)


ON_EIGHT = pytest.mark.skipif(
    jax.device_count() < 8, reason="runs on eight devices, by way of the last test"
)
CASES = [
    pytest.param(
        *case.values, marks=[*case.marks, *([] if case.values[0] == "svm" else [ON_EIGHT])]
    )
    for case in cases("shards", lambda entry: entry.shards and entry.name != "kernel_ridge")
]


def assert_agree(sharded, plain):
    for a, b in zip(jax.tree.leaves(sharded), jax.tree.leaves(plain), strict=True):
        assert_close(np.asarray(a, float), np.asarray(b, float), 100 * TOLERANCE["solve"])


def total_of(name):
    """A number that all that is learned determines, as a function of the weights; of a stream, in
    which points have none, of factors of the points.
    """
    entry = LEARNERS[name]

    def total(w):
        p = entry.problem
        p = replace(p, X=p.X * w[:, None]) if entry.of_stream else replace(p, weights=w)
        outputs = entry.outputs(entry.fit(p, **options_of(entry)), p)
        return sum(jnp.sum(jnp.sin(output)) for output in jax.tree.leaves(outputs))

    return total


@pytest.mark.parametrize("name", [pytest.param("kernel_ridge", marks=pytest.mark.slow), *CASES])
def test_a_batch_over_devices_has_the_values_of_vmap_and_the_gradients_of_its_differences(name):
    total = total_of(name)
    sharded = over_devices(jax.vmap(jax.value_and_grad(total)))
    of_each, gradients = sharded(WEIGHTS)
    assert_agree(of_each, jax.jit(jax.vmap(total))(WEIGHTS))
    (ahead, _), (behind, _) = sharded(WEIGHTS + STEP), sharded(WEIGHTS - STEP)
    assert_close(
        np.asarray(ahead - behind),
        np.asarray(2 * jnp.sum(gradients * STEP, 1)),
        TOLERANCE["gradient"],
    )


@ON_EIGHT
def test_what_is_learned_on_each_device_is_what_vmap_learns():
    def learned(w):
        found = kernax.minimise(minus_evidence, RBF, optax.adam(0.1), 3, args=(w,))
        return found.value.lengthscale

    assert_agree(over_devices(jax.vmap(learned))(WEIGHTS), jax.jit(jax.vmap(learned))(WEIGHTS))


@ON_EIGHT
@pytest.mark.parametrize(
    "learner", marked(pytest.mark.nightly, ["ridge", "svm", "evidence"], "svm")
)
def test_batches_of_points_kernels_and_targets_run_over_devices(learner):
    """Catches what only weights are fed to: here the points, the lengthscale and the targets
    differ, and nothing else.
    """
    learners = {
        "ridge": lambda k, X, y: jnp.sum(fitted(kernax.kernel_ridge(k, X, y, 0.1)) ** 2),
        "svm": lambda k, X, y: jnp.sum(fitted(kernax.svm(k, X, Y, 1.0, solver=SMO)) ** 2),
        "evidence": lambda k, X, y: kernax.log_marginal_likelihood(k, X, y, 0.1),
    }
    member = jax.value_and_grad(
        lambda X, scale, y: learners[learner](kernax.RBF(scale), X, y), (0, 1)
    )
    batch = (X[None] + 0.1 * WEIGHTS[:, :, None], WEIGHTS[:, 0], T[None] * WEIGHTS)
    assert_agree(over_devices(jax.vmap(member))(*batch), jax.jit(jax.vmap(member))(*batch))


@ON_EIGHT
def test_the_gradient_in_points_that_all_devices_share_is_summed_over_them():
    """Catches a cast that loses the sum over devices in its transpose."""

    def losses(X, weights):
        return jax.vmap(lambda w: kernax.log_marginal_likelihood(RBF, X, T, 0.1, weights=w))(
            weights
        )

    both = (PartitionSpec(), OVER)
    sharded = jax.grad(lambda X: jnp.sum(over_devices(losses, both)(X, WEIGHTS)))(X)
    assert_agree(sharded, jax.grad(lambda X: jnp.sum(losses(X, WEIGHTS)))(X))


@ON_EIGHT
def test_a_failure_on_one_device_raises():
    """Catches a check at run time that is left out inside shard_map: without weights nothing is
    left to fit.
    """
    weights = WEIGHTS.at[-1].set(0)
    fit = lambda w: fitted(kernax.kernel_ridge(RBF, X, T, 0.1, weights=w))
    with pytest.raises(Exception, match="NaN or inf"):
        jax.block_until_ready(over_devices(jax.vmap(fit))(weights))


@ON_EIGHT
@pytest.mark.parametrize("settings", [{}, {"batch_size": 2}, {"progress": True}])
def test_batched_shares_members_between_devices(settings):
    """Eleven members on eight devices: catches a member that is lost, or counted twice, where
    shares are filled up.
    """
    weights = jnp.concatenate([WEIGHTS, 2 * WEIGHTS[:3]])
    fit = lambda w: kernax.kernel_ridge(RBF, X, T, 0.1, weights=w, throw=False)
    shared = kernax.batched(fit, devices=jax.devices(), **settings)(weights)
    plain = jax.vmap(fit)(weights)
    assert_agree(shared.value.coefficients, plain.value.coefficients)
    assert jnp.all(shared.result == kernax.RESULTS.successful)


@ON_EIGHT
def test_devices_of_a_cpu_compute_on_a_thread_each_and_tracing_changes_no_threads(monkeypatch):
    threads = []

    @contextmanager
    def limited(**asked):
        threads.append(asked["threads"])
        yield

    monkeypatch.setattr(batches, "linear_algebra_threads", limited)
    sines = kernax.batched(jnp.sin, devices=jax.devices())
    assert_close(sines(WEIGHTS), jnp.sin(WEIGHTS))
    assert threads == [1]
    assert_close(jax.jit(sines)(WEIGHTS), jnp.sin(WEIGHTS))
    assert_close(kernax.batched(jnp.sin, devices=jax.devices()[:1])(WEIGHTS), jnp.sin(WEIGHTS))
    assert threads == [1]


@ON_EIGHT
def test_a_gradient_that_a_member_takes_is_its_own():
    """Catches a gradient in a constant, such as a start, that is summed over the devices."""

    def step(w):
        start = jnp.zeros(2)
        loss = lambda theta: minus_evidence(kernax.RBF(jnp.exp(theta)), w)
        return start - 0.1 * jax.grad(loss)(start)

    shared = kernax.batched(step, devices=jax.devices())(WEIGHTS)
    assert_agree(shared, jax.vmap(step)(WEIGHTS))


@ON_EIGHT
def test_the_gradient_in_what_all_members_share_is_summed_over_devices():
    def total(scale, devices):
        kernel = kernax.RBF(scale)
        fit = lambda w: fitted(kernax.kernel_ridge(kernel, X, T, 0.1, weights=w, throw=False))
        return jnp.sum(jnp.sin(kernax.batched(fit, devices=devices)(WEIGHTS[:5])))

    shared = jax.grad(lambda scale: total(scale, jax.devices()))(1.0)
    assert_agree(shared, jax.grad(lambda scale: total(scale, None))(1.0))


def test_a_program_over_devices_closes_over_what_stands_on_its_mesh():
    mesh = jax.make_mesh((1,), ("batch",), axis_types=(AxisType.Auto,))
    Z = jax.device_put(X[:3], NamedSharding(mesh, PartitionSpec()))
    own = lambda X: kernax.gram(RBF, X, Z)
    over = jax.shard_map(own, mesh=mesh, in_specs=OVER, out_specs=OVER, check_vma=False)
    assert_close(jax.jit(over)(X), kernax.gram(RBF, X, X[:3]))


@pytest.mark.slow
@pytest.mark.skipif(jax.device_count() == 8, reason="it would run itself")
def test_learners_run_on_eight_devices():
    assert_passes_on_eight(__file__, "not nightly")


@pytest.mark.nightly
@pytest.mark.skipif(jax.device_count() == 8, reason="it would run itself")
def test_the_other_learners_run_on_eight_devices():
    assert_passes_on_eight(__file__, "nightly")
