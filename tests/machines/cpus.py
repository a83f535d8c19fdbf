"""CPUs of other kinds, and CPUs that hide features which their name implies: a kernel by rule runs there and is right.

qemu runs the Python of this process on a model of a CPU. Each model is tried as it is and with features masked, as
hypervisors do. NumPy and ONNX Runtime need x86-64-v2, so no model has less.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from machines.case import PROJECT, Case, Failed, Impossible

MASKED = {
    "Westmere": "-aes,-pclmulqdq",
    "SandyBridge": "-avx",
    "Haswell": "-avx2",
    "Broadwell": "-fma,-bmi2,-adx",
    "Skylake-Client": "-avx2,-f16c",
    "Skylake-Server": "-avx,-bmi1",
    "EPYC": "-avx2,-fma,-sha-ni",
    "EPYC-Milan": "-avx,-bmi2",
    "Opteron_G5": "-avx,-f16c",
    "max": "-avx2,-movbe",
}
"""Features that are hidden, by the model's name."""
PROBE_MAX_S = 400.0
CHOOSES_KERNELS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Variables by which NumPy would use instructions of another CPU."""


def cases() -> list[Case]:
    """Returns two cases for each model."""
    models = [name for model, hidden in MASKED.items() for name in (model, f"{model},{hidden}")]
    return [Case(f"CPU {model}", lambda folder, model=model: _attempt(model, folder)) for model in models]  # type: ignore[misc]


def _attempt(model: str, folder: Path) -> str:
    qemu = shutil.which("qemu-x86_64")
    if qemu is None or platform.machine() != "x86_64":
        raise Impossible("needs qemu-x86_64 on an x86-64 machine: apt-get install qemu-user")
    environment = {name: value for name, value in os.environ.items() if name not in CHOOSES_KERNELS}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "TVM_NUM_THREADS": "1"}
    probe = PROJECT / "tests/machines/cpu_probe.py"
    done = subprocess.run(
        [qemu, "-cpu", model, sys.executable, "-P", str(probe)], cwd=folder, env=environment, capture_output=True,
        text=True, errors="replace", check=False, timeout=PROBE_MAX_S,
    )  # fmt: skip
    lines = done.stdout.strip().split("\n")
    if done.returncode or not lines[-1].startswith("{"):
        raise Failed(f"exit code {done.returncode}: {(done.stdout + done.stderr)[-500:]}")
    told = json.loads(lines[-1])
    if told["not_granted"] or not told["right"]:
        raise Failed(lines[-1])
    return f"{told['cpu']} {told['classes']}: kernel by rule is right, no feature asked that is not granted"
