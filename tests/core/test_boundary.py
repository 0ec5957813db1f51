"""Where data enter: what is converted, what is refused, and what must never wrap, hang or pass for
a solution.
"""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optax
import pytest
import scipy.sparse
from conftest import DTYPE, needs_x32, needs_x64, untyped

import kernax
from kernax.core.base import boundary
from kernax.core.base.boundary import as_stack
from kernax.core.base.functions import with_call
from kernax.core.base.intervals import NONNEGATIVE, POSITIVE
from kernax.core.base.labels import as_signs
from kernax.core.base.numerics import as_array
from kernax.core.base.weights import UnitWeights
from kernax.core.kernel.kernel import as_kernel
from kernax.gp.means import as_mean
from kernax.gp.process import as_process
from kernax.selection import log_expected_improvement

KERNEL = kernax.RBF(2.0)
PRIOR = kernax.GaussianProcess(KERNEL)
SOLVER = kernax.solvers.JitteredCholesky


def test_integers_larger_than_32_bits_do_not_wrap():
    for X in (np.array([[1_700_000_000_000]]), [[1_700_000_000_000]]):
        np.testing.assert_allclose(as_stack(X, "X"), 1.7e12, rtol=1e-6)


def test_a_kernel_called_directly_does_not_wrap_small_integers():
    np.testing.assert_allclose(kernax.RBF()(np.uint8([1]), np.uint8([2])), np.exp(-0.5), rtol=1e-6)
    assert kernax.Linear()(np.uint8([200]), np.uint8([200])) == 40000


@needs_x64
def test_lists_of_traced_numbers_are_points():
    f = kernax.kernel_ridge(KERNEL, np.ones((3, 2), DTYPE), np.ones(3), 0.1).value
    np.testing.assert_allclose(jax.jit(lambda a: f([a, a]))(1.0), f([1.0, 1.0]), rtol=1e-5)


@needs_x64
def test_points_without_dimensions_are_refused():
    with pytest.raises(
        ValueError, match=r"X must hold points of at least one dimension, but has shape \(3, 0\)"
    ):
        kernax.gram(KERNEL, np.ones((3, 0)))


@needs_x64
@pytest.mark.parametrize(
    "X",
    [np.array([["a"]]), np.ones((2, 2), complex), np.array([[object()]])],
    ids=["text", "complex", "object"],
)
def test_what_is_no_real_number_is_refused(X):
    with pytest.raises(ValueError, match="arrays of real numbers"):
        kernax.gram(KERNEL, X)


@needs_x64
def test_a_mask_is_not_mistaken_for_dimensions():
    for mask in (np.array([True, False]), [True, False], [0.7, 1.9]):
        with pytest.raises(ValueError, match=r"np\.flatnonzero"):
            kernax.On(KERNEL, mask)


def test_every_data_set_against_its_own_query_is_measured_from_its_own_origin(rng):
    offsets = np.array([0.0, 1e2, 1e4, 3e4], np.float32)[:, None, None]
    X = (rng.normal(size=(4, 5, 10)) + offsets).astype(np.float32)
    Z = (rng.normal(size=(4, 10)) + offsets[:, 0]).astype(np.float32)
    kernel = kernax.RBF(np.float32(2.0))
    rows = jax.vmap(lambda X, z: jax.vmap(lambda x: kernel(x, z))(X))(X, Z)
    exact = np.exp(-((X.astype(float) - Z.astype(float)[:, None]) ** 2).sum(-1) / 8)
    np.testing.assert_allclose(rows, exact, atol=1e-6)


def test_a_zero_matrix_is_not_positive_definite_and_does_not_hang():
    solution = kernax.kernel_ridge(kernax.Linear(), np.zeros((4, 2)), np.ones(4), 0.0, throw=False)
    assert solution.result == kernax.RESULTS.not_psd


def test_a_small_pivot_of_a_badly_scaled_matrix_needs_no_jitter():
    A = lx.MatrixLinearOperator(
        jnp.diag(jnp.array([1.0, 1e-9], DTYPE)), lx.positive_semidefinite_tag
    )
    np.testing.assert_allclose(kernax.solvers.solve(A, np.array([1.0, 1e-9])).value, 1, rtol=1e-6)


