"""Quarantine of devices: duration, treatment, and end."""

import asyncio
import os
import select
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autosched import device_probe
from autosched.core.events import JobSubmitted, ResourcesDeclared, UnitDrained, UnitReturned
from autosched.core.scheduler import Scheduler
from autosched.daemon.devices import quarantine
from autosched.daemon.devices.device_monitor import LEARNED_FROM, DeviceMonitor
from autosched.daemon.devices.quarantine import Quarantine, is_quarantined
from autosched.daemon.runtime import Runtime, spawn
from autosched.daemon.storage.job_store import TABLES
from autosched.daemon.storage.journal import Journal
from autosched.device_probe import Pace, Unwell, run
from autosched.model import DeviceNote, JobSpec, Pool, RpcServer, Unit
from autosched.records.failure_attribution import DeviceSuspicion, Verdict
from deadlines import DEADLINE_S

POOLS = (
    Pool("host", (Unit("host/0"),)),
    Pool("device:cpu", (Unit("dev0"), Unit("dev1", (0,)), Unit("dev@lab2", (0,), host="lab2"))),
    Pool("device:pi4", (Unit("board", accelerator=RpcServer("board.lab:9090", "pi4")),)),
)
PAUSE_S = 0.01
LONG_S = 1e6


class Bench:
    """One daemon without connections."""

    def __init__(self, journal: Journal, pause_s: float, hook: tuple[str, ...]) -> None:
        self.runtime = Runtime(journal, Scheduler())
        self.monitor = DeviceMonitor(cast(Any, None), cast(Any, None), self.runtime.stream, 30.0)
        self.suspicion = DeviceSuspicion(pause_s)
        hooks = {"dev0": hook} if hook else {}
        self.elsewhere: list[Unit] = []
        self.rebooted = 0
        self.reached: list[tuple[str, float]] = []
        parts = self.runtime, self.monitor, self.suspicion
        self.quarantine = Quarantine(*parts, hooks, 10.0, self._treat_elsewhere, self._reach)
        self.runtime.replay()
        self.changed = asyncio.Event()
        self.runtime.stream.attach(lambda event: self.changed.set())

    async def _treat_elsewhere(self, unit: Unit, *, reboots: bool) -> Pace:
        self.elsewhere.append(unit)
        self.rebooted += reboots
        if len(self.elsewhere) == 1:
            raise Unwell("host lab2 cannot be reached")
        return Pace(1e-3, 2e-3)

    async def _reach(self, unit: Unit, patience_s: float) -> None:
        self.reached.append((unit.name, patience_s))
        if len(self.reached) == 1:
            raise Unwell("it cannot be reached: no route to host")

    async def until(self, holds: Callable[[str], bool], unit: str = "dev0") -> str:
        """Waits until the condition holds for the unit's drain reason."""
        while not holds(self.why(unit)):
            self.changed.clear()
            await self.changed.wait()
        return self.why(unit)

    def why(self, unit: str = "dev0") -> str:
        drained = self.runtime.state.drained
        return drained[unit].reason if unit in drained else ""


def live(
    path: Path, *works: Callable[[Bench], Awaitable[None]], pause_s: float = PAUSE_S, hook: tuple[str, ...] = ()
) -> None:
    """Runs each work in a daemon of its own, one after the other."""

    async def one(work: Callable[[Bench], Awaitable[None]]) -> None:
        journal = Journal(path / "db", *TABLES)
        bench = Bench(journal, pause_s, hook)
        journal.start()
        performer = SimpleNamespace(perform=lambda action: None, changed=lambda job: None)
        loop = spawn(bench.runtime.run(cast(Any, performer)), "loop")
        try:
            async with asyncio.timeout(DEADLINE_S):
                await bench.runtime.post(lambda: ResourcesDeclared(POOLS, 600.0, 600.0))
                bench.quarantine.resume()
                await work(bench)
        finally:
            loop.cancel()
            journal.close()

    for work in works:
        asyncio.run(one(work))


