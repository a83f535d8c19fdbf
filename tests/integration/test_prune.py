"""Ended jobs are pruned, by a running daemon and without one; the remaining jobs are complete, even after restarts."""

import asyncio
import json
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from autosched.daemon.operations import retention
from autosched.daemon.storage import database
from autosched.errors import NotFound
from autosched.model import JobId
from autosched.protocol import AuditList, JobList, ListAudit, ListJobs
from deadlines import DEADLINE_S
from integration.lab import Lab, Said
from integration.served import run, serving, spec, user

WORDS = {"trials": 8, "tasks": 1, "build_s": 0.002, "profile_s": 0.002}
DAY_S = 86_400.0


def ended(there: Lab, count: int) -> list[JobId]:
    jobs = [there.submit(**WORDS) for _ in range(count)]
    assert [there.wait(job).state for job in jobs] == ["done"] * count
    return jobs


def grow_old(folder: Path) -> None:
    for path in (folder / "blobs").iterdir():
        os.utime(path, (path.stat().st_mtime - 2 * DAY_S,) * 2)


def rows(folder: Path) -> dict[str, int]:
    db = sqlite3.connect(database.database(folder))
    found = {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("journal", "records", "spans")}
    db.close()
    return found


def test_a_running_daemon_prunes_jobs(there: Lab, cli: Callable[..., Said], tmp_path: Path) -> None:
    first, second = ended(there, 2)
    running = there.submit(trials=100, tasks=2, build_s=0.002, profile_s=0.002)
    there.wait(running, "trials", 4)
    assert cli("hold", running)[0] == 0, "it is to run still, however long this takes"
    measured = there.records(first)
    settings = ("-c", there.config)
    before = rows(tmp_path)
    code, out, err = cli("db", "prune", "--keep", 1, *settings)
    assert (code, " 1 job would go with " in out, "Nothing is changed yet" in err) == (5, True, True)
    assert cli("job", first)[0] == 0

    code, out, _ = cli("db", "prune", "--keep", 1, "--force", "-o", "json", *settings)
    told = json.loads(out)["prune"]
    assert (code, told["jobs"], told["left"], told["records"]) == (0, [first], 2, len(measured))
    code, _, err = cli("job", first)
    assert (code, f"job {first} was pruned" in err) == (4, True)
    assert there.records(first) == measured, "a measurement is dear"
    assert not (tmp_path / "jobs" / str(first)).exists()
    after = rows(tmp_path)
    assert before["spans"] - told["steps"] <= after["spans"] < before["spans"] + 1_000
    assert after["journal"] > before["journal"], "events keep their numbers"
    assert cli("db", "check", *settings)[0] == 0
    assert "prune" in cli("audit")[1]
    assert cli("cancel", "1-2", "-n")[0] == 0, "who names a range means those that are there"

    there.end(signal.SIGKILL)
    there.start()
    assert cli("db", "check", *settings)[0] == 0
    assert cli("release", running)[0] == 0
    assert there.wait(running).trials == 100
    assert there.submit(**WORDS) == running + 1, "numbers are not given again"
    for path in database.snapshots(tmp_path).iterdir():
        path.unlink()
    there.end(signal.SIGTERM)
    there.start()
    assert cli("job", second)[0] == 0, "nor does anything hang on a snapshot"
    assert cli("job", first)[0] == 4


def test_without_a_daemon_files_and_records_are_pruned_too(
    there: Lab, cli: Callable[..., Said], tmp_path: Path
) -> None:
    jobs = ended(there, 2)
    there.end(signal.SIGTERM)
    settings = ("-c", there.config)
    grow_old(tmp_path)
    young = tmp_path / "blobs" / ("0" * 64)
    young.write_bytes(b"its job is about to be submitted")
    code, out, _ = cli("db", "prune", "--older-than", "1d", *settings)
    assert (code, out.startswith(" 0 jobs would go")) == (0, True)
    code, out, _ = cli("db", "prune", "--older-than", "0s", "--records", "--force", *settings)
    assert (code, out.startswith(" 2 jobs gone with ")) == (0, True)
    assert list((tmp_path / "blobs").iterdir()) == [young]
    left = rows(tmp_path)
    assert (left["spans"], left["records"] <= 1) == (0, True)
    assert cli("db", "check", *settings)[0] == 0
    there.start()
    assert there.wait(there.submit(**WORDS)).job == jobs[-1] + 1
    there.end(signal.SIGKILL)
    there.start()
    assert there.wait(jobs[-1] + 1).trials == WORDS["trials"], "its records were counted again, all of them"


def test_a_killed_prune_leaves_complete_jobs(there: Lab, cli: Callable[..., Said], tmp_path: Path) -> None:
    jobs = [there.submit(trials=1, external=True) for _ in range(30)]
    assert cli("cancel", "all")[0] == 0
    settings = ("-c", there.config)

    def kill() -> None:
        db = sqlite3.connect(database.database(tmp_path), timeout=DEADLINE_S)
        pruned = "SELECT 1 FROM journal WHERE instr(event, CAST('JobPruned' AS BLOB))"
        while not over.is_set() and not db.execute(pruned).fetchone():
            pass
        db.close()
        there.end(signal.SIGKILL)

    over, killer = threading.Event(), threading.Thread(target=kill)
    killer.start()
    cli("db", "prune", "--keep", 0, "--force", *settings)
    over.set()
    killer.join()
    assert cli("db", "check", *settings)[0] == 0
    there.start()
    _, out, _ = cli("jobs", "-o", "jsonl")
    left = [json.loads(line) for line in out.splitlines()]
    assert len(left) < len(jobs)
    assert {job["state"] for job in left} <= {"cancelled"}
    assert cli("db", "prune", "--keep", 0, "--force", *settings)[0] == 0
    assert cli("jobs", "-o", "id")[1] == ""
    assert there.submit(trials=1, external=True) == len(jobs) + 1
    assert cli("db", "check", *settings)[0] == 0


def test_the_settings_prune_automatically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "FIRST_S", 0.05)
    monkeypatch.setattr(retention, "EVERY_S", 0.05)  # the first check may come before any job has ended

    async def work() -> None:
        async with serving(tmp_path, "[retention]\ndays = 1e-9\nkeep = 1\n"):
            daemon = await user(tmp_path)
            for job in (1, 2, 3):
                await daemon.submit(spec())
                if job < 3:
                    await daemon.cancel(job)
            while len((await daemon.link.call(ListJobs(), JobList)).jobs) == 3:  # noqa: ASYNC110 - over the wire
                await asyncio.sleep(0.02)
            with pytest.raises(NotFound, match="job 1 was pruned"):
                await daemon.job(1)
            assert [(await daemon.job(job)).state for job in (2, 3)] == ["cancelled", "starting"]
            trail = await daemon.link.call(ListAudit(), AuditList)
            assert {one.who for one in trail.entries if one.command == "prune"} == {"the daemon"}
            daemon.close()

    run(work)
