"""String kernels."""

import numpy as np

import kernax as kx
from benchmarks.published.rows import table

DECAY = 0.5
SENTENCES = ["science is organized knowledge", "wisdom is organized life"]


def cat_and_car(quick: bool) -> dict[str, float]:
    """Lodhi's first example."""
    K = np.asarray(kx.gram(kx.Subsequence(2, DECAY), kx.strings.encode(["cat", "car"])))
    return {
        "K(car, cat)": float(K[0, 1]),
        "K(car, car)": float(K[1, 1]),
        "normalised": float(K[0, 1] / np.sqrt(K[0, 0] * K[1, 1])),
    }


def sentences(quick: bool) -> dict[str, float]:
    """The normalised kernel of Lodhi's two sentences."""
    X = kx.strings.encode(SENTENCES)
    found = {}
    for k in range(1, 3 if quick else 7):
        K = np.asarray(kx.gram(kx.Subsequence(k, DECAY), X))
        found[f"k = {k}"] = float(K[0, 1] / np.sqrt(K[0, 0] * K[1, 1]))
    return found


def promoter_matrix(kernel: kx.AbstractKernel, quick: bool) -> dict[str, float]:
    """Entries and sum of the matrix of all promoters."""
    K = np.asarray(kx.gram(kernel, kx.strings.encode(table("promoter")["seq"].tolist())))
    return {"K[0, 1]": float(K[0, 1]), "K[0, 0]": float(K[0, 0]), "sum": float(K.sum())}


def promoter_errors(kernels: dict[str, kx.AbstractKernel], quick: bool) -> dict[str, float]:
    """Leave-one-out errors, of 106, of machines with C = 1 and normalised kernels."""
    data = table("promoter")
    X = kx.strings.encode(data["seq"].tolist())
    y = data["y"].ravel().astype(float)
    rows = np.arange(len(y))
    found = {}
    for name, kernel in list(kernels.items())[: 1 if quick else None]:
        K = kx.Precomputed(kx.gram(kx.Normalised(kernel), X))  # one program for all kernels
        found[name] = int(np.sum(kx.calibration.svm_leave_one_out(K, rows, y, 1.0) * y <= 0))
    return found
