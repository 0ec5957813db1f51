"""The rows of machines and of other classifiers on real classes."""

from functools import partial

import kernax as kx
from benchmarks.published import machines, processes, vectors
from benchmarks.published.rows import Figure, Row, Trust, exact, shown

V = Trust.PRIMARY
S = Trust.SECONDARY
C = Trust.COMPUTED
M = Trust.RECALLED
MACHINES = "Support vector machines"
VECTORS = "Machines of few vectors, and other classifiers, on real classes"
_SPLITS = "ten splits of the file, inputs as they are, RBF kernel"
_RAETSCH = "Raetsch et al. 2001 (sets and splits)"


def _heart(name, what, kernel, objective, rho, support, bounded, accuracy):
    return Row(
        f"svm heart_scale {name}",
        MACHINES,
        f"{what}, heart_scale",
        ("heart_scale",),
        "C = 1, converged to 1e-8; objective of the dual problem as LIBSVM writes it",
        "LIBSVM prints -100.877286 at a tolerance of 1e-3 (RBF) [V]",
        (
            exact("objective", objective, 5e-7, form=".6f"),
            exact("rho", rho, 2e-6, form=".6f"),
            exact("support vectors", support, 0),
            exact("at the bound", bounded, 0),
            *accuracy,
        ),
        partial(machines.heart_scale, kernel),
    )


def _guide(name, protocol, is_scaled, price, gamma, accuracy, objective, more, explanation=""):
    return Row(
        f"svm svmguide1 {name}",
        MACHINES,
        f"RBF, svmguide1, {name}",
        ("svmguide1",),
        f"{protocol}, C = {price}, gamma = {gamma}; 3089 rows to learn from, 4000 of test",
        "Hsu, Chang & Lin, A practical guide to support vector classification",
        (
            exact("test accuracy, %", accuracy, 1e-9, S),
            exact("objective", objective, 1e-5, form=".5f"),
            *more,
        ),
        partial(machines.svmguide1, is_scaled, price, gamma),
        0.5,
        explanation,
    )


HEART = (
    _heart(
        "rbf",
        "RBF kernel, gamma = 1/13",
        kx.RBF(6.5**0.5),
        -100.877292,
        0.424508,
        132,
        107,
        (exact("training accuracy, %", 86.667, 5e-4, form=".3f"),),
    ),
    _heart("linear", "linear kernel", kx.Linear(), -92.473375, -1.049095, 101, 88, ()),
)
GUIDE = (
    _guide("raw", "inputs as they are", False, 1, 0.25, 66.925, -1061.52897, ()),
    _guide(
        "scaled",
        "inputs linearly to [-1, 1]",
        True,
        2,
        2,
        96.875,
        -595.59566,
        (exact("support vectors", 368, 0),),
    ),
)


def _error(published, trust, within, others=""):
    return Figure("error, %", published, trust, within, form=".2f", others=others)


def _count(published, trust, others=""):
    return Figure("vectors", published, trust, 1.0, form=".1f", others=others)


def _svm(name, published, within, others, count, others_of_count, explanation):
    return Row(
        f"svm {name}",
        VECTORS,
        f"SVM, {name}",
        (name,),
        f"{_SPLITS}, C chosen on a half of the first training split",
        f"Tipping 2001; {_RAETSCH}; Zhu & Hastie 2005",
        (_error(published, V, within, others), _count(count, V, others_of_count), shown("C")),
        partial(machines.of_splits, name),
        1.0,
        explanation,
    )


def _rvm(name, error, count, explanation):
    return Row(
        f"rvm {name}",
        VECTORS,
        f"RVM, {name}",
        (name,),
        f"{_SPLITS}, its width by the evidence of the first five training splits",
        "Tipping 2001",
        (
            _error(error, V, 1.0),
            Figure("vectors", count, V, count, form=".1f"),
            shown("successful fits, %"),
            shown("width"),
        ),
        partial(vectors.relevant, name),
        0.5,
        explanation,
    )


def _ivm(name, error, count, explanation):
    return Row(
        f"ivm {name}",
        VECTORS,
        f"IVM, {name}",
        (name,),
        f"{_SPLITS}, ridge chosen on a half of the first training split",
        "Zhu & Hastie 2005",
        (
            _error(error, M, 1.0),
            Figure("vectors", count, M, count, form=".1f"),
            shown("successful fits, %"),
            shown("ridge"),
        ),
        partial(vectors.imported, name),
        1.0,
        explanation,
    )


