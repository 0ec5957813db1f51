"""Kernels that are used less often than those in `kernax` itself, such as `kernax.RBF`.

Each kernel has one address, which its entry on the API page shows.
"""

# May import: kernax.core.

from kernax import _lazy

# A name is imported when it is first used; `__init__.pyi` has the names.
__getattr__, __dir__ = _lazy(__name__, __file__)
