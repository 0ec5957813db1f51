"""Functions on rows that are spread over a mesh of devices: what they return on one device.

One process has eight virtual devices, of which a mesh takes some or all: the last test starts it.
"""

import re
from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import FUSED, assert_close, assert_passes_on_eight, marked, needs_x64, untyped
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import kernax
from kernax.core.linalg.tsqr import tsqr
from kernax.core.operators.blocked import BlockedGram
from kernax.core.operators.mesh import rows_over_mesh
from kernax.core.operators.mesh_gram import MeshGram
from kernax.solvers import (
    ConjugateGradient,
    NystromPreconditioner,
    PivotedCholesky,
    ProjectedGradient,
    StochasticLanczos,
)

pytestmark = needs_x64  # how rows are spread has nothing to do with precision
ON_EIGHT = pytest.mark.skipif(
    jax.device_count() < 8, reason="runs on eight devices, by way of the last test"
)
RNG = np.random.default_rng(0)
N = 48
X = RNG.normal(size=(N, 2))
Y = np.sin(X.sum(1))
WEIGHTS = RNG.uniform(0.5, 2.0, N)
WEIGHTS[3] = 0
NEW = RNG.normal(size=(8, 2))
KEY = jax.random.key(0)
RANK = 4
PIVOTS = PivotedCholesky(KEY, RANK)
EQUAL = 1e-10
GRADIENT = 1e-8


def mesh_of(devices, types=AxisType.Auto):
    """A mesh of some of the devices."""
    return jax.make_mesh(
        (devices,), ("rows",), axis_types=(types,), devices=jax.devices()[:devices]
    )


def spread(devices, *arrays):
    """Arrays whose rows are over so many devices."""
    over = NamedSharding(mesh_of(devices), PartitionSpec("rows"))
    return tuple(jax.device_put(array, over) for array in arrays)


def whole(devices, number):
    """A number that each of the devices has."""
    return jax.device_put(jnp.asarray(number), NamedSharding(mesh_of(devices), PartitionSpec()))


def assert_agree(values, expected, tolerance=EQUAL):
    for a, b in zip(jax.tree.leaves(values), jax.tree.leaves(expected), strict=True):
        assert_close(np.asarray(a), np.asarray(b), tolerance)


def collectives(text):
    """The collectives of a compiled program, with the shapes of what they return."""
    found = re.findall(
        r"= (.*?) (all-gather|all-reduce|all-to-all|collective-permute)(?:-start)?\(", text
    )
    return Counter((kind, re.sub(r"\{.*?\}", "", shape)) for shape, kind in found)


def run(function, *arguments):
    """What a compiled function returns, without any transfer to or from the host, and the names of
    its collectives.
    """
    program = jax.jit(function).lower(*arguments).compile()
    with jax.transfer_guard("disallow"):
        values = jax.block_until_ready(program(*arguments))
    return values, collectives(program.as_text())


def ridge(kernel, X, y, weights, noise=0.1):
    """Coefficients by elimination."""
    K = np.asarray(kernax.gram(kernel, X))
    return np.linalg.solve(weights[:, None] * K + noise * np.eye(len(K)), weights * y)


# products


def product(held, lengthscale, points, V):
    kernel = kernax.On(kernax.RBF(lengthscale), 0) * kernax.On(kernax.Matern52(), 1)
    return kernax.gram_operator(kernel, points, block_size=None if held else 5).mv(V)


