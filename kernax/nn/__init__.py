"""Learners as layers of networks: heads, which learn from a support set inside of the network and
predict for query points, and a layer of features by inducing points.

    head = kernax.nn.RidgeHead(kernax.RBF(), ridge=0.1)
    predictions = head(jax.vmap(network)(X), y, jax.vmap(network)(X_new))

They are equinox modules, and their parameters are learned together with those of the network. A
head is a function of one support set; `jax.vmap(head)` takes many, the episodes of few-shot
learning.
"""

# May import: kernax.core, kernax.supervised, kernax.gp, kernax.scale.

from kernax.nn.heads import LogisticHead, RidgeHead, SVMHead
from kernax.nn.kernel_layer import KernelLayer
from kernax.nn.process_head import ProcessHead

__all__ = ["RidgeHead", "LogisticHead", "SVMHead", "ProcessHead", "KernelLayer"]


def __dir__() -> list[str]:
    return __all__