def test_a_solution_with_a_large_residual_is_never_successful():
    X = np.linspace(0, 1, 300, dtype=np.float32)[:, None]
    for ridge in (1e-3, 1e-4, 1e-5, 3e-6):
        solution = kernax.kernel_ridge(kernax.RBF(1.0), X, np.sin(6 * X[:, 0]), ridge, throw=False)
        assert solution.stats["residual"] < 0.01 or solution.result != kernax.RESULTS.successful


@needs_x64
def test_a_singular_matrix_is_a_failure_with_the_solvers_of_lineax_too():
    X, y = np.array([[0.0, 0], [0, 0], [1, 0]]), np.array([0.0, 2, 5])
    solution = kernax.kernel_ridge(KERNEL, X, y, 0.0, solver=lx.Cholesky(), throw=False)
    assert solution.result != kernax.RESULTS.successful


@needs_x64
def test_a_kernel_that_returns_a_vector_is_refused_by_name():
    with pytest.raises(ValueError, match="must return a real scalar"):
        kernax.gram(kernax.Custom(lambda _, x, z: x * z), np.ones((3, 2), DTYPE))


@needs_x64
def test_a_vector_where_a_kernel_wants_a_scalar_is_refused_by_name_unless_it_is_mapped_over():
    X, scales = np.ones((3, 2), DTYPE), np.array([1.0, 2.0], DTYPE)
    for kernel, words in (
        (
            kernax.kernels.Scaled(kernax.RBF(), scales),
            r"Scaled.scale must be a scalar, but has shape \(2,\): batch over several",
        ),
        (
            kernax.RBF() + 2.0 * kernax.Constant(scales),
            r"Constant.value must be a scalar, but has shape \(2,\)",
        ),
    ):
        for function in (
            kernax.gram,
            lambda kernel, X: kernax.kernel_ridge(kernel, X, X[:, 0], 0.1),
        ):
            with pytest.raises(ValueError, match=words):
                function(kernel, X)
    np.testing.assert_array_equal(
        jax.vmap(lambda k: kernax.gram(k, X))(kernax.Constant(scales))[:, 0, 0], scales
    )


@needs_x64
def test_columns_and_tables_of_other_libraries_are_arrays():
    class Column:
        """As pandas has it."""

        dtype, shape = np.dtype(float), (3,)

        def __array__(self, *_, **__):
            return np.array([1.0, 2.0, 4.0])

    targets = untyped(boundary.as_targets)(Column(), 3, np.dtype(float))
    for array in (targets, boundary.as_stack(Column(), "X")):
        np.testing.assert_array_equal(array, [1.0, 2.0, 4.0])


@needs_x64
def test_columns_of_a_table_that_hold_no_numbers_are_named():
    pandas = pytest.importorskip("pandas")
    columns = {"a": [1.0, 2.0], "b": ["x", "y"], "when": pandas.to_datetime(["2020-01-01"] * 2)}
    for names, said in (
        (["a", "b"], "column 'b' (object) must become numbers: kernax.one_hot converts a column"),
        (["a", "b", "when"], "columns 'b' (object), 'when' (datetime64["),
    ):
        table = pandas.DataFrame({name: columns[name] for name in names})
        with pytest.raises(ValueError, match=re.escape(said)):
            kernax.gram(kernax.RBF(), table)
    table = pandas.DataFrame({"a": [1.0, 2.0], "b": [True, False]})
    with pytest.raises(ValueError, match=r"\.astype\(float\) converts its columns"):
        kernax.gram(kernax.RBF(), table)
    assert kernax.gram(kernax.RBF(), table.astype(float)).shape == (2, 2)


def test_a_sparse_matrix_is_called_sparse():
    X = scipy.sparse.csr_matrix(np.eye(3))
    said = "points must be arrays of real numbers, but one is a sparse csr_matrix: .toarray()"
    with pytest.raises(ValueError, match=re.escape(said)):
        kernax.kernel_ridge(kernax.RBF(), X, np.ones(3), 0.1)


def test_a_solver_of_something_else_is_refused():
    with pytest.raises(
        ValueError,
        match=r"linear solver, such as kernax\.solvers\.JitteredCholesky\(\), but is SMO",
    ):
        untyped(kernax.kernel_ridge)(
            KERNEL, np.ones((3, 1), DTYPE), np.ones(3, DTYPE), 0.1, solver=kernax.solvers.SMO()
        )


