"""The values of options that are one of several words."""

import enum

from kernax.preparation.model_names import GP, IVM, LOGISTIC, RIDGE, RVM, SVM


class Method(enum.StrEnum):
    """The ways in which `cluster` groups rows."""

    KMEANS = "kmeans"
    SPECTRAL = "spectral"


class RouteName(enum.StrEnum):
    """The methods for many rows."""

    WHOLE = "whole"
    CENTRES = "centres"
    ROWS = "rows"


class ModelName(enum.StrEnum):
    """The models that `fit` takes."""

    GP = GP
    RIDGE = RIDGE
    LOGISTIC = LOGISTIC
    SVM = SVM
    IVM = IVM
    RVM = RVM
