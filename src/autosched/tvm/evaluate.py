"""Checks a compiled network's outputs, and times its builds side by side with ONNX Runtime.

Runs in the process of the job; the engines run in processes of their own (see `autosched.tvm.contest`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from autosched.backend import Evaluation, OperatorTimes, Timing
from autosched.errors import RequestError, StepFailed
from autosched.measured.statistics import clearly_faster
from autosched.tvm.comparison import compare
from autosched.tvm.contest import Contest, Contestant, race
from autosched.tvm.module import Array, random_inputs
from autosched.tvm.orders import Form
from autosched.tvm.workers import Killed, WorkerError

BUDGET_S = 9.0
"""Seconds for all builds together, in equal shares: an untuned build may be thirty times slower than the others."""
UNTUNED_ROUNDS_MAX = 7
"""Samples of the untuned build, which is no more than a detail."""
INPUT_SEED = 0
OPERATORS_BUDGET_S = 1.5
"""Seconds for the times of the single operators."""


def evaluate(contest: Contest, builds: Path, forms: Sequence[Form]) -> Evaluation:
    """Measure `builds`/default and `builds`/tuned against each other and ONNX Runtime; check the outputs.

    Raises WorkerError when a build crashes, and StepFailed when it does so in the middle of the race.
    """
    notes: list[str] = []
    (default, side), (tuned, _) = (contest.module(name, builds / name) for name in ("default", "tuned"))
    inputs = random_inputs(side.inputs, INPUT_SEED)
    rival = contest.rival(forms, inputs)
    if isinstance(rival, str):
        notes.append(f"{rival}: outputs are compared with the untuned build")
    reference = "the untuned build" if isinstance(rival, str) else f"ONNX Runtime {rival.version}"
    contestants = [default, tuned]
    results = {}
    for one in contestants:
        results[one.name] = one.run(inputs)
        one.bind(inputs)
    expected = results["default"] if isinstance(rival, str) else rival.expected
    checks = {name: compare(expected, got) for name, got in results.items()}
    if not any(np.isfinite(array.astype("float64")).any() for array in expected):
        notes.append("no output is a finite number for made-up inputs, so that their comparison proves little")
    if not isinstance(rival, str):
        contestants.append(rival.contestant)
    found = race(contestants, min(BUDGET_S, contest.left_s / 4), few={"default": UNTUNED_ROUNDS_MAX})
    for name, why in found.lost.items():
        if name != "onnxruntime":
            raise StepFailed(f"the {name} build crashed while it was measured: {why}")
        notes.append(f"ONNX Runtime was not measured: {why}")
    choice = published(found.timings, tuned_right=checks["tuned"].equal, notes=notes)
    check = checks[choice]
    operators = _operators(default if choice == "default" else tuned, notes)
    return Evaluation(
        timings=tuple(found.timings), reference=reference, outputs_equal=check.equal,
        max_abs_error=check.max_abs_error, tolerance=check.tolerance, cores=contest.cores, published=choice,
        notes=tuple(notes), form="" if isinstance(rival, str) else rival.form,
        forms=() if isinstance(rival, str) else rival.forms, operators=operators,
    )  # fmt: skip


def check(
    contest: Contest, module: Path, forms: Sequence[Form], inputs: Mapping[str, Array], budget_s: float
) -> Evaluation:
    """Compare a module with its model in ONNX Runtime, and time both for `budget_s`.

    Raises RequestError where ONNX Runtime cannot run the model, and WorkerError.
    """
    ours, side = contest.module("tuned", module)
    ours.name = side.build
    outputs = ours.run(inputs)
    ours.bind(inputs)
    rival = contest.rival(forms, inputs)
    if isinstance(rival, str):
        raise RequestError(f"{rival}, so there is nothing to compare {side.name} with. Look for yourself: --output DIR")
    found = compare(rival.expected, outputs)
    timings = race([ours, rival.contestant], budget_s).timings
    return Evaluation(
        timings=tuple(timings), reference=f"ONNX Runtime {rival.version}", outputs_equal=found.equal,
        max_abs_error=found.max_abs_error, tolerance=found.tolerance, cores=contest.cores, published=side.build,
        form=rival.form, forms=rival.forms,
    )  # fmt: skip


def _operators(build: Contestant, notes: list[str]) -> OperatorTimes | None:
    """The times of a build's operators; None, and a note, where they cannot be had. Raises Killed."""
    try:
        return build.operators(OPERATORS_BUDGET_S)
    except Killed:
        raise
    except WorkerError as error:
        notes.append(f"the operators were not measured one by one: {error}")
        return None


def published(timings: Sequence[Timing], *, tuned_right: bool, notes: list[str]) -> str:
    """Which build is handed to the user; `notes` says why it is not the tuned one."""
    by_name = {timing.name: timing for timing in timings}
    default, tuned = by_name["default"], by_name["tuned"]
    if not tuned_right:
        notes.append("the tuned build computes something else than the reference; the untuned build is published")
        return "default"
    if tuned.median_s >= default.median_s:
        notes.append("tuning did not make the network faster; the untuned build is published. Try more --trials")
        return "default"
    if not clearly_faster(tuned, default):
        notes.append("the tuned build is faster, but the intervals of the two overlap")
    return "tuned"
