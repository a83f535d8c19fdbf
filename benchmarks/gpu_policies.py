"""The policies in the thesis' setting: equal jobs, one lane and four GPUs, its stage times.

``python benchmarks/gpu_policies.py`` prints one JSON object: the speed-up of each policy over `sequential`, in
simulated time and by a real daemon whose four GPUs are fake ones (tests/fakecuda). Stages of the mock backend sleep for
the times that the thesis measured (table 5.2), shortened. `bound`: the speed-up that no schedule can exceed, as long as
no two steps share a unit: under `synchronous` they do, which costs real work time, and nothing where stages sleep.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
from private import answering, private_daemon

from autosched.core.policies.policy import POLICIES
from autosched.model import JobSpec
from autosched.protocol import Done, Shutdown
from autosched.sim import thesis_workload

sys.path.append(str(Path(__file__).parents[1] / "tests"))
fakecuda: Any = import_module("fakecuda")

KIND, GPU, GPUS = "nvidia-h200", "NVIDIA H200:90:141", 4
BATCH = 8
"""Candidates of an iteration."""


def main() -> None:
    """Measures and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=20, help="of each job")
    parser.add_argument("--scale", type=float, default=0.01, help="of the thesis' times")
    args = parser.parse_args()
    table = thesis_workload.table(args.jobs, args.iterations, lanes=1, devices=GPUS)
    measured_s = {policy: makespan_s(policy, args.jobs, args.iterations, args.scale) for policy in POLICIES}
    told = {
        "bound": table.bound,
        "simulated": {row.policy: row.speedup for row in table.rows},
        "measured": {policy: measured_s["sequential"] / took_s for policy, took_s in measured_s.items()},
        "measured_s": measured_s,
    }
    print(json.dumps(told, indent=1))


def makespan_s(policy: str, jobs: int, iterations: int, scale: float) -> float:
    """Returns the seconds from the first begin of a step to the last end of one."""
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as name:
        folder = Path(name)
        machine = fakecuda.Machine(folder / "machine", *[GPU] * GPUS)
        os.environ.update(machine.environment())
        lines = (f'[[device]]\nname = "gpu{n}"\nkind = "{KIND}"\ncuda = "{machine.uuid(n)}"\n' for n in range(GPUS))
        settings = (
            f'[resources]\nlanes = 1\n[scheduler]\npolicy = "{policy}"\nallow_interference = true\n{"".join(lines)}'
        )
        with private_daemon(folder, settings) as process:
            return asyncio.run(_run(folder, process.pid, jobs, iterations, scale))


async def _run(folder: Path, pid: int, jobs: int, iterations: int, scale: float) -> float:
    daemon = await answering(f"unix:{folder}/api.sock", psutil.Process(pid))
    model = folder / "model.onnx"
    model.write_bytes(b"any bytes: the mock backend reads no model")
    sha256 = await daemon.upload(model)
    times = {f"{work.stage}_s": scale * work.duration_s for work in thesis_workload.ROUND}
    numbers = []
    for seed in range(jobs):
        options: dict[str, bool | int | float | str] = {"tasks": 1, "spread": 0.0, **times}
        spec = JobSpec(
            name="net", model=sha256, backend="mock", target=KIND, trials=BATCH * iterations, seed=seed, fresh=True,
            options=options,
        )  # fmt: skip
        numbers.append((await daemon.submit(spec)).job)
    for job in numbers:
        async for _ in daemon.follow(job):
            pass
    spans = [span for span in await daemon.spans() if span.stage in ("build", "profile", "update") and span.ended_at]
    await daemon.link.call(Shutdown(), Done)
    daemon.close()
    return max(span.ended_at or 0.0 for span in spans) - min(span.started_at for span in spans)


if __name__ == "__main__":
    main()
