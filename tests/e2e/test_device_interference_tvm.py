"""A whole job with TVM: only measurements run on the device, and finals decide."""

import asyncio
import os
from collections import Counter
from pathlib import Path

import onnx
import psutil
import pytest

from autosched.api.connection import Daemon
from autosched.model import JobSpec, JobState, Purpose, Record
from autosched.protocol import JobView
from autosched.records import record_selection
from integration.lab import Lab, lab
from nets import small_net

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

CORES = sorted(os.sched_getaffinity(0))
HOST, DEVICE = CORES[0], CORES[-1]
SETTINGS = f'[resources]\nhost_cores = [{HOST}]\n[[device]]\nname = "cpu0"\nkind = "cpu"\ncores = [{DEVICE}]\n'
QUICK: dict[str, bool | int | float | str] = {
    "population_size": 16, "init_min_unmeasured": 4, "genetic_num_iters": 1, "batch": 4, "min_repeat_ms": 2.0,
    "num_warmup_samples": 4,
}  # fmt: skip
LOOK_S = 0.05
TAIL_TICKS = 3
"""CPU ticks of a worker that may still clean up after its step."""


def spent(there: Lab) -> Counter[tuple[str, int]]:
    """Returns the CPU ticks of each thread of the job that may run on the device's core; warm workers should be
    asleep."""
    found: Counter[tuple[str, int]] = Counter()
    for process in psutil.process_iter():
        try:
            if not process.environ().get("AUTOSCHED_JOB_DIR", "").startswith(str(there.folder)):
                continue
            what = " ".join(process.cmdline()[:4])
            for thread in map(int, os.listdir(f"/proc/{process.pid}/task")):
                if DEVICE in os.sched_getaffinity(thread):
                    fields = Path(f"/proc/{process.pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()
                    found[what, thread] = int(fields[11]) + int(fields[12])
        except (psutil.Error, OSError):
            continue
    return found


async def device_is_free(daemon: Daemon) -> tuple[bool, str, int]:
    """Returns whether no step holds the device, the stage that holds the lane, and the number of steps so far."""
    units = {unit.unit: unit for unit in await daemon.units()}
    return units["cpu0"].state == "free", units["host/0"].stage, (await daemon.info()).steps_started


async def tune(there: Lab, model: Path) -> tuple[JobView, list[Record], Counter[str], list[str]]:
    """Tunes, and repeatedly samples the job's threads on the device while no step holds it."""
    daemon = await Daemon.connect(there.address)
    sha256 = await daemon.upload(model)
    spec = JobSpec(name="net", model=sha256, backend="ansor", trials=12, options=QUICK)
    job = (await daemon.submit(spec)).job
    looks, strayed = Counter[str](), list[str]()
    while not JobState((view := await daemon.job(job)).state).ended:
        then, before = await device_is_free(daemon), spent(there)
        await asyncio.sleep(LOOK_S)
        used = spent(there) - before
        if then[0] and then == await device_is_free(daemon):  # no step began meanwhile
            looks[then[1]] += 1
            strayed += [f"{then[1]}: {what}" for (what, _), ticks in used.items() if ticks > TAIL_TICKS]
    records = await daemon.records(job)
    daemon.close()
    return view, records, looks, strayed


@pytest.mark.skipif(len(CORES) < 2, reason="a device of its own needs a second core")
def test_a_job_stays_off_the_device_and_its_finals_choose_the_schedules(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    onnx.save(small_net(), model)
    with lab(tmp_path, SETTINGS) as there:
        view, records, looks, strayed = asyncio.run(tune(there, model))
    assert view.state == "done", view.failure
    assert {"import", "build"} <= looks.keys()
    assert strayed == []
    for task in view.tasks:
        own = [record for record in records if record.task == task.task]
        finals = record_selection.finals(own)
        assert finals[-1].purpose is Purpose.DEFAULT
        assert finals[-1].best_s is not None
        assert task.best_s == min(record.best_s for record in finals if record.best_s is not None)
        assert {record.candidate for record in finals[:-1]} <= {record.candidate for record in own if record.latency_s}
