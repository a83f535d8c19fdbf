"""Conditions under which a machine counts as in use by others than the agent."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from autosched.agent import owner_watch
from autosched.agent.owner_watch import TICK_S, ForeignTime, OwnerWatch
from autosched.errors import Refused
from deadlines import DEADLINE_S

AGENT, CLIENT, WORKER, COMPILER, OTHER = 10, 11, 12, 13, 99


class Machine:
    """A scripted /proc, in ticks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.busy, self.idle = 1_000, 9_000
        self._tell()
        for pid, parent in ((AGENT, 1), (CLIENT, AGENT), (WORKER, CLIENT), (OTHER, 1)):
            self.process(pid, parent, 100)
        self.foreign = ForeignTime(lambda: (AGENT,), folder)

    def process(self, pid: int, parent: int, ticks: int, ended_children: int = 0, born: int = 5) -> None:
        (self.folder / str(pid)).mkdir(exist_ok=True)
        fields = ["S", parent, *[0] * 9, ticks, 0, ended_children, 0, *[0] * 4, born, 0]
        (self.folder / str(pid) / "stat").write_text(f"{pid} (a (strange) name) {' '.join(map(str, fields))}\n")

    def ends(self, pid: int) -> None:
        (self.folder / str(pid) / "stat").unlink()

    def passes(self, busy: int, idle: int = 100) -> None:
        self.busy, self.idle = self.busy + busy, self.idle + idle
        self._tell()

    def _tell(self) -> None:
        (self.folder / "stat").write_text(f"cpu  {self.busy} 0 0 {self.idle} 0 0 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0 0 0\n")

    def look(self) -> int:
        """Returns the ticks of other programs."""
        return round(self.foreign.look()[0] / TICK_S)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.passes(40)
    made.look()  # from now on it knows the processes of the agent
    return made


def test_processes_of_the_agent_are_not_foreign(machine: Machine) -> None:
    machine.passes(40)
    machine.process(CLIENT, AGENT, 115)
    machine.process(WORKER, CLIENT, 125)
    assert machine.look() == 0


def test_processes_of_others_are_foreign(machine: Machine) -> None:
    machine.passes(40)
    machine.process(WORKER, CLIENT, 115)
    machine.process(OTHER, 1, 125)
    assert machine.look() == 25


def test_a_process_that_is_new_belongs_to_its_parent(machine: Machine) -> None:
    machine.passes(30)
    machine.process(COMPILER, WORKER, 30)
    assert machine.look() == 0
    machine.passes(30)
    machine.process(COMPILER + 1, 1, 30)
    assert machine.look() == 30


def test_the_time_of_a_child_that_ended_is_its_parents(machine: Machine) -> None:
    machine.passes(40)
    machine.ends(WORKER)
    machine.process(CLIENT, AGENT, 100, ended_children=110)
    assert machine.look() == 30


def test_a_sample_with_missing_times_is_ignored(machine: Machine) -> None:
    """A client that an earlier agent started is no child of this one."""
    machine.passes(40)
    machine.ends(WORKER)
    assert machine.look() == 0
    machine.passes(40)
    assert machine.look() == 40


def test_a_reused_process_id_is_another_process(machine: Machine) -> None:
    machine.passes(40)
    machine.process(WORKER, 1, 3, born=777)
    assert machine.look() == 0, "the time of the one before is missing"


def test_this_machine_reports_processor_times() -> None:
    sleeper = os.posix_spawn("/bin/sleep", ["sleep", str(DEADLINE_S)], os.environ)
    try:
        foreign = ForeignTime(lambda: (sleeper,))
        ends_at = time.process_time() + 10 * TICK_S
        while time.process_time() < ends_at:
            pass
        used_s, counted = foreign.look()
        assert counted
        assert used_s >= 5 * TICK_S
    finally:
        os.kill(sleeper, 9)
        os.waitpid(sleeper, 0)


class Script:
    """Scripted loads in cores, one for each look; the last one repeats."""

    def __init__(self, *cores: float) -> None:
        self.cores = [0.0, *cores]  # the first look is the start
        self.looks = 0
        self.counted = True
        self._at = time.monotonic()

    def look(self) -> tuple[float, bool]:
        self.looks += 1
        now = time.monotonic()
        lasted, self._at = now - self._at, now
        cores = self.cores.pop(0) if len(self.cores) > 1 else self.cores[0]
        return lasted * cores, self.counted


def watch(script: Script, quiet_s: float = 0.0, cores: int = 4) -> OwnerWatch:
    return OwnerWatch(cast(ForeignTime, script), quiet_s, cores)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_watch, "LOOK_S", 0.005)


def test_the_owner_is_back_when_others_use_half_a_core() -> None:
    script = Script(0.0, 0.2, 0.3, 0.3, 2.0)

    async def story() -> None:
        began = asyncio.get_running_loop().time()
        back = await watch(script).back()
        assert script.looks == 6, "not before the load"
        assert 0.5 <= back.cores <= 2.0
        assert began < back.since_s < asyncio.get_running_loop().time()
        assert str(back).startswith("its owner is back: other programs use ")

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))


@pytest.mark.parametrize(("cores", "busy"), [(1, 0.5), (24, 0.5), (96, 1.92)])
def test_a_large_machine_is_never_quite_idle(cores: int, busy: float) -> None:
    assert watch(Script(0.0), cores=cores).busy_cores == pytest.approx(busy)


def test_a_machine_is_quiet_when_it_was_not_used_for_long_enough() -> None:
    quiet_s = 0.05
    script = Script(0.0, 0.0, 0.0, 3.0, 0.0)

    async def story() -> None:
        began = asyncio.get_running_loop().time()
        await watch(script, quiet_s).quiet()
        assert script.cores == [0.0], "the load has come and gone"
        assert asyncio.get_running_loop().time() - began >= quiet_s + 4 * owner_watch.LOOK_S

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))


@pytest.mark.parametrize("wait", [OwnerWatch.back, OwnerWatch.quiet])
def test_a_system_without_processor_times_is_refused(wait: Callable[[OwnerWatch], Coroutine[Any, Any, object]]) -> None:
    script = Script(0.0)
    script.counted = False
    with pytest.raises(Refused, match=r"does not count its processor time .* without --idle"):
        asyncio.run(wait(watch(script, 1.0)))
