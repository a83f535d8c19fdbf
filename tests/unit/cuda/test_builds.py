"""Builds for GPUs: on a machine without a driver, and run on one with a GPU and without a compiler."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import fakecuda

pytest.importorskip("tvm")
pytestmark = [
    pytest.mark.tvm,
    pytest.mark.skipif(fakecuda.missing() is not None, reason=str(fakecuda.missing())),
]
TESTS = Path(fakecuda.__file__).parents[1]
USES_NVCC = """
import shutil
from autosched_tvm.compile import cuda_compiler
cuda_compiler.compiler = lambda: cuda_compiler.Nvcc(shutil.which("nvcc"))
"""

LANE = """
import json, sys
import tvm
from autosched_tvm.compile import candidate_build, cuda_compiler, targets
from tvm import s_tir
from autosched_backend_autotvm import template_matching
from unit.autotvm.test_templates import drawn
from unit.cuda.tasks import convolution
folder, arch = sys.argv[1:]
target = json.dumps(targets.of_gpu(int(arch)))
task = convolution()
open(f"{folder}/task.json", "w").write(tvm.ir.save_json(task))
template = template_matching.find(task, tvm.target.Target(json.loads(target))).template
told = []
for number, config in enumerate(drawn(template, 2)):
    schedule = s_tir.Schedule(task, debug_mask=0, enable_check=False)
    template.apply(schedule, config)
    candidate = json.dumps(schedule.trace.as_json(), default=lambda number: number.value).encode()
    for again in range(2):
        told.append(candidate_build.build(f"{folder}/task.json", target, candidate, f"{folder}/{number}.so"))
print(json.dumps([cuda_compiler.compiler().name, *told]))
"""
WORKER = """
import json, sys
import tvm
from autosched_tvm.device import gpu_library
from fakecuda.candidates import Judge
folder = sys.argv[1]
judge = Judge(tvm.ir.load_json(open(f"{folder}/task.json").read()))
libraries = [gpu_library.load(__import__("pathlib").Path(f"{folder}/{number}.so")) for number in range(2)]
print(json.dumps([judge.error(library) for library in libraries]))
"""


class Lane(NamedTuple):
    """A machine, and a function that builds there for an architecture and returns the digests of what it built."""

    machine: fakecuda.Machine
    build: Callable[[str], list[str]]


@pytest.fixture(params=["nvrtc 13.0", "nvcc 13.0", "nvrtc 13.0, beside GPUs"])
def lane(request: pytest.FixtureRequest, tmp_path: Path) -> Lane:
    """Runs a program with one of the compilers, on a machine without a driver or on one with GPUs."""
    machine = fakecuda.Machine(tmp_path / "machine")
    machine.environment()
    libraries = tmp_path / "lib"
    libraries.mkdir()
    if request.param == "nvrtc 13.0":
        for library in ("libnvrtc.so.13", "libcuda.so.1"):  # the fake NVRTC needs the fake driver's code
            (libraries / library).symlink_to(fakecuda.BUILD / library)
    chosen = USES_NVCC if request.param == "nvcc 13.0" else ""
    more = {} if "beside" in request.param else {"LD_LIBRARY_PATH": str(libraries)}

    def build(arch: str) -> list[str]:
        done = machine.python("-c", chosen + LANE, str(tmp_path), arch, **more)
        assert done.returncode == 0, done.stderr
        compiler, *digests = json.loads(done.stdout)
        assert request.param.startswith(compiler)
        return digests

    return Lane(machine, build)


def test_what_a_lane_builds_runs_where_no_compiler_is(lane: Lane, tmp_path: Path) -> None:
    first, again, second, _ = lane.build("89")
    assert first == again != second, "equal code has equal digests"
    assert not [line for line in lane.machine.log() if line.startswith("opened")], "a lane never opens CUDA"
    ran = lane.machine.python("-c", WORKER, str(tmp_path), PATH="/usr/bin:/bin")
    assert ran.returncode == 0, ran.stderr
    assert max(json.loads(ran.stdout)) < 1e-4
    assert [line for line in lane.machine.log() if line.startswith("launch")]


def test_code_for_another_gpu_is_refused_when_it_is_called(lane: Lane, tmp_path: Path) -> None:
    lane.build("90")
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU" in lane.machine.python("-c", WORKER, str(tmp_path)).stderr


@pytest.mark.parametrize(
    ("kind", "arch"),
    [("templates", 75), ("templates", 120), ("cuda", 90), ("cuda-tensorcore", 75), ("cuda-tensorcore", 90)],
)
def test_nvidias_own_compiler_accepts_candidates(tmp_path: Path, kind: str, arch: int) -> None:
    pytest.importorskip("nvidia.cu13", reason="NVIDIA's compiler is not installed")
    program = """