@pytest.mark.parametrize(
    ("call", "called"),
    [
        (lambda X, y: untyped(kernax.kernel_ridge)(KERNEL, X, y, 0.1, solver=SOLVER), SOLVER),
        (lambda X, y: untyped(kernax.condition)(PRIOR, X, y, 0.1, solver=SOLVER), SOLVER),
        (lambda X, y: untyped(kernax.svm)(KERNEL, X, y, 1.0, solver=kernax.solvers.SMO), "SMO"),
        (
            lambda X, y: untyped(kernax.regularised_risk)(
                KERNEL, X, y, 1.0, loss=kernax.losses.Huber
            ),
            "Huber",
        ),
        (lambda X, y: untyped(kernax.laplace)(PRIOR, X, y, kernax.likelihoods.Poisson), "Poisson"),
    ],
)
def test_a_class_in_place_of_a_solver_a_loss_or_a_likelihood_is_told_to_be_called(call, called):
    name = called if isinstance(called, str) else called.__name__
    X, y = np.arange(4, dtype=DTYPE)[:, None], np.array([1, -1, 1, -1], DTYPE)
    with pytest.raises(ValueError, match=rf"the class {name}: call it, as in {name}\(\)"):
        call(X, y)


def batch_of(fit):
    """The fits of two targets of three points, by vmap."""
    return jax.vmap(fit)(jnp.ones((2, 3), DTYPE))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda X: KERNEL(X, X),
            r"x has shape \(3, 2\).*: .*kernax\.gram\(k, X, Z\) compares",
        ),
        (
            lambda X: kernax.gram(kernax.On(KERNEL, [0, 5]), X),
            r"selects dimension 5, which is out of range: a point has shape \(2,\), with dimen",
        ),
        (
            lambda X: kernax.gram(kernax.On(KERNEL, -3), X),
            "selects dimension -3, which is out of range",
        ),
        (
            lambda X: kernax.kernel_ridge(KERNEL, X, X[:, 0], 0.1).value.values(X[0]),
            r"a point has shape \(\) and another \(2,\): .*call f\(x\) for one point",
        ),
        (
            lambda X: kernax.gram(kernax.Custom(lambda x, z: x @ z), X),
            r"must be function\(parameters, x, z\), but has the signature \(x, z\): .*lambda _, x",
        ),
        (
            lambda X: batch_of(lambda y: kernax.kernel_ridge(KERNEL, X, y, 0.1).value)(X[0]),
            r"holds a batch .* \(2, 3, 2\), but x has shape \(2,\): use jax.vmap\(lambda mod",
        ),
        (
            lambda X: batch_of(lambda y: kernax.condition(PRIOR, X, y, 0.1).value).mean(X[0]),
            "the model holds a batch of models.*: use jax.vmap",
        ),
        (
            lambda X: batch_of(lambda y: kernax.condition(PRIOR, X, y, 0.1).value).variance(X[0]),
            "the model holds a batch of models.*: use jax.vmap",
        ),
    ],
)
def test_points_that_do_not_fit_are_refused_with_the_call_that_does(call, message):
    with pytest.raises(ValueError, match=message):
        call(jnp.ones((3, 2), DTYPE))


def test_arguments_that_are_missing_are_answered_by_the_call():
    @with_call("scaled(x, factor)")
    def scaled(x, factor):
        if isinstance(x, str):
            raise TypeError("of the function itself")
        return x * factor

    with pytest.raises(TypeError, match=r"argument: 'factor': call scaled\(x, factor\)$"):
        scaled(2.0)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match=r"of the function itself$"):
        scaled("2", 3.0)
    assert scaled(2.0, factor=3.0) == 6.0


def test_an_error_of_a_function_of_ones_own_stays_as_it_is():
    def fails(_, x, z):
        raise TypeError("of the function itself")

    with pytest.raises(TypeError, match="of the function itself"):
        kernax.gram(kernax.Custom(fails), jnp.ones((3, 2), DTYPE))


def test_an_error_under_jit_says_that_labels_or_counts_may_be_out_of_range():
    X = jnp.arange(4, dtype=DTYPE)[:, None]
    with pytest.raises(Exception, match="labels, counts or weights out of range are NaN as well"):
        eqx.filter_jit(kernax.svm)(KERNEL, X, jnp.asarray([0.0, 1, 0, 1], DTYPE), 1.0)


