"""How long until kernax is imported, and until a first fit is there?

Every run is a process of its own: one imports kernax and a learner (`import kernax` alone imports
nothing else), the other what kernax depends on; a third imports kernax and makes a kernel ridge fit
of n = 500 with nothing compiled before, and takes the time from there. So do first calls of n = 100
in float32. Whole processes, from their imports to a first result of n = 100 in float32, take turns
with those of other libraries.
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
HELP = """
from kernax.__main__ import command
command()(["fit", "--help"], prog_name="kernax", standalone_mode=False)
"""
DATA = """
import numpy as np
X = np.random.default_rng(0).standard_normal((100, 3), dtype=np.float32)
y = np.sin(X[:, 0])
"""
RIDGE = {
    "kernax": """
import kernax as kx
kx.kernel_ridge(kx.RBF(2.0), X, y, 0.1).value.coefficients.block_until_ready()
""",
    "kernax.sklearn": """
from kernax.sklearn import KernelRidge
KernelRidge(kernel="rbf").fit(X, y)
""",
    "scikit-learn, jax": """
import jax.numpy as jnp
from sklearn.kernel_ridge import KernelRidge
KernelRidge(kernel="rbf").fit(X, y)
jnp.ones(3).block_until_ready()
""",
}
EVIDENCE = {
    "kernax": """
import jax
import kernax as kx
evidence = lambda l: kx.log_marginal_likelihood(kx.RBF(l), X, y, 0.1)
jax.jit(jax.grad(evidence))(2.0).block_until_ready()
""",
    "tinygp": """
import jax, tinygp
def evidence(l):
    return tinygp.GaussianProcess(tinygp.kernels.ExpSquared(l), X, diag=0.1).log_probability(y)
jax.jit(jax.grad(evidence))(2.0).block_until_ready()
""",
    "gpjax": """
import jax, jax.numpy as jnp, gpjax
def evidence(l):
    kernel = gpjax.kernels.RBF(lengthscale=l, variance=1.0, n_dims=3)
    prior = gpjax.gps.Prior(mean_function=gpjax.mean_functions.Zero(), kernel=kernel)
    posterior = prior * gpjax.likelihoods.Gaussian(obs_stddev=jnp.sqrt(0.1))
    data = gpjax.Dataset(jnp.asarray(X), jnp.asarray(y)[:, None])
    return gpjax.objectives.conjugate_mll(posterior, data)
jax.jit(jax.grad(evidence))(2.0).block_until_ready()
""",
}


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
    yield Case(
        "imports of an estimator",
        [
            Contender("kernax.sklearn", lambda: Process("from kernax.sklearn import KernelRidge")),
            Contender(
                "scikit-learn, jax",
                lambda: Process("import jax; from sklearn.kernel_ridge import KernelRidge"),
            ),
        ],
        bars=[Bar(1.3, "scikit-learn, jax")],
        rounds=rounds,
    )
    yield Case(
        "kernax fit --help",
        [Contender("kernax", lambda: Process(HELP))],
        bars=[Bar(1.0)],
        rounds=rounds,
    )
    for name, programs, bar in (
        ("a process: ridge, n=100", RIDGE, Bar(1.3, "scikit-learn, jax")),
        ("a process: evidence gradient, n=100", EVIDENCE, Bar(1.3, "tinygp")),
    ):
        contenders = [
            Contender(contender, lambda code=code: Process(DATA + code))
            for contender, code in programs.items()
        ]
        yield Case(f"{name}, float32", contenders, [bar], rounds=rounds)
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
