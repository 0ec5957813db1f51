"""The examples in public docstrings run, and show what they say."""

import doctest
import inspect

import jax
import jax.numpy as jnp
import pytest
from conftest import marked, needs_x64
from test_api import public_names

import kernax

pytestmark = needs_x64  # what they print is that of float64

PUBLIC = {name: thing for name, thing in public_names() if not name.startswith("sklearn.")}
DESCRIBED = {
    name: thing
    for name, thing in PUBLIC.items()
    if thing is not jax.Array
    and (inspect.isclass(thing) or inspect.isroutine(inspect.unwrap(thing)))
}
# Abstract classes, and what needs files, figures or several processes.
NO_SHORT_EXAMPLE = {
    "Checkpoint",
    "errors.DamagedCheckpointWarning",
    "errors.KernaxFileError",
    "files.load_notes",
    "files.load_predictor",
    "files.save_predictor",
    "likelihoods.AbstractLikelihood",
    "load",
    "losses.AbstractLoss",
    "losses.AbstractPiecewiseLinearLoss",
    "losses.AbstractSmoothLoss",
    "online.AbstractBudget",
    "online.AbstractOnlineLearner",
    "online.AbstractOnlineState",
    "online.AbstractRule",
    "plot.coverage",
    "plot.decision_regions",
    "plot.embedding",
    "plot.intervals",
    "plot.kernel_profile",
    "plot.loss_surface",
    "plot.posterior_band",
    "plot.predicted_against_true",
    "plot.relevance",
    "plot.reliability",
    "plot.residual_quantiles",
    "plot.values_of_classes",
    "priors.AbstractPrior",
    "save",
    "scale.AbstractChoice",
    "scale.ParquetRows",
    "scale.rows_over",
    "solvers.AbstractDualSolver",
    "solvers.AbstractPreconditioner",
    "solvers.AbstractRelevanceSolver",
}
# To be written; this set only shrinks.
WITHOUT = {
    "types.Composition",
    "RESULTS",
    "selection.compositional_search",
    "errors.RunawayWarning",
    "errors.UndeclaredFieldWarning",
    "files.register",
    "online.Placement",
    "types.ClassPredictor",
    "types.CountRegressor",
    "types.Regressor",
    "solvers.BoxProblem",
}
SLOW = {
    "ConstantMean",
    "selection.CrossValidatedLoss",
    "kernels.FisherKernel",
    "Subsequence",
    "selection.Validation",
    "selection.bootstrap",
    "component",
    "cross_validate",
    "import_vector_machine",
    "kernel_cca",
    "kernel_discriminant",
    "kernel_kmeans",
    "kernel_logistic",
    "kernel_ridge",
    "kernel_softmax",
    "laplace",
    "lasso",
    "likelihoods.Ordinal",
    "selection.leave_one_out_path",
    "log_marginal_likelihood",
    "minimise",
    "multi_start",
    "nn.LogisticHead",
    "nn.RidgeHead",
    "nn.SVMHead",
    "nu_support_vector_regression",
    "nu_svm",
    "one_class_svm",
    "online.DualLearner",
    "online.KernelRecursiveLeastSquares",
    "online.margin",
    "online.run",
    "pathwise_sample",
    "pre_image",
    "preparation.fit_classes",
    "preparation.standardised_fit",
    "preparation.standards_of",
    "selection.regularisation_path",
    "regularised_risk",
    "relevance_vector_machine",
    "selection.ridge_path",
    "scale.LeverageScores",
    "selection.select",
    "solvers.ConjugateGradient",
    "solvers.JitteredCholesky",
    "solvers.PivotedCholesky",
    "solvers.SequentialEvidence",
    "solvers.StochasticLanczos",
    "solvers.error_bound",
    "solvers.warm_started",
    "spectral_clustering",
    "svgp",
    "calibration.svm_leave_one_out",
    "variational",
}
# What takes more than 5 s, and classes of results and warnings, which the examples of the functions
# that return or raise them show as well.
NIGHTLY = {
    "errors.ClusterWarning",
    "errors.DivergedError",
    "errors.RelevanceWarning",
    "expectation_propagation",
    "likelihoods.HeteroscedasticGaussian",
    "scale.Chunks",
    "solvers.EvidenceIteration",
    "types.ApproximatePosterior",
    "types.CanonicalPairs",
    "types.CategoricalPosterior",
    "types.Discriminant",
    "types.HeteroscedasticPosterior",
    "types.ImportVectors",
    "types.KernelClusters",
    "types.RelevanceVectors",
    "types.SamplePaths",
    "types.SpectralClusters",
}


def example_of(name):
    """The example in a docstring, with the modules that a page of the documentation imports."""
    finder = doctest.DocTestFinder(recurse=False, exclude_empty=False)
    modules = {"kernax": kernax, "jax": jax, "jnp": jnp}
    (example,) = finder.find(PUBLIC[name], f"kernax.{name}", module=False, globs=modules)
    return example


HAVE_ONE = [name for name in sorted(DESCRIBED) if example_of(name).examples]


@pytest.mark.parametrize(
    "name", marked(pytest.mark.nightly, marked(pytest.mark.slow, HAVE_ONE, *SLOW), *NIGHTLY)
)
def test_the_example_in_a_docstring_prints_what_it_shows(name):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    report = []
    doctest.DocTestRunner(optionflags=flags).run(example_of(name), out=report.append)
    assert not report, "".join(report)


def test_every_public_function_and_class_has_an_example():
    lacking = set(DESCRIBED) - set(HAVE_ONE) - NO_SHORT_EXAMPLE
    assert lacking == WITHOUT


@pytest.mark.parametrize("name", HAVE_ONE)
def test_an_example_is_short_and_stands_at_the_end_of_its_docstring(name):
    text = inspect.cleandoc(PUBLIC[name].__doc__)
    _, lines = text.split("\nExamples:\n")
    assert all(line.startswith("    ") for line in lines.splitlines() if line)
    assert lines.count(">>> ") <= 8
