"""Rounds of a race between engines, and the processes of the engines."""

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from autosched.backend import Lease
from autosched.process.forked_workers import Died, Killed, Raised, Workers, prepare
from autosched_tvm import worker_messages
from autosched_tvm.evaluation import engine_benchmark, model_forms
from autosched_tvm.evaluation.engine_benchmark import EngineBenchmark, EngineProcess, race, why_none
from autosched_tvm.worker_messages import Form

LONG_S = 120.0
CORE = (min(os.sched_getaffinity(0)),)
LEASE = Lease("evaluate", ("cpu0",), CORE, LONG_S)


class Fake:
    """A racer with scripted latencies."""

    def __init__(self, name: str, once_s: float, log: list[str] | None = None, *, dies_after: int = 10**9) -> None:
        self.name, self.once_s, self.log, self.left = name, once_s, [] if log is None else log, dies_after
        self.asked: list[tuple[int, int]] = []

    def sample(self, number: int, warm: int) -> float:
        self.left -= 1
        if self.left < 0:
            raise Died("gone")
        self.asked.append((number, warm))
        self.log.append(self.name)
        return self.once_s


def test_each_round_has_a_different_order() -> None:
    log: list[str] = []
    names = "abcd"
    race([Fake(name, 0.01, log) for name in names], budget_s=1e9)
    rounds = ["".join(log[i : i + 4]) for i in range(12, len(log), 4)]
    assert all(sorted(one) == list(names) for one in rounds)
    follows = Counter(pairwise("".join(rounds)))
    assert len(set(rounds)) > 10
    assert max(follows.values()) < len(rounds), "no engine always follows the same other one"


def test_samples_fill_a_turn_and_begin_after_warm_up() -> None:
    fast, slow = Fake("fast", engine_benchmark.TURN_S / 10), Fake("slow", engine_benchmark.WARM_S)
    race([fast, slow], budget_s=1.0)
    assert (fast.asked[-1], slow.asked[-1]) == ((10, 1), (1, 0))


def test_a_slow_build_leaves_the_others_their_rounds() -> None:
    slow, fast = Fake("slow", 0.5), Fake("fast", 1e-3)
    timings = race([slow, fast], budget_s=4.0).timings
    assert [len(t.samples_s) for t in timings] == [4, 40]


def test_a_secondary_contestant_gets_few_rounds() -> None:
    timings = race([Fake("default", 0.01), Fake("tuned", 0.01)], budget_s=1e9, few={"default": 7}).timings
    assert [len(t.samples_s) for t in timings] == [7, engine_benchmark.ROUNDS_MAX]


@pytest.mark.parametrize(
    ("seconds", "rounds"),
    [
        ((0.01, 0.013), engine_benchmark.CLEAR_ROUNDS),  # far apart
        ((0.01, 0.0115), engine_benchmark.ROUNDS_MAX),  # near each other
        ((0.01,), engine_benchmark.CLEAR_ROUNDS),  # no rival
    ],
)
def test_a_race_with_a_clear_result_ends_early(seconds: tuple[float, ...], rounds: int) -> None:
    racers = [Fake("default", 0.09), *(Fake(f"racer{n}", once_s) for n, once_s in enumerate(seconds))]
    timings = race(racers, budget_s=1e9, few={"default": 17}, until_clear=True).timings
    assert [len(t.samples_s) for t in timings] == [17, *(rounds for _ in seconds)]


@pytest.mark.parametrize(
    ("once_s", "samples", "calls"),
    [
        (0.02, engine_benchmark.ROUNDS_MIN, 12),  # several calls are a sample
        (0.3, 2, 3),
        (engine_benchmark.SLOW_S, 1, 1),
    ],
)
def test_a_secondary_contestant_that_is_far_behind_gets_fewest_rounds(once_s: float, samples: int, calls: int) -> None:
    default = Fake("default", once_s)
    timings = race([default, Fake("tuned", 1e-3)], budget_s=1e9, few={"default": 17}, until_clear=True).timings
    assert [len(t.samples_s) for t in timings] == [samples, engine_benchmark.CLEAR_ROUNDS]
    assert sum(number + warm for number, warm in default.asked) == calls, "of which each may take half a minute"


def test_a_noisy_race_is_not_clear() -> None:
    noisy = Fake("noisy", 0.01)
    noise = iter([1.0, 1.5] * 1_000)
    sample = noisy.sample
    racer: Any = noisy
    racer.sample = lambda number, warm: sample(number, warm) * next(noise)
    timings = race([racer, Fake("rival", 0.1)], budget_s=1e9, until_clear=True).timings
    assert [len(t.samples_s) for t in timings] == [engine_benchmark.ROUNDS_MAX] * 2


@pytest.mark.parametrize("once_s", [0.5, engine_benchmark.SLOW_S])
def test_without_time_each_contestant_is_measured_three_times(once_s: float) -> None:
    found = race([Fake("only", once_s)], budget_s=0.0)
    assert len(found.timings[0].samples_s) == engine_benchmark.ROUNDS_MIN


