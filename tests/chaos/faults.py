"""Faults, one function each. Each returns figures about the fault, such as the time until its detection."""

import asyncio
import os
import random
import re
import resource
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import psutil

from autosched.errors import Refused
from autosched.model import JobId, JobState, StepId
from autosched.process.process_tree import resident_bytes
from autosched.protocol import FRAME_BYTES, PROTOCOL, Hello, ListSpans
from autosched.wire.frames import Peer
from chaos.clock import WallClock
from chaos.evidence import Life
from chaos.lab import POLL_S, Lab, User
from chaos.proxy import Cable
from processes import dies, is_dead

ROWS_S = 2.0
"""Maximum wait for further rows of the journal, in seconds."""
EARLY = 0.25
"""Share of daemons that are killed before they serve."""
PROGRAMS = 0.1
"""Share of daemons that are started as programs. The others are forks, since their imports are not tested."""
FIND_S = 60.0
CLOCK_HOURS = (1, -1, 9_000, -9_000, 0)
"""Successive differences of the wall clock from the true one, in hours."""
STEPS_EACH = 20
NOTICED_LATE_S = 3.0
"""Time in seconds after which a client that was wrongly taken for dead is lost."""


async def kill_daemon(lab: Lab, rng: random.Random, rows: float) -> None:
    """Kills the daemon at a random moment, even during its start, and starts another one.

    The moment is a number of journal rows with the mean `rows`, which is random on a busy machine, too: some clients
    have reconnected, or all of them, and steps have ended.
    """
    if rng.random() < EARLY:
        await asyncio.sleep(rng.uniform(0.0, 1.2) * min(lab.serving_s))
    else:
        (await lab.serving()).close()
        await _rows(lab, round(rng.expovariate(1 / rows)))
    assert lab.alive, f"the daemon ended by itself: {lab.last_words()}"
    await lab.end(signal.SIGKILL)
    lab.spawn(as_program=lab.only_programs or rng.random() < PROGRAMS)


async def _rows(lab: Lab, count: int) -> None:
    """Waits until the journal has a number of rows more."""
    until, most = time.monotonic() + ROWS_S, lab.rows() + count
    while True:
        if lab.rows() >= most or time.monotonic() > until:
            return
        await asyncio.sleep(POLL_S / 4)


async def kill_client(lab: Lab, user: User, rng: random.Random) -> float:
    """Kills a client during a step; returns the seconds until the daemon detects it."""
    async with user.connected() as daemon:
        life = await in_a_step(lab, user.active, rng)
        (job,) = (job for job, name in user.active.items() if name == life.steps[0].job)
        os.kill(life.pid, signal.SIGKILL)
        began_at = time.monotonic()
        async with asyncio.timeout(FIND_S):
            while True:
                if (await daemon.job(job)).state != JobState.RUNNING:
                    return time.monotonic() - began_at
                await asyncio.sleep(POLL_S / 4)


async def freeze_client(lab: Lab, user: User, rng: random.Random) -> float:
    """Stops a client (SIGSTOP) during a step; returns the seconds until the daemon has ended it."""
    life = await in_a_step(lab, user.active, rng)
    os.kill(life.pid, signal.SIGSTOP)
    began_at = time.monotonic()
    assert await asyncio.to_thread(dies, life.pid, FIND_S), "a frozen client was not noticed"
    return time.monotonic() - began_at


async def wake_client_late(lab: Lab, user: User, rng: random.Random, **work: Any) -> tuple[float, float]:
    """Stops the client of an external job until its job is given up, then continues it; its reports must not count.
    Returns the seconds until the daemon gave it no more steps, and until it gave it up."""
    async with user.connected() as daemon:
        job, token = await user.submit(daemon, external=True, **work)
        process = lab.host(job, token)
        life = await in_a_step(lab, {job: user.active[job]}, rng)
        os.kill(life.pid, signal.SIGSTOP)
        began_at, noticed_s = time.monotonic(), 0.0
        async for view in daemon.follow(job):
            if not noticed_s and "cut off" in view.reason:
                noticed_s = time.monotonic() - began_at
        given_up_s = time.monotonic() - began_at
        os.kill(life.pid, signal.SIGCONT)
        await asyncio.to_thread(process.wait, FIND_S)
        assert noticed_s, "a frozen client of a user was not noticed"
        return noticed_s, given_up_s


async def cut_cable(lab: Lab, user: User, rng: random.Random, **work: Any) -> float:
    """Drops the bytes of a client's connection without closing it; returns the seconds until the client is back."""
    cable = Cable(lab.folder)
    address = await cable.open()
    try:
        async with user.connected() as daemon:
            job, token = await user.submit(daemon, external=True, **work)
            process = lab.host(job, token, address)
            await in_a_step(lab, {job: user.active[job]}, rng)
            began_at = time.monotonic()
            cable.swallow()
            await asyncio.wait_for(cable.another(), 2 * FIND_S)
            noticed_s = time.monotonic() - began_at
            async for view in daemon.follow(job):
                last = view
        assert last.state == JobState.DONE, f"the job whose connection was cut is {last.state}: {last.failure}"
        await asyncio.to_thread(process.wait, FIND_S)
        return noticed_s
    finally:
        cable.close()


