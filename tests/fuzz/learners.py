"""Every learner on a problem: what it returned, as a dict of arrays, `success` among them."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from problems import LARGEST, TINY

import kernax
from kernax.core.base.solution import RESULTS

SMO = kernax.solvers.SMO(max_steps=5000)
GRADIENTS = kernax.solvers.ProjectedGradient(max_steps=1000)
COMPONENTS = 2
CLUSTERS = 3
INDUCING = 5
CHOSEN = 6
HALVINGS = 2
# What a solution holds beside its stats.
VALUES = {
    "coefficients",
    "bias",
    "x",
    "probabilities",
    "variance",
    "discrepancy",
}


def _outcome(solution, **arrays) -> dict:
    result = solution.result
    void = (result == RESULTS.nonfinite) | (result == RESULTS.not_psd)
    assert VALUES & set(arrays)
    return {"success": result == RESULTS.successful, "void": void} | arrays


def _expansion(solution) -> dict:
    value = solution.value
    stats = {
        name: figure
        for name, figure in solution.stats.items()
        if name in ("jitter", "residual", "relative_gap")
    }
    return _outcome(solution, coefficients=value.coefficients, bias=value.bias, **stats)


def _silent(**arrays) -> dict:
    """Of verbs without a status: what is finite is meant."""
    finite = [jnp.all(jnp.isfinite(array)) for array in arrays.values()]
    return {"success": jnp.all(jnp.stack(finite)), "void": jnp.asarray(False)} | arrays


def _weights(problem, form):
    return problem["weights"] if form.weighted else None


def gram(problem, kernel, points, form):
    return _silent(K=kernax.gram(kernel, points))


def kernel_ridge(problem, kernel, points, form, block_size=None):
    y, ridge = problem["y"], problem["ridge"]
    targets = jnp.stack([jnp.asarray(y), jnp.asarray(problem["signs"])], 1)
    options = {"weights": _weights(problem, form), "bias": form.bias, "block_size": block_size}
    if block_size is not None:
        options["solver"] = kernax.solvers.ConjugateGradient(max_steps=200)
    return _expansion(kernax.kernel_ridge(kernel, points, targets, ridge, throw=False, **options))


def ridge_in_features(problem, kernel, points, form):
    kernel = kernax.FeatureMap(_identity)
    options = {"weights": _weights(problem, form), "bias": form.bias}
    X = problem["features"]
    return _expansion(
        kernax.kernel_ridge(
            kernel, X, problem["y"], problem["feature_ridge"], throw=False, **options
        )
    )


def _identity(x):
    return x


def solve(problem, kernel, points, form):
    operator = kernax.gram_operator(kernel, points, ridge=problem["ridge"])
    solution = kernax.solvers.solve(operator, problem["y"], throw=False)
    return _outcome(solution, x=solution.value, jitter=solution.stats["jitter"])


def leave_one_out(problem, kernel, points, form):
    options = {"weights": _weights(problem, form), "bias": form.bias}
    return _silent(
        residuals=kernax.leave_one_out(kernel, points, problem["y"], problem["ridge"], **options)
    )


def generalised_cross_validation(problem, kernel, points, form):
    options = {"weights": _weights(problem, form), "bias": form.bias}
    value = kernax.selection.generalised_cross_validation(
        kernel, points, problem["y"], problem["ridge"], **options
    )
    return _silent(value=value)


def _ridges_around(problem):
    """The ridge of the problem, after a larger and before a smaller one, whatever they do."""
    ridge = jnp.asarray(problem["ridge"])
    return jnp.stack([jnp.minimum(30 * ridge, LARGEST), ridge, jnp.maximum(ridge / 1000, TINY)])


def ridge_path(problem, kernel, points, form):
    targets = jnp.stack([jnp.asarray(problem["y"]), jnp.asarray(problem["signs"])], 1)
    options = {"weights": _weights(problem, form), "bias": form.bias}
    return _of_second(
        kernax.selection.ridge_path(
            kernel, points, targets, _ridges_around(problem), throw=False, **options
        )
    )


def leave_one_out_path(problem, kernel, points, form):
    options = {"weights": _weights(problem, form), "bias": form.bias}
    residuals = kernax.selection.leave_one_out_path(
        kernel, points, problem["y"], _ridges_around(problem), **options
    )
    return _silent(residuals=residuals[:, 1])


def kernel_logistic_on_a_path(problem, kernel, points, form):
    options = {"weights": _weights(problem, form), "bias": form.bias}

    def fit(ridge, start):
        return kernax.kernel_logistic(
            kernel, points, problem["signs"], ridge, start=start, throw=False, **options
        )

    return _of_second(kernax.selection.regularisation_path(fit, _ridges_around(problem)))


def _of_second(path) -> dict:
    """The second solution of a path, as if it were alone."""
    f = path.value
    value = type(f)(f.kernel, f.points, f.coefficients[..., 1], f.bias[..., 1])
    result, stats = jax.tree.map(lambda of_ridges: of_ridges[1], (path.result, path.stats))
    return _expansion(type(path)(value, result, stats))


def condition(problem, kernel, points, form):
    process = kernax.GaussianProcess(kernel)
    weights = _weights(problem, form)
    solution = kernax.condition(
        process, points, problem["y"], problem["ridge"], weights=weights, throw=False
    )
    posterior, stats = solution.value, solution.stats
    return _outcome(
        solution,
        coefficients=posterior.mean.coefficients,
        variance=jax.vmap(posterior.variance)(jnp.asarray(points)),
        evidence=stats["log_evidence"],
        jitter=stats["jitter"],
    )


def log_marginal_likelihood(problem, kernel, points, form):
    weights = _weights(problem, form)
    value = kernax.log_marginal_likelihood(
        kernel, points, problem["y"], problem["ridge"], weights=weights
    )
    return _silent(evidence=value)


def laplace(problem, kernel, points, form, likelihood):
    make, target = LIKELIHOODS[likelihood]
    return _approximation(kernax.laplace, problem, kernel, points, form, make(), target)


def laplace_of_classes(problem, kernel, points, form):
    solution = kernax.laplace(
        kernax.GaussianProcess(kernel),
        points,
        problem["classes"],
        kernax.likelihoods.Categorical(),
        weights=_weights(problem, form),
        throw=False,
    )
    coefficients = solution.value.process.mean.of_all.coefficients
    return _outcome(
        solution,
        coefficients=coefficients,
        evidence=solution.value.log_evidence,
        **_figures(solution),
    )


def by_sites(problem, kernel, points, form, verb):
    likelihood = kernax.likelihoods.Bernoulli()
    return _approximation(verb, problem, kernel, points, form, likelihood, "signs")


def variational_of_outliers(problem, kernel, points, form):
    likelihood = kernax.likelihoods.StudentT(1 + 10 * problem["tau"], jnp.sqrt(problem["ridge"]))
    return _approximation(kernax.variational, problem, kernel, points, form, likelihood, "y")


def _approximation(verb, problem, kernel, points, form, likelihood, target):
    process = kernax.GaussianProcess(kernel)
    weights = _weights(problem, form)
    solution = verb(process, points, problem[target], likelihood, weights=weights, throw=False)
    posterior = solution.value
    return _outcome(
        solution,
        coefficients=posterior.slopes,
        precisions=posterior.precisions,
        evidence=posterior.log_evidence,
        **_figures(solution),
    )


def _figures(solution) -> dict:
    return {name: solution.stats[name] for name in ("jitter", "rounding")}


LIKELIHOODS = {
    "Bernoulli": (kernax.likelihoods.Bernoulli, "signs"),
    "Poisson": (kernax.likelihoods.Poisson, "counts"),
}


def sgpr(problem, kernel, points, form):
    solution = kernax.sgpr(
        kernax.GaussianProcess(kernel),
        points,
        problem["y"],
        problem["ridge"],
        points[:INDUCING],
        weights=_weights(problem, form),
        throw=False,
    )
    stats = {name: solution.stats[name] for name in ("bound", "trace", "jitter", "rounding")}
    return _outcome(solution, coefficients=solution.value.mean.coefficients, **stats)


def kernel_logistic(problem, kernel, points, form):
    options = {"weights": _weights(problem, form), "bias": form.bias}
    return _expansion(
        kernax.kernel_logistic(
            kernel, points, problem["signs"], problem["ridge"], throw=False, **options
        )
    )


def kernel_softmax(problem, kernel, points, form):
    options = {"weights": _weights(problem, form), "bias": form.bias}
    return _expansion(
        kernax.kernel_softmax(
            kernel, points, problem["classes"], problem["ridge"], throw=False, **options
        )
    )


def svm(problem, kernel, points, form, solver):
    options = {"weights": _weights(problem, form), "bias": form.bias, "solver": solver}
    return _expansion(
        kernax.svm(kernel, points, problem["signs"], problem["C"], throw=False, **options)
    )


def support_vector_regression(problem, kernel, points, form, solver):
    options = {"weights": _weights(problem, form), "bias": form.bias, "solver": solver}
    C, epsilon = problem["target_C"], problem["epsilon"]
    solution = kernax.support_vector_regression(
        kernel, points, problem["y"], C, epsilon, throw=False, **options
    )
    return _expansion(solution)


def one_class_svm(problem, kernel, points, form, solver):
    options = {"weights": _weights(problem, form), "solver": solver}
    return _expansion(kernax.one_class_svm(kernel, points, problem["nu"], throw=False, **options))


def nu_svm(problem, kernel, points, form):
    """Of the fraction nu of what the smaller class allows."""
    w = jnp.asarray(problem["weights"])
    positive = problem["signs"] > 0
    smaller = jnp.minimum(jnp.sum(jnp.where(positive, w, 0)), jnp.sum(jnp.where(positive, 0, w)))
    nu = problem["nu"] * jnp.minimum(1, 2 * smaller / jnp.sum(w))
    options = {"weights": _weights(problem, form), "solver": SMO}
    solution = kernax.nu_svm(kernel, points, problem["signs"], nu, throw=False, **options)
    return _expansion(solution) | {"rho": solution.stats["rho"], "nu": nu}


def nu_support_vector_regression(problem, kernel, points, form):
    options = {"weights": _weights(problem, form), "solver": SMO}
    C, nu = problem["target_C"], problem["nu"]
    solution = kernax.nu_support_vector_regression(
        kernel, points, problem["y"], C, nu, throw=False, **options
    )
    return _expansion(solution) | {"epsilon": solution.stats["epsilon"]}


def regularised_risk(problem, kernel, points, form, loss):
    make, target, ridge = LOSSES[loss]
    options = {"weights": _weights(problem, form), "bias": form.bias}
    if ridge != "ridge":
        options["solver"] = SMO
    return _expansion(
        kernax.regularised_risk(
            kernel,
            points,
            problem[target],
            problem[ridge],
            loss=make(problem),
            throw=False,
            **options,
        )
    )


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


def falkon(problem, kernel, points, form, loss):
    """Over the first points as centres."""
    make, target, ridge = LOSSES[loss]
    return _expansion(
        kernax.falkon(
            kernel,
            points,
            problem[target],
            problem[ridge],
            points[:INDUCING],
            loss=make(problem),
            weights=_weights(problem, form),
            throw=False,
        )
    )


SMOOTH = ("Squared", "Huber", "Logistic", "SquaredHinge", "Poisson")


def lasso(problem, kernel, points, form):
    options = {"weights": _weights(problem, form), "bias": form.bias, "solver": LASSO}
    solution = kernax.lasso(
        problem["features"], problem["y"], problem["penalty"], throw=False, **options
    )
    return _outcome(solution, coefficients=solution.value[0], bias=solution.value[1])


def kernel_perceptron(problem, kernel, points, form):
    rate, threshold = problem["rate"], problem["threshold"]
    solution = kernax.kernel_perceptron(
        kernel, points, problem["signs"], rate=rate, threshold=threshold, throw=False
    )
    return _expansion(solution) | {"mistakes": solution.stats["mistakes"]}


def perceptron_of_a_stream(problem, kernel, points, form):
    """A perceptron without a budget, which sees the points that have a weight."""
    present = problem["weights"] > 0 if form.weighted else None
    rule = kernax.online.Perceptron(problem["rate"])
    learner = kernax.online.DualLearner(rule, kernel, kernax.online.NoBudget(form.n))
    solution = kernax.online.run(learner, points, problem["signs"], present=present, throw=False)
    progress = solution.value
    return _outcome(
        solution,
        coefficients=progress.function.coefficients,
        predictions=progress.predictions,
        mistakes=progress.mistakes,
    )


def adagrad_of_a_stream(problem, kernel, points, form):
    """In features, with the squared loss."""
    present = problem["weights"] > 0 if form.weighted else None
    learner = kernax.online.Adagrad(
        kernax.losses.Squared(), kernax.FeatureMap(_identity), problem["rate"]
    )
    solution = kernax.online.run(
        learner, problem["features"], problem["y"], present=present, throw=False
    )
    progress = solution.value
    return _outcome(solution, x=progress.state.weights, predictions=progress.predictions)


def winnow_of_a_stream(problem, kernel, points, form):
    """Normalised and balanced, in features."""
    present = problem["weights"] > 0 if form.weighted else None
    learner = kernax.online.NormalisedWinnow(problem["rate"], balanced=True)
    solution = kernax.online.run(
        learner, problem["features"], problem["signs"], present=present, throw=False
    )
    progress = solution.value
    return _outcome(
        solution,
        x=progress.state.weights,
        predictions=progress.predictions,
        mistakes=progress.mistakes,
    )


def recursive_least_squares(problem, kernel, points, form):
    """Without a tolerance, of the points that have a weight."""
    present = problem["weights"] > 0 if form.weighted else None
    learner = kernax.online.KernelRecursiveLeastSquares(kernel, problem["ridge"], form.n, 0.0)
    solution = kernax.online.run(learner, points, problem["y"], present=present, throw=False)
    state = solution.value.state
    return _outcome(
        solution,
        coefficients=state.function.coefficients,
        ages=state.support.ages,
    )


def platt(problem, kernel, points, form):
    solution = kernax.calibration.platt(
        problem["values"], problem["signs"], weights=_weights(problem, form), throw=False
    )
    return _outcome(solution, probabilities=solution.value(problem["values"]))


def isotonic(problem, kernel, points, form):
    value = kernax.calibration.isotonic(
        problem["values"], problem["signs"], weights=_weights(problem, form)
    )
    return _silent(probabilities=value(problem["values"]))


def pairwise_coupling(problem, kernel, points, form):
    """Of four classes, whose pairs have the first decision values as log odds."""
    pairs = jnp.triu_indices(4, 1)
    first = jax.nn.sigmoid(problem["values"][:6])
    r = jnp.zeros_like(first, shape=(4, 4)).at[pairs].set(first).T.at[pairs].set(1 - first).T
    return _silent(r=r, probabilities=kernax.calibration.pairwise_coupling(r))


def eigenpairs(problem, kernel, points, form):
    values, functions = kernax.bases.eigenpairs(kernel, points, COMPONENTS)
    return _silent(eigenvalues=values, coefficients=functions.coefficients)


def kernel_pca(problem, kernel, points, form):
    weights = _weights(problem, form)
    solution = kernax.kernel_pca(kernel, points, COMPONENTS, weights=weights, throw=False)
    f = solution.value.function
    return _outcome(
        solution,
        coefficients=f.coefficients,
        bias=f.bias,
        variances=solution.value.variances,
    )


def kernel_cca(problem, kernel, points, form):
    solution = kernax.kernel_cca(
        kernel,
        kernax.Linear(),
        points,
        problem["y"][:, None] / jnp.max(jnp.abs(problem["y"])),
        1,
        problem["ridge"],
        weights=_weights(problem, form),
        throw=False,
    )
    first, second = solution.value.first, solution.value.second
    return _outcome(
        solution,
        coefficients=first.coefficients,
        bias=first.bias,
        others=second.coefficients,
        correlations=solution.value.correlations,
        jitter=solution.stats["jitter"],
        rounding=solution.stats["rounding"],
    )


def kernel_discriminant(problem, kernel, points, form):
    solution = kernax.kernel_discriminant(
        kernel,
        points,
        problem["classes"],
        problem["ridge"],
        weights=_weights(problem, form),
        throw=False,
    )
    f = solution.value.function
    separations = solution.value.separations
    return _outcome(solution, coefficients=f.coefficients, separations=separations)


def kernel_kmeans(problem, kernel, points, form):
    solution = kernax.kernel_kmeans(
        kernel,
        points,
        CLUSTERS,
        key=jax.random.key(0),
        weights=_weights(problem, form),
        n_starts=3,
        throw=False,
    )
    return _outcome(
        solution,
        memberships=solution.value.memberships,
        coefficients=solution.value.function.coefficients,
        objective=solution.stats["objective"],
    )


def import_vectors(problem, kernel, points, form, target):
    solution = kernax.import_vector_machine(
        kernel,
        points,
        problem[target],
        problem["ridge"],
        weights=_weights(problem, form),
        bias=form.bias,
        max_vectors=form.n,
        rtol=0.0,
        throw=False,
    )
    f = solution.value.function
    return _outcome(
        solution,
        coefficients=f.coefficients,
        bias=f.bias,
        places=solution.value.places,
        objective=solution.stats["objective"],
    )


def relevance_vector_machine(problem, kernel, points, form):
    solution = kernax.relevance_vector_machine(
        kernel,
        points,
        problem["y"],
        noise=problem["ridge"],
        weights=_weights(problem, form),
        bias=form.bias,
        throw=False,
    )
    value = solution.value
    return _outcome(
        solution,
        coefficients=value.function.coefficients,
        bias=value.function.bias,
        places=value.places,
        inverses=1 / value.precisions,
    )


def empirical_features(problem, kernel, points, form):
    return _silent(root=kernax.bases.empirical_features(kernel, points).coefficients)


def maximum_mean_discrepancy(problem, kernel, points, form):
    first = form.n // 3
    return _silent(
        value=kernax.samples.maximum_mean_discrepancy(kernel, points[:first], points[first:])
    )


def hsic(problem, kernel, points, form):
    return _silent(
        value=kernax.samples.hsic(kernel, kernax.Linear(), points, problem["y"][:, None])
    )


def herding(problem, kernel, points, form, replace=True):
    return _subsample(
        kernax.samples.herding(
            kernel,
            points,
            CHOSEN,
            weights=_weights(problem, form),
            replace=replace,
            throw=False,
        )
    )


def thin(problem, kernel, points, form):
    solution = kernax.samples.thin(kernel, points, HALVINGS, key=jax.random.key(0), throw=False)
    return _subsample(solution) | solution.stats


def _subsample(solution) -> dict:
    value = solution.value
    return _outcome(solution, indices=value.indices, discrepancy=value.discrepancy)


def stein_discrepancy(problem, kernel, points, form):
    features = jnp.asarray(problem["features"])
    value = kernax.samples.stein_discrepancy(
        kernax.RBF(jnp.max(jnp.abs(features))), features, _log_normal, weights=problem["weights"]
    )
    return _silent(value=value)


def _log_normal(x):
    return -jnp.sum(x**2) / 2


LASSO = kernax.solvers.SMO(
    rtol=1e-6 if jnp.result_type(float) == jnp.float64 else 1e-4, max_steps=5000
)

LEARNERS: dict[str, Callable] = {
    "gram": gram,
    "kernel_ridge": kernel_ridge,
    "kernel_ridge in blocks": partial(kernel_ridge, block_size=5),
    "kernel_ridge in features": ridge_in_features,
    "solve": solve,
    "leave_one_out": leave_one_out,
    "generalised_cross_validation": generalised_cross_validation,
    "ridge_path": ridge_path,
    "leave_one_out_path": leave_one_out_path,
    "condition": condition,
    "log_marginal_likelihood": log_marginal_likelihood,
    **{f"laplace of {name}": partial(laplace, likelihood=name) for name in LIKELIHOODS},
    "laplace of Categorical": laplace_of_classes,
    "expectation_propagation": partial(by_sites, verb=kernax.expectation_propagation),
    "variational": partial(by_sites, verb=kernax.variational),
    "variational of StudentT": variational_of_outliers,
    "sgpr": sgpr,
    "kernel_logistic": kernel_logistic,
    "kernel_logistic on a path": kernel_logistic_on_a_path,
    "kernel_softmax": kernel_softmax,
    "svm": partial(svm, solver=SMO),
    "svm by gradients": partial(svm, solver=GRADIENTS),
    "support_vector_regression": partial(support_vector_regression, solver=SMO),
    "support_vector_regression by gradients": partial(support_vector_regression, solver=GRADIENTS),
    "one_class_svm": partial(one_class_svm, solver=SMO),
    "one_class_svm by gradients": partial(one_class_svm, solver=GRADIENTS),
    "nu_svm": nu_svm,
    "nu_support_vector_regression": nu_support_vector_regression,
    **{f"regularised_risk of {loss}": partial(regularised_risk, loss=loss) for loss in LOSSES},
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
    "eigenpairs": eigenpairs,
    "empirical_features": empirical_features,
    "kernel_pca": kernel_pca,
    "kernel_cca": kernel_cca,
    "kernel_discriminant": kernel_discriminant,
    "kernel_kmeans": kernel_kmeans,
    "import_vector_machine": partial(import_vectors, target="signs"),
    "import_vector_machine of classes": partial(import_vectors, target="classes"),
    "relevance_vector_machine": relevance_vector_machine,
    "maximum_mean_discrepancy": maximum_mean_discrepancy,
    "hsic": hsic,
    "herding": herding,
    "herding without replacement": partial(herding, replace=False),
    "thin": thin,
    "stein_discrepancy": stein_discrepancy,
}
