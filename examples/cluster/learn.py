"""Learns a kernel by the evidence, in 200 steps: `python learn.py`.

If it is killed and started again, it resumes from the last multiple of ten steps. If the Gram
matrix does not fit into memory, see `solver=` of `log_marginal_likelihood`.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

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
adam = optax.adam(0.05)


def loss(logarithms, X, y, weights):
    variance, lengthscale, noise = jnp.exp(logarithms)
    kernel = variance * kernax.RBF(lengthscale)
    return -kernax.log_marginal_likelihood(kernel, X, y, noise, weights=weights)


@jax.jit
def advance(state, X, y, weights):
    logarithms, moments = state
    updates, moments = adam.update(jax.grad(loss)(logarithms, X, y, weights), moments)
    return optax.apply_updates(logarithms, updates), moments


checkpoint = kernax.Checkpoint("run", name="evidence of X.npy", every=10)
start = jnp.zeros(3)
steps = checkpoint.steps(advance, (start, adam.init(start)), 200, args=(X, y, weights))
for step, (logarithms, _) in steps:
    if jax.process_index() == 0:
        print("step", step, "log evidence by", np.asarray(logarithms), flush=True)
        np.save("learned.npy", logarithms)
