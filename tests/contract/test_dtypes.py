"""Points in single precision are learned from in single precision, also in 64-bit mode."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import needs_x64
from registry import LEARNERS, cases, options_of


@needs_x64
@pytest.mark.parametrize("name", cases("tier"))
def test_what_is_learned_has_the_precision_of_the_points(name):
    """Of all numbers of the value; nothing is compiled."""
    entry = LEARNERS[name]
    single = lambda leaf: np.asarray(leaf, np.float32) if leaf.dtype == np.float64 else leaf
    p = jax.tree.map(single, entry.problem)
    found = eqx.filter_eval_shape(lambda p: entry.fit(p, **options_of(entry)), p)
    found = found.value if entry.has_status else found
    leaves = [leaf for leaf in jax.tree.leaves(found) if hasattr(leaf, "dtype")]
    dtypes = {leaf.dtype for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)}
    assert dtypes == {jnp.dtype(np.float32)}
