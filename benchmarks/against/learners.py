"""Rows about learners and Gaussian processes, and their gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.against.rows import (
    Row,
    classification,
    fitted,
    known,
    numbers,
    of_values,
    points,
    public,
    regression,
    weights,
)
from benchmarks.harness import Program

START = (0.7, -1.0, 0.1)  # logarithms of lengthscale and noise or ridge, and of the variance


def ridge(kernax, n):
    def fit(X, y):
        return fitted(kernax, kernax.kernel_ridge(kernax.RBF(2.0), X, y, 0.1, throw=False))

    return Program(fit, *regression(n))


def ridge_with_weights(kernax, n):
    def fit(X, y, w):
        learner = kernax.kernel_ridge
        return fitted(
            kernax, learner(kernax.RBF(2.0), X, y, 0.1, weights=w, bias=True, throw=False)
        )

    return Program(fit, *regression(n), weights(n))


def ridge_by_blocks(kernax, n):
    def fit(X, y):
        solution = kernax.kernel_ridge(kernax.RBF(2.0), X, y, 5.0, block_size=256, throw=False)
        return fitted(kernax, solution)

    return Program(fit, *regression(n))


def ridge_gradient(kernax, n):
    def loss(theta, w, X, y):
        kernel = kernax.RBF(jnp.exp(theta[0]))
        ridge = jnp.exp(theta[1])
        solution = kernax.kernel_ridge(kernel, X, y, ridge, weights=w, bias=True, throw=False)
        return of_values(solution, X[:50])

    return Program(jax.grad(loss, argnums=(0, 1)), numbers(*START[:2]), weights(n), *regression(n))


def ridge_batch(kernax, count):
    def fit(X, y):
        return fitted(kernax, kernax.kernel_ridge(kernax.RBF(2.0), X, y, 0.1, throw=False))

    return Program(jax.vmap(fit), *sets_of(regression, count, 100))


def sets_of(data, count, n):
    """`count` stacks of n points, with targets."""
    X, y = data(count * n)
    return X.reshape(count, n, -1), y.reshape(count, n)


def leave_one_out(kernax, n):
    fit = lambda X, y: kernax.leave_one_out(kernax.RBF(2.0), X, y, 0.1)
    return Program(fit, *regression(n))


def leave_one_out_with_weights(kernax, n):
    def fit(X, y, w):
        return kernax.leave_one_out(kernax.RBF(2.0), X, y, 0.1, weights=w, bias=True)

    return Program(fit, *regression(n), weights(n))


def evidence_of(kernax):
    """`evidence(theta, X, y)`, theta the logarithms of lengthscale, noise and variance."""

    def evidence(theta, X, y, **given):
        scale, noise, variance = jnp.exp(theta)
        return kernax.log_marginal_likelihood(variance * kernax.RBF(scale), X, y, noise, **given)

    return evidence


def evidence(kernax, n):
    return Program(evidence_of(kernax), numbers(*START), *regression(n))


def evidence_gradient(kernax, n):
    return Program(jax.value_and_grad(evidence_of(kernax)), numbers(*START), *regression(n))


def evidence_gradient_with_weights(kernax, n):
    def evidence(theta, w, X, y):
        return evidence_of(kernax)(theta, X, y, weights=w)

    w = weights(n) + numbers(0.5)  # a weight of zero asks for the limit, which is another row's
    gradient = jax.value_and_grad(evidence, argnums=(0, 1))
    return Program(gradient, numbers(*START), w, *regression(n))


def evidence_gradient_batch(kernax, count):
    gradient = jax.vmap(jax.value_and_grad(evidence_of(kernax)), in_axes=(None, 0, 0))
    return Program(gradient, numbers(*START), *sets_of(regression, count, 50))


def conditioned(kernax, n):
    def predict(X, y, Z):
        prior = kernax.GaussianProcess(kernax.RBF(2.0))
        solution = kernax.condition(prior, X, y, 0.1, throw=False)
        process = solution.value
        found = jax.vmap(process.mean)(Z), jax.vmap(process.variance)(Z)
        return known(kernax, solution, found)

    return Program(predict, *regression(n), points(n, 5, seed=1))


def logistic(kernax, n):
    def fit(X, y):
        return fitted(kernax, kernax.kernel_logistic(kernax.RBF(2.0), X, y, 1.0, throw=False))

    return Program(fit, *classification(n))


def logistic_gradient(kernax, n):
    def loss(theta, X, y):
        scale, ridge = jnp.exp(theta)
        solution = kernax.kernel_logistic(kernax.RBF(scale), X, y, ridge, throw=False)
        return of_values(solution, X[:50])

    return Program(jax.value_and_grad(loss), numbers(*START[:2]), *classification(n))


def softmax(kernax, n):
    def fit(X, Y):
        return fitted(kernax, kernax.kernel_softmax(kernax.RBF(2.0), X, Y, 1.0, throw=False))

    X, y = regression(n)
    return Program(fit, X, np.eye(3)[np.digitize(y, (-0.5, 0.5))].astype(X.dtype))


def risk(kernax, n, loss):
    make = public(kernax, f"losses.{loss}")

    def fit(X, y):
        solution = kernax.regularised_risk(
            kernax.RBF(2.0), X, y, ridge=1.0, loss=make(), throw=False
        )
        return known(kernax, solution, solution.value.values(X))

    return Program(fit, *regression(n))


def svm(kernax, n):
    def fit(X, y):
        solution = kernax.svm(kernax.RBF(2.0), X, y, 1.0, throw=False)
        return known(kernax, solution, solution.value.values(X))

    return Program(fit, *classification(n))


def svm_gradient(kernax, n):
    return Program(svm_loss_gradient(kernax), numbers(0.7, 0.0), *classification(n))


def svm_loss_gradient(kernax):
    """The value and gradient of predictions' squares in the logarithms of lengthscale and C."""

    def loss(theta, X, y):
        scale, C = jnp.exp(theta)
        return of_values(kernax.svm(kernax.RBF(scale), X, y, C, throw=False), X[:50])

    return jax.value_and_grad(loss)


