"""Every learner inside `jax.shard_map`, in a batch of weights over the devices: values of `vmap`,
gradients of differences.

One device is enough to see what varies over a mesh and what does not: ridge is tested so in the
quick tier. The slow tier traces every learner over eight, and runs some of them, in a process
of its own.
"""

from contextlib import contextmanager

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optax
import pytest
from conftest import TOLERANCE, assert_close, assert_passes_on_eight, needs_x64
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import kernax
from kernax.core.losses.losses import Huber, Logistic, Pinball, Poisson, Squared, SquaredHinge
from kernax.selection.optimise import batches

pytestmark = needs_x64  # what varies over devices has nothing to do with precision

OVER = PartitionSpec("batch")
RNG = np.random.default_rng(0)
N = 10
X = jnp.asarray(RNG.normal(size=(N, 2)))
T = jnp.asarray(np.sin(2 * RNG.normal(size=N)))
Y = jnp.asarray([1.0, -1.0] * 5)
CLASSES = kernax.one_hot(np.arange(N) % 3)[0]
COUNTS = jnp.asarray(RNG.poisson(2.0, size=N).astype(float))
WEIGHTS = jnp.asarray(RNG.uniform(0.5, 2.0, size=(8, N)))
STEP = 1e-5 * jnp.asarray(RNG.normal(size=(8, N)))
RBF = kernax.RBF(1.0)
FEATURES = kernax.FeatureMap(lambda x: jnp.append(x, jnp.ones_like(x[0])))
PRIOR = kernax.GaussianProcess(RBF)
KEY = jax.random.key(0)
ADAM = optax.adam(0.1)
SMO, GRADIENTS = kernax.solvers.SMO(tol=1e-10), kernax.solvers.ProjectedGradient(tol=1e-7)


def over_devices(function, in_specs=OVER):
    """A function of batches, each device with its part of them."""
    mesh = jax.make_mesh(
        (jax.device_count(),), ("batch",), axis_types=(jax.sharding.AxisType.Auto,)
    )
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=OVER))


def fitted(solution):
    return solution.value.coefficients


def risk(loss, y, **settings):
    return lambda w: fitted(kernax.regularised_risk(RBF, X, y, loss, 0.3, weights=w, **settings))


def machine(**settings):
    return lambda w: fitted(kernax.svm(RBF, X, Y, 1.0, weights=w, **settings))


def solved(w):
    return kernax.solve(
        lx.MatrixLinearOperator(kernax.gram(RBF, X) + jnp.diag(w), lx.positive_semidefinite_tag), T
    ).value


def variances(w):
    return jax.vmap(kernax.condition(PRIOR, X, T, 0.1, weights=w).value.variance)(X[:3])


def drawn(w):
    return kernax.condition(PRIOR, X, T, 0.1, weights=w).value.sample(X[:3] + 0.1, key=KEY)


def approximated(verb):
    def latent_values(w):
        posterior = verb(PRIOR, X, Y, kernax.likelihoods.Bernoulli(), weights=w).value
        return jnp.append(jax.vmap(posterior.process.mean)(X[:3]), posterior.log_evidence)

    return latent_values


def approximated_classes(w):
    likelihood = kernax.likelihoods.Categorical()
    posterior = kernax.laplace(PRIOR, X, CLASSES, likelihood, weights=w).value
    return jnp.append(posterior.probability(X[0]), posterior.log_evidence)


def by_inducing_points(w):
    solution = kernax.sgpr(PRIOR, X, T, 0.1, X[:4], weights=w)
    return jnp.append(jax.vmap(solution.value.variance)(X[:3]), solution.stats["bound"])


def by_minibatches(w):
    likelihood = kernax.likelihoods.Bernoulli()
    settings = {"optimiser": ADAM, "steps": 3, "batch_size": 5, "key": KEY, "weights": w}
    return kernax.svgp(PRIOR, X, Y, likelihood, X[:4], **settings).value.log_evidence[None]


