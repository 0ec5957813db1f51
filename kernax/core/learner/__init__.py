"""The common parts of all learners: the checked problem, and the function that they return."""

# May import: kernax._advice, kernax.core.base, kernax.core.kernel, kernax.core.operators,
# kernax.core.linalg, kernax.core.line.
