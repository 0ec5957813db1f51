"""What is left of the conditions of optimality of a smooth risk, and what rounding lets be known of it."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, Bool, Float

from kernax.core.cancellation import careful_product, extra_bits
from kernax.core.newton import Misfit
from kernax.core.numerics import product, stopped


def values_of(operator: lx.AbstractLinearOperator, a: Float[Array, "n *c"]) -> Float[Array, "n *c"]:
    """`K a`. Where a third of the digits cancels in the sum, and K is held, its value is that of `careful_product`."""
    plain = operator.mv(a) if a.ndim == 1 else jax.vmap(operator.mv, 1, 1)(a)
    if not isinstance(operator, lx.MatrixLinearOperator):
        return plain
    K, fixed, f = stopped((operator.matrix, a, plain))
    root = jnp.sqrt(abs(jnp.diagonal(K)))
    terms = jnp.max(root) * jnp.max(product(root, abs(fixed)))
    cancels = terms * float(jnp.finfo(f.dtype).eps) ** (1 / 3) > jnp.max(abs(f))
    careful = partial(careful_product, K)
    value = lax.cond(cancels, careful if a.ndim == 1 else jax.vmap(careful, 1, 1), lambda _: f, fixed)
    return plain + (value - f)


def is_finite(operator: lx.AbstractLinearOperator) -> Bool[Array, ""]:
    """Whether K holds no NaN and no inf, of which a fit that ends where it starts would see none: its row means show one."""
    n, dtype = operator.in_size(), operator.in_structure().dtype
    return jnp.all(jnp.isfinite(stopped(operator).mv(jnp.full(n, 1 / n, dtype))))


def unseen(operator: lx.AbstractLinearOperator, dtype: Any) -> float:
    """The share of the rounding of f by cancelling terms that `values_of` does not see; of the bound by Cauchy and Schwarz."""
    held = isinstance(operator, lx.MatrixLinearOperator)
    return 2.0 ** -extra_bits(operator.in_size(), dtype) if held else 1 / 16


def misfit_of(
    root: Array, of_norm: Array, of_loss: Array, rounding: Array, at_zero: Array, bias: bool, unseen: float
) -> Misfit:
    """The misfit of `of_norm + of_loss = 0`, each entry times `root`, its part in f, and with a bias of `sum of_loss = 0`.

    Rounding, of which Newton's method grants four times, excuses no more than a third of `eps^(1/3)` of the terms and of the
    gradient at f = 0. Where what is unseen of it exceeds a quarter of that, it counts as left.
    """
    root = root / jnp.where(jnp.any(root > 0), jnp.max(root), 1)
    terms = abs(of_loss) + at_zero
    largest = jnp.max(terms)
    most = float(jnp.finfo(root.dtype).eps) ** (1 / 3) / 12 * largest
    entries = abs(of_norm + of_loss), abs(of_norm) + abs(of_loss), rounding
    misfit = Misfit(*(jnp.max(root * entry)[None] for entry in entries))
    if bias:
        sums = abs(jnp.sum(of_loss, 0)), jnp.sum(abs(of_loss), 0), jnp.sum(rounding, 0)
        misfit = jax.tree.map(lambda one, other: jnp.append(one, jnp.max(other)), misfit, Misfit(*sums))
        length = jnp.sqrt(jnp.sum((terms / jnp.where(largest > 0, largest, 1)) ** 2))  # of a gradient, in its largest entry
        most = most * jnp.stack([jnp.ones_like(length), length])
    hidden = unseen * misfit.rounding
    left = misfit.left + jnp.where(hidden > most, 4 * hidden, 0)
    return Misfit(left, misfit.size, jnp.minimum(misfit.rounding, most))
