"""TVM, as it is, on a fake GPU: its candidates are right in each order of threads, and broken ones are refused."""

import json
from pathlib import Path

import pytest

import fakecuda

pytest.importorskip("tvm")
pytestmark = [
    pytest.mark.tvm,
    pytest.mark.skipif(fakecuda.missing() is not None, reason=str(fakecuda.missing())),
]
TESTS = Path(fakecuda.__file__).parents[1]
EACH = 3
"""Orders in which each candidate runs."""


@pytest.mark.parametrize(("kind", "count"), [("templates", 12), ("cuda", 5)])
def test_candidates_are_right(tmp_path: Path, kind: str, count: int) -> None:
    done = fakecuda.Machine(tmp_path).python("-m", "fakecuda.candidates", kind, "--count", str(count))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == {"kind": kind, "candidates": count, "right": EACH * count}


def test_broken_candidates_are_refused(tmp_path: Path) -> None:
    done = fakecuda.Machine(tmp_path).python("-m", "fakecuda.candidates", "broken", "--count", "6")
    assert done.returncode == 0, done.stdout + done.stderr
    refused = {name: number for name, number in json.loads(done.stdout).items() if name.startswith("refused")}
    assert set(refused) == {"refused (barriers)", "refused (bound)", "refused (wait)"}
    assert sum(refused.values()) == EACH * 6


PROGRAM = """
import numpy as np, os, sys, tvm
device = tvm.cuda(0)
def copied():
    return tvm.runtime.tensor(np.arange(4, dtype="float32"), device).numpy().sum()
def told(work):
    try:
        print(work())
    except Exception as error:
        print(str(error).strip().splitlines()[-1])
"""


def test_a_device_is_chosen_by_its_uuid(tmp_path: Path) -> None:
    machine = fakecuda.Machine(tmp_path, "First:89:8", "Second:90:8")
    program = PROGRAM + "told(copied)\nprint(device.device_name, device.compute_version)"
    done = machine.python("-c", program, CUDA_VISIBLE_DEVICES=machine.uuid(1))
    assert done.stdout.splitlines() == ["6.0", "Second 9.0"], done.stderr


def test_no_device_is_visible(tmp_path: Path) -> None:
    done = fakecuda.Machine(tmp_path).python("-c", PROGRAM + "told(copied)", CUDA_VISIBLE_DEVICES="")
    assert "no CUDA-capable device is detected" in done.stdout


def test_nothing_survives_a_fork(tmp_path: Path) -> None:
    program = PROGRAM + "told(copied)\nif os.fork() == 0:\n    told(copied)\n    os._exit(0)\nos.wait()"
    done = fakecuda.Machine(tmp_path).python("-u", "-c", program)
    assert done.stdout.splitlines()[0] == "6.0"
    assert "initialization error" in done.stdout.splitlines()[1]


def test_more_memory_than_the_device_has(tmp_path: Path) -> None:
    program = PROGRAM + 'told(lambda: tvm.runtime.empty((1 << 33,), "float32", device))\ntold(copied)'
    done = fakecuda.Machine(tmp_path).python("-c", program)
    assert "out of memory" in done.stdout.splitlines()[0]
    assert done.stdout.splitlines()[1] == "6.0"


def test_the_programs_own_code_may_not_touch_device_memory(tmp_path: Path) -> None:
    program = """
import ctypes
runtime = ctypes.CDLL("libcudart.so.13")
begin = ctypes.c_void_p()
assert runtime.cudaMalloc(ctypes.byref(begin), ctypes.c_size_t(64)) == 0
ctypes.memset(begin, 0, 64)
"""
    assert fakecuda.Machine(tmp_path).python("-c", program).returncode == -11


def test_code_for_another_kind_of_gpu_is_refused(tmp_path: Path) -> None:
    done = fakecuda.Machine(tmp_path, "Old:75:8").python("-m", "fakecuda.candidates", "templates", "--count", "1")
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU" in done.stdout
    assert done.returncode == 1


def test_what_nvml_says_of_a_device(tmp_path: Path) -> None:
    machine = fakecuda.Machine(tmp_path, "First:89:8", "Second:90:8")
    program = """
import ctypes, sys
uuid, health = sys.argv[1:]
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, number, text = ctypes.c_void_p(), ctypes.c_uint(), ctypes.create_string_buffer(96)
def told():
    error = nvml.nvmlDeviceGetTemperature(device, 0, ctypes.byref(number))
    return error or number.value
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetCount_v2(ctypes.byref(number))
print(number.value)
nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device))
nvml.nvmlDeviceGetName(device, text, 96)
print(text.value.decode(), told())
for lines in ("1 temperature 91", "0 temperature 50", "1 lost 1"):
    open(health, "w").write(lines)
    print(told())
"""
    done = machine.python("-c", program, machine.uuid(1), str(tmp_path / "health"))
    assert done.stdout.splitlines() == ["2", "Second 41", "91", "41", "15"]


def test_the_log_says_which_process_opened_cuda(tmp_path: Path) -> None:
    machine = fakecuda.Machine(tmp_path)
    assert machine.python("-c", "import tvm").returncode == 0
    assert not [line for line in machine.log() if line.startswith("opened")]
    assert machine.python("-c", PROGRAM + "told(copied)").returncode == 0
    assert [line for line in machine.log() if line.startswith("opened by process")]
