"""Genetic search on genomes of whatever kind: only a `Nature` knows the meaning of a genome.

Source: Tensor Comprehensions (Vasilache et al., 2018), section 5.2, and the code published with it: fitness is speed,
parents are drawn in proportion to it, three of them give each gene with equal chance, genes mutate one by one, the
best live on. Two ways from one generation to the next:

- `generational`: the elites and children only, as the paper and the documentation describe it, and adapted to the
  hundred trials that a task has here, where a generation is a round. Parents are the best of all that was measured.
  They are drawn by rank, since the best are too much alike for their speeds to tell them apart. A gene that mutates
  mostly goes to a neighbouring value: to draw it anew destroys more often than not what was good.
- `tc_compat`: as the code does it. Every individual that could be measured is kept, children fill only the places of
  those that could not, then all but the elites mutate. So without failures there is no crossover at all.

An evolution is a fold: the same seed and the same measurements in the same order give the same generations.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, Protocol

Gene = Hashable
Mode = Literal["generational", "tc_compat", "random"]

BREEDING_MIN = 3
"""Minimum number of measured individuals for breeding; with fewer, all but the best are drawn at random again."""
TRIES = 16
"""Maximum tries for a child that can live and is new."""
KNOWN_TRIES = 1000
"""Maximum tries for new genes, which cost nothing."""
BARREN_MAX = 64
"""Maximum generations in a row without a new individual; then the space is exhausted."""
TOURNAMENT = 5
"""Number of drawn individuals of which the fittest becomes a parent (mode generational)."""
KIND_SHARE = 0.07
"""Maximum share of a generation that is drawn again, of any kind (mode generational)."""
STEP_SHARE = 0.8
"""Share of the mutations that go to a neighbouring value (mode generational)."""


@dataclass(frozen=True)
class Individual:
    """A genome that can live."""

    kind: int
    genes: tuple[Gene, ...]
    key: Hashable = field(compare=False)
    """The phenotype: individuals with equal keys have equal measurements."""


class Nature(Protocol):
    """The space of individuals."""

    @property
    def kinds(self) -> Sequence[Sequence[Hashable]]:
        """For each kind, the meaning of its genes. Kinds whose genes have the same meanings are akin: they may have
        children together, and a genome can change from one to the other."""

    def grow(self, kind: int, genes: Sequence[Gene | None], seed: int) -> Individual | None:
        """The individual with these genes, None being drawn at random; None if it cannot live."""

    def near(self, kind: int, place: int, gene: Gene, random: Random) -> Gene | None:
        """A value next to this one, the same if it is the only one; None if values have no order."""


@dataclass(frozen=True)
class Rules:
    """Rules of the next generation."""

    mode: Mode = "generational"
    pop_size: int = 100
    number_elites: int = 10
    crossover_rate: float = 0.80
    mutation_rate: float = 0.07
    restore_number: int = 10
    generations: int = 0
    """Maximum number of generations; 0: no maximum."""

    @property
    def elites(self) -> int:
        """Number of elites, at most half of the population."""
        return min(self.number_elites, self.pop_size // 2)


class Evolution:
    """All generations of one population."""

    def __init__(self, nature: Nature, rules: Rules, seed: int) -> None:
        self.generation = -1
        self._nature, self._rules, self._seed = nature, rules, seed
        self._population: list[Individual] = []
        self._parents: list[Individual] = []
        self._strangers: list[Individual] = []
        self._fitness: dict[Hashable, float] = {}
        self._taken: set[Hashable] = set()
        self._genomes: set[tuple[int, tuple[Gene, ...]]] = set()

    # Outside -------------------------------------------------------------------------------------------------

    def propose(self, count: int) -> list[Individual]:
        """Up to `count` individuals of this generation, or of the next one; none if nothing new is found.

        A repeated call before `learn` proposes the same.
        """
        for _ in range(BARREN_MAX):
            if new := self._new():
                return new[:count]
            if 0 < self._rules.generations <= self.generation + 1:
                break
            self._next()
        return []

    def learn(self, individual: Individual, latency_s: float | None, generation: int | None = None) -> None:
        """Add a measurement, None for a failure.

        `generation`: of an individual that this evolution proposed, when it is rebuilt from measurements.
        """
        while generation is not None and self.generation < generation and self._can_have(generation):
            self._next()
        if individual.key not in self._taken and individual.key not in {i.key for i in self._population}:
            self._strangers.append(individual)
        self._taken.add(individual.key)
        self._genomes.add((individual.kind, individual.genes))
        self._fitness[individual.key] = 1.0 / latency_s if latency_s else 0.0

    # Generations ---------------------------------------------------------------------------------------------

    def _new(self) -> list[Individual]:
        new = {individual.key: individual for individual in self._population if individual.key not in self._taken}
        return list(new.values())

    def _can_have(self, generation: int) -> bool:
        """Whether a record's generation is possible: each has at least one trial."""
        return generation <= (len(self._taken) + 1) * BARREN_MAX

    def _next(self) -> None:
        self.generation += 1
        random = Random(f"{self._seed}/{self.generation}")
        pool = self._population if self._rules.mode == "tc_compat" and self.generation else self._pool()
        ranked = self._valid(pool)
        if self._rules.mode == "random":
            self._population = self._filled([], random)
        elif self.generation == 0:
            self._population = self._filled(ranked[: self._rules.restore_number], random)
        elif len(ranked) < BREEDING_MIN:
            self._population = self._filled(ranked[:1], random)
        elif self._rules.mode == "generational":
            self._parents = ranked[: self._rules.pop_size]
            self._population = self._children(self._parents, random)
        else:
            self._population = self._replaced(ranked, random)
        self._strangers.clear()

    def _pool(self) -> list[Individual]:
        every = (*self._parents, *self._population, *self._strangers)
        return list({individual.key: individual for individual in every}.values())

    def _valid(self, pool: Iterable[Individual]) -> list[Individual]:
        """Individuals with a fitness, the fittest first."""
        known = [individual for individual in pool if self._fitness.get(individual.key, 0.0) > 0.0]
        return sorted(known, key=lambda individual: -self._fitness[individual.key])

    def _children(self, ranked: Sequence[Individual], random: Random) -> list[Individual]:
        """The next generation: the elites, and new individuals."""
        population = list(ranked[: self._rules.elites])
        while len(population) < self._rules.pop_size:
            # The kind is a gene too: if it mutates, all others are drawn again.
            bred = random.random() >= min(self._rules.mutation_rate, KIND_SHARE)
            child = self._child(ranked, population, random) if bred else None
            if child is None and (child := self._drawn(population, random)) is None:
                break
            population.append(child)
        return population

    def _child(self, ranked: Sequence[Individual], siblings: Sequence[Individual], random: Random) -> Individual | None:
        for _ in range(TRIES):
            for _ in range(KNOWN_TRIES):
                kind, inherited = self._inherited(ranked, random)
                if random.random() < self._rules.mutation_rate:
                    kind = random.choice(self._akin(kind))
                genes = self._stepped(kind, inherited, random)
                if None in genes or (kind, genes) not in self._genomes:
                    break
            child = self._nature.grow(kind, genes, _seed(random))
            if child is not None and self._is_news(child, siblings):
                return child
        return None

    def _replaced(self, ranked: Sequence[Individual], random: Random) -> list[Individual]:
        """The next generation: all measured individuals, the places of the others filled by breeding; then mutation."""
        genomes = [(individual.kind, individual.genes) for individual in ranked]
        while len(genomes) < self._rules.pop_size:
            genomes.append(self._inherited(ranked, random))
        population = list(ranked[: self._rules.elites])
        for place, (kind, genes) in enumerate(genomes[len(population) :], start=len(population)):
            old = ranked[place] if place < len(ranked) else ranked[0]
            population.append(self._mutant(kind, genes, random) or old)
        return population

    def _mutant(self, kind: int, genes: tuple[Gene, ...], random: Random) -> Individual | None:
        for _ in range(TRIES):
            if (found := self._nature.grow(kind, self._mutated(genes, random), _seed(random))) is not None:
                return found
        return None

    def _filled(self, population: Sequence[Individual], random: Random) -> list[Individual]:
        """The population, filled up at random."""
        filled = list(population[: self._rules.pop_size])
        while len(filled) < self._rules.pop_size and (drawn := self._drawn(filled, random)) is not None:
            filled.append(drawn)
        return filled

    # Individuals ---------------------------------------------------------------------------------------------

    def _drawn(self, siblings: Sequence[Individual], random: Random) -> Individual | None:
        """A new individual, all genes drawn."""
        kinds = self._nature.kinds
        for _ in range(TRIES):
            kind = random.randrange(len(kinds))
            found = self._nature.grow(kind, (None,) * len(kinds[kind]), _seed(random))
            if found is not None and self._is_news(found, siblings):
                return found
        return None

    def _is_news(self, individual: Individual, siblings: Sequence[Individual]) -> bool:
        return individual.key not in self._taken and all(individual.key != other.key for other in siblings)

    def _inherited(self, ranked: Sequence[Individual], random: Random) -> tuple[int, tuple[Gene, ...]]:
        """The genes of a child, before mutation."""
        first = self._parent(ranked, random)
        if random.random() >= self._rules.crossover_rate:
            return first.kind, first.genes
        akin = self._akin(first.kind)
        kin = [individual for individual in ranked if individual.kind in akin]
        parents = (first, self._parent(kin, random), self._parent(kin, random))
        genes = tuple(random.choice(genes) for genes in zip(*(p.genes for p in parents), strict=True))
        return (first if len(akin) == 1 else random.choice(parents)).kind, genes

    def _akin(self, kind: int) -> Sequence[int]:
        """The kinds with which this one may have children; only itself in the published mode."""
        if self._rules.mode != "generational":
            return [kind]
        kinds = self._nature.kinds
        return [other for other, genes in enumerate(kinds) if genes == kinds[kind]]

    def _parent(self, ranked: Sequence[Individual], random: Random) -> Individual:
        """A parent: the fittest of a few, or in the published mode with a probability proportional to its fitness."""
        if self._rules.mode == "generational":
            return ranked[min(random.randrange(len(ranked)) for _ in range(TOURNAMENT))]
        return random.choices(ranked, [self._fitness[individual.key] for individual in ranked])[0]

    def _stepped(self, kind: int, genes: Sequence[Gene], random: Random) -> tuple[Gene | None, ...]:
        """Mutated genes, mostly to neighbouring values."""
        found: list[Gene | None] = list(genes)
        for place, gene in enumerate(genes):
            if random.random() < self._rules.mutation_rate:
                steps = random.random() < STEP_SHARE
                found[place] = self._nature.near(kind, place, gene, random) if steps else None
        return tuple(found)

    def _mutated(self, genes: Sequence[Gene | None], random: Random) -> tuple[Gene | None, ...]:
        return tuple(None if random.random() < self._rules.mutation_rate else gene for gene in genes)


def _seed(random: Random) -> int:
    return random.randrange(1, 2**31 - 1)
