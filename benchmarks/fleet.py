"""Several machines: what a second host brings, and what it costs to hand a unit over on it.

``python benchmarks/fleet.py`` prints one JSON object. Two machines are this one and a network namespace at the end of a
wire that delays each packet by a millisecond (tests/wires.py; needs root and Linux). Each has one lane and one device
without cores; stages of the mock backend sleep for the times that the thesis measured (table 5.2), shortened.

`two_hosts`: makespan of four equal jobs on one host over that on two. `one_job`: the same for one job whose builds and
measurements may move to the other host. `dask`: seconds from the kill of a Dask worker until the agent that it ran is
back, median of some. `idle`: seconds from the start of another program on a borrowed host until no process of a job is
left there. `devices`: seconds in which one task is measured, on one device over on two. `hand_over`: what lies between
two stages on a unit of the other host, of which the second had been waiting, less the two ways over the wire: by the
clocks of the clients.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import distributed
import psutil
from mock_load import all_at_work, in_ms, joined, read_log
from private import answering, private_daemon

from autosched.api.connection import Daemon
from autosched.daemon.access import keyring
from autosched.launch.job_folder import JOB_DIR
from autosched.model import JobSpec
from autosched.protocol import Done, HostList, HostView, ListHosts, Shutdown
from autosched.protocol.roles import Role
from autosched.wire import whereabouts

TESTS = Path(__file__).parents[1] / "tests"
sys.path.append(str(TESTS))
wires: Any = import_module("wires")
lent_host: Any = import_module("lent_host")

DELAY_S = 0.001
ROUND_S = {"build_s": 8.3, "profile_s": 39.5, "update_s": 44.0}
"""Mean times of the thesis, in seconds."""
JOBS, TASKS = 4, 3
ONE_JOB = {"tasks": 8, "build_s": 0.5, "profile_s": 0.5, "movable": True}
"""Options of a job whose stages move: half a second for each build and measurement of a round."""
ONE_JOB_TRIALS = 480
ONE_TASK = {"tasks": 1, "build_s": 0.1, "profile_s": 2.0, "divisible": True}
"""Options of a job of one task whose rounds of 8 candidates take one device two seconds."""
ONE_TASK_TRIALS = 160
MANY_JOBS = 24
"""Number of jobs of the part on hand-overs: enough that an idle client waits for each unit."""
KILLS = 5
RETURNS = 10
"""Number of returns of the owner of a lent host."""
DEADLINE_S = 300.0
ENDLESS = 1_000_000
"""Number of trials of a job that does not end during the measurement."""


def main() -> None:
    """Measures and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=240, help="of each job")
    parser.add_argument("--scale", type=float, default=0.01, help="of the thesis' times")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of the part on hand-overs")
    parser.add_argument("--parts", nargs="+", default=["two_hosts", "one_job", "dask", "idle", "devices", "hand_over"])
    args = parser.parse_args()
    if why := wires.possible():
        raise SystemExit(f"there are no namespaces here: {why}")
    told: dict[str, Any] = {"delay_ms": 1e3 * DELAY_S}
    if "two_hosts" in args.parts:
        times = {name: args.scale * seconds for name, seconds in ROUND_S.items()}
        told["two_hosts"] = ratio(JOBS, args.trials, times)
    if "one_job" in args.parts:
        told["one_job"] = ratio(1, ONE_JOB_TRIALS, ONE_JOB)
    if "dask" in args.parts:
        told["dask"] = dask()
    if "idle" in args.parts:
        told["idle"] = idle()
    if "devices" in args.parts:
        told["devices"] = devices()
    if "hand_over" in args.parts:
        told["hand_over"] = hand_over(args)
    print(json.dumps(told, indent=1))


@contextmanager
def machines(
    hosts: int, *options: str, kind: str = "cpu", policy: str = "predictive", boards: int = 1
) -> Iterator[Path]:
    """Yields the folder of a daemon with one or two hosts, its own among them. `options`: of the agent; `kind` and
    `boards`: kind and number of the devices of the daemon's own host."""
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="autosched-bench-")))
        _, key = keyring.make(folder / "state/keys", Role.AGENT, "lab2")
        settings = f"{lent_host.tls('0.0.0.0:0')}{lent_host.lane()}{lent_host.boards(boards, kind)}"
        settings += f'[scheduler]\npolicy = "{policy}"\n'
        process = held.enter_context(private_daemon(folder, settings))
        asyncio.run(until(folder, process, 0))
        if hosts > 1:
            wire = held.enter_context(wires.wire(1, DELAY_S))
            agent = lent_host.LentHost(folder / "lab2", "lab2", "")
            agent.reach(wire, tls_port(folder))
            agent.settings = f"{lent_host.lane(last=True)}{lent_host.boards(1)}"
            agent.start("--key", str(key), *options)
            held.callback(agent.gone)
            held.callback(agent.send, signal.SIGTERM)
            asyncio.run(until(folder, process, 1))
        yield folder


