"""The rows of the published tables."""

from functools import partial

import kernax as kx
from benchmarks.published import rows_of_machines, rows_of_processes, sequences, speed
from benchmarks.published.rows import Figure, Row, Trust, exact, shown

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
        "cross-validated svm",
        ELSEWHERE,
        "SVM, ten folds of 50 values of C, 10 000 points of 1000 columns",
        (),
        "two classes of five normal clusters; RBF kernel; from data to the SVM of the best C, with "
        "compilation, float32; 50 equally spaced logarithms of lambda from 1e-3 to 1e3",
        "Zhang, Jia, Ding & Wang 2026 (TorchKM)",
        (
            Figure(
                "seconds",
                14322.8,
                V,
                form=".0f",
                others="scikit-learn; ThunderSVM 279.4, TorchKM 37.7, one L40S",
            ),
            shown("successful fits, %"),
            shown("cross-validated error, %", ".2f"),
        ),
        speed.cross_validated_machines,
        8,
        "Machines differ: two cores of a CPU here, and the authors' own CPU and GPU there.",
        alike=False,
    ),
    Row(
        "long line",
        ELSEWHERE,
        "damped oscillator at 1 800 000 times",
        (),
        "sorted times, noise 0.09, float64; medians of seven runs without compilation",
        "tinygp, issue 280",
        (
            Figure(
                "evidence, seconds",
                0.114,
                V,
                form=".2f",
                others="serial on a CPU of 32 cores; 0.211 parallel on a GPU",
            ),
            Figure(
                "means and variances, seconds",
                1.432,
                V,
                form=".2f",
                others="serial on a CPU of 32 cores; 105.35 parallel on a GPU",
            ),
        ),
        speed.long_line,
        1,
        "Machines differ. On the same two cores tinygp takes 0.19 and 2.1 s.",
        alike=False,
    ),
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
