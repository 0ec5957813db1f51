"""Gaussian processes, of numbers and of classes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import kernax as kx
from benchmarks import exact, inducing, splits
from benchmarks.large import LENGTHSCALES, NOISE, VARIANCE
from benchmarks.published.machines import few
from benchmarks.published.rows import table
from benchmarks.splits import loss
from kernax.likelihoods import Bernoulli, Probit

LBFGS = optax.lbfgs()
PERIOD_FIXED = lambda path, value: not path.endswith("period")


def snelson(quick: bool) -> dict[str, float]:
    """Learned from lengthscale 1, variance 1, noise 0.1."""
    data = table("snelson")
    standard = lambda values: (values - values.mean(0)) / values.std(0)
    X = standard(data["x_train"].reshape(-1, 1))
    y = standard(data["y_train"].ravel())
    start = kx.Model(1.0 * kx.RBF(1.0), 0.1)
    solution = kx.minimise(loss, start, LBFGS, 3 if quick else 50, args=(X, y), throw=False)
    variance, lengthscale, noise = _numbers(solution.value)
    return {
        "negative log likelihood": len(y) * float(solution.stats["loss"]),
        "lengthscale": lengthscale,
        "variance": variance,
        "noise variance": noise,
    }


def _numbers(model: kx.Model) -> tuple[float, float, float]:
    values = kx.unconstrain(model)[0]
    by_end = lambda end: next(float(jnp.exp(v)) for k, v in values.items() if k.endswith(end))
    return by_end(".scale"), by_end("lengthscale"), by_end("ridge")


def mauna_loa() -> tuple[np.ndarray, np.ndarray]:
    """The book's 545 months: years, and parts per million less their mean."""
    data = table("co2")
    year, month, ppm = data["cdiac_year"], data["cdiac_month"], data["cdiac_ppm"]
    dropped = (year == 1958) & ((month == 6) | (month == 10))
    kept = np.isfinite(ppm) & (year <= 2003) & ~dropped
    return (year + (month - 0.5) / 12)[kept][:, None], ppm[kept] - ppm[kept].mean()


def book() -> kx.Model:
    """Rasmussen & Williams (2006), section 5.4.3, with the hyperparameters printed there."""
    trend = 66.0**2 * kx.RBF(67.0)
    season = 2.4**2 * kx.RBF(90.0) * kx.Periodic(lengthscale=1.3, period=1.0)
    medium = 0.66**2 * kx.RationalQuadratic(lengthscale=1.2, alpha=0.78)
    return kx.Model(trend + season + medium + 0.18**2 * kx.RBF(1.6 / 12), 0.19**2)


def co2(quick: bool) -> dict[str, float]:
    """The evidence of the book's kernel as printed, and learned from there."""
    X, y = mauna_loa()
    rows = slice(0, 60 if quick else None)
    X, y = X[rows], y[rows]
    printed = book()
    steps = 2 if quick else 40
    solution = kx.minimise(
        loss, printed, LBFGS, steps, args=(X, y), trainable=PERIOD_FIXED, throw=False
    )
    moved = [
        100 * abs(float(a) / float(b) - 1)
        for a, b in zip(jax.tree.leaves(solution.value), jax.tree.leaves(printed))
    ]
    return {
        "log likelihood as printed": -len(y) * float(jax.jit(loss)(printed, X, y)),
        "log likelihood learned": -len(y) * float(solution.stats["loss"]),
        "median change of a hyperparameter, %": float(np.median(moved)),
        "largest change, %": max(moved),
    }


def elevators(quick: bool) -> dict[str, float]:
    """The first 2000 training rows of fold 0 with given hyperparameters."""
    X, y, X_new, y_new = exact.split("elevators", 0)
    rows = slice(0, 200 if quick else 2000)
    kernel = VARIANCE * kx.Matern32(LENGTHSCALES.astype(float))
    process = kx.GaussianProcess(kernel)
    solution = kx.condition(process, X[rows], y[rows], NOISE)
    some = slice(0, 200 if quick else None)
    error, density = inducing.scores(solution.value, NOISE, X_new[some], y_new[some])
    return {
        "log likelihood": float(solution.stats["log_evidence"]),
        "RMSE": error,
        "NLPD": density,
    }


