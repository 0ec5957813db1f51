"""Writes two classes, a disc and a ring around it, to a CSV file: `python examples/write_rings.py
FILE.csv`.

There are 400 rows. The classes overlap a little in the columns `across` and `along`. Eight more
columns hold noise: a kernel with one lengthscale for all columns cannot ignore them.
"""

import csv
import sys
from pathlib import Path

import numpy as np

ROWS = 400
DISTRACTORS = 8


def write_rings(path: Path) -> None:
    """Writes the table, with the target `place` as the last column. Makes the folder if missing."""
    rng = np.random.default_rng(0)
    outside = rng.uniform(size=ROWS) < 0.5
    radius = np.where(outside, 2.0, 0.8) + 0.35 * rng.normal(size=ROWS)
    angle = rng.uniform(0, 2 * np.pi, ROWS)
    columns = [
        radius * np.cos(angle),
        radius * np.sin(angle),
        *rng.normal(size=(DISTRACTORS, ROWS)),
    ]
    names = ["across", "along", *(f"noise {i + 1}" for i in range(DISTRACTORS))]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "place"])
        cells = np.round(np.stack(columns, 1), 4).tolist()
        writer.writerows([*row, "ring" if there else "disc"] for row, there in zip(cells, outside))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/write_rings.py FILE.csv")
    write_rings(Path(sys.argv[1]))
