"""What identifies a run: what was asked for, as texts that can be compared.

The name of a function says nothing of its code, nor of the numbers that it closes over. So the
programs of the loss and of a step are compared as well, as text before XLA optimises them, which is
the same in every process.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optax

from kernax.core.base.facts import (
    differing_facts,
    digest,
    digest_of_array,
    facts_of,
    is_array,
    places_of,
)
from kernax.selection.optimise.progress import Search
from kernax.selection.optimise.validation import Validation


class Call(NamedTuple):
    """What a user asked for."""

    verb: str
    loss: Callable
    models: Sequence[Any]
    free: dict[str, Any]  # of each parameter that is learned, the free elements, or None
    optimiser: Any
    steps: int
    args: tuple
    validation: Validation | None


class Identity(NamedTuple):
    """A call as texts, by what a message calls them."""

    facts: dict[str, str]  # names, shapes, versions
    values: dict[str, str]  # digests of arrays
    programs: dict[str, str]  # digests of programs, each of which says more than the one before


def identity_of(call: Call, search: Search) -> Identity:
    """All that a run depends on, but for the number of its steps."""
    given = {
        # A single model stands without the list around it.
        "model": call.models[0] if len(call.models) == 1 else list(call.models),
        "args": call.args,
        "loss": call.loss,
        "optimiser": call.optimiser,
        "validation": call.validation,
    }
    facts = _surroundings()
    facts |= {"verb": call.verb, "number of starts": str(len(call.models))}
    # The free elements follow the name of a parameter that is partly frozen.
    learned = []
    for path, indices in call.free.items():
        elements = "" if indices is None else str(np.asarray(indices).tolist())
        learned.append(path + elements)
    facts |= {"trainable": ", ".join(learned)}
    if call.validation is not None:
        facts |= {"validation.patience": str(call.validation.patience)}
    values = {}
    for name, tree in given.items():
        facts |= facts_of(name, tree)
        leaves = places_of(name, tree)
        values |= {place: digest_of_array(leaf) for place, leaf in leaves if is_array(leaf)}
    return Identity(facts, values, _programs(call, search))


def _surroundings() -> dict[str, str]:
    """Versions, precision and device: whatever the same call depends on besides."""
    libraries = {"jax": jax, "equinox": eqx, "lineax": lx, "optax": optax}
    versions = {f"version of {name}": of.__version__ for name, of in libraries.items()}
    x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    precision = "float64" if x64 else "float32"
    return versions | {"precision": precision, "device": jax.default_backend()}


def _programs(call: Call, search: Search) -> dict[str, str]:
    """Of the losses and of a step of the optimiser, for a state that does not know `steps`."""
    model = call.models[0]
    programs = {"what the loss computes": _program(call.loss, model, *call.args)}
    if call.validation is not None:
        program = _program(call.validation.loss, model, *call.validation.args)
        programs["what the validation loss computes"] = program
    state = eqx.filter_eval_shape(search.start, 1)
    step = _program(search.advance, state, jnp.asarray(1))
    return programs | {"what a step of the optimiser computes": step}


def _program(function: Callable, *args: Any) -> str:
    """A digest of a function as XLA is handed it, arrays that it closes over included."""
    # Equinox takes the shapes of arrays for constants here.
    has_shape = lambda leaf: is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)
    traced, rest = eqx.partition((function, args), has_shape)

    def of_arrays(traced):
        function, args = eqx.combine(traced, rest)
        return eqx.filter(function(*args), eqx.is_array)

    lowered = jax.jit(of_arrays).lower(traced)
    return digest(lowered.as_text().encode())


def differences(asked: Identity, found: Identity) -> list[str]:
    """In words, what differs between a call and the one that wrote a file."""
    differing = differing_facts(asked.facts, found.facts)
    for name, wanted in asked.values.items():
        is_alike = asked.facts[name] == found.facts.get(name)
        if is_alike and wanted != found.values[name]:
            differing.append(f"the values of {name}")
    if differing:
        return differing
    # Programs differ wherever a shape does, and that of a step wherever that of the loss does.
    programs = [name for name in asked.programs if asked.programs[name] != found.programs.get(name)]
    return programs[:1]
