"""Time series and the global alignment kernel; graphs by rounds of relabelling."""

import itertools
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, assert_close, check_derivatives, needs_x64

import kernax

GlobalAlignment = kernax.kernels.GlobalAlignment
pad = GlobalAlignment.pad


def series(lengths, d=2, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(length, d)).astype(DTYPE) for length in lengths]


def over_all_alignments(x, z, lengthscale):
    """Every alignment, one by one."""
    k = np.exp(-((x[:, None] - z[None]) ** 2).sum(-1) / (2 * lengthscale**2))
    kappa = k / (2 - k)
    total = 0.0
    todo = [((0, 0), kappa[0, 0])]
    while todo:
        (i, j), product = todo.pop()
        if (i, j) == (len(x) - 1, len(z) - 1):
            total += product
        for a, b in ((i + 1, j), (i, j + 1), (i + 1, j + 1)):
            if a < len(x) and b < len(z):
                todo.append(((a, b), product * kappa[a, b]))
    return total


@pytest.mark.slow
def test_it_is_the_sum_over_all_alignments_for_all_lengths_and_any_padding():
    some = series([4, 1, 3, 5])
    expected = [[over_all_alignments(x, z, 0.7) for z in some] for x in some]
    kernel = GlobalAlignment(kernax.RBF(0.7))
    K = kernax.gram(kernel, pad(some))
    assert_close(K, expected, 10 * TOLERANCE["value"])
    np.testing.assert_array_equal(K, kernax.gram(kernel, pad(some, 9)))
    apart = kernax.gram(kernel, pad(some[:2]), pad(some[2:], 7))
    assert_close(apart, np.asarray(expected)[:2, 2:], 10 * TOLERANCE["value"])


@pytest.mark.slow
@needs_x64
def test_series_of_one_length_need_no_padding():
    X = np.stack(series([4, 4, 4]))
    kernel = GlobalAlignment(kernax.Matern32(1.5))
    lengths = np.full(3, 4, np.int32)
    np.testing.assert_array_equal(kernax.gram(kernel, X), kernax.gram(kernel, (X, lengths)))
    f = kernax.kernel_ridge(kernel, X, np.arange(3.0, dtype=DTYPE), 0.1).value
    assert f.values(X).shape == (3,)


@pytest.mark.slow
@needs_x64
def test_long_series_stay_in_range_inside_normalised():
    """The number of alignments of two series of 700 vectors is above the largest float."""
    X = pad(series([700, 690], 1))
    kernel = GlobalAlignment(kernax.RBF(1e3))
    x = jax.tree.map(lambda leaf: leaf[0], X)
    assert not np.isfinite(jax.jit(lambda x: kernel(x, x))(x))
    K = kernax.gram(kernax.Normalised(kernel), X)
    assert_close(jnp.diagonal(K), 1.0, 1e-12)
    assert 0.9 < K[0, 1] < 1


@pytest.mark.slow
@needs_x64
def test_vectors_that_are_far_apart_have_finite_values_and_gradients():
    X = pad([[0.0, 1e3, 0.0], [0.0, 1.0]])

    def total(lengthscale, values):
        kernel = kernax.Normalised(GlobalAlignment(kernax.RBF(lengthscale)))
        return jnp.sum(kernax.gram(kernel, (values, X[1])))

    value, slopes = jax.jit(jax.value_and_grad(total, (0, 1)))(0.5, X[0])
    assert value == pytest.approx(2.0, abs=1e-12)
    assert all(np.all(np.isfinite(slope)) for slope in slopes)
    # Padding has no influence.
    assert not np.any(slopes[1][1, 2:])


@pytest.mark.slow
@needs_x64
def test_derivatives_are_difference_quotients_to_second_order():
    some = series([3, 5, 4], 1)
    values, lengths = pad(some)

    def total(lengthscale, values):
        K = kernax.gram(GlobalAlignment(kernax.RBF(lengthscale)), (values, lengths))
        return jnp.sum(jnp.log(K))

    arguments = jnp.asarray(0.8), values
    check_derivatives(total, arguments, rtol=1e-7, atol=1e-8)
    check_derivatives(jax.grad(total, (0, 1)), arguments, rtol=1e-6, atol=1e-7)


def test_a_last_pair_that_is_far_apart_leaves_the_gradient_in_other_vectors():
    """With a distance of 13 the last cell is near the smallest number of float32."""

    @jax.jit
    def relative_slopes(distance):
        z = jnp.full((60, 1), 0.1, DTYPE).at[-1].add(distance)
        kernel = lambda x: GlobalAlignment(kernax.RBF(1.0))(x, z)
        value, slopes = jax.value_and_grad(kernel)(jnp.zeros((60, 1), DTYPE))
        return slopes[:-1] / value

    # All alignments end with that pair, and others of the last z do not count.
    near, far = relative_slopes(jnp.asarray(8.0, DTYPE)), relative_slopes(jnp.asarray(13.0, DTYPE))
    assert_close(far, near, 1e-4)


@needs_x64
def test_what_is_no_series_is_refused():
    kernel = GlobalAlignment(kernax.RBF())
    with pytest.raises(ValueError, match=r"series of shape \(L, d\), but a point is of shape"):
        kernax.gram(kernel, np.ones((3, 2)))
    with pytest.raises(ValueError, match="at least one time series"):
        pad([])
    with pytest.raises(ValueError, match=r"series\[1\] has shape \(2, 3\)"):
        pad([np.ones((2, 1)), np.ones((2, 3))])
    with pytest.raises(ValueError, match=r"series\[0\] has shape \(0,\)"):
        pad([[]])
    with pytest.raises(ValueError, match="length must be at least 2"):
        pad([[1.0, 2.0]], 1)
    with pytest.raises(kernax.errors.NonFiniteError):
        kernax.gram(GlobalAlignment(3.0 * kernax.RBF()), np.ones((2, 3, 1)))


