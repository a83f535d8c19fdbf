"""`autosched records`: a whole store is exported to one file and imported again."""

import contextlib
import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import parquet

from autosched.model import Purpose
from autosched.recordstore import opening
from autosched.recordstore.store import RecordStore
from integration.lab import Lab, Said, command_line
from samples_of_store import CONV, LAB, measured


@pytest.fixture
def cli(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Runs a command in the state folder of the daemon."""
    monkeypatch.setenv("AUTOSCHED_STATE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return command_line(there, tmp_path, monkeypatch, capsys)


def test_a_store_is_exported_to_a_file_and_imported(there: Lab, tmp_path: Path, cli: Callable[..., Said]) -> None:
    code, _, err = cli("records", "stats", "--store", "none.db")
    assert (code, "there is no record store" in err) == (4, True)
    first = there.submit(tasks=2, trials=16)
    assert there.wait(first).state == "done"
    there.wait(there.submit(tasks=2, trials=0, fresh=False))  # it waits until the store has all records of the first
    measured = len(there.records(first))
    assert cli("records", "export", "all.jsonl.gz")[2] == f"{measured} measurements are in all.jsonl.gz\n"
    told = json.loads(cli("records", "stats", "-o", "json")[1])["stats"]
    assert (told["measurements"], told["imported"], told["workloads"]) == (measured, 0, 2)
    assert "1 database" in cli("records", "stats")[1]
    code, _, err = cli("records", "import", "all.jsonl.gz", "--store", "other.db")
    assert (code, f"{measured} measurements are new, 0 were known, 0 lines are wrong" in err) == (0, True)
    told = json.loads(cli("records", "stats", "-o", "json", "--store", "other.db")[1])["stats"]
    assert (told["measurements"], told["imported"]) == (measured, measured)
    assert "0 measurements are new" in cli("records", "import", "all.jsonl.gz", "--store", "other.db")[2]
    assert f"{measured} measurements are new" in cli("records", "merge", "other.db", "--store", "third.db")[2]
    assert f"0 measurements are new, {measured} were known" in cli("records", "merge", "third.db")[2]
    (tmp_path / "bad.jsonl").write_text("{}\nno\n")
    code, _, err = cli("records", "import", "bad.jsonl")
    assert code == 2
    assert "bad.jsonl:2: it is no measurement" in err


def test_known_schedules_are_listed_and_shown(there: Lab, cli: Callable[..., Said]) -> None:
    first = there.submit(tasks=2, trials=16)
    there.wait(first)
    there.wait(there.submit(tasks=2, trials=0, fresh=False))
    known = json.loads(cli("records", "-o", "json")[1])["workloads"]
    assert len(known) == 2
    assert sum(one["tried"] for one in known) >= 16
    listed = cli("records", "list")
    assert all(one["workload"]["hash"][:12] in listed[1] for one in known)
    assert "All " in listed[2]
    workload = known[0]["workload"]["hash"]
    fastest = json.loads(cli("records", "best", workload, "-k", "3", "-o", "json")[1])["schedules"]
    assert len(fastest) == 3
    assert fastest[0]["best_s"] == known[0]["best"]["best_s"] <= fastest[1]["best_s"] <= fastest[2]["best_s"]
    (schedule, *_) = cli("records", "best", workload, "-o", "id")[1].splitlines()
    shown = cli("records", "show", schedule)[1]
    assert f"found by job {first}" in shown
    assert workload[:12] in shown
    (told, *_) = json.loads(cli("records", "show", schedule, "-o", "json")[1])["schedule"]
    assert told["known"]["best_s"] == fastest[0]["best_s"]
    assert f"workload {workload}" in cli("records", "show", workload)[1]
    assert "Nothing is known" in cli("records", "list", "--device", "no such device")[2]
    assert cli("records", "show", "no such thing")[0] == 4
    assert cli("records", "best", known[0]["workload"]["shape"].split()[0])[0] in (0, 2)


def test_prune_without_force_is_refused(there: Lab, cli: Callable[..., Said]) -> None:
    there.wait(there.submit(tasks=1, trials=16))
    there.wait(there.submit(tasks=1, trials=0, fresh=False))
    assert cli("records", "prune")[0] == 2
    code, out, err = cli("records", "prune", "--older-than", "0s", "--keep", "2")
    assert (code, "would go" in out, "--force" in err) == (5, True, True)
    told = json.loads(cli("records", "prune", "--older-than", "0s", "--keep", "2", "--force", "-o", "json")[1])
    assert told["prune"]["schedules"] >= 14 - 2
    assert json.loads(cli("records", "stats", "-o", "json")[1])["stats"]["schedules"] == 2
    assert cli("records", "prune", "--imported")[0] == 0


def test_a_job_is_forgotten_by_force_only(there: Lab, cli: Callable[..., Said]) -> None:
    first, second = [there.submit(tasks=1, trials=8, seed=seed) for seed in (1, 2)]
    for job in (first, second):
        there.wait(job)
    there.wait(there.submit(tasks=1, trials=0, fresh=False))  # the store has all of it
    whole = json.loads(cli("records", "stats", "-o", "json")[1])["stats"]["measurements"]
    code, out, err = cli("records", "forget", "--job", second)
    assert (code, "would go" in out, f"forget --job {second} --force" in err) == (5, True, True)
    gone = json.loads(cli("records", "forget", "--job", second, "--force", "-o", "json")[1])["forget"]
    left = json.loads(cli("records", "stats", "-o", "json")[1])["stats"]["measurements"]
    assert (whole - left, gone["measurements"] >= 8) == (gone["measurements"], True)
    assert cli("records", "forget", "--job", second)[0] == 4
    assert "no measurements of job 99" in cli("records", "forget", "--job", "99")[2]
    assert cli("records", "forget")[0] == 2


def test_tables_are_written_for_notebooks(there: Lab, tmp_path: Path, cli: Callable[..., Said]) -> None:
    there.wait(there.submit(tasks=1, trials=8))
    there.wait(there.submit(tasks=1, trials=0, fresh=False))
    for name in ("all.csv", "all.csv.gz", "all.parquet", "all.jsonl"):
        assert cli("records", "export", name)[0] == 0
    rows = parquet.read_table(tmp_path / "all.parquet").num_rows
    assert rows == len(list(csv.DictReader((tmp_path / "all.csv").read_text().splitlines()))) >= 8
    assert gzip.decompress((tmp_path / "all.csv.gz").read_bytes()) == (tmp_path / "all.csv").read_bytes()
    code, _, err = cli("records", "export", "all.txt")
    assert (code, ".jsonl, .csv or .parquet" in err) == (2, True)
    assert not list(tmp_path.glob(".all*"))


def test_the_store_of_the_settings_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Said]
) -> None:
    shared = tmp_path / "shared.db"
    with contextlib.closing(RecordStore(opening.file_url(shared))) as store:
        store.add(LAB, [measured(0, 1e-3)])
    settings = tmp_path / "lab.toml"
    settings.write_text(f'[records]\nurl = "{opening.file_url(shared)}"\n')
    assert CONV.hash in cli("records", "list", "--config", str(settings))[1]
    monkeypatch.setenv("AUTOSCHED_STATE_DIR", "")
    monkeypatch.setattr("autosched.api.local_daemon.SERVICE_SETTINGS", settings)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert CONV.hash in cli("records", "list")[1]
    settings.write_text('[records]\nurl = "off"\n')
    code, _, err = cli("records", "list", "--config", str(settings))
    assert (code, 'records.url is "off"' in err) == (2, True)
    assert CONV.hash in cli("records", "list", "--store", str(shared))[1]


def test_imported_schedules_are_measured_before_they_count(
    there: Lab, tmp_path: Path, cli: Callable[..., Said]
) -> None:
    first = there.submit(tasks=1, trials=8)
    there.wait(first)
    there.wait(there.submit(tasks=1, trials=0, fresh=False))
    cli("records", "export", "all.jsonl")
    poisoned = []
    for line in (tmp_path / "all.jsonl").read_text().splitlines():
        told = json.loads(line)
        told["origin"] = "someone else"
        told["record"] |= {
            "latency_s": [1e-9] * 6,
            "candidate": "kgFk" if not poisoned else told["record"]["candidate"],
        }
        poisoned.append(json.dumps(told))
    (tmp_path / "poison.jsonl").write_text("\n".join(poisoned))
    assert cli("records", "import", "poison.jsonl")[0] == 0
    view = there.wait(there.submit(tasks=1, trials=24, fresh=False))
    assert view.state == "done"
    records = there.records(view.job)
    assert all(one.best_s is None or one.best_s > 1e-6 for one in records)
    assert b"\x92\x01d" in {one.candidate for one in records if one.purpose is Purpose.TRIAL}
