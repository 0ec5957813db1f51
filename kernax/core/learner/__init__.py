"""What every learner begins and ends with: its checked task, and the function that it returns."""

# May import: kernax._advice, kernax.core.base, kernax.core.kernel, kernax.core.operators,
# kernax.core.linalg, kernax.core.line.
