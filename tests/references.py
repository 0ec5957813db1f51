"""Dense algebra by NumPy that tests of several ways to hold a matrix are compared with."""

import equinox as eqx
import numpy as np

from kernax.core.linalg.factorisation import WeightedSystem
from kernax.core.linalg.linear_solvers import factorise


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


@eqx.filter_jit
def answers_of_a_factor(gram, weights, shift, columns, kind):
    """What a factor of `W^1/2 K W^1/2 + diag(shift)` and its inverse answer, in one program."""
    form = gram.symmetric_form(weights, shift)
    factor = factorise(form)
    assert isinstance(factor, kind)
    white = factor.whitened(columns)
    system = WeightedSystem(gram, weights, shift)
    P = factor.inverse_of(system)
    return {
        "result": factor.result,
        "matrix": form.as_matrix(),
        "solve": factor.solve(columns),
        "inverse": factor.inverse(),
        "diagonal of the inverse": factor.inverse_diagonal(),
        "log determinant": factor.log_determinant(),
        "products": white.T @ white,
        "inverse of the system": P.as_matrix(),
        "transposed products": P.transposed_mv(columns),
        "diagonal": P.diagonal(),
        "diagonal of K P": P.diagonal_of_product(system),
        "trace": P.trace_with(system),
    }


def answers_by_numpy(gram, weights, shift, columns):
    """The same but for the result, by dense matrices."""
    K, columns, w, shift = (
        np.asarray(a, float) for a in (gram.as_matrix(), columns, weights.values, shift)
    )
    roots = np.sqrt(w)
    A = roots[:, None] * K * roots + np.diag(shift)
    inverse = np.linalg.inv(A)
    P = np.linalg.inv(w[:, None] * K + np.diag(shift))
    return {
        "matrix": A,
        "solve": inverse @ columns,
        "inverse": inverse,
        "diagonal of the inverse": np.diagonal(inverse),
        "log determinant": np.linalg.slogdet(A)[1],
        "products": columns.T @ inverse @ columns,
        "inverse of the system": P,
        "transposed products": P.T @ columns,
        "diagonal": np.diagonal(P),
        "diagonal of K P": np.diagonal(K @ P),
        "trace": float(len(K)),
    }