import json, os, sys
os.environ["TVM_COMPILE_FORCE_FALLBACK"] = "1"
import tvm
from autosched_tvm.compile import cuda_compiler, lowering, targets
from fakecuda.candidates import sketches, templates
kind, arch = sys.argv[1:]
target = tvm.target.Target(targets.of_gpu(int(arch)))
chosen = templates(6, 1) if kind == "templates" else sketches(kind, 2, 1, int(arch))
for candidate in chosen:
    library = tvm.tirx.build(candidate.module, target=target, pipeline=lowering.install())
    cubin = cuda_compiler.compiler().cubin(str(library.imports[0].inspect_source("cuda")), f"sm_{arch}")
    print(cubin[:4] == bytes([127]) + b"ELF", int.from_bytes(cubin[18:20], "little"))
"""
    done = fakecuda.Machine(tmp_path).python("-c", program, kind, str(arch), LD_LIBRARY_PATH="", PATH="/nowhere")
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == {"True 190"}, "code for a GPU (EM_CUDA)"


def test_a_damaged_or_missing_code_is_told(tmp_path: Path) -> None:
    from autosched_tvm.compile import cuda_code

    library = tmp_path / "a.so"
    for content in (b"", b"short", 100 * b"x"):
        library.write_bytes(content)
        assert cuda_code.behind(library) == {}
    cuda_code.append_to(library, {"a": b"code", "b": b""})
    assert cuda_code.behind(library) == {"a": b"code", "b": b""}
    whole = library.read_bytes()
    library.write_bytes(whole[:100] + b"\xc1" + whole[101:])
    with pytest.raises(ValueError, match="is damaged"):
        cuda_code.behind(library)


def test_a_source_that_is_refused_is_told_in_the_compilers_words(tmp_path: Path) -> None:
    program = """
from autosched_tvm.compile import cuda_compiler
compiler = cuda_compiler.compiler()
for source, arch in (("int broken(", "sm_89"), ("", "sm_37"), (open(0).read(), "sm_89")):
    try:
        compiler.cubin(source, arch)
    except cuda_compiler.CudaRefused as refused:
        print(str(refused).replace(chr(10), " "))
"""
    much = 'extern "C" __global__ void main_kernel(float* x) {\n  __shared__ float s[20000];\n}\n'
    machine = fakecuda.Machine(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", program], input=much, env=machine.environment(), capture_output=True, text=True,
        timeout=120, check=True,
    )  # fmt: skip
    broken, old, shared = done.stdout.splitlines()
    assert "error" in broken
    assert "Unsupported gpu architecture" in old
    assert "uses too much shared data (0x13880 bytes, 0xc000 max)" in shared


def test_without_a_compiler_it_is_said_what_to_install(tmp_path: Path) -> None:
    program = """
from autosched import cuda_libraries
from autosched_tvm.compile import cuda_compiler
def missing(name):
    raise OSError(name)
cuda_libraries.load = missing
cuda_compiler.compiler()
"""
    done = fakecuda.Machine(tmp_path).python("-c", program, PATH="/nowhere")
    assert "no compiler for GPUs is here, neither NVRTC nor nvcc" in done.stderr
    assert "pip install 'autosched[cuda]'" in done.stderr
