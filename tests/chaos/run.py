"""Parts of a run. Each has its own lab, a user who keeps it busy, faults, a final rest, and the checker."""

import asyncio
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import postgres
import wires
from autosched.core.scheduler import REVOKE_GRACE_S
from autosched.daemon.access import keyring
from autosched.protocol import SILENCE_S
from autosched.protocol.roles import Role
from chaos import checker, evidence, experiment_kills, faults, store_check
from chaos.agents import ChaosAgent, free_port
from chaos.clock import WallClock
from chaos.evidence import LOGS
from chaos.lab import Lab, User
from lent_host import tls

START_S = 300.0
MAKESPAN_JOBS, MAKESPAN_FAULTS = 8, 5
BACK_FACTOR = 2.5
"""Factor of a client's downtime relative to its daemon's: it looks for the daemon at growing intervals."""
RECORD_KILLS = 200
"""Number of kills of the daemon and its PostgreSQL server; each is killed in at least a third of them."""
AWAY_S = 3.0
"""Maximum seconds before and after a kill of the server."""
CATCH_UP_S = 300.0
"""Maximum seconds until the record store has all records."""
TVM_TRIALS, TVM_KILLS, TVM_GAP_S = 192, 20, 2.0
GPU_FAULTS_MAX = 100
HOSTS, HOST_LEASE_S, HOST_DELAY_S, HOST_PAUSE_S = 2, 3.0, 0.001, 1.0
"""Number of hosts beside the daemon's own; in seconds, their lease, the delay of a packet, and the mean time between
faults."""
HOST_FAULTS = (
    "daemon", "agent", "client", "partition", "freeze", "daemon", "agent", "client", "partition", "clock", "daemon",
    "agent",
)  # fmt: skip
HOST_FAULTS_MAX = 300
STEP_TIMEOUT_S = 20.0
STILL_BEYOND_S = 10.0
"""Time of a suspension in seconds: longer than the maximum silence."""
Told = dict[str, Any]
BARS = {
    "dead_client_noticed_s": 1.0, "frozen_client_noticed_s": 35.0, "frozen_foreign_client_noticed_s": 35.0,
    "frozen_foreign_client_given_up_s": SILENCE_S + STEP_TIMEOUT_S + REVOKE_GRACE_S + 2.0,
    "cut_cable_noticed_s": 35.0, "slow_reader_left_s": 15.0,
    "spoilt_when_the_clock_was_set": 0.0, "spoilt_when_all_stood_still": 0.0, "slow_reader_mib": 2.0,
    "sigterm_s": 10.0, "disturbed_over_allowed": 1.0, "serving_again_s": 5.0,
}  # fmt: skip


WORK = {"trials": 96, "tasks": 3, "build_s": 0.3, "profile_s": 0.8, "update_s": 0.2, "spread": 0.5}
MOVING: Told = {
    "trials": 960, "tasks": 6, "build_s": 0.3, "profile_s": 1.2, "update_s": 0.02, "spread": 0.3, "movable": True,
    "divisible": True,
}  # fmt: skip
"""Jobs with enough work for helpers, whose measurements several devices share."""
MOVING_CLIENTS = 3
BRIEF = {"trials": 48, "tasks": 2, "build_s": 0.03, "profile_s": 0.08, "update_s": 0.02, "spread": 0.5}


@dataclass(frozen=True)
class Plan:
    """Amount of faults."""

    kills: int = 1_000
    clients: int = 50
    rows: float = 20.0
    """Mean number of journal rows between two kills of the daemon."""
    work: Told = field(default_factory=WORK.copy)
    """Fields and options of the jobs."""
    kills_s: float = 3_600.0
    """Time after which no more kills are made, in seconds."""
    kills_per_client: int = 20
    """Number of kills of the daemon for each kill of a client."""
    cancel_ratio: float = 0.1
    rest_s: float = 900.0


@asynccontextmanager
async def busy(lab: Lab, user: User, plan: Plan, agents: Sequence[ChaosAgent] = ()) -> AsyncIterator[None]:
    """Runs a daemon with busy clients; at the end all jobs have ended, and no process is left."""
    try:
        await lab.start(as_program=True)
        for agent in agents:
            agent.start()
        keeping = asyncio.ensure_future(user.keep_busy(plan.clients, plan.cancel_ratio, **plan.work))
        await _at_work(lab, plan.clients)
        yield
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        (await lab.serving()).close()
        await user.rest(plan.rest_s)
    finally:
        await lab.end()
        lab.clean()


