"""What the success of each learner promises, recomputed in NumPy's widest floats from the problem
and the answer alone.

A referee returns figures and the bounds they must not exceed, by name. `K` is the Gram matrix in
the working precision, which has a referee of its own: the systems that learners solve are stated in
it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from learners import INDUCING, LASSO, LOSSES, SMO
from problems import EPS, LARGEST, STRUCTURES, TINY
from structures import WIDE

Figures = dict[str, tuple[Any, Any]]

DENSE = 4 * EPS ** (1 / 3)  # the relative residual at which a direct solve counts as accurate
# Left by Newton's method: a third for rounding, a quarter more of it unseen; 0.48 seen.
NEWTON = EPS**0.5 + EPS ** (1 / 3) / 2
ITERATIVE = 8 * EPS ** (2 / 3)  # the same for conjugate gradients


def solved(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """`A^-1 B` by elimination with row pivots, for stacks of matrices, in the precision of the
    arguments.
    """
    n = A.shape[-1]
    M = np.concatenate([A, B], -1)
    stack = np.arange(len(M))
    for i in range(n):
        pivot = i + np.argmax(np.abs(M[:, i:, i]), 1)
        M[stack, pivot], M[:, i] = M[:, i].copy(), M[stack, pivot]
        M[:, i + 1 :] -= (M[:, i + 1 :, i] / M[:, i, i, None])[:, :, None] * M[:, i, None]
    X = M[..., n:]
    for i in reversed(range(n)):
        X[:, i] /= M[:, i, i, None]
        X[:, :i] -= M[:, :i, i, None] * X[:, i, None]
    return X


def exactly(K: np.ndarray, a: np.ndarray) -> np.ndarray:
    """`K a`, as if summed in twice the digits: terms of 1e15 that cancel to one would leave 1e-4 of
    a plain sum, more than the fits that are judged by it.

    Each product and each partial sum is kept with its own rounding (Ogita, Rump & Oishi 2005).
    """
    total = np.zeros((len(K), *a.shape[1:]), WIDE)
    lost = np.zeros_like(total)
    for column, value in zip(K.T, a):
        term = np.multiply.outer(column, value)
        high, low = _halves(column)
        first, last = _halves(value)
        crossed = np.multiply.outer(high, last) + np.multiply.outer(low, first)
        of_term = np.multiply.outer(high, first) - term + crossed + np.multiply.outer(low, last)
        new = total + term
        added = new - total
        lost += (total - (new - added)) + (term - added) + of_term
        total = new
    return total + lost


def _halves(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two numbers of half the digits each, whose sum is v."""
    large = (WIDE(2) ** (np.finfo(WIDE).nmant // 2 + 1) + 1) * v
    high = large - (large - v)
    return high, v - high


def norm(v: np.ndarray) -> Any:
    return np.sqrt(np.sum(np.square(v)))


def ratio(a: Any, b: Any) -> Any:
    return a / b if b > 0 else a * np.inf if a > 0 else a * 0


def gram(problem, K, out, form) -> Figures:
    value, error = STRUCTURES[problem["structure"]].formula(
        problem["numbers"], np.asarray(problem["X"], WIDE)
    )
    # Of zero times an error without bound.
    error = np.where(np.isnan(error), np.inf, error) + TINY / EPS
    return {"error": (np.max(np.abs(K - value) / error), 16 * EPS)}


def kernel_ridge(problem, K, out, form, bar) -> Figures:
    targets = np.stack([problem["y"], problem["signs"]], 1).astype(WIDE)
    return _ridge(
        K, problem["weights"], problem["ridge"] + out.get("jitter", 0), targets, out, bar, form.bias
    )


def ridge_in_features(problem, K, out, form) -> Figures:
    features = problem["features"].astype(WIDE)
    targets = problem["y"][:, None]
    flat = out | {"coefficients": out["coefficients"][:, None], "bias": out["bias"][None]}
    return _ridge(
        features @ features.T,
        problem["weights"],
        problem["feature_ridge"],
        targets,
        flat,
        DENSE,
        form.bias,
    )


def _ridge(K, weights, ridge, targets, out, bar, bias) -> Figures:
    figures = {}
    for i, (a, b, y) in enumerate(zip(out["coefficients"].T, out["bias"], targets.T)):
        left = weights * (y - b - K @ a)
        figures[f"residual {i}"] = ratio(norm(left - ridge * a), norm(weights * y)), bar
        figures[f"slope in the bias {i}"] = (
            ratio(abs(np.sum(left)) if bias else 0, np.sum(weights * abs(y))),
            bar,
        )
    return figures


def solve(problem, K, out, form) -> Figures:
    off = problem["y"] - K @ out["x"] - (problem["ridge"] + out["jitter"]) * out["x"]
    return {"residual": (ratio(norm(off), norm(problem["y"])), DENSE)}


def leave_one_out(problem, K, out, form) -> Figures:
    # Every fit anew, without its point. A point without weight takes no part: its row and column
    # are those of the identity. (Were only its row, elimination would choose the largest entry of
    # its column as a pivot, and lose the row's zero.)
    n, weights, y, ridge = form.n, problem["weights"], problem["y"], problem["ridge"]
    rest = np.array([[j for j in range(n) if j != i] for i in range(n)])
    w = weights[rest]
    kept = (w[:, :, None] > 0) & (w[:, None, :] > 0)
    T = np.where(kept, w[:, :, None] * K[rest[:, :, None], rest[:, None, :]], 0)
    T[:, np.arange(n - 1), np.arange(n - 1)] += np.where(w > 0, ridge, 1)
    rhs = np.stack([w * y[rest], w], 2)
    both = solved(T, rhs)
    a, one = both[..., 0], both[..., 1]
    b = np.sum(a, 1) / np.sum(one, 1) if form.bias else np.zeros(n, WIDE)
    f = np.sum(K[np.arange(n)[:, None], rest] * (a - b[:, None] * one), 1) + b
    rounding = 64 * n * EPS + _unspoken(*weighed(problem, K, ridge, form)[::3], form)
    if form.route != "eager" and not np.all(np.isfinite(f)):
        rounding = np.inf  # what is left is singular
    digits = 2 * EPS**0.25  # of P and of its diagonal, where no warning is said
    bound = digits * np.max(np.abs(y - f)) + rounding * np.max(np.abs(y))
    bound = np.inf if np.isinf(rounding) else bound
    return {"error": (np.max(np.abs(out["residuals"] - (y - f))), bound)}


def generalised_cross_validation(problem, K, out, form) -> Figures:
    # The fit of every unit vector: its diagonal is what `N - tr H` adds up, without a difference.
    n, weights, y, ridge = form.n, problem["weights"], problem["y"], problem["ridge"]
    kept = weights > 0
    T = np.where(kept[:, None] & kept[None], weights[:, None] * K, 0)
    T[np.arange(n), np.arange(n)] += np.where(kept, ridge, 1)
    targets = np.concatenate([np.diag(weights), (weights * y)[:, None], weights[:, None]], 1)
    both = solved(T[None], targets[None])[0]
    fits, one = both[:, :-1], both[:, -1]
    if form.bias:
        fits = fits - one[:, None] * (np.sum(fits, 0) / np.sum(one))[None]
    safe = np.where(kept, weights, 1)
    left_out = np.where(kept, ridge * np.diagonal(fits) / safe, 0)
    left = np.sum(weights - kept) + np.sum(left_out)
    residuals = np.where(kept, ridge * fits[:, n] / safe, 0)
    N = np.sum(weights)
    value = N * np.sum(weights * residuals**2) / left**2
    digits = 2 * EPS**0.25 + _unspoken(*weighed(problem, K, ridge, form)[::3], form)
    size = np.max(np.abs(residuals))
    # Targets that are constant leave rounding alone.
    of_residuals = digits * size + 64 * n * EPS * np.max(np.abs(y))
    of_left = digits * np.sum(np.abs(left_out)) + 4 * n * EPS * np.sum(np.abs(weights - kept))
    of_ratio = 4 * ratio(of_left, np.abs(left)) * size**2
    bound = (N / left) ** 2 * (of_residuals * (2 * size + of_residuals) + of_ratio) + TINY
    if form.route != "eager" and not np.isfinite(bound):
        bound = np.inf  # singular, also to the widest floats
        value = out["value"]
    return {"error": (abs(out["value"] - value), bound)}


def _unspoken(M, slack, form) -> float:
    """The relative error that a warning would tell of, of functions that have no status, where it
    cannot be heard.
    """
    smallest = np.linalg.eigvalsh(M.astype(float))[0]
    relative = 16 * slack / smallest if smallest > 0 else np.inf
    return 0 if form.route == "eager" else relative if relative < 1e-2 else np.inf


def condition(problem, K, out, form) -> Figures:
    noise = problem["ridge"] + out["jitter"]
    one = out | {"coefficients": out["coefficients"][:, None], "bias": np.zeros(1)}
    figures = _ridge(K, problem["weights"], noise, problem["y"][:, None], one, DENSE, bias=False)
    M, K, roots, slack = weighed(problem, K, noise, form)
    explained = solved(M[None], (roots[:, None] * K)[None])[0]
    variance = np.diagonal(K) - np.sum(roots[:, None] * K * explained, 0)
    longest = np.sqrt(np.sum(explained**2, 0))
    bound = (
        slack * longest**2
        + np.sqrt(slack * EPS * form.n * np.diagonal(K)) * longest
        + 64 * EPS * np.diagonal(K)
        + TINY
    )
    # To first order; 1.1 was seen.
    figures["variance"] = (
        np.max(np.abs(out["variance"] - variance) / bound),
        2,
    )
    return figures | log_marginal_likelihood(problem, K, out, form)


def log_marginal_likelihood(problem, K, out, form) -> Figures:
    # Rounding acts like noise: the bound is what the change of the log density is, to first order,
    # for noise of that size.
    noise = problem["ridge"] + out.get("jitter", 0)
    M, _, roots, slack = weighed(problem, K, noise, form)
    r = roots * problem["y"]
    # Not alpha = M^-1 r by way of the inverse, whose rounding is that of the condition, here also
    # of the widest floats.
    both = solved(M[None], np.concatenate([r[:, None], np.eye(len(M), dtype=WIDE)], 1)[None])[0]
    alpha, inverse = both[:, 0], both[:, 1:]
    values = np.linalg.eigvalsh(M.astype(float))
    w = problem["weights"]
    density = (
        -(
            r @ alpha
            + log_determinant(M)
            + np.sum(w * np.log(2 * np.pi * WIDE(1)))
            - np.sum((1 - w) * np.log(noise))
        )
        / 2
    )
    bound = slack * (alpha @ alpha + np.trace(inverse)) + 64 * EPS * (
        abs(density) + r @ alpha + len(M)
    )
    if "jitter" not in out:
        bound = bound * (1 + _unspoken(M, slack, form))
    if density < -LARGEST / 2 and out["evidence"] == -np.inf:
        bound = np.inf
    # Of a function without a status the warning alone tells.
    heard = "jitter" in out or form.route == "eager"
    definite = values[0] > -EPS * len(M) * values[-1] or not heard
    bound = np.inf if np.isnan(density) and "jitter" not in out and form.route != "eager" else bound
    return {
        "evidence": (abs(out["evidence"] - density), bound),
        "indefinite": (not definite, False),
    }


def weighed(problem, K, noise, form):
    """`S K S + noise`, K, S, and what rounding, of a factorisation and of the kernel, amounts to on
    its diagonal.
    """
    roots = np.sqrt(problem["weights"])
    M = roots[:, None] * K * roots[None] + noise * np.eye(len(K), dtype=WIDE)
    slack = 4 * len(K) * (EPS * np.max(np.diagonal(M)) + 4 * error_of_kernel(problem, form))
    return M, K, roots, slack


def error_of_kernel(problem, form):
    """How far off an entry of K may be, where learners compute it by themselves."""
    if form.precomputed:
        return WIDE(0)
    _, error = STRUCTURES[problem["structure"]].formula(
        problem["numbers"], np.asarray(problem["X"], WIDE)
    )
    return EPS * np.max(np.diagonal(error))


def log_determinant(M: np.ndarray) -> Any:
    M, total = M.copy(), WIDE(0)
    for i in range(len(M)):
        pivot = M[i, i]
        total += np.log(pivot) if pivot > 0 else np.nan
        M[i + 1 :] -= (M[i + 1 :, i] / pivot)[:, None] * M[i]
    return total


def smooth(problem, K, out, form, loss) -> Figures:
    target = LOSSES[loss][1]
    slope = partial(SLOPES[loss], problem[target], problem)
    a, ridge, weights = out["coefficients"], problem["ridge"], problem["weights"]
    gradient = weights * slope(exactly(K, a) + out["bias"])
    at_zero = weights * slope(np.zeros_like(a))
    return conditions(K, ridge * a, gradient, at_zero, form)


def conditions(K, of_norm, of_loss, at_zero, form) -> Figures:
    """What is left of `of_norm + of_loss = 0`, each entry times its part in f, and with a bias of
    `sum of_loss = 0`.
    """
    root = np.sqrt(np.abs(np.diagonal(K))).reshape(-1, *[1] * (of_loss.ndim - 1))
    root = root / (np.max(root) or 1)
    terms = np.abs(of_loss) + np.abs(at_zero)
    entries = np.max(root * np.abs(of_norm + of_loss)), np.max(np.abs(of_norm) + terms)
    sums = np.max(np.abs(np.sum(of_loss, 0))) if form.bias else 0, np.sum(terms)
    # A K that is computed twice is rounded twice; 2.6 was seen.
    bar = NEWTON if form.precomputed else 4 * NEWTON
    return {"entries": (ratio(*entries), bar), "sums": (ratio(*sums), bar)}


def _sigmoid(f):
    return 1 / (1 + np.exp(-f))


SLOPES: dict[str, Callable] = {
    "Squared": lambda y, problem, f: f - y,
    "Huber": lambda y, problem, f: np.clip(f - y, -problem["delta"], problem["delta"]),
    "Logistic": lambda y, problem, f: -y * _sigmoid(-y * f),
    "SquaredHinge": lambda y, problem, f: -2 * y * np.maximum(1 - y * f, 0),
    "Poisson": lambda y, problem, f: np.exp(f) - y,
}


CURVATURES: dict[str, Callable] = {
    "Squared": lambda y, problem, f: np.ones_like(f),
    "Huber": lambda y, problem, f: (np.abs(f - y) <= problem["delta"]).astype(WIDE),
    "Logistic": lambda y, problem, f: 1 / (2 + np.exp(-f) + np.exp(f)),
    "SquaredHinge": lambda y, problem, f: 2 * (1 - y * f > 0).astype(WIDE),
    "Poisson": lambda y, problem, f: np.exp(f),
}


def over_centres(problem, K, out, form, loss) -> Figures:
    """The length of the step of Newton's method that is left, in the norm of the Hessian, beside
    that of the targets or of the function: small, and what is reported.
    """
    of = lambda function, f: function[loss](problem[LOSSES[loss][1]], problem, f)
    a, ridge, w = out["coefficients"], problem["ridge"], problem["weights"]
    C = K[:, :INDUCING]
    M = K[:INDUCING, :INDUCING] + out["jitter"] * np.eye(INDUCING, dtype=WIDE)
    f = np.where(w > 0, exactly(C, a), 0)  # of points removed, it may be beyond the range
    off = 4 * EPS * np.abs(C) @ np.abs(a)
    # Of a value at a kink either curvature will do, as of one that rounding moves.
    ends = (f, f - np.minimum(off, 1), f + np.minimum(off, 1))
    h = w * np.max([of(CURVATURES, value) for value in ends], 0)
    penalty = ridge**0.5 * _root(M).T
    R = _triangle(np.concatenate([np.sqrt(h)[:, None] * C, penalty]))
    length = lambda g: norm(solved(R.T[None], g[None, :, None]))
    zero = np.zeros_like(f)
    mean = np.sum(w * of(CURVATURES, zero)) / np.sum(w)
    targets = np.sqrt(np.sum(w * of(SLOPES, zero) ** 2) / (mean if mean > 0 else 1))
    size = max(targets, norm(R @ a))
    gradient = C.T @ (w * of(SLOPES, f)) + ridge * exactly(M, a)
    figure = ratio(length(gradient), size)
    # The rounding of f; that of products with C, each row moving its own way at worst; and that of
    # sums over rows and of the norm, each entry of the gradient moving its own way.
    terms = w * (np.abs(of(SLOPES, f)) + np.abs(of(SLOPES, zero)))
    of_rows = 4 * EPS * norm([length(s * c) for s, c in zip(terms, C)])
    sums = np.diag(EPS * (np.abs(C).T @ terms) + 4 * EPS * ridge * np.abs(M) @ np.abs(a))
    of_sums = norm([length(entry) for entry in sums])
    rounding = norm(np.sqrt(h) * off) + of_rows + of_sums
    rounding = ratio(rounding, size)
    return {
        "residual": (figure, 2 * EPS**0.5 + rounding),
        "reported": (abs(out["residual"] - figure), EPS**0.5 + rounding),
    }


def _root(M: np.ndarray) -> np.ndarray:
    """The lower triangular root of a matrix that is positive but for rounding."""
    M, L = M.copy(), np.zeros_like(M)
    for i in range(len(M)):
        L[i:, i] = M[i:, i] / np.sqrt(M[i, i]) if M[i, i] > 0 else 0
        M -= np.multiply.outer(L[:, i], L[:, i])
    return L


def _triangle(B: np.ndarray) -> np.ndarray:
    """R of `B = Q R`: columns made orthogonal one after the other, each twice."""
    Q, R = np.zeros_like(B), np.zeros((B.shape[1], B.shape[1]), B.dtype)
    for i, v in enumerate(B.T):
        for _ in range(2):
            along = Q.T @ v
            R[:, i] += along
            v = v - Q @ along
        R[i, i] = norm(v) or 1  # of a column of zeros
        Q[:, i] = v / R[i, i]
    return R


def kernel_softmax(problem, K, out, form) -> Figures:
    a, Y, weights = out["coefficients"], problem["classes"], problem["weights"][:, None]
    f = exactly(K, a) + out["bias"]
    P = np.exp(f - np.max(f, 1, keepdims=True))
    gradient = weights * (P / np.sum(P, 1, keepdims=True) - Y)
    figures = conditions(K, problem["ridge"] * a, gradient, weights * (1 / WIDE(3) - Y), form)
    sums = ratio(np.max(np.abs(np.sum(a, 1))), np.max(np.abs(a)))
    biases = ratio(abs(np.sum(out["bias"])), np.max(np.abs(out["bias"])))
    return figures | {"sums over classes": (sums, 64 * EPS), "biases": (biases, 64 * EPS)}


def machine(problem, K, out, form, box, tol, rounding=0, budget=None) -> Figures:
    """The gap between primal and dual of a quadratic programme in a box, and what the sum lacks,
    over the objective.

    What is off by a rounding of f, of the largest one, is not off; but unless the gap is small
    without that excuse, rounding must be small next to f. Bounds below the smallest normal float
    are zero: XLA flushes them.

    A `budget` is what the absolute values of the coefficients sum to where epsilon is a variable of
    the primal, of either sign.
    """
    targets, low, high, epsilon, total = box(problem, form)
    beta, bias = out["coefficients"], out["bias"]
    outside = np.max(np.maximum(beta - high, low - beta) / (np.abs(beta) + TINY))
    ample = 10 * np.max(np.abs(beta)) + ratio(np.max(np.abs(targets)), np.max(np.diagonal(K)))
    low, high = np.where(np.isinf(low), -ample, low), np.where(np.isinf(high), ample, high)
    low, high = (np.where(np.abs(bound) < TINY, 0, bound) for bound in (low, high))
    f = K @ beta
    off = targets - f - bias
    rounding = rounding + 32 * EPS * np.max(
        np.abs(K) @ np.abs(beta) + np.abs(targets) + np.abs(bias)
    )
    ends = off - rounding, off + rounding
    # Where a convex term may be least.
    within = np.stack([off, *ends, np.clip(-epsilon, *ends), np.clip(epsilon, *ends)])
    loss = high * np.maximum(within - epsilon, 0) + low * np.minimum(within + epsilon, 0)
    gap = np.sum(np.min(loss - beta * within + epsilon * np.abs(beta), 0))
    dual = beta @ targets - beta @ f / 2 - epsilon * np.sum(np.abs(beta))
    lacking = 0 if total is None else abs(total - np.sum(beta)) * np.max(np.abs(off))
    if budget is not None:
        spent = np.sum(np.abs(beta))
        dual = dual + epsilon * spent
        lacking = lacking + abs(epsilon * (budget - spent))
    objective = max(abs(dual + gap), abs(dual))
    # Of a gap that is computed in float32: 1.6 times that of the certificate, as seen.
    slack = 1.05 if EPS < 1e-10 else 1.7
    figures = {
        "gap": (ratio(gap + lacking, objective), slack * tol + 64 * EPS),
        "outside": (outside, 4 * EPS),
    }
    blur = EPS * np.max(np.abs(K) @ np.abs(beta))
    strict = (
        high * np.maximum(off - epsilon, 0)
        + low * np.minimum(off + epsilon, 0)
        - beta * off
        + epsilon * np.abs(beta)
    )
    if np.sum(strict) + lacking <= tol * objective:
        blur = blur * 0  # the gap is small as it stands
    figures["rounding"] = ratio(blur, max(np.max(np.abs(targets)), np.max(np.abs(f)))), 2 * tol
    if total is None and not form.bias:
        figures["bias"] = (abs(bias), 0)
    return figures


def _of_C(problem, form, target, C, epsilon):
    bound = problem[C] * problem["weights"]
    y, total = problem[target], WIDE(0) if form.bias else None
    if target == "signs":
        return y, np.where(y > 0, 0, -bound), np.where(y > 0, bound, 0), WIDE(0), total
    return y, -bound, bound, epsilon(problem), total


def _of_pinball(problem, form):
    y, low, high, epsilon, total = _of_C(
        problem, form, "y", "target_inverse", lambda problem: WIDE(0)
    )
    return y, (1 - problem["tau"]) * low, problem["tau"] * high, epsilon, total


def _of_one_class(problem, form):
    weights = problem["weights"]
    return (
        np.zeros_like(weights),
        np.zeros_like(weights),
        weights,
        WIDE(0),
        problem["nu"] * np.sum(weights),
    )


def nu_svm(problem, K, out, form) -> Figures:
    """Before the division by rho, where it is a tube of the negative width -rho."""
    rho, w = out["rho"], problem["weights"]

    def box(problem, form):
        high = np.where(problem["signs"] > 0, w, 0)
        return np.zeros_like(w), high - w, high, -rho, WIDE(0)

    of_g = out | {"coefficients": rho * out["coefficients"], "bias": rho * out["bias"]}
    # g on the margin of either class is rounded as rho and its bias are.
    rounding = 32 * EPS * rho
    budget = out["nu"] * np.sum(w)
    return machine(problem, K, of_g, form, box, SMO.rtol, rounding, budget)


def nu_support_vector_regression(problem, K, out, form) -> Figures:
    def box(problem, form):
        bound = problem["target_C"] * problem["weights"]
        return problem["y"], -bound, bound, out["epsilon"], WIDE(0)

    budget = problem["nu"] * problem["target_C"] * np.sum(problem["weights"])
    figures = machine(problem, K, out, form, box, SMO.rtol, 32 * EPS * out["epsilon"], budget)
    figures["spent"] = (np.sum(np.abs(out["coefficients"])), budget * (1 + 64 * EPS))
    return figures


tube = lambda problem: problem["epsilon"]
none = lambda problem: WIDE(0)
BOXES = {
    "Hinge": partial(_of_C, target="signs", C="margin_inverse", epsilon=none),
    "Absolute": partial(_of_C, target="y", C="target_inverse", epsilon=none),
    "Pinball": _of_pinball,
    "EpsilonInsensitive": partial(_of_C, target="y", C="target_inverse", epsilon=tube),
}


def lasso(problem, K, out, form) -> Figures:
    Phi, y, w, c = problem["features"], problem["y"], problem["weights"], out["coefficients"]
    centre, level = (
        (w @ Phi / np.sum(w), w @ y / np.sum(w)) if form.bias else (np.zeros_like(c), WIDE(0))
    )
    weighted = w[:, None] * (Phi - centre)
    gram, targets = weighted.T @ (Phi - centre), weighted.T @ (y - level)
    free = np.full_like(c, np.inf)
    # Of targets that are differences from their mean.
    rounding = 64 * form.n * EPS * (np.abs(weighted).T @ np.abs(y))
    box = lambda problem, form: (targets, -free, free, problem["penalty"] / 2, None)
    figures = machine(problem, gram, out | {"bias": WIDE(0)}, form, box, LASSO.rtol, rounding)
    bias = w @ (y - Phi @ c) / np.sum(w) if form.bias else WIDE(0)
    return figures | {"bias": (abs(out["bias"] - bias), 64 * EPS * (norm(y) + norm(centre * c)))}


def kernel_perceptron(problem, K, out, form) -> Figures:
    margin = problem["signs"] * (K @ out["coefficients"] + out["bias"])
    rounding = 4 * EPS * (out["mistakes"] + form.n) * problem["rate"] * np.max(
        np.abs(K)
    ) + 4 * EPS * abs(problem["threshold"])
    return {"mistake": (np.max(-margin), rounding)}


def platt(problem, K, out, form) -> Figures:
    f, y, w = problem["values"], problem["signs"], problem["weights"]
    plus, minus = np.sum(w[y > 0]), np.sum(w[y < 0])
    off = w * (out["probabilities"] - np.where(y > 0, (plus + 1) / (plus + 2), 1 / (minus + 2)))
    centred = f - np.sum(w * f) / np.sum(w)
    if np.max(np.abs(centred[w > 0])) <= 10 * EPS * np.max(np.abs(f[w > 0])):
        # Values that differ by no more than their rounding have no slope.
        centred = np.zeros_like(f)
    tilt = ratio(abs(np.sum(off * centred)), np.sum(w * np.abs(centred)))
    return {"level": (abs(np.sum(off)) / np.sum(w), DENSE), "tilt": (tilt, DENSE)}


def isotonic(problem, K, out, form) -> Figures:
    f, y, w = problem["values"], problem["signs"], problem["weights"]
    kept = w > 0
    values = np.unique(f[kept])
    mass = [np.sum(w[kept & (f == value)]) for value in values]
    hits = [np.sum(w[kept & (f == value) & (y > 0)]) for value in values]
    blocks: list[list] = []
    for m, h in zip(mass, hits):  # pools of neighbours that violate the order
        blocks.append([m, h, 1])
        while len(blocks) > 1 and blocks[-2][1] * blocks[-1][0] >= blocks[-1][1] * blocks[-2][0]:
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last)]
    rising = np.concatenate([np.full(size, h / m) for m, h, size in blocks])
    error = np.abs(
        out["probabilities"]
        - np.interp(f.astype(float), values.astype(float), rising.astype(float))
    )
    return {
        "error": (np.max(error[kept]), 64 * EPS),
        "range": (np.max(np.abs(out["probabilities"] - 0.5)), 0.5),
    }


