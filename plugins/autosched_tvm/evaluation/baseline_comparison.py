"""Measures the engine that runs the model's file, and compares early builds of a search with it."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from autosched.backend import RIVALS, Baseline, Evaluation, OperatorTimes
from autosched.errors import StepFailed
from autosched.process.forked_workers import Killed, WorkerError
from autosched.records.statistics import clearly_faster
from autosched_tvm.evaluation.engine_benchmark import EngineBenchmark, EngineProcess, race, unwatched
from autosched_tvm.tensors import Array
from autosched_tvm.worker_messages import Form

log = logging.getLogger(__name__)

BUDGET_S = 3.0
"""Time for measuring an early build and its rival in seconds. The search waits for the device meanwhile."""
OPERATORS_S = 0.5
"""Time for measuring the operators of an early build in seconds."""


def baseline(contest: EngineBenchmark, forms: Sequence[Form], inputs: Mapping[str, Array]) -> Baseline | str:
    """Returns the latency of the engine that runs the model's file, in its fastest form; or the reason why there is
    none."""
    rival = contest.rival(forms, inputs)
    if isinstance(rival, str):
        return rival
    best = next(timing for timing in rival.forms if timing.name == rival.form)
    return Baseline(RIVALS[rival.contestant.name], rival.version, rival.form, best.median_s, best.low_s, best.high_s)


def measured(
    contest: EngineBenchmark,
    build: Path,
    forms: Sequence[Form],
    inputs: Mapping[str, Array],
    *,
    also_slower: bool = False,
) -> Evaluation:
    """Measures a build beside the engine that runs the model's file, and the build's operators. `published` is "tuned"
    if the build is clearly faster. Outputs are not compared. `also_slower`: publish a slower build, too.

    Raises StepFailed when either crashes, and WorkerError.
    """
    ours, _ = contest.module("tuned", build)
    ours.bind(inputs)
    rival = contest.rival(forms, inputs)
    if isinstance(rival, str):
        raise StepFailed(rival)
    found = race([ours, rival.contestant], min(BUDGET_S, contest.left_s / 4), until_clear=not also_slower)
    if found.lost:
        name, why = next(iter(found.lost.items()))
        raise StepFailed(f"{name} crashed while it was measured: {why}")
    timings = {timing.name: timing for timing in found.timings}
    name = RIVALS[rival.contestant.name]
    wanted = also_slower or clearly_faster(timings["tuned"], timings[rival.contestant.name])
    slower = () if wanted else (f"the build is not clearly faster than {name}; its outputs were not compared",)
    return Evaluation(
        timings=tuple(found.timings), reference=f"{name} {rival.version}", outputs_equal=False,
        max_abs_error=0.0, tolerance=0.0, cores=contest.cores, published="tuned" if wanted else "", form=rival.form,
        operators=_operators(ours), board=contest.board,
        notes=(*unwatched(contest), *slower),
    )  # fmt: skip


def _operators(ours: EngineProcess) -> OperatorTimes | None:
    """Returns the time of each operator of a build; None where that cannot be measured, since the search works
    without."""
    try:
        return ours.operators(OPERATORS_S)
    except Killed:
        raise
    except WorkerError as error:
        log.warning("the operators of an early build cannot be measured", exc_info=error)
        return None
