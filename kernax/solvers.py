"""Solvers of the linear systems and quadratic programmes of learners, for their argument `solver`.

`Auto` chooses one, and is the default of `kernel_ridge` and `condition`.
`JitteredCholesky`, `ConjugateGradient` and `SketchAndProject` are linear solvers, as any of
lineax's that solves positive semidefinite systems; `StateSpace` is one for points along a line,
`Grid` one for points on a grid. `PivotedCholesky` and `NystromPreconditioner` make conjugate
gradients faster, another `AbstractPreconditioner` is a class of your own, and `StochasticLanczos`
estimates the determinant beside them; `warm_started` lets them start from solutions that are known.
`SMO` and `ProjectedGradient` solve the dual of a support vector machine, a `BoxProblem`; another
such solver is a class derived from `AbstractDualSolver`.
`SequentialEvidence` and `EvidenceIteration` find the functions of a relevance vector machine.
`solve` solves a linear system with a Gram operator.
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
from kernax.gp.regression import warm_started
from kernax.sparse.evidence_iteration import EvidenceIteration
from kernax.sparse.sequential import SequentialEvidence
from kernax.sparse.solver import AbstractRelevanceSolver
from kernax.supervised.machines.box_problem import BoxProblem
from kernax.supervised.machines.dual_solver import AbstractDualSolver
from kernax.supervised.machines.projected_gradient import ProjectedGradient
from kernax.supervised.machines.smo import SMO

__all__ = [
    "solve",
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