def pairwise_coupling(problem, K, out, form) -> Figures:
    """The conditions of the minimum: `Q p` has equal entries (Wu, Lin & Weng 2004, eq. 19)."""
    r, p = out["r"], out["probabilities"]
    Q = np.diag(np.sum(r * r, 0)) - r * r.T
    return {
        "slopes": (np.ptp(Q @ p), 64 * EPS),
        "sum": (abs(np.sum(p) - 1), 8 * EPS),
        "range": (np.max(np.abs(p - 0.5)), 0.5),
    }


def eigenpairs(problem, K, out, form) -> Figures:
    figures, largest = {}, _of_the_kernel(problem, K, form) * form.n
    for i, (value, c) in enumerate(zip(out["eigenvalues"] * form.n, out["coefficients"].T)):
        figures[f"residual {i}"] = norm(K @ c - value * c), 64 * form.n * EPS * largest * norm(c)
        size = norm(c) * value / form.n ** WIDE(0.5)
        figures[f"size {i}"] = abs(size - 1), 64 * form.n * EPS
    return figures


def empirical_features(problem, K, out, form) -> Figures:
    largest = np.max(np.abs(np.linalg.eigvalsh(K.astype(float))))
    # The root itself, rounded, keeps half of the digits.
    error = np.max(np.abs(K @ out["root"] @ out["root"] @ K - K))
    return {"error": (error, 64 * form.n * np.sqrt(EPS) * largest)}


