"""1,000 clients on 20 hosts at work for one daemon, all of them real processes.

``python benchmarks/fleet_crowd.py`` prints one JSON object. Each host is a network namespace at the end of a wire that
delays each packet by a millisecond (tests/wires.py; needs root and Linux), with an agent, one lane, and 50 devices
without cores. Clients are those of the mock backend, whose stages sleep. A client takes some 22 MB of memory: a machine
that has too little for all of them is refused.

`start_s`: until all clients are at work. Then they work for a while: `steps_per_s`, and the daemon's processor time and
memory. At the end no step is lost, no trial was made twice, and nothing is left of the clients.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
from fleet import DELAY_S, lent_host, submit, tls_port, until, until_hosts, wires
from private import private_daemon

from autosched.api.connection import Daemon
from autosched.daemon.access import keyring
from autosched.launch.job_folder import kill_strays
from autosched.protocol import Done, HostList, JobList, ListHosts, ListJobs, Shutdown
from autosched.protocol.roles import Role

HOSTS, CLIENTS = 20, 1_000
CLIENT_BYTES = 23e6
"""Private memory of a client in bytes."""
STAGES_S = {"build_s": 0.2, "profile_s": 40.0, "update_s": 0.0}
"""Seconds of each stage. A task has a thousand candidates, and a round of 8 in 40 s: no job ends within an hour."""
ENDLESS = 900_000
"""Number of trials of a job that does not end during the measurement."""
PAGE = 500
START_S = 1_500.0
"""Maximum time until all clients are at work, in seconds."""


def main() -> None:
    """Measures and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=120.0, help="for which all of them work")
    args = parser.parse_args()
    if why := wires.possible():
        raise SystemExit(f"there are no namespaces here: {why}")
    memory = psutil.virtual_memory().available + psutil.swap_memory().free
    if memory < args.clients * CLIENT_BYTES:
        raise SystemExit(f"{args.clients} clients need {args.clients * CLIENT_BYTES:.2g} bytes; there are {memory:.2g}")
    print(json.dumps(crowd(args.hosts, args.clients, args.seconds), indent=1))


def crowd(hosts: int, clients: int, seconds: float) -> dict[str, Any]:
    """Starts everything, lets it work, and ends it."""
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="autosched-bench-")))
        _, key = keyring.make(folder / "state/keys", Role.AGENT, "lab")
        settings = f"{lent_host.tls('0.0.0.0:0')}{lent_host.lane()}{lent_host.boards(1, 'none')}"
        settings += "[scheduler]\nattach_timeout_s = 600\n[limits]\njobs_active_max = 5000\nconnections_max = 5000\n"
        process = held.enter_context(private_daemon(folder, settings))
        asyncio.run(until(folder, process, 0))
        agents = []
        for number in range(hosts):
            wire = held.enter_context(wires.wire(number, DELAY_S))
            agent = lent_host.LentHost(folder / f"lab{number}", f"lab{number}", "")
            agent.reach(wire, tls_port(folder))
            agent.settings = f"{lent_host.lane()}{lent_host.boards(-(-clients // hosts))}"
            agent.start("--key", str(key))
            held.callback(agent.end)
            agents.append(agent)
        asyncio.run(until(folder, process, hosts))
        told = asyncio.run(_work(folder, psutil.Process(process.pid), hosts, clients, seconds))
        told["left"] = sum(len(kill_strays(agent.jobs)) for agent in agents)
    return told


async def _work(folder: Path, process: psutil.Process, hosts: int, clients: int, seconds: float) -> dict[str, Any]:
    daemon, began = await Daemon.connect(f"unix:{folder}/api.sock"), time.monotonic()
    jobs = [await submit(daemon, folder, number, ENDLESS, tasks=1, **STAGES_S) for number in range(clients)]
    async with asyncio.timeout(START_S):
        while await _at_work(daemon) < clients:  # noqa: ASYNC110 - no event counts jobs; to follow each would load it
            await asyncio.sleep(2.0)
    start_s = time.monotonic() - began
    before, cpu_s = time.monotonic(), _cpu_s(process)
    now = (await daemon.job(jobs[0])).now
    await asyncio.sleep(seconds)
    took_s, cpu_s = time.monotonic() - before, _cpu_s(process) - cpu_s
    memory = process.memory_info().rss
    spans = [span for span in await daemon.spans() if span.ended_at is not None]
    steps = [span for span in spans if (span.ended_at or 0.0) >= now]
    view = (await daemon.link.call(ListHosts(), HostList)).hosts
    for job in jobs:
        await daemon.cancel(job)
    trials = Counter([(job, record.number) for job in jobs for record in await daemon.records(job)])
    await until_hosts(daemon, lambda there: not any(host.jobs for host in there), START_S)
    await daemon.link.call(Shutdown(), Done)
    daemon.close()
    return {
        "hosts": hosts, "clients": sum(len(host.jobs) for host in view), "start_s": round(start_s, 1),
        "work_s": round(took_s, 1), "steps_per_s": round(len(steps) / took_s, 1),
        "hosts_at_work": len({span.units[0].partition("@")[2] for span in steps if span.stage == "profile"}),
        "lost": sum(span.outcome != "done" for span in spans), "trials": len(trials),
        "repeated": sum(count > 1 for count in trials.values()),
        "daemon_cpu": round(cpu_s / took_s, 3), "daemon_mb": round(memory / 1e6),
    }  # fmt: skip


async def _at_work(daemon: Daemon) -> int:
    """Returns the number of jobs with a measurement."""
    found, before = 0, None
    while jobs := (await daemon.link.call(ListJobs(limit=PAGE, before=before), JobList)).jobs:
        found += sum(job.trials > 0 for job in jobs)
        before = jobs[0].job
    return found


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
