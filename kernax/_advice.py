"""The advice that learners give if their dense matrices do not fit into memory, or a kernel lacks
the features that they need.

The only texts that name public functions above the package that says them. Users call learners
directly, so nothing above a learner could hand the advice down to it.
"""

IN_FEATURES = "kernax.nystrom(kernel, X, m, key=key) as the kernel, for a fit in m features"
WITH_FEATURES = "FeatureMap(kernax.bases.empirical_features(kernel, Z))"
OF_STATIONARY = "random_fourier_features(kernel, ...), which approximates stationary kernels"
COMPARED = "; kernax.recommend(kernel, n, d) compares these"
CONFORMANCE = "kernax.testing.check_conformance(kernel, X) tests a kernel of your own."
OVER_A_MESH = "kernax.scale.rows_over(mesh, X, y, weights)"
IN_BLOCKS = "block_size=... (a number of rows) for a fit that holds blocks"


def over_centres(more: str = "") -> str:
    """A fit over centres, by some more arguments."""
    return f"kernax.falkon(kernel, X, y, ridge, m, key=key{more}) for a fit over m centres"
