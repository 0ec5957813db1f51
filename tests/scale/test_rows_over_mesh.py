"""Rows over a mesh: fits over centres and in features equal those on one device, and what devices
pass to each other is small.

On eight virtual devices, in a process of its own, which the last test starts.
"""

import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_close, assert_passes_on_eight, needs_x64
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import kernax
from kernax.core.operators.mesh import rows_over_mesh
from kernax.losses import Logistic
from kernax.scale.centres import preconditioner
from kernax.scale.centres.row_sums import ArrayRows
from kernax.scale.centres.span import OfCentres

pytestmark = needs_x64  # how rows are spread has nothing to do with precision

ON_EIGHT = pytest.mark.skipif(
    jax.device_count() < 8, reason="runs on eight devices, by way of the last test"
)
module = sys.modules["kernax.scale.centres.falkon"]  # behind the function of that name
RNG = np.random.default_rng(0)
N, M = 320, 12
X = RNG.normal(size=(N, 2))
Z = X[:M] + 0.01
Y = np.stack([np.sin(2 * X[:, 0]), np.cos(X[:, 1])], 1) + 0.1 * RNG.normal(size=(N, 2))
WEIGHTS = RNG.integers(0, 3, N).astype(float)
KERNEL = kernax.RBF(0.7)
FEATURES = kernax.random_fourier_features(KERNEL, 8, 2, key=jax.random.key(0))
RIDGE = jnp.asarray(0.1)
SCALE = jnp.asarray(1.3)


def mesh_of(devices, names=("rows",), shape=(-1,)):
    of_shape = np.array(jax.devices()[:devices]).reshape(shape)
    return Mesh(of_shape, names, axis_types=(AxisType.Auto,) * len(names))


def over(mesh, *arrays):
    """The arrays with their rows over the first axis of a mesh; numbers on all devices."""
    spec = lambda array: PartitionSpec(*mesh.axis_names[: min(1, array.ndim)])
    return [jax.device_put(array, NamedSharding(mesh, spec(array))) for array in arrays]


def over_centres(scale, X, Z, y, weights, ridge):
    return kernax.falkon(scale * KERNEL, X, y, ridge, Z, weights=weights, throw=False)


def of_signs(scale, X, Z, y, weights, ridge):
    settings = {"loss": Logistic(), "bias": True, "weights": weights, "throw": False}
    return kernax.falkon(scale * FEATURES, X, y, ridge, **settings)


def in_features(function, y, **settings):
    def fitted(scale, X, Z, y, weights, ridge):
        return function(scale * FEATURES, X, y, ridge, weights=weights, throw=False, **settings)

    return fitted, y


def in_nystroms_features(scale, X, Z, y, weights, ridge):
    features = kernax.nystrom(scale * KERNEL, X, Z)
    return kernax.kernel_ridge(features, X, y, ridge, weights=weights, bias=True, throw=False)


SIGNS = np.sign(Y[:, 0])
GRADIENTS = kernax.solvers.ProjectedGradient(rtol=1e-7)
CASES = {
    "squares": (over_centres, Y),
    "signs in features, of a sample": (of_signs, SIGNS),
    "ridge in features": in_features(kernax.kernel_ridge, Y),
    "machine in features": in_features(kernax.svm, SIGNS, solver=GRADIENTS),
    "ridge in Nystroem's features": (in_nystroms_features, Y),
}
SAMPLE = 61  # rows, which eight devices do not share evenly


@pytest.fixture
def sampled(request, monkeypatch):
    """The Hessian's factor of a sample, where the name says so."""
    if request.param.endswith("of a sample"):
        monkeypatch.setattr(module, "size_of_sample", lambda *_: SAMPLE)
    return request.param


def program_of(name):
    """Predictions, gradients in all arguments, and the ending, in one program."""
    fitted, _ = CASES[name]

    def total(*arguments):
        solution = fitted(*arguments)
        values = solution.value.values(X[:5])
        return jnp.sum(jnp.sin(values)), (values, solution.result)

    # Not in targets that are signs, which do not vary.
    varied = (0, 1, 2, 4, 5) if "signs" in name or "machine" in name else (0, 1, 2, 3, 4, 5)
    return jax.jit(jax.value_and_grad(total, argnums=varied, has_aux=True))


