"""Rows about calls as users make them, first and later ones, and about what compiling takes.

A call has no `jit` around it. The bars on first calls, in seconds on a quiet machine with two
cores, are what the first calls took when they were set; the one on compiling is a goal.
"""

import jax
import jax.numpy as jnp

from benchmarks.against.learners import START, evidence_of
from benchmarks.against.rows import Kind, Row, classification, numbers, regression
from benchmarks.harness import Program

FIRST = {"precision": "float32", "kind": Kind.FIRST}


def ridge_call(kernax, n):
    def call(X, y):
        return kernax.kernel_ridge(kernax.RBF(2.0), X, y, 0.1).value.coefficients

    return Program(call, *regression(n), jit=False)


def evidence_gradient_call(kernax, n):
    gradient = jax.grad(evidence_of(kernax))
    return Program(gradient, numbers(*START), *regression(n), jit=False)


def svm_call(kernax, n):
    def call(X, y):
        return kernax.svm(kernax.RBF(2.0), X, y, 1.0).stats["dual"]

    return Program(call, *classification(n), jit=False)


def svm_gradient_call(kernax, n):
    def loss(scale, X, y):
        f = kernax.svm(kernax.RBF(scale), X, y, 1.0).value
        return jnp.sum(f.coefficients**2)

    return Program(jax.grad(loss), numbers(2.0)[0], *classification(n), jit=False)


def compiled(kernax, n):
    return Program(jax.value_and_grad(evidence_of(kernax)), numbers(*START), *regression(n))


gradient = evidence_gradient_call

ROWS = (
    Row("call: ridge", ridge_call, 1500, 100, kind=Kind.EAGER),
    Row("call: evidence gradient", gradient, 1000, None, 1e-8, kind=Kind.EAGER),
    Row("call: svm", svm_call, 1500, None, 1e-2, kind=Kind.EAGER),
    Row("call: svm gradient", svm_gradient_call, 1000, 100, 1e-6, kind=Kind.EAGER),
    Row("first call: ridge, n=100", ridge_call, 100, 100, 1e-3, bar=0.8, **FIRST),
    Row("first call: evidence gradient, n=100", gradient, 100, None, 1e-2, bar=1.4, **FIRST),
    Row("first call: svm, n=100", svm_call, 100, None, 1e-2, bar=1.6, **FIRST),
    Row("first call: svm gradient, n=100", svm_gradient_call, 100, None, 1e-2, bar=2.5, **FIRST),
    Row("compile: evidence gradient, n=4000", compiled, 4000, 500, kind=Kind.COMPILE, bar=1.0),
)
