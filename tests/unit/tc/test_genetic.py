"""Selection, crossover and mutation, on abstract genomes (Tensor Comprehensions, 5.2, and its code)."""

from collections.abc import Callable, Sequence
from math import exp, prod
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched_backend_tc.genetic import Evolution, Gene, Individual, Mode, Rules

Value = Callable[[Individual], float | None]


class Toy:
    """Genomes of small numbers; kind 0 has `genes` of them, kind 1 two."""

    def __init__(
        self, genes: int = 6, values: int = 8, *, alive: Callable[[Sequence[int]], bool] | None = None
    ) -> None:
        self.kinds: tuple[str, ...] = ("g" * genes, "gg")
        self.values = values
        self.alive = alive or (lambda genes: True)
        self.grown = 0

    def grow(self, kind: int, genes: Sequence[Gene | None], seed: int) -> Individual | None:
        self.grown += 1
        random = Random(seed)
        made = tuple(random.randrange(self.values) if gene is None else gene for gene in genes)
        return Individual(kind, made, (kind, made)) if self.alive(made) else None  # type: ignore[arg-type]

    def near(self, kind: int, place: int, gene: Gene, random: Random) -> Gene | None:
        assert isinstance(gene, int)
        return max(0, min(self.values - 1, gene + random.choice((-1, 1))))


def slow(individual: Individual) -> float:
    """Latency: lowest if all genes are 0; higher by 10 for kind 1."""
    return 1.0 + sum(individual.genes) + 10.0 * individual.kind  # type: ignore[arg-type]


def run(evolution: Evolution, trials: int, value: Value = slow, batch: int = 4) -> list[Individual]:
    """Returns measured candidates, in order."""
    measured: list[Individual] = []
    while len(measured) < trials and (proposed := evolution.propose(min(batch, trials - len(measured)))):
        measured += proposed
        for individual in proposed:
            evolution.learn(individual, value(individual))
    return measured


def generations(evolution: Evolution, count: int, value: Value = slow) -> list[list[Individual]]:
    """Returns populations, each measured."""
    found = []
    for number in range(count):
        while evolution.generation < number or evolution._new():
            for individual in evolution.propose(1000):
                evolution.learn(individual, value(individual))
        found.append(list(evolution._population))
    return found


