"""Measures a compiled network's builds side by side with ONNX Runtime, and chooses the one that the user gets.

Runs in the process of the job. Each engine runs in its own process: see `autosched_tvm.evaluation.engine_benchmark`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from autosched.backend import NO_NUMBER, RIVALS, Evaluation, OperatorTimes, Start, Timing
from autosched.errors import RequestError, StepFailed
from autosched.process.forked_workers import Killed, WorkerError
from autosched.records.statistics import clearly_faster
from autosched_tvm.evaluation import first_inference
from autosched_tvm.evaluation.engine_benchmark import EngineBenchmark, EngineProcess, Racer, race, unwatched
from autosched_tvm.evaluation.verification_messages import VerificationResult
from autosched_tvm.tensors import Array
from autosched_tvm.worker_messages import Form

BUDGET_S = 9.0
"""Time for all builds together in seconds, in equal shares. An untuned build may be thirty times slower than the
others."""
UNTUNED_ROUNDS_MAX = 7
"""Maximum number of samples of the untuned build, whose exact latency matters little."""
OPERATORS_BUDGET_S = 1.5
"""Time for measuring the single operators in seconds."""


def evaluate(
    contest: EngineBenchmark,
    builds: Path,
    forms: Sequence[Form],
    inputs: Mapping[str, Array],
    verdict: VerificationResult,
    *,
    unverified: bool = False,
) -> Evaluation:
    """Measures the judged builds of a folder, tuned and perhaps default, against each other and ONNX Runtime.
    `unverified`: choose one even if nothing but the untuned build could check them.

    Raises WorkerError when a build crashes, and StepFailed when it does so during the race.
    """
    notes = list(verdict.notes)
    ours = {name: contest.module(name, builds / name)[0] for name in verdict.checks}
    contestants: list[Racer] = list(ours.values())
    rival = contest.rival(forms, inputs)
    for one in ours.values():
        one.bind(inputs)
    if isinstance(rival, str):
        notes.append(rival)
    else:
        contestants.append(rival.contestant)
    budget_s = min(BUDGET_S, contest.left_s / 4)
    found = race(contestants, budget_s, few={"default": UNTUNED_ROUNDS_MAX}, until_clear=True)
    notes += unwatched(contest)
    for name, why in found.lost.items():
        if name not in RIVALS:
            raise StepFailed(f"the {name} build crashed while it was measured: {why}")
        notes.append(f"{RIVALS[name]} was not measured: {why}")
    choice = published(found.timings, verdict, notes, unverified=unverified)
    check = verdict.checks[choice or "tuned"]
    operators = _operators(ours[choice or "tuned"], notes)
    files = {first_inference.OURS: builds / (choice or "tuned")}
    if not isinstance(rival, str) and rival.contestant.name == first_inference.ONNXRUNTIME:
        files[first_inference.ONNXRUNTIME] = next(Path(form.path) for form in forms if form.name == rival.form)
    return Evaluation(
        timings=tuple(found.timings), reference=verdict.reference, outputs_equal=check.equal,
        max_abs_error=check.max_abs_error, tolerance=check.tolerance, cores=contest.cores, published=choice,
        notes=tuple(notes), form="" if isinstance(rival, str) else rival.form,
        forms=() if isinstance(rival, str) else rival.forms, operators=operators, difference=check.difference,
        samples=verdict.samples, board=contest.board, verified=verdict.verified,
        starts=_starts(contest, files, inputs, notes),
    )  # fmt: skip


def _starts(
    contest: EngineBenchmark, files: Mapping[str, Path], inputs: Mapping[str, Array], notes: list[str]
) -> tuple[Start, ...]:
    """Returns the starts of engines; none, and a note, where they cannot be measured. Those on boards and GPUs are not
    measured."""
    if contest.board:
        return ()
    try:
        return tuple(first_inference.measured(files, inputs, contest.cores, contest.left_s / 8))
    except first_inference.NotMeasured as why:
        notes.append(str(why))
        return ()


def check(
    contest: EngineBenchmark, module: Path, forms: Sequence[Form], inputs: Mapping[str, Array],
    verdict: VerificationResult, budget_s: float,
) -> Evaluation:  # fmt: skip
    """Measures a module and its model in ONNX Runtime for `budget_s`; `verdict` tells whether the module is correct.

    Raises RequestError where ONNX Runtime cannot run the model, and WorkerError.
    """
    ours, side = contest.module("tuned", module)
    ours.name = side.build
    ours.bind(inputs)
    rival = contest.rival(forms, inputs)
    found, racers, notes = verdict.checks["tuned"], [ours], list(verdict.notes)
    if not isinstance(rival, str):
        racers.append(rival.contestant)
    elif contest.board:
        notes.append(rival)
    else:
        raise RequestError(f"{rival}, so there is nothing to compare {side.name} with. Look for yourself: --output DIR")
    timings = race(racers, budget_s).timings
    return Evaluation(
        timings=tuple(timings), reference=verdict.reference, outputs_equal=found.equal,
        max_abs_error=found.max_abs_error, tolerance=found.tolerance, cores=contest.cores, published=side.build,
        notes=tuple(notes), form="" if isinstance(rival, str) else rival.form,
        forms=() if isinstance(rival, str) else rival.forms, difference=found.difference, samples=verdict.samples,
        board=contest.board,
    )  # fmt: skip


def _operators(build: EngineProcess, notes: list[str]) -> OperatorTimes | None:
    """Returns the times of a build's operators; None, and a note, where they cannot be measured. Raises Killed."""
    try:
        return build.operators(OPERATORS_BUDGET_S)
    except Killed:
        raise
    except WorkerError as error:
        notes.append(f"the operators were not measured one by one: {error}")
        return None


def published(
    timings: Sequence[Timing], verdict: VerificationResult, notes: list[str], *, unverified: bool = False
) -> str:
    """Returns the build that the user gets; `notes` receives the reason if it is not the tuned one. Empty: none is
    correct."""
    if not verdict.verified and not unverified:
        notes.append(
            "no other engine could check what the network computes, so that none is handed over."
            " To have one anyway: autosched compile JOB --unverified"
        )
        return ""
    right = {name: check.equal for name, check in verdict.checks.items()}
    if "default" not in right:
        return "tuned" if right["tuned"] else ""
    by_name = {timing.name: timing for timing in timings}
    default, tuned = by_name["default"], by_name["tuned"]
    if not right["tuned"] and not right["default"]:
        notes.append("all builds compute something else than the reference, so that none is handed over")
        if all(check.max_abs_error < NO_NUMBER for check in verdict.checks.values()):
            notes.append("allow more where that is right: autosched compile JOB --tolerance SHARE")
        else:
            notes.append("no tolerance helps here: this is a fault of the import, and not of your model")
        return ""
    if not right["tuned"]:
        notes.append("the tuned build computes something else than the reference; the untuned build is published")
        return "default"
    if right["default"] and clearly_faster(default, tuned):
        notes.append("tuning did not make the network faster; the untuned build is published. Try more --trials")
        return "default"
    if not clearly_faster(tuned, default):
        notes.append("the tuned build is about as fast as the untuned one: the intervals of the two overlap")
    return "tuned"
