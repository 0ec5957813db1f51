"""`learn=`: what may be learned by what."""

from typing import Any

EVIDENCE = "evidence"
LEAVE_ONE_OUT = "leave_one_out"
CROSS_VALIDATION = "cross_validation"


def check_learn(estimator: Any, sample_weight: Any) -> None:
    """Raises ValueError for a `learn=` that estimator, kernel or weights do not allow."""
    learn = getattr(estimator, "learn", None)
    if learn is None:
        return
    known = estimator._learns_by
    name = type(estimator).__name__
    if learn != known:
        raise ValueError(f"learn must be {known!r} or None for {name}, but is {learn!r}")
    if not estimator._is_learned:
        return
    if sample_weight is not None and known == CROSS_VALIDATION:
        raise ValueError(f"learn={known!r} takes no sample_weight: leave out one of them")
    if estimator._is_matrix:
        given = "kernel='precomputed'" if estimator._is_precomputed else "a function as kernel"
        raise ValueError(f"learn={known!r} has nothing to learn in {given}")
