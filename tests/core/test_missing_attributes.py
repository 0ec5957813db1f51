"""What is said of attributes that users of other libraries expect of solutions and functions."""

import copy
import pickle
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, needs_x64

import kernax

pytestmark = needs_x64  # once: no precision touches it

X = np.arange(4, dtype=DTYPE)[:, None]
RIDGE = kernax.kernel_ridge(kernax.RBF(1.0), X, X[:, 0], 0.1)
PROCESS = kernax.condition(kernax.GaussianProcess(kernax.RBF(1.0)), X, X[:, 0], 0.1)


@pytest.mark.parametrize(
    ("thing", "name", "said"),
    [
        (RIDGE, "predict", r"solution\.value\(x\) at one point, solution\.value\.values\(X\)"),
        (RIDGE, "coefficients", r"solution\.value\.coefficients"),
        (RIDGE, "_private", "a Solution has value, result and stats"),
        (PROCESS, "mean", r"solution\.value\.mean"),
        (PROCESS, "predict", "a Solution has value, result and stats"),
        (RIDGE.value, "predict", r"f\(x\) at one point, f\.values\(X\) at a batch"),
        (RIDGE.value, "dual_coef_", r"f\.coefficients"),
        (RIDGE.value, "other", "kernel, points, coefficients and bias"),
        (PROCESS.value, "predict", r"jax\.vmap\(process\.mean\)\(X\) a batch"),
    ],
)
def test_an_attribute_of_another_library_is_answered_by_what_is_there(thing, name, said):
    with pytest.raises(AttributeError, match=f"object has no attribute '{name}': .*{said}"):
        getattr(thing, name)
    assert not hasattr(thing, name)


@pytest.mark.parametrize("thing", [RIDGE, RIDGE.value, PROCESS, PROCESS.value])
def test_answers_leave_copies_pickles_and_transformations_as_they_were(thing):
    for made in (copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):
        assert eqx.tree_equal(made, thing)
    empty = object.__new__(type(thing))  # as pickle makes one before its fields are there
    assert not hasattr(empty, "value")
    leaves, structure = jax.tree.flatten(thing)
    assert type(jax.tree.unflatten(structure, leaves)) is type(thing)
    assert eqx.tree_equal(eqx.filter_jit(lambda it: it)(thing), thing)


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        (kernax, "minimize", r"use kernax\.minimise$"),
        (kernax, "GP", r"use kernax\.GaussianProcess$"),
        (kernax, "SVC", r"kernax\.sklearn\.SVC$"),
        (kernax, "KernelRidge", r"kernax\.sklearn\.KernelRidge$"),
        (kernax, "WhiteNoise", "noise is an argument of the learner"),
        (kernax.kernels, "White", "noise is an argument of the learner"),
        (kernax.metrics, "rmse", r"use kernax\.metrics\.root_mean_square_error$"),
        (kernax.selection, "k_folds", r"use kernax\.k_folds$"),
        (kernax.kernels, "ExpSineSquared", r"use kernax\.Periodic$"),
        (kernax, "StudentT", r"use kernax\.likelihoods\.StudentT$"),
        (kernax.solvers, "Cholesky", r"use kernax\.solvers\.JitteredCholesky$"),
        (kernax.likelihoods, "Bernouli", r"did you mean Bernoulli\?$"),
        (kernax, "rbf", r"did you mean RBF\?$"),
        (kernax.selection, "log_expected_improvment", "did you mean log_expected_improvement"),
    ],
)
def test_a_name_of_another_library_is_answered_by_the_one_here(module, name, said):
    with pytest.raises(
        AttributeError, match=f"'{module.__name__}' has no attribute '{name}': .*{said}"
    ):
        getattr(module, name)


def test_a_module_has_no_advice_for_other_names():
    for module in (kernax, kernax.kernels, kernax.metrics, kernax.likelihoods, kernax.files):
        with pytest.raises(
            AttributeError, match=f"'{module.__name__}' has no attribute 'nothing'$"
        ):
            getattr(module, "nothing")  # noqa: B009


def test_the_estimators_have_to_be_imported():
    program = "import kernax; kernax.sklearn"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.rstrip().endswith("it is a module of its own: import kernax.sklearn")


def test_a_misspelt_attribute_under_jit_is_an_attribute_error():
    def predicted(X):
        f = kernax.kernel_ridge(kernax.RBF(1.0), X, X[:, 0], 0.1)
        return f.predict(X)  # pyright: ignore[reportAttributeAccessIssue]

    with pytest.raises(AttributeError, match=r"solution\.value\.values"):
        jax.jit(predicted)(jnp.asarray(X))
