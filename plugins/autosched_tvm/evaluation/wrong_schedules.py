"""Removes wrong schedules from a compiled network until its outputs are correct. Runs in the process of the job."""

import logging
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from autosched.backend import Difference, WrongSchedule
from autosched.errors import DeviceLost, StepFailed
from autosched.process.forked_workers import Died, Killed
from autosched_tvm import worker_messages
from autosched_tvm.evaluation.verification_messages import Request, VerificationResult
from autosched_tvm.worker_messages import Compilation, TaskSchedules

log = logging.getLogger(__name__)

ROUNDS_MAX = 3
"""Maximum number of searches for wrong schedules. After the last one, their tasks stay untuned."""
REJECTED = "rejected"
"""Name of the first rejected build, beside the others."""

Ask = Callable[..., Any]
"""Calls a function in a child: purpose, name, arguments and `timeout_s`."""
Wrong = Collection[tuple[int, bytes]]
"""Tasks and candidates that are excluded."""


class Mended(Struct, frozen=True):
    """The network after wrong schedules were removed."""

    verdict: VerificationResult
    wrong: tuple[WrongSchedule, ...] = ()
    without_rule: tuple[str, ...] = ()
    """Workload hashes of kernels that have no schedule by rule any more, including those of earlier judgements."""
    notes: tuple[str, ...] = ()
    compile_notes: tuple[str, ...] | None = None
    """Notes of the last compilation; None: there was no further one."""
    difference: Difference | None = None
    """Difference of the first rejected build."""


def mended(
    ask: Ask, compilation: Compilation, request: Request, choices: Callable[[Wrong], Sequence[TaskSchedules]],
    timeouts: tuple[float, float],
) -> Mended:  # fmt: skip
    """Judges the builds; while the tuned one is wrong, finds the schedules, uses the next best and compiles again.

    `choices` returns the schedules to compile with, without the wrong ones. `timeouts`: seconds for one judgement or
    compilation, and until no further search begins. A tuned build that crashes is a wrong one. An untuned build is made
    if there is none and no other reference, or if the tuned one is wrong. Raises StepFailed when the untuned one
    crashes.
    """
    each_s, all_s = timeouts
    until = time.monotonic() + all_s
    verdict, request, notes = _first_verdict(ask, compilation, request, each_s)
    difference = verdict.checks["tuned"].difference
    if verdict.checks["tuned"].equal:
        return Mended(verdict, without_rule=compilation.without_rule, notes=tuple(notes))
    _keep(Path(compilation.folder))
    wrong: list[WrongSchedule] = []
    compile_notes: tuple[str, ...] | None = None
    started = time.monotonic()
    for turn in range(ROUNDS_MAX):
        if verdict.checks["tuned"].equal:
            break
        if (left_s := until - time.monotonic()) <= 0:
            notes.append("no time was left to find the wrong schedule")
            break
        try:
            used = choices({(one.task, one.candidate) for one in wrong})
            at = verdict.checks["tuned"].difference
            found = ask(
                "the search for the wrong schedule", worker_messages.FIND_WRONG, compilation, used, request,
                at.sample if at is not None else 0, left_s, timeout_s=left_s + each_s,
            )  # fmt: skip
            notes += found.notes
            if not found.wrong and not found.without_rule:
                break
            compilation = structs.replace(compilation, without_rule=(*compilation.without_rule, *found.without_rule))
            wrong += found.wrong
            tasks = {one.task for one in wrong}
            used = choices({(one.task, one.candidate) for one in wrong})
            if turn == ROUNDS_MAX - 1:
                used = [one for one in used if one.task not in tasks]
            compiled = ask("compile", worker_messages.COMPILE_AGAIN, compilation, used, timeout_s=each_s)
            compile_notes = compiled.notes
            verdict = _verdict(ask, compilation, request, each_s)
        except (Killed, DeviceLost):
            raise
        except StepFailed as error:
            notes.append(f"the network was not mended: {error}")
            break
    notes += [f"task {one.task}: its schedule was taken out: {one.detail}" for one in wrong]
    if compile_notes is not None and verdict.checks["tuned"].equal:
        notes.append(f"the network was compiled again without them in {time.monotonic() - started:.0f} s, and is right")
    return Mended(verdict, tuple(wrong), compilation.without_rule, tuple(notes), compile_notes, difference)


def _first_verdict(
    ask: Ask, compilation: Compilation, request: Request, timeout_s: float
) -> tuple[VerificationResult, Request, list[str]]:
    """Returns the verdict on the builds, the request for later ones, and notes. Makes the untuned build if it is
    lacking and required."""
    notes: list[str] = []
    try:
        verdict = _verdict(ask, compilation, request, timeout_s)
    except StepFailed as error:
        if not isinstance(error.__cause__, Died):
            raise
        notes.append(f"{error}; tuned builds then ran in processes of their own")
        request = structs.replace(request, apart=True)
        verdict = _verdict(ask, compilation, request, timeout_s)
    if "default" not in verdict.checks and not (verdict.checks and verdict.checks["tuned"].equal):
        ask("compile", worker_messages.COMPILE_UNTUNED, compilation, timeout_s=timeout_s)
        verdict = _verdict(ask, compilation, request, timeout_s)
    return verdict, request, notes


def _verdict(ask: Ask, compilation: Compilation, request: Request, timeout_s: float) -> VerificationResult:
    found: VerificationResult = ask("verify", worker_messages.VERIFY, compilation.folder, request, timeout_s=timeout_s)
    return found


def _keep(folder: Path) -> None:
    """Keeps the build that was rejected."""
    for suffix in (".so", ".json"):
        shutil.copyfile(folder / f"tuned{suffix}", folder / f"{REJECTED}{suffix}")
