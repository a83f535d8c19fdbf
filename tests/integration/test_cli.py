"""The command line against a real daemon with the backend that needs no compiler: exit codes and messages."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from autosched import api
from autosched.api.connection import Daemon
from autosched.cli.tune import AHEAD
from autosched.model import JobId, JobState
from deadlines import DEADLINE_S, until
from integration.lab import BOARD, MODEL, Lab, Said, command_line, lab

CPU_S_MAX = 0.15


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), BOARD) as running:
        yield running


@pytest.fixture
def cli(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Runs a command in an empty folder; returns exit code, stdout, stderr."""
    (tmp_path / "net.onnx").write_bytes(MODEL)
    return command_line(there, tmp_path, monkeypatch, capsys)


def tune(cli: Callable[..., Said], *words: object) -> Said:
    return cli("tune", "net.onnx", "--backend", "mock", "--trials", 16, "--fresh", *words)


def test_tune_writes_a_result_folder_and_prints_a_summary(cli: Callable[..., Said], tmp_path: Path) -> None:
    code, out, err = tune(cli, "--seed", 3, "--option", "fail_ratio=0.3")
    assert code == 0
    assert "x8.00 faster than the untuned build" in out
    assert "outputs equal to" in out
    assert "build error" in out
    assert " Next:" in out
    assert "done, 16/16 trials" in err
    there = {path.name for path in (tmp_path / "net-tuned").iterdir()}
    assert there == {"net.json", "records.jsonl", "report.json", "report.html"}
    assert (tmp_path / "net-tuned/records.jsonl").read_text().count('"purpose":"trial"') == 16


def test_several_shapes_are_as_many_jobs(cli: Callable[..., Said], tmp_path: Path) -> None:
    code, out, err = tune(cli, "--shape", "x=1,3", "--shape", "x=8,3")
    assert code == 0
    assert out.count("outputs equal to") == 2
    assert "1 of 2: 1x3, job" in err
    assert {path.name for path in (tmp_path / "net-tuned").iterdir()} == {"1x3", "8x3"}, "this backend has no modules"
    assert (tmp_path / "net-tuned/8x3/report.html").exists()
    code, out, err = tune(cli, "--shape", "x=1,3", "--shape", "x=8,3", "--detach")
    jobs = out.split()
    assert len(jobs) == 2
    assert "then pack them:  autosched export ./net-tuned/1x3 ./net-tuned/8x3" in err
    assert cli("attach", jobs[1])[0] == 0
    assert tune(cli, "--shape", "x=1,3", "--shape", "x=8,3", "--output", "net.so")[0] == 2
    assert cli("submit", "net.onnx", "--shape", "x=1,3", "--shape", "x=8,3")[0] == 2


