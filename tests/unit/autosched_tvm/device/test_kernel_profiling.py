"""Outputs of a kernel, and their allowed errors."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

import tvm  # noqa: E402

from autosched.backend import Board  # noqa: E402
from autosched_tvm.device import kernel_profiling  # noqa: E402
from autosched_tvm.device.kernel_profiling import Bench, WrongResult  # noqa: E402
from autosched_tvm.device.place import ThisProcess  # noqa: E402
from autosched_tvm.worker_messages import Remote  # noqa: E402

FLAT = [((4,), "int32"), ((4,), "int32")]


def made(monkeypatch: pytest.MonkeyPatch, buffers: list[tuple[tuple[int, ...], str]], value: float) -> Bench:
    """Returns a bench whose reference fills the last buffer with `value`."""

    class Reference(ThisProcess):
        def load(self, path: str) -> Any:
            return {"main": lambda *tensors: tensors[-1].copyfrom(np.full(buffers[-1][0], value, buffers[-1][1]))}

    monkeypatch.setattr(kernel_profiling, "arguments", lambda _: buffers)
    return Bench("task", str(Path("reference")), Reference())


def test_an_output_of_zeros_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = made(monkeypatch, FLAT, 0)
    bench.check()
    bench.clear()
    with pytest.raises(WrongResult, match="output 1"):
        bench.check()


@pytest.mark.parametrize(("dtype", "error", "right"), [("int8", 1, True), ("uint8", 2, False), ("int32", 1, False)])
def test_a_quantised_result_may_be_the_next_level_and_a_sum_must_be_exact(
    dtype: str, error: int, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = made(monkeypatch, [((4,), dtype)], 100)
    bench.buffers[0].copyfrom(np.full(4, 100 + error, dtype))
    with nullcontext() if right else pytest.raises(WrongResult, match="output 0"):
        bench.check()


def test_quantised_inputs_have_all_values_and_indices_are_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = made(monkeypatch, [((4096,), "int8"), ((4096,), "uint8"), ((4096,), "int32"), ((4,), "float32")], 1)
    signed, unsigned, indices, _ = bench.inputs
    assert (signed.min(), signed.max(), unsigned.min(), unsigned.max()) == (-128, 127, 0, 255)
    assert not indices.any()


@pytest.mark.parametrize(("dtype", "right"), [("float32", False), ("float16", True)])
def test_half_precision_may_differ_in_the_third_digit(dtype: str, right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = made(monkeypatch, [((4,), dtype)], 100.0)
    bench.buffers[0].copyfrom(np.full(4, 100.5, dtype))
    if right:
        bench.check()
    else:
        with pytest.raises(WrongResult):
            bench.check()


@pytest.mark.parametrize(
    ("first_s", "warm_s", "best_s", "samples"),
    [
        (0.009, 0.001, None, 3),
        (0.009, 0.0012, 0.001, 3),
        (0.009, 0.004, 0.001, 1),
        (0.009, 0.006, 0.001, 1),
        (0.030, 0.001, 0.001, 1),
        (0.009, 0.001, 0.001, 3),
    ],
    ids=["nothing known", "not bad", "slow", "hopeless when warm", "hopeless at once", "slow only when cold"],
)
def test_a_hopelessly_slow_candidate_gets_no_further_samples(
    first_s: float, warm_s: float, best_s: float | None, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = object()
    monkeypatch.setattr(kernel_profiling, "bench", lambda *_: made(monkeypatch, FLAT, 0))
    monkeypatch.setattr(kernel_profiling, "_checked", lambda *_: first_s)
    monkeypatch.setattr(Bench, "sample", lambda *_: warm_s)
    monkeypatch.setattr(ThisProcess, "load", lambda _self, _path: module)
    found = kernel_profiling.profile("task", "reference", "artifact", kernel_profiling.MeasurementPlan(best_s=best_s))
    assert len(found) == samples
    assert found[0] == (first_s if first_s > 0.02 else warm_s)


def test_on_a_board_the_first_call_is_ignored_since_it_contains_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_profiling, "place_of", lambda _: nullcontext(ThisProcess()))
    monkeypatch.setattr(kernel_profiling, "bench", lambda *_: made(monkeypatch, FLAT, 0))
    monkeypatch.setattr(kernel_profiling, "_checked", lambda *_: 0.050)
    monkeypatch.setattr(Bench, "sample", lambda *_: 0.001)
    monkeypatch.setattr(ThisProcess, "load", lambda _self, path: path)
    plan, there = kernel_profiling.MeasurementPlan(best_s=0.001), Remote(Board("192.0.2.1", 9090, ""), 1, 60.0)
    assert kernel_profiling.profile("task", "reference", "artifact", plan, there) == (0.001,) * 3
    assert kernel_profiling.compare("task", "reference", ["artifact"], plan, there) == [(0.001,) * 3]


class Timed:
    """Replaces a compiled kernel, and stores the parameters of its timing."""

    def time_evaluator(self, _name: str, _device: Any, **plan: Any) -> Any:
        self.plan = plan
        return lambda *_: SimpleNamespace(results=(1.0, 2.0, 6.0))


@pytest.mark.parametrize(
    ("weights", "result", "cold"),
    [((512, 511), (1024, 511), False), ((512, 512), (4,), True), ((4,), (1024, 512), True)],
)
def test_kernels_with_large_weights_or_results_are_timed_with_cold_caches(
    weights: tuple[int, ...], result: tuple[int, ...], cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, large = Timed(), ((1024, 1024), "float32")
    bench = made(monkeypatch, [large, (weights, "float32"), (result, "float32")], 1)
    assert bench.sample(kernel, 3) == 3.0, "the mean"
    assert ("f_preproc" in kernel.plan) is cold
    if cold:
        assert (kernel.plan["number"], kernel.plan["repeat"]) == (1, 3), "before each call"
        assert tvm.get_global_func(kernel.plan["f_preproc"], allow_missing=True) is not None
