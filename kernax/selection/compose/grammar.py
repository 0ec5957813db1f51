"""Sums of products of named kernels as structures without parameters, and their neighbours, one
step away.

`a*(b + c)` is written as `a*b + a*c`: every structure is a sum of products in an order of its own,
so that two structures are the same if and only if they are equal (Lloyd et al. 2014, section 4).
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence


@dataclasses.dataclass(frozen=True, order=True)
class Factor:
    """A base kernel, by its word, on one column of the points."""

    word: str
    column: int = 0


# The product of no factor is a constant.
Term = tuple[Factor, ...]
Structure = tuple[Term, ...]
CONSTANT: Term = ()


@dataclasses.dataclass(frozen=True)
class InheritedFactor:
    """A factor, and the position (a term and a factor) in the parent of the parameters it starts
    from.

    None marks a new factor.
    """

    factor: Factor
    origin: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class InheritedTerm:
    """A product of factors, and the term of the parent with the scale it starts from; None marks a
    new term.
    """

    factors: tuple[InheritedFactor, ...]
    origin: int | None = None

    @property
    def term(self) -> Term:
        return tuple(inherited.factor for inherited in self.factors)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A structure one step away from a parent, its terms and factors in order, and the step."""

    terms: tuple[InheritedTerm, ...]
    step: str

    @property
    def structure(self) -> Structure:
        return tuple(term.term for term in self.terms)


@dataclasses.dataclass(frozen=True)
class Grammar:
    """The grammar: which sums of products are allowed.

    Attributes:
        alphabet: the base kernels, each on each of its columns.
        most_alike: how many factors of a family a product may hold for one column, by the words of
            the bases: `{"rbf": ("local", 1), "rational_quadratic": ("local", 1)}` allows one of
            the two. A product of two RBFs is one RBF.
        most_terms, most_factors: the largest sizes of sums and products.
    """

    alphabet: tuple[Factor, ...]
    most_alike: Mapping[str, tuple[str, int]]
    most_terms: int
    most_factors: int

    def neighbours(self, structure: Structure) -> list[Candidate]:
        """The structures one step away, each once.

        The steps are those of Duvenaud et al. (2013, section 3), for base kernels B and B': a term
        B added, a term multiplied by B, a B replaced by a B' of the same column; and back (Lloyd
        et al. 2014): a term or a factor left out.
        """
        inherited = inheriting(structure)
        found: dict[Structure, Candidate] = {structure: Candidate(inherited, "unchanged")}
        for terms, step in self._steps(inherited):
            # Factors and terms in the order of their names; constants come first.
            ordered = []
            for term in terms:
                factors = sorted(term.factors, key=lambda inherited: inherited.factor)
                ordered.append(dataclasses.replace(term, factors=tuple(factors)))
            candidate = Candidate(tuple(sorted(ordered, key=lambda term: term.term)), step)
            if self.allows(candidate.structure):
                found.setdefault(candidate.structure, candidate)
        del found[structure]
        return list(found.values())

    def allows(self, structure: Structure) -> bool:
        """Whether the structure is small enough, and no part of it can be merged with another."""
        # A sum of equal products, or a product of kernels of one family, is another kernel of it.
        repeated = Counter(structure)
        return (
            0 < len(structure) <= self.most_terms
            and all(self._allows_term(term) for term in structure)
            and all(count <= self._most_of(term) for term, count in repeated.items())
        )

    def _allows_term(self, term: Term) -> bool:
        families = Counter((self.most_alike[f.word][0], f.column) for f in term)
        most = dict(self.most_alike.values())
        return len(term) <= self.most_factors and all(
            count <= most[family] for (family, _), count in families.items()
        )

    def _most_of(self, term: Term) -> int:
        """How often a product may occur in a sum: twice, at two lengthscales, if it has any."""
        return 2 if any(self.most_alike[factor.word][0] == "local" for factor in term) else 1

    def _steps(self, terms: tuple[InheritedTerm, ...]) -> Iterator[tuple[list[InheritedTerm], str]]:
        """Terms after each step, in any order, and the step in words."""
        for factor in self.alphabet:
            # S -> S + B, for each base kernel B; also a constant.
            yield [*terms, InheritedTerm((InheritedFactor(factor),))], f"+ {factor.word}"
        yield [*terms, InheritedTerm(())], "+ constant"
        # S -> S without a term, and S with a term T changed.
        for place, term in enumerate(terms):
            others = [*terms[:place], *terms[place + 1 :]]
            yield others, "- a term"
            for changed, step in self._changed(term):
                yield [*others, changed], step

    def _changed(self, term: InheritedTerm) -> Iterator[tuple[InheritedTerm, str]]:
        """A term after each step that changes it."""
        # T -> T B.
        for factor in self.alphabet:
            yield (
                InheritedTerm((*term.factors, InheritedFactor(factor)), term.origin),
                f"* {factor.word}",
            )
        # T B -> T, and T B -> T B'.
        for place, inherited in enumerate(term.factors):
            others = (*term.factors[:place], *term.factors[place + 1 :])
            yield InheritedTerm(others, term.origin), "- a factor"
            for factor in self.alphabet:
                if factor.column == inherited.factor.column:
                    step = f"{inherited.factor.word} -> {factor.word}"
                    yield InheritedTerm((*others, InheritedFactor(factor)), term.origin), step


def inheriting(structure: Structure) -> tuple[InheritedTerm, ...]:
    """The same structure with each part starting from itself."""
    terms = []
    for i, term in enumerate(structure):
        inheriting_factors = [InheritedFactor(factor, (i, j)) for j, factor in enumerate(term)]
        terms.append(InheritedTerm(tuple(inheriting_factors), i))
    return tuple(terms)


def written(structure: Structure, columns: Sequence[str] = ()) -> str:
    """The structure as text, such as `linear + periodic*rbf`; `rbf[age]` where there are names."""
    names = [f"[{column}]" for column in columns]
    products = [[f.word + (names[f.column] if names else "") for f in term] for term in structure]
    return " + ".join("*".join(factors) or "constant" for factors in products)
