"""The names that files may use: those of kernax's classes, and those that a user registered."""

import dataclasses
import functools
import inspect
from typing import Any, TypeVar

import equinox as eqx

from kernax.core.functionals import draws, linear_functionals
from kernax.core.grid.elimination import Eliminated
from kernax.core.grid.grid import GridGram, ProductGrid
from kernax.core.grid.grid_factor import Grid, GridFactor, GridReduction
from kernax.core.grid.kronecker import KroneckerFactor
from kernax.core.grid.toeplitz import PlaceOffsets, ToeplitzFactor, ToeplitzMatrix
from kernax.core.kernel import model, prior_densities
from kernax.core.learner import expansion, linear
from kernax.core.linalg.conjugate_gradient import ConjugateGradient
from kernax.core.linalg.iteration import Iteration
from kernax.core.linalg.krylov_factor import KrylovReduction
from kernax.core.linalg.lanczos import StochasticLanczos
from kernax.core.linalg.linear_solvers import Auto, JitteredCholesky
from kernax.core.linalg.preconditioners import (
    NystromPreconditioner,
    PivotedCholesky,
    Preconditioner,
)
from kernax.core.linalg.sketch_and_project import SketchAndProject
from kernax.core.line.kalman import KalmanFilter
from kernax.core.line.kalman_factor import LineReduction, StateSpace
from kernax.core.line.line import LineGram, OrderAlongLine
from kernax.core.line.parallel_recursions import ParallelRecursions
from kernax.core.line.recursions import SequentialRecursions
from kernax.core.losses import loss_functions, observation_likelihoods, ordinal_likelihood
from kernax.core.operators.blocked import BlockedGram
from kernax.core.operators.operators import DenseGram
from kernax.errors import KernaxFileError
from kernax.gp import (
    inducing_normal,
    laplace_classes,
    means,
    paths,
    posterior,
    posterior_parts,
    process,
)
from kernax.gp.approximation import ApproximatePosterior
from kernax.gp.heteroscedastic import HeteroscedasticPosterior
from kernax.gp.heteroscedastic_likelihood import HeteroscedasticGaussian
from kernax.gp.posterior import ReductionPosteriorKernel
from kernax.kernels import KERNELS, basis_expansions, texts, tree_points
from kernax.kernels.combinators import ModulatedDraw
from kernax.kernels.dot_product import LinearDraw
from kernax.kernels.nonstationary import SineBasis
from kernax.nn import heads, kernel_layer, process_head
from kernax.online import (
    adagrad,
    budgets,
    dual,
    dual_adagrad,
    multiplicative,
    orthonormal_basis,
    primal,
    recursive,
    rules,
    sparse,
    support,
    winnow,
)
from kernax.preparation.classifier import Classifier
from kernax.preparation.standardised import Standardised
from kernax.preparation.standards import Standards
from kernax.scale.features import random_features
from kernax.scale.features.nystrom import NystromFeatures
from kernax.sparse.import_vectors import ImportVectors
from kernax.sparse.relevance_vectors import RelevanceVectors
from kernax.supervised.machines.decision_calibration import Isotonic, Platt
from kernax.supervised.machines.projected_gradient import ProjectedGradient
from kernax.supervised.machines.smo import SMO
from kernax.supervised.ridge.discriminant import Discriminant
from kernax.unsupervised.canonical_correlations import CanonicalPairs
from kernax.unsupervised.kernel_kmeans import KernelClusters
from kernax.unsupervised.principal_components import PrincipalComponents
from kernax.unsupervised.spectral_clustering import SpectralClusters
from kernax.unsupervised.subsample import Subsample

# The names in files of classes and of fields that had other names when version 0.2.0 wrote files.
_CLASSES_IN_FILES: dict[type, str] = {
    GridReduction: "GridExplanation",
    KrylovReduction: "KrylovExplanation",
    LineReduction: "LineExplanation",
    ReductionPosteriorKernel: "ExplainedPosteriorKernel",
}
_FIELDS_IN_FILES: dict[type, dict[str, str]] = {
    ReductionPosteriorKernel: {"reduction": "explanation"},
    posterior_parts.ComponentKernel: {"indices": "places"},
    posterior_parts.ComponentUpdate: {"indices": "places"},
    posterior_parts.OfTerms: {"indices": "places"},
}

Thing = TypeVar("Thing")
_registered: dict[str, Any] = {}


