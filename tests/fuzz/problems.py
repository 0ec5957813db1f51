"""Random problems: `draw(seed, form, number)` is the same one in every process."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from conftest import DTYPE, X64
from structures import Structure, composed, scaled

STRUCTURES = [scaled(composed(np.random.default_rng([5, i]), 1 + i % 2)) for i in range(12)]
LONGEST = max(len(structure.numbers) for structure in STRUCTURES)
EPS = float(np.finfo(DTYPE).eps)
LARGEST = float(np.finfo(DTYPE).max)
TINY = float(np.finfo(DTYPE).tiny)


@dataclass(frozen=True)
class Form:
    """What is static about a problem, and how it is run.

    `route` is "eager" (functions are called with known values, one problem after the other), "loop"
    (`lax.map`) or "batch" (`vmap`). With `precomputed`, learners see the Gram matrix alone, of a
    kernel of any of the `structures`.
    """

    n: int
    d: int
    structures: tuple[int, ...]
    route: str
    weighted: bool
    bias: bool
    precomputed: bool
    share: float  # of all problems


FORMS = {
    "eager": Form(8, 1, (11,), "eager", weighted=False, bias=False, precomputed=False, share=0.04),
    "loop": Form(
        16, 3, tuple(range(12)), "loop", weighted=True, bias=True, precomputed=True, share=0.9
    ),
    "batch": Form(24, 10, (9,), "batch", weighted=True, bias=False, precomputed=False, share=0.06),
}


def draw(seed: int, form: str, number: int) -> dict:
    """One problem: its `structure`, and everything any learner takes, as arrays of the precision of
    this process.
    """
    shape, rng = FORMS[form], np.random.default_rng([seed, sorted(FORMS).index(form), number])
    which = shape.structures[number % len(shape.structures)]
    size = _magnitude(rng)
    kernel_size = _magnitude(rng)
    X = _points(rng, shape.n, shape.d, size)
    numbers = _numbers(rng, STRUCTURES[which], size, kernel_size)
    y, signs, classes = _targets(rng, X)
    target_size = _magnitude(rng)
    features, shrink = _points(rng, shape.n, 5, _magnitude(rng)), 10 ** rng.uniform(-6, 0.5)
    C, target_C = 10 ** rng.uniform(-3, 4, 2) / kernel_size
    relative = 10 ** rng.uniform(-12 if X64 else -6, 3)
    problem = {
        "X": X,
        "numbers": numbers,
        "y": y * target_size,
        "signs": signs,
        "counts": rng.poisson(np.exp(np.clip(y, -3, 3))).astype(float),
        "classes": np.eye(3)[classes],
        "weights": _weights(rng, shape.n) if shape.weighted else np.ones(shape.n),
        "ridge": _unless_extreme(rng, kernel_size * relative),
        "C": (C := _unless_extreme(rng, C)),
        "margin_ridge": 1 / C,
        "target_C": (C := _unless_extreme(rng, target_size * target_C)),
        "target_ridge": 1 / C,
        "epsilon": target_size * rng.choice([0, 10 ** rng.uniform(-4, 0)]),
        "nu": rng.uniform(0.02, 1),
        "delta": target_size * 10 ** rng.uniform(-2, 1),
        "tau": rng.uniform(0.05, 0.95),
        "features": features,
        "feature_ridge": _unless_extreme(rng, relative * np.max(abs(features)) ** 2),
        "penalty": np.max(abs(features.T @ y)) * target_size * rng.choice([0, shrink, shrink]),
        "values": _decision_values(rng, signs),
        "rate": 10 ** rng.uniform(-2, 2),
        "threshold": rng.choice([0, rng.normal()]),
    }
    cast = {
        name: np.asarray(np.clip(value, -LARGEST, LARGEST), DTYPE)
        for name, value in problem.items()
    }
    return cast | {"structure": which}


@cache
def drawn(seed: int, form: str, count: int) -> list[dict]:
    """The problems of a form."""
    return [draw(seed, form, number) for number in range(count)]


def _magnitude(rng: np.random.Generator) -> float:
    """One, in every third problem; otherwise anything from 1e-20 to 1e20."""
    return rng.choice([1.0, 10 ** rng.uniform(-3, 3), 10 ** rng.uniform(-20, 20)])


def _unless_extreme(rng: np.random.Generator, value: float) -> float:
    """The value; now and then zero's neighbourhood or something far off instead."""
    return np.clip(10 ** rng.uniform(-20, 20) if rng.random() < 0.1 else value, TINY, LARGEST)


def _points(rng: np.random.Generator, n: int, d: int, size: float) -> np.ndarray:
    X = rng.normal(size=(n, d)) + rng.choice([0, 1, 1e3, 1e6])
    copies = rng.random(n) < rng.choice([0, 0.3])
    X[copies] = X[rng.integers(n, size=copies.sum())]
    if rng.random() < 0.1:
        X[:, rng.integers(d)] = X[0, 0]  # a constant column
    return np.clip(size * X, -LARGEST, LARGEST)


def _numbers(
    rng: np.random.Generator, structure: Structure, size: float, kernel_size: float
) -> np.ndarray:
    powers, positive = np.array(structure.numbers, dtype=float).T
    numbers = size**powers * 10 ** rng.uniform(-1.5, 1.5, len(powers))
    numbers = np.where((positive == 0) & (rng.random(len(powers)) < 0.15), 0, numbers)
    numbers[numbers < TINY] = 0  # as XLA reads them
    numbers[0] = kernel_size
    numbers = np.where(positive, np.clip(numbers, TINY, LARGEST), np.clip(numbers, 0, LARGEST))
    return np.append(numbers, np.zeros(LONGEST - len(numbers)))  # all of one length, to be stacked


def _targets(rng: np.random.Generator, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = len(X)
    column = X[:, 0] - X[:, 0].mean()
    smooth = np.sin(2 * column / (np.std(column) or 1))
    y = (
        rng.choice([0, 1]) * smooth
        + rng.choice([0, 0.1, 1]) * rng.normal(size=n)
        + rng.choice([0, 1, 1e4])
    )
    level = np.median(y) if rng.random() < 0.5 else rng.normal()
    signs = np.where(y + rng.choice([0, 0.5]) * rng.normal(size=n) > level, 1.0, -1.0)
    classes = rng.integers(3, size=n)
    if rng.random() < 0.95:  # otherwise one class may be alone
        places = rng.permutation(n)
        signs[places[:2]] = -1, 1
        classes[places[:3]] = 0, 1, 2
    return y, signs, classes


def _weights(rng: np.random.Generator, n: int) -> np.ndarray:
    weights = rng.choice([1.0, 2.0, rng.uniform(0.1, 3)], n)
    weights[rng.random(n) < rng.choice([0, 0.2])] = 0
    weights[rng.integers(n)] = 1
    return weights * (10 ** rng.uniform(-8, 8) if rng.random() < 0.1 else 1)


def _decision_values(rng: np.random.Generator, signs: np.ndarray) -> np.ndarray:
    spread = rng.choice([0, 1, 3])
    level = rng.choice([0, 1, 1e6])
    return _magnitude(rng) * (
        rng.choice([0.3, 1]) * signs + spread * rng.normal(size=len(signs)) + level
    )
