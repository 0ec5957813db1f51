"""Kernels that are products of kernels of fewer columns, as those on grids must be."""

import functools

import equinox as eqx

from kernax.core.kernel.kernel import (
    AbstractCombinator,
    AbstractKernel,
    Constant,
    Power,
    Product,
    Scaled,
    parts_of,
)


class ColumnFactor(eqx.Module):
    """A factor of a kernel: another kernel of the same points (dim,), as a function of some of
    their columns.

    Attributes:
        columns: those on which the factor depends; of a constant, none.
        kernel: its value is the factor where x and z are the same in all other columns.
    """

    columns: frozenset[int] = eqx.field(static=True)
    kernel: AbstractKernel


@functools.singledispatch
def factors_over_columns(kernel: AbstractKernel, dim: int) -> tuple[ColumnFactor, ...]:
    """The factors of a kernel of points (dim,), whose product it is. Columns of different factors
    may overlap.

    Most kernels are one factor, of all columns. For a kernel of one's own that is a product of one
    factor for each column, which is 1 where x and z are the same there:
    `factors_over_columns.register(MyKernel)(one_for_each_column)`.
    """
    return (ColumnFactor(frozenset(range(dim)), kernel),)


def one_for_each_column(kernel: AbstractKernel, dim: int) -> tuple[ColumnFactor, ...]:
    """The factors of a kernel `prod_j k_j(x_j, z_j)` in which each k_j is 1 where x_j = z_j."""
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
    """One factor, of all columns on which any of the kernels inside depends."""
    of_parts = (factors_over_columns(part, dim) for part in parts_of(kernel))
    columns = (factor.columns for factors in of_parts for factor in factors)
    return (ColumnFactor(frozenset().union(*columns), kernel),)


def groups_of_columns(kernel: AbstractKernel, dim: int) -> tuple[frozenset[int], ...]:
    """The smallest groups of columns over which a kernel is a product, ordered by their first
    column. A column on which it does not depend is a group by itself.
    """
    groups = [frozenset([column]) for column in range(dim)]
    for factor in factors_over_columns(kernel, dim):
        joined = [group for group in groups if group & factor.columns]
        if joined:
            apart = [group for group in groups if not group & factor.columns]
            groups = [*apart, frozenset().union(*joined)]
    return tuple(sorted(groups, key=min))
