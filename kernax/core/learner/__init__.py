"""What every learner begins and ends with: its checked task, and the function that it returns."""

# May import: kernax.core.base, kernax.core.kernel, kernax.core.operators, kernax.core.line,
# kernax.core.grid.

# What a learner finds by itself, where no solver is given.
from kernax.core import grid as grid
from kernax.core import line as line
