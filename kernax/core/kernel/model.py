"""`Model`: a kernel and one positive number, the hyperparameters of most learners."""

from jaxtyping import Float

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.deprecation import renamed
from kernax.core.base.parameters import check_intervals, positive
from kernax.core.base.printing import Printed
from kernax.core.kernel.kernel import AbstractKernel, as_kernel


@renamed(noise="ridge")
class Model(Printed):
    """A kernel and one positive number, the parameters that `minimise` and `multi_start` learn.

    The number is the `ridge` of `kernel_ridge`, `leave_one_out`, `kernel_logistic`,
    `kernel_softmax` and `regularised_risk`; the noise variance of a Gaussian process:
    `condition(model.kernel, X, y, model.ridge)`; and `1 / C` of a support vector machine:
    `svm(model.kernel, X, y, 1 / model.ridge)`. It may have any shape, such as (n,), one for each
    point, for functions that accept such a noise.

    To learn more, such as the mean of a process, write your own module and declare its parameters
    as fields (`kernax.fields`).

    Raises ValueError if `kernel` is not a kernel, or if the number is not positive and finite.

    Examples:
        >>> model = kernax.Model(kernax.RBF(0.3), ridge=0.1)
        >>> print(kernax.describe(model))
        parameter           value  interval  state
        kernel.lengthscale  0.3    (0, inf)  free
        ridge               0.1    (0, inf)  free
    """

    kernel: AbstractKernel
    ridge: Float[ParameterArray, "..."] = positive(default=1.0)

    def __check_init__(self):
        as_kernel(self.kernel)
        check_intervals(self)
