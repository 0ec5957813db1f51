"""k-means in the space of a kernel and spectral clustering."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import (
    DTYPE,
    TOLERANCE,
    X64,
    assert_close,
    needs_x64,
    untyped,
)
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.cluster._spectral import cluster_qr
from sklearn.datasets import make_circles, make_moons
from sklearn.manifold import spectral_embedding
from sklearn.metrics import adjusted_rand_score

import kernax
from kernax.core.linalg.eigenproblem import leading_pairs
from kernax.core.operators.operators import DenseGram
from kernax.errors import ClusterWarning
from kernax.unsupervised import graphs
from kernax.unsupervised.graphs import Graph
from kernax.unsupervised.means_of_clusters import Cloud, best_partition, lloyd

KEY = jax.random.key(0)
rng = np.random.default_rng(0)
CENTRES = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
BLOBS = (rng.normal(size=(60, 2)) + CENTRES[np.arange(60) % 3]).astype(DTYPE)
X = rng.normal(size=(14, 2)).astype(DTYPE)


def same_partition(a, b):
    return adjusted_rand_score(np.asarray(a), np.asarray(b)) == 1


def objective(K, labels, weights):
    """The sum of squared distances to means, cluster by cluster."""
    total = 0.0
    for c in np.unique(labels):
        w = weights * (labels == c)
        total += w @ np.diag(K) - w @ K @ w / max(w.sum(), 1e-300)
    return total


# k-means.


@needs_x64
def test_with_a_linear_kernel_it_is_kmeans():
    found = kernax.kernel_kmeans(kernax.Linear(), BLOBS, 3, key=KEY)
    peer = KMeans(3, n_init=10, random_state=0).fit(BLOBS)
    assert_close(found.stats["objective"], peer.inertia_, TOLERANCE["solve"])
    assert same_partition(found.value.labels, peer.labels_)
    near = jax.vmap(found.value.assign)(jnp.asarray(BLOBS + DTYPE(0.1)))
    assert same_partition(near, peer.predict(BLOBS + DTYPE(0.1)))


@needs_x64
def test_from_the_same_start_each_step_is_that_of_kmeans():
    labels = np.random.default_rng(3).integers(0, 3, 60).astype(np.int32)
    gram = DenseGram(kernax.gram(kernax.Linear(), BLOBS))
    end = lloyd(Cloud(gram, jnp.ones(60)), jnp.asarray(labels), 3, jnp.asarray(100))
    means = np.stack([BLOBS[labels == c].mean(0) for c in range(3)])
    peer = KMeans(3, init=means, n_init=1, algorithm="lloyd", tol=0).fit(BLOBS)
    np.testing.assert_array_equal(end.labels, peer.labels_)


@pytest.mark.nightly
@needs_x64
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_the_objective_never_rises_and_no_cluster_is_empty(seed, clusters):
    """Points with copies and with weights of zero; more steps allowed can only lower it."""
    draw = np.random.default_rng(seed)
    points = draw.normal(size=(9, 2))[draw.integers(0, 6, 9)]
    weights = draw.integers(0, 3, 9) * 1.0
    weights[: clusters + 1] = 1.0
    K = np.asarray(kernax.gram(kernax.RBF(), points))
    labels = jnp.asarray(draw.integers(0, clusters, 9), jnp.int32)
    before = np.inf
    for steps in range(4):
        end = SHORT(K, jnp.asarray(weights), labels, clusters, steps)
        counts = np.bincount(np.asarray(end.labels)[weights > 0], minlength=clusters)
        assert (counts > 0).all()
        now = objective(K, np.asarray(end.labels), weights)
        assert now <= before + 1e-12
        before = now


def _short(K, weights, labels, clusters, steps):
    return lloyd(Cloud(DenseGram(K), weights), labels, clusters, jnp.asarray(steps))


SHORT = jax.jit(_short, static_argnums=(3, 4))


@pytest.mark.slow
@needs_x64
def test_the_reported_objective_is_that_of_the_partition_and_no_point_is_nearer_to_another_mean():
    weights = np.random.default_rng(4).uniform(0.1, 2, 14)
    found = kernax.kernel_kmeans(kernax.RBF(), X, 4, key=KEY, weights=weights)
    K = np.asarray(kernax.gram(kernax.RBF(), X))
    labels = np.asarray(found.value.labels)
    assert_close(found.stats["objective"], objective(K, labels, weights))
    np.testing.assert_array_equal(jax.vmap(found.value.assign)(X), labels)
    means = np.stack([weights * (labels == c) / (weights * (labels == c)).sum() for c in range(4)])
    apart = 1 - 2 * K @ means.T + np.sum(means @ K * means, 1)
    np.testing.assert_array_equal(np.argmin(apart, 1), labels)


def test_more_clusters_than_distinct_points_are_said_and_none_is_empty():
    same = np.ones((5, 2), DTYPE)
    with pytest.warns(ClusterWarning, match="only 1 of 3 clusters differ"):
        found = kernax.kernel_kmeans(kernax.RBF(), same, 3, key=KEY)
    assert set(np.asarray(found.value.labels)) == {0, 1, 2}
    assert np.isfinite(found.value.function.values(same)).all()
    assert found.result == kernax.RESULTS.successful


@needs_x64
def test_as_many_clusters_as_points_is_each_alone():
    found = kernax.kernel_kmeans(kernax.RBF(), X, 14, key=KEY)
    assert len(set(np.asarray(found.value.labels))) == 14
    np.testing.assert_allclose(found.stats["objective"], 0, atol=1e-5)
    assert found.stats["distinct"] == 14


@pytest.mark.slow
def test_clusters_do_not_depend_on_how_small_all_weights_are():
    least = float(np.finfo(DTYPE).tiny)
    K = np.asarray(kernax.gram(kernax.RBF(2.0), BLOBS), np.longdouble)
    w = 1 + np.arange(60) % 3
    of_ones = kernax.spectral_clustering(kernax.RBF(2.0), BLOBS, 3, key=KEY, weights=w)
    for unit in (least**0.7, 1.5 * least):
        weights = (w * unit).astype(DTYPE)
        found = kernax.kernel_kmeans(kernax.RBF(2.0), BLOBS, 3, key=KEY, weights=weights)
        expected = objective(K, np.asarray(found.value.labels), w.astype(np.longdouble))
        assert_close(np.asarray(found.stats["objective"]) / unit, expected, TOLERANCE["solve"])
        graph = kernax.spectral_clustering(kernax.RBF(2.0), BLOBS, 3, key=KEY, weights=weights)
        assert same_partition(graph.value.labels, of_ones.value.labels)
        for name in ("objective", "relaxation"):
            assert_close(graph.stats[name], of_ones.stats[name], TOLERANCE["solve"])
        near = jax.vmap(graph.value.assign)(jnp.asarray(BLOBS))
        assert same_partition(near, of_ones.value.labels)


@pytest.mark.slow
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("heavy", [1e20, 1e160] if X64 else [1e10, 1e18])
def test_heavy_weights_change_neither_clusters_nor_the_count_of_components(heavy, normalised):
    """Warnings, such as that the graph is in parts, are errors here."""
    options = {"key": KEY, "normalised": normalised}
    labels = np.arange(60) % 3
    apart = (BLOBS - CENTRES[labels]) * 0.3 + CENTRES[labels]
    weights = np.full(60, heavy, DTYPE)
    found = kernax.spectral_clustering(
        kernax.RBF(2.0), apart.astype(DTYPE), 3, weights=weights, **options
    )
    assert found.stats["components"] == 1
    assert same_partition(found.value.labels, labels)


@pytest.mark.parametrize("normalised", [True, False])
def test_weights_near_the_ends_of_the_range_of_floats_have_the_eigenvectors_of_others(normalised):
    """Eigenvalues are NumPy's, and a point of the fit stands in the same place as a new one."""
    K = np.asarray(kernax.gram(kernax.RBF(2.0), BLOBS), float)
    degrees = np.sum(K, 1) if normalised else np.ones(60)
    expected = np.linalg.eigvalsh(K / np.sqrt(np.outer(degrees, degrees)))[:-4:-1]
    limits = np.finfo(DTYPE)
    for weight in (1.5 * float(limits.tiny), 1e-3 * float(limits.max)):
        found = kernax.spectral_clustering(
            kernax.RBF(2.0),
            BLOBS,
            3,
            key=KEY,
            weights=np.full(60, weight, DTYPE),
            normalised=normalised,
        )
        values = np.asarray(found.value.values, np.longdouble)
        assert_close(values / (1 if normalised else weight), expected, TOLERANCE["solve"])
        assert_close(found.stats["relaxation"], values.sum(), TOLERANCE["solve"])
        assert same_partition(found.value.labels, np.arange(60) % 3)
        row = np.asarray(found.value.embedding[0], np.longdouble)
        largest = np.max(abs(row))
        again = np.asarray(found.value.embed(BLOBS[0]), np.longdouble)
        assert_close(again / largest, row / largest, TOLERANCE["solve"])


