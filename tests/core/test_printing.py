"""What is printed has its numbers."""

import importlib

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from conftest import X64

import kernax
from kernax.core.base.printing import Printed

PLACES = ("", ".calibration", ".conformal", ".likelihoods", ".losses", ".online", ".priors")
PLACES += (".bases", ".functionals", ".samples", ".scale")


class Anything(Printed):
    """A module of one field."""

    value: object


def public_modules():
    """Every public class of modules."""
    for place in PLACES:
        module = importlib.import_module(f"kernax{place}")
        for name in dir(module):
            kind = getattr(module, name)
            if isinstance(kind, type) and issubclass(kind, eqx.Module):
                yield kind


def test_every_public_module_is_printed_with_its_numbers():
    hidden = {
        kind.__name__
        for kind in public_modules()
        # Linear solvers are printed as those of lineax.
        if not issubclass(kind, (Printed, lx.AbstractLinearSolver))
    }
    assert hidden == set()


def test_a_solution_is_printed_with_its_numbers_and_its_status():
    value = kernax.calibration.Platt(jnp.asarray(1.25), jnp.asarray(0.5), jnp.asarray(0.0))
    stats = {"steps": jnp.asarray(7), "many": jnp.zeros(9), "closed": jnp.asarray(True)}
    text = repr(kernax.Solution(value, kernax.RESULTS.successful, stats))
    for part in ("slope=1.25, level=0.5", "<successful>", "'steps': 7", "[9]", "'closed': True"):
        assert part in text


def test_a_batch_of_statuses_is_printed_as_counts():
    """Catches a line for each member, and traced statuses that are counted."""
    batch = lambda steps: kernax.RESULTS.where(
        steps > 2, kernax.RESULTS.successful, kernax.RESULTS.max_steps_reached
    )
    statuses = jax.vmap(batch)(jnp.arange(1000))
    text = repr(kernax.Solution(1.0, statuses, {}))
    assert "result=kernax.RESULTS[1000]<997 successful, 3 max_steps_reached>" in text
    said = []
    jax.vmap(lambda s: said.append(repr(kernax.Solution(1.0, batch(s), {}))))(jnp.arange(3))
    jax.jit(lambda it: said.append(repr(kernax.Solution(1.0, it, {}))))(statuses)
    assert all("traced" in text for text in said)


def test_texts_of_traced_complex_and_random_values_are_those_of_equinox():
    said = []
    jax.jit(lambda x: said.append(repr(Anything(x))))(jnp.ones(2))
    for value in (jnp.ones(2, jnp.complex64), jax.random.key(0), "text", None):
        said.append(repr(Anything(value)))
    hidden = ["f64[2]" if X64 else "f32[2]", "c64[2]", "key<fry>[]", "'text'", "None"]
    assert said == [f"Anything(value={text})" for text in hidden]