def clustered(w):
    settings = {"temperature": 0.1, "starts": 3, "max_steps": 3000, "weights": w}
    found = kernax.kernel_kmeans(RBF, X, 2, key=KEY, **settings).value
    return found.memberships[:, 0] * found.memberships[:, 1]


def components(w):
    found = kernax.kernel_pca(RBF, X, 2, weights=w).value
    return jnp.append(found.variances, found.function(X[0]))


def correlated(w):
    found = kernax.kernel_cca(RBF, X, kernax.Matern52(), T[:, None], 1, 0.3, weights=w).value
    return jnp.append(found.correlations, found.second(T[:1]))


def log_normal(x):
    return -jnp.sum(x**2) / 2


def fit(w):
    found = kernax.samples.goodness_of_fit_test(
        RBF, X * w[:, None], log_normal, bootstraps=9, key=KEY
    )
    return jnp.append(found.null, found.p_value)


def streamed(budget):
    rule = kernax.online.StochasticGradient(Logistic(), 0.1, 0.5)
    learner = kernax.online.DualLearner(rule, RBF, budget)
    return lambda w: kernax.online.run(learner, X * w[:, None], Y).value.predictions


def by_rates_of_their_own(w):
    learner = kernax.online.DualAdagrad(Logistic(), RBF, kernax.online.RemoveOldest(4), 0.5)
    return kernax.online.run(learner, X * w[:, None], Y).value.predictions


def multiplied(w):
    learner = kernax.online.ExponentiatedGradient(Logistic(), 0.3, balanced=True)
    return kernax.online.run(learner, X * w[:, None], Y).value.predictions


def recursively(w):
    learner = kernax.online.KernelRecursiveLeastSquares(RBF, 0.3, N, 0.0)
    return kernax.online.run(learner, X * w[:, None], T).value.function.coefficients


def pre_image(w):
    return kernax.pre_image(kernax.samples.mean_embedding(RBF, X, weights=w)).value


def minus_evidence(kernel, w):
    return -kernax.log_marginal_likelihood(kernel, X, T, 0.1, weights=w)


def of_a_sample(w):
    """Arguments in float32, of which alone a sample of the rows is taken."""
    single = [array.astype(jnp.float32) for array in (X * w[:, None], T)]
    return RBF, *single, 0.1, single[0][:4]


def learned(w):
    return kernax.minimise(minus_evidence, RBF, optax.adam(0.1), 3, args=(w,)).value.lengthscale


def learned_from_two_starts(w):
    return kernax.multi_start(
        minus_evidence, [RBF, kernax.RBF(0.5)], optax.adam(0.1), 3, args=(w,)
    ).value.lengthscale


