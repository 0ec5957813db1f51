"""A loss on held-out data, which decides which model is kept."""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array

from kernax.core.base.parameters import check_count
from kernax.core.base.printing import Printed


class Validation(Printed):
    """A loss `loss(model, *args)` on held-out data; learning returns the model that minimises it.

    `minimise` and `multi_start` evaluate it at every step, inside the compiled loop. If a model has
    too many parameters for its data, the training loss keeps falling while the loss on new data
    rises; learning then stops early, at the lowest validation loss. That minimum is itself a little
    optimistic, as any minimum over noisy values is: judge the model on a third part of the data.

    Arguments:
        loss: any loss, often the one that is minimised. Define it once, at module level, and pass
            the data through `args`; other arrays there do not compile again.
        args: the arguments of `loss` after the model, such as `(X_held_out, y_held_out)`.
        patience: the number of steps without an improvement after which learning stops; another
            number compiles again. With None learning does not stop early, and only the best model
            is kept.

    A loss of NaN or inf is never the lowest, and counts as no improvement.

    Raises ValueError for arguments of the wrong kind.

    Examples:
        >>> import optax
        >>> def loss(kernel, X, y):
        ...     return jnp.sum(kernax.leave_one_out(kernel, X, y, ridge=0.1) ** 2)
        ...
        >>> X = jnp.linspace(0.0, 1.0, 10)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> validation = kernax.selection.Validation(loss, args=(X[1::2], y[1::2]), patience=5)
        >>> data = {"args": (X[::2], y[::2]), "validation": validation}
        >>> solution = kernax.minimise(loss, kernax.RBF(1.0), optax.adam(0.1), 20, **data)
        >>> solution.stats["validation_loss"].shape
        ()
    """

    loss: Callable[..., Array]
    args: tuple = ()
    patience: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if not callable(self.loss):
            raise ValueError(
                "the loss of a Validation must be a function of a model, but is of type "
                f"{type(self.loss).__name__}"
            )
        if not isinstance(self.args, tuple):
            raise ValueError(
                "the args of a Validation must be a tuple of the arguments of its loss after the "
                f"model, but are of type {type(self.args).__name__}"
            )
        if self.patience is not None:
            check_count(self.patience, "the patience of a Validation", hint=": or pass None")


def check_validation(validation: object) -> None:
    """Raises ValueError for anything but a `Validation` or None."""
    if validation is not None and not isinstance(validation, Validation):
        raise ValueError(
            "validation must be a kernax.selection.Validation(loss, args=(X, y)), but is of type "
            f"{type(validation).__name__}"
        )
