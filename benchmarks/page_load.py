"""Cost of viewers: a daemon with 10,000 jobs of history and 200 active ones, and pages that watch it.

``python benchmarks/page_load.py`` prints one JSON object: how soon the page is painted in a headless Chromium, how much
is sent to it each second, how late the daemon's loop is while page, ``autosched top`` and ``autosched jobs`` look at it
and while none does, what ``top`` itself uses, what a viewer costs that stops reading, and what ``autosched jobs``
takes. ``--pictures DIR`` keeps what the page looked like;
``--seconds 0`` leaves the page out.
"""

import argparse
import asyncio
import fcntl
import json
import os
import pty
import random
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import browser
import psutil
import restart_cost

from autosched.api.connection import Daemon
from autosched.backend import Network
from autosched.daemon.access import keyring
from autosched.daemon.storage import database
from autosched.model import DeviceNote, Failure, JobLoad, JobSpec, Outcome, Record, Step, TaskInfo, TaskLoad
from autosched.protocol import (
    DAEMON_METHODS,
    PROTOCOL,
    AddRecord,
    AskLoad,
    Done,
    EndStep,
    Heartbeat,
    Hello,
    Method,
    PlanNetwork,
    StartStep,
    Welcome,
)
from autosched.protocol.roles import Role
from autosched.wire.keys import Key
from autosched.wire.link import Link

NETS = ("squeezenet", "resnet50", "centerface", "magika", "ppocr_det", "rnet", "inception_v2", "shufflenet")
STAGES = {"build": ("host", 1.0), "profile": ("device:cpu", 6.0), "update": ("host", 0.4)}
NEXT = {"build": "profile", "profile": "update", "update": "build"}
LISTINGS = (("jobs",), ("jobs", "--limit", "500"), ("devices",))
LISTED = 15
TASKS = 6
LOADS = 10
TOP_STARTS_S, LOOK_EVERY_S = 5.0, 2.0
SETTINGS = """
[daemon]
state_dir = "{folder}"
[scheduler]
policy = "{policy}"
[log]
level = "warning"
"""
DEVICE = '[[device]]\nname = "{name}"\nkind = "cpu"\n'
LAG = re.compile(r'autosched_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)')


