"""How long do Gram matrices of strings take?

400 random DNA strings of 57 letters (the size of a promoter): common substrings and gapped
subsequences, beside strkernels (C++, the kernels of Shogun), whose kernels sum over all lengths up
to the one given; 2000 strings of 100 letters by spectrum and mismatch, the last two with more
possible substrings than a histogram holds. Time series by global alignment, beside tslearn (numba).
"""

import jax
import numpy as np

import kernax as kx
from benchmarks.harness import Bar, Case, Contender, Program

DECAY = 0.6
SCALE = 20.0  # the median distance of two vectors times the root of the length


def cases(quick):
    few, many = (40, 200) if quick else (400, 2000)
    rounds = 3 if quick else 7
    with jax.enable_x64(True):
        texts = dna(few, 57)
        X = kx.strings.encode(texts, "ACGT")
        yield Case(
            f"spectrum, k <= 3, n={few}, 57 letters, float64",
            [
                Contender(
                    "kernax",
                    lambda: Program(lambda X: kx.gram(kx.kernels.BlendedSpectrum(3), X), X),
                ),
                Contender(
                    "strkernels", lambda: _strkernels("SpectrumStringKernel", texts, order=3)
                ),
            ],
            bars=[Bar(0.01, "strkernels")],
            tolerance=1e-12,
            rounds=rounds,
        )
        yield Case(
            f"subsequences of length 4, n={few}, 57 letters, float64",
            [
                Contender(
                    "kernax", lambda: Program(lambda X: kx.gram(kx.Subsequence(4, DECAY), X), X)
                ),
                Contender("strkernels", lambda: _subsequences(texts)),
            ],
            bars=[Bar(0.5, "strkernels")],
            tolerance=1e-9,
            rounds=rounds,
        )
        series = np.random.default_rng(0).normal(size=(few, 60, 3))
        yield Case(
            f"global alignment, normalised, n={few}, 60 vectors of 3 numbers, float64",
            [
                Contender(
                    "kernax", lambda: Program(alignments, kx.kernels.GlobalAlignment.pad(series))
                ),
                Contender("tslearn", lambda: _alignments(series)),
            ],
            bars=[
                Bar(
                    1.0,
                    "tslearn",
                    explanation="tslearn's loop over cells, compiled by numba, has one float for a "
                    "cell and overflows for long series; here each cell has an exponent of its "
                    "own, and an antidiagonal as many places as a series has vectors, half of "
                    "which are empty.",
                )
            ],
            tolerance=1e-9,
            rounds=3,
        )
    X = jax.tree.map(np.asarray, kx.strings.encode(dna(many, 100), "ACGT"))
    for name, kernel, limit in (
        ("spectrum k=3", kx.Spectrum(3), 1.0),
        ("spectrum k=6", kx.Spectrum(6), None),
        ("mismatch (5, 1)", kx.kernels.Mismatch(5, 1), None),
        ("spectrum k=9", kx.Spectrum(9), None),
        ("mismatch (9, 1)", kx.kernels.Mismatch(9, 1), None),
    ):
        yield Case(
            f"{name}, n={many}, 100 letters, float32",
            [Contender("kernax", lambda kernel=kernel: Program(lambda X: kx.gram(kernel, X), X))],
            bars=[] if limit is None else [Bar(limit)],
            rounds=3,
        )


def dna(count: int, length: int) -> list[str]:
    rng = np.random.default_rng(0)
    return ["".join(rng.choice(list("ACGT"), length)) for _ in range(count)]


def alignments(X):
    return kx.gram(kx.Normalised(kx.kernels.GlobalAlignment(kx.RBF(SCALE))), X)


def _alignments(series):
    from tslearn.metrics import cdist_gak

    return lambda: cdist_gak(series, sigma=SCALE)


def _strkernels(name, texts, **parameters):
    import strkernels

    kernel = getattr(strkernels, name)(normalizer=None, **parameters)
    return lambda: kernel(texts, texts)


def _subsequences(texts):
    """Those of length 4 alone: what it has for all lengths, less what it has up to 3, which is not
    timed.
    """
    shorter = _strkernels("SubsequenceStringKernel", texts, maxlen=3, ssk_lambda=DECAY)()
    every = _strkernels("SubsequenceStringKernel", texts, maxlen=4, ssk_lambda=DECAY)
    return lambda: every() - shorter