def arguments_of(name, mesh=None):
    _, y = CASES[name]
    if mesh is None:
        return SCALE, X, Z, y, WEIGHTS, RIDGE
    scale, rows, y, weights, ridge = over(mesh, SCALE, X, y, WEIGHTS, RIDGE)
    return scale, rows, jax.device_put(Z, ridge.sharding), y, weights, ridge


def passed_on(program):
    """The collectives of a compiled program: their names, and the shape of each result."""
    names = "all-gather|all-reduce|collective-permute|all-to-all|reduce-scatter"
    calls = re.findall(rf"= (.*?) ({names})(?:-start)?\(", program.as_text())
    return [
        (name, tuple(int(size) for size in shape.split(",") if size))
        for shapes, name in calls
        for shape in re.findall(r"[a-z]+\d*\[([\d,]*)\]", shapes)
    ]


def is_of_all_rows(shape):
    """Whether an array holds more than a number for each of all rows."""
    return N in shape and np.prod(shape) > N


@ON_EIGHT
@pytest.mark.parametrize("sampled", CASES, indirect=True)
def test_a_fit_over_a_mesh_is_that_on_one_device_and_so_are_its_gradients(sampled):
    """Catches a row that is lost or counted twice, a sum that is not taken over devices or taken
    twice, and rows of K or of features that are passed on.
    """
    ((_, (values, ending)), gradients) = program_of(sampled)(*arguments_of(sampled))
    assert ending == kernax.RESULTS.successful
    for devices in (2, 8) if sampled == "squares" else (8,):
        # Rows that are over the first of two axes are taken for spread over both.
        mesh = mesh_of(8, ("rows", "more"), (4, 2)) if "sample" in sampled else mesh_of(devices)
        arguments = arguments_of(sampled, mesh)
        with jax.set_mesh(mesh):
            program = program_of(sampled).lower(*arguments).compile()
            # No step takes a number from the host.
            with jax.transfer_guard("disallow"):
                ((_, (found, ending)), slopes) = program(*arguments)
        assert ending == kernax.RESULTS.successful
        assert_close(found, values, 1e-10)
        for slope, gradient in zip(slopes, gradients):
            assert_close(slope, gradient, 1e-8)
        assert not [shape for _, shape in passed_on(program) if is_of_all_rows(shape)]
        others = [name for name, _ in passed_on(program) if name != "all-reduce"]
        assert not others or sampled != "squares"


def held_of(n, mesh):
    """Bytes that a fit of n rows and its gradient hold on each device, but for the arguments."""
    X = jnp.zeros((n, 2))
    y = jnp.zeros(n)

    def total(X, y):
        return kernax.falkon(KERNEL, X, y, 0.1, Z, throw=False).value(Z[0])

    program = jax.jit(jax.grad(total, (0, 1))).lower(*over(mesh, X, y)).compile()
    return program.memory_analysis().temp_size_in_bytes


@ON_EIGHT
def test_memory_on_each_device_grows_with_its_own_rows_alone(monkeypatch):
    """Catches K_nm held, and all rows on one device: beside tiles of a fixed size there are a few
    numbers for each own row.
    """
    monkeypatch.setattr(module, "rows_of_tile", lambda m: 64)
    mesh = mesh_of(8)
    with jax.set_mesh(mesh):
        few = held_of(8 * 512, mesh)
        many = held_of(8 * 4096, mesh)
    assert many - few <= 20 * 8 * (4096 - 512)
    assert many - few <= M * 8 * 8 * (4096 - 512) / 4


@ON_EIGHT
def test_arrays_on_a_mesh_are_enough_and_centres_are_drawn_among_all():
    """Without `jax.set_mesh` and `jit`: what is spread is found from the arrays."""
    key = jax.random.key(3)
    mesh = mesh_of(8, ("data", "other"), (4, 2))
    rows, y, weights = over(mesh, X, Y[:, 0], WEIGHTS)
    found = kernax.falkon(KERNEL, rows, y, 0.1, M, weights=weights, key=key)
    same = kernax.falkon(KERNEL, X, Y[:, 0], 0.1, M, weights=WEIGHTS, key=key)
    np.testing.assert_array_equal(found.value.points, same.value.points)
    assert_close(found.value.coefficients, same.value.coefficients, 1e-7)
    assert found.value.coefficients.sharding.is_fully_replicated
    predicted = found.value.values(rows)
    assert_close(predicted, same.value.values(X), 1e-9)