@pytest.mark.slow
@needs_x64
def test_series_of_different_lengths_in_a_list_are_sent_to_the_function_that_pads_them():
    X = series([3, 2])
    stored = np.empty(2, object)
    stored[:] = X
    learners: Any = (
        kernax.gram,
        lambda kernel, X: kernax.svm(kernel, X, jnp.array([1.0, -1.0]), 1.0),
        lambda kernel, X: kernax.kernel_ridge(kernel, X, jnp.array([1.0, 2.0]), 0.1),
    )
    alignment = GlobalAlignment(kernax.RBF())
    for kernel in (alignment, kernax.Normalised(alignment)):
        for learn, came in itertools.product(learners, (X, stored)):
            with pytest.raises(
                ValueError, match=r"points .*: kernax\.kernels\.GlobalAlignment\.pad"
            ):
                learn(kernel, came)
        kernax.gram(kernel, pad(X))


def test_the_median_lengthscale_of_series_is_cuturis():
    X = series([3, 2, 5, 5])
    vectors = np.concatenate(X).astype(float)
    gaps = np.linalg.norm(vectors[:, None] - vectors, axis=-1)[np.triu_indices(len(vectors), 1)]
    found = kernax.selection.median_lengthscale(pad(X, 7))
    assert found.dtype == DTYPE
    np.testing.assert_allclose(found, 2 * np.median(gaps), rtol=1e-5)  # of a median length of 4
    same = np.stack(X[2:])
    np.testing.assert_array_equal(
        kernax.selection.median_lengthscale(same),
        kernax.selection.median_lengthscale(pad(same)),
    )


@pytest.mark.slow
@needs_x64
def test_a_length_outside_of_the_series_is_no_number():
    """Also where padding of the other series leaves room for it."""
    X = pad(series([3, 2]), 3)
    kernel = kernax.Normalised(GlobalAlignment(kernax.RBF(0.7)))

    def value(values, length):
        x, z = (values, length), (X[0][1], X[1][1])
        return kernel(x, z)

    lengths = jnp.asarray([0, 1, 3, 4], jnp.int32)
    of_lengths = jax.jit(jax.vmap(jax.value_and_grad(value), (None, 0)))
    found, slopes = of_lengths(X[0][0], lengths)
    np.testing.assert_array_equal(np.isfinite(found), [False, True, True, False])
    assert np.all(np.isfinite(slopes[1:3]))


# Graphs

ROUNDS = 3


def random_graph(rng):
    n = int(rng.integers(1, 7))
    labels = [str(label) for label in rng.choice(list("ab"), n)]
    pairs = [pair for pair in itertools.combinations(range(n), 2) if rng.uniform() < 0.4]
    return labels, pairs


def labels_of(graph, rounds):
    """Nested tuples, not compressed."""
    labels, edges = graph
    found = Counter((0, label) for label in labels)
    for turn in range(1, rounds + 1):
        around = [[] for _ in labels]
        for i, j in edges:
            around[i].append(labels[j])
            around[j].append(labels[i])
        labels = [(own, tuple(sorted(others, key=repr))) for own, others in zip(labels, around)]
        found.update((turn, label) for label in labels)
    return found


@needs_x64
def test_the_weisfeiler_lehman_kernel_counts_pairs_of_equal_nested_labels():
    rng = np.random.default_rng(0)
    graphs = [random_graph(rng) for _ in range(8)]
    counts = [labels_of(graph, ROUNDS) for graph in graphs]
    expected = [[sum(a[u] * b[u] for u in a) for b in counts] for a in counts]
    X = kernax.strings.from_graphs(graphs, ROUNDS)
    np.testing.assert_array_equal(kernax.gram(kernax.Spectrum(1), X), expected)
    # Other graphs by the same alphabet, whatever else they hold.
    old = kernax.strings.from_graphs(graphs[:5], ROUNDS)
    new = kernax.strings.from_graphs(graphs[5:], ROUNDS, old.alphabet, unknown="gap")
    across = kernax.gram(kernax.Spectrum(1), old, new)
    np.testing.assert_array_equal(across, np.asarray(expected)[:5, 5:])


@needs_x64
def test_nodes_in_another_order_are_the_same_graph():
    labels, edges = ["a", "b", "a", "c"], [(0, 1), (1, 2), (3, 1)]
    turned = [labels[i] for i in (3, 2, 1, 0)], [(3 - i, 3 - j) for i, j in reversed(edges)]
    X = kernax.strings.from_graphs([(labels, edges), turned])
    K = kernax.gram(kernax.Spectrum(1), X)
    assert K[0, 0] == K[0, 1] == K[1, 1]


@needs_x64
def test_what_is_no_graph_is_refused():
    with pytest.raises(ValueError, match=r"graphs\[0\] must be a pair of labels and edges"):
        kernax.strings.from_graphs([["a", "b", "c"]])
    with pytest.raises(ValueError, match=r"pair of indices of its 2 nodes, but is \(0, 2\)"):
        kernax.strings.from_graphs([(["a", "b"], [(0, 2)])])
    with pytest.raises(ValueError, match="n_rounds"):
        kernax.strings.from_graphs([(["a"], [])], n_rounds=-1)
