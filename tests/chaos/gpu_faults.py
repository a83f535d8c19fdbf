"""Jobs on two fake GPUs while processes die and the GPUs fail: kernels, memory, devices, the driver."""

import asyncio
import json
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import onnx
import psutil

import fakecuda
import nets
from autosched.backend import EVALUATION
from autosched.errors import DaemonUnreachable
from autosched.gpus import PROBE
from autosched.model import JobState
from autosched.protocol import JobList, ListJobs
from chaos import evidence, faults
from chaos.lab import Lab, User

GPU = "NVIDIA H200:90:141"
KIND = "nvidia-h200"
JOBS = 3
"""Number of jobs at once, each of another network."""
TRIALS, RUN_TIMEOUT_S = 24, 5.0
PAUSE_S = 3.0
"""Mean seconds between two faults."""
LOST_S = 3.0
"""Seconds for which a GPU is lost."""
KINDS = (
    "daemon", "client", "worker", "child", "watch", "illegal_address", "launch_failed", "misaligned",
    "out_of_resources", "ecc", "lost", "unknown", "crash", "hang", "gone",
)  # fmt: skip
"""Processes that are killed (a worker has opened a GPU, a child is any other process of a client); errors of CUDA at a
launch; "gone": the driver says that the GPU is lost, for some seconds."""
SETTINGS = "[guard]\nquarantine_s = 1.0\n[resources]\nlanes = 2\n" + "".join(
    f'[[device]]\nname = "gpu{number}"\nkind = "{KIND}"\ncuda = "{fakecuda.Machine.uuid(number)}"\n'
    for number in range(2)
)
"""Two lanes, and the GPUs as the only devices."""


def networks(folder: Path) -> list[Path]:
    """Writes the networks of the jobs."""
    made = {"squeezenet": nets.squeezenet(), "transformer": nets.transformer(), "quantised": nets.quantised()}
    for name, network in made.items():
        onnx.save(network, folder / f"{name}.onnx")
    return [folder / f"{name}.onnx" for name in made]


async def kills(folder: Path, count: int, rng: random.Random, rest_s: float) -> dict[str, Any]:
    """Causes a number of faults while jobs run; returns figures, and violations of outputs and of exclusive use."""
    machine = fakecuda.Machine(folder / "machine", GPU, GPU)
    lab = Lab(folder, boards=0, environment=machine.environment(CUDA_FAKE_RACES="unchecked"), settings=SETTINGS)
    lab.only_programs = True
    user, made = User(lab, rng), Counter[str]()
    wanted = [KINDS[number % len(KINDS)] for number in range(count)]
    rng.shuffle(wanted)
    try:
        await lab.start(as_program=True)
        async with user.connected() as daemon:
            models = [await daemon.upload(path) for path in networks(folder)]
        busy = asyncio.ensure_future(_keep_busy(user, models))
        while not opened(machine):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        for kind in wanted:
            made[kind] += await _fault(kind, lab, user, machine, rng)
            await asyncio.sleep(rng.expovariate(1 / PAUSE_S))
        busy.cancel()
        with suppress(asyncio.CancelledError):
            await busy
        machine.health()
        for path in machine.folder.glob("fault-*"):
            path.unlink()
        await user.rest(rest_s)
        broken = [problem async for problem in _wrong_results(user)]
    finally:
        await lab.end()
        lab.clean()
    broken += [f"two processes on a GPU: {line}" for line in machine.log() if line.startswith("overlap")]
    parents = {line.split()[-1] for line in machine.log() if line.startswith("opened")}
    others = {*map(str, lab.pids), *parents} & opened(machine)
    broken += [f"a daemon or a fork server has opened a GPU: process {pid}" for pid in others]
    return {"kills": count, **{f"{kind}_faults": made[kind] for kind in KINDS}, "broken": broken}


async def _keep_busy(user: User, models: list[str]) -> None:
    """Keeps a job of each network active."""
    number = 0
    while True:
        async with user.connected() as daemon:
            with suppress(DaemonUnreachable):
                while True:
                    await user.look(daemon)
                    while len(user.active) < JOBS:
                        words = {"batch": 4, "min_repeat_ms": 0.0, "repeat": 1, "run_timeout_s": RUN_TIMEOUT_S}
                        model = models[number % len(models)]
                        await user.submit(daemon, lets="autotvm", target=KIND, trials=TRIALS, model=model, **words)
                        number += 1
                    await asyncio.sleep(0.2)


async def _fault(kind: str, lab: Lab, user: User, machine: fakecuda.Machine, rng: random.Random) -> bool:
    """Causes one fault; returns whether it took effect."""
    device = rng.randrange(2)
    match kind:
        case "daemon":
            await faults.kill_daemon(lab, rng, 5.0)
            (await lab.serving()).close()
        case "client":
            await faults.kill_client(lab, user, rng)
        case "worker":
            return _killed([pid for pid in map(int, opened(machine)) if psutil.pid_exists(pid)], rng)
        case "child":
            return _killed(list(_children(lab, machine)), rng)
        case "watch":
            with suppress(psutil.Error):
                own = psutil.Process(lab.pid).children(recursive=True)
                return _killed([one.pid for one in own if PROBE in " ".join(one.cmdline())], rng)
            return False
        case "gone":
            machine.health(f"{device} lost 1")
            await asyncio.sleep(LOST_S)
            machine.health()
        case _:
            machine.fail(device, kind)
    return True


def opened(machine: fakecuda.Machine) -> set[str]:
    """Returns the processes that have opened CUDA."""
    return {line.split()[3].rstrip(",") for line in machine.log() if line.startswith("opened")}


def _children(lab: Lab, machine: fakecuda.Machine) -> Iterator[int]:
    """Yields the processes of clients, but for those that have opened a GPU."""
    known = opened(machine)
    for path in (lab.folder / evidence.LOGS).glob("*.log"):
        for life in lab.clients(path.stem)[-1:]:
            with suppress(psutil.Error):
                for child in psutil.Process(life.pid).children(recursive=True):
                    if str(child.pid) not in known:
                        yield child.pid


def _killed(pids: list[int], rng: random.Random) -> bool:
    """Kills one of some processes; returns whether there was one."""
    if not pids:
        return False
    with suppress(ProcessLookupError):
        os.kill(rng.choice(pids), signal.SIGKILL)
        return True
    return False


async def _wrong_results(user: User) -> AsyncIterator[str]:
    """Yields what is wrong with the results of the ended jobs."""
    async with user.connected() as daemon:
        for view in (await daemon.link.call(ListJobs(limit=500), JobList)).jobs:
            if view.state != JobState.DONE:
                yield f"job {view.job} ({view.name}) is {view.state}: {view.failure or view.reason}"
                continue
            with tempfile.TemporaryDirectory() as folder:
                found = next(one for one in await daemon.artifacts(view.job) if one.name == EVALUATION)
                told = json.loads((await daemon.download(found, Path(folder))).read_text())
            if not told["outputs_equal"] or not told["published"]:
                yield f"job {view.job}: its outputs differ by {told['max_abs_error']}, {told['notes']}"