@ON_EIGHT
@pytest.mark.parametrize("devices", marked(pytest.mark.nightly, [2, 3, 8], "2"))
def test_a_product_over_devices_and_two_of_its_derivatives_are_those_of_the_matrix(devices):
    """With an even number of devices, where opposite ones stand alone, and an odd one; in the
    lengthscale, points of two parts, and vectors.
    """
    V = RNG.normal(size=(N, 2))
    direction = (0.3, (X[:, ::-1] + 1, np.cos(X)), V[::-1] - 0.5)

    def derivatives(held, *arguments):
        total = lambda *arguments: jnp.sum(jnp.sin(product(held, *arguments)))
        gradient = lambda *arguments: jax.grad(total, (0, 1, 2))(*arguments)
        return jax.jvp(gradient, arguments, jax.tree.map(jnp.asarray, direction))

    points = X, X[::-1] * 2
    expected = jax.jit(lambda *rest: derivatives(True, *rest))(1.3, points, V)
    (first, second, V) = spread(devices, *points, V)
    found, exchanged = run(
        lambda *rest: derivatives(False, *rest), whole(devices, 1.3), (first, second), V
    )
    assert_agree(found, expected, GRADIENT)
    assert not [kind for kind, _ in exchanged if kind == "all-gather"]
    assert found[0][1][0].sharding.spec == PartitionSpec("rows")


@ON_EIGHT
def test_parts_of_a_matrix_over_devices_are_computed_where_their_rows_are():
    """Catches a part for which all points or a matrix are gathered, and one of another row."""
    places = jnp.asarray([17, 3, 8])

    def parts(X, V):
        operator = kernax.gram_operator(kernax.RBF(), X, block_size=5)
        return (
            operator.mv(V),
            operator.diagonal(),  # pyright: ignore[reportAttributeAccessIssue]
            operator.rows(places),  # pyright: ignore[reportAttributeAccessIssue]
            operator.submatrix(places),  # pyright: ignore[reportAttributeAccessIssue]
            operator.columns_product(places, V[:3]),  # pyright: ignore[reportAttributeAccessIssue]
            operator.squares_in_products(V[:, 0]),  # pyright: ignore[reportAttributeAccessIssue]
        )

    V = RNG.normal(size=(N, 2))
    found, exchanged = run(parts, *spread(8, X, V))
    K = np.asarray(kernax.gram(kernax.RBF(), X))
    at = np.asarray(places)
    square = (K**2) @ V[:, 0] ** 2
    expected = (K @ V, np.diag(K), K[at], K[at][:, at], K[:, at] @ V[:3], square)
    assert_agree(found, expected)
    assert "all-gather" not in {kind for kind, _ in exchanged}
    # Of one product: points and vectors from the offsets 1 to 4, and sums to those of 1 to 3.
    assert exchanged["collective-permute", "f64[6,2]"] >= 4 + 4 + 3


@ON_EIGHT
def test_a_program_of_products_over_devices_holds_blocks_alone():
    """J03, for each of eight devices, backwards in the points."""

    def form(X, v):
        return v @ kernax.gram_operator(kernax.RBF(), X, block_size=32).mv(v)

    over = NamedSharding(mesh_of(8), PartitionSpec("rows"))
    n = 100_000
    X, v = (jax.ShapeDtypeStruct(shape, jnp.float32, sharding=over) for shape in ((n, 8), (n,)))
    program = jax.jit(jax.grad(form)).lower(X, v).compile(FUSED)
    assert program.memory_analysis().temp_size_in_bytes <= 24 * 2**20
    exchanged = collectives(program.as_text())
    shapes = [shape for kind, shape in exchanged if kind == "collective-permute"]
    assert set(shapes) <= {f"f32[{n // 8},8]", f"f32[{n // 8},1]"}
    assert "all-gather" not in {kind for kind, _ in exchanged}


@ON_EIGHT
def test_products_over_devices_are_traced_once_and_batched():
    """Of a kernel with a loop of its own, whose start does not vary over devices."""
    traced = []

    def formula(_, x, z):
        traced.append(x)
        distance = lax.fori_loop(0, 2, lambda i, s: s + (x[i] - z[i]) ** 2, jnp.zeros(()))
        return jnp.exp(-distance / 2)

    def total():
        points, v = spread(2, RNG.normal(size=(N, 2)), Y)
        return kernax.gram_operator(kernax.Custom(formula), points, block_size=5).mv(v)

    total()
    first = len(traced)
    total()
    assert len(traced) == first > 0

    points, v = spread(2, X, Y)
    looped = kernax.gram_operator(kernax.Custom(formula), points, block_size=5).mv(v)
    assert_agree(looped, kernax.gram(kernax.RBF(), X) @ Y)
    of_scale = lambda scale: kernax.gram_operator(kernax.RBF(scale), points, block_size=5).mv(v)
    batch = jax.jit(jax.vmap(of_scale))(jnp.asarray([0.5, 2.0]))
    assert_agree(batch[1], kernax.gram(kernax.RBF(2.0), X) @ Y)