def of_folds(name: str, count: int, quick: bool) -> dict[str, float]:
    """Errors of all points in so many folds, in float32, and their standard error."""
    folds = range(1 if quick else count)
    rows = [exact.figures(name, fold, 300 if quick else None) for fold in folds]
    errors = [float(row[0]) for row in rows]
    spread = np.std(errors) / np.sqrt(max(1, len(rows) - 1))
    return {
        "RMSE": float(np.mean(errors)),
        "standard error": float(spread),
        "folds": len(rows),
        "seconds a fold": float(np.mean([row[2] + row[3] for row in rows])),
    }


def by_inducing_points(way: str, steps: int, quick: bool) -> dict[str, float]:
    """kin40k by 512 points, chosen greedily at first."""
    X, y, X_new, y_new = inducing.kin40k()
    count = inducing.COUNT
    if quick:
        X, y, X_new, y_new = X[:300], y[:300], X_new[:50], y_new[:50]
        count, steps = 10, 2
    start = inducing.started(X, count)
    process, noise = inducing.WAYS[way](start, X, y, steps)
    error, density = inducing.scores(process, noise, X_new, y_new)
    return {"RMSE": error, "NLPD": density}


def of_twenty_splits(name: str, learn: str, quick: bool) -> dict[str, float]:
    """Means over the splits, in the units of the targets."""
    data = table(name)
    X, y = data["X"], data["y"].ravel()
    found = []
    for held_out in data["test_idx"][: 1 if quick else 20]:
        kept = np.setdiff1d(np.arange(len(y)), held_out)
        kept = kept[: 60 if quick else None]
        found.append(splits.figures(splits.LIBRARIES[learn], X, y, kept, held_out))
    error, density, likelihood, _ = np.mean(found, 0)
    return {
        "RMSE": float(error),
        "NLPD": float(density),
        "negative log likelihood": float(likelihood),
        "seconds": float(np.median([row[3] for row in found])),  # the first one compiles
    }


def usps(inference: str, repartition: int, quick: bool) -> dict[str, float]:
    """3 against 5 with the probit likelihood and given hyperparameters."""
    data = table("usps_3v5")
    points = np.concatenate([data["X_train"], data["X_test"]]).astype(float)
    signs = np.concatenate([data["y_train"], data["y_test"]]).astype(float)
    order = data["repartition"][repartition]
    train = order[: 60 if quick else 767]
    test = order[767:]
    process = kx.GaussianProcess(np.exp(2 * 2.35) * kx.RBF(np.exp(2.85)))
    posterior = getattr(kx, inference)(process, points[train], signs[train], Probit()).value
    means, _ = jax.vmap(posterior.predict)(points[test])
    return {
        "log evidence": float(posterior.log_evidence),
        "errors of 773": int(np.sum(np.sign(means) != signs[test])),
    }


class Classifier(kx.Model):
    """A kernel, and a constant mean, the logarithm of the number of a `Model`."""

    def process(self):
        return kx.GaussianProcess(self.kernel, kx.ConstantMean(jnp.log(self.ridge)))


def _evidence(model, X, y):
    return -kx.laplace(model.process(), X, y, Bernoulli(), throw=False).value.log_evidence / len(y)


def classes(name: str, quick: bool) -> dict[str, float]:
    """Laplace's approximation; variance, lengthscale and mean learned by its evidence on the first
    split.
    """
    data = _ripley() if name == "ripley" else few(name, quick)
    X = jnp.asarray(data["X"])
    y = jnp.asarray(data["y"].ravel().astype(float))
    first = data["train_idx"][0]
    start = Classifier(1.0 * kx.RBF(float(np.sqrt(X.shape[1]))), 1.0)
    steps = 1 if quick else 20
    model = kx.minimise(_evidence, start, LBFGS, steps, args=(X[first], y[first])).value

    @jax.jit
    def error(train, test):
        posterior = kx.laplace(model.process(), X[train], y[train], Bernoulli(), throw=False).value
        means, _ = jax.vmap(posterior.predict)(X[test])
        return 100 * jnp.mean(jnp.sign(means) != y[test])

    errors = [float(error(*split)) for split in zip(data["train_idx"], data["test_idx"])]
    return {"error, %": float(np.mean(errors))}


def _ripley():
    """As a table of splits: four draws of 100 training points."""
    data = table("ripley")
    X = np.concatenate([data["X_train"], data["X_test"]])
    y = np.concatenate([data["y_train"].ravel(), data["y_test"].ravel()])
    draws = [np.random.default_rng(seed).permutation(250)[:100] for seed in range(4)]
    test = np.arange(250, 1250)
    signs = np.where(y > 0, 1, -1)
    return {"X": X, "y": signs, "train_idx": draws, "test_idx": [test] * len(draws)}