QUICK = {
    "ridge": lambda w: fitted(kernax.kernel_ridge(RBF, X, T, 0.1, weights=w)),
    "svm": machine(solver=SMO),
}
SLOW = {
    "evidence": lambda w: -minus_evidence(RBF, w),
    "logistic": lambda w: fitted(kernax.kernel_logistic(RBF, X, Y, 0.3, weights=w)),
    "solve": solved,
    "ridge with a bias": lambda w: fitted(
        kernax.kernel_ridge(RBF, X, T, 0.1, weights=w, bias=True)
    ),
    "falkon": lambda w: fitted(kernax.falkon(RBF, X, T, 0.1, X[:4], weights=w)),
    "falkon of signs": lambda w: fitted(
        kernax.falkon(RBF, X, Y, 0.3, X[:4], loss=Logistic(), weights=w, bias=True)
    ),
    "falkon of a sample": lambda w: fitted(kernax.falkon(*of_a_sample(w))).astype(w.dtype),
    "ridge in Nystroem's features": lambda w: fitted(
        kernax.kernel_ridge(kernax.nystrom(kernax.RBF(w[0]), X, X[:4]), X, T, 0.1)
    ),
    "ridge in features": lambda w: fitted(kernax.kernel_ridge(FEATURES, X, T, 0.1, weights=w)),
    "ridge in blocks": lambda w: fitted(
        kernax.kernel_ridge(RBF, X, T, 0.1, weights=w, block_size=4)
    ),
    "ridge by weights": lambda w: fitted(kernax.kernel_ridge(RBF, X, w, 0.1)),
    "ridge path": lambda w: fitted(
        kernax.ridge_path(RBF, X, T, np.array([0.1, 2.0]), weights=w, bias=True)
    ),
    "leave one out of a path": lambda w: kernax.leave_one_out_path(
        RBF, X, T, np.array([0.1, 2.0]), weights=w, bias=True
    ),
    "leave one out": lambda w: kernax.leave_one_out(RBF, X, T, 0.1, weights=w, bias=True),
    "condition": variances,
    "sample": drawn,
    "sgpr": by_inducing_points,
    "laplace": approximated(kernax.laplace),
    "laplace of several classes": approximated_classes,
    "expectation propagation": approximated(kernax.expectation_propagation),
    "variational": approximated(kernax.variational),
    "logistic in features": lambda w: fitted(
        kernax.kernel_logistic(FEATURES, X, Y, 0.3, weights=w)
    ),
    "softmax": lambda w: fitted(kernax.kernel_softmax(RBF, X, CLASSES, 0.3, weights=w)),
    "svm by projected gradients": machine(solver=GRADIENTS),
    "svm in blocks": machine(solver=SMO, block_size=4),
    "svm on working sets": machine(solver=kernax.solvers.SMO(tol=1e-10, working_set=6)),
    "machines": lambda w: fitted(kernax.svm(RBF, X, 2 * CLASSES - 1, 1.0, weights=w, solver=SMO)),
    "regression": lambda w: fitted(
        kernax.support_vector_regression(RBF, X, T, 1.0, 0.1, weights=w, solver=SMO)
    ),
    "one class": lambda w: fitted(kernax.one_class_svm(RBF, X, 0.3, weights=w, solver=SMO)),
    "squared": risk(Squared(), T, bias=True),
    "Huber": risk(Huber(), T),
    "logistic loss": risk(Logistic(), Y),
    "squared hinge": risk(SquaredHinge(), Y),
    "Poisson": risk(Poisson(), COUNTS),
    "pinball": risk(Pinball(0.3), T, solver=SMO),
    "lasso": lambda w: kernax.lasso(X, T, 0.1, weights=w, bias=True).value[0],
    "platt": lambda w: kernax.calibration.platt(T, Y, weights=w).value.slope,
    "left-out machines": lambda w: kernax.svm_leave_one_out(RBF, X, Y, 1.0, weights=w, solver=SMO),
    "mean embedding": lambda w: kernax.samples.mean_embedding(RBF, X, weights=w).values(X),
    "discrepancy": lambda w: kernax.samples.maximum_mean_discrepancy(RBF, X * w[:, None], X[:5]),
    "hsic": lambda w: kernax.samples.hsic(RBF, RBF, X * w[:, None], X),
    "gram": lambda w: kernax.gram(kernax.RBF(w[0]), X),
    "gram in blocks": lambda w: kernax.gram(RBF, X * w[:, None], X, block_size=4),
    "eigenvalues": lambda w: kernax.eigenpairs(RBF, X * w[:, None], 2).values,
    "empirical features": lambda w: kernax.empirical_features(kernax.RBF(0.3 * w[0]), X).values(
        X[:2]
    ),
}
SLOW |= {
    "import vectors": lambda w: kernax.import_vector_machine(
        RBF, X, Y, 0.3, weights=w, rtol=0.0, max_vectors=N
    ).value.function.values(X),
    "import vectors of classes": lambda w: kernax.import_vector_machine(
        RBF, X, CLASSES, 0.3, weights=w, rtol=0.0, max_vectors=N, block_size=4
    ).value.function.values(X),
    "relevance vectors": lambda w: kernax.relevance_vector_machine(
        RBF, X, T, noise=0.1, weights=w, max_vectors=6
    ).value.function.values(X),
    "relevance vectors of labels": lambda w: kernax.relevance_vector_machine(
        RBF, X, Y, likelihood=kernax.likelihoods.Bernoulli(), weights=w, max_vectors=6
    ).value.function.values(X),
    "components": components,
    "correlations": correlated,
    "discriminant": lambda w: (
        kernax.kernel_discriminant(RBF, X, CLASSES, 0.3, weights=w).value.separations
    ),
    "cuts": lambda w: kernax.spectral_clustering(RBF, X, 2, key=KEY, weights=w).value.values,
    "pre-image": pre_image,
    "Stein discrepancy": lambda w: kernax.samples.stein_discrepancy(RBF, X, log_normal, weights=w),
    "herding": lambda w: kernax.samples.herding(RBF, X, 4, weights=w).value.discrepancy,
    "thinning": lambda w: (
        kernax.samples.thin(RBF, X[:8] * w[:8, None], 2, key=KEY).value.discrepancy
    ),
    "Stein thinning": lambda w: (
        kernax.samples.stein_thin(RBF, X * w[:, None], log_normal, 4).value.discrepancy
    ),
    "stream, merged": streamed(kernax.online.Merge(4)),
    "stream, projected": streamed(kernax.online.Project(4)),
    "stream, recursive": recursively,
    "stream, Adagrad": by_rates_of_their_own,
    "stream, exponentiated": multiplied,
}
STEPS = {  # without a derivative
    "soft clusters": clustered,
    "partition": lambda w: kernax.kernel_kmeans(RBF, X, 3, key=KEY, weights=w).value.memberships,
    "discrete partition": lambda w: (
        kernax.spectral_clustering(
            RBF, X, 2, key=KEY, weights=w, rounding="discrete"
        ).value.memberships
    ),
    "truncated": lambda w: (
        kernax.kernel_pca(RBF, jnp.tile(X, (3, 1)) * w[0], 1, truncated=True).value.variances
    ),
    "svgp": by_minibatches,
    "perceptron": lambda w: fitted(
        kernax.kernel_perceptron(RBF, X * w[:, None], Y, max_epochs=300, averaged=True)
    ),
    "perceptron in features": lambda w: fitted(
        kernax.kernel_perceptron(FEATURES, X * w[:, None], jnp.sign(X[:, 0]))
    ),
    "isotonic": lambda w: kernax.calibration.isotonic(T, Y, weights=w).probabilities,
    "two-sample test": lambda w: (
        kernax.samples.two_sample_test(RBF, X * w[:, None], X[:5], permutations=9, key=KEY).p_value
    ),
    "independence test": lambda w: (
        kernax.samples.independence_test(
            RBF, RBF, X * w[:, None], X, permutations=9, key=KEY
        ).p_value
    ),
    "test of fit": fit,
    "herded points": lambda w: (
        kernax.samples.herding(RBF, X, 4, weights=w, replace=False).value.indices
    ),
    "minimise": learned,
    "multi_start": learned_from_two_starts,
}
ON_EIGHT = pytest.mark.skipif(
    jax.device_count() < 8, reason="runs on eight devices, by way of the last test"
)
RUN = (  # of the slow ones; the others are traced alone
    "evidence",
    "solve",
    "ridge in features",
    "ridge in blocks",
    "falkon",
    "condition",
    "logistic",
    "laplace",
    "svm on working sets",
    "regression",
    "lasso",
    "left-out machines",
    "import vectors",
    "relevance vectors",
    "components",
    "stream, projected",
)
CASES = [
    "ridge",
    pytest.param("svm", marks=pytest.mark.slow),
    *(pytest.param(name, marks=ON_EIGHT) for name in RUN),
]
TRACED = sorted(SLOW.keys() - set(RUN))
STEPS_RUN = ("soft clusters", "perceptron", "svgp", "minimise")
STEPS_TRACED = sorted(STEPS.keys() - set(STEPS_RUN))


