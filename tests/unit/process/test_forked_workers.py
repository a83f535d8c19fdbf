"""Workers with functions of the standard library: effects on processes, without kernels."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from autosched.backend import Lease
from autosched.errors import DeviceLost, StepFailed
from autosched.process.forked_workers import Died, Killed, Raised, TimedOut, Worker, Workers, prepare
from autosched_tvm import worker_messages
from deadlines import DEADLINE_S
from processes import dies

pytestmark = pytest.mark.tvm
LONG_S = 60.0
CORE = (min(os.sched_getaffinity(0)),)


def lease(step: int = 1, cores: tuple[int, ...] = CORE) -> Lease:
    return Lease("profile", ("cpu0",), cores, LONG_S, step)


@pytest.fixture(scope="module", autouse=True)
def _prepared() -> None:
    prepare(worker_messages.PRELOAD)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(CORE, tmp_path / "log")
    yield made
    made.close()


def eventually(fact: Callable[[], bool], within_s: float = DEADLINE_S) -> bool:
    deadline = time.monotonic() + within_s
    while not fact():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.01)
    return True


def test_a_call_is_answered_on_the_cores(worker: Worker) -> None:
    assert worker.call("os:getpid", timeout_s=LONG_S) == worker.pid
    assert worker.call("os:sched_getaffinity", 0, timeout_s=LONG_S) == set(CORE)
    assert worker.call("os:getenv", "TVM_BIND_THREADS", timeout_s=LONG_S) == "0"


def test_an_exception_is_told_and_the_worker_lives(worker: Worker) -> None:
    with pytest.raises(Raised, match="No such file") as raised:
        worker.call("os:listdir", "/nowhere", timeout_s=LONG_S)
    assert raised.value.kind == "FileNotFoundError"
    assert worker.call("os:getpid", timeout_s=LONG_S) == worker.pid


@pytest.mark.parametrize(("number", "name"), [(signal.SIGSEGV, "SIGSEGV"), (signal.SIGABRT, "SIGABRT")])
def test_a_crash_is_named(worker: Worker, number: int, name: str) -> None:
    with pytest.raises(Died, match=name):
        worker.call("signal:raise_signal", number, timeout_s=LONG_S)
    assert not worker.usable


def test_a_worker_ends_after_an_exception_that_leaves_it_useless(tmp_path: Path) -> None:
    workers = Workers(tmp_path, recycle_after=100)
    said = "class Fault(Exception):\n    ends_process = True\nraise Fault('the GPU reports an error')"
    first = workers.call("profile", lease(), "os:getpid", timeout_s=LONG_S)
    with pytest.raises(Raised, match="the GPU reports an error") as raised:
        workers.call("profile", lease(), "builtins:exec", said, timeout_s=LONG_S)
    assert raised.value.kind == "Fault"
    assert not psutil.pid_exists(first)
    assert workers.call("profile", lease(), "os:getpid", timeout_s=LONG_S) != first
    workers.kill()


def test_the_loss_of_a_device_is_told_as_what_it_is(worker: Worker) -> None:
    said = "from autosched.errors import DeviceLost; raise DeviceLost('the session with the board was lost')"
    with pytest.raises(DeviceLost, match="the session with the board was lost") as lost:
        worker.call("builtins:exec", said, timeout_s=DEADLINE_S)
    assert lost.value.candidate is None
    assert worker.usable


def test_an_exit_is_noticed(worker: Worker) -> None:
    with pytest.raises(Died, match="exit code 3"):
        worker.call("os:_exit", 3, timeout_s=LONG_S)


def test_a_stuck_worker_is_killed(worker: Worker) -> None:
    with pytest.raises(TimedOut, match="within 0 s"):
        worker.call("time:sleep", LONG_S, timeout_s=0.2)
    assert dies(worker.pid)


def test_a_frozen_worker_is_noticed_by_the_parent(worker: Worker) -> None:
    worker.call("os:getpid", timeout_s=LONG_S)
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(TimedOut):
        worker.call("os:getpid", timeout_s=0.2)
    assert dies(worker.pid)


def test_processor_time_is_limited_and_given_back(worker: Worker) -> None:
    worker.call("math:factorial", 10, timeout_s=LONG_S, processor_s=1.0)
    worker.call("time:sleep", 0.01, timeout_s=LONG_S)
    with pytest.raises(TimedOut, match="processor time"):
        worker.call("math:factorial", 10_000_000, timeout_s=LONG_S, processor_s=0.5)


def test_a_killed_worker_ends_the_step(worker: Worker) -> None:
    worker.call("os:getpid", timeout_s=LONG_S)
    threading.Timer(0.1, worker.kill).start()
    with pytest.raises(Killed) as raised:
        worker.call("time:sleep", LONG_S, timeout_s=LONG_S)
    assert isinstance(raised.value, StepFailed)


def test_what_a_worker_started_dies_with_it(worker: Worker) -> None:
    ours = f"{LONG_S + os.getpid()}"  # other runs of this test may be in progress

    def sleeps() -> bool:
        return any(p.info["cmdline"] == ["sleep", ours] for p in psutil.process_iter(["cmdline"]))

    def kill() -> None:
        assert eventually(sleeps)
        worker.kill()

    with ThreadPoolExecutor() as pool:
        killing = pool.submit(kill)
        with pytest.raises(Killed):
            worker.call("os:system", f"sleep {ours}", timeout_s=LONG_S)
        killing.result()
    assert dies(worker.pid)
    assert eventually(lambda: not sleeps())


def test_the_number_of_a_dead_worker_is_not_killed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers, hit = Workers(tmp_path, recycle_after=100), list[int]()
    dead = workers.call("build", lease(), "os:getpid", timeout_s=LONG_S)
    workers.kill()
    assert eventually(lambda: not psutil.pid_exists(dead)), "as long as it is a zombie, its number is its own"
    kill, killpg = os.kill, os.killpg
    monkeypatch.setattr(os, "kill", lambda pid, number: (hit.append(pid), kill(pid, number)))
    monkeypatch.setattr(os, "killpg", lambda pid, number: (hit.append(pid), killpg(pid, number)))
    workers.kill()
    assert workers.call("build", lease(), "os:getpid", timeout_s=LONG_S) != dead
    assert dead not in hit
    workers.kill()
    assert hit, "a living one's group dies with it"


def test_workers_stay_warm_and_are_recycled(tmp_path: Path) -> None:
    workers = Workers(tmp_path, recycle_after=2)
    pids = [workers.call("build", lease(), "os:getpid", timeout_s=LONG_S) for _ in range(5)]
    workers.kill()
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    assert all(dies(pid) for pid in pids)


def test_a_dead_worker_is_replaced(tmp_path: Path) -> None:
    workers = Workers(tmp_path, recycle_after=100)
    with pytest.raises(Died):
        workers.call("build", lease(), "os:abort", timeout_s=LONG_S)
    pid = workers.call("build", lease(), "os:getpid", timeout_s=LONG_S)
    os.kill(pid, signal.SIGKILL)
    assert dies(pid)
    assert workers.call("build", lease(), "os:getpid", timeout_s=LONG_S) != pid
    workers.kill()


@pytest.mark.parametrize("cores", [CORE, ()], ids=["pinned", "without cores"])
def test_only_the_workers_of_a_lease_are_killed(tmp_path: Path, cores: tuple[int, ...]) -> None:
    """For a device without cores all workers of its job were once killed, and for two leases on one core both."""
    workers = Workers(tmp_path, recycle_after=100)
    doomed, spared = lease(1, cores), lease(2, cores)
    begun = [tmp_path / "doomed", tmp_path / "spared"]

    def sleep(held: Lease, mark: Path) -> int:
        return int(workers.call("profile", held, "os:system", f"touch {mark}; sleep 1", timeout_s=LONG_S))

    with ThreadPoolExecutor() as pool:
        killed, going_on = (pool.submit(sleep, *one) for one in zip((doomed, spared), begun, strict=True))
        assert eventually(lambda: all(mark.exists() for mark in begun))
        workers.kill(doomed)
        with pytest.raises(Killed):
            killed.result(LONG_S)
        assert going_on.result(LONG_S) == 0
    workers.kill()


def test_a_lease_that_was_killed_starts_nothing_more(tmp_path: Path) -> None:
    workers = Workers(tmp_path, recycle_after=100)
    workers.kill(lease(1))
    with pytest.raises(Killed):
        workers.once(lease(1), "os:getpid", timeout_s=LONG_S)
    with pytest.raises(Killed):
        workers.call("build", lease(1), "os:getpid", timeout_s=LONG_S)
    assert workers.call("build", lease(2), "os:getpid", timeout_s=LONG_S)
    workers.kill()


def test_some_cores_of_a_lease_are_enough(tmp_path: Path) -> None:
    workers = Workers(tmp_path, recycle_after=100)
    pid = workers.call("build", lease(cores=(0, 1)), "os:getpid", timeout_s=LONG_S, cores=CORE)
    assert os.sched_getaffinity(pid) == set(CORE)
    workers.kill()


def test_idle_workers_of_a_role_are_ended(tmp_path: Path) -> None:
    workers = Workers(tmp_path, recycle_after=100)
    network, builder = (workers.call(role, lease(), "os:getpid", timeout_s=LONG_S) for role in ("network", "build"))
    workers.dismiss("network")
    assert dies(network)
    assert workers.call("network", lease(), "os:getpid", timeout_s=LONG_S) != network
    assert workers.call("build", lease(), "os:getpid", timeout_s=LONG_S) == builder


def test_a_process_for_one_call_ends_with_it(tmp_path: Path) -> None:
    assert dies(Workers(tmp_path, recycle_after=9).once(lease(), "os:getpid", timeout_s=LONG_S))


@pytest.mark.parametrize(("number", "words"), [(signal.SIGKILL, "memory"), (signal.SIGILL, "--target")])
def test_a_crash_leaves_no_core_file_and_says_what_may_be_meant(worker: Worker, number: int, words: str) -> None:
    assert worker.call("resource:getrlimit", resource.RLIMIT_CORE, timeout_s=LONG_S) == (0, 0)
    with pytest.raises(Died, match=words):
        worker.call("signal:raise_signal", number, timeout_s=LONG_S)


def test_sockets_of_workers_have_room_in_a_long_temporary_folder(tmp_path: Path) -> None:
    long = tmp_path / ("a" * 120)
    long.mkdir()
    program = (
        "from pathlib import Path\n"
        "from autosched.process.forked_workers import Worker, prepare\n"
        f"prepare({worker_messages.PRELOAD!r})\n"
        f"worker = Worker({CORE!r}, Path({str(tmp_path / 'log')!r}))\n"
        "print(worker.call('os:getpid', timeout_s=60.0) == worker.pid)\n"
        "worker.close()\n"
    )
    command = [sys.executable, "-P", "-c", program]
    environment = {**os.environ, "TMPDIR": str(long)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
    assert list(long.iterdir()) == []