async def _at_work(lab: Lab, clients: int) -> None:
    """Waits until a number of clients have begun a step."""
    async with asyncio.timeout(START_S):
        while True:
            if sum('"began"' in path.read_text() for path in (lab.folder / LOGS).iterdir()) >= clients:
                return
            await asyncio.sleep(0.2)


async def kills(folder: Path, plan: Plan, rng: random.Random) -> Told:
    """Kills daemons at random moments, and now and then a client."""
    lab = Lab(folder)
    user, number = User(lab, rng), 0
    noticed_s: list[float] = []
    async with busy(lab, user, plan):
        began_at = time.monotonic()
        while number < plan.kills and time.monotonic() < began_at + plan.kills_s:
            await faults.kill_daemon(lab, rng, plan.rows)
            number += 1
            if number % plan.kills_per_client == 0:
                (await lab.serving()).close()
                noticed_s.append(await faults.kill_client(lab, user, rng))
            if number % 50 == 0:
                sys.stderr.write(f"{number} kills in {time.monotonic() - began_at:.0f} s\n")
        took_s = time.monotonic() - began_at
    told = {
        "kills": number,
        "seconds": took_s,
        "serving_again_s": max(lab.serving_s),
        "serving_again_median_s": statistics.median(lab.serving_s),
        "dead_client_noticed_s": max(noticed_s, default=None),
    }
    return _checked(folder, told)


async def matrix(folder: Path, plan: Plan, rng: random.Random) -> Told:
    """Runs all other faults; those that mostly wait run at the same time."""
    clock = WallClock(folder)
    lab = Lab(folder, environment=clock.environment)
    user, words, told = User(lab, rng), plan.work | {"step_timeout_s": STEP_TIMEOUT_S}, Told()
    async with busy(lab, user, plan):
        told["dead_client_noticed_s"] = max([await faults.kill_client(lab, user, rng) for _ in range(5)])
        waited_for: dict[str, Coroutine[Any, Any, float]] = {
            "frozen_client_noticed_s": faults.freeze_client(lab, user, rng),
            "cut_cable_noticed_s": faults.cut_cable(lab, user, rng, **words),
            "endless_stage_killed_s": faults.never_end(lab, user, **words),
        }
        woken = asyncio.ensure_future(faults.wake_client_late(lab, user, rng, **words))
        told |= dict(zip(waited_for, await asyncio.gather(*waited_for.values()), strict=True))
        told["frozen_foreign_client_noticed_s"], told["frozen_foreign_client_given_up_s"] = await woken
        told["slow_reader_left_s"], told["slow_reader_mib"] = await faults.never_read(lab)
        told["spoilt_when_the_clock_was_set"] = await faults.set_clock(lab, user, clock)
        told["spoilt_when_all_stood_still"] = await faults.stand_still(lab, user, SILENCE_S + STILL_BEYOND_S)
        told["submits_refused_on_a_full_disk"] = await faults.fill_disk(lab, user, 5.0, **words)
        told["sigterm_s"] = max([await faults.restart_in_order(lab, user, rng) for _ in range(5)])
    told["serving_again_s"] = max(lab.serving_s)
    return _checked(folder, told)


