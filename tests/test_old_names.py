"""Old names work for one minor version: they warn once a call, and say the new name."""

import importlib
import inspect
import warnings
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from conftest import needs_x64

import kernax
from kernax import functionals, likelihoods, metrics, plot, samples, scale, solvers

pytestmark = needs_x64  # once: no precision touches it

X = jnp.linspace(0.0, 1.0, 6)[:, None]
Y = jnp.where(X[:, 0] > 0.5, 1.0, -1.0)
SHARES = jnp.linspace(0.1, 0.9, 6)
KERNEL = kernax.RBF(0.3)
KEY = jax.random.key(0)
PROCESS = kernax.GaussianProcess(KERNEL)
LOSS = lambda model, X, y: jnp.sum(model.kernel.lengthscale)
MODEL = kernax.Model(KERNEL)

# A function, its other arguments, and for each keyword the old name, the new one and a value. Where
# the value is 0, which none of these takes, nothing is compiled: the message names the argument.
RENAMED = [
    (kernax.kernel_pca, (KERNEL, X), {}, {"components": ("n_components", 0)}),
    (kernax.kernel_kmeans, (KERNEL, X), {"key": KEY}, {"clusters": ("n_clusters", 0)}),
    (kernax.kernel_kmeans, (KERNEL, X, 2), {"key": KEY}, {"starts": ("n_starts", 0)}),
    (kernax.spectral_clustering, (KERNEL, X), {"key": KEY}, {"clusters": ("n_clusters", 0)}),
    (kernax.spectral_clustering, (KERNEL, X, 2), {"key": KEY}, {"starts": ("n_starts", 0)}),
    (
        kernax.spectral_clustering,
        (KERNEL, X, 2),
        {"key": KEY},
        {"eigenvectors": ("n_eigenvectors", 0)},
    ),
    (kernax.bases.eigenpairs, (KERNEL, X), {}, {"count": ("n_pairs", 0)}),
    (kernax.kernels.Brownian().eigenpairs, (), {}, {"count": ("n_pairs", 0)}),
    (kernax.kernels.BrownianBridge().eigenpairs, (), {}, {"count": ("n_pairs", 0)}),
    (
        kernax.random_fourier_features,
        (KERNEL,),
        {"dim": 1, "key": KEY},
        {"count": ("n_frequencies", 4)},
    ),
    (KERNEL.sample_frequencies, (), {"dim": 1, "key": KEY}, {"count": ("n_frequencies", 4)}),
    (kernax.choose_centres, (KERNEL, X), {"key": KEY}, {"number": ("n_centres", 3)}),
    (kernax.inducing_points, (KERNEL, X), {}, {"count": ("n_points", 0)}),
    (
        kernax.pathwise_sample,
        (PROCESS,),
        {"key": KEY, "point": X[0]},
        {"count": ("n_samples", 2), "features": ("n_features", 8)},
    ),
    (kernax.selection.random_starts, (MODEL,), {"key": KEY}, {"count": ("n_starts", 0)}),
    (kernax.k_folds, (6, 2), {"key": KEY}, {"repeats": ("n_repeats", 2)}),
    (
        kernax.selection.bootstrap,
        (lambda X, y, w: w, lambda w: jnp.sum(w), X, Y),
        {"key": KEY},
        {"resamples": ("n_resamples", 0)},
    ),
    (
        samples.two_sample_test,
        (KERNEL, X, X),
        {"key": KEY},
        {"permutations": ("n_permutations", 0)},
    ),
    (
        samples.independence_test,
        (KERNEL, KERNEL, X, X),
        {"key": KEY},
        {"permutations": ("n_permutations", 0)},
    ),
    (
        samples.goodness_of_fit_test,
        (KERNEL, X, lambda x: -jnp.sum(x**2)),
        {"key": KEY},
        {"bootstraps": ("n_resamples", 0)},
    ),
    (samples.herding, (KERNEL, X), {}, {"count": ("n_points", 0)}),
    (
        samples.stein_thin,
        (KERNEL, X, lambda x: -jnp.sum(x**2)),
        {},
        {"count": ("n_points", 0)},
    ),
    (samples.thin, (KERNEL, X), {"key": KEY}, {"halvings": ("n_halvings", 0)}),
    (metrics.coverage_curve, (Y, Y, SHARES), {}, {"levels": ("n_levels", 0)}),
    (metrics.calibration_curve, (Y > 0, SHARES), {}, {"bins": ("n_bins", 0)}),
    (metrics.calibration_error, (Y > 0, SHARES), {}, {"bins": ("n_bins", 0)}),
    (functionals.integrals_over, (X[:2], X[2:4]), {}, {"nodes": ("n_nodes", 2)}),
    (likelihoods.expectation, (jnp.sin, Y, SHARES), {}, {"nodes": ("n_nodes", 8)}),
    (likelihoods.Poisson().expected_loss, (SHARES, Y, SHARES), {}, {"nodes": ("n_nodes", 8)}),
    (likelihoods.Poisson().log_normaliser, (SHARES, Y, SHARES), {}, {"nodes": ("n_nodes", 8)}),
    (likelihoods.Poisson().predicted_moments, (Y, SHARES), {}, {"nodes": ("n_nodes", 8)}),
    (
        kernax.selection.compositional_search,
        (X, Y),
        {"key": KEY},
        {"starts": ("n_starts", 0)},
    ),
    (kernax.selection.compositional_search, (X, Y), {"key": KEY}, {"steps": ("n_steps", 0)}),
    (kernax.minimise, (LOSS, MODEL, optax.adam(0.1)), {}, {"steps": ("n_steps", 0)}),
    (kernax.multi_start, (LOSS, [MODEL], optax.adam(0.1)), {}, {"steps": ("n_steps", 0)}),
    (
        kernax.svgp,
        (PROCESS, X, Y, likelihoods.Bernoulli(), X[::2]),
        {"optimiser": None, "key": KEY},
        {"steps": ("n_steps", 0)},
    ),
    (scale.Chunks.of_arrays, (X, Y), {}, {"rows": ("chunk_size", 0)}),
    (scale.Chunks.of_parquet, ("no.parquet", ["x"], "y"), {}, {"rows": ("chunk_size", 0)}),
    (kernax.types.InducingNormal.prior, (), {}, {"count": ("n_points", 2)}),
    (kernax.testing.check_kernel, (KERNEL, X), {}, {"tolerance": ("rtol", 1e-9)}),
    (solvers.SMO, (), {}, {"tol": ("rtol", 0.1)}),
    (solvers.ProjectedGradient, (), {}, {"tol": ("rtol", 0.1)}),
    (solvers.EvidenceIteration, (), {}, {"tol": ("rtol", 0.1)}),
    (solvers.SequentialEvidence, (), {}, {"tol": ("atol", 0.1)}),
    (
        solvers.StochasticLanczos,
        (KEY,),
        {},
        {"probes": ("n_probes", 4), "steps": ("n_steps", 8)},
    ),
    (solvers.PivotedCholesky, (KEY,), {}, {"block": ("block_size", 4)}),
    (solvers.SketchAndProject, (KEY,), {}, {"block": ("block_size", 4)}),
    (solvers.StateSpace, (), {}, {"harmonics": ("n_harmonics", 4)}),
    (solvers.Grid, (), {}, {"most": ("max_missing", 4)}),
    (plot.reliability, (SHARES, Y > 0), {}, {"bins": ("n_bins", 0)}),
]


