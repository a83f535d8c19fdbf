"""Boards: sessions through the daemon beside TVM's own tracker, a network on a board beside the same cores, and faults.

``python benchmarks/boards.py [PART ...]`` prints one JSON object. Boards are RPC servers on the last core of this
machine.

`runner`: seconds in which MetaSchedule's own RPC runner measures eight candidates through the daemon's port, over
those through TVM's tracker, in turns; medians. `network`: a network tuned on a core as a local device and as a board:
trials per minute, and the latency of one module on both, in turns. `shared`: two programs that know only TVM and two
jobs share two boards: steps that overlap on a board, steps that began before one of a higher priority which waited, and
what each did. `kills`: the server, the board, the daemon, the client or the session is killed in the middle of a
session, again and again: records lost or repeated, and how long a session outlived its lease at most.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from raw_results import FOLDER as KEPT
from raw_results import origin

from autosched import zoo
from autosched.api.connection import Daemon
from autosched.errors import AutoschedError
from autosched.model import JobSpec, JobState, Purpose
from autosched.protocol import Span

TESTS = Path(__file__).parents[1] / "tests"
sys.path.append(str(TESTS))
rpc_server: Any = import_module("rpc_server")
lab: Any = import_module("integration.lab")
nets: Any = import_module("nets")
agents: Any = import_module("chaos.agents")

RESULTS = KEPT / "boards.json"
KEY = "pi4"
TURNS, ROUNDS = 5, 3
"""Number of programs in turn at each tracker, and rounds of each; the first round is left out."""
NETWORK, NETWORK_TRIALS = "squeezenet", 64
SAMPLES = 15
SHARED_S = 600.0
KILLS = 100
LOOK_S = 0.05
"""Seconds between two checks of the sessions of a board."""
START_S = 120.0
PRIORITY_S = 1.0
"""Minimum wait of a step in seconds that counts as overtaken."""
QUICK = {"batch": 4, "min_repeat_ms": 1.0}


def settings(port: int, cores: Sequence[int], more: str = "") -> str:
    """Returns settings of a daemon with a port for boards, and lanes on these cores."""
    return (
        f'[boards]\nlisten = "127.0.0.1:{port}"\n[[board]]\nkind = "{KEY}"\ntarget = {json.dumps(target())}\n'
        f"[resources]\nhost_cores = {list(cores)}\n[guard]\nquarantine_s = 0.5\n{more}"
    )


def target() -> str:
    """Returns the CPU of this machine, with one core."""
    from autosched_tvm.compile import targets

    return json.dumps(targets.of_this_machine() | {"num-cores": 1})


@contextmanager
def on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Pins processes that are started in the block to these cores."""
    home = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(cores))
    try:
        yield
    finally:
        os.sched_setaffinity(0, home)


@contextmanager
def board(folder: Path, tracker: int, core: int, name: str, *, ours: bool = False) -> Iterator[Any]:
    """Runs a server on a core that registers itself."""
    server = rpc_server.RpcServer(folder, KEY, ("--tracker", f"127.0.0.1:{tracker}"), name, ours=ours)
    with on_cores([core]):
        server.start()
    try:
        yield server
    finally:
        server.kill()