def test_eigenvectors_of_a_graph_with_negative_eigenvalues_need_a_small_residual(monkeypatch):
    """Negative eigenvalues hid that the leading ones had not been reached."""
    K = jnp.asarray(np.array([[0.0, 1.0], [1.0, 0.0]], DTYPE))
    graph = Graph.of(DenseGram(K), jnp.ones(2, DTYPE), True)
    sound = eqx.filter_jit(lambda graph: graph.eigenvectors(2))(graph)
    assert sound.report.negative == 1
    assert sound.result == kernax.RESULTS.successful

    def unreached(*args, **kwargs):
        pairs, report = leading_pairs(*args, **kwargs)
        return pairs, report.with_residual(jnp.ones((), DTYPE))

    monkeypatch.setattr(graphs, "leading_pairs", unreached)
    found = eqx.filter_jit(lambda graph: graph.eigenvectors(2))(graph)
    assert found.result == kernax.RESULTS.inaccurate


@pytest.mark.slow
def test_kmeans_is_the_same_where_the_sum_of_all_weights_is_too_large_for_a_float():
    weights = np.full(60, 0.1 * np.finfo(DTYPE).max, DTYPE)
    found = kernax.kernel_kmeans(kernax.RBF(2.0), BLOBS, 3, key=KEY, weights=weights)
    of_ones = kernax.kernel_kmeans(kernax.RBF(2.0), BLOBS, 3, key=KEY)
    assert same_partition(found.value.labels, of_ones.value.labels)