def test_only_a_kernel_of_ones_own_that_is_indefinite_is_sent_to_the_test_of_kernels():
    class Negative(kernax.AbstractKernel):
        """No kernel."""

        def __call__(self, x, z):
            return -jnp.dot(x, z)

    X = np.arange(4, dtype=DTYPE)[:, None]
    says = r"kernax\.testing\.check_conformance\(kernel, X\) tests a kernel of your own"
    for kernel in (Negative(), 2.0 * Negative()):
        with pytest.raises(kernax.errors.NotPSDError, match=says):
            kernax.kernel_ridge(kernel, X, X[:, 0], 1e-3)
    with pytest.raises(kernax.errors.NotPSDError) as caught:
        kernax.kernel_ridge(kernax.Precomputed(-np.eye(4, dtype=DTYPE)), np.arange(4), X[:, 0], 0.1)
    assert "check_conformance" not in str(caught.value)
    assert callable(kernax.testing.check_conformance)


@needs_x64
def test_a_kernel_may_map_over_a_stack_of_others_inside():
    class Mixture(kernax.AbstractKernel):
        """A mean of many kernels."""

        many: kernax.RationalQuadratic

        def __call__(self, x, z):
            return jnp.mean(jax.vmap(lambda kernel: kernel(x, z))(self.many))

    X, alphas = np.arange(6, dtype=DTYPE).reshape(3, 2), np.array([1.0, 2.0], DTYPE)
    expected = sum(kernax.gram(kernax.RationalQuadratic(1.0, alpha), X) for alpha in alphas) / 2
    many = Mixture(eqx.filter_vmap(lambda alpha: kernax.RationalQuadratic(1.0, alpha))(alphas))
    np.testing.assert_allclose(kernax.gram(2.0 * many, X), 2 * expected, rtol=1e-6)


@needs_x64
@pytest.mark.parametrize("block_size", [None, 7, 50])
def test_blocks_of_any_size_are_symmetric_bitwise(block_size, rng):
    K = kernax.gram(
        kernax.RBF(8.0), rng.normal(size=(130, 64)).astype(np.float32), block_size=block_size
    )
    assert jnp.all(K == K.T)


def squared_error(theta, target):
    return (theta - target) ** 2


@needs_x64
def test_hand_written_optimisers_and_python_numbers_in_args_do_not_trace_again():
    traces, expected = [], []

    def loss(theta, target):
        traces.append(1)
        return squared_error(theta, target)

    optimiser = optax.scale(-0.1)
    for target in (1.0, 2.0, 3.0):
        kernax.minimise(loss, jnp.array(0.0), optimiser, 5, args=(target,))
        expected.append(len(traces))
    assert expected[0] == expected[1] == expected[2]


@needs_x64
def test_line_searches_that_keep_no_gradient_work():
    optimiser = optax.chain(optax.sgd(1.0), optax.scale_by_backtracking_linesearch(5))
    solution = kernax.minimise(squared_error, jnp.array(0.0), optimiser, 10, args=(3.0,))
    np.testing.assert_allclose(solution.value, 3, atol=0.5)


@needs_x64
def test_leave_one_out_says_when_it_took_jitter():
    X, y = np.array([[0.0], [0.0], [1.0]]), np.array([0.0, 2.0, 5.0])
    with pytest.warns(UserWarning, match="added to its diagonal"):
        kernax.leave_one_out(KERNEL, X, y, 0.0)


@needs_x32
def test_large_integer_targets_keep_their_value_in_float32():
    f = kernax.kernel_ridge(
        kernax.Constant(1.0), np.ones((3, 1)), np.full(3, 5_000_000_000), 1e-3
    ).value
    np.testing.assert_allclose(f(jnp.ones(1)), 5e9, rtol=1e-2)


POINTS = np.random.default_rng(0).normal(size=(6, 2)).astype(DTYPE)


