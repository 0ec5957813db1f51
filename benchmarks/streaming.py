"""How many points a second does a learner of a stream take, and what does it hold meanwhile?

100000 points, d = 20, that drift, hinge loss, an RBF kernel and 200 points of support, float32: one
program, whose memory is that of its state and of what is recorded of each point; and 100 such
learners, of as many lengthscales and rates, on 5000 points in one `vmap`, next to a loop over them.

Peers take the first 2000 of the points, as kernax does in that case: the `SGDClassifier` of
scikit-learn (hinge, and the passive-aggressive steps that took the place of
`PassiveAggressiveClassifier`) on 200 features of `RBFSampler`, or of `Nystroem` on the first 200
points. Each point is predicted and then learned from, by one `decision_function` and one
`partial_fit`: what scikit-learn has for streams. "Features beforehand" has the features of all
points made at once and outside of the time, and "in one call" is one `partial_fit` of them all: it
predicts nothing before it learns, and its loop is compiled like that of kernax.
"""

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import MB, Bar, Case, Contender, Program

D, ROOM, WIDTH = 20, 200, 4.0
RIDGE, RATE = 1e-4, 0.2
KERNEL = kx.RBF(WIDTH)
BUDGETS = {
    "remove oldest": kx.online.RemoveOldest(ROOM),
    "remove smallest": kx.online.RemoveSmallest(ROOM),
    "merge": kx.online.Merge(ROOM),
    "project": kx.online.Project(ROOM),
}
SECONDS = 5.0  # for 100000 points: 20000 a second


def cases(quick):
    n, short, learners = (2000, 100, 5) if quick else (100_000, 2000, 100)
    X, y = data(n)
    for name, budget in BUDGETS.items():
        run = Contender("kernax", lambda budget=budget: Program(_mistakes(_learner(budget)), X, y))
        bars = [Bar(SECONDS), Bar(4 * MB, figure="temporary")]
        yield Case(f"stream, n={n}, d={D}, {name}, {ROOM} points", [run], bars, rounds=3)
    yield _next_to_peers(X[:short], y[:short])
    yield _many(X[: n // 20], y[: n // 20], learners)


def data(n, seed=0):
    """Two classes beside a curved boundary that moves; one label in twenty is wrong."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    drift = np.linspace(0, 1, n)
    f = np.sin(2 * X[:, 0]) + X[:, 1] + drift * X[:, 2] + 0.5 * X[:, 3] * X[:, 4]
    y = np.where(f > 0, 1.0, -1.0) * np.where(rng.uniform(size=n) < 0.05, -1, 1)
    return jnp.asarray(X, "float32"), jnp.asarray(y, "float32")


def _learner(budget, kernel=KERNEL, rate=RATE):
    rule = kx.online.StochasticGradient(kx.losses.Hinge(), RIDGE, rate)
    return kx.online.DualLearner(rule, kernel, budget)  # pyright: ignore[reportCallIssue]


def _mistakes(learner):
    return lambda X, y: kx.online.run(learner, X, y, throw=False).stats["mistakes"]


def _next_to_peers(X, y):
    features = {"RBFSampler": _fourier, "Nystroem": _nystrom}
    steps = {"SGD": _descent, "passive-aggressive": _passive}
    peers = [
        Contender(
            f"scikit-learn {step}, {name}", lambda f=f, make=make: _by_points(X, y, f(X), make())
        )
        for name, f in features.items()
        for step, make in steps.items()
    ]
    bars = [Bar(0.2, peer.name) for peer in peers]
    beforehand = "scikit-learn SGD, features beforehand"
    others = [
        Contender("kernax, random features", lambda: Program(_mistakes(_primal()), X, y)),
        Contender(beforehand, lambda: _by_points(X, y, _fourier(X), _descent(), beforehand=True)),
        Contender("scikit-learn SGD, in one call", lambda: _at_once(X, y)),
    ]
    learner = _learner(BUDGETS["merge"])
    ours = Contender("kernax", lambda: Program(_mistakes(learner), X, y))
    name = f"stream next to peers, n={len(y)}, d={D}, {ROOM} points or features"
    return Case(name, [ours, *others, *peers], [*bars, Bar(0.2, beforehand)], rounds=3)


def _primal():
    features = kx.random_fourier_features(KERNEL, ROOM // 2, D, key=jax.random.key(0))
    rule = kx.online.StochasticGradient(kx.losses.Hinge(), RIDGE, RATE)
    return kx.online.PrimalLearner(rule, features)  # pyright: ignore[reportCallIssue]


def _many(X, y, count):
    scales = jnp.geomspace(1.0, 16.0, count, dtype=X.dtype)
    rates = jnp.geomspace(0.02, 1.0, count, dtype=X.dtype)
    budget = kx.online.RemoveOldest(ROOM)

    def run(scale, rate, X, y):
        return _mistakes(_learner(budget, kx.RBF(scale), rate))(X, y)

    together = jax.vmap(run, in_axes=(0, 0, None, None))
    one = jax.jit(run)

    def loop():
        return jnp.stack([one(scale, rate, X, y) for scale, rate in zip(scales, rates)])

    contenders = [
        Contender("kernax", lambda: Program(together, scales, rates, X, y)),
        Contender("a loop over runs", lambda: loop),
    ]
    name = f"{count} learners on one stream, n={len(y)}, d={D}, {ROOM} points"
    return Case(name, contenders, tolerance=0.05, rounds=3)


def _fourier(X):
    from sklearn.kernel_approximation import RBFSampler

    gamma = 0.5 / WIDTH**2
    return RBFSampler(gamma=gamma, n_components=ROOM, random_state=0).fit(np.asarray(X[:ROOM]))


def _nystrom(X):
    from sklearn.kernel_approximation import Nystroem

    gamma = 0.5 / WIDTH**2
    count = min(ROOM, len(X))
    return Nystroem(gamma=gamma, n_components=count, random_state=0).fit(np.asarray(X[:ROOM]))


def _descent():
    from sklearn.linear_model import SGDClassifier

    options = {"alpha": RIDGE, "learning_rate": "constant", "eta0": RATE}
    return SGDClassifier(loss="hinge", fit_intercept=False, **options)


def _passive():
    from sklearn.linear_model import SGDClassifier

    options = {"learning_rate": "pa1", "eta0": 1.0, "penalty": None}
    return SGDClassifier(loss="hinge", fit_intercept=False, **options)


def _by_points(X, y, features, learner, beforehand=False):
    """A loop over points that predicts and then learns, and counts mistakes."""
    X, y = np.asarray(X), np.asarray(y)
    made = features.transform(X) if beforehand else None
    classes = np.array([-1.0, 1.0])

    def run():
        learner.partial_fit(features.transform(X[:1]), y[:1], classes)
        mistakes = 0
        for i in range(1, len(y)):
            phi = features.transform(X[i : i + 1]) if made is None else made[i : i + 1]
            mistakes += learner.decision_function(phi)[0] * y[i] <= 0
            learner.partial_fit(phi, y[i : i + 1])
        return np.array(mistakes)

    return run


def _at_once(X, y):
    features, learner = _fourier(X), _descent()
    made, y = features.transform(np.asarray(X)), np.asarray(y)
    return lambda: learner.partial_fit(made, y, np.array([-1.0, 1.0])).coef_.sum()
