"""Number of threads of a loaded network: the cores for which it was tuned, without further settings."""

import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from tvm import relax  # noqa: E402

from autosched.errors import RequestError  # noqa: E402
from autosched_tvm.device import thread_pool  # noqa: E402
from autosched_tvm.device.loaded_module import LoadedModule  # noqa: E402

pytestmark = pytest.mark.tvm
X = np.arange(64, dtype="float32")


def aside(work: Callable[[], Any]) -> Any:
    """Runs the function in a new thread, which has no pool yet; returns its result."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of one parallel kernel, x + x."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    module = relax.transform.LegalizeOps()(builder.get())
    schedule = tvm.s_tir.Schedule(module)
    schedule.work_on("add")
    schedule.parallel(schedule.get_loops(schedule.get_sblock("T_add"))[0])
    path = tmp_path_factory.mktemp("network") / "net.so"
    tvm.compile(schedule.mod, target=tvm.target.Target({"kind": "llvm"})).export_library(str(path))
    return path


def tuned_for(network: Path, cores: int) -> Path:
    tensor = {"name": "x", "shape": [64], "dtype": "float32"}
    side = {
        "format": 1, "name": "net", "build": "tuned", "inputs": [tensor], "outputs": [tensor], "versions": {},
        "target": {"kind": "llvm", "num-cores": cores},
    }  # fmt: skip
    network.with_suffix(".json").write_text(json.dumps(side))
    return network


def workers() -> int:
    return len(os.listdir("/proc/self/task"))


def test_network_starts_as_many_threads_as_it_was_tuned_for(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(thread_pool.VARIABLE, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2})
    module = LoadedModule(tuned_for(network, 3))

    def run() -> tuple[int, int]:
        before = workers()
        np.testing.assert_array_equal(module.run([X])[0], X + X)
        return thread_pool.in_use(), workers() - before

    assert aside(run) == (3, 2), "the calling thread is the third one"


def test_network_runs_in_several_threads_with_a_pool_each(network: Path) -> None:
    module = LoadedModule(tuned_for(network, 1), threads=2)
    for _ in range(2):
        assert aside(lambda: (module.run([X]), thread_pool.in_use())[1]) == 2


def test_number_of_threads_can_be_chosen(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tuned_for(network, 3)
    monkeypatch.setenv(thread_pool.VARIABLE, "2")
    assert (LoadedModule(path).threads, LoadedModule(path, threads=5).threads) == (2, 5)
    with pytest.raises(RequestError, match="at least 1 is needed"):
        LoadedModule(path, threads=0)


def test_no_more_threads_than_usable_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(thread_pool.VARIABLE, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {4, 7})
    assert [thread_pool.default(tuned) for tuned in (1, 2, 8)] == [1, 2, 2]
    monkeypatch.setenv(thread_pool.VARIABLE, "all")
    assert thread_pool.default(8) == 2


def test_caller_stays_on_its_cores(network: Path) -> None:
    module = LoadedModule(tuned_for(network, 1), threads=2)
    core = max(os.sched_getaffinity(0))

    def run() -> set[int]:
        os.sched_setaffinity(0, {core})
        module.run([X])
        return os.sched_getaffinity(0)

    assert aside(run) == {core}


def test_a_pool_that_cannot_grow_is_reported(network: Path, caplog: pytest.LogCaptureFixture) -> None:
    small, large = LoadedModule(tuned_for(network, 1), threads=1), LoadedModule(network, threads=2)

    def run() -> list[int]:
        found = []
        for module in (large, small, large):
            module.run([X])
            found.append(thread_pool.in_use())
        return found

    assert aside(run) == [2, 1, 2]
    with caplog.at_level(logging.WARNING):
        assert aside(lambda: (small.run([X]), large.run([X]), thread_pool.in_use())[2]) == 1
    assert "on 1 of 2 threads" in caplog.text
