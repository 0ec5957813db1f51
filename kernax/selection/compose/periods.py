"""Periods that a series of numbers may have: the evidence has a narrow maximum around each."""

import numpy as np
from jaxtyping import Float

_OVERSAMPLING = 4  # frequencies within the width of a peak
_DEGREE = 3  # of the polynomial that is taken out first, as a trend looks like a long period
_MOST_FREQUENCIES = 2000


def leading_periods(
    x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], count: int
) -> list[float]:
    """The periods of the highest peaks of the periodogram of y over x, the highest first.

    Each frequency is fitted by least squares, so that x need not be evenly spaced (Lomb 1976). A
    cubic polynomial is removed first. Periods lie between two median spacings of x and half of its
    range; there are fewer than `count` if there are fewer peaks, and none for fewer than five
    different x.
    """
    values = np.unique(x)
    if len(values) < _DEGREE + 2:
        return []
    # Several frequencies within the width of a peak.
    span = values[-1] - values[0]
    lowest = 2 / span
    highest = 1 / (2 * np.median(np.diff(values)))
    number = int(_OVERSAMPLING * span * (highest - lowest))
    frequencies = np.linspace(lowest, highest, min(max(number, 3), _MOST_FREQUENCIES))
    centred = (x - values[0]) / span
    residual = y - np.polyval(np.polyfit(centred, y, _DEGREE), centred)
    # By how much the squares of y fall if a sine and a cosine of each frequency are fitted.
    angles = 2 * np.pi * frequencies[:, None] * (x - x.mean())
    sines = np.sin(angles)
    cosines = np.cos(angles)
    ss = np.sum(sines * sines, 1)
    cc = np.sum(cosines * cosines, 1)
    sc = np.sum(sines * cosines, 1)
    sy = sines @ residual
    cy = cosines @ residual
    determinant = ss * cc - sc**2
    # Where both are nearly the same function, there is nothing to fit.
    safe = np.where(determinant > 1e-9 * ss * cc, determinant, np.inf)
    powers = (cc * sy**2 - 2 * sc * sy * cy + ss * cy**2) / safe
    inner = powers[1:-1]
    peaks = 1 + np.flatnonzero((inner > powers[:-2]) & (inner >= powers[2:]))
    leading = peaks[np.argsort(-powers[peaks], kind="stable")][:count]
    return (1 / frequencies[leading]).tolist()
