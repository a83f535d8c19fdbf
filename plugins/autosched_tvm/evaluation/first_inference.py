"""Measures the start of engines: the time from the import of one to the first outputs, and the memory.

Each start is a process of its own, which has loaded NumPy and nothing else. The files are in the cache.

``python -m autosched_tvm.evaluation.first_inference ENGINE FILE INPUTS CORE,CORE...`` does it once, and prints JSON.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from autosched.backend import Start
from autosched.process import isolated_python
from autosched_tvm.evaluation import isolated_run
from autosched_tvm.tensors import Array

MODULE = "autosched_tvm.evaluation.first_inference"
OURS, ONNXRUNTIME = "autosched-runtime", "onnxruntime"
ROUNDS = 3
"""Number of processes of each engine; of their times the medians count."""
BUDGET_S = 6.0
"""Time after which no further process starts, in seconds."""


class NotMeasured(Exception):
    """The reason why the start of an engine was not measured."""


def measured(
    files: Mapping[str, Path], inputs: Mapping[str, Array], cores: Sequence[int], limit_s: float
) -> list[Start]:
    """Returns the start of each engine, measured in turns.

    `files`: a compiled network or an ONNX file by OURS or ONNXRUNTIME. `limit_s`: maximum time of one process in
    seconds. Raises NotMeasured.
    """
    found: dict[str, list[Start]] = {engine: [] for engine in files}
    until = time.monotonic() + BUDGET_S
    with tempfile.TemporaryDirectory(prefix="autosched-start-") as folder:
        given = Path(folder) / "inputs.npz"
        np.savez(given, **inputs)  # type: ignore[arg-type]
        for number in range(ROUNDS):
            for engine, file in files.items():
                if number == 0 or time.monotonic() < until:
                    words = engine, str(file), str(given), ",".join(map(str, cores))
                    found[engine].append(_in_a_process(words, limit_s))
    return [_median(starts) for starts in found.values()]


def _in_a_process(words: tuple[str, str, str, str], limit_s: float) -> Start:
    try:
        ended = subprocess.run(
            isolated_python.command(MODULE, *words), capture_output=True, text=True, check=False, timeout=limit_s,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"the start of {words[0]} was not measured: it took more than {limit_s:.0f} s") from None
    if ended.returncode:
        raise NotMeasured(f"the start of {words[0]} was not measured: {isolated_run.reason(ended)}")
    return msgspec.json.decode(ended.stdout, type=Start)


def _median(starts: Sequence[Start]) -> Start:
    return Start(
        starts[0].engine,
        load_s=statistics.median(one.load_s for one in starts),
        first_s=statistics.median(one.first_s for one in starts),
        peak_bytes=min(one.peak_bytes for one in starts),
    )


def _loaded(engine: str, file: str, threads: int) -> Callable[[dict[str, Array]], object]:
    """Imports an engine, and loads a network; returns its inference."""
    if engine == OURS:
        import autosched_runtime

        return autosched_runtime.load(file, threads=threads).run
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session: Any = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)


def main(engine: str, file: str, inputs: str, cores: str) -> None:
    """Measures a start in this process."""
    with np.load(inputs) as found:
        given = {name: found[name] for name in found.files}
    used = {int(core) for core in cores.split(",") if core}
    if used:
        os.sched_setaffinity(0, used)
    began = time.perf_counter()
    run = _loaded(engine, file, max(1, len(used)))
    loaded = time.perf_counter()
    run(given)
    ended = time.perf_counter()
    found = Start(engine, loaded - began, ended - loaded, _peak_bytes())
    sys.stdout.write(msgspec.json.encode(found).decode())


def _peak_bytes() -> int:
    """The peak resident memory of this process. (That of getrusage(2) counts the process before it, too.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))


if __name__ == "__main__":
    main(*sys.argv[1:])
