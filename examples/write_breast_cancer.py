"""Writes scikit-learn's breast cancer data to a CSV file: `python examples/write_breast_cancer.py FILE.csv`.

569 tumours; thirty measurements of the nuclei of their cells in an image, and a diagnosis in a word, malignant or benign
(Street, Wolberg & Mangasarian 1993).
"""

import csv
import sys
from pathlib import Path

from sklearn.datasets import load_breast_cancer


def write_breast_cancer(path: Path) -> None:
    """Writes the table, the column to predict (`diagnosis`) last, and makes the folder if need be."""
    data = load_breast_cancer()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*data.feature_names, "diagnosis"])
        writer.writerows([*x, data.target_names[y]] for x, y in zip(data.data.tolist(), data.target.tolist()))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/write_breast_cancer.py FILE.csv")
    write_breast_cancer(Path(sys.argv[1]))
