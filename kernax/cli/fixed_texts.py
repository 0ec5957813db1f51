"""String kernels without parameters: their matrix is computed once, before learning."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from kernax.cli.notation import STRING_KERNELS
from kernax.core.base.boundary import is_encoded
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.operators.gram import gram
from kernax.kernels import On, Precomputed

_KINDS = tuple(STRING_KERNELS.values())


def with_fixed_texts(model: Any, X: PyTree) -> tuple[Any, PyTree]:
    """The same problem with the number of a row in place of its texts, and the matrix of all rows
    in place of each kernel that compares texts.

    Both stay unchanged if there are no texts, or if a string kernel has a parameter to learn, which
    changes its matrix at every step.
    """
    parts = X if isinstance(X, tuple) else (X,)
    texts = [place for place, part in enumerate(parts) if is_encoded(part)]
    if not texts or any(_has_parameters(node) for node in _nodes(model, _compares_text)):
        return model, X
    if not isinstance(X, tuple):
        return _with_matrices(model, X), jnp.arange(len(X))

    def on_numbers(node: PyTree) -> PyTree:
        if not _is_on_texts(node, texts):
            return node
        return On(_with_matrices(node.kernel, parts[node.where]), node.where)

    fixed = jax.tree.map(on_numbers, model, is_leaf=lambda node: _is_on_texts(node, texts))
    numbers = [jnp.arange(len(part)) if is_encoded(part) else part for part in parts]
    return fixed, tuple(numbers)


def with_texts(model: Any, written: Any) -> Any:
    """A model learned by `with_fixed_texts` with the string kernels of the written model in place
    of their Gram matrices.
    """
    if not _nodes(model, _is_matrix):
        return model
    kernels = iter(_nodes(written, _is_fixed))
    return jax.tree.map(
        lambda node: next(kernels) if _is_matrix(node) else node, model, is_leaf=_is_matrix
    )


def _with_matrices(tree: Any, X: PyTree) -> Any:
    """Replaces each of the largest kernels without parameters by its matrix over texts."""
    return jax.tree.map(
        lambda node: Precomputed(gram(node, X)) if _is_fixed(node) else node,
        tree,
        is_leaf=_is_fixed,
    )


def _nodes(tree: Any, is_one: Any) -> list[Any]:
    """The nodes of a kind, none of them inside another."""
    return [node for node in jax.tree.leaves(tree, is_leaf=is_one) if is_one(node)]


def _compares_text(node: Any) -> bool:
    return isinstance(node, _KINDS)


def _is_matrix(node: Any) -> bool:
    return isinstance(node, Precomputed)


def _is_on_texts(node: Any, texts: list[int]) -> bool:
    return isinstance(node, On) and node.where in texts


def _has_parameters(node: Any) -> bool:
    return any(map(eqx.is_inexact_array, jax.tree.leaves(node)))


def _is_fixed(node: Any) -> bool:
    """Whether a node is a kernel of the texts of one column without parameters."""
    if not isinstance(node, AbstractKernel) or _has_parameters(node):
        return False
    picks = _nodes(node, lambda inner: isinstance(inner, On))
    return not picks and bool(_nodes(node, _compares_text))