EACH = pytest.mark.parametrize(
    ("function", "args", "others", "names"),
    RENAMED,
    ids=[f"{function.__name__} {' '.join(names)}" for function, _, _, names in RENAMED],
)


def outcome(call):
    """What a call returns, or the text of what it raises."""
    try:
        return call()
    except ValueError as error:
        return str(error)


@pytest.mark.slow
@EACH
def test_an_old_keyword_warns_once_and_does_what_the_new_one_does(function, args, others, names):
    new = dict(names.values())
    expected = outcome(partial(function, *args, **others, **new))
    old = {old: value for old, (_, value) in names.items()}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = outcome(partial(function, *args, **others, **old))
    texts = [str(each.message) for each in seen if each.category is DeprecationWarning]
    assert len(texts) == len(names)
    for old_name, (new_name, value) in names.items():
        assert any(
            f" {old_name} of " in text and f"called {new_name} now" in text for text in texts
        )
        assert value != 0 or new_name in str(expected)
    assert all("0.4" in text for text in texts)
    # Functions that were made, such as paths, differ by identity alone.
    arrays = lambda value: eqx.filter(value, eqx.is_array)
    assert type(found) is type(expected)
    assert eqx.tree_equal(arrays(found), arrays(expected)) or found == expected


@EACH
def test_signatures_show_the_new_keywords_alone(function, args, others, names):
    shown = set(inspect.signature(function).parameters)
    assert shown.isdisjoint(names)
    assert shown.issuperset(new for new, _ in names.values())