def _of_the_kernel(problem, K, form):
    """The size of the entries of K; of their rounding errors too, where learners compute K by
    themselves.
    """
    if form.precomputed:
        return np.max(np.abs(K))
    _, error = STRUCTURES[problem["structure"]].formula(
        problem["numbers"], np.asarray(problem["X"], WIDE)
    )
    return np.max(np.abs(K)) + np.max(error)


def maximum_mean_discrepancy(problem, K, out, form) -> Figures:
    m = form.n // 3
    off = K - np.diag(np.diagonal(K))
    n = form.n - m
    value = (
        np.sum(off[:m, :m]) / (m * (m - 1))
        + np.sum(off[m:, m:]) / (n * (n - 1))
        - 2 * np.mean(K[:m, m:])
    )
    return {
        "error": (
            abs(out["value"] - value),
            16 * form.n * EPS * _of_the_kernel(problem, K, form) + TINY,
        )
    }


def hsic(problem, K, out, form) -> Figures:
    n = form.n
    H = np.eye(n, dtype=WIDE) - WIDE(1) / n
    y = problem["y"]
    value = np.sum((H @ K @ H) * (y[:, None] * y[None])) / n**2
    K_size, y_size = _of_the_kernel(problem, K, form), np.max(y**2)
    return {
        "error": (
            abs(out["value"] - value),
            64 * EPS * K_size * y_size + TINY * (1 + K_size + y_size),
        )
    }


