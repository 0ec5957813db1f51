"""Dense algebra by NumPy that tests of several ways to hold a matrix are compared with."""

import numpy as np


def process_by_numpy(K, y, noise, weights, mean=0.0):
    """The log evidence of y (n, outputs), and the posterior's means and covariance at new points,
    of the covariance K of the n points and then of the new ones.
    """
    n = len(y)
    kept = weights > 0
    roots = np.sqrt(weights[kept])
    noise = np.broadcast_to(noise, n)[kept]
    C = roots[:, None] * K[:n, :n][np.ix_(kept, kept)] * roots + np.diag(noise)
    sign, determinant = np.linalg.slogdet(C)
    assert sign == 1
    r = roots[:, None] * (y[kept] - mean)
    a = np.linalg.solve(C, r)
    squares = np.sum(r * a, 0)
    normal = -(squares + determinant + len(r) * np.log(2 * np.pi)) / 2
    of_weights = np.sum((1 - weights[kept]) * np.log(2 * np.pi * noise)) / 2
    cross = K[n:, :n][:, kept] * roots
    covariance = K[n:, n:] - cross @ np.linalg.solve(C, cross.T)
    return np.sum(normal + of_weights), mean + cross @ a, covariance
