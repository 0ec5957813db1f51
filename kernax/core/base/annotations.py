"""Type annotations: arguments that JAX accepts as arrays, and the arrays of parameters."""

from typing import TYPE_CHECKING, Any, overload

from jax import Array

__all__ = ["ArrayLike", "ParameterArray"]

if TYPE_CHECKING:
    from jaxtyping import ArrayLike

    class ParameterArray:
        """A descriptor for type checkers: a parameter is an array when read, and the constructor of
        its module accepts anything that can be converted to an array.
        """

        @overload
        def __get__(self, instance: None, owner: type) -> "ParameterArray": ...
        @overload
        def __get__(self, instance: object, owner: type) -> Array: ...
        def __get__(self, instance: object, owner: type) -> Any: ...
        def __set__(self, instance: object, value: "ArrayLike | list | tuple") -> None: ...

else:
    from typing import get_args

    import jaxtyping

    ParameterArray = Array
    _ACCEPTED = get_args(jaxtyping.ArrayLike)

    class _ArrayLike(type):
        def __instancecheck__(cls, value):
            return isinstance(value, _ACCEPTED)

    class ArrayLike(metaclass=_ArrayLike):
        """An array of JAX or NumPy, or a number of Python or NumPy.

        `jaxtyping.ArrayLike` is a union, and `help` would print it in full for each argument.
        """

    ArrayLike.__module__ = "builtins"  # so that `help` prints the bare name