def test_a_field_can_be_read_by_its_old_name():
    with pytest.warns(DeprecationWarning, match="SMO.tol is called rtol now"):
        assert getattr(solvers.SMO(rtol=0.1), "tol") == 0.1  # noqa: B009


def test_the_warning_stands_at_the_line_that_uses_the_old_name():
    for call in (lambda: solvers.SMO(tol=0.1), lambda: kernax.k_folds(6, 2, key=KEY, repeats=2)):
        with pytest.warns(DeprecationWarning, match="now; the old form is removed in 0.4") as seen:
            call()
        assert seen[0].filename == __file__


def test_both_names_at_once_are_refused():
    with pytest.raises(TypeError, match="got both n_repeats and repeats"):
        kernax.k_folds(6, 2, key=KEY, repeats=2, n_repeats=2)


TARGETS = jnp.sin(6.0 * X[:, 0])
HUBER = kernax.losses.Huber(0.3)


def evidence(*args, **options):
    return kernax.Solution(kernax.log_marginal_likelihood(*args, **options), None, {})


def bound(*args, **options):
    return kernax.Solution(kernax.sgpr_bound(*args, **options), None, {})


def started(*args, **options):
    return kernax.Solution(solvers.warm_started(*args, **options).start, None, {})


REORDERED = {
    "kernel_cca": (
        kernax.kernel_cca,
        ((KERNEL, X, KERNEL, X, 1, 0.1), {}),
        ((KERNEL, X), {"kernel_z": KERNEL, "Z": X, "components": 1, "ridge": 0.1}),
        ((KERNEL, KERNEL, X, X, 1, 0.1), {}),
    ),
    "log_marginal_likelihood": (
        evidence,
        ((KERNEL, X, TARGETS, 0.1), {"mean": 0.3}),
        ((), {"kernel": KERNEL, "X": X, "y": TARGETS, "noise": 0.1, "mean": 0.3}),
        ((kernax.GaussianProcess(KERNEL, 0.3), X, TARGETS, 0.1), {}),
    ),
    "sgpr_bound": (
        bound,
        ((KERNEL, X, TARGETS, 0.1, X[::2]), {"mean": 0.3}),
        ((kernax.GaussianProcess(KERNEL, 0.3), X, TARGETS, 0.1, X[::2]), {}),
    ),
    "warm_started": (
        started,
        ((solvers.ConjugateGradient(), KERNEL, X, TARGETS, 0.1), {"mean": 0.3}),
        ((solvers.ConjugateGradient(), kernax.GaussianProcess(KERNEL, 0.3), X, TARGETS, 0.1), {}),
    ),
    "regularised_risk": (
        kernax.regularised_risk,
        ((KERNEL, X, TARGETS, HUBER, 0.1), {}),
        ((KERNEL, X, TARGETS, HUBER), {"ridge": 0.1}),
        ((KERNEL, X, TARGETS, 0.1), {"loss": HUBER}),
    ),
}


@pytest.mark.parametrize("name", REORDERED)
def test_an_old_order_of_arguments_warns_and_does_what_the_new_one_does(name):
    function, *old, (args, options) = REORDERED[name]
    expected = function(*args, **options).value
    for old_args, old_options in old:
        with pytest.warns(DeprecationWarning, match=f"{name}.* now; the old form") as seen:
            found = function(*old_args, **old_options).value
        assert len(seen) == 1
        assert eqx.tree_equal(found, expected)


