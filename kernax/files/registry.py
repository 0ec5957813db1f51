"""The names that files may use: those of kernax's classes, and those that a user registered."""

import dataclasses
import functools
import importlib
import inspect
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from kernax.errors import KernaxFileError

# The classes of kernax that files may name, by their modules, which are imported when a file names
# one of them.
_CLASSES = """
core.functionals.draws: DrawRequest FeatureDraw FourierDraw MappedDraw PartOf ScaledDraw
    SumDraw
core.functionals.linear_functionals: Functionals OfFunctionals
core.functionals.stein: SteinKernel
core.grid.elimination: Eliminated
core.grid.grid: GridGram ProductGrid
core.grid.grid_factor: Grid GridFactor GridReduction
core.grid.kronecker: KroneckerFactor
core.grid.toeplitz: PlaceOffsets ToeplitzFactor ToeplitzMatrix
core.kernel.kernel: Constant Custom Power Product Scaled Sum
core.kernel.mahalanobis: Mahalanobis
core.kernel.model: Model
core.kernel.on: On
core.kernel.prior_densities: Beta Gamma HalfCauchy HalfNormal InverseGamma LogNormal Normal
core.learner.expansion: KernelExpansion
core.learner.linear: FeaturesOf LinearFunction
core.linalg.conjugate_gradient: ConjugateGradient
core.linalg.iteration: Iteration
core.linalg.krylov_factor: KrylovReduction
core.linalg.lanczos: StochasticLanczos
core.linalg.linear_solvers: Auto JitteredCholesky
core.linalg.preconditioners: NystromPreconditioner PivotedCholesky Preconditioner
core.linalg.sketch_and_project: SketchAndProject
core.line.kalman: KalmanFilter
core.line.kalman_factor: LineReduction StateSpace
core.line.line: LineGram OrderAlongLine
core.line.parallel_recursions: ParallelRecursions
core.line.recursions: SequentialRecursions
core.losses.loss_functions: Absolute EpsilonInsensitive Hinge Huber Logistic Pinball Poisson
    Squared SquaredHinge
core.losses.observation_likelihoods: Categorical CustomLikelihood Gaussian NegativeBinomial
    Powered Probit Shifted StudentT
core.losses.ordinal_likelihood: Ordinal
core.operators.blocked: BlockedGram
core.operators.feature_map: FeatureMap
core.operators.operators: DenseGram
gp.approximation: ApproximatePosterior
gp.heteroscedastic: HeteroscedasticPosterior
gp.heteroscedastic_likelihood: HeteroscedasticGaussian
gp.inducing_normal: Batch BatchMarginals InducingNormal Natural SparseModel
gp.laplace_classes: CategoricalPosterior ClassPosteriorKernel IndependentClasses ValueOfClass
gp.means: ConstantMean FixedMean LinearMean MeanOfFunctionals ShiftedMean
gp.paths: SamplePaths UpdatedDraw
gp.posterior: FeaturePosteriorKernel InducedPosteriorKernel PosteriorKernel
    ReductionPosteriorKernel WeightedPosteriorKernel
gp.posterior_parts: ComponentKernel ComponentUpdate JointTerms OfTerms WeightSpace
gp.process: GaussianProcess
kernels.basis_expansions: GaussianBasis IndicatorBins PolynomialBasis SigmoidBasis
kernels.combinators: Centred ExpOf GaussianOf Modulated ModulatedDraw Normalised PolynomialOf
    Warped
kernels.dot_product: BilinearForm Linear LinearDraw Polynomial ShiftedLinear Tanh
kernels.global_alignment: GlobalAlignment
kernels.integers: Coregionalisation Exchangeable Herglotz Precomputed
kernels.nonstationary: ArcCosine Brownian BrownianBridge ChangePoint Gibbs IntegratedBrownian
    LinearSpline SineBasis
kernels.sets: AllSubsets Intersection Jaccard Monomials Tanimoto
kernels.spectrum: AllSubstrings BlendedSpectrum Mismatch Spectrum
kernels.stationary: Cosine DampedOscillator GammaExponential LpLaplace Matern Matern12
    Matern32 Matern52 Periodic RBF RationalQuadratic SpectralMixture ZeroMeanPeriodic
kernels.subsequences: AllSubsequences Subsequence
kernels.subset_trees: SubsetTree
kernels.tangent_kernels: FisherKernel TangentKernel
kernels.texts: Strings
kernels.tree_points: Trees
nn.heads: LogisticHead RidgeHead SVMHead
nn.kernel_layer: KernelLayer
nn.process_head: ProcessHead
online.adagrad: Adagrad AdagradState
online.budgets: Kept Merge NoBudget Placement Project RemoveOldest RemoveSmallest
online.dual: DualLearner DualState
online.dual_adagrad: DualAdagrad DualAdagradState _Parts
online.multiplicative: Identity MultiplicativeState
online.orthonormal_basis: Coordinates OrthonormalBasis
online.primal: PrimalLearner PrimalState
online.recursive: KernelRecursiveLeastSquares RecursiveFit RecursiveState
online.rules: ConstantRate DecayingRate LeastMeanSquares MarginPerceptron Move
    PassiveAggressiveI PassiveAggressiveII Perceptron StochasticGradient
online.sparse: SparseGradient
online.support: Newcomer Support
online.winnow: BalancedWinnow ExponentiatedGradient NormalisedWinnow Winnow
preparation.classifier: Classifier
preparation.standardised: Standardised
preparation.standards: Standards
scale.features.nystrom: NystromFeatures
scale.features.random_features: FourierFeatures
sparse.import_vectors: ImportVectors
sparse.relevance_vectors: RelevanceVectors
supervised.machines.decision_calibration: Isotonic Platt
supervised.machines.projected_gradient: ProjectedGradient
supervised.machines.smo: SMO
supervised.ridge.discriminant: Discriminant
unsupervised.canonical_correlations: CanonicalPairs
unsupervised.kernel_kmeans: KernelClusters
unsupervised.principal_components: PrincipalComponents
unsupervised.spectral_clustering: SpectralClusters
unsupervised.subsample: Subsample
"""
# The names in files of classes, and of fields by those names of their classes, that had other names
# when version 0.2.0 wrote files.
_CLASSES_IN_FILES: dict[Any, str] = {
    "GridReduction": "GridExplanation",
    "KrylovReduction": "KrylovExplanation",
    "LineReduction": "LineExplanation",
    "ReductionPosteriorKernel": "ExplainedPosteriorKernel",
}
_FIELDS_IN_FILES = {
    "ExplainedPosteriorKernel": {"reduction": "explanation"},
    "ComponentKernel": {"indices": "places"},
    "ComponentUpdate": {"indices": "places"},
    "OfTerms": {"indices": "places"},
}

