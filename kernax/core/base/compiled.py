"""Compiled functions, for the private part of every public function."""

import abc
from collections.abc import Callable
from functools import wraps

import equinox as eqx

from kernax.core.base.forks import check_not_forked


class AbstractCheckedFirst(eqx.Module):
    """An argument of compiled functions that is asked before any of them is compiled."""

    @abc.abstractmethod
    def check_before(self, function: Callable, args: tuple) -> None:
        """Raises an exception where the function must not be called with these arguments."""


def compiled(function: Callable) -> Callable:
    """`eqx.filter_jit`, which first asks the arguments that are to be asked."""
    jitted = eqx.filter_jit(function)

    @wraps(function)
    def asked(*args, **kwargs):
        check_not_forked()
        for argument in args:
            if isinstance(argument, AbstractCheckedFirst):
                argument.check_before(function, args)
        return jitted(*args, **kwargs)

    return asked
