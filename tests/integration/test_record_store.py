"""Records of a real daemon reach the store; an unavailable store disturbs nothing and is reported."""

import contextlib
import json
import signal
import urllib.request
from pathlib import Path

import pytest

from autosched.daemon.access import keyring
from autosched.daemon.storage.record_projection import RECORDS
from autosched.model import Purpose, encode
from autosched.protocol.roles import Role
from autosched.recordstore import opening
from autosched.recordstore.queries import Lookup
from autosched.recordstore.rows import Schedule, StoredRanker
from autosched.recordstore.store import RecordStore
from autosched.wire.whereabouts import WHEREABOUTS
from autosched_runtime.cpu_model import cpu_model
from deadlines import DEADLINE_S, until
from integration.lab import Lab, command_line, lab

AWAY = '[records]\nurl = "postgresql://lab:secret@127.0.0.1:1/records"\n'


def known(folder: Path) -> list[Schedule]:
    with contextlib.closing(Lookup(opening.file_url(folder / RECORDS))) as lookup:
        return [one for task in (1, 2) for one in lookup.all(f"mock-{task}", limit=1_000)]


def test_jobs_of_a_daemon_share_a_store_in_its_folder(there: Lab, tmp_path: Path) -> None:
    jobs = [there.submit(tasks=2, trials=16, build_s=0.01, seed=seed) for seed in range(2)]
    for job in jobs:
        assert there.wait(job).state == "done"
    records = {one.candidate for job in jobs for one in there.records(job)}
    until(lambda: {one.candidate for one in known(tmp_path)} == records, "the store has all records")
    found = known(tmp_path)
    assert {one.job.number for one in found} <= set(jobs)
    assert all(one.environment.backend.startswith("mock ") and one.environment.device for one in found)
    assert all(one.measured_at > 1.7e9 for one in found)


def test_the_same_network_again_needs_no_search(there: Lab) -> None:
    first = there.submit(tasks=2, trials=16, build_s=0.01)
    assert there.wait(first).state == "done"
    again = there.wait(there.submit(tasks=2, trials=16, build_s=0.01, fresh=False))
    assert (again.state, again.trials, again.trials_total) == ("done", 0, 0)
    assert {one.purpose for one in there.records(again.job)} == {Purpose.KNOWN}
    assert all(one.detail == f"job {first} (net.onnx)" for one in there.records(again.job))
    assert again.whole_s == there.wait(first).whole_s
    more = there.wait(there.submit(tasks=2, trials=24, build_s=0.01, fresh=False))
    assert (more.state, more.trials, more.trials_total) == ("done", 8, 8)
    measured = {one.candidate for one in there.records(more.job) if one.purpose is Purpose.TRIAL}
    assert not measured & {one.candidate for one in there.records(first)}
    fresh = there.wait(there.submit(tasks=2, trials=16, build_s=0.01))
    assert (fresh.state, fresh.trials) == ("done", 16)


def test_another_compiler_rebuilds_the_known_best_and_measures_only_changed_code(there: Lab) -> None:
    """The mock backend's code digest is that of the candidate, for each compiler."""
    first = there.submit(tasks=2, trials=16, compiler="1")
    there.wait(first)
    again = there.wait(there.submit(tasks=2, trials=0, compiler="2", fresh=False))
    assert again.state == "done"
    records = there.records(again.job)
    assert {one.purpose for one in records} == {Purpose.FINAL, Purpose.DEFAULT}
    assert all(one.copied and "the same object code as job 1" in one.detail for one in records)
    assert again.whole_s == pytest.approx(there.wait(first).whole_s)
    third = there.wait(there.submit(tasks=2, trials=16, compiler="2", fresh=False))
    assert (third.trials, third.trials_total) == (0, 0), "the trials under the first compiler count"


