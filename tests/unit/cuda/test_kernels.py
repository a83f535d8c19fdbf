"""The fake GPU finds faults: of kernels that are wrong on a device, none runs without an error, in any order."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fakecuda

pytestmark = pytest.mark.skipif(fakecuda.missing() is not None, reason=str(fakecuda.missing()))
THREADS, BLOCKS = 64, 3
ORDERS = ("forward", "reverse", "random:7")
LAUNCH = Path(fakecuda.__file__).with_name("launch.py")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    machine = fakecuda.Machine(folder)
    source = folder / "kernels.cu"
    source.write_text(Path(__file__).with_name("kernels.cu").read_text())
    words = ["nvcc", "--cubin", "-O3", "-arch=sm_89", str(source), "-o", str(folder / "kernels.cubin")]
    subprocess.run(words, env=machine.environment(), check=True, timeout=120)
    return folder / "kernels.cubin"


@pytest.fixture
def run(compiled: Path, tmp_path: Path) -> Run:
    def run(kernel: str, dynamic: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        floats = BLOCKS * THREADS - ("within_its_page" in kernel)
        words = [kernel, str(BLOCKS), str(THREADS), str(floats), str(dynamic)]
        return subprocess.run(
            [sys.executable, str(LAUNCH), str(compiled), *words],
            env=fakecuda.Machine(tmp_path).environment(**more), capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip

    return run


def turned(at: int) -> float:
    return at // THREADS * THREADS + THREADS - 1 - at % THREADS


RIGHT: dict[str, Callable[[int], float]] = {
    "turned": turned,
    "dynamic": turned,
    "copied": turned,
    "equal_values": lambda at: 3.0,
    "sum_of_warp": lambda at: float(sum(range(at, at + 32))) if at % 32 == 0 else 0.0,
    "warp_barrier": lambda at: at ^ 1,
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kernel", RIGHT)
def test_right_kernels_are_right(run: Run, kernel: str, order: str) -> None:
    done = run(kernel, 4 * THREADS if kernel == "dynamic" else 0, CUDA_FAKE_ORDER=order)
    numbers, errors = done.stdout.splitlines()
    assert errors == "CUDA_SUCCESS CUDA_SUCCESS", done.stderr
    assert [float(number) for number in numbers.split()] == [RIGHT[kernel](at) for at in range(BLOCKS * THREADS)]


WRONG = {
    "without_barrier": ("LAUNCH_FAILED", "race: no barrier"),
    "overwritten_while_read": ("LAUNCH_FAILED", "race: no barrier"),
    "other_values": ("LAUNCH_FAILED", "race: no barrier"),
    "warp_barrier_for_two_warps": ("LAUNCH_FAILED", "race: no barrier"),
    "sum_over_blocks": ("LAUNCH_FAILED", "race: no barrier"),
    "read_from_another_block": ("LAUNCH_FAILED", "one by another block"),
    "copy_not_waited_for": ("LAUNCH_FAILED", "nothing has waited for an asynchronous copy"),
    "copy_waited_for_by_one_thread": ("LAUNCH_FAILED", "race: "),
    "behind_the_dynamic_part": ("ILLEGAL_ADDRESS", "outside of the arrays in shared memory"),
    "behind_a_shared_array": ("ILLEGAL_ADDRESS", "outside of the arrays in shared memory"),
    "behind_a_buffer_within_its_page": ("ILLEGAL_ADDRESS", "outside of a buffer of 764 bytes, at byte 764"),
    "behind_the_buffer": ("ILLEGAL_ADDRESS", "memory that is not the device's"),
    "before_the_buffer": ("ILLEGAL_ADDRESS", "memory that is not the device's"),
    "behind_a_local_array": ("MISALIGNED_ADDRESS", "outside of a local array"),
    "misaligned": ("MISALIGNED_ADDRESS", "misaligned address"),
    "barrier_for_some": ("LAUNCH_FAILED", "some threads of a block ended while others wait"),
    "two_barriers": ("LAUNCH_FAILED", "threads of a block wait at different __syncthreads()"),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kernel", WRONG)
def test_wrong_kernels_end_with_an_error(run: Run, kernel: str, order: str) -> None:
    done = run(kernel, 4 * THREADS if kernel == "behind_the_dynamic_part" else 0, CUDA_FAKE_ORDER=order)
    error, told = WRONG[kernel]
    assert done.stdout.splitlines()[-1] == f"CUDA_SUCCESS CUDA_ERROR_{error}"
    assert told in done.stderr


def test_what_is_not_initialised_is_no_number(run: Run) -> None:
    numbers = run("not_initialised").stdout.splitlines()[0].split()
    assert [at for at, number in enumerate(numbers) if number == "nan"] == [0, THREADS, 2 * THREADS]


def test_without_the_check_for_races_the_order_of_threads_shows_them(run: Run) -> None:
    orders = ("forward", "reverse")
    forward, reverse = (run("without_barrier", CUDA_FAKE_ORDER=order, CUDA_FAKE_RACES="unchecked") for order in orders)
    assert forward.stdout.splitlines()[1] == reverse.stdout.splitlines()[1] == "CUDA_SUCCESS CUDA_SUCCESS"
    assert forward.stdout != reverse.stdout


def test_a_launch_that_a_device_would_refuse(run: Run) -> None:
    assert "CUDA_ERROR_INVALID_VALUE" in run("dynamic", 60_000).stdout


@pytest.mark.parametrize("device", ["Another generation:90:8", "An older one:86:8"])
def test_code_for_another_architecture_is_refused(run: Run, tmp_path: Path, device: str) -> None:
    fakecuda.Machine(tmp_path, device)
    assert run("turned").stdout.strip() == "CUDA_ERROR_NO_BINARY_FOR_GPU"


def test_a_cubin_of_a_real_compiler_is_refused(compiled: Path, tmp_path: Path) -> None:
    image = bytearray(compiled.read_bytes())
    image[18:20] = (190).to_bytes(2, "little")  # EM_CUDA
    (tmp_path / "real.cubin").write_bytes(image)
    done = subprocess.run(
        [sys.executable, str(LAUNCH), str(tmp_path / "real.cubin"), "turned", "1", "64", "64"],
        env=fakecuda.Machine(tmp_path).environment(), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "CUDA_ERROR_INVALID_IMAGE"


FAULTS = {
    "illegal_address": "CUDA_SUCCESS CUDA_ERROR_ILLEGAL_ADDRESS", "ecc": "CUDA_SUCCESS CUDA_ERROR_ECC_UNCORRECTABLE",
    "lost": "CUDA_SUCCESS CUDA_ERROR_DEVICE_UNAVAILABLE", "launch_failed": "CUDA_SUCCESS CUDA_ERROR_LAUNCH_FAILED",
    "out_of_resources": "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES CUDA_SUCCESS",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_met_once(run: Run, tmp_path: Path, fault: str) -> None:
    machine = fakecuda.Machine(tmp_path)
    machine.fail(1, fault)
    assert run("turned").stdout.splitlines()[1] == "CUDA_SUCCESS CUDA_SUCCESS"  # on device 0
    machine.fail(0, fault)
    assert run("turned").stdout.splitlines()[1] == FAULTS[fault]
    assert run("turned").stdout.splitlines()[1] == "CUDA_SUCCESS CUDA_SUCCESS"
    machine.fail(0, fault, "always")
    assert [run("turned").stdout.splitlines()[1] for _ in range(2)] == [FAULTS[fault]] * 2


def test_events_may_count_work(compiled: Path, tmp_path: Path) -> None:
    program = """
import ctypes, sys
folder, file = sys.argv[1:]
sys.path.insert(0, folder)
import launch
runtime = ctypes.CDLL("libcudart.so.13")
def passed():
    start, stop, ms = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float()
    for event in (start, stop):
        runtime.cudaEventCreate(ctypes.byref(event))
    runtime.cudaEventRecord(start, None)
    launch.main(file, "turned", "1", "64", "64")
    runtime.cudaEventRecord(stop, None)
    runtime.cudaEventElapsedTime(ctypes.byref(ms), start, stop)
    return ms.value
print([round(1e6 * passed()) for _ in range(2)])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(LAUNCH.parent), str(compiled)], capture_output=True, text=True, timeout=60,
        env=fakecuda.Machine(tmp_path).environment(CUDA_FAKE_CLOCK="work"), check=True,
    )  # fmt: skip
    device, shared = 4, 1
    nanoseconds = 64 * (2 * device + 2 * shared)
    assert done.stdout.splitlines()[-1] == f"[{nanoseconds}, {nanoseconds}]"
