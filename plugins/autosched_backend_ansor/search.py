"""The search of one task: MetaSchedule's sketches and evolution, without its database, builders, runners and loop.

Source: Ansor (Zheng et al., OSDI 2020), section 5, as TVM's evolutionary search has it. Sampling and evolution are
TVM's own code; the loop around it is written anew, since that of TVM

- forgets what is measured when it starts again: it measures the same programs once more. Here every program that was
  measured or selected, by whatever method, is known by its structural hash.
- takes parents from a database that orders by the mean, and ends the whole search when a record's schedule is not one
  of its own. Here the parents are the best by median that are schedules of this task's sketches; others only teach the
  cost model.
- keeps the state of its random numbers between rounds, so that a search rebuilt from its records takes another course.
  Here the numbers of each generation depend on the seed and on how many programs are known. Evolution runs in one
  thread: TVM's several threads take numbers from a common source, in any order.
- ignores failures after a restart, and searches an exhausted space for five more rounds.

A space of few combinations is listed. TVM would draw a whole population from it for each round.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from statistics import median
from typing import Any

import numpy as np
import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from autosched_backend_ansor.cost_model import Rows, SharedModel
from autosched_backend_ansor.options import Options
from autosched_tvm.api import (
    EarlyStopping,
    Grown,
    SearchContext,
    SketchSpace,
    Unsupported,
    candidate_build,
    hash_of,
    schedule_traces,
)
from autosched_tvm.tvm_types import Schedule

SELECT_ATTEMPTS = 3
"""Maximum number of generations of a select."""
POOL_RATIO = 4
"""Ratio of the schedules that the cost model ranks to those that are selected, in a listed space."""
GROWN_MAX = 64
"""Maximum number of combinations of a listed space that are made for a generation."""
STRATEGY = "s_tir.meta_schedule.SearchStrategyEvolutionarySearch"
SEED_MAX = 2**31 - 2


class AnsorMethod:
    """The searches of one job."""

    notes: Sequence[str] = ()

    def __init__(self, options: Options, threads: int) -> None:
        self._options = options
        self._model = SharedModel(options.num_warmup_samples, threads)

    def search(self, site: SearchContext) -> "AnsorSearch":
        """Begin the search for a task. Raises Unsupported."""
        return AnsorSearch(site, self._options, self._model)


@derived_object
class TaskModel(ms.cost_model.PyCostModel):  # type: ignore[misc]
    """Scores schedules for the evolution; scores are random while the cost model has no data."""

    def __init__(self, model: SharedModel, extractor: Any, seed: int) -> None:
        super().__init__()
        self._model, self._extractor = model, extractor
        self._random = np.random.default_rng(seed)

    def load(self, path: str) -> None:
        """Does nothing: the model is rebuilt from records."""

    def save(self, path: str) -> None:
        """Does nothing: the model is rebuilt from records."""

    def update(self, context: Any, candidates: Any, results: Any) -> None:
        """Does nothing: measurements reach the model without TVM."""

    def predict(self, context: Any, candidates: Any) -> np.ndarray[Any, Any]:
        """Scores; larger is better."""
        if not self._model.warm:
            return self._random.uniform(size=len(candidates))
        return self._model.scores(_rows(self._extractor, context, candidates))


class AnsorSearch:
    """A task's search state; determined by the workload, the seed and the measurements."""

    def __init__(self, site: SearchContext, options: Options, model: SharedModel) -> None:
        self._space = SketchSpace(site)
        if not self._space.designs:
            raise Unsupported("MetaSchedule has no design space for it")
        self._options, self._model, self._seed = options, model, site.seed
        self._task = site.info.workload
        self._extractor = ms.feature_extractor.PerStoreFeature()
        self._context = self._space.context(site.seed)
        self._plateau = EarlyStopping(options.early_stopping)
        self._known: set[str] = set()
        self._pending: dict[bytes, Grown] = {}
        self._learned: set[bytes] = set()
        self._best: list[tuple[float, str, Grown]] = []
        self._keys: dict[tuple[schedule_traces.Decision, ...], str | None] = {}
        """Key of each combination of a listed space that was made; None for one without a program."""

    def select(self, count: int) -> list[bytes]:
        """Up to `count` candidates without a measurement; empty if there are no more."""
        if self._plateau.over:
            return []
        chosen: list[Grown] = []
        seen = set(self._known)
        for attempt in range(SELECT_ATTEMPTS):
            seed = _mixed(self._seed, len(self._known), attempt)
            chosen += self._generation(count - len(chosen), seed, seen)
            if len(chosen) == count:
                break
        found = [(grown.candidate(), grown) for grown in chosen]
        self._pending.update(found)
        return [candidate for candidate, _ in found]

    def update(self, measured: Sequence[tuple[bytes, Sequence[float]]]) -> None:
        """Learn from pairs of a candidate and its latencies in seconds, which are empty for a failure."""
        self._plateau.update(measured)
        news = []
        for candidate, latency_s in measured:
            now_s = median(latency_s) if latency_s else None
            schedule = self._taken_in(candidate, now_s)
            if schedule is not None and candidate not in self._learned:
                self._learned.add(candidate)
                news.append((schedule, now_s))
        if news:
            rows = _rows(self._extractor, self._context, [_measurable(schedule) for schedule, _ in news])
            self._model.learn(self._task, rows, [now_s for _, now_s in news])

    def _taken_in(self, candidate: bytes, latency_s: float | None) -> Schedule | None:
        """The schedule of a measured candidate; None if it does not fit the task."""
        grown = self._pending.pop(candidate, None) or self._read(candidate)
        if grown is None:
            try:
                schedule = candidate_build.replay(self._space.workload, candidate) if candidate else None
            except Exception:  # TVM's code: a record of another version of the task is ignored
                return None
            if schedule is not None:
                self._known.add(hash_of(schedule.mod))
            return schedule
        self._known.add(grown.key)
        self._keys[grown.decisions] = grown.key
        self._best = [one for one in self._best if one[1] != grown.key]
        if latency_s is not None:
            self._best.append((latency_s, grown.key, grown))
            self._best.sort(key=lambda one: one[:2])
            del self._best[self._parents :]
        return grown.schedule

    def _read(self, candidate: bytes) -> Grown | None:
        """The schedule of a record, if it is of one of this task's sketches."""
        trace = schedule_traces.read(candidate)
        sketch = self._space.identify(trace) if trace is not None else None
        return None if trace is None or sketch is None else self._space.grow(sketch, trace.decisions, 1)

    @property
    def _parents(self) -> int:
        return max(1, int(self._options.population_size * self._options.init_measured_ratio))

    def _generation(self, count: int, seed: int, seen: set[str]) -> list[Grown]:
        """Up to `count` new schedules: the best that evolution finds, and a share of random ones."""
        if self._space.listed is not None:
            return self._of_list(self._space.listed, count, seed, seen)
        options = self._options
        strategy = ms.SearchStrategy.create(
            "evolutionary", population_size=options.population_size, init_min_unmeasured=options.init_min_unmeasured,
            genetic_num_iters=options.genetic_num_iters, genetic_mutate_prob=options.genetic_mutate_prob,
        )  # fmt: skip
        context = self._space.context(seed, strategy)
        model = TaskModel(self._model, self._extractor, seed)
        context.pre_tuning(SEED_MAX, count, self._space.designs, ms.database.MemoryDatabase(), model)
        parents = [grown.schedule for _, _, grown in self._best]
        sampled = list(_call("SampleInitPopulation", strategy, options.population_size - len(parents)))
        ranked = sampled
        if parents or self._model.warm:  # otherwise evolution would compare random scores
            all_seen = options.population_size * (options.genetic_num_iters + 2)
            ranked = list(_call("EvolveWithCostModel", strategy, [*parents, *sampled], all_seen))
        best = _new(map(self._space.grown, ranked), count - int(count * options.eps_greedy), seen)
        order = np.random.default_rng(seed).permutation(len(sampled))
        others = map(self._space.grown, [*(sampled[i] for i in order), *ranked])
        return [*best, *_new(others, count - len(best), seen)]

    def _of_list(
        self, listed: Sequence[tuple[schedule_traces.Decision, ...]], count: int, seed: int, seen: set[str]
    ) -> list[Grown]:
        """Up to `count` new schedules: those that the cost model ranks first among neighbours of the best and random
        ones, and a share of random ones."""
        order = [listed[i] for i in np.random.default_rng(seed).permutation(len(listed))]
        best: list[Grown] = []
        if self._model.warm:
            parents = [grown.decisions for _, _, grown in self._best]
            near = [one for one in order if any(_distance(one, parent) == 1 for parent in parents)]
            half = POOL_RATIO * count // 2
            pool = _new(self._made(near, seen), half, set(seen))
            pool += _new(self._made(order, seen), 2 * half - len(pool), seen | {one.key for one in pool})
            rows = _rows(self._extractor, self._context, [_measurable(one.schedule) for one in pool])
            ranked = [pool[i] for i in np.argsort(-self._model.scores(rows), kind="stable")] if pool else []
            best = _new(ranked, count - int(count * self._options.eps_greedy), seen)
        return [*best, *_new(self._made(order, seen), count - len(best), seen)]

    def _made(self, wanted: Iterable[tuple[schedule_traces.Decision, ...]], seen: set[str]) -> Iterator[Grown]:
        """The schedules of combinations that may be new."""

        def may_be_new(decisions: tuple[schedule_traces.Decision, ...]) -> bool:
            if decisions not in self._keys:
                return True
            key = self._keys[decisions]
            return key is not None and key not in seen

        for decisions in islice(filter(may_be_new, wanted), GROWN_MAX):
            grown = self._space.grow(0, decisions, 1)
            self._keys[decisions] = None if grown is None else grown.key
            if grown is not None:
                yield grown


def _new(schedules: Iterable[Grown | None], count: int, seen: set[str]) -> list[Grown]:
    """The first schedules that are not in `seen`, to which they are added."""
    new: list[Grown] = []
    if count > 0:
        for grown in schedules:
            if grown is not None and grown.key not in seen:
                seen.add(grown.key)
                new.append(grown)
            if len(new) == count:
                break
    return new


def _distance(one: Sequence[schedule_traces.Decision], other: Sequence[schedule_traces.Decision]) -> int:
    """The number of decisions that differ."""
    return sum(mine != their for mine, their in zip(one, other, strict=True))


def _mixed(*numbers: int) -> int:
    """A seed that depends on all numbers."""
    return 1 + zlib.crc32(repr(numbers).encode()) % SEED_MAX


def _call(name: str, strategy: Any, *arguments: Any) -> Any:
    return tvm.get_global_func(STRATEGY + name)(strategy, *arguments)


def _measurable(schedule: Schedule) -> Any:
    infos = ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    return ms.search_strategy.MeasureCandidate(schedule, infos)


def _rows(extractor: Any, context: Any, candidates: Sequence[Any]) -> list[Rows]:
    return [features.numpy().astype("float32") for features in extractor.extract_from(context, candidates)]
