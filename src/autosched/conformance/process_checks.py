"""Checks of a backend as part of its process: it can be killed, writes to its own folders only, and leaves no
processes."""

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from autosched import stages
from autosched.backend import Lease, Session, Tuner
from autosched.conformance.backend_harness import BackendHarness, Broken, Check, NotApplicable
from autosched.process import isolated_python

BEGUN_S = 0.2
"""Seconds after which a stage is assumed to be running."""
GONE_PER_KILL = 5.0
"""Maximum time for a client's children to end, as a multiple of the time of a kill."""
SAID_BYTES_MAX = 64 * 1024
MARK = "AUTOSCHED_JOB_DIR"
STORY_S = 300.0
KILLED = 9


def _stage(bench: BackendHarness, session: Session, tuner: Tuner, stage: str) -> Callable[[Lease], object]:
    """A function that runs the stage; the stages before it have run."""
    candidates = list(bench.round.candidates)
    match stage:
        case stages.SELECT:
            return lambda lease: tuner.select(bench.subject.count, lease)
        case stages.BUILD:
            return lambda lease: tuner.build(candidates, lease)
        case stages.PROFILE:
            built = tuner.build(candidates, bench.lease("build"))
            return lambda lease: list(tuner.profile(built, lease))
        case stages.UPDATE:
            return lambda lease: tuner.update(bench.round.measured, lease)
        case stages.IMPORT:
            return session.import_network
        case stages.COMPILE:
            return lambda lease: session.compile(bench.round.records(), lease)
        case stages.EVALUATE:
            session.compile(bench.round.records(), bench.lease("compile"))
            return session.evaluate
    raise NotApplicable(f"no stage is named {stage!r}")


def _killed_after_s(bench: BackendHarness, session: Session, work: Callable[[Lease], object], stage: str) -> float:
    """Seconds that the stage runs on after a kill."""
    lease = bench.lease(stage)
    ended = threading.Event()

    def run() -> None:
        try:
            work(lease)
        except Exception:  # any exception may end it
            pass
        finally:
            ended.set()

    threading.Thread(target=run, daemon=True).start()
    ended.wait(BEGUN_S)
    began_at = time.monotonic()
    session.kill(lease)
    ended.wait(4 * bench.subject.kill_s)
    return time.monotonic() - began_at if ended.is_set() else float("inf")


def kill_ends_a_stage(bench: BackendHarness) -> None:
    """kill(lease), called from another thread, ends a build and a profile within a second.

    Work in a child process and kill its process group, or wait on an event that kill sets. A client whose stage does
    not end kills itself, which costs all other steps of the job.
    """
    session, tuner = bench.imported("killed")
    for stage in (stages.BUILD, stages.PROFILE):
        work = _stage(bench, session, tuner, stage)
        if (took_s := _killed_after_s(bench, session, work, stage)) > bench.subject.kill_s:
            raise Broken(f"{stage} went on for {took_s:.1f} s after kill", session.kill)


def kill_ends_what_hangs(bench: BackendHarness) -> None:
    """A stage that never ends is ended by kill too. `hanging` names options with which each stage hangs.

    Every read, join or lock must also end when the lease is killed.
    """
    if not bench.subject.hanging:
        raise NotApplicable("`hanging` names no options with which a stage hangs")
    for stage, options in bench.subject.hanging.items():
        if stage == stages.IMPORT:
            session = bench.open(f"hangs in {stage}", options)
            work: Callable[[Lease], object] = session.import_network
        else:
            session, tuner = bench.imported(f"hangs in {stage}", options)
            work = _stage(bench, session, tuner, stage)
        if (took_s := _killed_after_s(bench, session, work, stage)) > bench.subject.kill_s:
            raise Broken(f"{stage} went on for {took_s:.1f} s after kill", session.kill)


def kill_spares_other_leases(bench: BackendHarness) -> None:
    """kill(lease) does not affect work for other leases.

    Register running work by the lease's identity; two leases may be equal.
    """
    session, tuner = bench.imported("spared")
    lease = bench.lease("build")
    session.kill(bench.lease("build"))
    built = tuner.build(bench.round.candidates, lease)
    if all(one.failure is not None for one in built):
        raise Broken(f"after the kill of another lease, all builds fail: {built[0].detail}", session.kill)


def kill_of_nothing_is_harmless(bench: BackendHarness) -> None:
    """kill does nothing if nothing runs, for a lease and for all.

    It may be called when the stage has just ended, or before it began.
    """
    session = bench.open("idle")
    session.kill(bench.lease("build"))
    session.kill()


def a_session_goes_on_after_a_kill(bench: BackendHarness) -> None:
    """After a kill, the next stage works, with the next lease.

    One step was killed, not the job. Start new workers when they are needed.
    """
    session, tuner = bench.imported("goes on")
    _killed_after_s(bench, session, _stage(bench, session, tuner, "build"), "build")
    found = bench.measure(tuner)
    if all(one.failure is not None for one in found.measured):
        raise Broken(f"all candidates fail then: {found.measured[0].detail}", session.kill)