async def until(folder: Path, process: subprocess.Popen[bytes], hosts: int) -> None:
    """Waits until the daemon answers, and a number of hosts have joined."""
    daemon = await answering(f"unix:{folder}/api.sock", psutil.Process(process.pid))
    await until_hosts(daemon, lambda there: len(there) >= hosts)
    daemon.close()


async def until_hosts(
    daemon: Daemon, holds: Callable[[Sequence[HostView]], bool], within_s: float = DEADLINE_S
) -> None:
    """Waits until a condition on the listed hosts holds."""
    async with asyncio.timeout(within_s):
        while not holds((await daemon.link.call(ListHosts(), HostList)).hosts):  # noqa: ASYNC110 - it sends no news of hosts
            await asyncio.sleep(0.02)


def tls_port(folder: Path) -> str:
    """Returns the TLS port of a private daemon."""
    addresses = whereabouts.read(folder / "state").addresses
    return next(one for one in addresses if one.startswith("tls:")).rpartition(":")[2]


def ratio(jobs: int, trials: int, options: dict[str, Any]) -> dict[str, float]:
    """Returns the makespans of equal jobs on one host and on two, and their ratio."""
    one_s, two_s = (makespan(hosts, jobs, trials, options) for hosts in (1, 2))
    return {"one_s": one_s, "two_s": two_s, "ratio": one_s / two_s}


def makespan(hosts: int, jobs: int, trials: int, options: dict[str, Any]) -> float:
    """Returns the seconds from the first submission to the last end of equal jobs with a number of trials each."""
    with machines(hosts) as folder:

        async def measure() -> float:
            daemon = await Daemon.connect(f"unix:{folder}/api.sock")
            began_at = asyncio.get_running_loop().time()
            for job in [await submit(daemon, folder, number, trials, **options) for number in range(jobs)]:
                await ended(daemon, job)
            took_s = asyncio.get_running_loop().time() - began_at
            await daemon.link.call(Shutdown(), Done)
            daemon.close()
            return took_s

        return asyncio.run(measure())


