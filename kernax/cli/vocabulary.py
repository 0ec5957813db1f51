"""The names that a kernel expression may use, and what kernels of these names compare."""

import difflib

from kernax.core.kernel import AbstractKernel, Constant, parts_of
from kernax.kernels import (
    RBF,
    AllSubsequences,
    AllSubstrings,
    BlendedSpectrum,
    Cosine,
    GammaExponential,
    Linear,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Mismatch,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Spectrum,
    Subsequence,
)

KERNELS: dict[str, type[AbstractKernel]] = {
    "rbf": RBF,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "matern": Matern,
    "rational_quadratic": RationalQuadratic,
    "gamma_exponential": GammaExponential,
    "periodic": Periodic,
    "cosine": Cosine,
    "linear": Linear,
    "polynomial": Polynomial,
    "constant": Constant,
}
STRING_KERNELS: dict[str, type[AbstractKernel]] = {
    "spectrum": Spectrum,
    "blended_spectrum": BlendedSpectrum,
    "all_substrings": AllSubstrings,
    "mismatch": Mismatch,
    "subsequence": Subsequence,
    "all_subsequences": AllSubsequences,
}
NORMALISED = "normalised"  # takes a kernel, not numbers
NUMBERS, TEXT = "numbers", "text"
_FUNCTIONS = ("log", "sqrt", "abs", "sin", "cos", "tan", "tanh", "min", "max", "round", "sum")  # of a kernel, not kernels


def kernel_class(name: str, called: bool = False) -> type[AbstractKernel]:
    """The class of that name; ValueError, with a hint, for any other word."""
    if name in KERNELS or name in STRING_KERNELS:
        return (KERNELS | STRING_KERNELS)[name]
    if name == NORMALISED:
        raise ValueError(NO_OPERAND)
    if called and name == "exp":
        raise ValueError("exp of a kernel is a kernel, but not one that an expression can write: use kernax.ExpOf in Python")
    if called and name in _FUNCTIONS:
        raise ValueError(f"{name} of a kernel is not a kernel in general, and no function has a meaning in a kernel expression")
    near = difflib.get_close_matches(name.lower(), [*KERNELS, *STRING_KERNELS, NORMALISED], n=3)
    known = f"the kernels are {', '.join(KERNELS)}, and of text spectrum, mismatch, ..."
    hint = f"did you mean {' or '.join(near)}?" if near else known
    raise ValueError(f"there is no kernel called {short(name)}: {hint}")


NO_OPERAND = "normalised takes one kernel, as in normalised(spectrum(3))"


def compared(kernel: AbstractKernel) -> frozenset[str]:
    """What a kernel looks at: `NUMBERS`, `TEXT`, both, or neither if it is made of constants."""
    if inner := parts_of(kernel):
        return frozenset().union(*map(compared, inner))
    if isinstance(kernel, Constant):
        return frozenset()
    return frozenset([TEXT if isinstance(kernel, tuple(STRING_KERNELS.values())) else NUMBERS])


def short(text: str) -> str:
    """As much of a text as fits into a message."""
    return text if len(text) <= 40 else text[:37] + "..."
