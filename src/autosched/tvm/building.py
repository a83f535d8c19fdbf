"""Builds one candidate: its trace is replayed on the task's workload, lowered, compiled and linked. Runs in a worker."""

import json
import os
import shutil
import subprocess
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

UNTUNED = b""
"""The candidate that is the workload as it is, without any schedule."""


@lru_cache(maxsize=256)
def load_task(path: str) -> Any:
    """A task's workload."""
    return tvm.ir.load_json(Path(path).read_text())


@lru_cache(maxsize=8)
def load_target(text: str) -> Any:
    """A target from its JSON form."""
    return tvm.target.Target(json.loads(text))


def replay(workload: Any, candidate: bytes) -> Any:
    """The workload under a candidate's schedule."""
    schedule = tvm.s_tir.Schedule(workload, debug_mask=0, enable_check=False)
    tvm.s_tir.Trace.apply_json_to_schedule(json.loads(candidate), schedule)
    return schedule


def build(task: str, target: str, candidate: bytes, output: str) -> None:
    """Leave a shared library at `output`."""
    workload = load_task(task)
    module = replay(workload, candidate).mod if candidate else workload
    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    library = tvm.tirx.build(module, target=load_target(target))
    object_file = f"{output}.o"
    library.write_to_file(object_file)
    link(object_file, output)
    os.unlink(object_file)


def link(object_file: str, output: str) -> None:
    """Make a shared library of one object file."""
    command = [*linker(), "-shared", "-o", output, object_file]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()[-2_000:]}")


@cache
def linker() -> tuple[str, ...]:
    """The linker itself where it is found (a fifth of the compiler driver's time), else a compiler."""
    if (ld := shutil.which("ld")) and not os.environ.get("CXX"):
        return (ld,)
    for name in (os.environ.get("CXX"), os.environ.get("CC"), "g++", "gcc", "clang++", "clang", "cc", "c++"):
        if name and shutil.which(name):
            return (name, "-nostdlib")
    raise RuntimeError("no linker: neither ld nor a C compiler is on PATH. On Debian: apt-get install gcc libc6-dev")