def program(port: int, priority: int, rounds: int) -> subprocess.Popen[str]:
    """Starts a program that uses TVM only."""
    command = [sys.executable, str(TESTS / "stock_program.py"), str(port), KEY, str(priority), str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def submit(there: Any, model: Path, trials: int, **words: Any) -> int:
    """Submits a job; returns its number."""
    daemon = await Daemon.connect(there.address)
    try:
        spec = JobSpec(
            **{
                "name": model.stem, "model": await daemon.upload(model), "trials": trials, "backend": "ansor",
                "fresh": True, "options": QUICK, **words,
            }
        )  # fmt: skip
        return (await daemon.submit(spec)).job
    finally:
        daemon.close()


async def spans(there: Any) -> list[Span]:
    """Returns all steps."""
    daemon = await Daemon.connect(there.address)
    try:
        return await daemon.spans()
    finally:
        daemon.close()


# Parts ----------------------------------------------------------------------------------------------------------------


def runner(folder: Path, cores: Sequence[int]) -> dict[str, Any]:
    """Compares the daemon's port with TVM's tracker."""
    stock, own = agents.free_port(), agents.free_port()
    command = [sys.executable, "-m", "tvm.exec.rpc_tracker", "--host", "127.0.0.1", "--port", str(stock)]
    command += ["--port-end", str(stock + 1), "--silent"]
    tracker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    found: dict[str, list[float]] = {"stock": [], "own": []}
    try:
        with (
            lab.lab(folder, settings(own, cores[:1])) as there,
            board(folder, stock, cores[-1], "stock"),
            board(folder, own, cores[-1], "own"),
        ):
            wait(lambda: there.boards())
            for _ in range(TURNS):
                for name, port in (("stock", stock), ("own", own)):
                    said, _ = program(port, 5, ROUNDS).communicate(timeout=START_S)
                    rounds = [json.loads(line) for line in said.splitlines()]
                    assert [one["good"] for one in rounds] == [8] * ROUNDS, rounds
                    found[name] += [one["took_s"] for one in rounds[1:]]
    finally:
        os.killpg(tracker.pid, signal.SIGKILL)  # its worker outlives it else
        tracker.wait()
    medians_s = {name: statistics.median(values) for name, values in found.items()}
    return {"ratio": medians_s["own"] / medians_s["stock"], "seconds": medians_s, "all": found}


def network(folder: Path, cores: Sequence[int]) -> dict[str, Any]:
    """Tunes a network on a core as a device, and as a board."""
    model, port = zoo.fetch(NETWORK), agents.free_port()
    local = f'[[device]]\nname = "cpu0"\nkind = "cpu"\ncores = [{cores[-1]}]\n'
    with (
        lab.lab(folder, settings(port, cores[:1], local)) as there,
        board(folder, port, cores[-1], "board") as server,
    ):
        wait(lambda: there.boards())
        words = {"local": {"device": "cpu", "target": target()}, "board": {"target": KEY}}
        trials, seconds = Counter[str](), Counter[str]()
        for seed, name in enumerate(("local", "board", "board", "local")):  # another seed: no build is known already
            job = asyncio.run(submit(there, model, NETWORK_TRIALS, seed=seed, options={}, **words[name]))
            view = there.wait(job)
            assert view.state == JobState.DONE, view.failure
            at = sorted(one.measured_at for one in there.records(job) if one.purpose is Purpose.TRIAL)
            trials[name] += len(at) - 1
            seconds[name] += at[-1] - at[0]
        out = folder / "out"
        command = ["-m", "autosched", "--host", there.address, "attach", "1", "-o", str(out)]
        subprocess.run([sys.executable, *command], check=True, capture_output=True, timeout=START_S)
        there.end(signal.SIGTERM)
        server.kill()
    per_minute = {name: 60 * trials[name] / seconds[name] for name in words}
    return {
        "trials_per_minute": per_minute, "trials_ratio": per_minute["board"] / per_minute["local"],
        **both_ways(folder, out / f"{model.stem}.so", cores[-1]),
    }  # fmt: skip


def both_ways(folder: Path, module: Path, core: int) -> dict[str, Any]:
    """Measures a module in a process on a core, and through a session with a server on it, in turns."""
    from autosched.backend import Board
    from autosched.process.forked_workers import Workers, prepare
    from autosched_tvm import worker_messages
    from autosched_tvm.evaluation.engine_benchmark import EngineBenchmark
    from autosched_tvm.generated_inputs import random_inputs
    from autosched_tvm.worker_messages import Remote

    prepare(worker_messages.PRELOAD)
    workers = Workers(folder / "logs", recycle_after=1_000)
    lease_class: Any = import_module("autosched.backend").Lease
    plain = lease_class("evaluate", ("cpu0",), (core,), 600.0)
    found: dict[str, list[float]] = {"local": [], "board": []}
    with rpc_server.RpcServer(folder, KEY, (), "alone") as server, on_cores([core]):
        server.kill()
        server.start()
        there = Board("127.0.0.1", server.port, KEY)
        lease = lease_class("evaluate", ("board0",), (), 600.0, board=there)
        remote = Remote(there, 1, 600.0)
        with EngineBenchmark(workers, plain) as here, EngineBenchmark(workers, lease, remote) as away:
            here_engine, _ = here.module("local", module)
            away_engine, side = away.module("board", module)
            pair = {"local": here_engine, "board": away_engine}
            inputs = random_inputs(side.inputs)
            for engine in pair.values():
                engine.bind(inputs)
            for _ in range(SAMPLES):
                for name, engine in pair.items():
                    found[name].append(engine.sample(5, 1))
    medians_s = {name: statistics.median(values) for name, values in found.items()}
    return {"latency_s": medians_s, "latency_ratio": medians_s["board"] / medians_s["local"]}


def shared(folder: Path, cores: Sequence[int], seconds: float) -> dict[str, Any]:
    """Runs programs and jobs on two boards."""
    model, port = folder / "net.onnx", agents.free_port()
    import onnx

    onnx.save(nets.conv_net(), model)
    with (
        lab.lab(folder, settings(port, cores[:1])) as there,
        board(folder, port, cores[-1], "one"),
        board(folder, port, cores[-1], "two"),
    ):
        wait(lambda: len(there.boards()) == 2)
        until = time.monotonic() + seconds
        programs = [program(port, priority, 100_000) for priority in (1, 20)]
        counts: Counter[str] = Counter()
        jobs: dict[str, list[int]] = {"first": [], "second": []}
        priorities = {"first": 1, "second": 20}
        try:
            while time.monotonic() < until:
                for name, own in jobs.items():
                    if not own or there.wait(own[-1], "trials", 0).state == JobState.DONE:
                        words = {"target": KEY, "priority": priorities[name], "seed": len(own)}
                        own.append(asyncio.run(submit(there, model, 64, **words)))
                time.sleep(1.0)
        finally:
            for one in programs:
                one.kill()
        for number, one in enumerate(programs):
            said, _ = one.communicate()
            rounds = [json.loads(line) for line in said.splitlines() if line.endswith("}")]
            counts[f"program {number}"] = sum(each["good"] + 1 for each in rounds)
        for name, own in jobs.items():
            counts[name] = sum(len(there.records(job)) for job in own)
        found = asyncio.run(spans(there))
        listed = asyncio.run(priorities_of(there))
    return {"seconds": seconds, "progress": dict(counts), **judged(found, listed)}


async def priorities_of(there: Any) -> dict[int, int]:
    """Returns the priority of each job."""
    from autosched.protocol import JobList, ListJobs

    daemon = await Daemon.connect(there.address)
    try:
        views = (await daemon.link.call(ListJobs(limit=500), JobList)).jobs
        return {view.job: view.priority for view in views}
    finally:
        daemon.close()


def judged(found: Sequence[Span], priorities: dict[int, int]) -> dict[str, Any]:
    """Returns overlaps on a board, and steps that began while one of a higher priority had waited for a while."""
    of_boards = [span for span in found if span.units[0].startswith(KEY) and span.ended_at is not None]
    overlaps = 0
    for unit in {span.units[0] for span in of_boards}:
        own = sorted((span for span in of_boards if span.units[0] == unit), key=lambda span: span.started_at)
        overlaps += sum(one.ended_at > other.started_at for one, other in pairwise(own) if one.ended_at is not None)
    passed = 0
    for span in of_boards:
        rank, at = priorities.get(span.job, 0), span.started_at
        passed += any(
            other.queued_at < at - PRIORITY_S and other.started_at > at and priorities.get(other.job, 0) > rank
            for other in of_boards
        )
    steps = Counter(f"job {span.job}" for span in of_boards)
    return {"overlaps": overlaps, "passed_over": passed, "steps": sum(steps.values())}


def kills(folder: Path, cores: Sequence[int], count: int, seed: int) -> dict[str, Any]:
    """Causes faults during sessions."""
    model, port, draw = folder / "net.onnx", agents.free_port(), random.Random(seed)
    import onnx

    onnx.save(nets.small_net(), model)
    words = settings(port, cores[:1])
    killed: Counter[str] = Counter()
    lost = repeated = failed = 0
    late_s = 0.0
    with lab.lab(folder, words) as there, board(folder, port, cores[-1], "board", ours=True) as server:
        wait(lambda: there.boards())
        while sum(killed.values()) < count:
            trials = 48
            job = asyncio.run(submit(there, model, trials, target=KEY, seed=sum(killed.values())))
            until = time.monotonic() + START_S
            while sum(killed.values()) < count and time.monotonic() < until:
                late_s = max(late_s, watch(there, server, draw.uniform(0.5, 3.0)))
                if not alive(there, job):
                    break
                if not sessions_of(server):
                    continue
                what = draw.choice(["server", "board", "daemon", "client", "session"])
                killed[what] += 1
                if what in ("server", "board"):
                    server.kill()
                    time.sleep(0.0 if what == "server" else 2.0)
                    with on_cores([cores[-1]]):
                        server.start()
                elif what == "daemon":
                    there.end(signal.SIGKILL)
                    there.start(words)
                elif what == "client":
                    there.kill_client(job)
                else:
                    for child in sessions_of(server):
                        with suppress(psutil.NoSuchProcess):
                            child.kill()
            view = there.wait(job)
            records = [one for one in there.records(job) if one.purpose is Purpose.TRIAL]
            tried = Counter((one.task, one.candidate) for one in records)
            repeated += sum(number - 1 for number in tried.values())
            lost += max(0, view.trials - len(records))
            failed += view.state != JobState.DONE
    return {
        "kills": dict(killed), "lost": lost, "repeated": repeated, "jobs_failed": failed,
        "outlived_s": late_s,
    }  # fmt: skip


def sessions_of(server: Any) -> list[psutil.Process]:
    """Returns the processes that serve sessions of one of our servers."""
    process = server._process
    if process is None:
        return []
    with suppress(psutil.NoSuchProcess):
        return list(psutil.Process(process.pid).children())
    return []


def watch(there: Any, server: Any, seconds: float) -> float:
    """Watches the board for `seconds`; returns the longest time with a session and no step."""
    until, since, longest_s = time.monotonic() + seconds, None, 0.0
    while (now := time.monotonic()) < until:
        free = bool(sessions_of(server)) and is_free(there)
        since = (since or now) if free else None
        longest_s = max(longest_s, now - since if since is not None else 0.0)
        time.sleep(LOOK_S)
    return longest_s


def is_free(there: Any) -> bool:
    """Returns whether no step holds the board."""

    async def ask() -> bool:
        daemon = await Daemon.connect(there.address)
        try:
            return all(unit.job is None for unit in await daemon.units() if unit.accelerator is not None)
        finally:
            daemon.close()

    return asyncio.run(ask())


def alive(there: Any, job: int) -> bool:
    """Returns whether a job has not ended."""

    async def ask() -> bool:
        daemon = await Daemon.connect(there.address)
        try:
            return not JobState((await daemon.job(job)).state).ended
        finally:
            daemon.close()

    try:
        return asyncio.run(ask())
    except AutoschedError:
        return True


def wait(holds: Any) -> None:
    """Waits until the condition holds."""
    until = time.monotonic() + START_S
    while not holds():
        assert time.monotonic() < until, "a board does not register itself"
        time.sleep(0.1)


def main() -> None:
    """Runs the named parts, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], "runner", "network", "shared", "kills"])
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seconds", type=float, default=SHARED_S)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="write what was measured to benchmarks/results, as it goes")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    parts: dict[str, Callable[[Path], dict[str, Any]]] = {
        "runner": lambda folder: runner(folder, cores),
        "network": lambda folder: network(folder, cores),
        "shared": lambda folder: shared(folder, cores, args.seconds),
        "kills": lambda folder: kills(folder, cores, args.kills, args.seed),
    }
    told: dict[str, Any] = {}
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, part in parts.items():
        if args.parts and name not in args.parts:
            continue
        with tempfile.TemporaryDirectory(prefix="autosched-boards-") as folder:
            told[name] = part(Path(folder))
        print(json.dumps({name: told[name]}), file=sys.stderr, flush=True)
        if args.keep:
            RESULTS.write_text(json.dumps({**kept, **origin(), **told}, indent=1) + "\n")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
