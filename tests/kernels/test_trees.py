"""Trees as points, and their kernel against fragments written out one by one."""

import itertools
from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, assert_close, needs_x64

import kernax
from kernax.errors import FeaturelessWarning, NonFiniteError
from kernax.kernels.subset_trees import _inside
from kernax.testing import check_conformance

Trees, encode = kernax.trees.Trees, kernax.trees.encode
TEXT = "(S (NP (D the) (N dog)) (VP barks))"
TUPLES = ("S", ("NP", ("D", "the"), ("N", "dog")), ("VP", "barks"))


def random_tree(rng, depth):
    """Few labels and productions, so that much is shared; labels of inner nodes occur at leaves,
    too.
    """
    if depth == 0 or rng.uniform() < 0.2:
        return str(rng.choice(list("abS")))
    return str(rng.choice(list("ST"))), *(
        random_tree(rng, depth - 1) for _ in range(rng.integers(1, 4))
    )


def random_trees(seed, count):
    rng = np.random.default_rng(seed)
    return [("S", random_tree(rng, 2), random_tree(rng, 2)) for _ in range(count)]


FOREST = random_trees(0, 10)
X = encode(FOREST)


def rooted(tree):
    """Every fragment with this root, as text and number of productions."""
    if isinstance(tree, str):
        return []
    cut = [
        [(child if isinstance(child, str) else child[0], 0), *rooted(child)] for child in tree[1:]
    ]
    text = lambda parts: f"({' '.join([tree[0], *(part for part, _ in parts)])})"
    return [(text(parts), 1 + sum(size for _, size in parts)) for parts in itertools.product(*cut)]


def fragments(tree):
    below = Counter() if isinstance(tree, str) else sum(map(fragments, tree[1:]), Counter())
    return below + Counter(rooted(tree))


def by_brute_force(trees, weight):
    counts = [fragments(tree) for tree in trees]
    return np.array(
        [
            [sum(n * b[key] * weight(key[1]) for key, n in a.items()) for b in counts]
            for a in counts
        ],
        float,
    )


@pytest.mark.parametrize("decay", [1.0, 0.3])
def test_the_kernel_counts_common_fragments(decay):
    """K14."""
    expected = by_brute_force(FOREST, lambda size: decay**size)
    assert np.mean(expected > 0) > 0.5
    assert_close(kernax.gram(kernax.SubsetTree(decay), X), expected)


@needs_x64
def test_the_fragments_of_a_sentence_are_seventeen_ten_of_them_without_its_determiner():
    K = kernax.gram(kernax.SubsetTree(), encode([TEXT, "(S (NP (D a) (N dog)) (VP barks))"]))
    assert np.array_equal(K, [[17, 10], [10, 17]])


def derivative(decay, order):
    return lambda size: (
        float(np.prod(np.arange(size, size - order, -1))) * decay ** max(size - order, 0)
    )


@pytest.mark.slow
def test_derivatives_in_the_decay_are_those_of_the_sum_over_fragments():
    """First and second, forward and reverse."""
    total = lambda decay: jnp.sum(
        jax.vmap(jax.vmap(kernax.SubsetTree(decay), (None, 0)), (0, None))(X[:4], X[:4])
    )
    slopes = lambda decay: (
        jax.grad(total)(decay),
        *jax.jvp(jax.grad(total), (decay,), (jnp.ones_like(decay),)),
    )
    first, second = (by_brute_force(FOREST[:4], derivative(0.4, order)).sum() for order in (1, 2))
    assert_close(jax.jit(slopes)(jnp.asarray(0.4, DTYPE)), [first, first, second])


def test_derivatives_in_the_weights_are_those_of_the_recursion_itself_at_zero_too():
    rng, x, decay = np.random.default_rng(0), X[3], jnp.asarray(0.7, DTYPE)
    draw = lambda: (
        np.asarray(x.weights)
        * rng.uniform(0.5, 1.5, x.weights.shape)
        * (rng.uniform(size=x.weights.shape) < 0.8)
    )
    weights = [draw(), draw()]

    def gradients(function):
        weighted = lambda tree, w: eqx.tree_at(lambda tree: tree.weights, tree, w)
        value = lambda decay, w, v: function(decay, weighted(x, w), weighted(x, v))
        return jax.jit(jax.grad(value, (0, 1, 2)))(decay, *(jnp.asarray(w, DTYPE) for w in weights))

    ours, plain = (
        gradients(lambda decay, x, z: kernax.SubsetTree(decay)(x, z)),
        gradients(lambda *a: _inside(*a)[0]),
    )
    assert np.any((np.asarray(plain[1]) != 0) & (weights[0] == 0))
    for a, b in zip(ours, plain):
        assert_close(a, b)


def padded(X, nodes, arity):
    """The same trees in a larger table."""
    wider = lambda array, *widths: jnp.pad(
        array, ((0, 0), *((0, width) for width in widths)), constant_values=-1
    )
    return Trees(
        wider(X.labels, nodes),
        wider(X.children, nodes, arity),
        jnp.pad(X.weights, ((0, 0), (0, nodes))),
        X.alphabet,
    )