def test_the_same_seed_gives_the_same_generations() -> None:
    first, again, other = (run(Evolution(Toy(), Rules(pop_size=8), seed), 60) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("mode", ["generational", "tc_compat", "random"])
def test_nothing_is_proposed_twice(mode: Mode) -> None:
    measured = run(Evolution(Toy(), Rules(mode, pop_size=8, number_elites=2), 1), 200)
    assert len(measured) == 200
    assert len({one.key for one in measured}) == 200


@pytest.mark.parametrize("mode", ["generational", "tc_compat", "random"])
def test_a_small_space_is_exhausted_and_then_nothing_is_left(mode: Mode) -> None:
    evolution = Evolution(Toy(2, 3), Rules(mode, pop_size=8, number_elites=2, mutation_rate=0.5), 1)
    measured = run(evolution, 1000)
    assert len(measured) == 2 * 3 * 3
    assert evolution.propose(4) == []


def test_breeding_beats_drawing() -> None:
    """Each gene changes the latency by a factor, as in programs, so that children resemble their parents."""

    def value(individual: Individual) -> float:
        return 10.0 * individual.kind + exp(0.05 * sum(individual.genes))  # type: ignore[arg-type]

    def best(mode: Mode) -> float:
        runs = [
            run(Evolution(Toy(8, 16), Rules(mode, pop_size=16, number_elites=4), seed), 160, value) for seed in range(9)
        ]
        return sorted(min(map(value, measured)) for measured in runs)[4]

    assert best("generational") < 0.8 * best("random")


def test_elites_live_on_and_are_the_best() -> None:
    evolution = Evolution(Toy(), Rules(pop_size=12, number_elites=3), 5)
    first, second = generations(evolution, 2)
    assert second[:3] == sorted(first, key=slow)[:3]
    assert not {i.key for i in second[3:]} & {i.key for i in first}, "the others are children"


def test_elites_are_at_most_half() -> None:
    assert Rules(pop_size=8, number_elites=10).elites == 4


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_without_mutation_every_gene_comes_from_a_parent(rate: float) -> None:
    rules = Rules(pop_size=12, number_elites=2, crossover_rate=rate, mutation_rate=0.0)
    first, second = generations(Evolution(Toy(), rules, 3), 2)
    children = [child for child in second[2:] if child.key not in {one.key for one in first}]
    for child in children:
        kin = [one for one in first if one.kind == child.kind]
        inherited = all(any(gene == one.genes[i] for one in kin) for i, gene in enumerate(child.genes))
        assert inherited or rate == 0.0, "new genes are drawn only if each child would be a copy"


def test_children_have_up_to_three_parents() -> None:
    """Genes of the first generation are unique, so each shows its origin."""
    numbers = iter(range(1000))

    class Unique(Toy):
        def grow(self, kind: int, genes: Sequence[Gene | None], seed: int) -> Individual | None:
            number = next(numbers)
            made = tuple(number if gene is None else gene for gene in genes)
            return Individual(kind, made, (kind, made))

    nature = Unique(30)
    nature.kinds = ("a" * 30, "b" * 30)
    rules = Rules(pop_size=20, number_elites=2, crossover_rate=1.0, mutation_rate=0.0)
    first, second = generations(Evolution(nature, rules, 3), 2, lambda _: 1.0)
    parents = [len(set(child.genes)) for child in second[2:]]
    assert max(parents) == 3
    assert {child.kind for child in second} == {0, 1}
    kinds = {number: one.kind for one in first for number in one.genes}
    assert all(kinds[number] == child.kind for child in second[2:] for number in child.genes), "kinds do not mix"


def test_kinds_do_not_mix() -> None:
    nature = Toy(6)
    for population in generations(Evolution(nature, Rules(pop_size=16, number_elites=4), 2), 6, lambda _: 1.0):
        assert all(len(one.genes) == len(nature.kinds[one.kind]) for one in population)


@pytest.mark.parametrize(("mode", "mixed"), [("generational", True), ("tc_compat", False)])
def test_a_genome_can_change_to_a_related_kind(mode: Mode, mixed: bool) -> None:
    """Kind 1 is better and is never drawn: a genome of kind 0 must change to it."""

    class Late(Toy):
        def grow(self, kind: int, genes: Sequence[Gene | None], seed: int) -> Individual | None:
            return None if kind and None in genes else super().grow(kind, genes, seed)

    nature = Late(6, 1 << 20)
    nature.kinds = ("g" * 6, "g" * 6)
    rules = Rules(mode, pop_size=12, number_elites=4, crossover_rate=0.5, mutation_rate=0.2)
    found = generations(Evolution(nature, rules, 1), 5, lambda one: 2.0 - one.kind)
    assert any(one.kind for one in found[-1]) == mixed
    moved = [one for one in found[1] if one.kind]
    assert all(set(one.genes) & {gene for other in found[0] for gene in other.genes} for one in moved), "genes stay"


def test_the_fitter_have_more_children() -> None:
    """The rank counts, not the difference: most parents are of the better half."""
    nature = Toy(8, 1 << 20)
    nature.kinds = ("g" * 8,)
    rules = Rules(pop_size=24, number_elites=0, crossover_rate=0.0, mutation_rate=0.2)
    first, second = generations(Evolution(nature, rules, 1), 2, lambda one: 1.0 + 1e-9 * one.genes[0])  # type: ignore[operator]
    ranked = sorted(first, key=lambda one: one.genes[0])  # type: ignore[arg-type, return-value]

    def kinship(one: Individual, other: Individual) -> int:
        return sum(a == b for a, b in zip(one.genes, other.genes, strict=True))

    parents = [max(range(24), key=lambda rank: kinship(child, ranked[rank])) for child in second]
    bred = [parent for child, parent in zip(second, parents, strict=True) if kinship(child, ranked[parent])]
    assert len(bred) >= 16
    assert sum(parent < 12 for parent in bred) > 0.65 * len(bred)


def test_mutations_mostly_go_to_neighbours() -> None:
    nature = Toy(8, 1 << 20)
    nature.kinds = ("g" * 8,)
    rules = Rules(pop_size=24, number_elites=0, crossover_rate=0.0, mutation_rate=0.2)
    first, second = generations(Evolution(nature, rules, 1), 2, lambda _: 1.0)
    known = [gene for one in first for gene in one.genes]
    steps = [min(abs(gene - other) for other in known) for one in second for gene in one.genes]  # type: ignore[operator]
    near, far = steps.count(1), sum(step > 1 for step in steps)
    assert near > 8
    assert far > 0


def test_the_best_of_all_time_are_parents() -> None:
    """With one elite, the second best of the first generation is still a parent in the fourth."""
    evolution = Evolution(Toy(), Rules(pop_size=8, number_elites=1), 1)
    first = generations(evolution, 1)[0]
    rank = {one.key: float(place) for place, one in enumerate(sorted(first, key=slow), start=1)}
    generations(evolution, 3, lambda one: rank.get(one.key, 100.0))
    assert evolution._parents[:8] == sorted(first, key=slow)


def test_failed_genomes_have_no_children() -> None:
    def value(individual: Individual) -> float | None:
        return None if individual.genes[0] else 1.0

    rules = Rules(pop_size=16, number_elites=4, mutation_rate=0.0, crossover_rate=1.0)
    first, second = generations(Evolution(Toy(4, 2), rules, 1), 2, value)
    assert any(one.genes[0] for one in first)
    inherited = [child for child in second if child.genes[0] == 0]
    assert len(inherited) >= len([one for one in first if one.genes[0] == 0][:4])


@pytest.mark.parametrize("mode", ["generational", "tc_compat"])
def test_with_fewer_than_three_survivors_only_the_best_stays(mode: Mode) -> None:
    survivors: list[Individual] = []

    def value(individual: Individual) -> float | None:
        if len(survivors) < 2:
            survivors.append(individual)
            return float(3 - len(survivors))  # the second is the better one
        return None

    first, second = generations(Evolution(Toy(), Rules(mode, pop_size=8, number_elites=4), 1), 2, value)
    assert second[0] == survivors[1]
    assert not {one.key for one in second[1:]} & {one.key for one in first}


def test_a_generation_without_a_valid_genome_is_followed_by_a_new_random_one() -> None:
    first, second = generations(Evolution(Toy(), Rules(pop_size=8), 1), 2, lambda _: None)
    assert len(second) == 8
    assert not set(first) & set(second)


# As the published code does it -------------------------------------------------------------------------------------


def compat(**more: float) -> Rules:
    return Rules("tc_compat", pop_size=20, number_elites=5, **more)  # type: ignore[arg-type]


def test_compat_without_failures_never_crosses() -> None:
    """Survivors fill all places and only mutate, at each crossover rate."""
    first, second = generations(Evolution(Toy(30, 64), compat(crossover_rate=1.0), 1), 2)
    ranked = sorted(first, key=slow)
    assert second[:5] == ranked[:5], "elites do not mutate"
    for old, new in zip(ranked[5:], second[5:], strict=True):
        same = sum(a == b for a, b in zip(old.genes, new.genes, strict=True))
        assert old.kind == new.kind
        assert same >= len(old.genes) // 2


def test_compat_without_mutation_and_failures_stands_still() -> None:
    evolution = Evolution(Toy(), compat(mutation_rate=0.0), 1)
    (first,) = generations(evolution, 1)
    evolution._next()
    assert sorted(first, key=slow) == evolution._population
    assert evolution.propose(4) == []


def test_compat_breeds_as_many_as_failed() -> None:
    def value(individual: Individual) -> float | None:
        return None if individual.genes[0] in (1, 2) else slow(individual)

    rules = compat(crossover_rate=1.0, mutation_rate=0.0)
    first, second = generations(Evolution(Toy(12, 6), rules, 3), 2, value)
    valid = [one for one in first if value(one) is not None]
    assert 3 <= len(valid) < len(first)
    assert second[: len(valid)] == sorted(valid, key=slow)
    assert len(second) == 20


def test_compat_breeds_from_the_faster_in_proportion() -> None:
    """One genome is 10,000 times as fast as the others: most genes come from it."""
    star: list[Individual] = []

    def value(individual: Individual) -> float | None:
        if not star:
            star.append(individual)
            return 0.01
        return 100.0 if individual.genes[0] % 4 == 0 else None  # type: ignore[operator]

    nature = Toy(8, 64)
    nature.kinds = ("g" * 8,)
    first, second = generations(Evolution(nature, compat(crossover_rate=1.0), 1), 2, value)
    bred = second[len([one for one in first if value(one) is not None]) :]
    shared = [sum(a == b for a, b in zip(child.genes, star[0].genes, strict=True)) for child in bred]
    assert sum(shared) / (8 * len(shared)) > 0.5


def test_compat_keeps_a_genome_whose_mutants_are_all_invalid() -> None:
    nature = Toy(6)
    evolution = Evolution(nature, compat(mutation_rate=0.5), 1)
    (first,) = generations(evolution, 1)
    nature.alive = lambda genes: False
    evolution._next()
    assert evolution._population == sorted(first, key=slow)


# What is known from elsewhere --------------------------------------------------------------------------------------


def stranger(*genes: int) -> Individual:
    return Individual(0, genes, (0, genes))


def test_the_best_known_found_the_first_generation() -> None:
    evolution = Evolution(Toy(), Rules(pop_size=8, restore_number=2), 1)
    for first in range(5):
        evolution.learn(stranger(first, 0, 0, 0, 0, 0), float(5 - first))
    proposed = evolution.propose(100)
    assert evolution._population[:2] == [stranger(4, 0, 0, 0, 0, 0), stranger(3, 0, 0, 0, 0, 0)]
    assert len(proposed) == 6, "they are measured already"


def test_a_genome_of_another_job_may_be_a_parent() -> None:
    evolution = Evolution(Toy(), Rules(pop_size=8, number_elites=2), 1)
    generations(evolution, 1)
    evolution.learn(best := stranger(0, 0, 0, 0, 0, 0), 0.001)
    evolution._next()
    assert evolution._population[0] == best


def test_known_failures_are_not_proposed() -> None:
    nature = Toy(2, 2)
    evolution = Evolution(nature, Rules(pop_size=4, number_elites=1), 1)
    for genes in ((0, 0), (0, 1), (1, 0)):
        evolution.learn(stranger(*genes), None)
    measured = run(evolution, 100)
    assert sorted((one.kind, one.genes) for one in measured) == [
        (0, (1, 1)), (1, (0, 0)), (1, (0, 1)), (1, (1, 0)), (1, (1, 1))
    ]  # fmt: skip


def test_the_search_ends_after_the_last_generation() -> None:
    evolution = Evolution(Toy(), Rules(pop_size=8, number_elites=4, generations=3), 1)
    assert len(run(evolution, 1000)) == 8 + 2 * 4
    assert evolution.generation == 2


# A fold ------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["generational", "tc_compat", "random"]),
    st.integers(0, 2**31),
    st.integers(1, 90),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_a_restored_search_continues_as_an_uninterrupted_one(
    mode: Mode, seed: int, trials: int, batch: int, known: int
) -> None:
    def value(individual: Individual) -> float | None:
        return None if prod(individual.genes) % 5 == 1 else slow(individual)  # type: ignore[arg-type]

    rules = Rules(mode, pop_size=10, number_elites=3, mutation_rate=0.2)
    live = Evolution(Toy(), rules, seed)
    history: list[tuple[Individual, float | None, int | None]] = []
    for first in range(known):
        history.append((stranger(first, 1, 1, 1, 1, 1), 3.0, None))
        live.learn(*history[-1][:2])
    while len(history) < trials:
        proposed = live.propose(batch)
        if not proposed:
            return  # the search has ended
        for individual in proposed:
            history.append((individual, value(individual), live.generation))
            live.learn(individual, history[-1][1])
    again = Evolution(Toy(), rules, seed)
    for individual, latency_s, generation in history:
        again.learn(individual, latency_s, generation)
    for _ in range(6):
        expected = live.propose(batch)
        assert again.propose(batch) == expected
        for individual in expected:
            live.learn(individual, value(individual))
            again.learn(individual, value(individual))


def test_a_wrong_generation_in_a_record_does_not_end_the_search() -> None:
    evolution = Evolution(Toy(), Rules(pop_size=8), 1)
    evolution.learn(stranger(0, 0, 0, 0, 0, 0), 1.0, 10**9)
    assert evolution.generation == -1
    assert len(evolution.propose(4)) == 4


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["generational", "tc_compat"]), st.integers(0, 2**31), st.integers(1, 40), st.integers(0, 40))
def test_populations_are_never_larger_than_said_and_the_best_is_never_lost(
    mode: Mode, seed: int, size: int, elites: int
) -> None:
    evolution = Evolution(Toy(4, 4), Rules(mode, pop_size=size, number_elites=elites), seed)
    best = float("inf")
    for _ in range(12):
        for individual in evolution.propose(7):
            evolution.learn(individual, slow(individual))
            best = min(best, slow(individual))
        assert len(evolution._population) <= max(size, 1)
    if elites and size >= 2 and evolution.generation > 0 and not evolution._new():
        assert min(slow(one) for one in evolution._population) == best
