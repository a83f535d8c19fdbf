"""The genetic search of one task: a genome is a schedule's sampling decisions, its kind is MetaSchedule's sketch."""

import math
import zlib
from collections.abc import Hashable, Sequence
from random import Random
from statistics import median
from typing import cast

import msgspec

from autosched_backend_tc.decision_mutation import beside
from autosched_backend_tc.genetic import Evolution, Gene, Individual, Rules
from autosched_backend_tc.options import Options
from autosched_tvm.api import EarlyStopping, Grown, SearchContext, SketchSpace, Unsupported, schedule_traces
from autosched_tvm.tvm_types import Schedule

PUBLISHED = {"pop_size": 100, "number_elites": 10, "mutation_rate": 7}
OWN = {"pop_size": 12, "number_elites": 4, "mutation_rate": 20}


class TcMethod:
    """The searches of one job; its tasks share nothing."""

    notes: Sequence[str] = ()

    def __init__(self, options: Options) -> None:
        self._options = options

    def search(self, site: SearchContext) -> "TcSearch":
        """Begin the search for a task. Raises Unsupported."""
        return TcSearch(site, self._options)


class TcSearch:
    """A task's generations, formed from the measurements in their order.

    A candidate's memo contains its generation and sketch, and its line (seed and rules), from which the generations of
    an earlier client are formed again. Candidates of other lines, including other backends', are strangers: the best
    ones start the first generation, later ones may become parents.
    """

    def __init__(self, site: SearchContext, options: Options) -> None:
        self._space = SketchSpace(site)
        if not self._space.sketches:
            raise Unsupported("MetaSchedule has no design space for it")
        rules = rules_of(options)
        self._line = zlib.crc32(msgspec.json.encode((site.seed, msgspec.to_builtins(rules))))
        self._threads_min = options.min_launch_total_threads if str(site.target.kind.name) == "cuda" else 0
        self._plateau = EarlyStopping(options.early_stopping)
        self._kinds = [sketch.decided for sketch in self._space.sketches]
        self._evolution = Evolution(self, rules, site.seed)
        self._grown: dict[str, Grown] = {}
        self._keys: dict[tuple[int, tuple[Gene, ...]], str] = {}

    def select(self, count: int) -> list[bytes]:
        """Up to `count` new candidates of one generation."""
        if self._plateau.over:
            return []
        chosen = self._evolution.propose(count)
        memo = {"generation": self._evolution.generation, "line": self._line}
        return [
            self._grown[cast(str, one.key)].candidate({**memo, "sketch": one.kind})
            for one in chosen
        ]  # fmt: skip

    def update(self, measured: Sequence[tuple[bytes, Sequence[float]]]) -> None:
        """Learn from pairs of a candidate and its latencies in seconds, which are empty for a failure."""
        self._plateau.update(measured)
        for candidate, latency_s in measured:
            trace = schedule_traces.read(candidate)
            individual = self._individual(trace) if trace is not None else None
            if trace is None or individual is None:
                continue
            self._grown.pop(cast(str, individual.key), None)
            generation = trace.memo.get("generation") if trace.memo.get("line") == self._line else None
            self._evolution.learn(individual, median(latency_s) if latency_s else None, generation)

    # What can live -------------------------------------------------------------------------------------------

    @property
    def kinds(self) -> Sequence[Sequence[Hashable]]:
        """The decisions of each sketch. Sketches of one computation mostly have the same decisions, on tiles of the
        same loops, and differ in where the epilogue and intermediate results are computed; TVM adapts a tile that does
        not fit the loop."""
        return self._kinds

    def grow(self, kind: int, genes: Sequence[Gene | None], seed: int) -> Individual | None:
        """The schedule with these decisions."""
        grown = self._space.grow(kind, cast(Sequence[schedule_traces.Decision | None], genes), seed)
        if grown is None or (self._threads_min and launched(grown.schedule) < self._threads_min):
            return None
        self._grown[grown.key] = grown
        self._keys[kind, grown.decisions] = grown.key
        return Individual(kind, grown.decisions, grown.key)

    def near(self, kind: int, place: int, gene: Gene, random: Random) -> Gene | None:
        """A decision next to this one."""
        sketch = self._space.sketches[kind]
        return beside(sketch.instructions[sketch.places[place]], cast(schedule_traces.Decision, gene), random)

    def _individual(self, trace: schedule_traces.Trace) -> Individual | None:
        """The individual of a record; None if it is of no sketch of this task."""
        kind = self._space.identify(trace)
        if kind is None:
            return None
        key = self._keys.get((kind, trace.decisions))
        if key is not None:
            return Individual(kind, trace.decisions, key)
        return self.grow(kind, trace.decisions, 1)


def rules_of(options: Options) -> Rules:
    """The rules of a job's options."""
    default = PUBLISHED if options.mode == "tc_compat" else OWN
    return Rules(
        mode=options.mode,
        pop_size=options.pop_size or default["pop_size"],
        number_elites=default["number_elites"] if options.number_elites < 0 else options.number_elites,
        crossover_rate=options.crossover_rate / 100,
        mutation_rate=(default["mutation_rate"] if options.mutation_rate < 0 else options.mutation_rate) / 100,
        restore_number=options.restore_number,
        generations=options.generations,
    )


def launched(schedule: Schedule) -> int:
    """Number of threads that a GPU program starts."""
    extents: dict[str, int] = {}
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        for loop in map(schedule.get, schedule.get_loops(block)):
            if loop.thread_binding is not None:
                tag = str(loop.thread_binding.thread_tag)
                extents[tag] = max(extents.get(tag, 1), int(loop.extent))
    return math.prod(extents.values())
