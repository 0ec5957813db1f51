"""Names of classes as one-hot columns for learners and scores."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float


def columns_of_classes(labels: np.ndarray, classes: Sequence[str]) -> Float[np.ndarray, "n c"]:
    """One-hot columns (n, c) of labels: one where the label is the column's class, zero elsewhere.

    Unlike `kernax.one_hot` this takes the classes as an argument, so that rows without one of them
    have the same columns.

    Arguments:
        labels: (n,), the class of each row.
        classes: all classes, c >= 2, in the order of the columns.

    Raises ValueError for a label that is not among the classes.
    """
    columns = labels[:, None] == np.asarray(list(classes))
    unknown = ~columns.any(1)
    if unknown.any():
        stranger = labels[unknown.argmax()]
        raise ValueError(
            f"labels hold {str(stranger)!r}, which is not among the classes "
            f"{', '.join(map(str, classes))}"
        )
    return np.where(columns, 1.0, 0.0)
