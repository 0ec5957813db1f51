"""The words and the grammar of kernel expressions, without the kernels.

Misspelt expressions are refused by these, before kernels and JAX are imported.
"""

import ast
import difflib
import warnings

from kernax.preparation.cells import short

# The words of the kernels of numbers and of text, in the order of their table: a test compares.
OF_NUMBERS = (
    "rbf",
    "matern12",
    "matern32",
    "matern52",
    "matern",
    "rational_quadratic",
    "gamma_exponential",
    "periodic",
    "zero_mean_periodic",
    "cosine",
    "linear",
    "shifted_linear",
    "polynomial",
    "constant",
)
OF_STRINGS = (
    "spectrum",
    "blended_spectrum",
    "all_substrings",
    "mismatch",
    "subsequence",
    "all_subsequences",
)
NORMALISED = "normalised"  # takes a kernel, not numbers
OF_COLUMN = "text"  # takes the name of a column and a string kernel
ON = "on"  # takes a kernel and the number of a column
# Functions of a kernel that are not kernels, but that users may write.
_FUNCTIONS = ("log", "sqrt", "abs", "sin", "cos", "tan", "tanh", "min", "max", "round", "sum")

NO_PLACE = "on takes one kernel and the number of a column, as in on(rbf, 2)"
NO_OPERAND = "normalised takes one kernel, as in normalised(spectrum(3))"
NO_COLUMN = (
    "text takes the name of a column in quotes and a string kernel, as in text('name', spectrum(3))"
)
_FORMS = {NORMALISED: NO_OPERAND, OF_COLUMN: NO_COLUMN, ON: NO_PLACE}
# For each form how many arguments it takes, and which of them is a kernel.
_KERNEL_OF = {NORMALISED: (1, 0), OF_COLUMN: (2, 1), ON: (2, 0)}
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)

# Limits of expressions.
_LONGEST = 1000  # characters
DEEPEST = 50  # operations inside operations
TOO_DEEP = (
    f"the kernel expression is nested too deeply: at most {DEEPEST} operations may lie inside each "
    "other"
)


def check_word(name: str, called: bool = False) -> None:
    """Raises ValueError, with a hint, unless `name` is the name of a kernel."""
    if name in OF_NUMBERS or name in OF_STRINGS:
        return
    if name in _FORMS:
        raise ValueError(_FORMS[name])
    if called and name == "exp":
        raise ValueError(
            "exp of a kernel is a kernel, but a kernel expression cannot hold it: use "
            "kernax.kernels.ExpOf in Python"
        )
    if called and name in _FUNCTIONS:
        raise ValueError(
            f"{name} of a kernel is not a kernel in general, and a kernel expression cannot hold "
            "functions"
        )
    near = difflib.get_close_matches(name.lower(), [*OF_NUMBERS, *OF_STRINGS, *_FORMS], n=3)
    hint = f"the kernels are {', '.join(OF_NUMBERS)}; of text spectrum, ..."
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    raise ValueError(f"there is no kernel called {short(name)}: {hint}")


def check_words(text: str) -> None:
    """Raises ValueError for an expression that cannot be parsed, or with a word that is no kernel.

    `parse_kernel` refuses all else.
    """
    nodes = [syntax_of(text)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Name):
            check_word(node.id)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS):
            nodes += [node.right, node.left]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
            nodes.append(node.operand)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id not in _FORMS:
                check_word(node.func.id, called=True)
                continue
            n_arguments, place = _KERNEL_OF[node.func.id]
            if len(node.args) == n_arguments and not node.keywords:
                nodes.append(node.args[place])


def syntax_of(text: str) -> ast.expr:
    """The syntax tree of an expression. Raises ValueError, one sentence, for any other text."""
    if not text.strip():
        raise ValueError("the kernel expression is empty: write one such as 'rbf + linear'")
    if len(text) > _LONGEST:
        raise ValueError(
            f"the kernel expression has {len(text)} characters, but at most {_LONGEST} are allowed"
        )
    start = len(text) - len(text.lstrip())
    line = " ".join(text.strip().splitlines())
    try:
        with warnings.catch_warnings(action="ignore"):
            # Python warns of bad style, such as "1if".
            return ast.parse(line, mode="eval").body
    except SyntaxError as problem:
        place = f"at column {problem.offset + start}" if problem.offset else "at its end"
        raise ValueError(f"the kernel expression cannot be parsed {place}: {problem.msg}") from None
    except (RecursionError, MemoryError):
        raise ValueError(TOO_DEEP) from None
    except ValueError as problem:  # a null byte
        raise ValueError(f"the kernel expression cannot be parsed: {problem}") from None