@pytest.mark.nightly
@needs_x64
def test_in_blocks_and_in_features_the_partition_is_the_same():
    dense = kernax.kernel_kmeans(kernax.RBF(2.0), BLOBS, 3, key=KEY)
    blocked = kernax.kernel_kmeans(kernax.RBF(2.0), BLOBS, 3, key=KEY, block_size=16)
    assert same_partition(dense.value.labels, blocked.value.labels)
    plain = kernax.kernel_kmeans(kernax.Linear(), BLOBS, 3, key=KEY)
    features = kernax.kernel_kmeans(kernax.FeatureMap(lambda x: x), BLOBS, 3, key=KEY)
    assert features.stats["features"] == 2
    assert same_partition(plain.value.labels, features.value.labels)


@pytest.mark.slow
@needs_x64
def test_soft_memberships_are_a_fixed_point_and_harden_as_the_temperature_falls():
    found = kernax.kernel_kmeans(kernax.RBF(2.0), BLOBS, 3, key=KEY, temperature=0.2)
    R = np.asarray(found.value.memberships)
    K = np.asarray(kernax.gram(kernax.RBF(2.0), BLOBS))
    P = R / R.sum(0)
    apart = 1 - 2 * K @ P + np.sum(P * (K @ P), 0)
    weights = np.exp(-apart / 0.2)
    np.testing.assert_allclose(R, weights / weights.sum(1, keepdims=True), atol=1e-9)
    assert_close(jax.vmap(found.value.membership)(BLOBS), R, 1e-8)
    cold = kernax.kernel_kmeans(kernax.RBF(2.0), BLOBS, 3, key=KEY, temperature=1e-3).value
    hard = kernax.kernel_kmeans(kernax.RBF(2.0), BLOBS, 3, key=KEY).value
    np.testing.assert_allclose(cold.memberships, hard.memberships, atol=1e-6)
    assert_close(jax.vmap(hard.membership)(BLOBS), hard.memberships)


@needs_x64
def test_soft_memberships_that_need_more_steps_say_so():
    found = kernax.kernel_kmeans(
        kernax.RBF(), X, 3, key=KEY, temperature=0.3, max_steps=2, throw=False
    )
    assert found.result == kernax.RESULTS.max_steps_reached
    assert found.stats["residual"] > 1e-10


