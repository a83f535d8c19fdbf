"""The database from outside: checked and copied while the daemon writes to it, restored, damaged, and out of space."""

import json
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autosched.daemon.storage import database
from autosched.errors import StorageFull
from autosched.protocol import DaemonInfo
from deadlines import DEADLINE_S
from integration.lab import Lab, Said


def test_check_backup_and_restore_recover_from_damage(
    there: Lab, cli: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = there.submit(trials=8, tasks=1)
    there.wait(first)
    settings = ("-c", there.config)
    code, out, err = cli("db", "check", *settings)
    assert (code, "records" in out, "as it was written" in err) == (0, True, True)
    code, out, _ = cli("db", "backup", *settings)
    backup = out.strip()
    assert code == 0
    assert Path(backup).is_file()
    monkeypatch.setattr("autosched.api.local_daemon.SERVICE_SETTINGS", there.config)
    monkeypatch.setenv("HOME", str(tmp_path / "no-home"))
    code, out, _ = cli("db", "check")
    assert (code, str(there.folder) in out) == (0, True), "who has none of his own looks after the machine's"
    there.submit(trials=1, external=True)
    code, _, err = cli("db", "restore", backup, *settings)
    assert code == 5, "a daemon runs on it"
    assert "runs already" in err
    assert "stop it first:  autosched stop" in err
    assert cli("db", "upgrade", *settings)[0] == 5

    there.end(signal.SIGTERM)
    code, out, err = cli("db", "restore", *settings)
    assert Path(backup).name in out
    db = sqlite3.connect(database.database(tmp_path), isolation_level=None)
    db.execute("UPDATE journal SET now = now + 1 WHERE seq = 4")
    db.close()
    code, out, _ = cli("db", "check", "-o", "json", *settings)
    assert code == 8
    assert json.loads(out)["check"]["damage"][0]["row"] == "seq 4"
    command = [sys.executable, "-m", "autosched", "serve", "-c", str(there.config)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert refused.returncode == 8
    assert "the checksum of row 4 of the journal does not match" in refused.stderr
    assert "autosched db restore" in refused.stderr
    assert "Traceback" not in refused.stderr

    code, out, err = cli("db", "restore", Path(backup).name, *settings)
    assert (code, "replaced-" in err) == (0, True)
    assert cli("db", "upgrade", *settings)[0] == 0
    there.start()
    assert there.wait(first).state == "done"
    assert info(there).jobs_total == 1, "the second job came after the backup"


def test_a_daemon_starts_with_the_undamaged_part_on_request(there: Lab, tmp_path: Path) -> None:
    for _ in range(2):
        there.submit(trials=1, external=True)
    there.end(signal.SIGKILL)
    db = sqlite3.connect(database.database(tmp_path), isolation_level=None)
    (at,) = db.execute("SELECT max(seq) FROM journal WHERE instr(event, CAST('JobSubmitted' AS BLOB))").fetchone()
    db.execute("UPDATE journal SET now = now + 1 WHERE seq = ?", (at,))
    db.close()
    there.start(words=("--accept-data-loss",))
    assert info(there).jobs_total == 1
    log = (tmp_path / "daemon.log").read_text()
    assert "this was accepted; lost: " in log
    assert there.wait(there.submit(trials=4, tasks=1)).state == "done"
    assert list(tmp_path.glob("damaged-*/autosched.db"))


def test_a_full_disk_stops_only_new_work_until_there_is_space(there: Lab, tmp_path: Path) -> None:
    """The kernel limits the size of the daemon's files for a while."""
    before = info(there)
    pid = before.pid
    job = there.submit(trials=300, tasks=2, build_s=0.002, profile_s=0.002)
    there.wait(job, "trials", 20)
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    wal = Path(f"{database.database(tmp_path)}-wal")
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (wal.stat().st_size, hard))
    with pytest.raises(StorageFull, match="free some space"):
        submit_for_ever(there)
    told = info(there)
    assert any("free some space" in warning for warning in told.warnings)
    assert there.clients(job), "what runs goes on"
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
    view = there.wait(job)
    assert (view.state, view.trials) == ("done", 300)
    records = there.records(job)
    assert [one.number for one in records] == list(range(len(records)))
    after = info(there)
    assert (after.pid, after.warnings) == (pid, before.warnings)
    there.end(signal.SIGTERM)
    there.start()
    assert there.wait(job).trials == 300


def submit_for_ever(there: Lab) -> None:
    while True:
        there.submit(trials=1, external=True)


def info(there: Lab) -> DaemonInfo:
    return there.ask(lambda daemon: daemon.info())