def svm_batch(kernax, count):
    def fit(X, y):
        solution = kernax.svm(kernax.RBF(2.0), X, y, 1.0, throw=False)
        return known(kernax, solution, solution.value.values(X))

    return Program(jax.vmap(fit), *sets_of(classification, count, 100))


def svm_gradient_batch(kernax, count):
    gradient = jax.vmap(svm_loss_gradient(kernax), in_axes=(None, 0, 0))
    return Program(gradient, numbers(0.7, 0.0), *sets_of(classification, count, 100))


def support_vector_regression(kernax, n):
    def fit(X, y):
        solution = kernax.support_vector_regression(kernax.RBF(2.0), X, y, 1.0, 0.1, throw=False)
        return known(kernax, solution, solution.value.values(X))

    return Program(fit, *regression(n))


def one_class(kernax, n):
    def fit(X):
        solution = kernax.one_class_svm(kernax.RBF(2.0), X, 0.2, throw=False)
        return known(kernax, solution, solution.value.values(X))

    return Program(fit, points(n, 5))


def lasso(kernax, n):
    def fit(features, y):
        solution = kernax.lasso(features, y, 50.0, bias=True, throw=False)
        coefficients, bias = solution.value
        return known(kernax, solution, features @ coefficients + bias)

    features = points(n, n // 5)
    y = features[:, :10] @ np.arange(1, 11).astype(features.dtype) + points(n, 1, seed=1)[:, 0]
    return Program(fit, features, y)


def perceptron(kernax, n):
    def fit(X, y):
        learner = kernax.kernel_perceptron
        f = learner(kernax.RBF(2.0), X, y, averaged=True, max_epochs=20, throw=False).value
        return f.coefficients, f.bias

    return Program(fit, *classification(n))


huber = partial(risk, loss="Huber")
absolute = partial(risk, loss="Absolute")

ROWS = (
    Row("ridge", ridge, 2000, 200),
    Row("ridge, float32", ridge, 2000, None, 1e-3, "float32"),
    Row("ridge, weights and bias", ridge_with_weights, 2000, 200),
    Row("ridge, conjugate gradients, blocks of 256", ridge_by_blocks, 1500, 200, 1e-6),
    Row("ridge gradient, weights and bias", ridge_gradient, 1000, 100, 1e-8),
    Row("batch of 100 ridge fits, n=100", ridge_batch, 100, 5, 1e-8),
    Row("leave-one-out", leave_one_out, 1500, None),
    Row("leave-one-out, weights and bias", leave_one_out_with_weights, 1500, 150),
    Row("evidence, n=1000", evidence, 1000, None),
    Row("evidence, n=2000", evidence, 2000, 200),
    Row("evidence gradient, n=1000", evidence_gradient, 1000, 100, 1e-8),
    Row("evidence gradient, n=2000", evidence_gradient, 2000, None, 1e-8),
    Row("evidence gradient, float32", evidence_gradient, 2000, None, 1e-2, "float32"),
    Row("evidence gradient, weights", evidence_gradient_with_weights, 1000, 100, 1e-8),
    Row("batch of 100 evidence gradients, n=50", evidence_gradient_batch, 100, 5, 1e-8),
    Row("conditioned process, means and variances", conditioned, 1000, 100, 1e-8),
    Row("logistic, n=500", logistic, 500, None, 1e-6),
    Row("logistic, n=1000", logistic, 1000, 100, 1e-6),
    Row("logistic gradient, n=500", logistic_gradient, 500, 60, 1e-6),
    Row("logistic gradient, n=1000", logistic_gradient, 1000, None, 1e-6),
    Row("softmax, three classes", softmax, 250, 40, 1e-6),
    Row("regularised risk, Huber", huber, 1000, 100, 1e-6),
    Row("regularised risk, absolute", absolute, 1000, 100, 1e-2),
    Row("svm, n=1000", svm, 1000, None, 1e-2),
    Row("svm, n=2000", svm, 2000, 200, 1e-2),
    Row("svm, float32", svm, 2000, None, 1e-2, "float32"),
    Row("svm gradient, n=1000", svm_gradient, 1000, 100, 1e-6),
    Row("svm gradient, n=2000", svm_gradient, 2000, None, 1e-6),
    Row("batch of 50 SVMs, n=100", svm_batch, 50, 4, 1e-2),
    Row("batch of 20 svm gradients, n=100", svm_gradient_batch, 20, 3, 1e-6),
    Row("support vector regression", support_vector_regression, 1500, 150, 1e-2),
    Row("one-class SVM", one_class, 2000, 200, 1e-2),
    Row("LASSO, D = n / 5", lasso, 2000, 200, 1e-2),
    Row("perceptron, 20 passes", perceptron, 2000, 200),
)
