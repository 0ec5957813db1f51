"""Translates kernel objects of `sklearn.gaussian_process.kernels` into kernels of kernax, and
back.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process import kernels as theirs

from kernax import kernels
from kernax.core.base.parameters import parameters
from kernax.core.kernel.kernel import AbstractKernel, Constant, Power, Product, Scaled, Sum

_MATERN = {0.5: "Matern12", 1.5: "Matern32", 2.5: "Matern52", np.inf: "RBF"}


class Parts(NamedTuple):
    """A translated scikit-learn kernel: the kernel, None if it is only noise, and its noise.

    The noise is the sum of the `noise_level` of its `WhiteKernel`s.
    """

    kernel: AbstractKernel | None
    noise: float = 0.0


def translated(kernel: theirs.Kernel, columns: int) -> Parts:
    """The translated kernel for points with so many columns.

    Raises ValueError for a kernel without a counterpart, and for a `WhiteKernel` inside a product
    or a power, or alone.
    """
    parts = _parts(kernel)
    if parts.kernel is None:
        raise ValueError("WhiteKernel alone is noise: add it to a kernel, as in RBF() + ...")
    if columns > 1 and _is_inside(theirs.ExpSineSquared, kernel):
        raise ValueError(
            "ExpSineSquared of more than one column is not positive semidefinite: use "
            "kernax.Periodic, a product over the columns"
        )
    return parts


def _is_inside(kind: type, kernel: Any) -> bool:
    inner = [getattr(kernel, name) for name in ("k1", "k2", "kernel") if hasattr(kernel, name)]
    return isinstance(kernel, kind) or any(_is_inside(kind, part) for part in inner)


def _matern(kernel: theirs.Matern) -> AbstractKernel:
    if kernel.nu not in _MATERN:
        return kernels.Matern(kernel.nu, kernel.length_scale)
    return getattr(kernels, _MATERN[kernel.nu])(kernel.length_scale)


# Kernels that hold no others.
_SIMPLE: dict[type, Callable[[Any], AbstractKernel]] = {
    theirs.ConstantKernel: lambda k: Constant(k.constant_value),
    theirs.RBF: lambda k: kernels.RBF(k.length_scale),
    theirs.Matern: _matern,
    theirs.RationalQuadratic: lambda k: kernels.RationalQuadratic(k.length_scale, k.alpha),
    theirs.ExpSineSquared: lambda k: kernels.Periodic(k.length_scale, k.periodicity),
    theirs.DotProduct: lambda k: Sum(kernels.Linear(), Constant(k.sigma_0**2)),
}


def _parts(kernel: Any) -> Parts:
    """The kernel and the noise of a scikit-learn kernel, by the first of its classes that is
    known.
    """
    for kind in type(kernel).__mro__:
        if kind in _SIMPLE:
            return Parts(_SIMPLE[kind](kernel))
        if kind in _COMPOSED:
            return _COMPOSED[kind](kernel)
    raise ValueError(
        f"{type(kernel).__name__} of scikit-learn has no counterpart here: pass a kernel of kernax"
    )


def _without_noise(kernel: theirs.Kernel) -> AbstractKernel:
    parts = _parts(kernel)
    if parts.kernel is None or parts.noise:
        raise ValueError(
            "WhiteKernel must be a term of the whole sum: a scaled one is another noise_level"
        )
    return parts.kernel


def _power(kernel: theirs.Exponentiation) -> Parts:
    if kernel.exponent != int(kernel.exponent):
        raise ValueError(f"the exponent of a kernel must be whole, but is {kernel.exponent}")
    return Parts(Power(_without_noise(kernel.kernel), int(kernel.exponent)))


def _product(kernel: theirs.Product) -> Parts:
    left = _without_noise(kernel.k1)
    right = _without_noise(kernel.k2)
    if isinstance(left, Constant):
        return Parts(Scaled(right, left.value))
    return Parts(Product(left, right))


def _sum(kernel: theirs.Sum) -> Parts:
    left = _parts(kernel.k1)
    right = _parts(kernel.k2)
    terms = [part.kernel for part in (left, right) if part.kernel is not None]
    noise = left.noise + right.noise
    if len(terms) == 2:
        return Parts(Sum(*terms), noise)
    return Parts(terms[0] if terms else None, noise)


def _refuse_several(kernel: theirs.CompoundKernel) -> Parts:
    raise ValueError("kernel cannot be a CompoundKernel, which is one for each of several models")


_COMPOSED: dict[type, Callable[[Any], Parts]] = {
    theirs.CompoundKernel: _refuse_several,
    theirs.WhiteKernel: lambda k: Parts(None, k.noise_level),
    theirs.Exponentiation: _power,
    theirs.Product: _product,
    theirs.Sum: _sum,
}


def is_free(kernel: theirs.Kernel, columns: int) -> dict[str, Any]:
    """Which parameters of the translated kernel are not "fixed", by their paths, and "noise".

    These are the parameters that theta contains.
    """
    moved = kernel.clone_with_theta(kernel.theta + 1)
    here = translated(kernel, columns)
    there = translated(moved, columns)
    pairs = zip(parameters(here.kernel), parameters(there.kernel))
    free = {f"kernel.{a.path}": np.asarray(a.value) != np.asarray(b.value) for a, b in pairs}
    return free | {"noise": here.noise != there.noise}


def written_back(kernel: theirs.Kernel, ours: AbstractKernel, noise_ratio: float) -> theirs.Kernel:
    """The scikit-learn kernel with the present parameters of its translation.

    The levels of its `WhiteKernel`s are multiplied by a number.
    """
    if isinstance(kernel, theirs.WhiteKernel):
        return _with(kernel, noise_level=kernel.noise_level * noise_ratio)
    if isinstance(kernel, theirs.Exponentiation):
        inner = written_back(kernel.kernel, ours.kernel, noise_ratio)
        return theirs.Exponentiation(inner, kernel.exponent)
    if isinstance(kernel, (theirs.Sum, theirs.Product)):
        left, right = _sides(kernel, ours)
        first = written_back(kernel.k1, left, noise_ratio)
        return type(kernel)(first, written_back(kernel.k2, right, noise_ratio))
    return _with(kernel, **_values(kernel, ours))


def _sides(kernel: Any, ours: Any) -> tuple[Any, Any]:
    """The translations of the two kernels of a sum or a product."""
    if isinstance(ours, Scaled) and isinstance(kernel, theirs.Product):
        return Constant(ours.scale), ours.kernel
    first_is_noise = isinstance(kernel, theirs.Sum) and _parts(kernel.k1).kernel is None
    second_is_noise = isinstance(kernel, theirs.Sum) and _parts(kernel.k2).kernel is None
    if first_is_noise or second_is_noise:
        return ours, ours
    return ours.terms[0], ours.terms[1]


def _values(kernel: Any, ours: Any) -> dict[str, Any]:
    """The parameters of a scikit-learn kernel that contains no other."""
    if isinstance(kernel, theirs.ConstantKernel):
        return {"constant_value": ours.value}
    if isinstance(kernel, theirs.DotProduct):
        return {"sigma_0": np.sqrt(ours.terms[1].value)}
    values = {"length_scale": ours.lengthscale}
    if isinstance(kernel, theirs.RationalQuadratic):
        values["alpha"] = ours.alpha
    if isinstance(kernel, theirs.ExpSineSquared):
        values["periodicity"] = ours.period
    return values


def _with(kernel: theirs.Kernel, **values: Any) -> theirs.Kernel:
    """A copy with other values, numbers where they are scalars."""
    arrays = {name: np.asarray(value, float) for name, value in values.items()}
    plain = {name: array if array.ndim else float(array) for name, array in arrays.items()}
    return clone(kernel).set_params(**plain)
