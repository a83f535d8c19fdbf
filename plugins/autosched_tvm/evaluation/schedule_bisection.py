"""Finds the schedules that make a network's outputs wrong, by bisection. Runs in a child process.

A schedule with a correct kernel may still be wrong in the network: with other values, or beside other kernels. The
network is built and judged with one half of its schedules, then with half of the wrong half, and so on. A schedule by
rule may be wrong as well as a measured one. See docs/decisions/001-verification.md.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import tvm
from msgspec import Struct, structs

from autosched.backend import WrongSchedule
from autosched_tvm.compile import model_sources, network_compiler, task_extraction
from autosched_tvm.compile.layouts.layout_option import LayoutOption
from autosched_tvm.device.loaded_module import LoadedModule
from autosched_tvm.evaluation import input_samples
from autosched_tvm.evaluation.verification import Judge, judge_of, place_for
from autosched_tvm.evaluation.verification_messages import Check, Request
from autosched_tvm.worker_messages import Compilation, TaskSchedules

WRONG_MAX = 4
"""Maximum number of wrong schedules that one search names."""


class Found(Struct, frozen=True):
    """Result of a search for wrong schedules."""

    wrong: tuple[WrongSchedule, ...] = ()
    notes: tuple[str, ...] = ()
    without_rule: tuple[str, ...] = ()
    """Workload hashes of kernels whose schedule by rule is wrong."""


class Suspect(NamedTuple):
    """A schedule of the kernels of one workload: by rule, or measured. Where there are both, the measured one is
    used."""

    workload: str
    """Hash of the workload."""
    by_rule: bool


class OutOfTime(Exception):
    """The time of a search is over."""


def find(
    compilation: Compilation, choices: Sequence[TaskSchedules], request: Request, sample: int, timeout_s: float
) -> Found:
    """Returns the wrong schedules among those that `compile_network` was given.

    `sample`: number of the sample of inputs whose outputs differ. The search starts no build for which `timeout_s` does
    not suffice.
    """
    hunt = _Hunt(compilation, choices, timeout_s)
    with place_for(request) as place:
        default = LoadedModule(Path(compilation.folder) / network_compiler.DEFAULT, place=place)
        given = input_samples.of(default.info.inputs, request.samples)
        tuned = Path(compilation.folder) / network_compiler.TUNED
        hunt.judge = judge_of(request, tuned, given[sample : sample + 1] or given, default, place)
        return _found(hunt)


def _found(hunt: "_Hunt") -> Found:
    found = Found()
    left = hunt.suspects
    try:
        while len(found.wrong) + len(found.without_rule) < WRONG_MAX and not (check := hunt.check(left)).equal:
            suspect = hunt.culprit(left)
            if suspect is None:
                said = "the tuned build differs even without any schedule, so that no schedule is to blame for it"
                return structs.replace(found, notes=(*found.notes, said))
            found = hunt.with_blamed(found, suspect, check)
            left = [one for one in left if one != suspect]
    except OutOfTime:
        said = "the search for wrong schedules was ended, since its time was over"
        return structs.replace(found, notes=(*found.notes, said))
    return found


class _Hunt:
    """Builds of one network with some of its schedules."""

    judge: Judge

    def __init__(self, compilation: Compilation, choices: Sequence[TaskSchedules], timeout_s: float) -> None:
        self._until = time.monotonic() + timeout_s
        self._source, self._target = model_sources.load(Path(compilation.model)), compilation.target
        self._folder = Path(compilation.folder)
        self._who = network_compiler.SideName(compilation.name, network_compiler.TUNED)
        tvm_target, layout = tvm.target.Target(json.loads(self._target)), LayoutOption(compilation.layout)
        self._schedules, _ = network_compiler.applied(choices)
        self._fused, _ = network_compiler.laid_out(
            self._source.cleaned(tvm_target), tvm_target, choices, layout, winograd=compilation.winograd
        )
        self._names = {
            task_extraction.workload_hash(kernel): str(variable.name_hint)
            for variable, kernel in network_compiler.kernels(self._fused)
        }
        measured = [
            key for key, one in self._schedules.items() if network_compiler.with_schedules(self._fused, {key: one})[1]
        ]
        self.suspects = [
            *(Suspect(key, by_rule=True) for key in self._names if key not in compilation.without_rule),
            *(Suspect(key, by_rule=False) for key in measured),
        ]
        """All schedules that the build may use."""
        self._longest_s = 0.0
        self._known: dict[frozenset[Suspect], Check] = {}

    def check(self, schedules: Sequence[Suspect]) -> Check:
        """Builds the network with these schedules only, and judges it. Raises OutOfTime."""
        wanted = frozenset(schedules)
        if wanted not in self._known:
            self._known[wanted] = self._checked(wanted)
        return self._known[wanted]

    def _checked(self, used: frozenset[Suspect]) -> Check:
        started = time.monotonic()
        if started + self._longest_s > self._until:
            raise OutOfTime
        path = Path(tempfile.mkdtemp(prefix="attempt-", dir=self._folder)) / "build"
        # in its own folder: a loaded library is not loaded again by the same name
        measured = {one.workload: self._schedules[one.workload] for one in used if not one.by_rule}
        without_rule = self._names.keys() - {one.workload for one in used if one.by_rule}
        module, _ = network_compiler.with_schedules(self._fused, measured, without_rule)
        try:
            network_compiler.write_build(path, module, self._source, self._target, self._who)
            return self.judge.check_file(path)
        finally:
            shutil.rmtree(path.parent)
            self._longest_s = max(self._longest_s, time.monotonic() - started)

    def culprit(self, schedules: Sequence[Suspect]) -> Suspect | None:
        """Returns one of these schedules, which together make the network wrong, that is wrong itself; None if the
        network is wrong without any. Raises OutOfTime."""
        rules = [one for one in schedules if one.by_rule]  # kernels without any schedule run slowly
        right = self.check(rules).equal
        sound, suspects = (rules, [one for one in schedules if not one.by_rule]) if right else ([], rules)
        while len(suspects) > 1:
            half, rest = suspects[: len(suspects) // 2], suspects[len(suspects) // 2 :]
            if self.check([*sound, *half]).equal:
                sound, suspects = [*sound, *half], rest
            else:
                suspects = half
        return suspects[0] if sound or (suspects and self.check(()).equal) else None

    def with_blamed(self, found: Found, suspect: Suspect, check: Check) -> Found:
        """Returns what was found, with a wrong schedule and its effect."""
        effect = f"crashes in the network: {check.crash}" if check.crash else "wrong in the network"
        if not check.crash and (at := check.difference) is not None:
            effect += f": output {at.output!r}{list(at.index)} is {at.got}, not {at.expected}"
        if suspect.by_rule:
            said = f"kernel {self._names[suspect.workload]}: its schedule by rule was taken out: {effect}"
            without = (*found.without_rule, suspect.workload)
            return structs.replace(found, without_rule=without, notes=(*found.notes, said))
        one = self._schedules[suspect.workload]
        return structs.replace(found, wrong=(*found.wrong, WrongSchedule(one.task, one.candidate, effect)))