def assert_agree(sharded, plain):
    for a, b in zip(jax.tree.leaves(sharded), jax.tree.leaves(plain), strict=True):
        assert_close(np.asarray(a, float), np.asarray(b, float), 100 * TOLERANCE["solve"])


def total_of(name):
    """A number that a learner's values determine, as a function of the weights."""
    values = (QUICK | SLOW)[name]
    return lambda w: jnp.sum(jnp.sin(values(w)))


@pytest.mark.parametrize("name", CASES)
def test_a_batch_over_devices_has_the_values_of_vmap_and_the_gradients_of_its_differences(name):
    """Catches a loop, branch or linear solve that mixes arrays which differ between devices with
    those that do not.
    """
    total = total_of(name)
    sharded = over_devices(jax.vmap(jax.value_and_grad(total)))
    of_each, gradients = sharded(WEIGHTS)
    assert_agree(of_each, jax.jit(jax.vmap(total))(WEIGHTS))
    (ahead, _), (behind, _) = sharded(WEIGHTS + STEP), sharded(WEIGHTS - STEP)
    assert_close(
        np.asarray(ahead - behind),
        np.asarray(2 * jnp.sum(gradients * STEP, 1)),
        TOLERANCE["gradient"],
    )


@ON_EIGHT
@pytest.mark.parametrize("name", TRACED)
def test_a_batch_over_devices_and_its_gradients_have_a_program(name):
    """Catches a loop, branch or linear solve as above, which JAX refuses while it traces."""
    sharded = over_devices(jax.vmap(jax.value_and_grad(total_of(name))))
    of_each, gradients = jax.eval_shape(sharded, WEIGHTS)
    assert of_each.shape == (8,)
    assert gradients.shape == WEIGHTS.shape


