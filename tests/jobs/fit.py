"""A robust fit over centres that is kept: `python fit.py [ADDRESS COUNT
NUMBER]`, where X.npy, y.npy and new.npy are."""

import sys

import jax
import numpy as np

import kernax

if sys.argv[1:]:
    jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
mesh = jax.make_mesh((jax.device_count(),), ("rows",))
points, targets = (np.load(name, mmap_mode="r") for name in ("X.npy", "y.npy"))
X, y, weights = kernax.scale.rows_over(mesh, points, targets)
f = kernax.falkon(
    kernax.RBF(),
    X,
    y,
    1e-5,
    np.load("new.npy"),
    loss=kernax.losses.Huber(0.01),
    weights=weights,
    checkpoint=kernax.Checkpoint("run", name="fit of X.npy"),
).value
if jax.process_index() == 0:
    np.save("coefficients.npy", f.coefficients)
