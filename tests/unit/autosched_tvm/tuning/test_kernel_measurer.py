"""Reference kernels, with which candidates are compared. The workers are fake, so TVM is not needed."""

import json
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from autosched.backend import Lease
from autosched.errors import StepFailed, TargetUnfit
from autosched.model import Failure, TaskInfo
from autosched.process.forked_workers import Died, Killed, Raised, TimedOut, Workers
from autosched_tvm import build_cache, worker_messages
from autosched_tvm.compile import targets, toolchain
from autosched_tvm.tuning.kernel_measurer import KernelMeasurer
from autosched_tvm.tuning.options import Options
from autosched_tvm.worker_failures import of_run

LEASE = Lease("any", ("host/0",), (0,), 60.0)
TASK = TaskInfo(task=1, name="op", workload="0")
LARGE = TaskInfo(task=2, name="large", workload="1", flops=21e9)
WRONG = Raised("WrongResult", "output 2 differs from the reference kernel's by 1, allowed 0.1")


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
    monkeypatch.setattr(toolchain, "versions", lambda target: tools[0])
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


class JudgingWorkers:
    """Measure kernels in 1 ms. Each function may have an answer, or an error, by its reference ("2.so")."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers
        self.calls: list[str] = []

    def call(self, role: str, lease: object, function: str, *arguments: Any, **_: object) -> Any:
        name = function.partition(":")[2]
        build = function in (worker_messages.BUILD, worker_messages.BUILD_BY_RULE)
        file = Path(arguments[-1] if build else arguments[1])
        if build:
            file.touch()
        self.calls.append(name if build else f"{name} {file.name}")
        answer = self._answers.get(self.calls[-1].replace(" ", "_").replace(".", "_"), "code" if build else (1e-3,))
        if isinstance(answer, Exception):
            raise answer
        return answer


def judged_by(folder: Path, **answers: Any) -> tuple[KernelMeasurer, list[str]]:
    """Returns a measurer with such workers, and the list of their calls."""
    workers = JudgingWorkers(**answers)
    return KernelMeasurer(cast(Workers, workers), folder, folder, "{}", Options()), workers.calls


def test_the_reference_of_a_large_operator_has_the_schedule_by_rule(tmp_path: Path) -> None:
    kernels, calls = judged_by(tmp_path)
    assert kernels.profile(LARGE, tmp_path / "a.so", None, LEASE) == (1e-3,)
    assert calls == ["build_by_rule", "ready 2.rule.so", "profile 2.rule.so"]
    kernels.profile(TASK, tmp_path / "b.so", None, LEASE)
    assert calls[3:] == ["build", "ready 1.so", "profile 1.so"]


def test_a_kernel_that_differs_from_the_one_by_rule_is_compared_with_one_without_a_schedule(tmp_path: Path) -> None:
    kernels, calls = judged_by(tmp_path, profile_2_rule_so=WRONG)
    for _ in range(2):
        assert kernels.profile(LARGE, tmp_path / "a.so", None, LEASE) == (1e-3,), "the rule was wrong"
    right = ["build", "ready 2.so", "profile 2.so"]
    assert calls == ["build_by_rule", "ready 2.rule.so", "profile 2.rule.so", *right, *right[1:]]


def test_kernels_that_are_compared_are_judged_the_same_way(tmp_path: Path) -> None:
    kernels, calls = judged_by(tmp_path, compare_2_rule_so=[(1e-3,), str(WRONG)], compare_2_so=[str(WRONG), (1e-3,)])
    files = [tmp_path / "a.so", tmp_path / "b.so"]
    assert kernels.compare(LARGE, files, None, LEASE) == [str(WRONG), (1e-3,)]
    assert calls[-1] == "compare 2.so"


def test_a_kernel_that_differs_from_both_is_wrong(tmp_path: Path) -> None:
    kernels, _ = judged_by(tmp_path, profile_2_rule_so=WRONG, profile_2_so=WRONG)
    with pytest.raises(Raised, match="differs from the reference"):
        kernels.profile(LARGE, tmp_path / "a.so", None, LEASE)


def test_the_kernel_by_rule_decides_if_the_one_without_a_schedule_is_too_slow(tmp_path: Path) -> None:
    kernels, calls = judged_by(tmp_path, profile_2_rule_so=WRONG, ready_2_so=TimedOut("late"))
    for _ in range(2):
        with pytest.raises(Raised, match="differs from the reference"):
            kernels.profile(LARGE, tmp_path / "a.so", None, LEASE)
    assert calls.count("ready 2.so") == 1, "it is not tried again"


def test_an_operator_whose_rule_cannot_be_built_has_a_reference_without_a_schedule(tmp_path: Path) -> None:
    kernels, calls = judged_by(tmp_path, build_by_rule=Died("LLVM crashed"))
    assert kernels.profile(LARGE, tmp_path / "a.so", None, LEASE) == (1e-3,)
    assert calls == ["build_by_rule", "build", "ready 2.so", "profile 2.so"]


class UnknownInstruction(FakeWorkers):
    """Kernels of candidates end with SIGILL; that by rule, too, if `rule_too`."""

    def __init__(self, rule_too: bool) -> None:
        super().__init__(None)
        self.rule_too = rule_too
        self.probes = 0

    def call(self, role: str, lease: object, function: str, *arguments: Any, **limits: object) -> str:
        if function == worker_messages.PROFILE:
            raise Died("the process ended with SIGILL", signal.SIGILL)
        return super().call(role, lease, function, *arguments, **limits)

    def once(self, lease: object, function: str, *arguments: Any, **_: object) -> None:
        assert function == worker_messages.READY
        self.probes += 1
        if self.rule_too:
            raise Died("the process ended with SIGILL", signal.SIGILL)


def with_unknown_instruction(folder: Path, workers: UnknownInstruction) -> KernelMeasurer:
    kernels = KernelMeasurer(cast(Workers, workers), folder, folder, '{"kind": "llvm", "mcpu": "znver4"}', Options())
    kernels.reference_file(TASK).touch()
    return kernels


def test_sigill_of_the_kernel_by_rule_is_the_fault_of_the_target(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(targets, "of_this_machine", lambda: {"kind": "llvm", "mcpu": "znver3"})
    workers = UnknownInstruction(rule_too=True)
    kernels = with_unknown_instruction(tmp_path, workers)
    for _ in range(2):
        with pytest.raises(TargetUnfit, match=r"lacks an instruction.*--target '\{\"kind\": \"llvm\", \"mcpu\": \"zn"):
            kernels.profile(TASK, tmp_path / "a.so", None, LEASE)
    assert workers.probes == 1, "one kernel by rule decides"


def test_sigill_with_the_target_of_this_machine_names_an_older_one(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(targets, "of_this_machine", lambda: {"kind": "llvm", "mcpu": "znver4"})
    kernels = with_unknown_instruction(tmp_path, UnknownInstruction(rule_too=True))
    with pytest.raises(TargetUnfit, match="--target 'x86-64-v2'"):
        kernels.profile(TASK, tmp_path / "a.so", None, LEASE)


def test_sigill_of_one_candidate_is_its_own_fault(tmp_path: Path) -> None:
    workers = UnknownInstruction(rule_too=False)
    kernels = with_unknown_instruction(tmp_path, workers)
    for _ in range(2):
        with pytest.raises(Died):
            kernels.profile(TASK, tmp_path / "a.so", None, LEASE)
    assert workers.probes == 1


class GpuWorkers(FakeWorkers):
    """Remember the roles of calls, targets of builds, and places of measurements."""

    def __init__(self) -> None:
        super().__init__(None)
        self.told: list[tuple[str, Any]] = []

    def call(self, role: str, lease: object, function: str, *arguments: Any, **limits: object) -> str:
        self.told.append((role, arguments[1] if function == worker_messages.BUILD else arguments[-1]))
        return super().call(role, lease, function, *arguments, **limits)


def test_candidates_for_a_gpu_are_compared_with_a_kernel_for_any_cpu(tmp_path: Path) -> None:
    """Its lane and the GPU's machine may have different CPUs. Each GPU has a worker of its own."""
    workers, target = GpuWorkers(), json.dumps(targets.of_gpu(90))
    kernels = KernelMeasurer(cast(Workers, workers), tmp_path, tmp_path, target, Options())
    for number in range(2):
        lease = Lease("profile", (f"gpu-{number}",), (), 60.0, gpu=f"GPU-{number}")
        kernels.profile(TASK, tmp_path / "a.so", None, lease)
    build, *measured = workers.told
    assert json.loads(build[1]) == {"kind": "llvm"}
    assert measured == [(f"profile gpu-{number}", worker_messages.OwnGpu(f"GPU-{number}")) for number in (0, 0, 1, 1)]
    kernels.build(TASK, b"candidate", tmp_path / "b.so", LEASE)
    assert workers.told[-1] == ("build", target)


@pytest.mark.parametrize(
    ("kind", "failure"),
    [("KernelFault", Failure.RUN_CRASH), ("GpuMemoryFull", Failure.RUN_ERROR), ("WrongResult", Failure.WRONG_RESULT)],
)
def test_a_fault_of_a_kernel_on_a_gpu_is_a_crash(kind: str, failure: Failure) -> None:
    assert of_run(Raised(kind, "cudaErrorIllegalAddress"), 1.0) == (failure, "cudaErrorIllegalAddress")