# Names by the module that had them and the one that has them now.
MOVED = {
    "kernax -> kernax.kernels": """
        AbstractSpectral AllSubsequences AllSubsets AllSubstrings ArcCosine BilinearForm
        BlendedSpectrum Brownian BrownianBridge Centred Coregionalisation Cosine ExpOf
        FisherKernel GammaExponential GaussianOf Gibbs Herglotz IntegratedBrownian Intersection
        Jaccard LinearSpline Mismatch Modulated Monomials OfFunctionals PolynomialOf Power Product
        Scaled ShiftedLinear SteinKernel Sum TangentKernel Tanh Tanimoto ZeroMeanPeriodic
    """,
    "kernax -> kernax.selection": """
        Callback CrossValidatedLoss Validation aligned_sum alignment bootstrap
        compositional_search generalised_cross_validation leave_one_out_path median_lengthscale
        random_search random_starts regularisation_path ridge_path select stack_datasets
        time_folds unconstrained_density
    """,
    "kernax -> kernax.bases": "eigenpairs empirical_features weight_space",
    "kernax -> kernax.calibration": "svm_leave_one_out",
    "kernax -> kernax.solvers": "solve",
    "kernax -> kernax.types": """
        ApproximatePosterior Bootstrap CanonicalPairs CategoricalPosterior Composition
        CrossValidation Datasets Discriminant Folds HeldOut ImportVectors InducingNormal
        Invariance KernelClusters PrincipalComponents RelevanceVectors SamplePaths Selection
        SpectralClusters Table WeightSpace
    """,
    "kernax.online -> kernax.types": """
        AdagradState DualAdagradState DualState MultiplicativeState PrimalState RecursiveState
    """,
    "kernax.scale -> kernax.types": "Recommendation Route",
    "kernax.files -> kernax": "load save",
    "kernax.files -> kernax.errors": "KernaxFileError",
    "kernax.scale -> kernax": "choose_centres falkon nystrom random_fourier_features recommend",
    "kernax.preparation -> kernax.types": "ClassPredictor CountRegressor Regressor",
    "kernax.preparation -> kernax.preparation.cells": "Column",
    "kernax.preparation -> kernax.preparation.dates": "Date",
    "kernax.preparation -> kernax.preparation.encoders": """
        AbstractEncoder Category FilledNumber Number Text Tokens learned_text
    """,
    "kernax.preparation -> kernax.preparation.inputs": "Inputs learned_inputs",
    "kernax.preparation -> kernax.preparation.kinds": "kind_of",
    "kernax.preparation -> kernax.preparation.one_hot": "columns_of_classes",
    "kernax.preparation -> kernax.preparation.predictors": """
        GP IVM LOGISTIC Predictor RIDGE RVM SVM check_outputs predictor_from_notes
    """,
    "kernax.preparation -> kernax.preparation.standards": """
        standards_of_columns standards_of_target
    """,
}
ADDRESSES = [
    tuple(f"{module}.{name}" for module in modules.split(" -> "))
    for modules, names in MOVED.items()
    for name in names.split()
]
ADDRESSES += [
    ("kernax.grid", "kernax.grid_search"),
    ("kernax.scale.Checkpoints", "kernax.Checkpoint"),
]


@pytest.mark.parametrize(("old", "new"), ADDRESSES, ids=[old for old, _ in ADDRESSES])
def test_an_old_address_warns_once_and_leads_to_the_new_one(old, new):
    (had, name), (has, new_name) = old.rsplit(".", 1), new.rsplit(".", 1)
    module = importlib.import_module(had)
    with pytest.warns(DeprecationWarning, match=f"^{old} is {new} now; .* 0.4") as seen:
        found = getattr(module, name)
    assert len(seen) == 1
    assert found is getattr(importlib.import_module(has), new_name)
    assert name not in dir(module)


def test_the_noise_of_a_model_is_its_ridge():
    with pytest.warns(DeprecationWarning, match="argument noise of Model is called ridge now"):
        model = kernax.Model(KERNEL, noise=0.3)
    assert eqx.tree_equal(model, kernax.Model(KERNEL, ridge=0.3))
    with pytest.warns(DeprecationWarning, match="Model.noise is called ridge now"):
        assert getattr(model, "noise") is model.ridge  # noqa: B009
