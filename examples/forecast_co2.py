"""Forecasts ten years of the air over Mauna Loa: `python examples/forecast_co2.py PICTURE.png`.

The data are monthly means of the CO2 series in statsmodels, 1958 to 2001. The kernel has four parts
(Rasmussen & Williams 2006, section 5.4.3): a smooth trend, a season with a drifting shape,
medium-term irregularities, and noise that is correlated over months. Its parameters maximise the
evidence of the data before 1992, from several starts. The later months are forecast.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import kernax
from kernax.plot import posterior_band, score_title

FORECAST_FROM = 1992.0
STARTS = 4
STEPS = 40


def monthly() -> tuple[np.ndarray, np.ndarray]:
    """The decimal years (n, 1), and the parts per million (n,), of months with a measurement."""
    from statsmodels.datasets import co2

    series = co2.load_pandas().data["co2"].resample("MS").mean().dropna()
    years = series.index.year + (series.index.month - 0.5) / 12
    return np.asarray(years, float)[:, None], series.to_numpy(float)


def composite() -> kernax.AbstractKernel:
    """Trend, drifting season, medium-term irregularities and short-term correlation, in units of
    years and parts per million.
    """
    trend = 2500.0 * kernax.RBF(50.0)
    season = 4.0 * kernax.RBF(100.0) * kernax.Periodic(lengthscale=1.0, period=1.0)
    medium = 0.5 * kernax.RationalQuadratic(lengthscale=1.0, alpha=1.0)
    return trend + season + medium + 0.05 * kernax.RBF(0.15)


def loss(model: kernax.Model, X: jax.Array, y: jax.Array) -> jax.Array:
    """Minus the log marginal likelihood, per month."""
    return -kernax.log_marginal_likelihood(model.kernel, X, y, model.ridge) / len(y)


def scores(model: kernax.Model, X, y, X_new, y_new):
    """The log evidence, and the root mean square error and the mean negative log density of the
    forecast.
    """
    solution = kernax.condition(kernax.GaussianProcess(model.kernel), X, y, model.ridge)
    mean = jax.vmap(solution.value.mean)(X_new)
    variance = jax.vmap(solution.value.variance)(X_new) + model.ridge
    density = -jax.scipy.stats.norm.logpdf(y_new, mean, jnp.sqrt(variance))
    return (
        float(solution.stats["log_evidence"]),
        float(jnp.sqrt(jnp.mean((mean - y_new) ** 2))),
        float(density.mean()),
    )


def comment(written: tuple[float, ...], learned: tuple[float, ...]) -> str:
    """What learning improved: always the evidence, but not always the forecast."""
    gained = (
        f"learning raised the log evidence of the training months by {learned[0] - written[0]:.1f}"
    )
    if learned[1:] <= written[1:]:
        return f"{gained}, and improved the forecast"
    return (
        f"{gained}, but did not improve the forecast:\n"
        "the evidence depends mostly on predictions a few months ahead, and a forecast of ten\n"
        "years on the trend alone, for which there are few data; the hand-written trend fits this\n"
        "decade better"
    )


def main(picture: str) -> None:
    """Learns the kernel, prints the table of scores, and draws the forecast."""
    X, ppm = monthly()
    known = X[:, 0] < FORECAST_FROM
    level = ppm[known].mean()
    data = X[known], ppm[known] - level, X[~known], ppm[~known] - level
    start = kernax.Model(composite(), 0.1)
    fixed_period = lambda path, value: not path.endswith("period")
    starts = kernax.selection.random_starts(
        start, STARTS, key=jax.random.key(0), spread=0.5, trainable=fixed_period
    )
    before = time.perf_counter()
    learned = kernax.multi_start(
        loss,
        starts,
        optax.lbfgs(),
        STEPS,
        args=data[:2],
        trainable=fixed_period,
        progress=sys.stderr.isatty(),
    )
    seconds = time.perf_counter() - before
    print(
        f"CO2 at Mauna Loa: {known.sum()} months for training, {(~known).sum()} to forecast; "
        f"{STARTS} starts, {seconds:.0f} s"
    )
    print(f"{'kernel':22}{'log evidence':>14}{'RMSE, ppm':>12}{'NLPD':>10}")
    models = {
        "one RBF": kernax.Model(1000.0 * kernax.RBF(10.0), 0.1),
        "composite, not learned": start,
        "learned": learned.value,
    }
    table = {name: scores(model, *data) for name, model in models.items()}
    for name, (evidence, error, density) in table.items():
        print(f"{name:22}{evidence:14.1f}{error:12.3f}{density:10.3f}")
    print(comment(table["composite, not learned"], table["learned"]))
    grid = jnp.linspace(X.min(), X.max(), 1200)[:, None]
    process = kernax.condition(
        kernax.GaussianProcess(learned.value.kernel), *data[:2], learned.value.ridge
    ).value
    mean = jax.vmap(process.mean)(grid) + level
    deviation = jnp.sqrt(jax.vmap(process.variance)(grid) + learned.value.ridge)
    scored = int((~known).sum())
    ax = posterior_band(
        grid[:, 0],
        mean,
        deviation,
        observed=(X[known, 0], ppm[known]),
        held_out=(X[~known, 0], ppm[~known]),
        learned_until=FORECAST_FROM,
        names=("year", "CO2, ppm"),
        title=score_title(dict(zip(("RMSE", "NLPD"), table["learned"][1:])), scored),
    )
    ax.figure.savefig(picture)  # pyright: ignore[reportAttributeAccessIssue]
    print(f"picture: {picture}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/forecast_co2.py PICTURE.png")
    jax.config.update("jax_enable_x64", True)
    main(sys.argv[1])
