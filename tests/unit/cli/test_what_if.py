"""`autosched plan`: three columns from a recording."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from autosched import policy_registry
from autosched.cli.command_table import run
from autosched.sim.scenario import DEVICE, HOST, Scenario, ScenarioJob, Work, pools
from autosched.sim.simulator import Simulator
from autosched.workloads.recordings import DATABASE
from recordings import record

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs in a state folder with two jobs, the second cancelled, recorded under one lane and one device."""
    rounds = ((Work("build", (HOST,), 8.0), Work("profile", (DEVICE,), 40.0)),) * 5
    jobs = (ScenarioJob(tasks=(rounds,), name="net"), ScenarioJob(tasks=(rounds,), name="other", cancelled_at=200.0))
    world = Simulator(Scenario(pools=pools(1, 1), jobs=jobs))
    world.run()
    record(world, tmp_path / DATABASE)
    monkeypatch.setenv("AUTOSCHED_STATE_DIR", str(tmp_path))

    def command(*words: object) -> tuple[int, str, str]:
        code = run([str(word) for word in ("plan", *words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


def test_a_table_compares_the_plan_with_the_past(cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli("--from", tmp_path, "--devices", 2)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["RECORDED", "SIMULATED", "PLANNED"]
    assert "units of device:cpu            1            1            2" in out
    recorded, simulated, planned = next(line for line in lines if line.startswith(" makespan")).split()[1:]
    assert recorded == simulated != planned
    assert max(map(len, lines)) <= 80
    assert "only the steps that they made count: job 2" in err


def test_json_is_complete_and_the_state_folder_is_the_default(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("--add-job", "1:2", "--lanes", 2, "-o", "json")
    assert code == 0
    plan = json.loads(out)["plan"]
    assert plan["planned"]["units"] == {"host": 2, "device:cpu": 1}
    assert plan["planned"]["makespan_s"] > 2 * plan["simulated"]["makespan_s"] / 1.5
    assert [(job["job"], job["copy"]) for job in plan["jobs"]] == [(1, 0), (2, 0), (1, 1), (1, 2)]
    assert cli("--from", tmp_path / DATABASE, "--add-job", "1:2", "--lanes", 2, "-o", "json")[1] == out


def test_all_policies_are_compared(cli: Cli) -> None:
    code, out, err = cli("--policy", "all", "--devices", 2)
    assert code == 0
    heads, *rows = [line.split() for line in out.splitlines()]
    assert heads == ["POLICY", "MAKESPAN", "MEAN", "COMPLETION", "BUSY", "HOST", "BUSY", "DEVICE:CPU"]
    assert [row[0] for row in rows] == ["recorded", "simulated", *["planned"] * len(policy_registry.installed())]
    took = {row[1]: row[2] for row in rows[2:]}
    assert list(took) == list(policy_registry.installed())
    assert took["sequential"] != took["interleaved"]
    assert max(map(len, out.splitlines())) <= 80
    assert err.count("only the steps that they made count: job 2") == 1
    plans = json.loads(cli("--policy", "all", "--devices", 2, "-o", "json")[1])["plans"]
    assert [plan["planned"]["policy"] for plan in plans] == list(took)


def test_one_job_can_be_simulated_alone(cli: Cli) -> None:
    plan = json.loads(cli("--jobs", 1, "-o", "json")[1])["plan"]
    assert [job["job"] for job in plan["jobs"]] == [1]
    assert plan["simulated"]["makespan_s"] == 240.0 < plan["recorded"]["makespan_s"], "the other one is not there"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--from", "nowhere"), 4, "there is no recording at nowhere"),
        (("--from", __file__), 2, "is no recording of a daemon"),
        (("--jobs", "7"), 4, "there is no job 7 in this recording; there are: 1, 2"),
        (("--jobs", "x"), 2, "'x' names no job"),
        (("--devices", "many"), 2, "--devices 'many': write a number"),
        (("--devices", "gpu=2"), 2, "these jobs use no device:gpu"),
        (("--devices", "0"), 2, "--devices '0': write a number"),
        (("--hosts", "0"), 2, "0 is not in the range"),
        (("--add-job", "1:"), 2, "--add-job '1:': write a job's number"),
        (("--add-job", "9"), 2, "job 9 cannot be added"),
        (("--policy", "fastest"), 4, "no policy is named 'fastest'"),
    ],
)
def test_impossible_arguments_are_refused_with_the_reason(
    cli: Cli, words: tuple[str, ...], code: int, said: str
) -> None:
    got, out, err = cli(*words)
    assert (got, out) == (code, "")
    assert said in err.replace("\n", " ")
