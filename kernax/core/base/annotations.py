"""Names for annotations: what JAX takes for an array, and the array that a parameter holds."""

from typing import TYPE_CHECKING, Any, overload

from jax import Array

if TYPE_CHECKING:
    from jaxtyping import ArrayLike as ArrayLike

    class ParameterArray:
        """For type checkers a descriptor: a parameter is read as an array, and the constructor of
        its module takes whatever can be made one.
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

        `jaxtyping.ArrayLike` is a union, which `help` would print in full for each argument.
        """

    ArrayLike.__module__ = "builtins"  # of which `help` prints the bare name
