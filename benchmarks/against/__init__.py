"""This checkout next to another commit of the same repository, row by row: `python -m benchmarks
--against COMMIT`.
"""

from benchmarks.against import calls, learners, matrices

ROWS = (*matrices.ROWS, *learners.ROWS, *calls.ROWS)