async def never_end(lab: Lab, user: User, **work: Any) -> float:
    """Runs a stage that never ends; returns the seconds until it is killed."""
    async with user.connected() as daemon:
        job, _ = await user.submit(daemon, **work, hang_stage="build")
        name = user.active[job]
        async for view in daemon.follow(job):
            if view.failed_steps:
                break
        step, *_ = (step for step in lab.clients(name)[-1].steps if step.stage == "build" and step.ended_at)
        await user.cancel(daemon, job)
        return (step.ended_at or 0.0) - step.began_at


async def never_read(lab: Lab) -> tuple[float, float]:
    """Sends requests without reading the answers; returns the seconds until the disconnection, and the growth of the
    daemon's memory in MiB."""
    peer, before, began_at = Peer({}, FRAME_BYTES), resident_bytes(lab.pid), time.monotonic()
    _, writer = await asyncio.open_unix_connection(lab.address.removeprefix("unix:"), limit=1)
    grown = 0
    try:
        writer.write(peer.request(Hello(protocol=PROTOCOL, software="a slow reader"))[1])
        async with asyncio.timeout(60.0):
            while True:
                writer.write(peer.request(ListSpans())[1])
                await writer.drain()
                await asyncio.sleep(POLL_S / 10)
                grown = max(grown, resident_bytes(lab.pid) - before)
    except ConnectionError:
        return time.monotonic() - began_at, grown / 2**20
    finally:
        writer.close()


async def fill_disk(lab: Lab, user: User, seconds: float, **work: Any) -> int:
    """Prevents the daemon's files from growing for a while; returns the number of refused submits. Then all works as
    before."""
    limits = resource.prlimit(lab.pid, resource.RLIMIT_FSIZE)
    async with user.connected() as daemon:
        resource.prlimit(lab.pid, resource.RLIMIT_FSIZE, (1, limits[1]))
        refused, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                await user.submit(daemon, **work)
            except Refused as error:
                refused += "free some space" in str(error)
            await asyncio.sleep(0.1)
        resource.prlimit(lab.pid, resource.RLIMIT_FSIZE, limits)
        while True:
            try:
                await user.submit(daemon, **work)
            except Refused:
                await asyncio.sleep(POLL_S)
            else:
                return refused


async def set_clock(lab: Lab, user: User, clock: WallClock) -> int:
    """Sets the wall clock of the daemon and its clients forward and back while steps run; returns the number of steps
    lost or failed meanwhile."""
    async with _counted(lab, user) as spoilt:
        for hours in CLOCK_HOURS:
            clock.set_ahead(hours * 3_600)
            await _rows(lab, STEPS_EACH)
            if hours == max(CLOCK_HOURS):
                await _dated(lab, datetime.now().astimezone() + timedelta(hours=hours - 1))
    return len(spoilt)


async def _dated(lab: Lab, least: datetime) -> None:
    """Waits until the log has a line with such a time, which shows that the clock was set."""
    async with asyncio.timeout(FIND_S):
        while True:
            if max(re.findall(r"^[\d-]{10} [\d:]{8}", lab.last_words(), re.MULTILINE), default="") > str(least):
                return
            await asyncio.sleep(POLL_S)


async def stand_still(lab: Lab, user: User, seconds: float) -> int:
    """Suspends the daemon and its processes, as when a virtual machine is moved; returns the number of steps that it
    costs."""
    async with _counted(lab, user) as spoilt:
        everybody = [psutil.Process(lab.pid), *psutil.Process(lab.pid).children(recursive=True)]
        for how in (psutil.Process.suspend, psutil.Process.resume):
            for process in everybody:
                with suppress(psutil.NoSuchProcess):
                    how(process)
            if how is psutil.Process.suspend:
                await asyncio.sleep(seconds)
        await _rows(lab, STEPS_EACH)
        await asyncio.sleep(NOTICED_LATE_S)
    return len(spoilt)


@asynccontextmanager
async def _counted(lab: Lab, user: User) -> AsyncIterator[set[tuple[JobId, StepId]]]:
    """Yields a set that finally holds the steps that failed in the block, except those of cancelled jobs."""
    before, spoilt = lab.spoilt(), set[tuple[JobId, StepId]]()
    yield spoilt
    (await lab.serving()).close()
    spoilt |= {(job, step) for job, step in lab.spoilt() - before if job not in user.cancelled}


async def restart_in_order(lab: Lab, user: User, rng: random.Random) -> float:
    """Ends the daemon with SIGTERM while steps run, and starts another, as for an upgrade; returns the seconds until
    its end."""
    await in_a_step(lab, user.active, rng)
    gone_s = await lab.end(signal.SIGTERM)
    await lab.start(as_program=True)
    return gone_s


async def in_a_step(lab: Lab, jobs: Mapping[JobId, str], rng: random.Random) -> Life:
    """Returns a client of one of these jobs that has just begun a step."""
    async with asyncio.timeout(FIND_S):
        while True:
            for name in rng.sample(sorted(jobs.values()), len(jobs)):
                life = next(reversed(lab.clients(name)), None)
                if life is not None and not is_dead(life.pid) and any(step.ended_at is None for step in life.steps):
                    return life
            await asyncio.sleep(POLL_S)