@pytest.mark.parametrize("dies_after", [0, 5])
def test_a_contestant_that_crashes_leaves_the_others_running(dies_after: int) -> None:
    found = race([Fake("tuned", 0.01), Fake("onnxruntime", 0.01, dies_after=dies_after)], budget_s=1e9)
    assert [t.name for t in found.timings] == ["tuned"]
    assert found.lost == {"onnxruntime": "gone"}


def test_a_killed_contestant_ends_the_race() -> None:
    racer: Any = Fake("tuned", 0.01)

    def sample(_number: int, _warm: int) -> float:
        raise Killed("the step must end")

    racer.sample = sample
    with pytest.raises(Killed):
        race([racer], budget_s=1.0)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Raised("ModuleNotFoundError", "No module named 'onnxruntime'"), "ONNX Runtime is not installed"),
        (Raised("Fail", "[ONNXRuntimeError] no kernel"), "ONNX Runtime cannot run the model: .*no kernel"),
        (Raised("MemoryError", ""), "ONNX Runtime cannot run the model: MemoryError"),
        (Died("the process ended with SIGSEGV"), "ONNX Runtime crashed on the model: .*SIGSEGV"),
    ],
)
def test_a_missing_rival_is_explained(error: Any, words: str) -> None:
    assert re.match(words, why_none(error))


# Forms of a model ---------------------------------------------------------------------------------------------------


def dynamic_model() -> Any:
    """y = relu(x W + 0), for any number of rows."""
    weights = numpy_helper.from_array(np.eye(4, dtype="float32"), "w")
    zero = numpy_helper.from_array(np.zeros(4, "float32"), "zero")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Identity", ["a"], ["b"]),
        helper.make_node("Add", ["b", "zero"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 4])
    graph = helper.make_graph(nodes, "g", [x], [y], [weights, zero])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def shape(value: Any) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def test_fixed_shapes_reach_outputs_of_the_same_dimension() -> None:
    model = dynamic_model()
    fixed = model_forms.with_shapes(model, {"x": (3, 4)})
    assert (shape(fixed.graph.input[0]), shape(fixed.graph.output[0])) == ([3, 4], [3, 4])
    assert shape(model.graph.input[0]) == [0, 4], "the model itself stays as it is"


def test_only_forms_that_differ_are_written(tmp_path: Path) -> None:
    onnx.save(dynamic_model(), str(path := tmp_path / "net.onnx"))
    made = model_forms.write(str(path), {"x": (3, 4)}, str(tmp_path / "forms"))
    assert [form.name for form in made] == [worker_messages.AS_IT_IS, worker_messages.FIXED, worker_messages.SIMPLIFIED]
    again = model_forms.write(made[-1].path, {"x": (3, 4)}, str(tmp_path / "again"))
    assert again == [Form(worker_messages.AS_IT_IS, made[-1].path)]


# Processes ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def _prepared() -> None:
    prepare(worker_messages.PRELOAD)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path / "logs", recycle_after=100)
    yield made
    made.kill()


def processes(workers: Workers) -> list[psutil.Process]:
    return [psutil.Process(worker.pid) for worker in workers._busy]


@pytest.mark.tvm
def test_contestants_are_frozen_between_turns_and_end_with_the_race(workers: Workers) -> None:
    with EngineBenchmark(workers, LEASE) as fight:
        sleeper = EngineProcess("sleeper", worker := workers.start("engine", LEASE), lambda: fight.left_s)
        fight._running[sleeper] = worker
        assert sleeper.ask("os:getpid") == worker.pid
        process = psutil.Process(worker.pid)
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
        assert sleeper.ask("os:getpid") == worker.pid, "it goes on when it is asked"
    wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    assert not workers._busy


def wait_until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.tvm
def test_the_rival_is_the_fastest_form_and_the_other_forms_end(workers: Workers, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    onnx.save(dynamic_model(), str(path := tmp_path / "net.onnx"))
    (bad := tmp_path / "bad.onnx").write_bytes(b"no model")
    inputs = {"x": np.arange(12, dtype="float32").reshape(3, 4)}
    offered = [Form("bad", str(bad)), *model_forms.write(str(path), {"x": (3, 4)}, str(tmp_path / "forms"))]
    with EngineBenchmark(workers, LEASE) as fight:
        rival = fight.rival(offered, inputs)
        assert not isinstance(rival, str)
        by_name = {timing.name: timing.median_s for timing in rival.forms}
        assert by_name.keys() == {worker_messages.AS_IT_IS, worker_messages.FIXED, worker_messages.SIMPLIFIED}
        assert rival.form == min(by_name, key=lambda name: by_name[name])
        np.testing.assert_array_equal(rival.expected[0], inputs["x"])
        assert len(processes(workers)) == 1, "the other forms have left"
        assert [t.name for t in race([rival.contestant], 0.0).timings] == ["onnxruntime"]
        plain, _version = fight.onnxruntime("plain", str(path), optimised=False)
        np.testing.assert_array_equal(plain.run(inputs)[0], inputs["x"])


@pytest.mark.tvm
def test_a_model_that_onnx_runtime_cannot_run_has_no_rival(workers: Workers, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (bad := tmp_path / "bad.onnx").write_bytes(b"no model")
    with EngineBenchmark(workers, LEASE) as fight:
        assert str(fight.rival([Form("bad", str(bad))], {})).startswith("ONNX Runtime cannot run the model: ")
        assert not workers._busy