def tasks_work_side_by_side(bench: BackendHarness) -> None:
    """Two searches may build and profile at the same time, in threads, each on its own lease.

    Keep the state of a step in local variables or under its lease: no attribute of the session, no os.chdir.
    """
    tuners = [bench.tuner(seed) for seed in (0, 1)]
    chosen = [list(tuner.select(bench.subject.count, bench.lease("select"))) for tuner in tuners]
    found: dict[int, list[bytes]] = {}
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            built = tuners[index].build(chosen[index], bench.lease("build"))
            measured = list(tuners[index].profile(built, bench.lease("profile")))
            found[index] = sorted(one.candidate for one in measured if one.failure is None)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(tuners))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    for index, candidates in enumerate(chosen):
        alone = bench.measured_alone(tuners[index], candidates)
        if found[index] != alone:
            raise Broken(f"side by side {len(found[index])} candidates work, alone {len(alone)}", tuners[index].build)


def _own_bytes() -> int:
    """Private memory of this process, in use or swapped out, in bytes; pages of files do not count."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(words[1]) * 1024 for words in lines if words[0] in ("RssAnon:", "VmSwap:"))


def memory_is_bounded(bench: BackendHarness) -> None:
    """The client's memory does not grow from round to round.

    A job has hundreds of rounds. Keep candidates and latencies, not artifacts, modules and logs.
    """
    tuner = bench.tuner()
    warm = max(1, bench.subject.rounds // 3)
    before = 0
    for number in range(bench.subject.rounds):
        found = bench.measure(tuner)
        if not found.candidates:  # the search space is exhausted
            tuner = bench.tuner(number + 1)
        bench.learn(tuner, found)
        gc.collect()
        now = _own_bytes()
        before = now if number < warm else before
    if (grown := now - before) > bench.subject.growth_bytes:
        rounds = bench.subject.rounds - warm
        raise Broken(f"{grown / 2**20:.0f} MiB more after {rounds} rounds", tuner.profile)


def it_says_little(bench: BackendHarness) -> None:
    """A round prints at most 64 KiB: output of a backend goes to the client's log, which is kept.

    Use `logging` at level debug for messages that only you need.
    """
    sizes = [_said_bytes()]
    bench.measure(bench.tuner())
    sizes.append(_said_bytes())
    if sizes[1] - sizes[0] > SAID_BYTES_MAX:
        raise Broken(f"{(sizes[1] - sizes[0]) / 1024:.0f} KiB were printed in one round", bench.tuner().build)


def _said_bytes() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fstat(2).st_size


def it_writes_nowhere_else(bench: BackendHarness) -> None:
    """Nothing is written outside the job's work folder, its output folder and TMPDIR: not here and not in HOME.

    The client of a service may have no other writable folder. Give the folder by name to each tool that you call.
    """
    if not bench.alone:
        raise NotApplicable("the checks share this process with a debugger")
    _ = bench.finished
    written = sorted(str(path) for folder in (Path.cwd(), Path.home()) for path in folder.rglob("*") if path.is_file())
    if written:
        raise Broken(f"it wrote {', '.join(written[:3])}", bench.backend.open)


def story(bench: BackendHarness, killed: bool) -> None:
    """Run a client's life in a separate process: to the end, or killed after a build."""
    session, tuner = bench.imported("life")
    if killed:
        tuner.build(tuner.select(bench.subject.count, bench.lease("select")), bench.lease("build"))
        os._exit(KILLED)
    bench.whole(session, tuner)
    session.kill()
    os._exit(0)


def _live(bench: BackendHarness, how: str) -> None:
    """Run a client's life in this bench's folder."""
    words = isolated_python.command("autosched.conformance.check_process", "story", how, str(bench.folder))
    order = msgspec.json.encode(bench.subject)
    environment = {**os.environ, MARK: str(bench.folder)}
    ended = subprocess.run(words, input=order, env=environment, stdout=2, timeout=STORY_S)
    if ended.returncode != (KILLED if how == "killed" else 0):
        raise Broken(f"a small job in a process of its own ended with exit code {ended.returncode}", bench.backend.open)


def it_leaves_no_process_behind(bench: BackendHarness) -> None:
    """When a client has ended, no process that it started runs on.

    kill() without a lease ends all; a process in a session of its own must notice by itself that its parent is gone.
    """
    _live(bench, "whole")
    mark = f"{MARK}={bench.folder}".encode()
    until = time.monotonic() + GONE_PER_KILL * bench.subject.kill_s
    while left := [pid for pid in filter(str.isdecimal, os.listdir("/proc")) if mark in _fields(pid, "environ")]:
        if time.monotonic() > until:
            command = b" ".join(_fields(left[0], "cmdline")).decode(errors="replace")
            raise Broken(f"still there: process {left[0]}, {command[:200]}", bench.backend.open)
        time.sleep(0.02)


def _fields(pid: str, file: str) -> list[bytes]:
    """Fields of a file of a process in /proc; empty if the process is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")
    except OSError:
        return []


def it_begins_again_after_a_crash(bench: BackendHarness) -> None:
    """A client that was killed in the middle of a job is replaced by one in the same work folder, with its leftovers.

    Clear or overwrite your own files in open(): `mkdir(exist_ok=True)`; take no half-written file for a whole one.
    """
    _live(bench, "killed")
    session, tuner = bench.imported("life")
    bench.whole(session, tuner)


CHECKS: tuple[Check, ...] = (
    kill_ends_a_stage,
    kill_ends_what_hangs,
    kill_spares_other_leases,
    kill_of_nothing_is_harmless,
    a_session_goes_on_after_a_kill,
    tasks_work_side_by_side,
    memory_is_bounded,
    it_says_little,
    it_leaves_no_process_behind,
    it_begins_again_after_a_crash,
    it_writes_nowhere_else,
)