def _kfd(name, error, explanation):
    return Row(
        f"kfd {name}",
        VECTORS,
        f"Fisher discriminant, {name}",
        (name,),
        f"{_SPLITS}, threshold halfway between the classes, ridge on a half of the first split",
        _RAETSCH,
        (_error(error, M, 1.0), shown("ridge")),
        partial(machines.discriminant, name),
        0.5,
        explanation,
    )


def _gpc(name, explanation=""):
    protocol = "four draws of 100 of 250 training points" if name == "ripley" else _SPLITS
    return Row(
        f"gp {name}",
        VECTORS,
        f"GP by Laplace, {name}",
        (name,),
        f"{protocol}; variance, lengthscale and mean learned on the first by 20 steps of L-BFGS",
        "no figure of these splits at hand: compare with the rows above",
        (_error(None, Trust.NONE, 0.0),),
        partial(processes.classes, name),
        2.0,
        explanation,
    )


ON_CLASSES = (
    _svm(
        "banana",
        10.9,
        0.5,
        "11.5 [M], 10.8 [M]",
        135.2,
        "90 [M]",
        "C and lengthscale are chosen anew: the papers do not print theirs.",
    ),
    _rvm("banana", 10.8, 11.4, ""),
    _ivm("banana", 10.3, 21, ""),
    _kfd("banana", 10.8, ""),
    _gpc("banana"),
    _svm("titanic", 22.1, 1.0, "22.4 [M], 22.2 [M]", 93.7, "69 [M]", ""),
    _rvm("titanic", 23.0, 65.3, ""),
    _ivm("titanic", 22.4, 8, ""),
    _kfd("titanic", 23.2, ""),
    _gpc("titanic"),
    _svm(
        "waveform",
        10.3,
        1.0,
        "9.9 [M], 10.0 [M]",
        146.4,
        "151 [M]",
        "Five values of C and one half of one split choose it.",
    ),
    _rvm("waveform", 10.9, 14.6, ""),
    _ivm(
        "waveform",
        10.1,
        26,
        "The ridge is chosen by the error alone, and the smallest of equal ones has few vectors; "
        "six of ten splits want more than the 100 vectors that are the default, and say so.",
    ),
    _kfd("waveform", 9.9, ""),
    _gpc("waveform"),
    Row(
        "svm ripley",
        VECTORS,
        "SVM, ripley",
        ("ripley",),
        "means of four draws of 100 of 250 training points, kernel exp(-|x - z|^2 / 0.25), C by "
        "leave-one-out errors",
        "Tipping 2001",
        (_error(10.6, V, 1.0), _count(38, V)),
        machines.ripley,
        0.3,
        "The paper does not say which 100 points it took, nor its C: a smaller one has more "
        "vectors, and here errs less.",
        alike=False,
    ),
    Row(
        "rvm ripley",
        VECTORS,
        "RVM, ripley",
        ("ripley",),
        "the same draws and kernel",
        "Tipping 2001",
        (
            _error(9.3, V, 1.0),
            Figure("vectors", 4, V, 4, form=".1f"),
            shown("successful fits, %"),
        ),
        vectors.relevant_of_ripley,
        0.2,
    ),
    _gpc("ripley"),
    Row(
        "rvm sinc",
        VECTORS,
        "RVM, sinc without noise",
        (),
        "100 points, linear spline kernel, noise fixed at 0.01^2",
        "Tipping 2001",
        (
            Figure("largest error", 0.0070, V, 0.0005, form=".4f"),
            Figure("vectors", 9, V, 1),
            shown("successful fits, %"),
        ),
        vectors.relevant_of_sinc,
    ),
    Row(
        "rvm noisy sinc",
        VECTORS,
        "RVM, sinc with noise",
        (),
        "100 points, linear spline kernel, normal noise of deviation 0.1, ten draws",
        "Tipping 2001 has noise uniform on [-0.2, 0.2]",
        (
            Figure("RMSE", 0.032, C, 0.002, form=".4f", others="0.0245, uniform noise [V]"),
            Figure("vectors", 6, V, 1, form=".1f"),
            shown("successful fits, %"),
        ),
        vectors.relevant_of_noisy_sinc,
    ),
)

ROWS = (*HEART, *GUIDE, *ON_CLASSES)