def test_the_jobs_of_a_range_are_submitted_a_few_at_a_time(
    cli: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours: list[JobId] = []
    active: list[int] = []
    submit = api.submit

    async def counting(daemon: Daemon, *words: Any, **how: Any) -> JobId:
        active.append(sum([not JobState((await daemon.job(job)).state).ended for job in ours]))
        ours.append(await submit(daemon, *words, **how))
        return ours[-1]

    monkeypatch.setattr(api, "submit", counting)
    code, out, err = tune(cli, "--shape", "x=1,1..16")
    assert code == 0, err
    assert len(active) == 12
    assert max(active) < AHEAD
    assert err.count("of 12: ") == 12
    assert out.count("x8.00 faster than the untuned build") == 12
    assert out.count(" Next:") == 1, "the largest is tuned, and told in full"


def test_detach_attach_and_compile(cli: Callable[..., Said], tmp_path: Path) -> None:
    code, out, err = tune(cli, "--detach", "--output", "first")
    job = out.strip()
    assert code == 0
    assert f"autosched attach {job}" in err
    assert cli("attach", job)[0] == 0
    assert (tmp_path / "first/report.html").exists()
    code, out, _ = cli("compile", job, "-o", "second")
    assert code == 0
    assert f"compiled with the trials of job {job}" in out
    first, second = (json.loads((tmp_path / name / "net.json").read_text()) for name in ("first", "second"))
    assert first == second, "the same trials give the same network"
    assert (tmp_path / "second/records.jsonl").read_text().count('"purpose":"trial"') == 16
    code, out, _ = cli("compile", "last", "-o", "third")  # of a job without its own trials
    assert f"compiled with the trials of job {job}" in out


def test_submit_accepts_several_models(cli: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "other.onnx").write_bytes(MODEL + b"!")
    code, out, _ = cli("submit", "net.onnx", "other.onnx", "--backend", "mock", "--trials", 8, "-o", "id")
    jobs = out.split()
    assert (code, len(jobs)) == (0, 2)
    for job in jobs:
        assert cli("attach", job)[0] == 0
    assert (tmp_path / "other-tuned/report.html").exists()
    code, out, err = cli("submit", "net.onnx", "--backend", "mock", "--trials", 8)
    assert " accepted\n" in out
    assert "autosched attach" in err


def test_learn_from_accepts_each_selector_of_jobs(cli: Callable[..., Said]) -> None:
    tune(cli)
    words = ("submit", "net.onnx", "--backend", "mock", "--trials", 8, "-o", "id")
    teacher = cli("jobs", "-o", "id")[1].split()[-1]
    assert cli(*words, "--learn-from", "last")[0] == 0
    assert json.loads(cli("job", "last", "-o", "json")[1])["job"]["spec"]["learn_from"] == [int(teacher)]
    code, _, err = cli(*words, "--learn-from", "@unknown")
    assert (code, "no job of yours is named 'unknown'" in err) == (4, True)


def test_listings_as_table_json_and_ids(cli: Callable[..., Said], there: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(cli, "--option", "tasks=20")
    code, table, _ = cli("jobs")
    assert code == 0
    assert "MODEL" in table.splitlines()[0]
    ids = cli("jobs", "-o", "id")[1].split()
    told = json.loads(cli("jobs", "-o", "json")[1])
    assert told["schema"] == 1
    assert [str(job["job"]) for job in told["jobs"]] == ids
    assert json.loads(cli("job", "last", "-o", "json")[1])["job"]["job"] == int(ids[-1])
    assert cli("job", "last", "-o", "id")[1].split() == ids[-1:]
    assert [unit["unit"] for unit in json.loads(cli("devices", "-o", "json")[1])["devices"]] == cli(
        "devices", "-o", "id"
    )[1].split()
    assert json.loads(cli("status", "-o", "json")[1])["daemon"]["pid"] > 0
    assert json.loads(cli("explain", "last", "-o", "json")[1])["explanation"]["lines"]
    for text in (table, cli("job", "last")[1], cli("devices")[1], cli("status")[1], cli("explain", "last")[1]):
        ours = [line for line in text.splitlines() if str(there.folder) not in line]
        assert max(map(len, ours)) <= 80
    monkeypatch.setenv("AUTOSCHED_OUTPUT", "id")
    assert cli("jobs")[1].split() == ids


def test_submit_prints_a_forecast_from_earlier_jobs(cli: Callable[..., Said]) -> None:
    submit = ("submit", "net.onnx", "--backend", "mock", "--seed", 77, "--option", "tasks=3")
    assert "forecast from earlier jobs of this network: unknown" in cli(*submit, "--trials", 8)[2]
    assert cli("wait", "last")[0] == 0
    (told,) = json.loads(cli(*submit, "--target-ms", 1e6, "-o", "json")[1])["jobs"]
    assert told["forecast"]["chance"] == "known"
    assert told["forecast"]["job"] < told["job"]
    assert cli("wait", "last")[0] == 0
    assert "unlikely" in cli(*submit, "--target-ms", 0.05)[2]
    cli("cancel", "last")
    assert cli(*submit, "--target-ms", 5, "--until-faster")[0] == 2
    assert cli(*submit, "--improve-by", "0%")[0] == 2


def test_cancel_by_selector(cli: Callable[..., Said]) -> None:
    for _ in range(2):
        cli("submit", "net.onnx", "--backend", "mock", "--trials", 8, "--option", "hang_stage=build")
    last = int(cli("jobs", "-o", "id")[1].split()[-1])
    code, _, err = cli("cancel", f"{last - 1}-{last}")
    assert code == 0
    assert err.count("is cancelled") == 2
    assert "has ended already" in cli("cancel", last)[2]
    cli("cancel", "all")  # jobs of other tests
    assert "No job is active" in cli("cancel", "all")[2]
    code, _, err = cli("attach", last)
    assert code == 7
    assert "was cancelled" in err


def test_a_failed_job_is_reported_with_its_reason(cli: Callable[..., Said]) -> None:
    code, out, err = tune(cli, "--option", "reject=LSTM is not supported")
    assert (code, out) == (6, "")
    assert "LSTM is not supported" in err


def test_the_policy_is_shown_and_changed(cli: Callable[..., Said]) -> None:
    before = json.loads(cli("policy", "-o", "json")[1])["policy"]
    code, out, err = cli("policy", "sequential", "--goal", "latency")
    assert code == 0
    assert out.startswith(" policy sequential, goal latency\n")
    assert f"at the next start: {before['policy']}, as configured" in out
    assert "until the daemon starts again" in err
    assert "policy sequential for latency" in cli("status")[1]
    assert cli("policy", before["policy"], "--goal", before["goal"])[0] == 0
    assert max(map(len, cli("policy")[1].splitlines())) <= 100


def test_priority_and_deadline_are_shown_until_the_job_ends(cli: Callable[..., Said]) -> None:
    words = ("--priority", 7, "--deadline", "1h30m", "--option", "hang_stage=import")
    cli("submit", "net.onnx", "--backend", "mock", *words)
    assert "priority 7, wanted within 1h30m: 1h" in cli("job", "last")[1]
    told = json.loads(cli("job", "last", "-o", "json")[1])["job"]
    assert (told["priority"], told["spec"]["deadline_s"]) == (7, 5400.0)
    assert "priority 7" in cli("jobs", "-o", "wide")[1]
    cli("cancel", "last")


def test_explain_reports_the_cause_of_waiting(cli: Callable[..., Said]) -> None:
    cli("submit", "net.onnx", "--backend", "mock", "--trials", 8, "--option", "hang_stage=import")
    holder = cli("jobs", "-o", "id")[1].split()[-1]
    until(lambda: f"job {holder} import" in cli("devices")[1], "the first job imports its network")
    # With two lanes, the second job takes the other one for an hour, and its other tasks wait for both.
    cli("submit", "net.onnx", "--backend", "mock", "--trials", 64, "--fresh", "--option", "select_s=3600")
    until(lambda: f"held by job {holder}" in cli("explain", "last")[1], "the second job waits for the first")
    cli("cancel", "all")


def test_jobs_are_held_released_changed_and_waited_for(cli: Callable[..., Said]) -> None:
    cli("submit", "net.onnx", "--backend", "mock", "--trials", 8, "--option", "hang_stage=import")
    assert cli("set", "@net", "--priority", 3)[2].endswith("priority 3, was 0\n")
    assert cli("hold", "last", "--reason", "the demo")[0] == 0
    assert json.loads(cli("job", "last", "-o", "json")[1])["job"]["held"].startswith("the demo (uid ")
    assert "held: the demo" in cli("job", "last")[1]
    assert cli("release", "last")[0] == 0
    assert cli("pause")[0] == 0
    assert "! paused, no steps start" in cli("status")[1]
    assert cli("resume")[0] == 0
    code, _, said = cli("wait", "last", "--timeout", "0.2s")
    assert code == 124
    assert "Follow it:  autosched attach" in said
    cli("cancel", "last")
    assert cli("wait", "last")[0] == 7
    assert "pause" in cli("audit", "-o", "csv")[1]


BAD = [
    # command, exit code, message
    (["tune", "none.onnx"], 2, "none.onnx cannot be read: No such file"),
    (["tune", "empty.onnx"], 2, "is empty, so it is no model"),
    (["tune", "."], 2, "is a folder, not the file of a model"),
    (["tune", "net.onnx", "--trials", "-3"], 2, "-3 trials make no sense"),
    (["tune", "net.onnx", "--trials", "5", "--zero-shot"], 2, "--zero-shot makes no trials, and --trials asks for 5"),
    (["tune", "net.onnx", "--trials", "many"], 2, "'many' is not a valid integer"),
    (["tune", "net.onnx", "--trials", "9" * 23], 2, "Give 10000000 or fewer"),
    (["tune", "net.onnx", "--shape", f"x=1,{'9' * 23}"], 2, "Write NAME=D1,D2,..."),
    (["tune", "net.onnx", "--option", f"k={'9' * 23}"], 2, "no number is larger than 9223372036854775807"),
    (["audit", "--before", "9" * 23], 2, "is not in the range"),
    (["blocked", "list", "--before", "9" * 23], 2, "is not in the range"),
    (["blocked", "forgive", "9" * 23], 2, "is not in the range"),
    (["db", "prune", "--keep", "9" * 23], 2, "is not in the range"),
    (["gantt", "--last", "9" * 23], 2, "is longer than the longest time that counts, 11574d"),
    (["tune", "net.onnx", "--deadline", "soon"], 2, "'soon' is no duration. Write seconds or for example 45s"),
    (["tune", "net.onnx", "--deadline", "0s"], 2, "must be more than 0"),
    (["tune", "net.onnx", "--priority", "101"], 2, "101 is not in the range"),
    (["tune", "net.onnx", "--policy", "sequential"], 5, "Change it:  autosched policy sequential"),
    (["policy", "typo"], 4, "no policy is named 'typo'; there are: predictive"),
    (["policy", "synchronous"], 5, "allow_interference = true"),
    (["policy", "--goal", "fun"], 2, "'fun' is not one of"),
    (["serve", "--policy", "typo"], 2, "no policy is named 'typo'"),
    (["tune", "net.onnx", "--shape", "x"], 2, "Write NAME=D1,D2,..."),
    (["tune", "net.onnx", "--shape", "x=1,0"], 2, "empty inputs are not supported"),
    (["tune", "net.onnx", "--option", "k"], 2, "Write KEY=VALUE"),
    (["tune", "net.onnx", "--output", "net.onnx"], 2, "there is a file of that name"),
    (["tune", "net.onnx", "--output", "/proc/x"], 2, "cannot be written"),
    (["tune", "net.onnx", "--backend", "nope"], 4, "no backend is named 'nope'. Installed: "),
    (["tune", "net.onnx", "--backend", "mock", "--device", "gpu9"], 4, "of the kind 'gpu9'; there are: cpu"),
    (["tune", "net.onnx", "--backend", "mock", "--target", "{"], 2, "the target '{' is"),
    (["tune", "net.onnx", "--backend", "mock", "--option", "colour=red"], 6, "no option 'colour'"),
    (["submit", "none.onnx"], 2, "cannot be read"),
    (["submit"], 2, "Missing argument"),
    (["job", "9999"], 4, "there is no job 9999"),
    (["attach", "9999"], 4, "there is no job 9999"),
    (["compile", "9999"], 4, "there is no job 9999"),
    (["cancel", "9999"], 4, "there is no job 9999"),
    (["explain", "9999"], 4, "there is no job 9999"),
    (["job", "many"], 2, "names no job"),
    (["run", "none.so"], 4, "there is no module none.so"),
    (["evaluate", "net.onnx"], 2, "is no compiled module"),
    (["frobnicate"], 2, "there is no command 'frobnicate'. See what there is: autosched -h"),
    (["db", "chek"], 2, "there is no command 'chek'. Did you mean: autosched db check"),
    (["device", "lgo", "cpu0"], 2, "Did you mean: autosched device log"),
    (["jbos"], 2, "Did you mean: autosched jobs"),
    (["jobs", "--colour"], 2, "No such option"),
    (["--host", "foo", "jobs"], 2, "is no address of a daemon"),
    (["--host", "tcp://127.0.0.1:1", "jobs"], 3, "no daemon answers"),
    (["--host", "tcp://127.0.0.1:1", "tune", "net.onnx"], 3, "no daemon answers"),
    (["serve", "-c", "none.toml"], 2, "none.toml"),
    (["serve", "-c", "typo.toml"], 2, "typo.toml:2: daemon.lissten: no such setting; did you mean 'listen'?"),
    (["model", "check", "none.onnx"], 2, "cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "message"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_input_has_its_message_and_exit_code(
    cli: Callable[..., Said], tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "typo.toml").write_text('[daemon]\nlissten = "x"\n')
    got, out, err = cli(*words)
    assert (got, out) == (code, ""), err
    assert message in err
    assert cli("status")[0] == 0, "the daemon is unharmed"


def test_a_traceback_is_written_to_a_file_and_not_shown(
    cli: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    from autosched.cli import listings

    def broken(_host: Any) -> Any:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(listings, "caller", broken)
    code, _, err = cli("jobs")
    assert code == 1
    log = Path(err.split("The details are in ")[1].split(";")[0])
    assert "ZeroDivisionError: oops" in log.read_text()
    log.unlink()


def test_a_wrong_pair_of_tvm_packages_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, number in (("apache_tvm", "0.27.0"), ("apache_tvm_ffi", "0.1.15")):
        folder = tmp_path / f"packages/{name}-{number}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    python = tmp_path / "python"  # in which these packages are installed for clients
    start = (
        f"import runpy, sys; sys.executable = {str(python)!r}\n"
        "sys.argv[:] = [word for word in sys.argv[1:] if word not in ('-P', '-m')]\n"
        f"if 'autosched.client' in sys.argv: sys.path.insert(0, {str(tmp_path / 'packages')!r})\n"
        "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    )
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(start)} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    (tmp_path / "net.onnx").write_bytes(MODEL)
    with lab(tmp_path) as there:
        cli = command_line(there, tmp_path, monkeypatch, capsys)
        code, out, err = cli("tune", "net.onnx", "--trials", 4)
        assert (code, out) == (6, ""), err
        assert "apache-tvm-ffi 0.1.15 is installed, 0.1.14.* is needed" in err
        assert cli("status")[0] == 0, "the daemon is unharmed"


# In processes of their own --------------------------------------------------------------------------------------------


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(folder), "XDG_RUNTIME_DIR": "", "AUTOSCHED_HOST": ""}


def autosched(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in this folder to its end."""
    command = [sys.executable, "-m", "autosched", *words]
    return subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Path]:
    """A folder whose commands start their own daemon, which ends with the test."""
    yield tmp_path
    autosched(tmp_path, "stop")


@contextmanager
def tuning(folder: Path, *words: str, said: str) -> Iterator[subprocess.Popen[str]]:
    """A `tune` with its own daemon, after it has printed this text."""
    (folder / "net.onnx").write_bytes(MODEL)
    command = [sys.executable, "-m", "autosched", "tune", "net.onnx", "--backend", "mock", *words]
    with subprocess.Popen(
        command, cwd=folder, env=environment(folder), stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs of a shell ignore it
    ) as process:  # fmt: skip
        assert process.stderr is not None
        try:
            line = ""
            while said not in line:
                line = process.stderr.readline()
                assert line, "it ended by itself"
            yield process
        finally:
            process.kill()


def test_a_listing_costs_little_and_loads_little(there: Lab) -> None:
    program = (
        "import sys, time; sys.argv = ['autosched', 'jobs']\n"
        "from autosched.cli.command_table import run\n"
        "assert run(['jobs']) == 0\n"
        "found = [m for m in ('asyncio', 'rich', 'numpy', 'tvm') if m in sys.modules]\n"
        "print(time.process_time(), found, file=sys.stderr)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "AUTOSCHED_HOST": there.address}, capture_output=True,
            text=True, timeout=DEADLINE_S, check=True,
        ).stderr.splitlines()[-1]  # possibly after a line that there are no jobs
        for _ in range(3)
    ]  # fmt: skip
    assert all(text.endswith("[]") for text in runs), runs
    assert min(float(text.split()[0]) for text in runs) < CPU_S_MAX * 5


def test_commands_work_without_a_daemon_with_a_private_one_and_with_a_dead_one(alone: Path) -> None:
    (alone / "net.onnx").write_bytes(MODEL)
    silent = autosched(alone, "jobs")
    assert (silent.returncode, silent.stdout) == (3, "")
    assert "no daemon runs here" in silent.stderr
    assert "autosched serve" in silent.stderr
    unknown = autosched(alone, "attach", "99")
    assert (unknown.returncode, "starting" in unknown.stderr) == (3, False), "none is started only to say no"
    chosen = ("--policy", "sequential", "--goal", "makespan")
    tuned = autosched(alone, "tune", "net.onnx", "--backend", "mock", "--trials", "8", *chosen)
    assert tuned.returncode == 0, tuned.stderr
    assert "starting a private one" in tuned.stderr
    assert " policy sequential, goal makespan\n" in autosched(alone, "policy").stdout
    daemon = json.loads(autosched(alone, "status", "-o", "json").stdout)["daemon"]
    assert daemon["on_demand"]
    os.kill(daemon["pid"], signal.SIGKILL)
    dead = autosched(alone, "jobs")
    while dead.returncode == 0:  # the kill is in progress
        dead = autosched(alone, "jobs")
    assert dead.returncode == 3
    assert autosched(alone, "compile", "99").returncode == 3
    again = autosched(alone, "attach", "1")
    assert again.returncode == 0, again.stderr
    assert autosched(alone, "stop").returncode == 0
    assert autosched(alone, "jobs").returncode == 3


def test_a_daemon_that_dies_under_a_tune_is_replaced_and_the_job_ends(alone: Path) -> None:
    with tuning(alone, "--trials", "240", "--option", "build_s=0.2", said="/240 trials") as process:
        told = autosched(alone, "status", "-o", "json").stdout
        os.kill(json.loads(told)["daemon"]["pid"], signal.SIGKILL)
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(DEADLINE_S) == 0, said
    assert "Trying to reach it again" in said
    assert "done, 240/240 trials" in said
    assert (alone / "net-tuned/report.html").exists()


def test_an_interrupt_detaches_and_the_job_continues(alone: Path) -> None:
    with tuning(alone, "--trials", "8", "--option", "hang_stage=build", said="job 1 net: running") as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(DEADLINE_S) == 130
        assert "autosched attach 1" in said
        assert "autosched cancel 1" in said
        assert json.loads(autosched(alone, "job", "1", "-o", "json").stdout)["job"]["state"] == "running"
        assert autosched(alone, "cancel", "1").returncode == 0
