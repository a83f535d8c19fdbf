"""Finds the schedules that make a network's outputs wrong, by bisection. Runs in a child process.

A schedule with a correct kernel may still be wrong in the network: with other values, or beside other kernels. The
network is built and judged with the schedules of one half of the tasks, then with half of the wrong half, and so on.
See docs/decisions/001-verification.md.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import tvm
from msgspec import Struct

from autosched.backend import WrongSchedule
from autosched_tvm.compile import model_sources, network_compiler
from autosched_tvm.compile.layouts.layout_option import LayoutOption
from autosched_tvm.device.loaded_module import LoadedModule
from autosched_tvm.evaluation import input_samples
from autosched_tvm.evaluation.verification import Judge, place_for, unscheduled_of
from autosched_tvm.evaluation.verification_messages import Check, Request
from autosched_tvm.worker_messages import Compilation, TaskSchedules

WRONG_MAX = 4
"""Maximum number of wrong schedules that one search names."""


class Found(Struct, frozen=True):
    """Result of a search for wrong schedules."""

    wrong: tuple[WrongSchedule, ...]
    notes: tuple[str, ...] = ()


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
        default = LoadedModule(Path(compilation.folder) / "default", place=place)
        given = input_samples.of(default.info.inputs, request.samples)
        unscheduled = unscheduled_of(Path(compilation.folder) / network_compiler.TUNED)
        hunt.judge = Judge(request, given[sample : sample + 1] or given, default, place, unscheduled=unscheduled)
        return _found(hunt)


def _found(hunt: "_Hunt") -> Found:
    wrong: list[WrongSchedule] = []
    try:
        if not hunt.check(()).equal:
            said = "the tuned build differs even without any schedule, so that no task is to blame for it"
            return Found((), (said,))
        left = hunt.keys
        while len(wrong) < WRONG_MAX and not (check := hunt.check(left)).equal:
            key = hunt.culprit(left)
            wrong.append(hunt.blamed(key, check))
            left = [one for one in left if one != key]
    except OutOfTime:
        return Found(tuple(wrong), ("the search for wrong schedules was ended, since its time was over",))
    return Found(tuple(wrong))


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
        self.keys = [
            key for key, one in self._schedules.items() if network_compiler.with_schedules(self._fused, {key: one})[1]
        ]
        self._longest_s = 0.0
        self._known: dict[frozenset[str], Check] = {}

    def check(self, keys: Sequence[str]) -> Check:
        """Builds the network with these schedules only, and judges it. Raises OutOfTime."""
        wanted = frozenset(keys)
        if wanted not in self._known:
            self._known[wanted] = self._checked(wanted)
        return self._known[wanted]

    def _checked(self, keys: frozenset[str]) -> Check:
        started = time.monotonic()
        if started + self._longest_s > self._until:
            raise OutOfTime
        path = Path(tempfile.mkdtemp(prefix="attempt-", dir=self._folder)) / "build"
        # in its own folder: a loaded library is not loaded again by the same name
        module, _ = network_compiler.with_schedules(self._fused, {key: self._schedules[key] for key in keys})
        try:
            network_compiler.write_build(path, module, self._source, self._target, self._who)
            return self.judge.check_file(path)
        finally:
            shutil.rmtree(path.parent)
            self._longest_s = max(self._longest_s, time.monotonic() - started)

    def culprit(self, keys: Sequence[str]) -> str:
        """Returns one of these schedules, which together make the network wrong, that is wrong itself. Raises
        OutOfTime."""
        sound: list[str] = []
        suspects = list(keys)
        while len(suspects) > 1:
            half, rest = suspects[: len(suspects) // 2], suspects[len(suspects) // 2 :]
            if self.check([*sound, *half]).equal:
                sound, suspects = [*sound, *half], rest
            else:
                suspects = half
        return suspects[0]

    def blamed(self, key: str, check: Check) -> WrongSchedule:
        """Returns a wrong schedule with its effect."""
        one, at = self._schedules[key], check.difference
        if check.crash:
            return WrongSchedule(one.task, one.candidate, f"crashes in the network: {check.crash}")
        where = f": output {at.output!r}{list(at.index)} is {at.got}, not {at.expected}" if at is not None else ""
        return WrongSchedule(one.task, one.candidate, f"wrong in the network{where}")
