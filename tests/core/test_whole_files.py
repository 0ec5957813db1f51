"""Files are written whole or not at all, where and only where they were asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs_x64

import kernax
from kernax.core.base.whole_files import check_place, write_whole

pytestmark = needs_x64  # once: no precision touches it


def test_what_killed_writers_left_behind_is_removed_and_other_files_are_not(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left, running = f".run.{ended.pid}.part", f".run.{os.getppid()}.part"
    others = [running, ".run.part", ".run.\u00b2.part", f".run.more.{ended.pid}.part", "run.part"]
    for name in (left, *others):
        (tmp_path / name).touch()
    kernax.save(tmp_path / "run", kernax.RBF())
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(["run", *others])


def test_the_next_save_removes_what_a_killed_one_left(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / f".model.{ended.pid}.part").write_text("half of it")
    (tmp_path / f".model.{ended.pid}0000000.part").mkdir()  # a folder is nobody's file
    kernax.save(tmp_path / "model", kernax.RBF())
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f".model.{ended.pid}0000000.part", "model"]


def test_links_are_followed_and_stay(tmp_path):
    (tmp_path / "models").mkdir()
    target, link = tmp_path / "models" / "model", tmp_path / "newest"
    link.symlink_to(target)
    for lengthscale in (1.0, 2.0):  # the first one makes the file that the link names
        kernax.save(link, kernax.RBF(lengthscale))
        assert link.is_symlink()
        assert not target.is_symlink()
        assert kernax.load(target).lengthscale == lengthscale
    assert [path.name for path in target.parent.iterdir()] == ["model"]
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere" / "model")
    with pytest.raises(FileNotFoundError, match=r"lost is a link to .*there is no such folder"):
        kernax.save(tmp_path / "lost", kernax.RBF())
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError, match="loop"):
        kernax.save(tmp_path / "loop", kernax.RBF())
    assert (tmp_path / "loop").is_symlink()


def test_devices_and_pipes_are_refused_and_stay(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(OSError, match="it is a device, a pipe or a socket, not a file"):
            kernax.save(path, kernax.RBF())
    assert pipe.is_fifo()
    with pytest.raises(OSError, match="it is a device"):
        check_place(Path(os.devnull))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_file_may_have_as_long_a_name_as_its_folder_takes(tmp_path):
    path = tmp_path / ("\u6a21" * 84)  # 252 bytes, of 255
    write_whole(path, lambda unfinished: unfinished.write_text("all of it"))
    assert path.read_text() == "all of it"