def test_a_command_updates_known_schedules(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = command_line(there, tmp_path, monkeypatch, capsys)
    assert "No network was tuned here" in cli("records", "upgrade")[2]
    for name in ("net", "net", "other"):
        there.wait(there.submit(tasks=2, trials=16, name=name))
    failed = there.submit(name="bad", reject="no")
    assert there.wait(failed).state == "failed"
    assert cli("records", "upgrade", "--dry-run", "-o", "id")[1].split() == ["3"]
    code, out, err = cli("records", "upgrade", "-o", "json")
    assert (code, "other is up to date" in err) == (0, True)
    (told,) = json.loads(out)["networks"]
    assert (told["network"], told["equal_code"], told["measured"], told["failed"]) == ("other", 0, 0, 0)
    assert told["unchanged"] > 2
    view = there.wait(told["job"])
    assert (view.spec.labels, view.spec.trials) == ({"made-by": "records-upgrade"}, 0)
    assert cli("records", "upgrade", "--detach")[1].split() == [str(told["job"] + 1)]


def test_without_trials_only_known_schedules_are_used(there: Lab) -> None:
    nothing = there.wait(there.submit(tasks=2, trials=0, fresh=False))
    assert (nothing.state, nothing.trials, there.records(nothing.job)) == ("done", 0, [])
    first = there.submit(tasks=1, trials=8)
    there.wait(first)
    half = there.wait(there.submit(tasks=2, trials=0, fresh=False))
    assert (half.state, half.trials) == ("done", 0)
    assert {one.task for one in there.records(half.job)} == {1}


def test_without_a_known_schedule_the_first_ones_of_a_ranker_are_used(there: Lab, tmp_path: Path) -> None:
    with contextlib.closing(RecordStore(opening.file_url(tmp_path / RECORDS))) as store:
        store.put_ranker(StoredRanker("mock", cpu_model(), "1", 100, 1.7e9, {}, b"[7, 8]"))
        store.put_ranker(StoredRanker("mock", "another device", "1", 100, 1.7e9, {}, b"[9]"))
    job = there.wait(there.submit(tasks=2, trials=0, fresh=False))
    assert (job.state, job.trials) == ("done", 0)
    found = {(one.task, one.candidate) for one in there.records(job.job) if one.purpose is Purpose.FINAL}
    assert found == {(task, encode([task, choice])) for task in (1, 2) for choice in (7, 8)}


def test_a_replaced_client_keeps_the_known_schedules_of_its_job(there: Lab) -> None:
    there.wait(there.submit(tasks=2, trials=16))
    job = there.submit(tasks=2, trials=64, build_s=0.1, fresh=False)
    there.wait(job, until="trials", trials=1)
    there.kill_client(job)
    assert there.wait(job).state == "done"
    records = there.records(job)
    assert len([one for one in records if one.purpose is Purpose.KNOWN]) == len(
        {one.candidate for one in records if one.purpose is Purpose.KNOWN}
    )
    assert sum(one.purpose is Purpose.TRIAL for one in records) == 48


def test_an_unreachable_store_disturbs_no_job_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key, _ = keyring.make(tmp_path / "keys", Role.VIEWER)
    with lab(tmp_path, AWAY) as there:
        cli = command_line(there, tmp_path, monkeypatch, capsys)
        job = there.submit(tasks=2, trials=16, build_s=0.01)
        assert there.wait(job).state == "done"
        until(
            lambda: "postgresql://lab:***@127.0.0.1:1/records cannot be used" in cli("status")[1],
            "the status says that the store cannot be used",
        )
        assert "measurements wait for it" in cli("status")[1]
        assert "The record store" in cli("explain", job)[1]
        page = json.loads((tmp_path / WHEREABOUTS).read_text())["page"]
        asked = urllib.request.Request(f"{page}metrics", headers={"Authorization": f"Bearer {key.line()}"})
        with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
            metrics = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
        assert float(metrics["autosched_record_store_up"]) == 0
        assert float(metrics["autosched_record_store_behind"]) >= 16
        assert "secret" not in (tmp_path / "daemon.log").read_text() + cli("status")[1]
        there.end(signal.SIGTERM)
        there.start()  # with a store in its folder
        there.wait(there.submit(tasks=1, trials=1, build_s=0.01))  # without new records it checks every half a minute
        until(lambda: len(known(tmp_path)) > 16, "the store has the records from before too")