@pytest.mark.nightly
@needs_x64
def test_padding_changes_no_bit():
    kernel, wide = kernax.SubsetTree(0.37), padded(X, 5, 2)
    K = np.asarray(kernax.gram(kernel, X))
    assert np.array_equal(kernax.gram(kernel, wide), K)
    mixed = np.asarray(kernax.gram(kernel, X, wide))
    assert np.array_equal(mixed[np.triu_indices(len(X))], K[np.triu_indices(len(X))])
    x = wide[3]
    slope = jax.jit(jax.grad(lambda w: kernel(eqx.tree_at(lambda x: x.weights, x, w), x)))(
        x.weights
    )
    assert np.any(slope != 0)
    assert np.array_equal(slope[-5:], np.zeros(5))


@pytest.mark.slow
def test_a_tree_of_one_node_has_no_features_and_no_nan():
    X = encode([TEXT, "x", "(x)", ("x",)])
    kernel = kernax.Normalised(kernax.SubsetTree(0.5))
    with pytest.warns(
        FeaturelessWarning,
        match="3 of 4 points have no features under Normalised, the first of them point 1",
    ):
        K = kernax.gram(kernel, X)
    assert np.array_equal(K, np.diag([1.0, 0, 0, 0]))
    assert np.isfinite(
        jax.jit(jax.grad(lambda decay: kernax.Normalised(kernax.SubsetTree(decay))(X[0], X[1])))(
            0.5
        )
    )


# Trees as points


@needs_x64
def test_both_notations_and_any_white_space_are_one_tree():
    X = encode([TEXT, TUPLES, "\n( S\t(NP(D (the))(N dog) )(VP\nbarks))"])
    for leaf in jax.tree.leaves(X):
        assert np.array_equal(leaf[0], leaf[1])
        assert np.array_equal(leaf[0], leaf[2])
    assert X.alphabet == ("D", "N", "NP", "S", "VP", "barks", "dog", "the")
    assert [X.alphabet[i] for i in X.labels[0]] == [
        "the",
        "D",
        "dog",
        "N",
        "NP",
        "barks",
        "VP",
        "S",
    ]
    assert X.weights.dtype == DTYPE


@pytest.mark.nightly
@needs_x64
def test_labels_of_tuples_are_taken_as_they_are_and_depth_has_no_limit():
    assert encode([("a b", "(", np.str_("c"))]).alphabet == ("(", "a b", "c")
    deep = "x"
    for _ in range(3000):
        deep = ("y", deep)
    assert encode([deep, "(y " * 3000 + "x" + ")" * 3000]).labels.shape == (2, 3001)


@needs_x64
@pytest.mark.parametrize(
    ("trees", "message"),
    [
        (["(S a)", "(S (A b)"], r"trees\[1\], character 0: this bracket is never closed"),
        (["(S (A b)))"], r"trees\[0\], character 9: this bracket has no opening bracket"),
        (
            ["(S a) (S b)"],
            r"trees\[0\], character 6: the tree has already ended; pass one string for each tree",
        ),
        (["S a"], r"trees\[0\], character 2: the tree has already ended"),
        (["(S a)", "  "], r"trees\[1\] is empty: a tree has at least one node"),
        (
            ["()"],
            r"trees\[0\], character 0: a node has no label; write \(label child child ...\)",
        ),
        (["((S a))"], r"trees\[0\], character 0: a node has no label"),
        ([("S", ())], r"trees\[0\]\[1\]: a node has no label"),
        ([("S", ("A", 3))], r"trees\[0\]\[1\]\[1\] must be a label or a tuple, but is of type int"),
        (
            [["S", "a"]],
            r"trees\[0\] must be in bracket notation or nested tuples, but is of type list",
        ),
        ("(S a)", r"trees must be a list of trees, but is of type str: pass \[tree\] for one"),
        (("S", "a"), r"trees must be a list of trees, but is of type tuple"),
        ([], "trees must hold at least one tree"),
    ],
)
def test_what_is_no_tree_is_refused_with_its_place(trees, message):
    with pytest.raises(ValueError, match=message):
        encode(trees)


@needs_x64
def test_a_bad_alphabet_is_refused():
    with pytest.raises(
        ValueError, match=r"alphabet must hold different strings, but is \('S', 'S', 'a'\) of 3"
    ):
        encode(["(S a)"], ["S", "S", "a"])
    with pytest.raises(ValueError, match="alphabet must hold different strings"):
        encode(["(S a)"], ["S", 3])
    with pytest.raises(ValueError, match="unknown must be 'refuse' or 'gap', but is 'drop'"):
        encode(["(S a)"], unknown="drop")