# Functions of `jax.numpy` between the layers of a network, beside those of `jax.nn`. Not all of
# them: some read files.
_ACTIVATIONS = ("tanh", "sin", "cos", "exp", "abs", "square")

Thing = TypeVar("Thing")
_registered: dict[str, Any] = {}


def register(thing: Thing, name: str | None = None) -> Thing:
    """Registers a class of equinox modules, or a function inside of a module, for use in files.

    Its name in files is its `__name__`, or `name` if given. `save` and `load` then accept models
    that contain it, such as a network of your own in a `Warped` kernel or the function of a
    `Custom` kernel. A file contains the name and the fields, never the code: a program that loads
    it must first register the same class or function under the same name. Fields are restored
    without a call of `__init__`. The layers of `equinox.nn` and the functions of `jax.nn` need no
    registration. `register` returns its argument, and can be used as a decorator:

        @kernax.files.register
        class Cauchy(kernax.AbstractStationary): ...

        kernax.files.register(my_networks.Linear, name="MyLinear")  # Linear is a kernel
        kernax.files.register(my_activation)

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
def own_classes() -> dict[str, tuple[str, str]]:
    """The module and the name of each class of kernax that files may name, by its name in files."""
    own = {}
    module = ""
    for word in _CLASSES.split():
        if word.endswith(":"):
            module = f"kernax.{word.removesuffix(':')}"
        else:
            own[_CLASSES_IN_FILES.get(word, word)] = module, word
    return own


def fields_in_files(cls: type[eqx.Module]) -> dict[str, str]:
    """The name in files of each field of a class."""
    in_files = _FIELDS_IN_FILES.get(name_of(cls) or "", {})
    names = [field.name for field in dataclasses.fields(cls)]
    return {name: in_files.get(name, name) for name in names}


def added_since(cls: type[eqx.Module]) -> dict[str, Any]:
    """Fields of a class that files of version 0.2.0 lack, with the values that it used."""
    if name_of(cls) not in ("OrderAlongLine", "KalmanFilter"):
        return {}
    return {"recursions": named("SequentialRecursions")()}


def named(name: Any) -> Any:
    """The class or function with that name. Raises KernaxFileError if there is none."""
    thing = _holder_of(name)
    if thing is None or inspect.isabstract(thing):
        raise KernaxFileError(
            f"{name} is not a class of this version of kernax and not registered: register it "
            "first, with kernax.files.register"
        )
    return thing


def _holder_of(name: Any) -> Any:
    """The class or function with that name; None if there is none."""
    if name not in own_classes():
        return _registered.get(name) or _of_libraries().get(name)
    module, name_there = own_classes()[name]
    return getattr(importlib.import_module(module), name_there)


@functools.cache
def _of_libraries() -> dict[str, Any]:
    """The layers of equinox and the activation functions of JAX, by their names in files."""
    layers = {
        f"equinox.nn.{name}": layer
        for name, layer in vars(eqx.nn).items()
        if inspect.isclass(layer) and issubclass(layer, eqx.Module)
    }
    functions = {
        f"jax.nn.{name}": function
        for name, function in vars(jax.nn).items()
        if callable(function) and not name.startswith("_")
    }
    functions |= {f"jax.numpy.{name}": getattr(jnp, name) for name in _ACTIVATIONS}
    # The default is a lambda, the identity.
    last = inspect.signature(eqx.nn.MLP.__init__).parameters["final_activation"].default
    return layers | functions | {"equinox.nn.MLP.final_activation": last}


def name_of(thing: Any) -> str | None:
    """The name of a class or function in files; None if it has none."""
    name = getattr(thing, "__name__", None)
    name = _CLASSES_IN_FILES.get(name, name)
    if name in own_classes() and _holder_of(name) is thing:
        return name
    others = _registered | _of_libraries()
    return next((name for name, held in others.items() if held is thing), None)