@needs_x64
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: kernax.RBF("a"),
            r"lengthscale must be a number or an array of numbers, but is 'a': pass a float, or an "
            r"array such as jnp\.array\(\[1\.0, 2\.0\]\)$",
        ),
        (lambda: kernax.RBF(None), "lengthscale must be .* but is None"),
        (lambda: kernax.RBF([[1.0], [1.0, 2.0]]), "lengthscale must be .* but is"),
        (lambda: kernax.RBF(np.array([None])), "lengthscale must be .* dtype=object"),
        (lambda: kernax.RBF({"a": 1.0}), "lengthscale must be .* but is {'a': 1.0}"),
        (lambda: kernax.RBF(jax.random.key(0)), "lengthscale must be .* but is Array"),
        (lambda: kernax.RBF(np.ones(2) * 1j), "lengthscale must be real"),
        (
            lambda: kernax.online.Winnow(threshold=np.array(["a"])),
            "threshold must be .* but is",
        ),
        (
            lambda: as_kernel(kernax.RBF),
            r"but is the class RBF: call it, as in RBF\(1\.0\)$",
        ),
        (lambda: as_kernel(kernax.Linear), r"the class Linear: call it, as in Linear\(\)$"),
        (lambda: as_kernel(kernax.kernels.Sum), r"the class Sum: call it, as in Sum\("),
        (lambda: as_kernel(kernax.Spectrum), r"call it, as in Spectrum\("),
        (
            lambda: boundary.as_targets(np.array(["hi"] * 6), 6, DTYPE),
            "y must be an array of real numbers",
        ),
        (
            lambda: boundary.as_targets(np.ones((6, 0)), 6, DTYPE),
            r"y must have shape \(6,\) or \(6, outputs\) .* but has shape \(6, 0\)",
        ),
        (
            lambda: boundary.as_scalar(1e-60, np.float32, "ridge", POSITIVE),
            r"ridge must be in \(0, inf\), but 1e-60 is 0 in float32",
        ),
        (
            lambda: boundary.as_scalar(1e60, np.float32, "noise", POSITIVE),
            r"noise must be in \(0, inf\), but 1e\+60 is inf in float32",
        ),
    ],
)
def test_values_of_the_wrong_kind_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@needs_x64
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda S: untyped(as_kernel)(S), "kernel"),
        (lambda S: untyped(as_process)(S), "process"),
        (lambda S: untyped(as_mean)(S), "mean"),
        (lambda S: as_stack(S, "Z"), "Z must be a batch of n >= 1 points"),
        (lambda S: boundary.as_point(S), "a point"),
        (lambda S: untyped(boundary.as_targets)(S, 6, DTYPE), "y"),
        (lambda S: untyped(boundary.as_scalar)(S, DTYPE, "noise", POSITIVE), "noise"),
        (lambda S: untyped(log_expected_improvement)(S, POINTS[0], 1.0), "process"),
    ],
)
def test_a_solution_in_place_of_its_value_is_told_apart(call, name):
    solution = kernax.Solution(KERNEL, kernax.RESULTS.successful, {})
    with pytest.raises(ValueError, match=f"^{name}.* is a Solution: pass its value, solution.val"):
        call(solution)


@needs_x64
@pytest.mark.parametrize(
    ("kind", "name"),
    [(kernax.Custom, "function"), (kernax.likelihoods.CustomLikelihood, "log_density")],
)
def test_what_is_no_function_is_refused_by_name(kind, name):
    made = object.__new__(kind)  # in the tests beartype would refuse it first
    object.__setattr__(made, name, None)
    with pytest.raises(ValueError, match=f"{name} must be a function, but is None"):
        kind.__check_init__(made)


@needs_x64
def test_an_integer_of_more_than_64_bits_is_a_number():
    assert boundary.as_scalar(10**20, DTYPE, "C", POSITIVE) == 1e20


WORDS = np.array(["m", "f", "m", "f"])
TREES = ["(S (A a) (B b))", "(S (A a))"] * 2
TEXTS = ["GATTACA", "TATAAT"] * 2


