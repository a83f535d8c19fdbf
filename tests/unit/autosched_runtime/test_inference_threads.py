"""Networks in a server: many threads, threads that end, and forks."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from autosched_runtime import thread_pool  # noqa: E402
from autosched_runtime.cpu_features import HIDDEN  # noqa: E402
from autosched_runtime.errors import NetworkError  # noqa: E402
from autosched_runtime.inference_threads import InferenceThreads  # noqa: E402
from autosched_runtime.network import Network  # noqa: E402
from deadlines import DEADLINE_S  # noqa: E402
from unit.autosched_runtime.small_networks import X, tuned_for, written  # noqa: E402

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("network") / "net.so")


def aside(work: Callable[[], Any]) -> Any:
    """Returns the result of a function in a new thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(DEADLINE_S)


def threads() -> int:
    """Number of threads of this process, of all kinds."""
    return len(os.listdir("/proc/self/task"))


def in_fork(work: Callable[[], bool]) -> bool:
    """Returns whether a function returns True in a forked process within the deadline."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(DEADLINE_S))
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("size", [1, 2])
def test_results_in_eight_threads_are_equal_to_the_bit(network: Path, size: int) -> None:
    module = Network(tuned_for(network, 1), threads=size)

    def runs(seed: int) -> bool:
        x = np.random.default_rng(seed).random(64).astype("float32")
        return all(np.array_equal(module.run([x])[0], x + x) for _ in range(200))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(runs, range(8), timeout=DEADLINE_S))


def test_threads_that_end_leave_nothing(network: Path) -> None:
    module = Network(tuned_for(network, 1), threads=2)

    def run() -> float:
        return float(module.run([X])[0].sum())

    for _ in range(4):
        aside(run)
    before = threads()
    for _ in range(100):
        aside(run)
    assert threads() <= before + 2


@pytest.mark.parametrize("size", [1, 2])
def test_a_forked_process_runs_networks(network: Path, size: int) -> None:
    module = Network(tuned_for(network, 1), threads=size)

    def right() -> bool:
        return all(np.array_equal(module.run([X])[0], X + X) for _ in range(3))

    assert in_fork(right), "before the first inference"
    assert right()
    assert aside(right)
    assert in_fork(right), "after inferences in two threads"
    assert in_fork(lambda: aside(right)), "in another thread of the forked process"
    assert in_fork(lambda: in_fork(right)), "in a process that a forked one forked"
    assert right()


@pytest.mark.parametrize("last", [1, 2])
def test_a_forked_process_does_not_use_workers_of_the_parent(network: Path, last: int) -> None:
    """The first process has no leader, so that a new thread leads with two threads, and forks."""
    two, other = Network(tuned_for(network, 1), threads=2), Network(network, threads=last)

    def right() -> bool:
        return all(np.array_equal(module.run([X])[0], X + X) for module in (two, other))

    assert in_fork(lambda: bool(aside(lambda: right() and in_fork(right))))


def test_a_thread_leads_no_more_threads_than_its_pool_has() -> None:
    def led() -> bool:
        thread_pool.use(1)
        crew = InferenceThreads()
        return crew.mine(2) is None and crew.mine(1) is not None

    assert aside(led)


def test_a_fork_waits_for_inferences_of_other_threads(network: Path) -> None:
    module = Network(tuned_for(network, 1), threads=2)
    over = threading.Event()

    def run() -> int:
        count = 0
        while not over.is_set():
            module.run([X])
            count += 1
        return count

    with ThreadPoolExecutor(2) as pool:
        counts = [pool.submit(run) for _ in range(2)]
        try:
            assert all(in_fork(lambda: np.array_equal(module.run([X])[0], X + X)) for _ in range(10))
        finally:
            over.set()
        assert all(count.result(DEADLINE_S) for count in counts)


def test_a_fork_waits_for_networks_that_are_loaded(network: Path) -> None:
    path = tuned_for(network, 1)
    over = threading.Event()

    def load() -> int:
        count = 0
        while not over.is_set():
            Network(path, threads=1)
            count += 1
        return count

    with ThreadPoolExecutor(1) as pool:
        count = pool.submit(load)
        try:
            assert all(in_fork(lambda: np.array_equal(Network(path).run([X])[0], X + X)) for _ in range(50))
        finally:
            over.set()
        assert count.result(DEADLINE_S)


def test_two_modules_with_different_numbers_of_threads_run_in_turns(network: Path) -> None:
    one, two = Network(tuned_for(network, 1), threads=1), Network(network, threads=2)

    def run() -> bool:
        return all(np.array_equal(module.run([X])[0], X + X) for _ in range(3) for module in (one, two))

    assert run()
    assert aside(run)


def test_the_leader_runs_kernels_itself_and_executors_do_for_others() -> None:
    crew = InferenceThreads()
    own = crew.mine(1)
    assert own is not None
    assert crew.mine(1) is own
    assert crew.mine(2) is None, "its pool cannot grow"
    assert aside(lambda: crew.mine(1)) is None
    assert crew.run(2, lambda context: (context.threads, threading.current_thread().name[:11])) == (2, "inference-2")
    assert crew.run(1, lambda context: crew.mine(1) is context), "work within work stays in its thread"


def test_no_thread_leads_after_the_leader_has_ended() -> None:
    """A new thread may have the leader's identifier, and does not have its pool."""
    crew = InferenceThreads()
    assert aside(lambda: crew.mine(1)) is not None
    assert [aside(lambda: crew.mine(1)) for _ in range(10)] == [None] * 10


def test_a_module_for_a_newer_cpu_is_refused_when_it_is_loaded(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feature = "avx2" if os.uname().machine == "x86_64" else "dotprod"
    path = tuned_for(network, 1, feature)
    monkeypatch.setenv(HIDDEN, feature)
    with pytest.raises(NetworkError, match=rf"net.so was compiled for a CPU with .*{feature}.*with the --target"):
        Network(path)
