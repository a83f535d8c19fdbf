"""Attribution of failures to candidate or device, with a real daemon and real clients of a backend that fails on
request."""

import asyncio
import hashlib
import json
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from autosched.api.connection import Daemon
from autosched.model import Failure, Purpose, Record
from autosched.protocol import BlockedList, Done, ForgiveBlocked, ListBlocked, ListSpans, SpanList, UnitView
from deadlines import DEADLINE_S
from integration.lab import Lab, command_line, lab

TWO_DEVICES = '[[device]]\nname = "dev0"\nkind = "cpu"\n[[device]]\nname = "dev1"\nkind = "cpu"\n'
BROKEN = {"tasks": 2, "trials": 40, "broken_ratio": 0.15}


def by_candidate(records: list[Record]) -> dict[bytes, list[Record]]:
    found: dict[bytes, list[Record]] = defaultdict(list)
    for record in records:
        found[record.candidate].append(record)
    return found


def blocked(there: Lab) -> BlockedList:
    return there.ask(lambda daemon: daemon.link.call(ListBlocked(limit=500), BlockedList))


def test_a_candidate_that_fails_twice_never_runs_again_even_after_a_restart_or_in_another_job(tmp_path: Path) -> None:
    with lab(tmp_path, TWO_DEVICES) as there:
        assert there.wait(there.submit(**BROKEN)).state == "done"
        failed = {c: rs for c, rs in by_candidate(there.records(1)).items() if rs[0].failure is Failure.RUN_CRASH}
        assert len(failed) > 2
        assert [sorted(r.unit for r in rs) for rs in failed.values()] == [["dev0", "dev1"]] * len(failed)
        assert {rs[1].purpose for rs in failed.values()} == {Purpose.AGAIN}
        assert len(blocked(there).candidates) == len(failed)
        there.end(signal.SIGKILL)
        there.start(TWO_DEVICES)
        assert there.wait(there.submit(**BROKEN)).state == "done"
        view = there.wait(2)
        again = [r for r in there.records(2) if r.candidate in failed]
        assert {r.failure for r in again} == {Failure.BLOCKED}
        assert {r.detail.split()[0] for r in again} == {"blocked:"}
        assert view.failures["blocked"] == len(again) > 2
        assert view.trials == 40


def test_blocked_candidates_are_listed_and_unblocked_with_an_audit_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with lab(tmp_path, TWO_DEVICES) as there:
        command = command_line(there, tmp_path, monkeypatch, capsys)
        assert command("blocked", "list") == (0, "", "No candidate is blocked.\n")
        there.wait(there.submit(**BROKEN))
        code, out, _ = command("blocked", "list", "-o", "json")
        (first, *_) = json.loads(out)["blocked"]
        assert "run crash: made up on dev" in first["reason"]
        assert "run crash: made up on dev" in command("blocked", "list")[1]
        assert command("blocked", "forgive", first["number"])[0] == 0
        assert command("blocked", "forgive", first["number"])[0] != 0
        assert first["number"] not in [one.number for one in blocked(there).candidates]
        assert "forgive_blocked" in command("audit")[1]
        there.wait(there.submit(**BROKEN))
        known = {r.candidate for r in there.records(1) if r.failure is Failure.RUN_CRASH}
        run_again = {r.candidate for r in there.records(2) if r.failure is Failure.RUN_CRASH} & known
        assert {hashlib.sha256(one).hexdigest() for one in run_again} <= {first["sha256"]}
        assert code == 0


def unit(there: Lab, name: str, holds: Callable[[UnitView], bool]) -> UnitView:
    """Waits until the condition holds."""

    async def ask(daemon: Daemon) -> UnitView:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                (found,) = [one for one in await daemon.units() if one.unit == name]
                if holds(found):
                    return found
                await asyncio.sleep(0.02)

    return there.ask(ask)


def steps_on(there: Lab, name: str) -> int:
    async def ask(daemon: Daemon) -> int:
        return sum(name in span.units for span in (await daemon.link.call(ListSpans(), SpanList)).spans)

    return there.ask(ask)


def test_a_faulty_device_is_quarantined_rebooted_and_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sick, may_heal = tmp_path / "sick", tmp_path / "may_heal"
    sick.write_text("dev0\n")
    hook = f'test -e {may_heal} && test "$AUTOSCHED_DEVICE" = dev0 && rm {sick}'
    settings = TWO_DEVICES.replace('kind = "cpu"', f"kind = \"cpu\"\nreboot = ['sh', '-c', '{hook}']", 1)
    settings += "[guard]\nquarantine_s = 0.05\n"
    with lab(tmp_path, settings) as there:
        view = there.wait(there.submit(tasks=2, trials=40, sick=str(sick)))
        assert view.state == "done"
        passed = {r.candidate for r in there.records(1) if r.latency_s}
        doubted = {r.candidate for r in there.records(1) if r.failure is not None}
        assert len(doubted & passed) >= 3, "they were tried on the other device"
        assert blocked(there).candidates == ()
        found = unit(there, "dev0", lambda one: "its reboot hook ended with exit code" in one.drained)
        assert found.state == "quarantined"
        assert "which passes elsewhere" in found.drained
        before = steps_on(there, "dev0")
        command = command_line(there, tmp_path, monkeypatch, capsys)
        assert "dev0: quarantined: " in command("devices")[1]
        there.end(signal.SIGKILL)
        there.start(settings)
        assert unit(there, "dev0", lambda one: True).state == "quarantined", "also after a restart"
        assert there.wait(there.submit(tasks=2, trials=16, sick=str(sick))).failures == {}
        assert steps_on(there, "dev0") == before
        may_heal.touch()
        assert unit(there, "dev0", lambda one: one.state == "free").drained == ""
        assert not sick.exists()
        there.wait(there.submit(tasks=2, trials=16, sick=str(sick)))
        assert steps_on(there, "dev0") > before


def test_failures_of_the_only_device_block_no_candidate(tmp_path: Path) -> None:
    sick = tmp_path / "sick"
    sick.write_text("dev0\n")
    settings = '[[device]]\nname = "dev0"\nkind = "cpu"\n[guard]\nquarantine_s = 3600.0\n'
    with lab(tmp_path, settings) as there:
        job = there.submit(tasks=4, trials=200, sick=str(sick))
        assert unit(there, "dev0", lambda one: one.state == "quarantined").drained.count("candidates of job 1") == 1
        assert blocked(there).candidates == ()
        there.cancel(job)


def test_unblocking_an_unknown_candidate_is_refused(tmp_path: Path) -> None:
    with lab(tmp_path) as there, pytest.raises(Exception, match="no candidate with the number 7 is blocked"):
        there.ask(lambda daemon: daemon.link.call(ForgiveBlocked(number=7), Done))
