"""`kernax cluster`: groups the rows of a table, and describes each group."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PyTree

from kernax.cli.compared_columns import compared_columns, kernel_of_inputs, learned_inputs
from kernax.cli.options import Method
from kernax.cli.table import InputTable
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.operators.gram import gram
from kernax.kernels import RBF
from kernax.preparation.cells import quoted
from kernax.preparation.inputs import Inputs
from kernax.preparation.tokens import Tokens
from kernax.selection.choose.heuristics import median_lengthscale
from kernax.unsupervised.kernel_kmeans import kernel_kmeans
from kernax.unsupervised.spectral_clustering import spectral_clustering

_SHOWN = 4  # columns whose means are shown


@dataclasses.dataclass(frozen=True)
class Clusters:
    """The clusters of a table.

    Attributes:
        labels: the cluster of each row, from 0.
        points: the rows as points.
        function: the function of k-means: its largest output at a point gives the cluster.
        inputs: the preparation of columns as points.
        remark: a line on the quality of the clusters.
    """

    labels: Int[np.ndarray, " n"]
    points: PyTree
    function: KernelExpansion
    kernel: AbstractKernel
    inputs: Inputs
    remark: str
    method: Method

    @property
    def has_regions(self) -> bool:
        """Whether the function decides the cluster of any point."""
        return self.method == Method.KMEANS and self.function.bias.size > 1


def cluster(
    table: InputTable,
    expression: str | None,
    tokens: Tokens | None,
    clusters: int,
    method: Method,
    seed: int,
) -> Clusters:
    """Groups the rows of a table under a kernel.

    Without an expression the kernel is an RBF on standardised columns, with the median distance of
    the rows as its lengthscale.
    """
    table = compared_columns(table, expression or "rbf", tokens)
    inputs = learned_inputs(table, np.arange(table.count), tokens or Tokens.LETTERS)
    points = jax.tree.map(jnp.asarray, inputs.points(table.inputs))
    if expression is None:
        kernel = RBF(median_lengthscale(points))
    else:
        kernel = kernel_of_inputs(inputs, expression, per_column=False)
    learner = kernel_kmeans if method == Method.KMEANS else spectral_clustering
    solution = learner(kernel, points, clusters, key=jax.random.key(seed))
    labels = np.asarray(solution.value.labels)
    # The share of the cut, or of the variance, that the clusters attain.
    stats = solution.stats
    objective = float(stats["objective"])
    if method == Method.SPECTRAL:
        attained = objective / float(stats["relaxation"])
        remark = f"the partition attains {attained:.1%} of the bound of the relaxed normalised cut"
    else:
        one = kernel_kmeans(kernel, points, 1, key=jax.random.key(0))
        alone = float(one.stats["objective"])
        if alone <= 0 or stats["distinct"] == 1 < clusters:
            remark = "the clusters do not differ, up to rounding: they explain nothing"
        else:
            share = 1 - objective / alone
            remark = f"the clusters explain {share:.1%} of the variance in the space of the kernel"
    return Clusters(labels, points, solution.value.function, kernel, inputs, remark, method)


def summary(found: Clusters, table: InputTable) -> tuple[list[str], list[list[str]]]:
    """A header and a row for each cluster: its size, the means of the columns that differ most, and
    typical texts.
    """
    X = found.inputs.numbers(table.inputs)
    # The columns with means that differ most between clusters, in deviations of the column.
    Z = found.inputs.standards.standardised(X)
    differences = np.zeros(X.shape[1])
    for one in np.unique(found.labels):
        own = found.labels == one
        differences += np.mean(own) * Z[own].mean(0) ** 2
    told_apart = np.argsort(-differences, kind="stable")[:_SHOWN]
    X = X[:, told_apart]
    texts = [text.name for text in found.inputs.texts]
    header = ["cluster", "rows"]
    header += [f"mean {found.inputs.columns[place]}" for place in told_apart]
    header += [f"typical {name}" for name in texts]
    rows = []
    for c in np.unique(found.labels):
        inside = found.labels == c
        means = [f"{mean:.4g}" for mean in X[inside].mean(0)]
        cells = [str(c + 1), str(int(np.sum(inside))), *means]
        if texts:
            typical = _typical(found, np.flatnonzero(inside))
            cells += [
                quoted(column.cells[typical]) for column in table.inputs if column.name in texts
            ]
        rows.append(cells)
    return header, rows


def _typical(found: Clusters, rows: Int[np.ndarray, " m"]) -> int:
    """The row with the largest sum of kernel values with its cluster."""
    inside = points_at(found.points, rows)
    K = np.asarray(gram(found.kernel, inside))
    # The cosines, of which the diagonal is one.
    roots = np.sqrt(np.maximum(np.diag(K), np.finfo(float).tiny))
    cosines = K / roots[:, None] / roots[None, :]
    return int(rows[np.argmax(cosines.sum(1))])
