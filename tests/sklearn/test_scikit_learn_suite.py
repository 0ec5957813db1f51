"""scikit-learn's own tests, run on kernax's estimators in the place of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sklearn
from conftest import needs_x64
from scikit_learn_differences import VERSION

TESTS = Path(__file__).parents[1]
pytestmark = [
    needs_x64,  # estimators choose their precision by the data
    pytest.mark.nightly,
    pytest.mark.skipif(
        not sklearn.__version__.startswith(f"{VERSION}."),
        reason=f"the list of differences is that of scikit-learn {VERSION}",
    ),
]


@pytest.mark.parametrize(
    "path",
    [
        "tests/test_kernel_ridge.py",
        "svm/tests/test_svm.py",
        "gaussian_process/tests/test_gpr.py",
        "gaussian_process/tests/test_gpc.py",
        "decomposition/tests/test_kernel_pca.py",
        "tests/test_kernel_approximation.py",
        "cluster/tests/test_spectral.py",
    ],
)
def test_the_tests_of_scikit_learn_pass_with_estimators_of_kernax_but_for_those_listed(
    path, tmp_path
):
    root = Path(sklearn.__file__).parent
    # Without the settings of this project, and nothing is written beside scikit-learn's files.
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-c", str(settings), "--rootdir", str(root)]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "scikit_learn_names"]
    command += ["-q", "--tb=short", "-rfE", "-W", "ignore", str(root / path)]
    search = os.pathsep.join([str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {
        "PYTHONPATH": search,
        "PYTHONDONTWRITEBYTECODE": "1",
        "SKLEARN_TESTS_GLOBAL_RANDOM_SEED": "42",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
