"""Kernels without schedules, with which candidates are compared. The workers are fake, so TVM is not needed."""

from pathlib import Path
from typing import Any, cast

import pytest

from autosched.backend import Lease
from autosched.errors import StepFailed
from autosched.model import TaskInfo
from autosched.process.forked_workers import Killed, TimedOut, Workers
from autosched_tvm import build_cache, worker_messages
from autosched_tvm.compile import toolchain
from autosched_tvm.tuning.kernel_measurer import KernelMeasurer
from autosched_tvm.tuning.options import Options

LEASE = Lease("any", ("host/0",), (0,), 60.0)
TASK = TaskInfo(task=1, name="op", workload="0")


class FakeWorkers:
    """Writes half of a build, or exceeds the time limit of a run."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self.calls: list[str] = []

    def call(self, role: str, lease: object, function: str, *arguments: Any, **_: object) -> str:
        if function == worker_messages.BUILD:
            Path(arguments[3]).touch()
        if self._error is not None:
            raise self._error
        self.calls.append(function)
        return f"{len(self.calls):x}"


def kernels_of(folder: Path, error: Exception | None) -> KernelMeasurer:
    return KernelMeasurer(cast(Workers, FakeWorkers(error)), folder, folder, "{}", Options())


def test_a_partial_reference_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        kernels_of(tmp_path, Killed("killed")).reference(TASK, LEASE)
    kernels = kernels_of(tmp_path, None)
    assert not kernels.reference_file(TASK).exists()
    kernels.reference(TASK, LEASE)
    assert [path.name for path in tmp_path.iterdir()] == ["1.so"]


def test_a_candidate_that_was_built_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build_cache.FOLDER, str(tmp_path / "cache"))
    monkeypatch.setenv(build_cache.BYTES_MAX, "100000")
    tools = ["tvm 1"]
    monkeypatch.setattr(toolchain, "versions", lambda: tools[0])
    (tmp_path / "1.json").write_text("a workload")

    def built(candidate: bytes, name: str) -> tuple[str, int]:
        workers = FakeWorkers(None)
        kernels = KernelMeasurer(cast(Workers, workers), tmp_path, tmp_path, "{}", Options())
        code = kernels.build(TASK, candidate, tmp_path / name, LEASE)
        assert (tmp_path / name).exists()
        return code, len(workers.calls)

    assert built(b"a", "one.so") == ("1", 1)
    assert built(b"a", "two.so") == ("1", 0)
    assert built(b"b", "three.so") == ("1", 1)
    tools[0] = "tvm 2"
    assert built(b"a", "four.so") == ("1", 1)
    (tmp_path / "1.json").write_text("another workload")
    assert built(b"a", "five.so") == ("1", 1)


def test_a_reference_that_is_too_slow_is_reported(tmp_path: Path) -> None:
    kernels = kernels_of(tmp_path, TimedOut("late"))
    kernels.reference_file(TASK).touch()
    with pytest.raises(StepFailed, match="op runs longer than 120 s without a schedule"):
        kernels.profile(TASK, tmp_path / "a.so", None, LEASE)


def test_a_candidate_built_on_another_host_is_measured_with_a_local_reference(tmp_path: Path) -> None:
    kernels = kernels_of(tmp_path, None)
    kernels.reference(TASK, LEASE)
    kernels.reference_file(TASK).unlink()
    kernels._measure(TASK, worker_messages.PROFILE, "a.so", cast(Any, None), LEASE, 1.0)
    assert kernels.reference_file(TASK).exists()
