"""Candidates on a GPU: measured against a reference from the CPU; each fault is told as whose it is, and ends the
worker."""

import json
import shutil
import signal
from pathlib import Path
from typing import cast

import pytest

import fakecuda
from autosched.errors import DeviceLost
from autosched.process.forked_workers import Died, Raised, TimedOut, Worker, WorkerError
from autosched_tvm.device import gpu_faults
from autosched_tvm.evaluation.engine_benchmark import HANGS_S, EngineProcess
from unit.cuda.test_builds import LANE

pytest.importorskip("tvm")
pytestmark = [
    pytest.mark.tvm,
    pytest.mark.skipif(fakecuda.missing() is not None, reason=str(fakecuda.missing())),
]
MEASURING = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from autosched.process import forked_workers
from autosched.process.forked_workers import Workers
from autosched_tvm import worker_messages as messages
from autosched_tvm.compile import candidate_build, targets
import tvm
folder, uuid, words = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
task, reference = str(folder / "task.json"), str(folder / "reference.so")
candidate_build.build(task, '{"kind": "llvm", "num-cores": 1}', b"", reference)
forked_workers.prepare(messages.PRELOAD)
workers, lease = Workers(folder / "logs", recycle_after=100), SimpleNamespace(step=1, cores=())
gpu = messages.OwnGpu(uuid)
def call(function, *arguments):
    try:
        found = workers.call("profile", lease, function, task, reference, *arguments, gpu, timeout_s=120)
        print("fine", json.dumps(found), flush=True)
    except Exception as error:
        print(type(error).__name__, getattr(error, "kind", ""), str(error).replace(chr(10), " ")[:300], flush=True)
for word in words:
    if word == "ready":
        call(messages.READY)
    elif word.startswith("fail"):
        Path(folder, "machine", "fault-1").write_text(word.partition("=")[2])
    else:
        call(messages.PROFILE, str(folder / word), messages.MeasurementPlan(2, 0.0, None))
workers.kill()
"""


@pytest.fixture(scope="module")
def candidates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a task, and two candidates built for a GPU."""
    folder = tmp_path_factory.mktemp("candidates")
    assert fakecuda.Machine(folder / "lane").python("-c", LANE, str(folder), "89").returncode == 0
    return folder


@pytest.fixture
def built(candidates: Path, tmp_path: Path) -> fakecuda.Machine:
    """A machine with GPUs. The candidates are in the test's folder."""
    for path in candidates.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    return fakecuda.Machine(tmp_path / "machine")


def told(machine: fakecuda.Machine, folder: Path, *words: str, **more: str) -> list[str]:
    done = machine.python("-c", MEASURING, str(folder), machine.uuid(1), *words, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_candidates_are_measured_on_the_leased_gpu_alone(built: fakecuda.Machine, tmp_path: Path) -> None:
    ready, first, second = told(built, tmp_path, "ready", "0.so", "1.so", CUDA_FAKE_CLOCK="work")
    assert ready == "fine null"
    for said in (first, second):
        samples = json.loads(said.removeprefix("fine "))
        assert len(set(samples)) == 1 < len(samples), "events that count work are equal each time"
    launches = [line for line in built.log() if line.startswith("launch")]
    assert launches
    assert all(" device 1 " in line for line in launches)
    assert len({line.split()[3] for line in built.log() if line.startswith("opened")}) == 1, "one process"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("illegal_address", "Raised KernelFault cudaErrorIllegalAddress"),
        ("launch_failed", "Raised KernelFault cudaErrorLaunchFailure"),
        ("out_of_resources", "Raised KernelFault CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
        ("ecc", "DeviceLost  the GPU has failed: cudaErrorECCUncorrectable"),
        ("lost", "DeviceLost  the GPU has failed: cudaErrorDevicesUnavailable"),
        ("unknown", "DeviceLost  the GPU has failed: cudaErrorUnknown"),
        ("crash", "Died  "),
    ],
)
def test_a_fault_is_told_as_whose_it_is_and_the_next_worker_is_well(
    built: fakecuda.Machine, tmp_path: Path, fault: str, said: str
) -> None:
    ready, failed, fine = told(built, tmp_path, "ready", f"fail={fault}", "0.so", "1.so")
    assert ready == "fine null"
    assert failed.startswith(said)
    assert fine.startswith("fine ["), "another process measures the next one"
    assert len({line.split()[3] for line in built.log() if line.startswith("opened")}) == 2


def test_a_wrong_kernel_is_no_fault_of_the_gpu(built: fakecuda.Machine, tmp_path: Path) -> None:
    other = LANE.replace("convolution()", "convolution(relu=False)").replace("task.json", "other.json")
    assert built.python("-c", other, str(tmp_path), "89").returncode == 0
    failed, again = told(built, tmp_path, "0.so", "1.so")
    assert failed.startswith("Raised WrongResult output 2 differs from the reference kernel's by")
    assert again.startswith("Raised WrongResult")
    assert len({line.split()[3] for line in built.log() if line.startswith("opened")}) == 1, "the worker goes on"