@pytest.mark.slow
@needs_x64
def test_more_starts_never_give_a_worse_partition():
    gram = DenseGram(kernax.gram(kernax.RBF(0.3), BLOBS))
    cloud = Cloud(gram, jnp.ones(60))
    keys = jax.random.split(KEY, 8)
    several = jax.jit(lambda key: best_partition(cloud, 8, 8, jnp.asarray(100), key).objective)(KEY)
    alone = jax.vmap(
        lambda key: (
            lloyd(
                cloud,
                jax.random.randint(key, (60,), 0, 8).astype(jnp.int32),
                8,
                jnp.asarray(100),
            ).objective
        )
    )(keys)
    assert several <= np.median(alone)


@needs_x64
def test_clusters_refuse_what_makes_no_sense():
    kmeans = untyped(kernax.kernel_kmeans)
    weights = np.zeros(14)
    weights[:2] = 1.0
    with pytest.raises(ValueError, match="n_clusters must be at most 2, the number of points of"):
        kmeans(kernax.RBF(), X, 3, key=KEY, weights=weights)
    with pytest.raises(ValueError, match="n_clusters must be a positive integer"):
        kmeans(kernax.RBF(), X, 0, key=KEY)
    with pytest.raises(ValueError, match="temperature"):
        kmeans(kernax.RBF(), X, 2, key=KEY, temperature=0.0)
    with pytest.raises(ValueError, match="key"):
        kmeans(kernax.RBF(), X, 2, key=0)
    spectral = untyped(kernax.spectral_clustering)
    with pytest.raises(ValueError, match="rounding must be one of kmeans, discrete"):
        spectral(kernax.RBF(), X, 2, key=KEY, rounding="none")
    with pytest.raises(ValueError, match="temperature is for rounding='kmeans'"):
        spectral(kernax.RBF(), X, 2, key=KEY, rounding="discrete", temperature=0.1)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("rounding", ["discrete", "qr"])
def test_points_of_weight_zero_have_no_part_in_a_rounding_by_rotations(rng, rounding):
    X = np.concatenate([rng.normal(size=(15, 2)) + centre for centre in ([0, 0], [2, 0], [0, 2])])
    far = rng.normal(size=(30, 2)) * 3
    cut = lambda X, w: kernax.spectral_clustering(
        kernax.RBF(), X, 3, key=jax.random.key(1), weights=w, rounding=rounding, n_starts=30
    )
    alone = cut(X, np.ones(45))
    beside = cut(np.concatenate([X, far]), np.repeat([1.0, 0.0], [45, 30]))
    np.testing.assert_allclose(beside.stats["objective"], alone.stats["objective"], rtol=1e-9)
    np.testing.assert_array_equal(beside.value.labels[:45], alone.value.labels)


@pytest.mark.slow
@needs_x64
def test_a_rounding_by_pivots_is_that_of_scikit_learn_and_counts_weights_as_copies():
    kernel = kernax.RBF(1.5)
    cut = lambda X, w: kernax.spectral_clustering(kernel, X, 3, key=KEY, weights=w, rounding="qr")
    found = cut(BLOBS, None).value
    assert same_partition(found.labels, cluster_qr(np.asarray(found.embedding)))
    counts = 1 + np.arange(60) % 2
    weighted = cut(BLOBS, 1.0 * counts).value.labels
    copied = cut(np.repeat(BLOBS, counts, axis=0), None).value.labels
    np.testing.assert_array_equal(np.repeat(weighted, counts), copied)


