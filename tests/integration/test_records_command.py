"""`autosched records`: a whole store travels in a file, and counts."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from autosched.model import Purpose
from integration.lab import Lab, Said, command_line


@pytest.fixture
def cli(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Runs a command in the state folder of the daemon."""
    monkeypatch.setenv("AUTOSCHED_STATE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return command_line(there, tmp_path, monkeypatch, capsys)


def test_a_store_travels_in_a_file(there: Lab, tmp_path: Path, cli: Callable[..., Said]) -> None:
    code, _, err = cli("records", "stats", "--store", "none.db")
    assert (code, "there is no record store" in err) == (4, True)
    first = there.submit(tasks=2, trials=16)
    assert there.wait(first).state == "done"
    there.wait(there.submit(tasks=2, trials=0, fresh=False))  # it waits until the store has all of the first
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