def dask() -> dict[str, float]:
    """Kills the worker of an agent repeatedly."""
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = name
        _, key = keyring.make(folder / "state/keys", Role.AGENT, "dask")
        (folder / "agent.toml").write_text(f"{lent_host.lane()}{lent_host.boards(1)}")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, resources={"agent": 1},
            local_directory=str(folder / "dask"), silence_logs=logging.CRITICAL,
        ) as cluster:  # fmt: skip
            launcher = (
                f'[launcher]\nkind = "dask"\nscheduler = "{cluster.scheduler_address}"\nkey = "{key}"\nagents = 2\n'
                f'daemon = "unix:{folder}/api.sock"\nresource = "agent"\nsettings = "{folder}/agent.toml"\n'
            )
            with private_daemon(folder, f"{lent_host.lane()}{lent_host.boards(1)}{launcher}") as process:
                asyncio.run(until(folder, process, 2))
                took_s = sorted(asyncio.run(_killed(folder, cluster)) for _ in range(KILLS))
                asyncio.run(_shut_down(folder))
    return {"median_s": took_s[len(took_s) // 2], "max_s": took_s[-1], "kills": KILLS}


async def _shut_down(folder: Path) -> None:
    daemon = await Daemon.connect(f"unix:{folder}/api.sock")
    await daemon.link.call(Shutdown(), Done)
    daemon.close()


async def _killed(folder: Path, cluster: Any) -> float:
    """Kills one worker; returns the seconds until both agents lend their host again."""
    daemon, clock = await Daemon.connect(f"unix:{folder}/api.sock"), asyncio.get_running_loop().time

    async def here(count: int) -> None:
        await until_hosts(daemon, lambda there: sum(host.state == "here" for host in there) == count)

    def pids() -> dict[str, int]:
        with distributed.Client(cluster) as client:
            found: dict[str, int] = client.run(os.getpid)
            return found

    await here(2)
    os.kill(min((await asyncio.to_thread(pids)).values()), signal.SIGKILL)
    began_at = clock()
    await here(1)
    await here(2)
    daemon.close()
    return clock() - began_at


def idle() -> dict[str, float]:
    """Uses a lent machine repeatedly while jobs run there.

    The daemon is on the same machine, and does not belong to the agent: its policy is one that does not search.
    """
    with machines(2, "--idle", "1s", kind="board", policy="interleaved") as folder:
        jobs, took_s = folder / "lab2/state/jobs", []
        asyncio.run(_endless_jobs(folder))
        for _ in range(RETURNS):
            lent = asyncio.run(_all_lent(folder, jobs))
            began_at = time.monotonic()
            owner = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
            psutil.wait_procs(lent)
            took_s.append(time.monotonic() - began_at)
            if left := _processes(jobs):
                raise RuntimeError(f"still there: {left}")
            owner.kill()
            owner.wait()
        asyncio.run(_shut_down(folder))
    return {"median_s": sorted(took_s)[RETURNS // 2], "max_s": max(took_s), "returns": RETURNS}


def devices() -> dict[str, float]:
    """Measures the rounds of one task with one and two devices."""
    took_s = [measuring_s(boards) for boards in (1, 2)]
    return {"one_s": took_s[0], "two_s": took_s[1], "ratio": took_s[0] / took_s[1]}


def measuring_s(boards: int) -> float:
    """Returns the seconds in which at least one device measures."""
    with machines(1, boards=boards) as folder:

        async def measure() -> float:
            daemon = await Daemon.connect(f"unix:{folder}/api.sock")
            await ended(daemon, await submit(daemon, folder, 0, ONE_TASK_TRIALS, **ONE_TASK))
            spans = [span for span in await daemon.spans() if span.stage == "profile"]
            await daemon.link.call(Shutdown(), Done)
            daemon.close()
            whole_s = until_s = 0.0
            for span in sorted(spans, key=lambda span: span.started_at):
                if span.ended_at is not None and span.ended_at > until_s:
                    whole_s += span.ended_at - max(span.started_at, until_s)
                    until_s = span.ended_at
            return whole_s

        return asyncio.run(measure())


def _processes(jobs: Path) -> list[psutil.Process]:
    """Returns the processes of jobs that work in a folder."""
    return [
        one
        for one in psutil.process_iter(["environ"])
        if (one.info["environ"] or {}).get(JOB_DIR, "").startswith(str(jobs))
    ]


async def _endless_jobs(folder: Path) -> None:
    daemon = await Daemon.connect(f"unix:{folder}/api.sock")
    for number in range(JOBS):
        await submit(daemon, folder, number, ENDLESS, build_s=0.05, profile_s=0.05)
    daemon.close()


async def _all_lent(folder: Path, jobs: Path) -> list[psutil.Process]:
    """Waits until all jobs have processes on the lent host, and steps run there; returns the processes."""
    daemon = await Daemon.connect(f"unix:{folder}/api.sock")
    await until_hosts(daemon, lambda there: there[0].busy > 0 and len(_processes(jobs)) >= JOBS)
    daemon.close()
    return _processes(jobs)


def hand_over(args: argparse.Namespace) -> dict[str, float]:
    """Returns percentiles, in milliseconds, of the time between two stages on a unit of the other host, without the
    wire."""
    with machines(2) as folder:
        log = folder / "steps.log"

        async def measure() -> dict[str, float]:
            daemon = await Daemon.connect(f"unix:{folder}/api.sock")
            times = dict.fromkeys(ROUND_S, 0.02)
            for number in range(MANY_JOBS):
                await submit(daemon, folder, number, ENDLESS, log=str(log), **times)
            await all_at_work(daemon, MANY_JOBS)
            steady_at = (await daemon.job(1)).now
            await asyncio.sleep(args.seconds)
            spans = [span for span in await daemon.spans() if span.ended_at is not None]
            await daemon.link.call(Shutdown(), Done)
            daemon.close()
            ran = joined(spans, read_log(log))
            between: list[float] = []
            for unit in {one.span.units[0] for one in ran if one.span.units[0].endswith("@lab2")}:
                mine = [one for one in ran if one.span.units[0] == unit]
                between += [
                    after.logged.began_at - before.logged.ended_at - 2 * DELAY_S
                    for before, after in pairwise(mine)
                    if before.span.ended_at is not None and steady_at <= after.span.queued_at <= before.span.ended_at
                ]
            return in_ms(between)

        return asyncio.run(measure())


async def submit(daemon: Daemon, folder: Path, number: int, trials: int, **options: Any) -> int:
    """Submits one job of the mock backend."""
    path = folder / "model.onnx"
    path.write_bytes(b"the mock backend reads no model")
    spec = JobSpec(
        name=f"net{number}", model=await daemon.upload(path), backend="mock", fresh=True, trials=trials, seed=number,
        options={"tasks": TASKS, **options},
    )  # fmt: skip
    return (await daemon.submit(spec)).job


async def ended(daemon: Daemon, job: int) -> None:
    """Waits until the job is done."""
    async for view in daemon.follow(job, wait_s=5.0):
        if view.failure is not None:
            raise RuntimeError(f"job {job} failed: {view.failure.message}")


if __name__ == "__main__":
    main()
