"""The spine: numbers, kernels, operators, linear algebra, losses, and what every learner begins and
ends with. The folders are in the order in which they may import each other.
"""