@pytest.mark.nightly
@needs_x64
def test_clusters_may_be_of_fewer_or_more_eigenvectors_than_clusters():
    kernel = kernax.RBF(1.5)
    for count in (2, 4):
        found = kernax.spectral_clustering(kernel, BLOBS, 3, key=KEY, n_eigenvectors=count)
        embedding = np.asarray(found.value.embedding)
        assert embedding.shape == (60, count)
        if count == 2:  # the others tell points within the blobs apart
            assert same_partition(found.value.labels, np.arange(60) % 3)
        np.testing.assert_allclose(
            found.value.means[found.value.assign(BLOBS[7])],
            embedding[found.value.labels == found.value.labels[7]].mean(0),
        )
        assert found.stats["objective"] <= found.stats["relaxation"]
    every = kernax.spectral_clustering(kernel, BLOBS, 3, key=KEY, n_eigenvectors=5).value.values
    leading = kernax.spectral_clustering(kernel, BLOBS, 3, key=KEY)
    np.testing.assert_allclose(leading.stats["relaxation"], every[:3].sum())
    with pytest.raises(ValueError, match="n_eigenvectors must be as many as n_clusters, 3"):
        kernax.spectral_clustering(kernel, BLOBS, 3, key=KEY, n_eigenvectors=5, rounding="qr")
    with pytest.raises(ValueError, match="n_eigenvectors must be at most"):
        kernax.spectral_clustering(kernel, BLOBS, 3, key=KEY, n_eigenvectors=61)


@pytest.mark.slow
@needs_x64
def test_no_point_goes_to_a_cluster_without_weight():
    """Which a batch of weights may have, whose numbers of points are not known."""
    X = np.array([[0.0], [1.0], [2.0], [3.0]])

    def fit(w):
        found = kernax.kernel_kmeans(
            kernax.RBF(), X, 3, key=jax.random.key(0), weights=w, throw=False
        )
        return found.value.assign(jnp.array([50.0])), found.stats["distinct"], found.value.labels

    far, distinct, labels = jax.jit(jax.vmap(fit))(jnp.array([[1.0, 1.0, 0.0, 0.0]]))
    assert distinct[0] == 2
    assert far[0] in labels[0][:2]


@pytest.mark.slow
@needs_x64
def test_a_graph_has_no_negative_edges():
    """Degrees would be negative, and an objective of any size a success."""
    K = np.array([[1.0, 0.5, -0.2], [0.5, 1.0, 0.4], [-0.2, 0.4, 1.0]])
    cut = lambda K, **options: kernax.spectral_clustering(
        kernax.Precomputed(K), np.arange(3), 2, key=jax.random.key(0), **options
    )
    with pytest.raises(ValueError, match=r"values >= 0, .* Precomputed go down to -0.2"):
        cut(K)
    assert cut(K, normalised=False).result == kernax.RESULTS.successful
    traced = jax.jit(lambda K: cut(K, throw=False).result)
    assert traced(jnp.asarray(K)) == kernax.RESULTS.breakdown
    assert traced(jnp.abs(K)) == kernax.RESULTS.successful


@needs_x64
@pytest.mark.parametrize("rounding", ["kmeans", "discrete", "qr"])
def test_parts_of_one_point_repeated_are_said_to_coincide(rounding):
    with pytest.warns(ClusterWarning, match="spectral_clustering: only . of 3 clusters differ"):
        kernax.spectral_clustering(
            kernax.RBF(), np.ones((6, 2)), 3, key=jax.random.key(0), rounding=rounding
        )


# Spectral clustering.

SHAPES = {
    "moons": make_moons(120, noise=0.04, random_state=0),
    "circles": make_circles(120, factor=0.4, noise=0.03, random_state=0),
}


@needs_x64
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rounding", ["kmeans", "discrete", "qr"])
def test_moons_and_circles_are_told_apart_as_by_scikit_learn(shape, rounding):
    points, truth = SHAPES[shape]
    points = np.asarray(points, DTYPE)
    kernel = kernax.RBF(0.17)
    found = kernax.spectral_clustering(kernel, points, 2, key=KEY, rounding=rounding)
    peer = SpectralClustering(2, affinity="precomputed", random_state=0)
    labels = peer.fit(np.asarray(kernax.gram(kernel, points), np.float64)).labels_
    assert same_partition(found.value.labels, labels)
    assert same_partition(found.value.labels, truth)


@pytest.mark.slow
@needs_x64
def test_the_embedding_of_a_graph_without_loops_is_that_of_scikit_learn():
    """Such a graph has negative eigenvalues."""
    points, _ = SHAPES["moons"]
    A = np.asarray(kernax.gram(kernax.RBF(0.3), points)) - np.eye(120)
    found = kernax.spectral_clustering(kernax.Precomputed(A), np.arange(120), 3, key=KEY)
    peer = spectral_embedding(A, n_components=3, drop_first=False, random_state=0)
    ours = np.asarray(found.value.embedding)
    ratio = np.linalg.norm(ours, axis=0) / np.linalg.norm(peer, axis=0)
    np.testing.assert_allclose(np.abs(ours), np.abs(peer) * ratio, atol=1e-6)


