"""How the command line uses the machine: threads of the linear algebra, and compiled programs that
are found again.
"""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from conftest import assert_refused, needs_x32
from threadpoolctl import threadpool_info, threadpool_limits
from typer.testing import CliRunner

from kernax.cli import fitting, resources
from kernax.cli.app import app
from kernax.cli.resources import compiled_programs
from kernax.core.base.threads import linear_algebra_threads

pytestmark = (
    needs_x32  # once, in a process as users have it: the command line sets its own precision
)

runner = CliRunner()


@pytest.fixture
def table(tmp_path, rng):
    path = tmp_path / "table.csv"
    np.savetxt(path, rng.normal(size=(40, 3)), delimiter=",", header="a,b,y", comments="")
    return path


def threads_of_lapack():
    """Of the OpenBLAS that SciPy brings, which jaxlib calls."""
    return {pool["num_threads"] for pool in threadpool_info() if "scipy.libs" in pool["filepath"]}


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one thread is all there are")
def test_small_tables_take_one_thread_large_ones_all_and_an_option_overrules_both():
    with linear_algebra_threads(10, 2), threadpool_limits(2, user_api="blas"):
        if threads_of_lapack() != {2}:
            pytest.skip("the BLAS of this SciPy is not an OpenBLAS of its own")
        for rows, asked, threads in ((1000, None, 1), (1001, None, 2), (10, 2, 2), (5000, 1, 1)):
            with linear_algebra_threads(rows, asked):
                assert threads_of_lapack() == {threads}
            assert threads_of_lapack() == {2}


@pytest.mark.parametrize(("arguments", "threads"), [([], 1), (["--threads", "2"], 2)])
def test_the_fit_runs_on_the_threads_that_were_asked_for(table, monkeypatch, arguments, threads):
    def stopped(*_):
        raise ValueError(f"threads {threads_of_lapack()}")

    monkeypatch.setattr(fitting, "learn", stopped)
    result = runner.invoke(app, ["fit", str(table), "--target", "y", *arguments])
    if (os.cpu_count() or 1) < threads or "set()" in result.stderr:
        pytest.skip("nothing to see")
    assert_refused(result, f"threads {{{threads}}}")


def test_threads_must_be_positive(table):
    assert_refused(
        runner.invoke(app, ["fit", str(table), "--target", "y", "--threads", "0"]),
        "--threads must be at least 1",
    )
    assert_refused(
        runner.invoke(app, ["predict", "m", str(table), "--threads", "-1"]),
        "--threads must be at least 1",
    )


@pytest.fixture
def no_cache_yet():
    """JAX was told of no cache, as outside the tests."""
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


PROBE = """
import jax
from kernax.cli.resources import compiled_programs
with compiled_programs(keep=True):
    jax.jit(lambda x: x + 1)(1.0)
"""


@pytest.mark.slow
def test_programs_are_kept_in_the_users_cache_folder_for_the_user_alone(tmp_path):
    surroundings = {
        name: value for name, value in os.environ.items() if not name.startswith("JAX_")
    }
    subprocess.run(
        [sys.executable, "-c", PROBE],
        env=surroundings | {"XDG_CACHE_HOME": str(tmp_path)},
        check=True,
    )
    assert list((tmp_path / "kernax").glob("jit_*"))
    assert (tmp_path / "kernax").stat().st_mode & 0o077 == 0


def test_settings_of_the_cache_end_with_the_command(tmp_path, monkeypatch, no_cache_yet):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = dict(jax.config.values)
    with compiled_programs(keep=True):
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "kernax")  # pyright: ignore[reportAttributeAccessIssue]
    with compiled_programs(keep=False):
        assert not jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    assert dict(jax.config.values) == before


def test_a_cache_that_jax_was_told_of_stays(tmp_path, monkeypatch, no_cache_yet):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", "elsewhere")
    with compiled_programs(keep=True):
        assert jax.config.jax_compilation_cache_dir == "elsewhere"  # pyright: ignore[reportAttributeAccessIssue]
    assert not any(tmp_path.iterdir())


def test_without_a_folder_to_write_to_nothing_is_kept_and_nothing_said(
    tmp_path, monkeypatch, no_cache_yet
):
    (tmp_path / "file").write_text("")
    homeless = lambda: (_ for _ in ()).throw(RuntimeError("no home"))
    for variable, home in ((str(tmp_path / "file"), Path.home), ("", homeless)):
        monkeypatch.setenv("XDG_CACHE_HOME", variable)
        monkeypatch.setattr(Path, "home", home)
        with warnings.catch_warnings(action="error"), compiled_programs(keep=True):
            assert jax.config.jax_compilation_cache_dir is None  # pyright: ignore[reportAttributeAccessIssue]


def test_the_oldest_programs_go_when_the_folder_is_full(tmp_path, monkeypatch, no_cache_yet):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(resources, "_LARGEST", 25)
    (tmp_path / "kernax").mkdir()
    for age, name in enumerate("cab"):
        path = tmp_path / "kernax" / name
        path.write_text("0123456789")
        os.utime(path, (1000 + age, 1000 + age))
    with compiled_programs(keep=True):
        assert sorted(path.name for path in (tmp_path / "kernax").iterdir()) == ["a", "b"]
