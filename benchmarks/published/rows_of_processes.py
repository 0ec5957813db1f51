"""The rows of Gaussian processes."""

from functools import partial

from benchmarks.published import processes
from benchmarks.published.rows import Figure, Row, Sense, Trust, exact, shown

V = Trust.PRIMARY
S = Trust.SECONDARY
C = Trust.COMPUTED
HIGHER = Sense.HIGHER_IS_BETTER
NUMBERS = "Gaussian processes of numbers"
CLASSES = "Gaussian processes of classes"
OF_NUMBERS = (
    Row(
        "gp snelson",
        NUMBERS,
        "RBF, snelson",
        ("snelson",),
        "x and y standardised, all three hyperparameters learned by the evidence from (1, 1, 0.1)",
        "toolboxes print 89.81 [S]",
        (
            exact("negative log likelihood", 89.8103, 1e-4, form=".4f"),
            exact("lengthscale", 0.35425, 3e-5, form=".5f"),
            exact("variance", 0.96233, 1e-4, form=".5f"),
            exact("noise variance", 0.11210, 1e-5, form=".5f"),
        ),
        processes.snelson,
    ),
    Row(
        "gp co2",
        NUMBERS,
        "the book's kernel, CO2 over Mauna Loa",
        ("co2",),
        "545 months to the end of 2003, less their mean, period fixed; 40 steps of L-BFGS from the "
        "printed hyperparameters",
        "Rasmussen & Williams 2006, section 5.4.3",
        (
            exact("log likelihood as printed", -111.114, 6e-4, C, ".3f", "-108.5 [V]"),
            Figure("log likelihood learned", -111.017, C, 1e-3, HIGHER, ".3f"),
            shown("median change of a hyperparameter, %", ".1f"),
            shown("largest change, %", ".1f"),
        ),
        processes.co2,
        1.0,
        "The book's -108.5 is of a file of 2004, which CDIAC has revised since. What moves most is "
        "the exponent of the rational quadratic, from 0.78 to 0.73; the evidence hardly depends on "
        "it.",
    ),
    Row(
        "gp elevators 2000",
        NUMBERS,
        "Matern 3/2, elevators, fold 0, 2000 rows",
        ("elevators",),
        "the first 2000 training rows, standardised by all of them; 18 lengthscales, variance and "
        "noise of Lin et al. 2023",
        "computed from the file",
        (
            exact("log likelihood", -1242.6091, 1e-3, form=".4f"),
            exact("RMSE", 0.416989, 2e-6, form=".6f"),
            exact("NLPD", 0.510918, 2e-6, form=".6f"),
        ),
        processes.elevators,
    ),
    *(
        Row(
            f"gp {name}",
            NUMBERS,
            f"Matern 3/2, {name}, all points",
            (name,),
            "errors of standardised targets over folds of the file (90/10); 18, 17 and 8 "
            "lengthscales and the noise learned on 2000 or 3000 rows, then all rows by conjugate "
            "gradients in float32",
            "Maddox et al. 2022 (single precision, conjugate gradients, five seeds)",
            (
                Figure("RMSE", published, V, 0.02 * published, form=".4f", others=others),
                shown("standard error", ".4f"),
                shown("folds"),
                shown("seconds a fold", ".0f"),
            ),
            partial(processes.of_folds, name, folds),
            minutes,
            explanation,
        )
        for name, folds, published, others, minutes, explanation in (
            ("elevators", 10, 0.364, "0.394, unshuffled [M]", 6.0, ""),
            (
                "bike",
                10,
                0.074,
                "0.220 [M]",
                35.0,
                "Two inputs are the casual and the registered riders, whose sum is the target's "
                "count: with a learned lengthscale for each input an exact process finds that, and "
                "how far it goes is a matter of the least noise (0.001 here).",
            ),
            (
                "kin40k",
                1,
                0.099,
                "0.099 [M]",
                1.5,
                "Lengthscales and noise are learned to the optimum of an evidence here; the papers "
                "stop after some steps of Adam.",
            ),
        )
    ),
    *(
        Row(
            f"inducing kin40k {way}",
            NUMBERS,
            f"512 inducing points, kin40k, {words}",
            ("kin40k",),
            f"fold 0, Matern 3/2, points chosen greedily at first and learned; {steps} steps of "
            f"{by}",
            "a comparison of toolboxes, collapsed bound",
            (
                Figure("RMSE", 0.286, S, 0.02, form=".4f", others="0.273 [M]"),
                Figure("NLPD", 0.163, S, 0.02, form=".4f"),
            ),
            partial(processes.by_inducing_points, way, steps),
            minutes,
            "A Matern 3/2 kernel in place of an RBF, and points that are chosen greedily before "
            "they are learned.",
            alike=False,
        )
        for way, words, steps, by, minutes in (
            ("collapsed", "collapsed bound", 25, "L-BFGS", 1.0),
            ("minibatches", "minibatches", 1200, "Adam and natural gradients, 1024 rows each", 2.0),
        )
    ),
    *(
        Row(
            f"gp yacht {library}",
            NUMBERS,
            f"RBF with six lengthscales, yacht, {library}",
            ("yacht",),
            "twenty splits, in units of the target; from lengthscales 1, variance 1, noise 0.1 by "
            "at most 100 steps of L-BFGS",
            f"a comparison of five libraries, {of}",
            (
                Figure("RMSE", error, S, 0.01, form=".3f", others=others[0]),
                Figure("NLPD", density, S, 0.01, form=".3f", others=others[1]),
                Figure("negative log likelihood", likelihood, S, 2.0, form=".1f", others=others[2]),
                shown("seconds", ".2f"),
            ),
            partial(processes.of_twenty_splits, "yacht", library),
            minutes,
            explanation,
        )
        for library, of, error, density, likelihood, others, minutes, explanation in (
            (
                "kernax",
                "GPy's row, the best one",
                0.393,
                0.197,
                -461.0,
                ("GPyTorch 0.416", "GPyTorch 0.200", "GPyTorch -451"),
                1.0,
                "The evidence that is reached is higher as well: bounds, tolerances and line "
                "searches of the libraries differ, at equal starts and numbers of steps.",
            ),
            (
                "scikit-learn",
                "scikit-learn's own row",
                0.936,
                1.411,
                -270.0,
                ("", "", ""),
                1.0,
                "",
            ),
        )
    ),
)


def _usps(inference, words, repartition, evidence, within, wrong):
    return Row(
        f"{inference} usps {repartition}",
        CLASSES,
        f"{words}, USPS 3 against 5, repartition {repartition}",
        ("usps_3v5",),
        "probit, RBF, log lengthscale 2.85, log deviation 2.35; 767 digits to learn from, 773 of "
        "test",
        "computed from the file; Rasmussen & Williams 2006, section 3.7, print -99 and -90 of a "
        "partition that is lost",
        (
            exact("log evidence", evidence, within, form=".4f"),
            exact("errors of 773", wrong, 0),
        ),
        partial(processes.usps, inference, repartition),
        0.2,
    )


OF_CLASSES = (
    _usps("laplace", "Laplace", 0, -127.4471, 6e-5, 26),
    _usps("laplace", "Laplace", 1, -120.2495, 6e-5, 25),
    _usps("laplace", "Laplace", 2, -120.9106, 6e-5, 28),
    _usps("expectation_propagation", "expectation propagation", 0, -111.404, 6e-4, 26),
)

ROWS = (*OF_NUMBERS, *OF_CLASSES)
