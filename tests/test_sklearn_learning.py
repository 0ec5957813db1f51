"""What estimators of processes learn, and from where."""

import numpy as np
import pytest
import sklearn.gaussian_process
from conftest import needs_x64
from sklearn.gaussian_process import kernels as theirs

import kernax.sklearn as ours

pytestmark = needs_x64  # estimators choose their precision by the data

FIXED = theirs.ConstantKernel(2.0, "fixed") * theirs.RBF(0.5, "fixed")


@pytest.fixture(scope="module")
def wave():
    X = np.linspace(0, 1, 20)[:, None]
    return X, np.sin(5 * X[:, 0])


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_kernel_of_fixed_parameters_is_conditioned_on_as_it_is(wave, restarts):
    X, y = wave
    given = {"alpha": 1e-2, "n_restarts_optimizer": restarts}
    process = ours.GaussianProcessRegressor(FIXED, **given).fit(X, y)
    other = sklearn.gaussian_process.GaussianProcessRegressor(FIXED, **given).fit(X, y)
    np.testing.assert_allclose(
        process.log_marginal_likelihood_value_, other.log_marginal_likelihood_value_, rtol=1e-10
    )
    np.testing.assert_allclose(process.predict(X), other.predict(X), rtol=1e-8)
    assert process.kernel_ == FIXED