@needs_x64
def test_an_unknown_label_is_refused_or_matches_nothing():
    alphabet = ("A", "B", "S", "a")
    with pytest.raises(
        ValueError,
        match=r"trees\[1\] has 'b', which is not in the alphabet \('A', 'B', 'S', 'a'\) of 4",
    ):
        encode(["(S a)", "(S b)"], alphabet)
    X = encode(["(S (A a) (B b))", "(S (A a) (B b))", "(S (A a) (C a))"], alphabet, unknown="gap")
    assert np.array_equal(X.weights, [[1, 1, 0, 1, 1], [1, 1, 0, 1, 1], [1, 1, 1, 0, 1]])
    # In common are (A a) and, with it or without, (S A B). Neither (B b) nor (S A C) is, not even
    # with itself.
    assert np.array_equal(kernax.gram(kernax.SubsetTree(), X), [[3, 3, 1], [3, 3, 1], [1, 1, 1]])


@needs_x64
def test_malformed_tables_are_refused():
    X = encode([TEXT])
    with pytest.raises(
        ValueError,
        match=r"Trees needs labels \(n, N\), .* but got shapes \(1, 7\), \(1, 8, 2\) and \(1, 8\)",
    ):
        eqx.tree_at(lambda X: X.labels, X, X.labels[:, 1:]).__check_init__()
    with pytest.raises(ValueError, match="children must come before their parents"):
        Trees(X.labels[:, ::-1], X.children[:, ::-1], X.weights, X.alphabet)


# Trees in learners


@needs_x64
def test_two_alphabets_vectors_and_stacks_are_refused_with_the_remedy():
    X, Z = encode([TEXT]), encode(["(S a)"])
    with pytest.raises(ValueError, match=r"Encode both with one: trees.encode\(Z, X.alphabet\)"):
        kernax.gram(kernax.SubsetTree(), X, Z)
    with pytest.raises(
        ValueError,
        match=r"compares trees, but a point is numbers, of shape \(2,\): use a kernel of vectors",
    ):
        kernax.gram(kernax.SubsetTree(), np.ones((3, 2)))
    with pytest.raises(
        ValueError, match="compares two trees, but a point is a batch of 1: use gram"
    ):
        kernax.SubsetTree()(X, X)


def test_bad_decays_and_overflow_are_errors():
    with pytest.raises(
        ValueError, match=r"SubsetTree.decay must be in \(0, inf\) and finite, but is 0"
    ):
        kernax.SubsetTree(0.0)
    with pytest.raises(NonFiniteError, match="SubsetTree is NaN or inf"):
        kernax.gram(kernax.SubsetTree(np.finfo(DTYPE).max / 2), encode([TEXT]))


@pytest.fixture(scope="module")
def fitted():
    y = np.random.default_rng(0).normal(size=len(X)).astype(DTYPE)
    return y, kernax.kernel_ridge(kernax.SubsetTree(0.5), X, y, 0.1).value


@pytest.mark.slow
@needs_x64
def test_ridge_fits_trees_and_its_function_takes_one_tree_encoded_alone(fitted):
    y, f = fitted
    K = by_brute_force(FOREST, lambda size: 0.5**size)
    values = K @ np.linalg.solve(K + 0.1 * np.eye(len(K)), y)
    small = min(range(len(X)), key=lambda i: np.sum(X.weights[i]))
    alone = encode([FOREST[small]], X.alphabet)
    assert alone.labels.shape[1] < X.labels.shape[1]
    assert_close(f(alone[0]), values[small], TOLERANCE["solve"])
    with pytest.raises(ValueError, match="x must be a single point"):
        f(X)


@needs_x64
def test_trees_are_picked_by_index_slice_and_mask():
    assert len(X) == len(FOREST)
    assert np.array_equal(X[2].labels, X.labels[2])
    assert len(X[1:4]) == len(X[np.array([1, 2, 3])]) == 3
    assert len(X[np.arange(len(X)) < 2]) == 2


@pytest.mark.nightly
@needs_x64
def test_trees_of_other_sizes_conform():
    """With a gap, and with a tree of one node."""
    texts, alphabet = (
        ["(S (A a) (S (A a) (B b)))", "(S (A a) (B b))", "a", "(S (A a) (C b))"],
        ("A", "B", "S", "a", "b"),
    )
    X = encode(texts, alphabet, unknown="gap")
    Z = encode(["(S (A a) (B b) (B b))", "(A b)"], X.alphabet)
    check_conformance(kernax.SubsetTree(0.6), X, Z=Z)


@needs_x64
def test_stacks_of_other_sizes_are_joined():
    wide, kernel = "(S (NP dogs) (VP (V bark) (V howl) (ADV loudly)))", kernax.SubsetTree(0.5)
    both = encode([TEXT, wide])
    alone = [encode([text], both.alphabet) for text in (TEXT, wide)]
    np.testing.assert_array_equal(
        kernax.gram(kernel, alone[0].joined(alone[1])), kernax.gram(kernel, both)
    )
