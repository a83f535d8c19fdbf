"""Networks for boards, with TVM's own RPC server on this machine as the board, and faults of boards."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("tvm")
pytest.importorskip("onnx")

import onnx

from autosched.api.connection import Daemon
from autosched.errors import AutoschedError
from autosched.model import JobSpec, JobState, Purpose
from autosched_tvm.compile import targets
from chaos.agents import free_port
from deadlines import DEADLINE_S, until
from integration.lab import Lab, Said, command_line, lab
from nets import small_net
from rpc_server import RpcServer, settings

pytestmark = pytest.mark.tvm
KEY = "pi4"
QUICK = ("--trials", 16, "--seed", 1, "--option", "batch=4", "--option", "min_repeat_ms=1.0")
GUARD = "[guard]\nquarantine_s = 0.2\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RpcServer]:
    with RpcServer(tmp_path, KEY) as running:
        yield running


def command(there: Lab, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Said]:
    return command_line(there, tmp_path, request.getfixturevalue("monkeypatch"), request.getfixturevalue("capsys"))


def test_a_network_is_tuned_for_a_board_and_correct_there(
    server: RpcServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    onnx.save(small_net(), tmp_path / "net.onnx")
    with lab(tmp_path, settings(server, KEY)) as there:
        cli = command(there, tmp_path, request)
        code, out, err = cli("tune", "net.onnx", "-t", "pi4", *QUICK, "--output", "out")
        assert code == 0, err
        assert "outputs equal to ONNX Runtime" in out
        assert "than ONNX Runtime" in out or "as fast as ONNX Runtime" in out, "it is installed there, too"
        assert "copy net.so and net.json to the board" in out
        assert "the clock of board0 cannot be read" in out
        evaluation = json.loads((tmp_path / "out/report.json").read_text())
        records = there.records(1)
        devices = {record.unit for record in records if record.unit}
        code, out, _ = cli("devices")
    assert evaluation
    assert devices == {"board0"}
    assert all(record.latency_s for record in records), "all ran"
    assert "its clock cannot be read" in out
    assert "not measured yet" not in out, "the sentinel ran on the board"
    assert server.sessions < len(records), "a step has one session for all of its candidates"


def test_a_board_that_dies_in_a_session_is_rebooted_and_nothing_is_lost_or_measured_twice(
    server: RpcServer, tmp_path: Path
) -> None:
    """The reboot hook leaves a file, and the test restarts the server."""
    onnx.save(small_net(), tmp_path / "net.onnx")
    hook = f"reboot = [\"{sys.executable}\", \"-c\", \"open('{tmp_path}/rebooted', 'a').write('x')\"]\n"
    with lab(tmp_path, settings(server, KEY, more=hook) + GUARD) as there:
        job = submitted(there, tmp_path / "net.onnx")
        there.wait(job, "trials", 3)
        server.kill()
        until(lambda: (tmp_path / "rebooted").exists(), "the reboot hook is called")
        server.start()
        view = there.wait(job)
        records = there.records(job)
    assert view.state == JobState.DONE, view.failure
    tried = [(record.task, record.candidate) for record in records if record.purpose is Purpose.TRIAL]
    assert len(tried) == len(set(tried)) == 16
    assert all(record.failure is None for record in records), "no candidate is to blame"


def test_a_board_that_withholds_features_of_its_target_ends_the_job_at_its_first_step(
    server: RpcServer, tmp_path: Path
) -> None:
    """No CPU has the features of both makers."""
    onnx.save(small_net(), tmp_path / "net.onnx")
    other = "bdver4" if targets.granted()["sse4a"] is False else "sapphirerapids"
    with lab(tmp_path, settings(server, KEY, cpu=other) + GUARD) as there:
        job = submitted(there, tmp_path / "net.onnx")
        view = there.wait(job)
        records, lab_now = there.records(job), there.ask(lambda daemon: daemon.units())
    assert view.state == JobState.FAILED
    assert view.failure is not None
    assert f"the CPU of the board board0 does not offer what the target {other!r} needs" in view.failure.message
    assert "Use --target '{" in view.failure.message
    assert not records
    assert not [unit for unit in lab_now if unit.drained or unit.quarantined], "the board is healthy"


def test_clients_and_daemons_that_are_killed_cost_no_record(tmp_path: Path) -> None:
    onnx.save(small_net(), tmp_path / "net.onnx")
    with RpcServer(tmp_path, KEY, ours=True) as server, lab(tmp_path, words := settings(server, KEY) + GUARD) as there:
        job = submitted(there, tmp_path / "net.onnx")
        there.wait(job, "trials", 3)
        there.kill_client(job)
        there.wait(job, "trials", 7)
        there.end(9)
        there.start(words)
        view = there.wait(job)
        records = there.records(job)
    assert view.state == JobState.DONE, view.failure
    tried = [(record.task, record.candidate) for record in records if record.purpose is Purpose.TRIAL]
    assert len(tried) == len(set(tried)) == 16
    assert all(record.failure is None for record in records)


def submitted(there: Lab, model: Path, **options: float) -> int:
    """Submits a job for the board; returns its number."""

    async def ask(daemon: Daemon) -> int:
        sha256 = await daemon.upload(model)
        spec = JobSpec(
            name="net", model=sha256, target="pi4", trials=16, seed=1, backend="ansor",
            options={"batch": 4, "min_repeat_ms": 1.0, **options},
        )  # fmt: skip
        return (await daemon.submit(spec)).job

    return there.ask(ask)


def test_settings_that_a_board_cannot_have_are_refused(
    server: RpcServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    onnx.save(small_net(), tmp_path / "net.onnx")
    bare = "".join(line for line in settings(server, KEY).splitlines(keepends=True) if "target" not in line)
    with lab(tmp_path, bare) as there:
        cli = command(there, tmp_path, request)
        code, _, err = cli("tune", "net.onnx", "-t", "pi4", *QUICK)
        assert code == 2
        assert "what the devices of the kind 'pi4' run is not known" in err
        with pytest.raises(AutoschedError, match="clients of the daemon alone can reach"):
            there.submit(device="pi4", target="llvm", external=True)


def test_a_registered_board_leaves_during_a_job_and_returns(tmp_path: Path) -> None:
    onnx.save(small_net(), tmp_path / "net.onnx")
    port = free_port()
    words = f'[boards]\nlisten = "127.0.0.1:{port}"\n[[board]]\nkind = "pi4"\ntarget = "llvm -num-cores=1"\n' + GUARD
    tracker = ("--tracker", f"127.0.0.1:{port}")
    with lab(tmp_path, words) as there, RpcServer(tmp_path, KEY, tracker) as server:
        until(lambda: there.boards() == ["pi4-127.0.0.1"], "the board has registered itself")
        job = submitted(there, tmp_path / "net.onnx")
        there.wait(job, "trials", 3)
        server.kill()
        until(lambda: not there.boards(), "the board is gone")
        server.start()
        view = there.wait(job)
        records = there.records(job)
        there.end(9)
        there.start(words)
        until(lambda: there.boards() == ["pi4-127.0.0.1"], "the board has come to the next daemon")
    assert view.state == JobState.DONE, view.failure
    tried = [(record.task, record.candidate) for record in records if record.purpose is Purpose.TRIAL]
    assert len(tried) == len(set(tried)) == 16
    assert {record.unit for record in records if record.unit} == {"pi4-127.0.0.1"}, "twins were not measured"


def test_programs_of_plain_tvm_share_a_board_with_jobs(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    onnx.save(small_net(), tmp_path / "net.onnx")
    port = free_port()
    words = f'[boards]\nlisten = "127.0.0.1:{port}"\n[[board]]\nkind = "pi4"\ntarget = "llvm -num-cores=1"\n' + GUARD
    with lab(tmp_path, words) as there, RpcServer(tmp_path, KEY, ("--tracker", f"127.0.0.1:{port}")) as server:
        cli = command(there, tmp_path, request)
        until(lambda: there.boards() == ["pi4-127.0.0.1"], "the board has registered itself")
        command_words = [sys.executable, str(Path(__file__).parents[1] / "stock_program.py"), str(port), KEY, "5", "3"]
        job = submitted(there, tmp_path / "net.onnx")
        with subprocess.Popen(command_words, stdout=subprocess.PIPE, text=True) as program:
            view = there.wait(job)
            said, _ = program.communicate(timeout=DEADLINE_S)
        own = there.wait(2)
        _, queue, _ = cli("queue")
        _, gantt, _ = cli("gantt", "--last", "1h")
        _, listed, _ = cli("jobs")
        spans = sorted(spans_on(there, "pi4-127.0.0.1"))
    rounds = [json.loads(line) for line in said.splitlines()]
    assert [one["good"] for one in rounds] == [8, 8, 8], rounds
    assert all(one["error"] < 1e-3 for one in rounds)
    assert (view.state, own.state) == (JobState.DONE, JobState.DONE), own.failure
    assert all(end <= begin for (_, end, _), (begin, _, _) in pairwise(spans)), "one step at a time"
    assert sum(1 for *_, of in spans if of == 2) == 27, "each session was a step"
    assert {of for *_, of in spans} == {1, 2}
    assert "session" in gantt
    assert "tvm-pi4" in listed
    assert "device:pi4" in queue
    lines = [line for line in server.log.splitlines() if "start serving" in line or "finish serving" in line]
    turns = ["start" in line for line in lines]
    assert all(one is not other for one, other in pairwise(turns)), "one session at a time"


def spans_on(there: Lab, unit: str) -> list[tuple[float, float, int]]:
    """Returns begin, end and job of each step that held a unit."""
    return [(span.started_at, span.ended_at or 0.0, span.job) for span in there.spans() if unit in span.units]