@pytest.mark.slow
@needs_x64
def test_the_embedding_extends_to_new_points():
    points, _ = SHAPES["moons"]
    found = kernax.spectral_clustering(kernax.RBF(0.3), points, 3, key=KEY).value
    at_points = jax.vmap(found.embed)(points)
    np.testing.assert_allclose(at_points, found.embedding, atol=1e-10)
    assert same_partition(jax.vmap(found.assign)(points + 1e-3), found.labels)


@pytest.mark.slow
@needs_x64
def test_no_partition_exceeds_the_relaxation_of_the_trace():
    """U3: against all partitions of a few points."""
    few = X[:7]
    found = kernax.spectral_clustering(kernax.RBF(), few, 2, key=KEY, normalised=False)
    K = np.asarray(kernax.gram(kernax.RBF(), few))
    attained = []
    for code in range(1, 2**6):
        labels = np.array([code >> i & 1 for i in range(7)])
        parts = [labels == c for c in (0, 1)]
        attained.append(sum(K[np.ix_(part, part)].sum() / part.sum() for part in parts))
    assert max(attained) <= found.stats["relaxation"]
    assert_close(found.stats["relaxation"], np.linalg.eigvalsh(K)[-2:].sum())
    assert found.stats["objective"] <= max(attained) + 1e-12
    assert found.stats["objective"] >= 0.98 * max(attained)


@pytest.mark.slow
def test_a_graph_in_parts_is_told_apart_and_its_parts_are_counted():
    """U04."""
    A = np.kron(np.eye(2), np.ones((3, 3))).astype(DTYPE)
    with pytest.warns(ClusterWarning, match="falls into 2 parts"):
        found = kernax.spectral_clustering(kernax.Precomputed(A), np.arange(6), 2, key=KEY)
    assert same_partition(found.value.labels, [0, 0, 0, 1, 1, 1])
    A[5, :] = 0
    A[:, 5] = 0
    with pytest.warns(ClusterWarning, match="falls into 3 parts"):
        found = kernax.spectral_clustering(kernax.Precomputed(A), np.arange(6), 3, key=KEY)
    assert same_partition(found.value.labels, [0, 0, 0, 1, 1, 2])
    assert np.isfinite(found.value.embedding).all()
    assert found.stats["components"] == 3


@pytest.mark.nightly
@needs_x64
def test_a_long_chain_is_one_component():
    n = 20
    A = np.eye(n) + np.eye(n, k=1) + np.eye(n, k=-1)
    found = kernax.spectral_clustering(kernax.Precomputed(A), np.arange(n), 2, key=KEY)
    assert found.stats["components"] == 1
    assert same_partition(found.value.labels, np.arange(n) >= n // 2)


@pytest.mark.slow
@needs_x64
def test_a_kernel_is_learned_through_soft_clusters():
    """Two clusters along the first axis, noise along the second: gradients of the agreement of two
    labelled points with their clusters lengthen the lengthscale of the noise.
    """
    draw = np.random.default_rng(2)
    side = np.sign(np.arange(30) % 2 - 0.5)
    points = np.stack([side + 0.3 * draw.normal(size=30), 3 * draw.normal(size=30)], 1)

    def disagreement(log_scales):
        found = kernax.kernel_kmeans(
            kernax.RBF(jnp.exp(log_scales)),
            points,
            2,
            key=KEY,
            temperature=0.1,
            max_steps=2000,
            throw=False,
        ).value
        R = found.memberships
        together = R @ R.T
        same = jnp.asarray(side[:, None] == side[None, :], R.dtype)
        return jnp.mean((together - same) ** 2)

    sloped = jax.jit(jax.value_and_grad(disagreement))
    scales = jnp.zeros(2)
    before, _ = sloped(scales)
    for _ in range(60):
        _, slope = sloped(scales)
        scales = scales - 0.5 * slope / jnp.maximum(jnp.linalg.norm(slope), 0.5)
    after, _ = sloped(scales)
    assert after < 0.5 * before
    assert scales[1] > scales[0]
