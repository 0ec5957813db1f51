"""Derivatives of what each learner learned, in everything that it depends on at once, in a batch:
of one program, against differences.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import needs_x64
from jax import lax
from registry import LEARNERS, cases, options_of, stacked

STEP = 1e-5
AT = 6  # the point without a weight
FIELDS = ("scale", "size", "X", "y", "weights", "offset", "Z", "strength")


def with_a_weight(p, weight):
    return replace(p, weights=np.where(np.arange(len(p.weights)) == AT, weight, p.weights))


def moved(p, direction, step):
    return replace(p, **{name: getattr(p, name) + step * direction[name] for name in direction})


def directions(entry, p):
    """Of every number but a weight of zero, from which there is one way only."""
    rng = np.random.default_rng(0)
    direction = {
        name: rng.normal(size=np.shape(getattr(p, name)))
        for name in FIELDS
        if name not in entry.fixed
    }
    direction["weights"] = np.where(p.weights > 0, direction["weights"], 0)
    return jax.tree.map(jnp.asarray, direction)


@needs_x64
@pytest.mark.parametrize("name", cases("tier_of_slopes", lambda entry: entry.order))
def test_derivatives_in_a_batch_are_those_of_differences(name):
    """Of all that is learned, of a problem one point of which has no weight; in that weight from
    above; of the second order where they are promised. Catches a slope that is wrong or missing, a
    transpose that is not that of the slope, NaN at a weight of zero, and members that see each
    other.
    """
    entry = LEARNERS[name]
    p = with_a_weight(entry.problem, 0.0)
    direction = directions(entry, p)

    def figures(p):
        def of_one(numbers):
            q = replace(p, **numbers)
            outputs = entry.outputs(entry.fit(q, **options_of(entry)), q)
            return sum(jnp.sum(jnp.sin(output)) for output in jax.tree.leaves(outputs))

        def in_a_loop(numbers):
            # Where the second derivative of a `jax.custom_jvp` would be that without its rule.
            (total,) = lax.map(of_one, jax.tree.map(lambda x: x[None], numbers))
            return total

        numbers = {name: getattr(p, name) for name in direction}
        if entry.order == 2:
            both = jax.value_and_grad(in_a_loop)
            (value, gradient), (slope, turn) = jax.jvp(both, (numbers,), (direction,))
            return value, slope, gradient, turn
        value, linear = jax.linearize(of_one, numbers)
        (gradient,) = jax.linear_transpose(linear, numbers)(jnp.ones_like(value))
        return value, linear(direction), gradient, None

    members = [
        *(moved(p, direction, step) for step in (0, STEP, -STEP)),
        *(with_a_weight(p, step) for step in (STEP, 2 * STEP)),
    ]
    value, slope, gradient, turn = jax.jit(jax.vmap(figures))(stacked(members))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
    np.testing.assert_allclose(
        slope[0], (value[1] - value[2]) / (2 * STEP), rtol=entry.slope, atol=entry.slope
    )
    if entry.weights and entry.at_zero and not entry.of_stream:
        forward = (4 * value[3] - value[4] - 3 * value[0]) / (2 * STEP)
        found = gradient["weights"][0, AT]
        np.testing.assert_allclose(found, forward, rtol=1e-4, atol=1e-6)
    along = sum(jnp.vdot(gradient[name][0], direction[name]) for name in direction)
    np.testing.assert_allclose(along, slope[0], rtol=1e-7, atol=1e-9)
    if entry.order == 2:
        for name in direction:
            difference = (gradient[name][1] - gradient[name][2]) / (2 * STEP)
            scale = np.max(np.abs(difference))
            np.testing.assert_allclose(
                turn[name][0], difference, rtol=0, atol=10 * entry.slope * (scale + 1)
            )
