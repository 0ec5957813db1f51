"""Every learner on a problem: what it returned, as a dict of arrays, `success` among them.

The list of `tests/registry.py` has learners on one problem each. Here they are on problems of any
size and unit, which share a Gram matrix, and return what their referees judge: coefficients and
figures of the solution in place of predictions.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from problems import LARGEST, TINY

import kernax
from kernax.core.base.solution import RESULTS

SMO = kernax.solvers.SMO(max_steps=5000)
GRADIENTS = kernax.solvers.ProjectedGradient(max_steps=1000)
LASSO = kernax.solvers.SMO(
    rtol=1e-6 if jnp.result_type(float) == jnp.float64 else 1e-4, max_steps=5000
)
COMPONENTS = 2
CLUSTERS = 3
INDUCING = 5
CHOSEN = 6
HALVINGS = 2
KEY = jax.random.key(0)
FEATURES = kernax.FeatureMap(lambda x: x)
# What a solution holds beside its stats.
VALUES = {
    "coefficients",
    "bias",
    "x",
    "probabilities",
    "variance",
    "discrepancy",
}


# What is kept of what a learner returned.


def _outcome(solution, *stats: str, **arrays) -> dict:
    result = solution.result
    void = (result == RESULTS.nonfinite) | (result == RESULTS.not_psd)
    assert VALUES & set(arrays)
    figures = {name: solution.stats[name] for name in stats}
    return {"success": result == RESULTS.successful, "void": void} | arrays | figures


def _function(solution, f, *stats: str, **arrays) -> dict:
    return _outcome(solution, *stats, coefficients=f.coefficients, bias=f.bias, **arrays)


def _expansion(solution, *stats: str) -> dict:
    shown = [name for name in ("jitter", "residual", "relative_gap") if name in solution.stats]
    return _function(solution, solution.value, *shown, *stats)


def _silent(**arrays) -> dict:
    """Of functions without a status: what is finite is meant."""
    finite = [jnp.all(jnp.isfinite(array)) for array in arrays.values()]
    return {"success": jnp.all(jnp.stack(finite)), "void": jnp.asarray(False)} | arrays


def _named(name: str) -> Callable:
    return lambda array: _silent(**{name: array})


def _of_second(path) -> dict:
    """The second solution of a path, as if it were alone."""
    f = path.value
    value = type(f)(f.kernel, f.points, f.coefficients[..., 1], f.bias[..., 1])
    result, stats = jax.tree.map(lambda of_ridges: of_ridges[1], (path.result, path.stats))
    return _expansion(type(path)(value, result, stats))


def _posterior(solution) -> dict:
    q = solution.value
    return _outcome(
        solution,
        "jitter",
        "rounding",
        coefficients=q.slopes,
        precisions=q.precisions,
        evidence=q.log_evidence,
    )


def _posterior_of_classes(solution) -> dict:
    q = solution.value
    a = q.process.mean.of_all.coefficients
    return _outcome(solution, "jitter", "rounding", coefficients=a, evidence=q.log_evidence)


def _inducing(solution) -> dict:
    a = solution.value.mean.coefficients
    return _outcome(solution, "bound", "trace", "jitter", "rounding", coefficients=a)


def _components(solution) -> dict:
    return _function(solution, solution.value.function, variances=solution.value.variances)


def _discriminants(solution) -> dict:
    a = solution.value.function.coefficients
    return _outcome(solution, coefficients=a, separations=solution.value.separations)


def _imported(solution) -> dict:
    value = solution.value
    return _function(solution, value.function, "objective", places=value.places)


def _relevant(solution) -> dict:
    value = solution.value
    inverses = 1 / value.precisions
    return _function(solution, value.function, places=value.places, inverses=inverses)


def _clusters(solution) -> dict:
    value = solution.value
    a = value.function.coefficients
    return _outcome(solution, "objective", memberships=value.memberships, coefficients=a)


def _subsample(solution, *stats: str) -> dict:
    value = solution.value
    return _outcome(solution, *stats, indices=value.indices, discrepancy=value.discrepancy)


# What is given to it.


def _both(problem):
    return jnp.stack([jnp.asarray(problem["y"]), jnp.asarray(problem["signs"])], 1)


def _ridges_around(problem):
    """The ridge of the problem, after a larger and before a smaller one, whatever they do."""
    ridge = jnp.asarray(problem["ridge"])
    return jnp.stack([jnp.minimum(30 * ridge, LARGEST), ridge, jnp.maximum(ridge / 1000, TINY)])


def _given(problem, names):
    """Arrays of a problem, by their names or as functions of it."""
    return [name(problem) if callable(name) else problem[name] for name in names]


def _options(problem, form, bias: bool) -> dict:
    weights = {"weights": problem["weights"] if form.weighted else None}
    return weights | ({"bias": form.bias} if bias else {})


def _present(problem, form):
    return problem["weights"] > 0 if form.weighted else None


def of_kernel(
    function, *names, finish=_expansion, bias=True, has_status=True, **settings
) -> Callable:
    """A function of a kernel, points and arrays of the problem, with weights and perhaps a bias."""
    if has_status:
        settings["throw"] = False

    def learner(problem, kernel, points, form):
        options = _options(problem, form, bias) | settings
        return finish(function(kernel, points, *_given(problem, names), **options))

    return learner


def of_process(function, *names, finish=_posterior, likelihood=None) -> Callable:
    """The same of a Gaussian process, with a likelihood, which is a function of the problem."""

    def learner(problem, kernel, points, form):
        given = _given(problem, [*names, likelihood] if likelihood else names)
        options = _options(problem, form, bias=False)
        process = kernax.GaussianProcess(kernel)
        return finish(function(process, points, *given, throw=False, **options))

    return learner


def of_points(function, finish, **settings) -> Callable:
    """A function of a kernel and points alone."""
    return lambda problem, kernel, points, form: finish(function(kernel, points, **settings))


def of_risk(loss: str) -> Callable:
    make, target, ridge = LOSSES[loss]
    settings = {} if ridge == "ridge" else {"solver": SMO}

    def learner(problem, kernel, points, form):
        fit = of_kernel(kernax.regularised_risk, target, ridge, loss=make(problem), **settings)
        return fit(problem, kernel, points, form)

    return learner


LOSSES: dict[
    str, tuple[Callable, str, str]
] = {  # the loss, what its targets are called, and its ridge
    "Squared": (lambda problem: kernax.losses.Squared(), "y", "ridge"),
    "Huber": (lambda problem: kernax.losses.Huber(problem["delta"]), "y", "ridge"),
    "Logistic": (lambda problem: kernax.losses.Logistic(), "signs", "ridge"),
    "SquaredHinge": (lambda problem: kernax.losses.SquaredHinge(), "signs", "ridge"),
    "Poisson": (lambda problem: kernax.losses.Poisson(), "counts", "ridge"),
    "Hinge": (lambda problem: kernax.losses.Hinge(), "signs", "margin_ridge"),
    "Absolute": (lambda problem: kernax.losses.Absolute(), "y", "target_ridge"),
    "Pinball": (lambda problem: kernax.losses.Pinball(problem["tau"]), "y", "target_ridge"),
    "EpsilonInsensitive": (
        lambda problem: kernax.losses.EpsilonInsensitive(problem["epsilon"]),
        "y",
        "target_ridge",
    ),
}
SMOOTH = ("Squared", "Huber", "Logistic", "SquaredHinge", "Poisson")


def falkon(problem, kernel, points, form, loss):
    """Over the first points as centres."""
    make, target, ridge = LOSSES[loss]
    centres = lambda problem: points[:INDUCING]
    fit = of_kernel(kernax.falkon, target, ridge, centres, bias=False, loss=make(problem))
    return fit(problem, kernel, points, form)


def ridge_in_features(problem, kernel, points, form):
    fit = of_kernel(kernax.kernel_ridge, "y", "feature_ridge")
    return fit(problem, FEATURES, problem["features"], form)


def solve(problem, kernel, points, form):
    operator = kernax.gram_operator(kernel, points, ridge=problem["ridge"])
    solution = kernax.solvers.solve(operator, problem["y"], throw=False)
    return _outcome(solution, "jitter", x=solution.value)


def kernel_logistic_on_a_path(problem, kernel, points, form):
    def fit(ridge, start):
        options = _options(problem, form, bias=True)
        return kernax.kernel_logistic(
            kernel, points, problem["signs"], ridge, start=start, throw=False, **options
        )

    return _of_second(kernax.selection.regularisation_path(fit, _ridges_around(problem)))


def condition(problem, kernel, points, form):
    def finish(solution):
        return _outcome(
            solution,
            "jitter",
            coefficients=solution.value.mean.coefficients,
            variance=jax.vmap(solution.value.variance)(jnp.asarray(points)),
            evidence=solution.stats["log_evidence"],
        )

    fit = of_process(kernax.condition, "y", "ridge", finish=finish)
    return fit(problem, kernel, points, form)


def sgpr(problem, kernel, points, form):
    inducing = lambda problem: points[:INDUCING]
    fit = of_process(kernax.sgpr, "y", "ridge", inducing, finish=_inducing)
    return fit(problem, kernel, points, form)


def nu_svm(problem, kernel, points, form):
    """Of the fraction nu of what the smaller class allows."""
    w = jnp.asarray(problem["weights"])
    positive = problem["signs"] > 0
    smaller = jnp.minimum(jnp.sum(jnp.where(positive, w, 0)), jnp.sum(jnp.where(positive, 0, w)))
    nu = problem["nu"] * jnp.minimum(1, 2 * smaller / jnp.sum(w))
    options = _options(problem, form, bias=False) | {"solver": SMO}
    solution = kernax.nu_svm(kernel, points, problem["signs"], nu, throw=False, **options)
    return _expansion(solution, "rho") | {"nu": nu}


def lasso(problem, kernel, points, form):
    options = _options(problem, form, bias=True) | {"solver": LASSO}
    given = _given(problem, ["features", "y", "penalty"])
    solution = kernax.lasso(*given, throw=False, **options)
    return _outcome(solution, coefficients=solution.value[0], bias=solution.value[1])


def kernel_perceptron(problem, kernel, points, form):
    rate, threshold = problem["rate"], problem["threshold"]
    solution = kernax.kernel_perceptron(
        kernel, points, problem["signs"], rate=rate, threshold=threshold, throw=False
    )
    return _expansion(solution, "mistakes")


def perceptron_of_a_stream(problem, kernel, points, form):
    """A perceptron without a budget, which sees the points that have a weight."""
    rule = kernax.online.Perceptron(problem["rate"])
    learner = kernax.online.DualLearner(rule, kernel, kernax.online.NoBudget(form.n))
    present = _present(problem, form)
    solution = kernax.online.run(learner, points, problem["signs"], present=present, throw=False)
    progress = solution.value
    return _outcome(
        solution,
        coefficients=progress.function.coefficients,
        predictions=progress.predictions,
        mistakes=progress.mistakes,
    )


def _in_features(learner, problem, target, form, *names):
    """A stream in features: the weights, and what is asked for of each point."""
    present = _present(problem, form)
    solution = kernax.online.run(
        learner, problem["features"], problem[target], present=present, throw=False
    )
    progress = solution.value
    return _outcome(
        solution, x=progress.state.weights, **{name: getattr(progress, name) for name in names}
    )


def adagrad_of_a_stream(problem, kernel, points, form):
    """With the squared loss."""
    learner = kernax.online.Adagrad(kernax.losses.Squared(), FEATURES, problem["rate"])
    return _in_features(learner, problem, "y", form, "predictions")


def winnow_of_a_stream(problem, kernel, points, form):
    """Normalised and balanced."""
    learner = kernax.online.NormalisedWinnow(problem["rate"], balanced=True)
    return _in_features(learner, problem, "signs", form, "predictions", "mistakes")


def recursive_least_squares(problem, kernel, points, form):
    """Without a tolerance, of the points that have a weight."""
    learner = kernax.online.KernelRecursiveLeastSquares(kernel, problem["ridge"], form.n, 0.0)
    present = _present(problem, form)
    solution = kernax.online.run(learner, points, problem["y"], present=present, throw=False)
    state = solution.value.state
    return _outcome(solution, coefficients=state.function.coefficients, ages=state.support.ages)


def platt(problem, kernel, points, form):
    solution = kernax.calibration.platt(
        problem["values"], problem["signs"], throw=False, **_options(problem, form, bias=False)
    )
    return _outcome(solution, probabilities=solution.value(problem["values"]))


def isotonic(problem, kernel, points, form):
    value = kernax.calibration.isotonic(
        problem["values"], problem["signs"], **_options(problem, form, bias=False)
    )
    return _silent(probabilities=value(problem["values"]))


def pairwise_coupling(problem, kernel, points, form):
    """Of four classes, whose pairs have the first decision values as log odds."""
    pairs = jnp.triu_indices(4, 1)
    first = jax.nn.sigmoid(problem["values"][:6])
    r = jnp.zeros_like(first, shape=(4, 4)).at[pairs].set(first).T.at[pairs].set(1 - first).T
    return _silent(r=r, probabilities=kernax.calibration.pairwise_coupling(r))


def kernel_cca(problem, kernel, points, form):
    Y = problem["y"][:, None] / jnp.max(jnp.abs(problem["y"]))
    solution = kernax.kernel_cca(
        kernel,
        kernax.Linear(),
        points,
        Y,
        1,
        problem["ridge"],
        throw=False,
        **_options(problem, form, bias=False),
    )
    first, second = solution.value.first, solution.value.second
    return _function(
        solution,
        first,
        "jitter",
        "rounding",
        others=second.coefficients,
        correlations=solution.value.correlations,
    )


def import_vectors(problem, kernel, points, form, target):
    fit = of_kernel(
        kernax.import_vector_machine,
        target,
        "ridge",
        finish=_imported,
        max_vectors=form.n,
        rtol=0.0,
    )
    return fit(problem, kernel, points, form)


def relevance_vector_machine(problem, kernel, points, form):
    fit = of_kernel(kernax.relevance_vector_machine, "y", finish=_relevant, noise=problem["ridge"])
    return fit(problem, kernel, points, form)


def maximum_mean_discrepancy(problem, kernel, points, form):
    first = form.n // 3
    return _silent(
        value=kernax.samples.maximum_mean_discrepancy(kernel, points[:first], points[first:])
    )


def hsic(problem, kernel, points, form):
    return _silent(
        value=kernax.samples.hsic(kernel, kernax.Linear(), points, problem["y"][:, None])
    )


def stein_discrepancy(problem, kernel, points, form):
    features = jnp.asarray(problem["features"])
    value = kernax.samples.stein_discrepancy(
        kernax.RBF(jnp.max(jnp.abs(features))), features, _log_normal, weights=problem["weights"]
    )
    return _silent(value=value)


def _log_normal(x):
    return -jnp.sum(x**2) / 2


logit = lambda problem: kernax.likelihoods.Bernoulli()
poisson = lambda problem: kernax.likelihoods.Poisson()
categorical = lambda problem: kernax.likelihoods.Categorical()
student_t = lambda problem: kernax.likelihoods.StudentT(
    1 + 10 * problem["tau"], jnp.sqrt(problem["ridge"])
)
# Machines take the same arrays for either solver.
MACHINES = {
    "svm": partial(of_kernel, kernax.svm, "signs", "C"),
    "support_vector_regression": partial(
        of_kernel, kernax.support_vector_regression, "y", "target_C", "epsilon"
    ),
    "one_class_svm": partial(of_kernel, kernax.one_class_svm, "nu", bias=False),
}
LEARNERS: dict[str, Callable] = {
    "gram": of_points(kernax.gram, _named("K")),
    "kernel_ridge": of_kernel(kernax.kernel_ridge, _both, "ridge"),
    "kernel_ridge in blocks": of_kernel(
        kernax.kernel_ridge,
        _both,
        "ridge",
        block_size=5,
        solver=kernax.solvers.ConjugateGradient(max_steps=200),
    ),
    "kernel_ridge in features": ridge_in_features,
    "solve": solve,
    "leave_one_out": of_kernel(
        kernax.leave_one_out, "y", "ridge", finish=_named("residuals"), has_status=False
    ),
    "generalised_cross_validation": of_kernel(
        kernax.selection.generalised_cross_validation,
        "y",
        "ridge",
        finish=_named("value"),
        has_status=False,
    ),
    "ridge_path": of_kernel(kernax.selection.ridge_path, _both, _ridges_around, finish=_of_second),
    "leave_one_out_path": of_kernel(
        kernax.selection.leave_one_out_path,
        "y",
        _ridges_around,
        finish=lambda residuals: _silent(residuals=residuals[:, 1]),
        has_status=False,
    ),
    "condition": condition,
    "log_marginal_likelihood": of_kernel(
        kernax.log_marginal_likelihood,
        "y",
        "ridge",
        bias=False,
        finish=_named("evidence"),
        has_status=False,
    ),
    "laplace of Bernoulli": of_process(kernax.laplace, "signs", likelihood=logit),
    "laplace of Poisson": of_process(kernax.laplace, "counts", likelihood=poisson),
    "laplace of Categorical": of_process(
        kernax.laplace, "classes", finish=_posterior_of_classes, likelihood=categorical
    ),
    "expectation_propagation": of_process(
        kernax.expectation_propagation, "signs", likelihood=logit
    ),
    "variational": of_process(kernax.variational, "signs", likelihood=logit),
    "variational of StudentT": of_process(kernax.variational, "y", likelihood=student_t),
    "sgpr": sgpr,
    "kernel_logistic": of_kernel(kernax.kernel_logistic, "signs", "ridge"),
    "kernel_logistic on a path": kernel_logistic_on_a_path,
    "kernel_softmax": of_kernel(kernax.kernel_softmax, "classes", "ridge"),
    **{
        name + words: machine(solver=solver)
        for name, machine in MACHINES.items()
        for words, solver in {"": SMO, " by gradients": GRADIENTS}.items()
    },
    "nu_svm": nu_svm,
    "nu_support_vector_regression": of_kernel(
        kernax.nu_support_vector_regression,
        "y",
        "target_C",
        "nu",
        finish=lambda solution: _expansion(solution, "epsilon"),
        bias=False,
        solver=SMO,
    ),
    **{f"regularised_risk of {loss}": of_risk(loss) for loss in LOSSES},
    **{f"falkon of {loss}": partial(falkon, loss=loss) for loss in SMOOTH},
    "lasso": lasso,
    "kernel_perceptron": kernel_perceptron,
    "perceptron of a stream": perceptron_of_a_stream,
    "recursive least squares": recursive_least_squares,
    "Adagrad of a stream": adagrad_of_a_stream,
    "Winnow of a stream": winnow_of_a_stream,
    "platt": platt,
    "isotonic": isotonic,
    "pairwise_coupling": pairwise_coupling,
    "eigenpairs": of_points(
        kernax.bases.eigenpairs,
        lambda pairs: _silent(eigenvalues=pairs[0], coefficients=pairs[1].coefficients),
        n_pairs=COMPONENTS,
    ),
    "empirical_features": of_points(
        kernax.bases.empirical_features, lambda phi: _silent(root=phi.coefficients)
    ),
    "kernel_pca": of_kernel(
        kernax.kernel_pca, finish=_components, bias=False, n_components=COMPONENTS
    ),
    "kernel_cca": kernel_cca,
    "kernel_discriminant": of_kernel(
        kernax.kernel_discriminant, "classes", "ridge", finish=_discriminants, bias=False
    ),
    "kernel_kmeans": of_kernel(
        kernax.kernel_kmeans,
        finish=_clusters,
        bias=False,
        n_clusters=CLUSTERS,
        key=KEY,
        n_starts=3,
    ),
    "import_vector_machine": partial(import_vectors, target="signs"),
    "import_vector_machine of classes": partial(import_vectors, target="classes"),
    "relevance_vector_machine": relevance_vector_machine,
    "maximum_mean_discrepancy": maximum_mean_discrepancy,
    "hsic": hsic,
    "herding": of_kernel(kernax.samples.herding, finish=_subsample, bias=False, n_points=CHOSEN),
    "herding without replacement": of_kernel(
        kernax.samples.herding, finish=_subsample, bias=False, n_points=CHOSEN, replace=False
    ),
    "thin": of_points(
        kernax.samples.thin,
        lambda solution: _subsample(solution, *solution.stats),
        n_halvings=HALVINGS,
        key=KEY,
        throw=False,
    ),
    "stein_discrepancy": stein_discrepancy,
}