@needs_x64
@pytest.mark.parametrize(
    ("came", "hint", "mended", "kernel"),
    [
        (
            TEXTS,
            "kernax.strings.encode converts texts to points",
            kernax.strings.encode,
            kernax.Spectrum(3),
        ),
        (
            TREES,
            "kernax.trees.encode converts trees",
            kernax.trees.encode,
            kernax.SubsetTree(0.5),
        ),
        (
            WORDS,
            "kernax.one_hot converts names of groups to columns of 0 and 1",
            lambda X: kernax.one_hot(X)[0],
            kernax.RBF(),
        ),
        (
            WORDS[:, None],
            "kernax.one_hot converts a column",
            lambda X: kernax.one_hot(X[:, 0])[0],
            kernax.RBF(),
        ),
        (
            [["m", 1.0], ["f", 2.0]],
            r".astype\(float\) converts",
            lambda X: np.array(X)[:, 1:].astype(DTYPE),
            kernax.RBF(),
        ),
        (
            np.array(["2026-01-01"], "M8[D]"),
            "convert it to numbers, or drop",
            lambda X: X.astype(DTYPE)[:, None],
            kernax.RBF(),
        ),
    ],
)
def test_hints_about_words_suit_them_and_work_when_followed(came, hint, mended, kernel):
    with pytest.raises(ValueError, match=hint) as problem:
        kernax.gram(kernel, came)
    assert ("strings.encode" in str(problem.value)) == (came is TEXTS)
    assert np.asarray(kernax.gram(kernel, mended(came))).any()


@needs_x64
def test_hints_about_classes_work_when_followed():
    X, columns = POINTS[:4], np.eye(2)[[0, 1, 0, 1]]
    with pytest.raises(
        ValueError, match=r"2 classes: 0.0, 1.0: 2 \* Y - 1 converts one-hot columns to signs"
    ):
        kernax.svm(KERNEL, X, columns, 1.0)
    as_signs(2 * columns - 1, 4, DTYPE, UnitWeights(4, DTYPE))
    with pytest.raises(ValueError, match=r"shape \(4, 1\): pass labels\[:, 0\]"):
        kernax.signs(WORDS[:, None])
    with pytest.raises(ValueError, match="columns of 0 and 1 are one-hot already"):
        kernax.one_hot(columns)
    with pytest.raises(ValueError, match=r"Y must be .* of type <U1: see kernax.one_hot$"):
        kernax.kernel_softmax(KERNEL, X, WORDS, 1.0)


@needs_x64
@pytest.mark.parametrize("kernel", [kernax.Spectrum(2), kernax.SubsetTree(0.5)])
def test_numbers_are_not_sent_to_be_encoded(kernel):
    with pytest.raises(
        ValueError, match=r"a point is numbers, of shape .*: use a kernel of vectors"
    ) as problem:
        kernax.gram(kernel, POINTS)
    assert "encode" not in str(problem.value)


LEAST = float(np.finfo(DTYPE).tiny)  # below it XLA takes a number for zero


@pytest.mark.parametrize(
    "fit",
    [
        lambda X, w: kernax.kernel_kmeans(KERNEL, X, 2, key=jax.random.key(0), weights=w),
        lambda X, w: kernax.spectral_clustering(KERNEL, X, 2, key=jax.random.key(0), weights=w),
        lambda X, w: kernax.kernel_ridge(KERNEL, X, X[:, 0], 0.1, weights=w),
    ],
    ids=["kernel_kmeans", "spectral_clustering", "kernel_ridge"],
)
def test_weights_that_are_zero_to_a_compiled_program_are_refused_by_their_size(fit):
    X = np.arange(6.0, dtype=DTYPE)[:, None]
    with pytest.raises(ValueError, match=r"weights must not all be zero, but .* counts as zero"):
        fit(X, np.full(6, LEAST / 3, DTYPE))


def test_a_class_whose_weights_are_zero_to_a_compiled_program_is_no_class():
    X = np.arange(6.0, dtype=DTYPE)[:, None]
    y = np.repeat([-1, 1], 3).astype(DTYPE)
    w = np.where(y > 0, 1, LEAST / 3).astype(DTYPE)
    for fit in (kernax.kernel_discriminant, kernax.kernel_logistic, kernax.svm):
        with pytest.raises(ValueError, match=r"(y|Y) holds one class only.* positive weight"):
            fit(KERNEL, X, y, 0.1, weights=w)


