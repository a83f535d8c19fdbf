"""Agents as jobs of Slurm."""

import os
from pathlib import Path

import pytest

from autosched.cli.command_table import run
from autosched.errors import RequestError
from autosched.launch import slurm_agents
from autosched.launch.slurm_agents import SlurmJob, agents, change

BATCH_FILE = Path(__file__).parents[3] / "etc/slurm/agent.sbatch"
QUEUE = """\
12|slurm-1|RUNNING|n2
11|slurm-0|PENDING|
13|slurm-10|RUNNING|n3
14|train|RUNNING|n4
15|slurm-2|COMPLETING|n1
"""


def job(number: int, name: str) -> SlurmJob:
    return SlurmJob(str(number), name, "RUNNING")


def test_the_jobs_of_agents_are_found_by_their_names() -> None:
    assert [(one.number, one.name) for one in agents(QUEUE, "slurm")] == [
        ("11", "slurm-0"), ("12", "slurm-1"), ("13", "slurm-10"),
    ]  # fmt: skip
    assert agents(QUEUE, "slu") == []
    assert agents("", "slurm") == []


@pytest.mark.parametrize(
    ("there", "wanted", "submitted", "cancelled"),
    [
        ([], 2, ["a-0", "a-1"], []),
        ([job(1, "a-1")], 3, ["a-0", "a-2"], []),
        ([job(1, "a-0"), job(2, "a-1"), job(3, "a-2")], 1, [], ["2", "3"]),
        ([job(1, "a-0"), job(2, "a-0")], 1, [], ["2"]),
        ([job(1, "a-5")], 0, [], ["1"]),
    ],
)
def test_what_is_missing_is_submitted_and_what_is_too_much_cancelled(
    there: list[SlurmJob], wanted: int, submitted: list[str], cancelled: list[str]
) -> None:
    done = change(there, wanted, "a")
    assert list(done.submitted) == submitted
    assert [one.number for one in done.cancelled] == cancelled


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs with the names of Slurm's, which keep a queue in a file."""
    queue = tmp_path / "queue"
    queue.touch()
    programs = {
        "squeue": f"cat {queue}",
        "sbatch": f'name=${{2#--job-name=}}; n=$(wc -l < {queue}); test -f "$AUTOSCHED_KEY_FILE" || exit 9\n'
        f'echo "$n|$name|PENDING|" >> {queue}; echo "$AUTOSCHED_HOST" >> {tmp_path}/addresses',
        "scancel": f'sed -i "/^$1|/d" {queue}',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "agent.key").write_text("agent:slurm:secret\n")
    return tmp_path


def test_agents_are_scaled_up_and_down(slurm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def scaled(count: int) -> str:
        words = ["hosts", "scale", "--slurm", str(BATCH_FILE), "--key", str(slurm / "agent.key"), str(count)]
        assert run(["--host", "tls://lab:7433", *words]) == 0
        return capsys.readouterr().out

    assert scaled(2) == "slurm-0: job 0, pending\nslurm-1: job 1, pending\n"
    assert scaled(3).splitlines()[2] == "slurm-2: job 2, pending"
    assert scaled(1) == "slurm-0: job 0, pending\n"
    assert scaled(0) == ""
    assert set((slurm / "addresses").read_text().split()) == {"tls://lab:7433"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--slurm", "nowhere.sbatch", "--key", "KEY", "1"], "there is no file nowhere.sbatch: copy etc/slurm"),
        (["--slurm", str(BATCH_FILE), "--key", "nowhere", "1"], "autosched key new agent slurm"),
    ],
)
def test_a_file_that_is_missing_is_told(
    slurm: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("KEY", str(slurm / "agent.key")) for word in words]
    assert run(["--host", "tls://lab:7433", "hosts", "scale", *words]) == 2
    assert said in capsys.readouterr().err


def test_without_slurm_and_when_it_fails_the_reason_is_told(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (slurm / "squeue").write_text("#!/bin/sh\necho 'no cluster' >&2; exit 1\n")
    with pytest.raises(RequestError, match=r"squeue --me .* failed: no cluster"):
        slurm_agents.scale(BATCH_FILE, 1, "slurm", {})
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RequestError, match="there is no squeue here: run this where jobs of Slurm are submitted"):
        slurm_agents.scale(BATCH_FILE, 1, "slurm", {})


def test_the_batch_file_asks_for_what_an_agent_needs() -> None:
    directives = [line.removeprefix("#SBATCH ") for line in BATCH_FILE.read_text().splitlines() if "#SBATCH" in line]
    assert {"--exclusive", "--requeue", "--signal=B:TERM@120"} <= set(directives)
