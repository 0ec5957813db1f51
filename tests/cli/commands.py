"""What tests of the command line share: a run of a command, and a table for it."""

import csv

import numpy as np
from typer.testing import CliRunner

from kernax.cli.app import app

runner = CliRunner()


def run(command, *arguments):
    return runner.invoke(app, [command, *map(str, arguments)])


def write(path, header, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def write_points(path, X, names, target="kind"):
    rows = [",".join(map(str, [*x, name])) for x, name in zip(X.round(6), names)]
    path.write_text("\n".join([f"a,b,{target}", *rows]) + "\n", encoding="utf-8")
    return path


def ring(rng, n=48):
    """Two classes that no line can tell apart."""
    inside = np.arange(n) % 2 == 0
    radius = np.where(inside, 0.5, 1.6) + 0.15 * rng.normal(size=n)
    angle = rng.uniform(0, 2 * np.pi, n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1), inside
