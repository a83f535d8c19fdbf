"""Number of threads of a loaded network: the cores for which it was tuned, without further settings."""

import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

tvm = pytest.importorskip("tvm")

from autosched_runtime import thread_pool  # noqa: E402
from autosched_runtime.errors import NetworkError  # noqa: E402
from autosched_runtime.network import Network  # noqa: E402
from unit.autosched_runtime.small_networks import X, tuned_for, written  # noqa: E402

pytestmark = pytest.mark.tvm


def aside(work: Callable[[], Any]) -> Any:
    """Runs the function in a new thread, which has no pool yet; returns its result."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("network") / "net.so")


def workers() -> int:
    return len(os.listdir("/proc/self/task"))


def test_a_pool_has_as_many_threads_as_are_asked_for(network: Path) -> None:
    def run() -> tuple[int, int]:
        before = workers()
        thread_pool.use(3)
        return thread_pool.in_use(), workers() - before

    assert aside(run) == (3, 2), "the calling thread is the third one"


def test_a_pool_can_be_used_in_part() -> None:
    def run() -> list[int]:
        found = []
        for count in (2, 1, 2):
            thread_pool.use(count)
            found.append(thread_pool.in_use())
        return found

    assert aside(run) == [2, 1, 2]


def test_number_of_threads_can_be_chosen(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tuned_for(network, 3)
    monkeypatch.setenv(thread_pool.VARIABLE, "2")
    assert (Network(path).threads, Network(path, threads=5).threads) == (2, 5)
    with pytest.raises(NetworkError, match="at least 1 is needed"):
        Network(path, threads=0)


def test_no_more_threads_than_usable_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(thread_pool.VARIABLE, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {4, 7})
    assert [thread_pool.default(tuned) for tuned in (1, 2, 8)] == [1, 2, 2]
    monkeypatch.setenv(thread_pool.VARIABLE, "all")
    assert thread_pool.default(8) == 2


def test_caller_stays_on_its_cores(network: Path) -> None:
    module = Network(tuned_for(network, 1), threads=2)
    core = max(os.sched_getaffinity(0))

    def run() -> set[int]:
        os.sched_setaffinity(0, {core})
        module.run([X])
        return os.sched_getaffinity(0)

    assert aside(run) == {core}


@pytest.mark.parametrize(("quota", "threads"), [(0.5, 1), (1.5, 2), (3.0, 3), (math.inf, 4)])
def test_no_more_threads_than_the_quota_of_the_control_group(
    quota: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(thread_pool.VARIABLE, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    monkeypatch.setattr(thread_pool, "cpu_quota", lambda: quota)
    assert thread_pool.default(8) == threads
