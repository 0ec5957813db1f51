"""The table of what verbs hold, against what their compiled programs allocate."""

import equinox as eqx
import jax
import pytest
from conftest import DTYPE, needs_x64

import kernax
from kernax.core.memory import _MATRICES

N = 512
X, Y = jax.ShapeDtypeStruct((N, 3), DTYPE), jax.ShapeDtypeStruct((N,), DTYPE)
RBF = kernax.RBF()
VERBS = {
    "gram": lambda X, y, w: kernax.gram(RBF, X),
    "kernel_perceptron": lambda X, y, w: kernax.kernel_perceptron(RBF, X, y, throw=False),
    "machines": lambda X, y, w: kernax.svm(RBF, X, y, 1.0, weights=w, throw=False),
    "kernel_ridge": lambda X, y, w: kernax.kernel_ridge(RBF, X, y, 0.1, weights=w, throw=False),
    "kernel_logistic": lambda X, y, w: kernax.kernel_logistic(RBF, X, y, 0.1, weights=w, throw=False),
    "regularised_risk": lambda X, y, w: kernax.regularised_risk(RBF, X, y, kernax.Huber(), 0.1, weights=w, throw=False),
    "log_marginal_likelihood": lambda X, y, w: kernax.log_marginal_likelihood(RBF, X, y, 0.1, weights=w),
    "leave_one_out": lambda X, y, w: kernax.leave_one_out(RBF, X, y, 0.1, weights=w, bias=True),
    "condition": lambda X, y, w: kernax.condition(kernax.GaussianProcess(RBF), X, y, 0.1, weights=w, throw=False),
}


@needs_x64
@pytest.mark.slow
@pytest.mark.parametrize("verb", _MATRICES)
def test_a_verb_allocates_what_the_table_says_and_not_a_fifth_less(verb):
    """Catches a table that lets a program run out of memory, and one that refuses what would fit."""
    program = jax.jit(lambda *args: eqx.filter(VERBS[verb](*args), eqx.is_array)).lower(X, Y, Y).compile()
    figures = program.memory_analysis()
    matrices = (figures.temp_size_in_bytes + figures.output_size_in_bytes) / (N * N * X.dtype.itemsize)
    assert 0.8 * _MATRICES[verb] <= matrices <= 1.05 * _MATRICES[verb]
