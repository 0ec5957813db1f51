"""Solvers of the linear systems and quadratic programmes of learners, for their argument `solver`.

`Auto` chooses a solver, and is the default of `kernel_ridge`, `condition` and
`log_marginal_likelihood`.
`JitteredCholesky`, `ConjugateGradient` and `SketchAndProject` solve linear systems, as do the
solvers of lineax for positive semidefinite systems. `StateSpace` is for points along a line, `Grid`
for points on a grid. `PivotedCholesky` and `NystromPreconditioner` make conjugate gradients faster;
derive your own from `AbstractPreconditioner`. `StochasticLanczos` estimates the determinant for
conjugate gradients, and `warm_started` starts them from earlier solutions.
`SMO` and `ProjectedGradient` solve the dual of a support vector machine, a `BoxProblem`; derive
your own solver from `AbstractDualSolver`.
`SequentialEvidence` and `EvidenceIteration` find the basis functions of a relevance vector machine.
`solve` solves a linear system with a Gram operator. `error_bound` bounds the error of any fitted
function, whatever solver found it.
"""

from kernax.core.grid.grid_factor import Grid
from kernax.core.linalg.conjugate_gradient import ConjugateGradient
from kernax.core.linalg.lanczos import StochasticLanczos
from kernax.core.linalg.linear_solvers import Auto, JitteredCholesky
from kernax.core.linalg.preconditioners import (
    AbstractPreconditioner,
    NystromPreconditioner,
    PivotedCholesky,
)
from kernax.core.linalg.sketch_and_project import SketchAndProject
from kernax.core.linalg.weighted_solve import solve
from kernax.core.line.kalman_factor import StateSpace
from kernax.gp.warm_start import warm_started
from kernax.sparse.evidence_iteration import EvidenceIteration
from kernax.sparse.sequential import SequentialEvidence
from kernax.sparse.solver import AbstractRelevanceSolver
from kernax.supervised.error_bound import error_bound
from kernax.supervised.machines.box_problem import BoxProblem
from kernax.supervised.machines.dual_solver import AbstractDualSolver
from kernax.supervised.machines.projected_gradient import ProjectedGradient
from kernax.supervised.machines.smo import SMO

__all__ = [
    "solve",
    "error_bound",
    "Auto",
    "JitteredCholesky",
    "ConjugateGradient",
    "PivotedCholesky",
    "NystromPreconditioner",
    "AbstractPreconditioner",
    "StochasticLanczos",
    "warm_started",
    "SketchAndProject",
    "StateSpace",
    "Grid",
    "SMO",
    "ProjectedGradient",
    "AbstractDualSolver",
    "BoxProblem",
    "SequentialEvidence",
    "EvidenceIteration",
    "AbstractRelevanceSolver",
]