def register(thing: Thing, name: str | None = None) -> Thing:
    """Registers a class of equinox modules, or a function inside of a module, for use in files.

    Its name in files is its `__name__`, or `name` if given. `save` and `load` then accept models
    that contain it, such as a network in a `Warped` kernel or the function of a `Custom` kernel. A
    file contains the name and the fields, never the code: a program that loads it must first
    register the same class or function under the same name. Fields are restored without a call of
    `__init__`. `register` returns its argument, and can be used as a decorator:

        @kernax.files.register
        class Cauchy(kernax.AbstractStationary): ...

        kernax.files.register(eqx.nn.MLP)
        kernax.files.register(eqx.nn.Linear, name="nn.Linear")  # Linear is a kernel
        kernax.files.register(jax.nn.relu)

    Raises ValueError for anything but a function or a concrete class derived from `equinox.Module`,
    for a lambda without a name, and for a name that is already in use. A class or function that is
    defined again, as in a notebook cell, replaces its previous definition.
    """
    name = getattr(thing, "__name__", None) if name is None else name
    if inspect.isclass(thing):
        if not issubclass(thing, eqx.Module) or inspect.isabstract(thing):
            raise ValueError(
                "only classes derived from equinox.Module, not abstract ones, can be registered, "
                f"but got {thing!r}"
            )
    elif isinstance(thing, eqx.Module) or not callable(thing):
        raise ValueError(
            f"a class or a function can be registered, but got {thing!r}: of a module, register "
            "its class"
        )
    if not isinstance(name, str) or not name or name == "<lambda>":
        raise ValueError(f"{thing!r} has no name for a file: register(..., name=...) gives it one")
    holder = _holder_of(name)
    if holder is not None and holder is not thing and not _is_defined_again(holder, thing):
        raise ValueError(
            f"the name {name} is used by {holder!r}: register(..., name=...) gives another one"
        )
    _registered[name] = thing
    return thing


def _is_defined_again(old: Any, new: Any) -> bool:
    """Whether both come from one definition in a notebook or at a prompt, in `__main__`."""
    module = getattr(new, "__module__", None)
    name = getattr(new, "__qualname__", None)
    return (
        module == "__main__"
        and getattr(old, "__module__", None) == module
        and getattr(old, "__qualname__", None) == name
        and inspect.isclass(old) == inspect.isclass(new)
    )


@functools.cache
def own_classes() -> dict[str, type]:
    """The classes of kernax that files may name, by their names in files."""
    modules = (
        basis_expansions,
        texts,
        tree_points,
        laplace_classes,
        draws,
        expansion,
        inducing_normal,
        observation_likelihoods,
        ordinal_likelihood,
        loss_functions,
        linear_functionals,
        means,
        model,
        posterior_parts,
        paths,
        posterior,
        prior_densities,
        process,
        random_features,
        *(orthonormal_basis, budgets, dual, linear, primal, recursive, rules, support),
        *(adagrad, dual_adagrad, multiplicative, sparse, winnow),
        *(heads, kernel_layer, process_head),
    )
    of_modules = (
        cls
        for module in modules
        for cls in vars(module).values()
        if inspect.isclass(cls)
        and issubclass(cls, eqx.Module)
        and cls.__module__ == module.__name__
    )
    own = [
        *(entry.kind for entry in KERNELS),
        *of_modules,
        SineBasis,
        LinearDraw,
        ModulatedDraw,
    ]
    # The parts of structures and solvers that posteriors contain.
    own += [BlockedGram, DenseGram, Iteration, KrylovReduction, Preconditioner]
    own += [KalmanFilter, LineReduction, LineGram, OrderAlongLine]
    own += [ParallelRecursions, SequentialRecursions]
    own += [GridReduction, GridFactor, GridGram, Eliminated, ProductGrid]
    own += [KroneckerFactor, ToeplitzFactor, ToeplitzMatrix, PlaceOffsets]
    # The solvers that heads of networks contain.
    own += [Auto, JitteredCholesky, ConjugateGradient, SketchAndProject, StateSpace, Grid]
    own += [PivotedCholesky, NystromPreconditioner, StochasticLanczos, SMO, ProjectedGradient]
    # Results of learners, and their preparation.
    own += [ApproximatePosterior, HeteroscedasticGaussian, HeteroscedasticPosterior, ImportVectors]
    own += [CanonicalPairs, Discriminant, KernelClusters, PrincipalComponents, SpectralClusters]
    own += [NystromFeatures, RelevanceVectors, Subsample]
    own += [Classifier, Isotonic, Platt, Standardised, Standards]
    return {_CLASSES_IN_FILES.get(cls) or cls.__name__: cls for cls in own}


def fields_in_files(cls: type[eqx.Module]) -> dict[str, str]:
    """The name in files of each field of a class."""
    in_files = _FIELDS_IN_FILES.get(cls, {})
    names = [field.name for field in dataclasses.fields(cls)]
    return {name: in_files.get(name, name) for name in names}


def added_since(cls: type) -> dict[str, Any]:
    """Fields of a class that files of version 0.2.0 lack, with the values that it used."""
    sequential = {"recursions": SequentialRecursions()}
    return {OrderAlongLine: sequential, KalmanFilter: sequential}.get(cls, {})


def _holder_of(name: Any) -> Any:
    return own_classes().get(name) or _registered.get(name)


def named(name: Any) -> Any:
    """The class or function with that name. Raises KernaxFileError if there is none."""
    thing = _holder_of(name)
    if thing is None or inspect.isabstract(thing):
        raise KernaxFileError(
            f"{name} is not a class of this version of kernax and not registered: register it "
            "first, with kernax.files.register"
        )
    return thing


def name_of(thing: Any) -> str | None:
    """The name of a class or function in files; None if it has none."""
    known = own_classes() | _registered
    return next((name for name, own in known.items() if own is thing), None)
