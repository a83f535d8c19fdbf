"""Faults of the surroundings under many jobs, one after the other: no job ends for a reason that is not its own.

`HOSTILE_FAULTS=200 pytest -rP tests/hostile/test_many_faults.py` plays two hundred under twenty jobs (five minutes).
"""

import asyncio
import contextlib
import os
import random
import resource
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from autosched.api.connection import Daemon
from autosched.model import JobSpec
from autosched.protocol import JobList, ListJobs
from deadlines import until
from hostile.other_users import needs_root
from integration.lab import BOARD, MODEL, Lab, lab
from processes import is_dead

FAULTS = int(os.environ.get("HOSTILE_FAULTS", "20"))
JOBS = min(20, FAULTS // 4)
SEED = int(os.environ.get("HOSTILE_SEED", "1"))
PLACES = 60
FAULT_S, PAUSE_S = (0.1, 0.5), (0.05, 0.3)
"""Bounds of the seconds of a fault, and between two faults."""
TRIAL_S = 0.05
DISK = "size=64m"
SETTINGS = f"{BOARD}[limits]\nconnections_max = {PLACES}\n"


@contextmanager
def few_files(process: int, chance: random.Random) -> Iterator[None]:
    """The process may open no more files than it has, or a few."""
    try:
        _, most = resource.prlimit(process, resource.RLIMIT_NOFILE)
        count = len(os.listdir(f"/proc/{process}/fd")) + chance.randrange(4)
        resource.prlimit(process, resource.RLIMIT_NOFILE, (count, most))
    except (ProcessLookupError, FileNotFoundError, PermissionError):  # a client that has ended
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process, resource.RLIMIT_NOFILE, (min(1_024, most), most))


@contextmanager
def full_disk(folder: Path, chance: random.Random) -> Iterator[None]:
    """The disk has nothing left, or a few kilobytes."""
    filler, found = folder / "filler", os.statvfs(folder)
    with contextlib.suppress(OSError), filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, found.f_bavail * found.f_bsize - chance.choice((0, 4_096, 65_536))))
    try:
        yield
    finally:
        filler.unlink(missing_ok=True)


@contextmanager
def no_places(there: Lab) -> Iterator[None]:
    """All places for connections are taken."""
    peers = []
    for _ in range(PLACES + 8):
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(5.0)
        with contextlib.suppress(OSError):
            peer.connect(f"{there.folder}/api.sock")
            peer.sendall(HELLO)
        peers.append(peer)
    try:
        yield
    finally:
        for peer in peers:
            peer.close()


def _hello() -> bytes:
    from autosched.protocol import PROTOCOL, Hello
    from autosched.wire.frames import Peer

    return Peer({}).request(Hello(protocol=PROTOCOL, software="test"))[1]


HELLO = _hello()


def client_of_any(there: Lab, jobs: list[int], chance: random.Random) -> int:
    """The process of a client that lives; that of the daemon if none does."""
    for job in chance.sample(jobs, len(jobs)):
        if clients := there.clients(job):
            return chance.choice(clients)
    return there.pid


async def submitted(daemon: Daemon, folder: Path, trials: int) -> list[int]:
    (folder / "model.onnx").write_bytes(MODEL)
    model = await daemon.upload(folder / "model.onnx")
    options = {"profile_s": TRIAL_S, "tasks": 2}
    spec = JobSpec(name="net", model=model, backend="mock", fresh=True, trials=trials, options=options)
    return [(await daemon.submit(spec)).job for _ in range(JOBS)]


@needs_root
def test_no_job_ends_for_a_fault_of_its_surroundings(tmp_path: Path) -> None:
    chance, disk = random.Random(SEED), tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", disk], check=True)
    try:
        with lab(disk, SETTINGS) as there:
            play(there, chance)
            there.end(signal.SIGTERM)
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


def play(there: Lab, chance: random.Random) -> None:
    """Plays all faults, and waits for the jobs."""
    trials = round(FAULTS * (sum(FAULT_S) + sum(PAUSE_S)) / 2 / TRIAL_S / JOBS) + 4
    jobs = there.ask(lambda daemon: submitted(daemon, there.folder, trials))
    there.wait(jobs[0], "trials", 1)
    faults: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
        "descriptors of the daemon": lambda: few_files(there.pid, chance),
        "descriptors of a client": lambda: few_files(client_of_any(there, jobs, chance), chance),
        "disk": lambda: full_disk(there.folder, chance),
        "places": lambda: no_places(there),
    }
    played: Counter[str] = Counter()
    for _ in range(FAULTS):
        name = chance.choice(list(faults))
        with faults[name]():
            time.sleep(chance.uniform(*FAULT_S))
        played[name] += 1
        time.sleep(chance.uniform(*PAUSE_S))
        assert not is_dead(there.pid), "the daemon has ended"

    def views() -> JobList:
        return asyncio.run(_listed(there))

    seen: list[int] = []

    def over() -> bool:
        found = views().jobs
        seen.append(sum(view.trials for view in found))
        return all(view.state in ("done", "failed", "cancelled") for view in found)

    while not over():  # as long as there is progress
        until(lambda: over() or seen[-1] > seen[0], "trials are made")
        seen.clear()
    found = views().jobs
    print(f"{FAULTS} faults ({dict(played)}) under {len(found)} jobs of {trials} trials, seed {SEED}:")
    print(Counter(view.state if view.failure is None else f"{view.state}: {view.failure.message}" for view in found))
    assert len(found) == JOBS
    assert [(view.state, view.failure, view.trials) for view in found] == [("done", None, trials)] * JOBS


async def _listed(there: Lab) -> JobList:
    async with there.connected() as daemon:
        return await daemon.link.call(ListJobs(limit=100), JobList)
