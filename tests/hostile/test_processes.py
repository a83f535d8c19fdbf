"""Processes of jobs that hide from their daemon, and memory that they take."""

import os
from pathlib import Path

import pytest

from autosched.api.connection import Daemon
from autosched.model import JobSpec
from autosched.process.process_tree import tree_bytes
from deadlines import until
from integration.lab import BOARD, ended, lab
from packages import install
from processes import is_dead

NAP_S = 7_777
"""Seconds that the hidden processes sleep, by which the test finds them."""
HIDES = f"""
import subprocess
from autosched_backend_mock import MockBackend


class Hides(MockBackend):
    def open(self, job, model, workdir, outdir, cores):
        for way in (
            "setsid sleep {NAP_S}",
            "env -i sleep {NAP_S}",
            "setsid env -i sh -c 'sleep {NAP_S} & sleep {NAP_S}'",
            "setsid env -i setsid sleep {NAP_S} &",
        ):
            subprocess.Popen(way, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return super().open(job, model, workdir, outdir, cores)
"""
HIDDEN = 5
MIB = 1024**2
LIMIT = 600 * MIB
LARGE = 36_000
"""Rows and columns of a constant that a small model makes: 5.2 GB."""


def hidden() -> list[int]:
    """The hidden processes that live."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [pid for pid in pids if _words(pid)[:2] == [b"sleep", b"%d" % NAP_S] and not is_dead(pid)]


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.mark.parametrize("end", ["done", "cancelled", "killed"])
def test_processes_that_hide_end_with_their_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    theirs = install(tmp_path / "packages", "autosched.backends", {"hides_all": HIDES}, hides="hides_all:Hides")
    monkeypatch.setenv("PYTHONPATH", str(theirs))
    folder = tmp_path / "state"
    folder.mkdir()
    with lab(folder, BOARD) as there:
        trials = 4 if end == "done" else 4_000
        job = there.submit(backend="hides", trials=trials, profile_s=0.02)
        if end != "done":
            until(lambda: len(hidden()) >= HIDDEN, "they sleep")
            there.wait(job, "trials", 2)
        if end == "killed":
            for pid in there.clients(job):
                os.kill(pid, 9)
        if end != "done":
            there.cancel(job)
        assert ended(there.wait(job))
        until(lambda: not hidden(), "nothing of it lives")


def test_a_small_model_takes_no_more_memory_than_a_job_may(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("tvm")
    helper, kinds = onnx.helper, onnx.TensorProto
    shape = helper.make_tensor("s", kinds.INT64, [2], [LARGE, LARGE])
    value = helper.make_tensor("v", kinds.FLOAT, [1], [1.0])
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["w"], value=value),
        helper.make_node("ReduceSum", ["w"], ["r"], keepdims=0),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, kinds.FLOAT, [1, 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], [shape])
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "small.onnx"
    path.write_bytes(network.SerializeToString())
    assert path.stat().st_size < 300

    with lab(tmp_path, f"{BOARD}[limits]\nclient_bytes_max = {LIMIT}\n") as there:

        async def submitted(daemon: Daemon) -> int:
            spec = JobSpec(name="small", model=await daemon.upload(path), backend="autotvm", trials=4)
            return (await daemon.submit(spec)).job

        job, most = there.ask(submitted), 0

        def over() -> bool:
            nonlocal most
            most = max([most, *map(tree_bytes, there.clients(job))])
            return ended(there.ask(lambda daemon: daemon.job(job)))

        until(over, "the job has ended")
        view = there.wait(job)
        print(f"at most {most / MIB:.0f} MiB of {LIMIT / MIB:.0f}")
        assert view.failure is None or "limits.client_bytes_max" in view.failure.message
        assert most < 3 * LIMIT