@ON_EIGHT
@pytest.mark.parametrize("name", STEPS_TRACED)
def test_a_batch_over_devices_without_a_derivative_has_a_program(name):
    batch = jax.vmap(STEPS[name])
    plain = jax.eval_shape(batch, WEIGHTS)
    assert jax.tree.leaves(jax.eval_shape(over_devices(batch), WEIGHTS)) == jax.tree.leaves(plain)


@ON_EIGHT
@pytest.mark.parametrize("name", STEPS_RUN)
def test_values_without_a_derivative_of_a_batch_over_devices_are_those_of_vmap(name):
    assert_agree(
        over_devices(jax.vmap(STEPS[name]))(WEIGHTS), jax.jit(jax.vmap(STEPS[name]))(WEIGHTS)
    )


@ON_EIGHT
@pytest.mark.parametrize("verb", ["ridge", "svm", "evidence"])
def test_batches_of_points_kernels_and_targets_run_over_devices(verb):
    """Catches what only weights are fed to: here the points, the lengthscale and the targets
    differ, and nothing else.
    """
    verbs = {
        "ridge": lambda k, X, y: jnp.sum(fitted(kernax.kernel_ridge(k, X, y, 0.1)) ** 2),
        "svm": lambda k, X, y: jnp.sum(fitted(kernax.svm(k, X, Y, 1.0, solver=SMO)) ** 2),
        "evidence": lambda k, X, y: kernax.log_marginal_likelihood(k, X, y, 0.1),
    }
    member = jax.value_and_grad(lambda X, scale, y: verbs[verb](kernax.RBF(scale), X, y), (0, 1))
    batch = (X[None] + 0.1 * WEIGHTS[:, :, None], WEIGHTS[:, 0], T[None] * WEIGHTS)
    assert_agree(over_devices(jax.vmap(member))(*batch), jax.jit(jax.vmap(member))(*batch))


@ON_EIGHT
def test_the_gradient_in_points_that_all_devices_share_is_summed_over_them():
    """Catches a cast that loses the sum over devices in its transpose."""

    def losses(X, weights):
        return jax.vmap(lambda w: kernax.log_marginal_likelihood(RBF, X, T, 0.1, weights=w))(
            weights
        )

    both = (PartitionSpec(), OVER)
    sharded = jax.grad(lambda X: jnp.sum(over_devices(losses, both)(X, WEIGHTS)))(X)
    assert_agree(sharded, jax.grad(lambda X: jnp.sum(losses(X, WEIGHTS)))(X))