def test_without_a_driver_the_device_is_said_to_be_lost(built: fakecuda.Machine, tmp_path: Path) -> None:
    (said,) = told(built, tmp_path, "ready", LD_LIBRARY_PATH="")
    assert said.startswith("DeviceLost  CUDA cannot be used here: libcuda.so.1")
    assert "autosched doctor --target cuda" in said


def test_a_gpu_that_is_not_there_is_lost(built: fakecuda.Machine, tmp_path: Path) -> None:
    (tmp_path / "machine" / "devices").write_text("One:89:8\n")
    (said,) = told(built, tmp_path, "ready")
    assert said.startswith("DeviceLost  the GPU has failed: cudaErrorNoDevice")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CUDA Runtime Error: cudaErrorIllegalAddress (700): an illegal memory access", gpu_faults.KernelFault),
        ("CUDAError: cuLaunchKernelEx failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", gpu_faults.KernelFault),
        ("CUDAError: CUDA_ERROR_INVALID_VALUE", gpu_faults.KernelFault),
        ("cudaErrorMisalignedAddress", gpu_faults.KernelFault),
        ("CUDA_ERROR_NO_BINARY_FOR_GPU", gpu_faults.KernelFault),
        ("cudaErrorMemoryAllocation (2): out of memory", gpu_faults.GpuMemoryFull),
        ("CUDA_ERROR_OUT_OF_MEMORY", gpu_faults.GpuMemoryFull),
        ("cudaErrorECCUncorrectable", gpu_faults.GpuLost),
        ("CUDA_ERROR_NVLINK_UNCORRECTABLE", gpu_faults.GpuLost),
        ("cudaErrorSomethingNew", gpu_faults.GpuLost),
    ],
)
def test_an_error_of_cuda_has_one_to_blame(text: str, kind: type[Exception]) -> None:
    found = gpu_faults.in_words(RuntimeError(text))
    assert type(found) is kind
    assert isinstance(found, DeviceLost) is (kind is gpu_faults.GpuLost)


def test_other_errors_stay_as_they_are() -> None:
    error = ValueError("the shape is 3x3")
    assert gpu_faults.in_words(error) is error


def test_the_line_with_the_name_of_an_error_is_told() -> None:
    """TVM quotes the launch around it, of which the last line is a bracket."""
    told = gpu_faults.in_words(RuntimeError("Check failed {\n CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: grid=(1,1,1)\n}"))
    assert str(told) == "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: grid=(1,1,1)"


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (Raised("KernelFault", "cudaErrorIllegalAddress: an illegal memory access"), True),
        (Raised("RuntimeError", "CUDA Runtime Error: cudaErrorLaunchFailure (719)"), True),
        (Died("the process ended with SIGABRT: what(): CUDA Runtime Error: cudaErrorMisalignedAddress (716)"), True),
        (Raised("GpuMemoryFull", "the GPU has too little memory: cudaErrorMemoryAllocation"), False),
        (Died("the process ended with SIGKILL", signal.SIGKILL), True),
        (TimedOut("no answer within 120 s"), True),
        (Died("the process ended with SIGSEGV", signal.SIGSEGV), False),
        (Raised("WrongResult", "output 0 differs"), False),
    ],
)
def test_a_network_whose_kernels_ran_alone_is_not_to_blame_for_an_error_of_cuda(error: WorkerError, lost: bool) -> None:
    assert isinstance(gpu_faults.of_network(error), DeviceLost) is lost


class Hanging:
    """A process of an engine that answers nothing."""

    def __init__(self) -> None:
        self.waited_s = 0.0

    def call(self, _function: str, *_: object, timeout_s: float) -> None:
        self.waited_s = timeout_s
        raise TimedOut("no answer")

    def thaw(self) -> None:
        pass

    freeze = thaw


@pytest.mark.parametrize(
    ("on_gpu", "left_s", "kind"), [(True, 1_800.0, DeviceLost), (True, 30.0, TimedOut), (False, 1_800.0, TimedOut)]
)
def test_a_network_that_hangs_on_a_gpu_costs_two_minutes(on_gpu: bool, left_s: float, kind: type[Exception]) -> None:
    worker = Hanging()
    engine = EngineProcess("tuned", cast(Worker, worker), lambda: left_s, on_gpu=on_gpu)
    with pytest.raises(kind):
        engine.sample(1)
    assert worker.waited_s == (HANGS_S if on_gpu and left_s > HANGS_S else left_s)
