"""Design space of a task: MetaSchedule's sketches and ours, and schedules grown from them decision by decision."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import meta_schedule as ms

from autosched_tvm.compile import intrinsics, kernel_sketches, targets
from autosched_tvm.compile.task_extraction import hash_of
from autosched_tvm.tuning import schedule_traces
from autosched_tvm.tuning.blocked_sketch import blocked_sketch
from autosched_tvm.tuning.schedule_traces import Decision, Sketch
from autosched_tvm.tuning.search_method import SearchContext, Unsupported
from autosched_tvm.tvm_types import IRModule, Schedule, Target, Trace

LOG = logging.getLogger("autosched_tvm.search")
LOG.addHandler(logging.NullHandler())
LOG.propagate = False
LISTED_MAX = 4096
"""Maximum number of combinations of decisions that are listed."""
COMPUTATIONS_MAX = 100
"""Maximum number of computations of a task. TVM moves each of them in each schedule that it draws: a concatenation of
21 tensors, written as 226 computations, took ten minutes for one round."""


@dataclass(frozen=True)
class Grown:
    """A schedule with all its decisions made."""

    sketch: int
    decisions: tuple[Decision, ...]
    key: str
    """Key that is the same for equal programs."""
    schedule: Schedule = field(repr=False, compare=False)

    def candidate(self, memo: dict[str, Any] | None = None) -> bytes:
        """Returns the candidate in the form that is built and stored."""
        return schedule_traces.write(self.schedule.trace.as_json(), memo)


class SketchSpace:
    """Sketches of one task. The same decisions give the same program, in any process."""

    def __init__(self, site: SearchContext) -> None:
        """Raises Unsupported for a task with more than `COMPUTATIONS_MAX` computations."""
        if _computations(site.workload) > COMPUTATIONS_MAX:
            raise Unsupported(f"it has more than {COMPUTATIONS_MAX} computations")
        intrinsics.install()  # those of tensor cores take half a minute, and these sketches use none
        quiet()
        self.workload, self.target = site.workload, site.target
        self._generator = ms.TuneContext(
            mod=site.workload, target=site.target, space_generator=_rules_for(site.target), task_name="space",
            logger=LOG, rand_state=site.seed, num_threads=1,
        )  # fmt: skip
        tiled = kernel_sketches.sampled(site.workload, site.seed)
        # MetaSchedule's rules know no dot instruction
        rules = list(self._generator.generate_design_space()) if tiled is None else []
        found = tiled
        if tiled is None and not targets.is_gpu(site.target):
            found = blocked_sketch(site.workload, site.seed)
        own = [] if found is None else [found]
        self.designs = rules + own * max(1, len(rules))
        """Schedules from which TVM draws; ours as often as all others together."""
        self.sketches = [_sketch(schedule.trace.simplified(True)) for schedule in (*rules, *own)]
        self._numbers = {sketch.text: number for number, sketch in enumerate(self.sketches)}
        self.listed = None if tiled is None else _listed(tiled)
        """All combinations of decisions of the only sketch; None for several sketches, or too many combinations."""

    def context(self, seed: int, strategy: Any = None) -> Any:
        """Returns a TuneContext for the task, with random numbers from `seed`, and one thread, which keeps their
        order."""
        return ms.TuneContext(
            mod=self.workload, target=self.target, space_generator=_rules_for(self.target), search_strategy=strategy,
            task_name="task", logger=LOG, rand_state=seed, num_threads=1,
        )  # fmt: skip

    def identify(self, trace: schedule_traces.Trace) -> int | None:
        """Returns the sketch of a trace; None for a trace of another space."""
        return self._numbers.get(trace.sketch.text)

    def grow(self, sketch: int, decisions: Sequence[Decision | None], seed: int) -> Grown | None:
        """Returns the schedule with these decisions, the missing ones drawn; None when there is no such program."""
        schedule = tvm.s_tir.Schedule(self.workload, seed=seed, debug_mask=0, enable_check=False)
        try:
            wanted = self.sketches[sketch].with_decisions(decisions)
            tvm.s_tir.Trace.apply_json_to_schedule(wanted, schedule)
            schedule.enter_postproc()
            if not all(postproc.apply(schedule) for postproc in self._generator.space_generator.postprocs):
                return None
        except Exception:  # TVM refuses some combinations, with various exceptions
            return None
        if self.listed is None or None in decisions:
            return self.grown(schedule)
        made = tuple(decision for decision in decisions if decision is not None)
        return Grown(sketch, made, hash_of(schedule.mod), schedule)  # reading its trace takes as long as all else

    def grown(self, schedule: Schedule) -> Grown | None:
        """Returns the sketch and decisions of a schedule that TVM's own search made; None for a schedule of no
        sketch."""
        trace = _parsed(schedule.trace)
        sketch = self.identify(trace) if trace is not None else None
        if trace is None or sketch is None:
            return None
        return Grown(sketch, trace.decisions, hash_of(schedule.mod), schedule)


def _rules_for(target: Target) -> object:
    """Returns the rules that make the sketches for a target. For a GPU, TVM would choose those of tensor cores, which
    multiply numbers of 16 bits."""
    if not targets.is_gpu(target):
        return "post-order-apply"
    kind = targets.CUDA
    return ms.space_generator.PostOrderApply(sch_rules=kind, postprocs=kind, mutator_probs=kind)


def _computations(workload: IRModule) -> int:
    blocks: list[Any] = []
    tvm_ffi.structural_walk(workload["main"].body, (tvm.s_tir.SBlock, blocks.append))
    return sum(str(block.name_hint) != "root" for block in blocks)


def _parsed(trace: Trace) -> schedule_traces.Trace | None:
    """Returns a trace of TVM as data; None for one that lacks a decision."""
    return schedule_traces.read(schedule_traces.write(trace.as_json()))


def _listed(drawn: Schedule) -> list[tuple[Decision, ...]] | None:
    """Returns all combinations of decisions, of which a schedule has one; None for too many."""
    trace = _parsed(drawn.trace.simplified(True))
    assert trace is not None, "all decisions of a drawn schedule are made"
    options = [
        schedule_traces.options(trace.sketch.instructions[place], decision)
        for place, decision in zip(trace.sketch.places, trace.decisions, strict=True)
    ]
    known = [one for one in options if one is not None]
    if len(known) < len(options) or math.prod(map(len, known)) > LISTED_MAX:
        return None
    return list(product(*known))


def _sketch(simplified: Trace) -> Sketch:
    """Returns the sketch of a trace without unused instructions, which TVM's search removes as well."""
    trace = _parsed(simplified)
    assert trace is not None, "TVM's design spaces have all decisions made"
    return trace.sketch


def quiet() -> None:
    """Registers an empty schedule rule for pooling operators, whose absence TVM reports."""
    for name in ("pool_max", "pool_avg", "pool_sum"):
        full = f"s_tir.meta_schedule.cpu.meta_schedule.{name}"
        if tvm.get_global_func(full, allow_missing=True) is None:
            tvm.register_global_func(full, lambda schedule, _block: [schedule])
