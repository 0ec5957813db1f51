"""The foundations of all packages: numerics, parameters, solutions and their statuses, weights,
checks of the arguments of public functions, and labels as numbers.
"""

# May import: kernax._advice, kernax.errors.