@ON_EIGHT
def test_a_failure_on_one_device_raises():
    """Catches a check at run time that is left out inside shard_map: without weights nothing is
    left to fit.
    """
    weights = WEIGHTS.at[-1].set(0)
    with pytest.raises(Exception, match="NaN or inf"):
        jax.block_until_ready(over_devices(jax.vmap(QUICK["ridge"]))(weights))


@ON_EIGHT
@pytest.mark.parametrize("settings", [{}, {"batch_size": 2}, {"progress": True}])
def test_batched_shares_members_between_devices(settings):
    """Eleven members on eight devices: catches a member that is lost, or counted twice, where
    shares are filled up.
    """
    weights = jnp.concatenate([WEIGHTS, 2 * WEIGHTS[:3]])
    fit = lambda w: kernax.kernel_ridge(RBF, X, T, 0.1, weights=w, throw=False)
    shared = kernax.batched(fit, devices=jax.devices(), **settings)(weights)
    plain = jax.vmap(fit)(weights)
    assert_agree(shared.value.coefficients, plain.value.coefficients)
    assert jnp.all(shared.result == kernax.RESULTS.successful)


@ON_EIGHT
def test_devices_of_a_cpu_compute_on_a_thread_each_and_tracing_changes_no_threads(monkeypatch):
    threads = []

    @contextmanager
    def limited(**asked):
        threads.append(asked["threads"])
        yield

    monkeypatch.setattr(batches, "linear_algebra_threads", limited)
    sines = kernax.batched(jnp.sin, devices=jax.devices())
    assert_close(sines(WEIGHTS), jnp.sin(WEIGHTS))
    assert threads == [1]
    assert_close(jax.jit(sines)(WEIGHTS), jnp.sin(WEIGHTS))
    assert_close(kernax.batched(jnp.sin, devices=jax.devices()[:1])(WEIGHTS), jnp.sin(WEIGHTS))
    assert threads == [1]


@ON_EIGHT
def test_a_gradient_that_a_member_takes_is_its_own():
    """Catches a gradient in a constant, such as a start, that is summed over the devices."""

    def step(w):
        start = jnp.zeros(2)
        loss = lambda theta: minus_evidence(kernax.RBF(jnp.exp(theta)), w)
        return start - 0.1 * jax.grad(loss)(start)

    shared = kernax.batched(step, devices=jax.devices())(WEIGHTS)
    assert_agree(shared, jax.vmap(step)(WEIGHTS))


@ON_EIGHT
def test_the_gradient_in_what_all_members_share_is_summed_over_devices():
    def total(scale, devices):
        kernel = kernax.RBF(scale)
        fit = lambda w: fitted(kernax.kernel_ridge(kernel, X, T, 0.1, weights=w, throw=False))
        return jnp.sum(jnp.sin(kernax.batched(fit, devices=devices)(WEIGHTS[:5])))

    shared = jax.grad(lambda scale: total(scale, jax.devices()))(1.0)
    assert_agree(shared, jax.grad(lambda scale: total(scale, None))(1.0))


def test_a_program_over_devices_closes_over_what_stands_on_its_mesh():
    mesh = jax.make_mesh((1,), ("batch",), axis_types=(AxisType.Auto,))
    Z = jax.device_put(X[:3], NamedSharding(mesh, PartitionSpec()))
    own = lambda X: kernax.gram(RBF, X, Z)
    over = jax.shard_map(own, mesh=mesh, in_specs=OVER, out_specs=OVER, check_vma=False)
    assert_close(jax.jit(over)(X), kernax.gram(RBF, X, X[:3]))


@pytest.mark.slow
@pytest.mark.skipif(jax.device_count() == 8, reason="it would run itself")
def test_learners_run_on_eight_devices():
    assert_passes_on_eight(__file__)
