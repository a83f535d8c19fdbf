"""`autosched sim`: its output, and its errors for unknown names."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autosched.cli.command_table import run
from autosched.workloads.instances import Instance, InstanceJob, standard, write

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def command(*words: object) -> tuple[int, str, str]:
        code = run([str(word) for word in ("sim", *words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


@pytest.fixture
def held_out(tmp_path: Path) -> Path:
    """Two instances, one without any bound."""
    jobs = tuple(InstanceJob(host=host, iterations=((1.0, 2.0, 3.0),)) for host in (0, 1))
    known = Instance(name="known", hosts=2, devices=1, best_known_s=4.0, lower_bound_s=3.0, jobs=jobs)
    write(tmp_path / "held-out.json", [known, Instance(name="unknown", hosts=2, devices=2, jobs=jobs)])
    return tmp_path / "held-out.json"


def rows(out: str) -> list[dict[str, Any]]:
    found = json.loads(out)
    assert isinstance(found, list)
    return found


def test_json_has_a_row_per_instance_with_all_fields(cli: Cli, held_out: Path) -> None:
    words = ("--instances", held_out, "--policy", "interleaved", "--goal", "makespan", "--estimates", "perfect")
    code, out, err = cli(*words, "-o", "json")
    assert (code, err) == (0, "")
    known, unknown = rows(out)
    assert known | {"ratio": 2.0} == known
    assert (known["name"], known["makespan_s"], known["mean_completion_s"]) == ("known", 8.0, 7.0)
    assert (known["bound_s"], known["best_known_s"]) == (3.0, 4.0)
    assert (known["policy"], known["goal"], known["estimates"]) == ("interleaved", "makespan", "perfect")
    assert (unknown["makespan_s"], unknown["bound_s"], unknown["best_known_s"], unknown["ratio"]) == (6.0, 6.0, None, 1)


def test_without_a_file_the_standard_instances_are_run(cli: Cli) -> None:
    code, out, _ = cli("--policy", "interleaved", "--processes", 1, "-o", "json")
    assert code == 0
    assert [row["name"] for row in rows(out)] == [one.name for one in standard()]
    assert all(row["ratio"] >= 0.999 for row in rows(out))


def test_processes_change_nothing(cli: Cli) -> None:
    words = ("--generate", "het:8-2-1", "--generate", "heavy:8-2-1", "--policy", "interleaved", "-o", "json")
    assert cli(*words, "--processes", 2) == cli(*words, "--processes", 1)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_the_progress(
    cli: Cli, held_out: Path, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    code, out, err = cli("--instances", held_out, "--policy", "interleaved")
    assert (code, "simulations" in out) == (0, False)
    assert err == ("\r1 of 2 simulations\r\x1b[K" if terminal else "")


def test_a_table_fits_the_terminal_and_ends_with_mean_and_worst(cli: Cli, held_out: Path) -> None:
    code, out, _ = cli("--instances", held_out, "--policy", "interleaved")
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["INSTANCE", "POLICY", "MAKESPAN", "RATIO", "MEAN", "SLOW", "HOSTS", "DEV"]
    assert lines[-2].split()[:5] == ["mean", "of", "2", "interleaved", "1.500"]
    assert lines[-1].split()[:5] == ["worst", "of", "2", "interleaved", "2.000"]


def test_all_policies_are_compared_and_stuck_ones_named(cli: Cli) -> None:
    code, out, err = cli("--generate", "het:3-1-1", "--load", 0.5, "--jobs", 3, "--policy", "all", "-o", "json")
    assert code == 0
    policies = [row["policy"] for row in rows(out)]
    assert {"interleaved", "sequential"} <= set(policies)
    assert len(policies) == len(set(policies))
    assert ("synchronous" in policies) != ("under policy 'synchronous'" in err)


def test_arrivals_are_simulated(cli: Cli) -> None:
    code, out, _ = cli("--generate", "het:1-1:4", "--load", 0.7, "--jobs", 50, "--policy", "interleaved", "-o", "json")
    assert code == 0
    (row,) = rows(out)
    assert (row["name"], row["jobs"]) == ("het-N50-C1-M1-load0.7-s4", 50)
    assert max(row["hosts_busy"], row["devices_busy"]) == pytest.approx(0.7, abs=0.2)
    assert cli("--generate", "het:1-1", "--load", 0.7, "--policy", "interleaved")[1].split()[8].startswith("het-N400")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--policy", "fastest"), 4, "no policy is named 'fastest'; there are: "),
        (("--goal", "speed"), 2, "'speed' is not one of"),
        (("--estimates", "wrong"), 2, "'wrong' is no kind of estimates"),
        (("--generate", "odd:1-1-1"), 2, "'odd:1-1-1' is no load to generate"),
        (("--load", 0.7), 2, "give that too"),
        (("--generate", "het:1-1", "--load", 1.5), 2, "1.5 is not in the range"),
        (("--instances", "gone.json"), 2, "gone.json cannot be read"),
    ],
)
def test_impossible_arguments_are_refused_with_the_reason(
    cli: Cli, words: tuple[object, ...], code: int, said: str
) -> None:
    got, out, err = cli(*words)
    assert (got, out) == (code, "")
    assert said in err.replace("\n", " ")
    assert "Traceback" not in err
