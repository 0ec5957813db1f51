"""What every package stands on: numerics, parameters, solutions and their statuses, weights, the
checks at the boundary of a public function, labels as numbers, and loops that run anywhere.
"""

# May import: kernax._advice, kernax.errors.