class Job:
    """A scripted client: its stages take some time, and its latencies fall."""

    def __init__(self, number: int, unit_s: float) -> None:
        self._rng = random.Random(number)
        self._unit_s = unit_s
        self._trial = 0
        self._best = {task: self._rng.uniform(1e-4, 2e-3) for task in range(1, TASKS + 1)}
        self.link: Link | None = None
        self._work: set[asyncio.Task[None]] = set()

    async def run(self, address: str, daemon: Daemon, sha256: str) -> None:
        """Submits and attaches."""
        name = self._rng.choice(NETS)
        spec = JobSpec(name=name, model=sha256, external=True, trials=4_000, priority=self._rng.choice((0, 0, 0, 5)))
        submitted = await daemon.submit(spec)
        self.link = await Link.open(address, serves=DAEMON_METHODS, handler=self._handle)
        hello = Hello(protocol=PROTOCOL, software="page_load", role="client", job=submitted.job, token=submitted.token)
        await self.link.call(hello, Welcome)
        infos = tuple(
            TaskInfo(task=task, name=f"conv2d_{task}", workload=f"{task}", weight=1 + task % 3, flops=2e7 * task)
            for task in self._best
        )
        await self.link.call(PlanNetwork(network=Network(tasks=infos), trials=4_000), Done)
        self._keep(self._beat())

    def _keep(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _beat(self) -> None:
        while self.link is not None and not self.link.closed:
            self.link.notify(Heartbeat())
            await asyncio.sleep(5.0)

    async def _handle(self, method: Method) -> Any:
        if isinstance(method, AskLoad):
            return JobLoad(tasks=tuple(_wants(task, "build") for task in self._best))
        if isinstance(method, StartStep):
            self._keep(self._step(method.step, sentinel=method.sentinel))
        return Done()

    async def _step(self, step: Step, *, sentinel: bool) -> None:
        worked_s = self._unit_s * STAGES[step.stage][1] * self._rng.uniform(0.6, 1.4)
        await asyncio.sleep(worked_s)
        assert self.link is not None
        note = None
        if step.stage == "profile":
            for _ in range(4):
                self.link.notify(AddRecord(record=self._record(step)))
            pace = self._rng.gauss(1.0, 0.004)
            note = (
                DeviceNote(0.01 * pace, 0.008 * pace, 0.0, worked_s)
                if sentinel
                else DeviceNote(None, None, 0.0, worked_s)
            )
        load = JobLoad(tasks=(_wants(step.task, NEXT[step.stage]),))
        await self.link.call(EndStep(step=step.id, outcome=Outcome.DONE, load=load, worked_s=worked_s, note=note), Done)

    def _record(self, step: Step) -> Record:
        self._trial += 1
        failed = self._rng.random() < 0.06
        best = self._best[step.task] = self._best[step.task] * (1 - 0.12 * self._rng.random() ** 6)
        latency_s = () if failed else (best * self._rng.uniform(1.0, 1.5),)
        failure = Failure.BUILD_TIMEOUT if failed else None
        return Record(
            task=step.task, number=self._trial - 1, candidate=b"x", latency_s=latency_s, failure=failure,
            unit=step.units[0],
        )  # fmt: skip


def _wants(task: int, stage: str) -> TaskLoad:
    return TaskLoad(task=task, resources_next=(STAGES[stage][0],), stage_next=stage)


def main() -> None:
    """Prepares, starts, measures, prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=int, default=10_000)
    parser.add_argument("--active", type=int, default=200)
    parser.add_argument("--devices", type=int, default=6)
    parser.add_argument("--unit-s", type=float, default=0.03, help="how long a build takes")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds for which it is watched, and not watched")
    parser.add_argument("--policy", default="predictive")
    parser.add_argument("--pictures", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder:
        print(json.dumps(asyncio.run(measure(args, Path(folder))), indent=1))


async def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measures everything with one daemon."""
    if args.history:
        await restart_cost.make(database.database(folder), args.history, 12 * args.history)
    devices = "".join(DEVICE.format(name=f"cpu{number}") for number in range(args.devices))
    (folder / "settings.toml").write_text(SETTINGS.format(folder=folder, policy=args.policy) + devices)
    key, _ = keyring.make(folder / "keys", Role.OPERATOR)
    command = [sys.executable, "-m", "autosched", "serve", "-c", str(folder / "settings.toml")]
    if args.history:
        command.append("--accept-data-loss")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: ASYNC220
    try:
        address, url = await _there(folder, process)
        daemon = await Daemon.connect(address)
        (folder / "model.onnx").write_bytes(b"made up")
        sha256 = await daemon.upload(folder / "model.onnx")
        jobs = [Job(number, args.unit_s) for number in range(args.active)]
        for job in jobs:
            await job.run(address, daemon, sha256)
        found = {"history": args.history, "active": args.active, "devices": args.devices}
        found["listing"] = await asyncio.to_thread(_listed, address, psutil.Process(process.pid))
        return found | (await _watched(args, address, url, key, psutil.Process(process.pid)) if args.seconds else {})
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        sys.stderr.write((folder / "log").read_text()[-2_000:])


async def _there(folder: Path, process: "subprocess.Popen[bytes]") -> tuple[str, str]:
    where = folder / "daemon.json"
    async with asyncio.timeout(300):
        while not where.exists():
            assert process.poll() is None, (folder / "log").read_text()
            await asyncio.sleep(0.05)
    there = json.loads(where.read_text())
    return there["addresses"][0], there["page"]


def _listed(address: str, process: psutil.Process) -> dict[str, dict[str, float]]:
    """Returns wall and CPU seconds of listings, from start to end of their process, and the daemon's."""
    found = {}
    for words in LISTINGS:
        wall_s, cpu_s, served_s = [], [], _cpu_s(process)
        for _ in range(LISTED):
            began_at, before = time.monotonic(), os.times()
            command = [sys.executable, "-m", "autosched", "--host", address, *words]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            after = os.times()
            wall_s.append(time.monotonic() - began_at)
            used_s = after.children_user + after.children_system - before.children_user - before.children_system
            cpu_s.append(used_s)
        found[" ".join(words)] = {
            "wall_s": round(statistics.median(wall_s), 3),
            "worst_s": round(max(wall_s), 3),
            "cpu_s": round(statistics.median(cpu_s), 3),
            "daemon_cpu_s": round((_cpu_s(process) - served_s) / LISTED, 3),
        }
    return found


@contextmanager
def _top(address: str) -> Iterator[psutil.Process]:
    """Runs `autosched top` at a terminal of 120x40 that is read."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    command = [sys.executable, "-m", "autosched", "--host", address, "top"]
    environment = {**os.environ, "TERM": "xterm-256color"}
    viewer = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment, start_new_session=True)
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, os.read, ours, 65_536)
    try:
        yield psutil.Process(viewer.pid)
        assert viewer.poll() is None, "top has ended"
    finally:
        loop.remove_reader(ours)
        viewer.kill()
        viewer.wait()
        os.close(ours)
        os.close(its)


async def _looking(address: str) -> None:
    """Lists the jobs repeatedly, as a user would."""
    command = [sys.executable, "-m", "autosched", "--host", address, "jobs"]
    while True:
        await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
        await asyncio.sleep(LOOK_EVERY_S)


async def _watched(
    args: argparse.Namespace, address: str, url: str, key: Key, process: psutil.Process
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    headers = {"Authorization": f"Bearer {key.line()}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        await _metrics(session, url)  # from now on HTTP works
        before = await _metrics(session, url)
        used_s = _cpu_s(process)
        await asyncio.sleep(args.seconds)
        unwatched_s = _cpu_s(process) - used_s
        found["unwatched"] = _lag(before, await _metrics(session, url), args.seconds)
        with _top(address) as top:
            await asyncio.sleep(TOP_STARTS_S)
            before, looking = await _metrics(session, url), asyncio.ensure_future(_looking(address))
            used_s, top_used_s = _cpu_s(process), _cpu_s(top)
            sent, began_at = 0, time.monotonic()
            async with session.get(url + "api/feed") as stream:
                while time.monotonic() < began_at + args.seconds:
                    sent += len(await stream.content.readany())
            found["watching_cpu_share"] = round((_cpu_s(process) - used_s - unwatched_s) / args.seconds, 3)
            found["top_cpu_share"] = round((_cpu_s(top) - top_used_s) / args.seconds, 3)
            found["stream_kb_s"] = round(sent / 1e3 / (time.monotonic() - began_at), 1)
            found["watched"] = _lag(before, await _metrics(session, url), args.seconds)
            looking.cancel()
        used_s = _cpu_s(process)
        for _ in range(LOADS):
            for path in ("api/everything", "api/past"):
                async with session.get(url + path) as answer:
                    found[f"{path.rpartition('/')[2]}_kb"] = round(len(await answer.read()) / 1e3)
        found["load_cpu_ms_at_most"] = round(1e3 * (_cpu_s(process) - used_s) / LOADS)
    if browser.installed():
        found["painted_s"] = await _painted(address, url, args.pictures)
    found["stuck_viewer_mib"] = await _stuck(url, key, process)
    found["rss_mib"] = round(process.memory_info().rss / 2**20, 1)
    return found


def _cpu_s(process: psutil.Process) -> float:
    """Returns the daemon's CPU time, on which a busy machine has little effect."""
    times = process.cpu_times()
    return times.user + times.system


async def _metrics(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url + "metrics") as answer:
        return await answer.text()


def _lag(before: str, after: str, seconds: float) -> dict[str, float]:
    """Returns the smallest bound of 99 % of the loop's lags, and steps per second."""
    old, new = ({bound: float(count) for bound, count in LAG.findall(text)} for text in (before, after))
    counts = {float(bound.replace("+Inf", "inf")): new[bound] - old[bound] for bound in new}
    whole = max(counts.values())
    steps = [
        sum(float(n) for n in re.findall(r"autosched_steps_total\{[^}]*\} (\S+)", text)) for text in (before, after)
    ]
    return {
        "lag_p99_at_most_s": min(bound for bound, count in counts.items() if count >= 0.99 * whole),
        "lags": whole,
        "steps_per_s": round((steps[1] - steps[0]) / seconds, 1),
    }


async def _painted(address: str, url: str, pictures: Path | None) -> float:
    daemon = await Daemon.connect(address)
    async with browser.browsing() as page:
        await page.open(await daemon.page_link())
        daemon.close()
        await page.until("document.documentElement?.dataset.painted === 'yes'")
        await page.open(url)  # signed in
        await page.until("document.documentElement?.dataset.painted === 'yes'")
        took_ms: float = await page.ask("performance.getEntriesByName('painted')[0].startTime")
        if pictures is not None:
            pictures.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
            await _pictures(page, url, pictures)
        assert not page.complaints, page.complaints
    return round(took_ms / 1e3, 3)


async def _pictures(page: browser.Page, url: str, folder: Path) -> None:
    await asyncio.sleep(20)
    job = await page.ask(
        "[...document.querySelectorAll('#jobs tbody tr')].find(r => r.innerText.includes('ms'))"
        ".querySelector('a').pathname"
    )
    await page.picture(folder / "desktop.png")
    await page.picture(folder / "whole.png", whole=True)
    for name, path, words in (
        ("dark", "", {"dark": True}),
        ("phone", "", {"width": 390, "height": 844}),
        ("job", job.lstrip("/"), {}),
        ("job-dark-phone", job.lstrip("/"), {"dark": True, "width": 390, "height": 844}),
    ):
        await page.open(url + path, **words)
        await page.until("document.documentElement?.dataset.painted === 'yes'")
        await asyncio.sleep(4)
        await page.picture(folder / f"{name}.png", whole=True)


async def _stuck(url: str, key: Key, process: psutil.Process) -> float:
    """Returns the daemon's growth for a viewer that never reads."""
    place = urlsplit(url)
    before = process.memory_info().rss
    stuck = socket.socket()
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    stuck.connect((place.hostname, place.port))
    authorized = f"Authorization: Bearer {key.line()}"
    stuck.sendall(f"GET /api/feed HTTP/1.1\r\nHost: {place.netloc}\r\n{authorized}\r\n\r\n".encode())
    most = before
    for _ in range(100):
        await asyncio.sleep(0.1)
        most = max(most, process.memory_info().rss)
    stuck.close()
    return round((most - before) / 2**20, 2)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    main()
