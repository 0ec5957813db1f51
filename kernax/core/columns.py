"""Which kernels are products of kernels of fewer columns, as those on grids must be."""

import functools

import equinox as eqx

from kernax.core.kernel import (
    AbstractCombinator,
    AbstractKernel,
    Constant,
    Power,
    Product,
    Scaled,
    parts_of,
)


class ColumnFactor(eqx.Module):
    """A factor of a kernel: another kernel of the same points (dim,), of which only some columns
    move.

    Attributes:
        columns: those; of a constant, none.
        kernel: where the other columns are held fixed, wherever that is, its value is the factor.
    """

    columns: frozenset[int] = eqx.field(static=True)
    kernel: AbstractKernel


@functools.singledispatch
def factors_over_columns(kernel: AbstractKernel, dim: int) -> tuple[ColumnFactor, ...]:
    """The factors of a kernel of points (dim,), whose product it is. Columns of different factors
    may overlap.

    Most kernels are one factor, of all columns. For kernels of one's own that are a product over
    columns, and one at x = z: `factors_over_columns.register(MyKernel)(one_for_each_column)`.
    """
    return (ColumnFactor(frozenset(range(dim)), kernel),)


def one_for_each_column(kernel: AbstractKernel, dim: int) -> tuple[ColumnFactor, ...]:
    """Those of a kernel `prod_j k_j(x_j, z_j)` in which each k_j is one where x_j and z_j are the
    same.
    """
    return tuple(ColumnFactor(frozenset([column]), kernel) for column in range(dim))


@factors_over_columns.register
def _(kernel: Constant, dim: int) -> tuple[ColumnFactor, ...]:
    return (ColumnFactor(frozenset(), kernel),)


@factors_over_columns.register
def _(kernel: Product, dim: int) -> tuple[ColumnFactor, ...]:
    of_terms = (factors_over_columns(term, dim) for term in kernel.terms)
    return tuple(factor for factors in of_terms for factor in factors)


@factors_over_columns.register
def _(kernel: Scaled, dim: int) -> tuple[ColumnFactor, ...]:
    scale = ColumnFactor(frozenset(), Constant(kernel.scale))
    return (*factors_over_columns(kernel.kernel, dim), scale)


@factors_over_columns.register
def _(kernel: Power, dim: int) -> tuple[ColumnFactor, ...]:
    return tuple(
        ColumnFactor(factor.columns, Power(factor.kernel, kernel.degree))
        for factor in factors_over_columns(kernel.kernel, dim)
    )


@factors_over_columns.register
def _(kernel: AbstractCombinator, dim: int) -> tuple[ColumnFactor, ...]:
    """One, of the columns that any of the kernels inside looks at."""
    of_parts = (factors_over_columns(part, dim) for part in parts_of(kernel))
    columns = (factor.columns for factors in of_parts for factor in factors)
    return (ColumnFactor(frozenset().union(*columns), kernel),)


def groups_of_columns(kernel: AbstractKernel, dim: int) -> tuple[frozenset[int], ...]:
    """The smallest groups of columns over which a kernel is a product, by their first column.
    Columns that it does not look at are a group each.
    """
    groups = [frozenset([column]) for column in range(dim)]
    for factor in factors_over_columns(kernel, dim):
        joined = [group for group in groups if group & factor.columns]
        if joined:
            apart = [group for group in groups if not group & factor.columns]
            groups = [*apart, frozenset().union(*joined)]
    return tuple(sorted(groups, key=min))
