"""`autosched experiment` against real daemons, with the backend that needs no compiler."""

import asyncio
import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import autosched
from autosched.api import on_demand
from autosched.experiments import table
from autosched.protocol import Done, Shutdown
from deadlines import DEADLINE_S, until
from integration.lab import BOARD, Lab, Said, command_line, lab

FILE = """
about = "Whether it runs"
at_once = {at_once}
[parameters]
model = ["a.bin", "b.bin"]
backend = "mock"
trials = {trials}
seed = [0, 1]
option.tasks = 1
option.build_s = {build_s}
[labels]
team = "vision"
"""


@pytest.fixture
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), BOARD) as running:
        yield running


@pytest.fixture
def cli(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    monkeypatch.setenv("AUTOSCHED_STATE_DIR", str(tmp_path / "s"))
    for name in "ab":
        (tmp_path / f"{name}.bin").write_bytes(b"any bytes: " + name.encode())
    return command_line(there, tmp_path, monkeypatch, capsys)


def write(folder: Path, trials: list[int], *, at_once: int = 4, build_s: float = 0.0, more: str = "") -> None:
    text = FILE.format(trials=trials, at_once=at_once, build_s=build_s)
    (folder / "exp.toml").write_text(f"{text}{more}")


def rows(cli: Callable[..., Said]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("experiment", "results", "exp", "-o", "json")[1])["rows"]
    return found


def jobs(cli: Callable[..., Said], *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("jobs", "-l", "experiment=exp", "-o", "json", *words)[1])["jobs"]
    return found


def test_all_combinations_run_once(cli: Callable[..., Said], tmp_path: Path) -> None:
    write(tmp_path, [8, 16])
    code, out, _ = cli("experiment", "check", "exp.toml")
    assert (code, jobs(cli)) == (0, [])
    assert out.startswith("exp: 8 jobs (model 2, trials 2, seed 2); 8 to run, 96 trials, about ")
    code, out, err = cli("experiment", "run", "exp.toml")
    assert (code, out) == (0, "8 jobs done, 0 failed\n")
    assert "8/8  model " in err
    assert {(row["model"], row["set_trials"], row["trials"], row["seed"]) for row in rows(cli)} == {
        (model, trials, trials, seed) for model in ("a.bin", "b.bin") for trials in (8, 16) for seed in (0, 1)
    }
    assert {job["labels"]["team"] for job in jobs(cli)} == {"vision"}
    assert {job["priority"] for job in jobs(cli)} == {-10}
    code, out, err = cli("experiment", "run", "exp.toml")
    assert (code, len(jobs(cli))) == (0, 8), "nothing runs twice"
    assert "all have run" in err
    write(tmp_path, [8, 16, 24])
    assert cli("experiment", "run", "exp.toml")[:2] == (0, "12 jobs done, 0 failed\n")
    assert sorted(job["trials"] for job in jobs(cli))[8:] == [24] * 4, "the new combinations alone"
    assert "exp  12 of 12 jobs  [##############################] 100 %  complete" in cli("experiment")[1]
    assert cli("experiment", "results", "exp", "--to", "all.csv")[0] == 0
    with (tmp_path / "all.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 12
    page = (tmp_path / "s/experiments/exp/results.html").read_text()
    assert page.count("/report.html") == 12
    report = next((tmp_path / "s/experiments/exp/jobs").iterdir()) / "report.json"
    assert json.loads(report.read_text())["job"]["labels"]["experiment"] == "exp"


def test_failed_jobs_are_reported_and_run_again_on_request(cli: Callable[..., Said], tmp_path: Path) -> None:
    write(tmp_path, [8], more='[[exclude]]\nmodel = "b.bin"\n')
    text = (tmp_path / "exp.toml").read_text()
    (tmp_path / "exp.toml").write_text(text.replace("option.build_s = 0.0", 'option.reject = "no such operator"'))
    code, out, err = cli("experiment", "run", "exp.toml")
    assert (code, out) == (1, "0 jobs done, 2 failed\n")
    assert "(seed 0) failed: no such operator" in err
    assert (cli("experiment", "run", "exp.toml")[0], len(jobs(cli))) == (1, 2)
    assert (cli("experiment", "run", "exp.toml", "--retry-failed")[0], len(jobs(cli))) == (1, 4)
    assert "failed   2; run them again:" in cli("experiment", "status", "exp")[1]


def test_an_invalid_file_starts_no_job(cli: Callable[..., Said], tmp_path: Path) -> None:
    write(tmp_path, [8], more="[exclude]\nseed = 9\n")
    code, _, err = cli("experiment", "run", "exp.toml")
    assert (code, jobs(cli)) == (2, [])
    assert "exp.toml:13: write [[exclude]], in two pairs of brackets" in err
    for command in ("status", "results", "stop"):
        code, _, err = cli("experiment", command, "exp")
        assert code == 5 or code == 4
        assert "no experiment 'exp' has run here; there are: none. Run one:  autosched experiment run FILE" in err


def running(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "run.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "autosched", "experiment", "run", "exp.toml"], stdout=log, stderr=log
        )


def test_a_run_continues_after_daemon_and_runner_were_killed(
    there: Lab, cli: Callable[..., Said], tmp_path: Path
) -> None:
    write(tmp_path, [8, 16], at_once=2, build_s=0.02)
    first = running(tmp_path)
    until(lambda: len(jobs(cli)) >= 2, "it submits")
    there.end(signal.SIGKILL)
    there.start(BOARD)
    until(lambda: len(jobs(cli)) >= 4, "the same process goes on")
    first.kill()
    first.wait(DEADLINE_S)
    code, out, err = cli("experiment", "run", "exp.toml")
    assert (code, out) == (0, "8 jobs done, 0 failed\n"), err
    assert len(jobs(cli)) == 8, "nothing ran twice"
    assert len(rows(cli)) == 8


def test_stop_ends_the_process_and_cancels_the_jobs(cli: Callable[..., Said], tmp_path: Path) -> None:
    write(tmp_path, [400], build_s=0.2)
    process = running(tmp_path)
    until(lambda: len(jobs(cli, "--state", "active")) >= 4, "it submits")
    code, out, err = cli("experiment", "run", "exp.toml")
    assert code == 5
    assert f"experiment exp is run by process {process.pid} already" in err
    code, out, _ = cli("experiment", "stop", "exp")
    assert (code, out) == (0, f"exp: process {process.pid} ends, 4 jobs cancelled\n")
    assert process.wait(DEADLINE_S) != 0
    assert jobs(cli, "--state", "active") == []
    assert rows(cli) == [], "what was cancelled has no row, and runs again"
    write(tmp_path, [8])
    assert cli("experiment", "run", "exp.toml")[:2] == (0, "4 jobs done, 0 failed\n")


def test_policies_are_compared_in_a_separate_daemon(cli: Callable[..., Said], tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as short:  # the path of a socket has a limit
        own_daemon(cli, tmp_path, f"{short}/socket")


def own_daemon(cli: Callable[..., Said], tmp_path: Path, socket: str) -> None:
    (tmp_path / "lab.toml").write_text(f'[daemon]\nsocket = "{socket}"\n{BOARD}')
    write(tmp_path, [8], more="[daemon]\nown = true\n")
    text = (tmp_path / "exp.toml").read_text()
    more = 'policy = ["stagewise", "round-robin"]\nsettings = "lab.toml"\n[labels]'
    (tmp_path / "exp.toml").write_text(
        'together = ["model", "seed"]\ncompare = "policy"\n' + text.replace("[labels]", more)
    )
    try:
        code, out, err = cli("experiment", "run", "exp.toml")
        assert (code, out) == (0, "8 jobs done, 0 failed\n"), err
        found = {(row["policy"], row["under_policy"]) for row in rows(cli)}
        assert found == {("stagewise", "stagewise"), ("round-robin", "interleaved")}
        assert jobs(cli) == [], "the other daemon has none of them"
        lines = cli("experiment", "results", "exp")[1].splitlines()
        (batch,) = (line for line in lines if line.split()[:1] == ["batch_s"])
        assert re.match(r" batch_s +all +round-robin +stagewise +[\d.]+ +not known +1 +cannot tell", batch)
        (found,) = autosched.experiment("exp").compare("policy", "batch_s")
        assert (found.value, found.pairs) == ("round-robin", 1)
        by_policy = [[row for row in rows(cli) if row["policy"] == one] for one in ("stagewise", "round-robin")]
        ends = max(row["ended_at"] for row in by_policy[0])
        assert all(row["submitted_at"] >= ends for row in by_policy[1]), "one batch after the other"
    finally:
        asyncio.run(shut_down(tmp_path / "s/experiments/exp/state-lab", socket))


async def shut_down(state: Path, socket: str) -> None:
    async with on_demand.separate(state, socket=socket, start=False) as daemon:
        await daemon.link.call(Shutdown(), Done)


def test_a_daemon_that_cannot_start_ends_the_run(cli: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text('[daemon]\nsocket = "/proc/none/socket"\n')
    write(tmp_path, [8], more="[daemon]\nown = true\n")
    text = (tmp_path / "exp.toml").read_text()
    (tmp_path / "exp.toml").write_text(text.replace("[labels]", 'settings = "lab.toml"\n[labels]'))
    code, _, err = cli("experiment", "run", "exp.toml")
    assert code != 0
    assert "a private daemon was started but ended with exit code" in err


def test_the_table_of_a_run_that_was_not_disturbed_is_the_same(cli: Callable[..., Said], tmp_path: Path) -> None:
    write(tmp_path, [8])
    cli("experiment", "run", "exp.toml")
    first = rows(cli)
    os.rename(tmp_path / "s/experiments/exp", tmp_path / "before")
    text = (tmp_path / "exp.toml").read_text()
    (tmp_path / "exp.toml").write_text(f'name = "again"\n{text}')
    cli("experiment", "run", "exp.toml")
    second = json.loads(cli("experiment", "results", "again", "-o", "json")[1])["rows"]
    times = {*table.TIMES, "job"}
    differ = [(a["combination"], k, a[k], b[k]) for a, b in zip(first, second, strict=True) for k in a if a[k] != b[k]]
    assert [one for one in differ if one[1] not in times] == []
