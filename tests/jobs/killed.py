"""Processes that write without end are killed at random moments, and what they leave is read:
`python killed.py KIND COUNT FOLDER`, where KIND is `file`, `model`, `checkpoint` or `command`.

Each writer first reads what the one before it left. They are forked, before JAX has started in
this process, so that packages are imported once.
"""

import contextlib
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

import numpy as np

SIZE = 300_000


class Files:
    """A file of one repeated byte."""

    def __init__(self, folder):
        from kernax.core.base.whole_files import write_whole

        self.path, self.write_whole = folder / "file", write_whole

    def read(self):
        if not self.path.exists():
            return -1
        contents = self.path.read_bytes()
        assert len(contents) == SIZE
        assert len(set(contents)) == 1, "the file is of two writes"
        return 0

    def writes(self):
        for number in range(1_000_000):
            contents = bytes([number % 256]) * SIZE
            self.write_whole(self.path, lambda path, contents=contents: path.write_bytes(contents))
            yield


class Models:
    """A kernel of many lengthscales, all of them equal."""

    def __init__(self, folder):
        import kernax

        self.path, self.kernax = folder / "model.kernax", kernax
        _ = kernax.save, kernax.load, kernax.RBF  # imported before any fork

    def read(self):
        if not self.path.exists():
            return -1
        lengthscales = np.asarray(self.kernax.load(self.path).lengthscale)
        assert len(lengthscales) == 20_000
        assert len(set(lengthscales.tolist())) == 1, "the model is of two saves"
        return 0

    def writes(self):
        for number in range(1, 1_000_000):
            self.kernax.save(self.path, self.kernax.RBF(np.full(20_000, float(number))))
            yield


class Checkpoints:
    """A state whose numbers are all that of its step."""

    def __init__(self, folder):
        import kernax

        self.checkpoint = kernax.Checkpoint(folder / "run", every=1)
        self.start = {"numbers": np.zeros(20_000)}

    def read(self):
        found = self.checkpoint.latest(self.start)
        if found is None:
            return -1
        step, state = found
        assert (np.asarray(state["numbers"]) == step).all()
        return step

    def writes(self):
        advance = lambda state: {"numbers": np.asarray(state["numbers"]) + 1.0}
        yield from self.checkpoint.steps(advance, self.start, 1_000_000)


class Commands:
    """What `kernax fit --out` writes, of two tables in turn: the targets of one are those of the
    other with the other sign.
    """

    def __init__(self, folder):
        import kernax.cli.fitting
        import kernax.files
        from kernax.cli.app import app
        from kernax.types import Regressor

        self.app, self.load, self.regressor = app, kernax.files.load_predictor, Regressor
        self.path = folder / "fit.kernax"
        self.tables = [folder / "positive.csv", folder / "negative.csv"]
        for table, sign in zip(self.tables, (1, -1)):
            rows = [f"{i / 10},{sign * (2 + np.sin(i / 10))}" for i in range(40)]
            table.write_text("\n".join(["x,y", *rows]))

    def read(self):
        if not self.path.exists():
            return -1
        predictor = self.load(self.path)
        assert isinstance(predictor, self.regressor)
        assert 1 < abs(predictor.target.centre) < 3, "the mean is that of neither table"
        return 0

    def writes(self):
        for number in range(1_000_000):
            command = ["fit", str(self.tables[number % 2]), "--target", "y"]
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
                self.app([*command, "--out", str(self.path)], standalone_mode=False)
            yield


def work(place, pipe):
    """Reads, writes once, which imports and compiles, says what it read, and writes until it is
    killed.
    """
    try:
        found = place.read()
        writes = place.writes()
        next(writes)
        os.write(pipe, f"{found}\n".encode())
        for _ in writes:
            pass
    except BaseException as problem:
        os.write(pipe, f"{type(problem).__name__}: {problem}\n".encode())
    os._exit(1)


def main(kind, count, folder):
    chance = random.Random(0)
    kinds = {"file": Files, "model": Models, "checkpoint": Checkpoints, "command": Commands}
    place = kinds[kind](folder)
    found = []
    for _ in range(count + 1):
        reader, pipe = os.pipe()
        process = os.fork()
        if process == 0:
            work(place, pipe)
        os.close(pipe)
        with os.fdopen(reader) as said:
            assert select.select([said], [], [], 60)[0], "a writer hangs"
            found.append(int(said.readline()))
            time.sleep(chance.uniform(0.0, 0.05 if kind == "file" else 0.3))
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            assert said.read() == ""
    print(*found)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