@ON_EIGHT
@pytest.mark.parametrize("columns", [4, 9])
def test_a_tall_basis_is_found_where_its_rows_are(columns):
    """Also of more columns than rows on a device."""
    A = RNG.normal(size=(N, columns))
    (over,) = spread(8, A)
    (Q, R), exchanged = run(lambda A: tsqr(A, rows_over_mesh(over)), over)
    assert_agree(Q @ R, A)
    assert_agree(Q.T @ Q, np.eye(columns))
    assert_agree(jnp.tril(R, -1) + 1, np.ones((columns, columns)))
    assert Q.sharding.is_equivalent_to(over.sharding, 2)
    triangles = min(N // 8, columns) * 8
    assert {shape for _, shape in exchanged} == {f"f64[{triangles},{columns}]"}


# functions


@ON_EIGHT
@pytest.mark.parametrize(
    ("devices", "preconditioner"),
    marked(pytest.mark.nightly, [(8, PIVOTS), (2, NystromPreconditioner(KEY, RANK))], "2"),
)
def test_ridge_over_devices_gathers_neither_points_nor_features(devices, preconditioner):
    """Against elimination, with weights, one of them zero; predictions of points that are spread
    and of such that are not.
    """
    solver = ConjugateGradient(rtol=1e-13, preconditioner=preconditioner)
    settings = {"solver": solver, "block_size": "auto", "throw": False}

    def fit(X, y, weights):
        solution = kernax.kernel_ridge(kernax.RBF(), X, y, 0.1, weights=weights, **settings)
        return solution.value, solution.stats["residual"]

    (function, residual), exchanged = run(fit, *spread(devices, X, Y, WEIGHTS))
    expected = ridge(kernax.RBF(), X, Y, WEIGHTS)
    assert_agree(function.coefficients, expected)
    assert residual < 1e-12
    assert function.coefficients[3] == 0
    gathered = {shape for kind, shape in exchanged if kind == "all-gather"}
    assert not gathered & {f"f64[{N},2]", f"f64[{N},{N}]", f"f64[{N},{RANK}]"}
    values = kernax.gram(kernax.RBF(), NEW, X) @ expected
    assert_agree(function.values(NEW), values)
    assert_agree(function.values(*spread(devices, NEW)), values)


@ON_EIGHT
def test_a_process_over_devices_has_the_means_variances_and_paths_of_one_device(tmp_path):
    """The solver by products asks for blocks by itself. What is saved is on one device."""
    prior = kernax.GaussianProcess(kernax.RBF())
    solver = ConjugateGradient(rtol=1e-13, preconditioner=PIVOTS)

    def answers(process):
        paths = kernax.pathwise_sample(process, key=KEY, n_samples=2, n_features=10, throw=False)
        of_point = lambda x: (process.mean(x), process.variance(x), paths(x))
        return jax.vmap(of_point)(jnp.asarray(NEW))

    over = spread(2, X, Y, WEIGHTS)
    process = kernax.condition(prior, *over[:2], 0.1, weights=over[2], solver=solver).value
    assert isinstance(process.covariance.reduction.gram, MeshGram)
    dense = kernax.condition(prior, X, Y, 0.1, weights=WEIGHTS).value
    arrays, rest = eqx.partition(process, eqx.is_array)
    found, exchanged = run(lambda arrays: answers(eqx.combine(arrays, rest)), arrays)
    assert_agree(found, jax.jit(lambda: answers(dense))())
    assert ("all-gather", f"f64[{N},2]") not in exchanged

    kernax.save(tmp_path / "process.kernax", process)
    loaded = kernax.load(tmp_path / "process.kernax")
    assert isinstance(loaded.covariance.reduction.gram, BlockedGram)
    assert_agree(loaded.covariance.reduction.gram.points, X)


@ON_EIGHT
def test_the_evidence_over_devices_and_its_gradient_are_those_of_one():
    """In the kernel, the points, the targets and the weights, by the same random signs."""
    lanczos = StochasticLanczos(KEY, n_probes=2, n_steps=5)
    solver = ConjugateGradient(rtol=1e-13, preconditioner=PIVOTS, determinant=lanczos)

    def evidence(scale, X, y, weights):
        kernel = kernax.RBF(scale)
        return kernax.log_marginal_likelihood(kernel, X, y, 0.1, weights=weights, solver=solver)

    both = lambda *arguments: jax.value_and_grad(evidence, (0, 1, 2, 3))(*arguments)
    expected = jax.jit(both)(1.2, X, Y, WEIGHTS)
    (value, gradients), exchanged = run(both, whole(8, 1.2), *spread(8, X, Y, WEIGHTS))
    assert_agree(value, expected[0])
    assert_agree(gradients, expected[1], GRADIENT)
    assert ("all-gather", f"f64[{N},2]") not in exchanged


@ON_EIGHT
def test_a_machine_over_devices_decides_as_on_one():
    solver = ProjectedGradient(rtol=1e-6)
    signs = np.sign(Y)
    settings = {"solver": solver, "block_size": 5}
    points, targets = spread(2, X, signs)
    function = kernax.svm(kernax.RBF(), points, targets, 1.0, **settings).value
    one = kernax.svm(kernax.RBF(), X, signs, 1.0).value
    assert_agree(function.values(NEW), one.values(NEW), 1e-6)


@ON_EIGHT
@pytest.mark.parametrize("block_size", [None, 7])
def test_a_matrix_over_devices_exchanges_points_alone(block_size):
    """Of a kernel whose two sides may be rounded differently; and of two stacks."""
    kernel = kernax.Custom(lambda _, x, z: jnp.sum(jnp.tanh(x + z)))
    (over,) = spread(8, X)
    K, exchanged = run(lambda X: kernax.gram(kernel, X, block_size=block_size), over)
    assert_agree(K, kernax.gram(kernel, X))
    assert K.sharding.is_equivalent_to(over.sharding, 2)
    between, also = run(lambda X: kernax.gram(kernel, X, X + 1), over)
    assert_agree(between, kernax.gram(kernel, X, X + 1))
    assert set(exchanged) == set(also) == {("all-gather", f"f64[{N},2]")}


@ON_EIGHT
def test_products_between_two_stacks_over_devices_are_those_of_the_matrix():
    """And the transposed one, from a stack over devices to one that is not."""
    over, vector = spread(8, X, Y)
    new = jnp.asarray(NEW)

    def products(X, y, new):
        operator = kernax.gram_operator(kernax.RBF(), X, new, block_size=5)
        return operator.mv(new[:, 0]), operator.transpose().mv(y)

    found, exchanged = run(products, over, vector, whole(8, NEW))
    K = kernax.gram(kernax.RBF(), X, NEW)
    assert_agree(found, (K @ new[:, 0], K.T @ Y))
    assert ("all-gather", f"f64[{N},2]") not in exchanged


@ON_EIGHT
def test_what_is_factorised_is_held_by_each_device_up_to_a_size():
    points, y, weights = spread(8, X, Y, WEIGHTS)
    solution = kernax.kernel_ridge(kernax.RBF(), points, y, 0.1, weights=weights)
    assert_agree(solution.value.coefficients, ridge(kernax.RBF(), X, Y, WEIGHTS))
    many, y = spread(8, np.zeros((8200, 2)), np.zeros(8200))
    for call, words in (
        (lambda: kernax.kernel_ridge(kernax.RBF(), many, y, 0.1), "use block_size=..."),
        (
            lambda: kernax.log_marginal_likelihood(kernax.RBF(), many, y, 0.1),
            r"mesh of 8 devices, .* use solver=ConjugateGradient\(.*StochasticLanczos",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            call()


@ON_EIGHT
def test_in_a_jit_the_mesh_is_that_of_the_arguments_or_of_the_context():
    def is_spread(X):
        operator = kernax.gram_operator(kernax.RBF(), X, block_size="auto")
        return jnp.asarray(isinstance(operator, MeshGram)), operator.mv(jnp.ones(len(X)))

    (points,) = spread(8, X)
    expected = kernax.gram(kernax.RBF(), X).sum(1)
    (yes, of_argument), (no, _) = jax.jit(is_spread)(points), jax.jit(is_spread)(X)
    with jax.set_mesh(mesh_of(8)):
        in_context, of_context = jax.jit(is_spread)(X)
    assert yes
    assert in_context
    assert not no
    assert_agree((of_argument, of_context), (expected, expected))


@ON_EIGHT
def test_other_layouts_are_refused_or_computed_as_they_are():
    explicit = mesh_of(8, AxisType.Explicit)
    over = NamedSharding(explicit, PartitionSpec("rows"))
    explicit_rows = jax.device_put(X, over)
    (points,) = spread(8, X)
    (of_two,) = spread(2, Y)
    batch = kernax.batched(jnp.sum)
    for call, words in (
        (
            lambda: kernax.gram(kernax.RBF(), explicit_rows),
            r"'rows': kernax\.scale\.rows_over\(mesh",
        ),
        (lambda: batch(explicit_rows), "members must be laid out over automatic axes"),
        (
            lambda: kernax.kernel_ridge(kernax.RBF(), points, of_two, 0.1),
            "y must .* but is on 2.*rows_over",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    other = r"jax\.set_mesh, Explicit 'rows' of 8, but is on one of Auto 'rows' of 8: call jax\.set"
    for call in (
        lambda: kernax.gram(kernax.RBF(), points),
        lambda: batch(points),
        lambda: kernax.batched(jnp.sum, devices=explicit)(X),
    ):
        with jax.set_mesh(explicit), pytest.raises(ValueError, match=other):
            call()
    columns = np.tile(X, (1, 4))
    over = NamedSharding(mesh_of(8), PartitionSpec(None, "rows"))
    by_columns = jax.device_put(columns, over)
    assert rows_over_mesh(by_columns) is None
    product = kernax.gram_operator(kernax.RBF(), by_columns, block_size=5).mv(jnp.asarray(Y))
    assert_agree(product, kernax.gram(kernax.RBF(), columns) @ Y)


@ON_EIGHT
def test_a_batch_of_data_sets_over_devices_has_the_values_of_one():
    """Whose rows are taken for those of the mesh, since their type says no more."""
    sets = np.stack([X + 0.1 * i for i in range(8)])
    fit = lambda X: kernax.kernel_ridge(kernax.RBF(), X, Y, 0.1, throw=False).value.coefficients
    found, _ = run(jax.vmap(fit), *spread(8, sets))
    assert_agree(found[5], ridge(kernax.RBF(), sets[5], Y, np.ones(N)))


@ON_EIGHT
def test_predictions_of_texts_over_devices_are_made_where_these_are():
    """Some rows at a time, of a kernel that holds a table for each pair."""
    texts = kernax.strings.encode(["abcab"[i % 3 :] + "ba" * (i % 4) for i in range(16)])
    kernel = kernax.Subsequence(2, 0.5)
    function = kernax.kernel_ridge(kernel, texts, Y[:16], 0.1).value
    (over,) = spread(8, texts)
    values, exchanged = run(lambda texts: function.values(texts), over)
    assert_agree(values, function.values(texts))
    assert not exchanged


# laying out


@ON_EIGHT
def test_rows_are_laid_out_evenly_and_filled_up_with_rows_that_count_for_nothing(tmp_path):
    """Of a memory map, on a mesh with the axes that JAX makes by default."""
    mesh = jax.make_mesh((8,), ("rows",))
    n = N - 3
    file = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", float, (n, 2))
    file[:] = X[:n]
    points, y, weights = kernax.scale.rows_over(mesh, file, Y[:n])
    assert weights is not None
    np.testing.assert_array_equal(weights, np.arange(N) < n)
    np.testing.assert_array_equal(points, np.concatenate([X[:n], np.tile(X[n - 1], (3, 1))]))
    assert len(points.addressable_shards) == 8
    function = kernax.kernel_ridge(kernax.RBF(), points, y, 0.1, weights=weights).value
    expected = ridge(kernax.RBF(), X[:n], Y[:n], np.ones(n))
    assert_agree(function.coefficients, np.append(expected, np.zeros(3)))

    points, y, weights = kernax.scale.rows_over(mesh, {"a": X, "b": [[1.0]] * N}, np.arange(N))
    assert weights is None
    assert rows_over_mesh(points).parts == 8
    assert y.dtype == int
    *_, weights = kernax.scale.rows_over(mesh, X[:n], None, WEIGHTS[:n])
    np.testing.assert_array_equal(weights, np.append(WEIGHTS[:n], np.zeros(3)))
    assert rows_over_mesh(kernax.scale.rows_over(mesh_of(1), X)[0]) is None


@ON_EIGHT
def test_a_state_of_rows_that_were_filled_up_otherwise_is_told_so(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    checkpoint = kernax.Checkpoint(tmp_path)
    rows, _, weights = kernax.scale.rows_over(mesh_of(8), X[:45])
    list(checkpoint.steps(lambda state: state, {"rows": rows, "weights": weights}, 1))
    rows, _, weights = kernax.scale.rows_over(mesh_of(3), X[:45], None, WEIGHTS[:45])
    with pytest.raises(kernax.errors.KernaxFileError, match=r"\[48\] in the file.*Rows are padded"):
        checkpoint.latest({"rows": rows, "weights": weights})


@ON_EIGHT
def test_rows_of_other_numbers_and_axes_that_are_not_there_are_refused():
    two = jax.make_mesh((4, 2), ("rows", "others"), axis_types=(AxisType.Auto,) * 2)
    with pytest.raises(ValueError, match="one number of rows"):
        kernax.scale.rows_over(mesh_of(8), X, Y[:5])
    with pytest.raises(ValueError, match=r"'rows', 'others', but none was named: .* axis='rows'"):
        kernax.scale.rows_over(two, X)
    with pytest.raises(ValueError, match=r"one is of type <U1: kernax\.strings\.encode"):
        kernax.scale.rows_over(mesh_of(8), list("ab" * 4))
    with pytest.raises(ValueError, match="mesh must be a JAX mesh"):
        untyped(kernax.scale.rows_over)(jax.devices(), X)
    with pytest.raises(ValueError, match="but axis is 'columns'"):
        kernax.scale.rows_over(two, X, axis="columns")
    with pytest.raises(ValueError, match=r"but axis is \['rows', 'rows'\]"):
        kernax.scale.rows_over(two, X, axis=["rows", "rows"])
    for axis, parts in (("rows", 4), (two.axis_names, 8)):
        points, *_ = kernax.scale.rows_over(two, X, axis=axis)
        operator = kernax.gram_operator(kernax.RBF(), points, block_size=5)
        assert operator.spread.parts == parts  # pyright: ignore[reportAttributeAccessIssue]
        assert_agree(operator.mv(jnp.asarray(Y)), kernax.gram(kernax.RBF(), X) @ Y)


@pytest.mark.slow
@pytest.mark.skipif(jax.device_count() == 8, reason="it would run itself")
def test_functions_run_on_rows_over_eight_devices():
    assert_passes_on_eight(__file__, "not nightly")


@pytest.mark.nightly
@pytest.mark.skipif(jax.device_count() == 8, reason="it would run itself")
def test_other_functions_run_on_rows_over_eight_devices():
    assert_passes_on_eight(__file__, "nightly")
