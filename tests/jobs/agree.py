"""Functions on rows that are spread over processes: writes what they return to found.npz, and a
checkpoint of spread arrays, reads one of a single process, and ends with an exception in one
process. `python agree.py ADDRESS COUNT NUMBER`, where X.npy and y.npy are.
"""

import contextlib
import sys

import jax
import numpy as np
from jax.experimental import multihost_utils

import kernax

jax.distributed.initialize(
    sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), shutdown_timeout_seconds=3
)
from calls import CALLS, advance, learned  # noqa: E402, which makes arrays

mesh = jax.make_mesh((jax.device_count(),), ("rows",))
points, targets = (np.load(name, mmap_mode="r") for name in ("X.npy", "y.npy"))
X, y, weights = kernax.scale.rows_over(mesh, points, targets)
assert not X.is_fully_addressable
found = {name: call(X, y, weights) for name, call in CALLS.items()}

broken = np.array(points)
broken[7, 1] = np.nan
try:
    kernax.kernel_ridge(kernax.RBF(), *kernax.scale.rows_over(mesh, broken, targets)[:2], 0.1)
except ValueError as problem:
    found["message"] = str(problem)

start = {"rows": X, "key": jax.random.key(1), "count": 0}
list(kernax.Checkpoint("kept", every=2).steps(advance, start, 3))
step, state = kernax.Checkpoint("of one").latest(start)
assert step == 3
assert not state["rows"].is_fully_addressable
found["rows of one"] = multihost_utils.process_allgather(state["rows"], tiled=True)


class Killed(Exception):
    """Stands for a signal."""


def killed(solution):
    if solution.stats["steps"] == 3:
        raise Killed


with contextlib.suppress(Killed):
    learned(X, y, weights, checkpoint=kernax.Checkpoint("learned", every=1), callback=killed)
resumed = learned(X, y, weights, checkpoint="learned")
found["learned"] = resumed.stats["losses"]
assert np.array_equal(resumed.stats["losses"], learned(X, y, weights).stats["losses"])
try:
    own = {"rows": X, "own": np.full(2, jax.process_index())}
    list(kernax.Checkpoint("own").steps(lambda state: state, own, 1))
except ValueError as problem:
    found["refusal"] = str(problem)

if jax.process_index() == 0:
    np.savez("found.npz", **found)

if jax.process_index() == 1:
    raise KeyError("of process one")
multihost_utils.sync_global_devices("which process one does not reach")