def test_a_device_without_cores_returns_after_its_pause(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        bench.quarantine.enter("dev0", "it failed")
        why = await bench.until(bool)
        assert why == "quarantined: it failed; to be probed after 0s (the daemon)"
        assert is_quarantined(bench.runtime.state, "dev0")
        await bench.until(lambda why: not why)
        assert bench.suspicion.enters("dev0", bench.runtime.clock()) == 2 * PAUSE_S, "it is on probation"

    live(tmp_path, work)


def test_a_board_returns_when_it_answers(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        bench.quarantine.enter("board", "it failed")
        await bench.until(lambda why: "at last it cannot be reached: no route to host" in why, "board")
        await bench.until(lambda why: not why, "board")
        assert bench.reached == [("board", 0.0)] * 2, "without a hook it is either there or not"

    live(tmp_path, work)


def test_the_hook_of_a_device_runs_before_its_return(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        bench.quarantine.enter("dev0", "it failed")
        await bench.until(bool)
        await bench.until(lambda why: not why)
        assert (tmp_path / "called").read_text() == "dev0\n"

    live(tmp_path, work, hook=("sh", "-c", f"echo $AUTOSCHED_DEVICE >> {tmp_path}/called"))


def test_while_its_hook_fails_a_device_stays_quarantined_for_longer(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        bench.quarantine.enter("dev0", "it failed")
        why = await bench.until(lambda why: "at last" in why)
        assert "quarantined: it failed; at last its reboot hook ended with exit code 7: no power; to be probed" in why
        (tmp_path / "power").touch()
        await bench.until(lambda why: not why)
        assert bench.suspicion.probed("dev0") > 2 * PAUSE_S

    live(tmp_path, work, hook=("sh", "-c", f"test -e {tmp_path}/power || (echo no power >&2; exit 7)"))


def test_a_device_with_cores_returns_when_its_sentinel_passes(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        bench.quarantine.enter("dev1", "it failed")
        await bench.until(bool, "dev1")
        await bench.until(lambda why: not why, "dev1")
        assert bench.monitor.of("dev1").measured_at is not None

    live(tmp_path, work)


def test_a_slow_sentinel_keeps_a_device_quarantined(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        for _ in range(LEARNED_FROM):
            bench.monitor.noted("dev1", DeviceNote(1e-9, 1e-9), bench.runtime.clock())
        bench.quarantine.enter("dev1", "it failed")
        why = await bench.until(lambda why: "at last its sentinel was" in why, "dev1")
        assert "% slower (core)" in why

    live(tmp_path, work)


@pytest.mark.parametrize("program", ["print('nonsense')", "print('{}')"])
def test_a_sentinel_without_a_result_keeps_a_device_quarantined(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "strange.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(device_probe, "SENTINEL", "strange")

    async def work(bench: Bench) -> None:
        bench.quarantine.enter("dev1", "it failed")
        await bench.until(lambda why: "its sentinel said nothing that can be read" in why, "dev1")

    live(tmp_path, work)


EVE = Verdict("3 mishaps", frozenset({"key eve"}))


async def submitted(bench: Bench, owner: str) -> None:
    job = bench.runtime.state.last_job + 1
    await bench.runtime.post(lambda: JobSubmitted(job, JobSpec(name="net", model="0" * 64), owner))


def test_the_reports_of_one_owner_are_checked_by_a_probe(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        bench.quarantine.accuse("dev1", EVE)
        assert "probed, since 3 mishaps" in await bench.until(bool, "dev1")
        assert not is_quarantined(bench.runtime.state, "dev1")
        await bench.until(lambda why: not why, "dev1")
        assert bench.suspicion.enters("dev1", bench.runtime.clock()) == PAUSE_S, "it was no quarantine"
        bench.quarantine.accuse("dev1", EVE)
        await asyncio.sleep(0)
        await bench.runtime.post(lambda: None)
        assert bench.why("dev1") == "", "it passed a short time ago"

    live(tmp_path, work)


def test_the_reports_of_one_owner_reboot_no_device_of_another_host(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        bench.quarantine.accuse("dev@lab2", EVE)
        await bench.until(lambda why: why.startswith("quarantined"), "dev@lab2")
        assert (len(bench.elsewhere), bench.rebooted) == (1, 0)

    live(tmp_path, work, pause_s=LONG_S)


def test_a_device_that_fails_its_probe_is_quarantined(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        for _ in range(LEARNED_FROM):
            bench.monitor.noted("dev1", DeviceNote(1e-9, 1e-9), bench.runtime.clock())
        bench.quarantine.accuse("dev1", EVE)
        why = await bench.until(lambda why: why.startswith("quarantined"), "dev1")
        assert "3 mishaps; its sentinel was" in why
        assert is_quarantined(bench.runtime.state, "dev1")

    live(tmp_path, work, pause_s=LONG_S)


def test_the_reports_of_two_owners_need_no_probe(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        bench.quarantine.accuse("dev1", Verdict("3 mishaps", frozenset({"key eve", "uid 1000"})))
        assert (await bench.until(bool, "dev1")).startswith("quarantined: 3 mishaps")

    live(tmp_path, work, pause_s=LONG_S)


@pytest.mark.parametrize("needed", [True, False])
def test_without_a_probe_one_owner_takes_no_device_that_others_need(needed: bool, tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        await submitted(bench, "key eve")
        if needed:
            await submitted(bench, "uid 1000")
        bench.quarantine.accuse("dev0", EVE)
        if needed:
            await bench.runtime.post(lambda: None)
            assert bench.why() == ""
        else:
            assert (await bench.until(bool)).startswith("quarantined: 3 mishaps")

    live(tmp_path, work, pause_s=LONG_S)


def test_a_device_of_another_host_is_checked_there(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        bench.quarantine.enter("dev@lab2", "it failed")
        await bench.until(lambda why: "at last host lab2 cannot be reached" in why, "dev@lab2")
        await bench.until(lambda why: not why, "dev@lab2")
        assert [unit.host for unit in bench.elsewhere] == ["lab2", "lab2"]
        assert bench.rebooted == 2
        assert bench.monitor.of("dev@lab2").measured_at is not None

    live(tmp_path, work)


def test_a_device_whose_cores_were_taken_is_no_unreliable_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, looks = {0}, 0.001
    monkeypatch.setattr(quarantine, "ALLOWED_LOOK_S", looks)
    monkeypatch.setattr(quarantine.machine, "forbidden", lambda cores: sorted(taken & set(cores)))

    async def story(bench: Bench) -> None:
        words = await bench.until(bool, "dev1")
        assert "may not use these cores (any more): 0; see its cpuset" in words
        assert not is_quarantined(bench.runtime.state, "dev1")
        bench.quarantine.enter("dev1", "3 steps failed")
        assert bench.why("dev1") == words, "its failures have the same cause"
        taken.clear()
        await bench.until(lambda why: not why, "dev1")
        assert bench.why("dev@lab2") == "", "cores of another host are its own affair"

    live(tmp_path, story)


def test_an_operator_ends_a_quarantine(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        bench.quarantine.enter("dev0", "it failed")
        await bench.until(bool)
        await bench.runtime.post(lambda: UnitDrained("dev0", "new fan (uid 1000)", "uid 1000"))
        await bench.quarantine._watched["dev0"]
        assert bench.why() == "new fan (uid 1000)", "it is not given back"

    live(tmp_path, work)


def test_a_device_undrained_by_an_operator_may_be_quarantined_again(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        bench.quarantine.enter("dev0", "it failed")
        await bench.until(bool)
        await bench.runtime.post(lambda: UnitReturned("dev0", "uid 1000"))
        assert not bench.why()
        bench.quarantine.enter("dev0", "again")
        await bench.until(lambda why: "again" in why)

    live(tmp_path, work, pause_s=LONG_S)


def test_a_device_drained_by_an_operator_is_not_quarantined(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        await bench.runtime.post(lambda: UnitDrained("dev0", "quarantined: (the daemon) (uid 1)", "uid 1"))
        bench.quarantine.enter("dev0", "it failed")
        assert not bench.quarantine._watched
        assert not is_quarantined(bench.runtime.state, "dev0")

    async def later(bench: Bench) -> None:
        assert not bench.quarantine._watched

    live(tmp_path, work, later)


def test_the_next_daemon_continues_a_quarantine(tmp_path: Path) -> None:
    async def before(bench: Bench) -> None:
        bench.quarantine.enter("dev0", "it failed")
        await bench.until(bool)

    async def after(bench: Bench) -> None:
        assert is_quarantined(bench.runtime.state, "dev0")
        why = await bench.until(lambda why: "at last" in why)
        assert why.startswith("quarantined: it failed; at last its reboot hook"), "once"

    live(tmp_path, before, pause_s=LONG_S)
    live(tmp_path, after, hook=("false",))


# Programs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("/nowhere/at/all",), "it cannot be started"),
        (("sh", "-c", "echo first >&2; echo last >&2; exit 3"), "it ended with exit code 3: last"),
        (("sleep", "600"), "it took longer than 0.2 s"),
    ],
)
def test_the_failure_of_a_hook_is_reported(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(Unwell, match=said):
        asyncio.run(run(words, 0.2 if words[0] == "sleep" else 20.0, {}, "it"))


def test_processes_left_by_a_hook_are_killed() -> None:
    program = "import subprocess; print(subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL,\
 stderr=subprocess.DEVNULL).pid)"
    pid = int(asyncio.run(run((sys.executable, "-c", program), 20.0, {}, "it")))
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([watched], [], [], 10.0)[0]
    os.close(watched)
