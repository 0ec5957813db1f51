"""Writes points and targets into this folder: `python write_rows.py 20000`."""

import sys

import numpy as np

rng = np.random.default_rng(0)
X = rng.normal(size=(int(sys.argv[1]), 5)).astype(np.float32)
np.save("X.npy", X)
noise = 0.1 * rng.normal(size=len(X))
y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + noise
np.save("y.npy", y.astype(np.float32))
np.save("new.npy", rng.normal(size=(10, 5)).astype(np.float32))
