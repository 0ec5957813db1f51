"""How long until kernax is imported, and until a first fit is there?

Every run is a process of its own: one imports kernax and a learner (`import kernax` alone imports
nothing else), the other what kernax depends on; a third imports kernax and makes a kernel ridge fit
of n = 500 with nothing compiled before, and takes the time from there. So do first calls of n = 100
in float32.
"""

from benchmarks.against import first
from benchmarks.against.calls import ROWS
from benchmarks.against.rows import Kind
from benchmarks.against.versions import HERE
from benchmarks.harness import Bar, Case, Contender, Process

FIT = """
import numpy as np
import kernax as kx
X = np.random.default_rng(0).standard_normal((500, 5), dtype=np.float32)
start = time.perf_counter()
kx.kernel_ridge(kx.RBF(2.0), X, X[:, 0], 0.1).value.coefficients.block_until_ready()
"""


def cases(quick):
    rounds = 1 if quick else 7
    yield Case(
        "imports",
        [
            Contender("kernax", lambda: Process("import kernax; kernax.RBF, kernax.kernel_ridge")),
            Contender(
                "jax, equinox, lineax, optax", lambda: Process("import jax, equinox, lineax, optax")
            ),
        ],
        bars=[Bar(1.3, "jax, equinox, lineax, optax")],
        rounds=rounds,
    )
    yield Case(
        "first fit, n=500",
        [Contender("kernax", lambda: Process(FIT))],
        bars=[Bar(3.0)],
        rounds=rounds,
    )
    for row in ROWS:
        if row.kind is Kind.FIRST:
            kernax = Contender("kernax", lambda row=row: FirstCall(row))
            bar = Bar(row.bar, explanation="Most of it is compilation.")
            yield Case(f"{row.name}, float32", [kernax], [bar], rounds=3, once=quick)


class FirstCall(Process):
    """A row of the comparison with other commits, from after the import of kernax."""

    def __init__(self, row):
        self.row = row

    def __call__(self):
        seconds, _ = first.call(self.row.name, self.row.size, HERE, wide=False)
        return seconds
