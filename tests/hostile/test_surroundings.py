"""A machine without descriptors, places for connections, disk or processes ends no job."""

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from autosched.cli.command_table import run
from autosched.daemon.storage import disk_reserve
from autosched.errors import AutoschedError
from autosched.launch.job_folder import kill_strays
from autosched.protocol import ExplainJob, Explanation
from deadlines import DEADLINE_S, until
from hostile.other_users import needs_root
from integration.lab import BOARD, Lab, lab
from packages import install

BIG = """
import os
from autosched_backend_mock import MockBackend


class Big(MockBackend):
    def open(self, job, model, workdir, outdir, cores):
        session = super().open(job, model, workdir, outdir, cores)
        evaluate = session.evaluate

        def with_a_large_file(lease):
            (outdir / "large.bin").write_bytes(os.urandom(6_000_000))
            return evaluate(lease)

        session.evaluate = with_a_large_file
        return session
"""
LIMIT = 12
SMALL = f"{BOARD}[limits]\nconnections_max = {LIMIT}\n"


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path, SMALL) as running:
        yield running


def explained(there: Lab, job: int) -> str:
    return " ".join(there.ask(lambda daemon: daemon.link.call(ExplainJob(job=job), Explanation)).lines)


def allow_files(process: int, count: int | None) -> None:
    """Limits the open files of a process; None: to those of this one."""
    _, most = resource.prlimit(process, resource.RLIMIT_NOFILE)
    resource.prlimit(process, resource.RLIMIT_NOFILE, (most if count is None else count, most))


def test_a_user_who_takes_all_connections_keeps_no_job_from_its_daemon(there: Lab) -> None:
    holding = []
    job = 0
    for number in range(LIMIT):
        if number == LIMIT - 3:  # connections of the test may end late
            job = there.submit(trials=8)
        holding.append(socket.socket(socket.AF_UNIX))
        holding[-1].connect(str(there.folder / "api.sock"))
    until(lambda: there.clients(job), "its client starts")
    until(lambda: not there.clients(job), "it has ended")
    for one in holding:
        one.close()
    assert there.wait(job).state == "done"


def test_a_daemon_without_descriptors_ends_no_job(there: Lab) -> None:
    running = there.submit(trials=60, profile_s=0.05)
    there.wait(running, "trials", 4)

    def short() -> Iterator[int]:
        """Jobs that were submitted while the daemon may open no more files than it has."""
        allow_files(there.pid, len(os.listdir(f"/proc/{there.pid}/fd")) + 2)
        for _ in range(3):
            try:
                yield there.submit(trials=4)
            except (AutoschedError, TimeoutError, OSError):
                continue

    jobs = [running, *short()]
    allow_files(there.pid, None)
    for job in jobs:
        view = there.wait(job)
        assert (view.state, view.failure) == ("done", None)


def test_a_client_that_cannot_be_started_is_started_again(there: Lab) -> None:
    folder = there.folder / "jobs"
    job = there.submit(trials=4, external=True)  # so that the folder is there
    there.cancel(job)
    (folder / str(job + 1)).write_text("in the way of the next job's folder")
    blocked = there.submit(trials=4)
    until(
        lambda: "cannot be started" in explained(there, blocked),
        "the cause is told",
    )
    (folder / str(blocked)).unlink()
    assert there.wait(blocked).state == "done"


@needs_root
def test_a_full_disk_at_the_end_of_a_job_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    theirs = install(tmp_path / "packages", "autosched.backends", {"big_results": BIG}, big="big_results:Big")
    monkeypatch.setenv("PYTHONPATH", str(theirs))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", disk], check=True)
    try:
        with lab(disk, BOARD) as there:
            job = there.submit(backend="big", trials=30, profile_s=0.05)
            there.wait(job, "trials", 2)
            filler = disk / "filler"
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
            filler.write_bytes(bytes(max(0, free - 4_000_000)))
            until(lambda: there.ask(lambda daemon: daemon.job(job)).trials == 30, "all trials are made")
            until(lambda: "is repeated" in explained(there, job), "the cause is told")
            filler.unlink()
            view = there.wait(job)
            assert (view.state, view.failure) == ("done", None)
            there.end(signal.SIGTERM)
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


@needs_root
def test_a_disk_that_is_full_to_the_last_byte_stops_nothing_at_once_and_can_be_pruned(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", disk], check=True)
    try:
        with lab(disk, BOARD) as there:
            old = there.submit(trials=4)
            there.wait(old)
            reserves = [disk / disk_reserve.JOURNAL, disk / disk_reserve.PRUNE]
            until(lambda: all(path.exists() for path in reserves), "space is kept")
            job = there.submit(trials=40, profile_s=0.05)
            there.wait(job, "trials", 4)
            fill(disk / "filler")
            assert there.wait(job).state == "done", "the journal goes on"
            until(lambda: [path.exists() for path in reserves] == [False, True], "the journal's space is given back")
            assert any("disk is full" in words for words in there.ask(lambda daemon: daemon.info()).warnings)
            fill(disk / "filler more")
            there.end(signal.SIGKILL)
            kill_strays(disk / "jobs")
            settings = there.folder / "autosched.toml"
            code = run(["db", "prune", "--keep", "0", "--force", "-c", str(settings)])
            assert code == 0
            (disk / disk_reserve.PRUNE).unlink(missing_ok=True)
            fill(disk / "filler again")
            command = [sys.executable, "-m", "autosched", "serve", "-c", str(settings)]
            failed = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
            assert (failed.returncode, "its disk is full" in failed.stderr) == (os.EX_TEMPFAIL, True), failed.stderr
            for name in ("filler", "filler more", "filler again"):
                (disk / name).unlink()
            there.start(BOARD)
            until(lambda: all(path.exists() for path in reserves), "space is kept again")
            there.end(signal.SIGTERM)
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


def fill(path: Path) -> None:
    """Takes the space that is free now, to the last page. What the daemon gives back meanwhile is left to it."""
    found, end = os.statvfs(path.parent), 0
    free = found.f_bavail * found.f_frsize
    with path.open("wb") as file:
        for size in (16 * 1024**2, 1024**2, 4_096):
            with suppress(OSError):
                while end + size <= free:
                    os.posix_fallocate(file.fileno(), end, size)
                    end += size
