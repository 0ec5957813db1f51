"""The rows of the published tables."""

from functools import partial

import kernax as kx
from benchmarks.published import rows_of_machines, rows_of_processes, sequences
from benchmarks.published.rows import Row, Trust, exact

V = Trust.PRIMARY
STRINGS = "Strings"
ELSEWHERE = "Speed of other machines"
_PROMOTER_KERNELS = {
    **{f"spectrum, k = {k}": kx.Spectrum(k) for k in range(2, 7)},
    "mismatch (6, 1)": kx.kernels.Mismatch(6, 1),
}
_SENTENCES = (0.8487, 0.5798, 0.4785, 0.4389, 0.4057, 0.3692)

_STRINGS = (
    Row(
        "subsequence cat car",
        STRINGS,
        "subsequence kernel, cat and car",
        (),
        "length 2, decay l = 0.5: l^4, 2 l^4 + l^6, 1 / (2 + l^2)",
        "Lodhi et al. 2002",
        (
            exact("K(car, cat)", 0.0625, 1e-12, V),
            exact("K(car, car)", 0.140625, 1e-12, V),
            exact("normalised", 1 / 2.25, 1e-9, V, ".6f"),
        ),
        sequences.cat_and_car,
    ),
    Row(
        "subsequence sentences",
        STRINGS,
        "subsequence kernel, two sentences",
        (),
        '"science is organized knowledge", "wisdom is organized life", normalised, decay 0.5',
        "Lodhi et al. 2002 print 0.580 for k = 1",
        tuple(exact(f"k = {k}", value, 5e-5, form=".4f") for k, value in enumerate(_SENTENCES, 1)),
        sequences.sentences,
        0.1,
        "The figure that the paper prints for k = 1 is that of k = 2, a misprint.",
    ),
    *(
        Row(
            f"promoter {name}",
            STRINGS,
            f"{name}, promoter",
            ("promoter",),
            "106 sequences, not normalised: entries and the sum of the matrix",
            "computed from the file",
            (
                exact("K[0, 1]", first, 0),
                exact("K[0, 0]", second, 0),
                exact("sum", total, within, form=".6g"),
            ),
            partial(sequences.promoter_matrix, kernel),
        )
        for name, kernel, first, second, total, within in (
            ("spectrum k=3", kx.Spectrum(3), 53, 97, 563584, 0),
            ("spectrum k=4", kx.Spectrum(4), 13, 62, 149294, 0),
            ("mismatch (4,1)", kx.kernels.Mismatch(4, 1), 1995, 2674, 2.21847e7, 60),
        )
    ),
    Row(
        "promoter left out",
        STRINGS,
        "SVM of normalised kernels, promoter",
        ("promoter",),
        "leave-one-out errors of 106, C = 1",
        "computed from the file; KBANN 4, backpropagation 8, O'Neill 12, nearest neighbour 13, "
        "ID3 19 [V] (Towell et al. 1990)",
        tuple(exact(name, wrong, 0) for name, wrong in zip(_PROMOTER_KERNELS, (19, 9, 7, 2, 3, 2))),
        partial(sequences.promoter_errors, _PROMOTER_KERNELS),
        0.5,
    ),
)

_ELSEWHERE = (
    Row(
        "keops product",
        ELSEWHERE,
        "Gaussian product, d = 3, float32, RTX 2080 Ti",
        (),
        "10 000, 100 000 and 1 000 000 points",
        "KeOps: 0.7 ms, 15 ms, 1.39 s [V]",
        (),
        None,
        absent="needs an accelerator: `python -m benchmarks --device gpu product` has it",
    ),
    Row(
        "thundersvm",
        ELSEWHERE,
        "SVM, mnist8m and webdata, P100",
        (),
        "ThunderSVM, 20 cores, LIBSVM",
        "7.1e3, 3.2e4, 8.1e5 s; 4.66, 16.5, 1493 s [V]",
        (),
        None,
        absent="the sets are not among the shared data",
    ),
    Row(
        "mnist",
        ELSEWHERE,
        "EigenPro 2 and Falkon, MNIST",
        (),
        "60 000 digits",
        "1.23 % in 6.2 s on one GPU; 4.13 % in 5.4 s with 1000 centres [V]",
        (),
        None,
        absent="the set is not among the shared data",
    ),
)

ROWS = (*rows_of_machines.ROWS, *rows_of_processes.ROWS, *_STRINGS, *_ELSEWHERE)
