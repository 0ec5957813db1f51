"""Writes scikit-learn's diabetes data to a CSV file: `python examples/write_diabetes.py
/tmp/kernax/diabetes.csv`.

The table has 442 patients. Its columns are age, sex, body mass index, blood pressure and six blood
serum measurements, in their own units, and a measure of the progression of the disease after a year
(Efron, Hastie, Johnstone & Tibshirani 2004).
"""

import csv
import sys
from pathlib import Path

from sklearn.datasets import load_diabetes


def write_diabetes(path: Path) -> None:
    """Writes the table, with the target `progression` as the last column. Makes the folder if it is
    missing.
    """
    data = load_diabetes(scaled=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*data.feature_names, "progression"])  # pyright: ignore[reportAttributeAccessIssue]
        writer.writerows([*x, y] for x, y in zip(data.data.tolist(), data.target.tolist()))  # pyright: ignore[reportAttributeAccessIssue]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/write_diabetes.py FILE.csv")
    write_diabetes(Path(sys.argv[1]))
