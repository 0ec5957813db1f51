"""kernax: differentiable kernel methods in JAX."""

from kernax.core.expansion import KernelExpansion, kernel_distance
from kernax.core.gram import gram, gram_diagonal, gram_operator
from kernax.core.kernel import AbstractKernel, AbstractStationary, Constant, FeatureMap, Power, Product, Scaled, Sum
from kernax.core.linalg import ConjugateGradient, JitteredCholesky
from kernax.core.parameters import data as data
from kernax.core.parameters import describe, interval, nonnegative, positive, real, unconstrain
from kernax.core.solution import RESULTS, Solution
from kernax.kernels import *
from kernax.selection.minimise import minimise
from kernax.supervised.ridge import kernel_ridge, leave_one_out