@ON_EIGHT
def test_predictions_of_new_points_over_a_mesh_stay_where_they_are():
    f = kernax.falkon(KERNEL, X, Y, 0.1, Z).value
    (new,) = over(mesh_of(8), X)
    for values in (lambda X: f.values(X), lambda X: jax.vmap(f)(X)):
        program = jax.jit(values).lower(new).compile()
        assert not passed_on(program)
        assert values(new).sharding.is_equivalent_to(new.sharding, 2)
        assert_close(values(new), f.values(X), 1e-12)


@ON_EIGHT
def test_a_sample_of_rows_over_a_mesh_is_that_of_one_device():
    weights = np.where(np.arange(N) % 100 == 7, 1e4, 1.0)
    one = ArrayRows(OfCentres(KERNEL, Z), *map(jnp.asarray, (X, Y, weights)), tile=64)
    rows, y, spread = over(mesh_of(8), X, Y, weights)
    many = ArrayRows(OfCentres(KERNEL, Z), rows, y, spread, tile=64, spread=rows_over_mesh(rows))
    sample = jax.jit(preconditioner.sampled, static_argnums=1)
    found, same = (sample(given, SAMPLE) for given in (many, one))
    np.testing.assert_array_equal(found.X[:SAMPLE], same.X)
    np.testing.assert_array_equal(found.weights, np.append(same.weights, np.zeros(3)))


@ON_EIGHT
@pytest.mark.parametrize("names", [("rows",), ("hosts", "cores")])
def test_batched_takes_a_mesh_and_results_stay_where_they_are_computed(names):
    """Also members that lie on one already; eleven of them are not shared evenly."""
    mesh = mesh_of(8, names, (-1, 2) if len(names) > 1 else (-1,))
    weights = RNG.uniform(0.5, 2.0, size=(16, 10))
    fit = lambda w: (
        kernax.kernel_ridge(
            KERNEL, X[:10], Y[:10, 0], 0.1, weights=w, throw=False
        ).value.coefficients
    )
    plain = jax.vmap(fit)(weights)
    shared = kernax.batched(fit, devices=mesh)
    assert_close(shared(weights), plain)
    assert_close(shared(weights[:11]), plain[:11])
    assert shared(weights).sharding.spec == PartitionSpec(names)
    (laid,) = over(mesh, weights)
    assert_close(kernax.batched(fit)(laid), plain)
    assert kernax.batched(fit)(laid).sharding.spec == PartitionSpec(names[:1])
    with jax.set_mesh(mesh):
        assert_close(jax.jit(kernax.batched(fit))(laid), plain)


@ON_EIGHT
def test_the_benchmark_of_a_mesh_agrees_with_one_device_in_float32():
    benchmark = pytest.importorskip("benchmarks.mesh")
    harness = pytest.importorskip("benchmarks.harness")
    for case in benchmark.on_devices(quick=True):
        found, _ = harness.measure(case)
        assert all(row.agrees for row in found), [row.difference for row in found]


@ON_EIGHT
def test_the_page_of_scaling_tells_what_is_passed_on_and_shared():
    """Of a fit in 200 features: the R of each device, and not the features of all rows."""
    scaling = pytest.importorskip("benchmarks.scaling")
    found, alone = (scaling.measured("`kernel_ridge`, 200 features", p, 1024) for p in (2, 1))
    assert found.off(alone) < 1e-8
    assert 2 * 200 * 200 * 8 <= found.passed_on["all-gather"] < 1024 * 200 * 8
    assert found.passed_on["all-reduce"] < 10 * 200 * 8


@pytest.mark.nightly
@pytest.mark.skipif(jax.device_count() == 8, reason="it would run itself")
def test_rows_over_eight_devices():
    assert_passes_on_eight(__file__)