def test_checks_see_the_zeros_that_compiled_programs_compute_with():
    w = np.array([LEAST / 3, LEAST, 1, 0], DTYPE)
    weights = boundary.as_weights(w, 4, DTYPE)
    np.testing.assert_array_equal(weights.kept(), [False, True, True, False])
    np.testing.assert_array_equal(np.asarray(weights.values), [0, LEAST, 1, 0])
    assert np.all(np.asarray(boundary.as_noise(w, 4, DTYPE)) == [0, LEAST, 1, 0])
    assert boundary.as_scalar(LEAST / 3, DTYPE, "ridge", NONNEGATIVE) == 0
    with pytest.raises(ValueError, match=r"C must be in \(0, inf\), but .* is 0 in float"):
        boundary.as_scalar(LEAST / 3, DTYPE, "C", POSITIVE)
    with pytest.raises(ValueError, match="lengthscale must be in"):
        kernax.gram(kernax.RBF(np.asarray(LEAST / 3, DTYPE)), np.ones((2, 1), DTYPE))
    assert not POSITIVE.contains(np.asarray(LEAST / 3, DTYPE))


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("weights", [None, [2.0, 1.0, 0.0, 1.0, 1.0]])
def test_the_weights_advised_for_missing_targets_are_taken(outputs, weights):
    """Catches a mask of two columns, and one that forgets the weights that were given."""
    X = np.arange(5, dtype=DTYPE)[:, None]
    y = np.sin(X[:, 0]) if outputs is None else np.sin(X + [[0.0, 1.0]]).astype(DTYPE)
    weights = None if weights is None else np.array(weights, DTYPE)
    full, y = y, y.copy()
    y[(3,) if outputs is None else (3, 1)] = np.nan
    with pytest.raises(
        ValueError, match=r"first in row 3: weights=.* removes such rows"
    ) as refused:
        kernax.kernel_ridge(KERNEL, X, y, 0.1, weights=weights)
    advice = re.search("weights=(.*) removes", str(refused.value)).group(1)
    advised = eval(advice, {"np": np, "y": y, "weights": weights})
    known = np.ones(5, DTYPE) if weights is None else weights.copy()
    known[3] = 0
    assert advised.shape == known.shape
    ours = kernax.kernel_ridge(KERNEL, X, y, 0.1, weights=advised).value
    expected = kernax.kernel_ridge(KERNEL, X, full, 0.1, weights=known).value
    np.testing.assert_array_equal(ours.coefficients, expected.coefficients)


def test_functions_without_weights_do_not_advise_them_for_missing_targets():
    X = np.arange(5, dtype=DTYPE)[:, None]
    y = np.array([1, -1, 1, np.nan, 1], DTYPE)
    calls = (
        lambda: kernax.kernel_perceptron(KERNEL, X, y),
        lambda: kernax.conformal.jackknife_plus(PRIOR, X, y, 0.1, X),
    )
    for call in calls:
        with pytest.raises(ValueError, match="first in row 3: drop such rows or impute"):
            call()


def programs_of(call):
    """How many programs a call compiles."""
    programs = []

    def listen(event, seconds, **_):
        if event == "/jax/core/compile/jaxpr_to_mlir_module_duration":
            programs.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        call()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    return len(programs)


def test_a_first_fit_to_arrays_of_numpy_is_one_program():
    X = np.linspace(0, 1, 53, dtype=DTYPE)[:, None]
    assert programs_of(lambda: kernax.kernel_ridge(kernax.RBF(0.3), X, X[:, 0], 0.1)) == 1
    assert programs_of(lambda: kernax.svm(kernax.RBF(0.3), X, np.sign(X[:, 0] - 0.4), 0.1)) == 1


def test_a_first_gradient_outside_of_jit_compiles_the_function_and_its_derivative():
    X = np.linspace(0, 1, 59, dtype=DTYPE)[:, None]

    def evidence(scale, noise, y):
        return kernax.log_marginal_likelihood(kernax.RBF(scale), X, y, noise)

    arguments = (DTYPE(0.3), DTYPE(0.1), X[:, 0])
    # The third one makes the number 1, with which JAX starts the derivative.
    assert programs_of(lambda: jax.grad(evidence, (0, 1, 2))(*arguments)) <= 3


@needs_x64
@pytest.mark.parametrize("function", [as_array, lambda X: as_stack(X, "X")])
def test_an_array_of_numpy_is_copied(function):
    # JAX would keep the memory of some arrays, by where they begin.
    for n in range(1000, 1040):
        given = np.zeros((n, 1), DTYPE)
        array = function(given)
        given[:] = 1
        assert not np.any(array), n