def _machines(box: Callable, tol: float) -> Callable:
    return partial(machine, box=box, tol=tol)


_svm = partial(_of_C, target="signs", C="C", epsilon=none)
_regression = partial(_of_C, target="y", C="target_C", epsilon=tube)
REFEREES: dict[str, Callable[..., Figures]] = {
    "gram": gram,
    "kernel_ridge": partial(kernel_ridge, bar=DENSE),
    "kernel_ridge in blocks": partial(kernel_ridge, bar=ITERATIVE),
    "kernel_ridge in features": ridge_in_features,
    "solve": solve,
    "leave_one_out": leave_one_out,
    "generalised_cross_validation": generalised_cross_validation,
    "ridge_path": partial(kernel_ridge, bar=DENSE),
    "leave_one_out_path": leave_one_out,
    "condition": condition,
    "log_marginal_likelihood": log_marginal_likelihood,
    "kernel_logistic": partial(smooth, loss="Logistic"),
    "kernel_logistic on a path": partial(smooth, loss="Logistic"),
    "kernel_softmax": kernel_softmax,
    "svm": _machines(_svm, SMO.rtol),
    "svm by gradients": _machines(_svm, SMO.rtol),
    "support_vector_regression": _machines(_regression, SMO.rtol),
    "support_vector_regression by gradients": _machines(_regression, SMO.rtol),
    "one_class_svm": _machines(_of_one_class, SMO.rtol),
    "one_class_svm by gradients": _machines(_of_one_class, SMO.rtol),
    "nu_svm": nu_svm,
    "nu_support_vector_regression": nu_support_vector_regression,
    **{f"regularised_risk of {loss}": partial(smooth, loss=loss) for loss in SLOPES},
    **{f"regularised_risk of {loss}": _machines(box, SMO.rtol) for loss, box in BOXES.items()},
    **{f"falkon of {loss}": partial(over_centres, loss=loss) for loss in SLOPES},
    "lasso": lasso,
    "kernel_perceptron": kernel_perceptron,
    "platt": platt,
    "isotonic": isotonic,
    "pairwise_coupling": pairwise_coupling,
    "eigenpairs": eigenpairs,
    "empirical_features": empirical_features,
    "maximum_mean_discrepancy": maximum_mean_discrepancy,
    "hsic": hsic,
}


def widened(arrays: dict) -> dict:
    """Floats at their widest; with the reciprocals that the learners take."""
    wide = {
        name: np.asarray(value, WIDE) if np.asarray(value).dtype.kind == "f" else value
        for name, value in arrays.items()
    }
    for name in ("margin", "target"):
        if f"{name}_ridge" in wide:
            # rounded, as the learner's is.
            wide[f"{name}_inverse"] = (1 / arrays[f"{name}_ridge"]).astype(WIDE)
    wide["numbers"] = arrays.get("numbers")
    return wide