async def tvm(folder: Path, plan: Plan, rng: random.Random) -> Told:
    """Tunes a network with TVM while daemons are killed, and twice the client."""
    import onnx  # imported here: the other parts need no TVM

    import nets

    lab = Lab(folder, boards=0)
    user, model, count = User(lab, rng), folder / "net.onnx", min(plan.kills, TVM_KILLS)
    onnx.save(nets.small_net(), model)
    try:
        await lab.start(as_program=True)
        async with user.connected() as daemon:
            words = {"lets": "ansor", "trials": TVM_TRIALS, "model": await daemon.upload(model)}
            await user.submit(daemon, **words)
        for number in range(1, count + 1):
            await asyncio.sleep(rng.uniform(0.0, TVM_GAP_S))
            await faults.kill_daemon(lab, rng, plan.rows)
            if number in (count // 4, count // 2):  # a fast machine is done before the last kill of a daemon
                (await lab.serving()).close()
                await faults.kill_client(lab, user, rng)
        await user.rest(plan.rest_s)
    finally:
        await lab.end()
        lab.clean()
    return _checked(folder, {"kills": count, "serving_again_s": max(lab.serving_s)})


async def makespan(folder: Path, plan: Plan, rng: random.Random) -> Told:
    """Runs the same few jobs undisturbed, and with kills of daemons and clients; compares the times."""
    told: Told = {"violations": []}
    for name, count in (("undisturbed", 0), ("disturbed", MAKESPAN_FAULTS)):
        (folder / name).mkdir()
        lab = Lab(folder / name)
        user = User(lab, rng)
        try:
            await lab.start(as_program=True)
            async with user.connected() as daemon:
                for _ in range(MAKESPAN_JOBS):
                    await user.submit(daemon, **plan.work)
            began_at = time.monotonic()
            for _ in range(count):
                await faults.kill_client(lab, user, rng)
                await faults.kill_daemon(lab, rng, plan.rows)
                (await lab.serving()).close()
            await user.rest(plan.rest_s)
            told[f"{name}_s"] = time.monotonic() - began_at
        finally:
            await lab.end()
            lab.clean()
        found = evidence.read(folder / name)
        told["violations"] += checker.violations(found)
        away_s = sum(BACK_FACTOR * serving_s for serving_s in lab.serving_s[1:])
        told["faults_may_cost_s"] = away_s + checker.cost_of_deaths_s(found)
    told["disturbed_over_allowed"] = told["disturbed_s"] / (told["undisturbed_s"] + told["faults_may_cost_s"])
    return told


async def records(folder: Path, plan: Plan, rng: random.Random) -> Told:
    """Kills daemons and the PostgreSQL server of their record store at random moments, one of them or both."""
    if postgres.programs() is None:
        return {"violations": ["PostgreSQL is not installed; on Debian: apt-get install postgresql"]}
    killed = {"daemon": 0, "server": 0}
    with postgres.server() as server:
        url = server.database()
        lab = Lab(folder, settings=f'[records]\nurl = "{url}"\n')
        user, number = User(lab, rng), 0
        async with busy(lab, user, plan):
            while (number := number + 1) <= min(plan.kills, RECORD_KILLS):
                dies = [("daemon",), ("server",), ("server", "daemon")][number % 3]
                if "server" in dies:
                    await asyncio.sleep(rng.uniform(0.0, AWAY_S))
                    await asyncio.to_thread(server.kill)
                if "daemon" in dies:
                    await faults.kill_daemon(lab, rng, plan.rows)
                if "server" in dies:
                    await asyncio.sleep(rng.uniform(0.0, AWAY_S))
                    await asyncio.to_thread(server.start)
                for one in dies:
                    killed[one] += 1
        told = {"kills": number - 1, **{f"{name}_kills": count for name, count in killed.items()}}
        await lab.start()
        try:
            told["caught_up_s"] = await _caught_up(lab, url)
        finally:
            await lab.end()
            lab.clean()
        rows = store_check.stored(url)
    told = _checked(folder, {**told, "serving_again_s": max(lab.serving_s), "stored": len(rows)})
    told["violations"] += store_check.violations(evidence.read(folder).records, rows)[:50]
    return told


async def hosts(folder: Path, plan: Plan, rng: random.Random) -> Told:
    """Kills agents, their clients and daemons, freezes agents, cuts cables, and sets clocks."""
    clock, cables = WallClock(folder), not wires.possible()
    keyring.make(folder / "keys", Role.AGENT, "lab")
    settings = f"[scheduler]\nhost_lease_s = {HOST_LEASE_S}\n"
    port = free_port()
    lab = Lab(folder, 1, clock.environment, settings, tls(f"0.0.0.0:{port}") if cables else "")
    environment = {**lab.environment, "AUTOSCHED_KEY_FILE": str(folder / "keys/agent-lab.key")}
    user, made = User(lab, rng), Counter[str]()
    with ExitStack() as held:
        agents = []
        for number in range(HOSTS):
            agent = ChaosAgent(folder, f"lab{number}", 1 + number, lab.address, environment)
            if cables:
                agent.reach(held.enter_context(wires.wire(number, HOST_DELAY_S)), port)
            held.callback(agent.end)
            agents.append(agent)
        kinds = HOST_FAULTS if cables else tuple(kind for kind in HOST_FAULTS if kind != "partition")
        faults_to_come = [kinds[number % len(kinds)] for number in range(min(plan.kills, HOST_FAULTS_MAX))]
        rng.shuffle(faults_to_come)
        async with busy(lab, user, plan, agents):
            for kind in faults_to_come:
                made[kind] += await _host_fault(kind, lab, rng.choice(agents), clock, rng, plan)
            clock.set_ahead(0)
            for agent in agents:
                agent.start()
    placed = {span.units[0].partition("@")[2] for spans in evidence.read(folder).spans.values() for span in spans}
    told = {"kills": len(faults_to_come), "hosts_used": len(placed), **{f"{kind}_faults": made[kind] for kind in kinds}}
    return _checked(folder, told)


async def helpers(folder: Path, plan: Plan, rng: random.Random) -> Told:
    """Runs the same faults under jobs whose stages move to helpers on other hosts."""
    return await hosts(folder, replace(plan, work=MOVING, clients=min(plan.clients, MOVING_CLIENTS)), rng)


async def _host_fault(kind: str, lab: Lab, agent: ChaosAgent, clock: WallClock, rng: random.Random, plan: Plan) -> bool:
    """Causes one fault, and waits a little; returns whether it took effect."""
    lasts_s = rng.uniform(0.05, 1.6) * HOST_LEASE_S
    happened = True
    match kind:
        case "daemon":
            await faults.kill_daemon(lab, rng, plan.rows)
            (await lab.serving()).close()
        case "agent":
            agent.send(signal.SIGKILL)
            await asyncio.sleep(lasts_s if rng.random() < 0.5 else 0.0)
            agent.start()
        case "client":
            happened = agent.kill_client(rng)
        case "freeze":
            agent.send(signal.SIGSTOP)
            await asyncio.sleep(lasts_s)
            agent.send(signal.SIGCONT)
        case "partition":
            assert agent.cable is not None
            way = rng.choice(("both", "both", "out", "back"))
            agent.cable.cut(out=way != "back", back=way != "out")
            await asyncio.sleep(lasts_s)
            agent.cable.mend()
        case "clock":
            clock.set_ahead(rng.choice((-86_400, -30, 30, 86_400)))
    await asyncio.sleep(rng.expovariate(1 / HOST_PAUSE_S))
    return happened


async def experiment(folder: Path, plan: Plan, rng: random.Random) -> Told:
    """Runs an experiment of 24 jobs with 20 faults: kills of the daemon, clients and its own process, and settings of
    the clock."""
    return await experiment_kills.kills(folder, min(plan.kills, experiment_kills.KILLS), rng)


async def gpus(folder: Path, plan: Plan, rng: random.Random) -> Told:
    """Tunes networks on two fake GPUs while processes die and the GPUs fail."""
    from chaos import gpu_faults  # imported here: the other parts need no TVM

    told = await gpu_faults.kills(folder, min(plan.kills, GPU_FAULTS_MAX), rng, plan.rest_s)
    broken = told.pop("broken")
    told = _checked(folder, told)
    return {**told, "violations": [*broken, *told["violations"]][:50]}


async def _caught_up(lab: Lab, url: str) -> float:
    """Returns the seconds until the store has all records of the daemon; gives up in the end, so that missing ones are
    reported."""
    began_at, wanted = time.monotonic(), store_check.durable(lab.folder)
    while len(store_check.stored(url)) < wanted and time.monotonic() < began_at + CATCH_UP_S:  # noqa: ASYNC110
        await asyncio.sleep(0.5)
    return time.monotonic() - began_at


def _checked(folder: Path, told: Told) -> Told:
    """Returns the result with the checker's violations."""
    found = evidence.read(folder)
    return {**told, **checker.counts(found), "violations": checker.violations(found)[:50]}


def missed(told: Told) -> list[str]:
    """Returns the bars that were missed. On a busy machine this means nothing."""
    return [f"{name}: {told[name]:.1f}, bar {bar:g}" for name, bar in BARS.items() if (told.get(name) or 0.0) > bar]
