"""A ridge regression, on one device or many: `python fit.py`."""

import sys

import jax
import numpy as np

import kernax

if sys.argv[1:] == ["cluster"]:  # Slurm, Open MPI, Kubernetes: JAX finds the other processes
    jax.distributed.initialize(shutdown_timeout_seconds=30)
elif sys.argv[1:]:  # host:port of process 0, the number of processes, the index of this one
    jax.distributed.initialize(
        sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), shutdown_timeout_seconds=30
    )
mesh = jax.make_mesh((jax.device_count(),), ("rows",))
points, targets = (np.load(name, mmap_mode="r") for name in ("X.npy", "y.npy"))
X, y, weights = kernax.scale.rows_over(mesh, points, targets)
kernel = kernax.RBF(2.0)
f = kernax.kernel_ridge(kernel, X, y, 0.1, weights=weights, block_size="auto").value
predictions = f.values(np.load("new.npy"))
if jax.process_index() == 0:
    np.save("predictions.npy", predictions)
