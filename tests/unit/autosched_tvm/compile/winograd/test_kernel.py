"""Compiled Winograd convolutions against the same convolutions computed in double precision."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

import tvm  # noqa: E402
from tvm import te, topi  # noqa: E402

from autosched_tvm.compile import candidate_build, lowering  # noqa: E402
from autosched_tvm.compile.layouts import packing  # noqa: E402
from autosched_tvm.compile.layouts.layout import blocked  # noqa: E402
from autosched_tvm.compile.winograd import kernel, workload  # noqa: E402
from autosched_tvm.compile.winograd.algebra import FILTERINGS, Algorithm  # noqa: E402
from autosched_tvm.compile.winograd.workload import Sizes  # noqa: E402

ALGORITHMS = {
    2: Algorithm(FILTERINGS[2, 3], FILTERINGS[2, 3]),
    4: Algorithm(FILTERINGS[4, 3], FILTERINGS[4, 3]),
    **{f"1x{m}of1x{r}": Algorithm(FILTERINGS[1, 1], FILTERINGS[m, r]) for m, r in FILTERINGS if r > 1},
    **{f"{m}x1of{r}x1": Algorithm(FILTERINGS[m, r], FILTERINGS[1, 1]) for m, r in FILTERINGS if r > 1},
}
CPU = tvm.target.Target({"kind": "llvm", "num-cores": 1})
KNOBS = {"tiles": 3, "vectors": 2, "blocks": 2, "parallel": "chunks"}
TOLERANCE = 2e-5


@dataclass(frozen=True)
class Case:
    """A convolution, followed by a bias, a residual and an activation unless `activation` is empty."""

    size: int | str
    shape: tuple[int, int, int, int]
    filters: int
    padding: tuple[int, int, int, int] = (1, 1, 1, 1)
    inside: int = 8
    outside: int = 8
    activation: str = "relu"

    def workload(self) -> Any:
        n, channels, height, width = self.shape
        data = te.placeholder((n, -(-channels // self.inside), height, width, self.inside), name="data")
        packed = self.one.pack(np.zeros((self.filters, channels, *self.one.taps), "float32"), *self.blocks)
        weights = te.placeholder(packed.shape, name="weights")
        result = workload.convolution(data, weights, self.one, self.padding)
        bias = te.placeholder((1, packed.shape[0], 1, 1, self.outside), name="bias")
        residual = te.placeholder(result.shape, name="residual")
        if not self.activation:
            return tvm.IRModule({"main": te.create_prim_func([data, weights, result])})
        after = topi.nn.relu if self.activation == "relu" else topi.sigmoid
        value = after(topi.add(topi.add(result, bias), residual))
        return tvm.IRModule({"main": te.create_prim_func([data, weights, bias, residual, value])})

    @property
    def one(self) -> Algorithm:
        return ALGORITHMS[self.size]

    @property
    def blocks(self) -> tuple[int, int]:
        return self.inside, self.outside

    def run(self, module: Any) -> tuple[Any, Any]:
        """Returns the outputs of a module, and the expected ones."""
        random = np.random.default_rng(3)
        n, channels, height, width = self.shape
        top, left, bottom, right = self.padding
        rows, columns = self.one.taps
        out = (n, self.filters, height + top + bottom - rows + 1, width + left + right - columns + 1)
        data = random.standard_normal(self.shape)
        weights = random.standard_normal((self.filters, channels, *self.one.taps)) / np.sqrt(rows * columns * channels)
        bias, residual = random.standard_normal((1, self.filters, 1, 1)), random.standard_normal(out)
        image = np.pad(data, [(0, 0), (0, 0), (top, bottom), (left, right)])
        expected = bias + residual if self.activation else np.zeros(out)
        for i in range(rows):
            for j in range(columns):
                part = image[:, :, i : i + out[2], j : j + out[3]]
                expected = expected + np.einsum("oc,nchw->nohw", weights[:, :, i, j], part)
        if self.activation:
            expected = np.maximum(expected, 0) if self.activation == "relu" else 1 / (1 + np.exp(-expected))
        sink = blocked(self.outside)
        result = tvm.runtime.tensor(np.full(sink.stored(out), np.nan, "float32"))
        arrays = [
            packing.pack(data.astype("float32"), blocked(self.inside)),
            self.one.pack(weights, *self.blocks),
            *(packing.pack(array.astype("float32"), sink) for array in (bias, residual) if self.activation),
        ]
        function = tvm.tirx.build(module, target=CPU, pipeline=lowering.install())["main"]
        function(*map(tvm.runtime.tensor, arrays), result)
        chunked = result.numpy().transpose(0, 1, 4, 2, 3).reshape(n, -1, *out[2:])
        return chunked[:, : self.filters], expected


def scheduled(module: Any, **knobs: int | str) -> Any:
    """Returns the module under a candidate with these knobs, as it would be built."""
    schedule = tvm.s_tir.Schedule(module)
    workload.annotate(schedule, {**KNOBS, **knobs})
    candidate = json.dumps(schedule.trace.as_json(), default=lambda number: number.value).encode()
    return candidate_build.scheduled(module, candidate)


CASES: dict[str, tuple[Case, dict[str, int | str]]] = {
    "tiles fit": (Case(4, (1, 16, 8, 8), 16), {}),
    "odd image": (Case(4, (1, 16, 9, 7), 16), {}),
    "small tiles": (Case(2, (1, 16, 7, 9), 16), {}),
    "one tile": (Case(4, (1, 16, 3, 4), 16), {"tiles": 1}),
    "several images": (Case(4, (3, 16, 6, 5), 16), {"tiles": 4, "blocks": 1}),
    "channels filled up": (Case(2, (1, 20, 6, 6), 20, inside=8, outside=16), {"vectors": 1}),
    "filters overlap": (Case(4, (1, 8, 6, 6), 24), {"vectors": 2}),
    "uneven padding": (Case(4, (1, 8, 7, 8), 16, (0, 2, 1, 0)), {}),
    "no padding": (Case(2, (1, 8, 7, 8), 16, (0, 0, 0, 0)), {"blocks": 8}),
    "a function after it": (Case(4, (1, 8, 9, 6), 16, activation="sigmoid"), {}),
    "nothing after it": (Case(2, (1, 8, 5, 6), 8, activation=""), {"vectors": 1}),
    "a signal": (Case("1x4of1x3", (1, 16, 1, 21), 16, (0, 1, 0, 1)), {}),
    "a long filter": (Case("1x6of1x3", (2, 16, 1, 25), 16, (0, 2, 0, 0)), {"tiles": 4}),
    "along columns": (Case("4x1of5x1", (1, 16, 11, 5), 16, (2, 0, 2, 0)), {"vectors": 1}),
    "two results": (Case("1x2of1x7", (1, 8, 3, 9), 16, (0, 3, 0, 3), activation="sigmoid"), {}),
    "filters in parallel": (Case(4, (1, 8, 9, 6), 16, inside=4), {"parallel": "filters"}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_loop_nest_computes_the_convolution(case: str) -> None:
    one, knobs = CASES[case]
    got, expected = one.run(scheduled(one.workload(), **knobs))
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize("size", ALGORITHMS)
def test_the_workload_without_a_schedule_computes_it_too(size: int | str) -> None:
    tall, wide = (taps // 2 for taps in ALGORITHMS[size].taps)
    one = Case(size, (2, 8, 7, 5), 12, (tall, wide, tall, wide))
    got, expected = one.run(one.workload())
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize("registers", [16, 32])
def test_a_workload_that_was_never_tuned_gets_usual_knobs(registers: int) -> None:
    one = Case(4, (1, 16, 14, 9), 24)
    function = kernel.by_rule(one.workload()["main"], registers, cores=2)
    got, expected = one.run(tvm.IRModule({"main": function}))
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())
    knobs = kernel.usual(kernel.understand(one.workload()).sizes, registers, cores=2)
    assert knobs.tiles * knobs.vectors + knobs.vectors < registers and knobs.parallel == "filters"
    plain = te.placeholder((4, 4), name="x")
    assert kernel.by_rule(te.create_prim_func([plain, topi.nn.relu(plain)]), registers, cores=2) is None


@pytest.mark.parametrize(("blocks", "vectors"), [(1, 1), (2, 2), (3, 1), (4, 2), (6, 2), (13, 1)])
def test_usual_knobs_leave_no_vector_empty(blocks: int, vectors: int) -> None:
    sizes = Sizes(ALGORITHMS[4], 1, 6, 16, 52, 52, 1, 1, blocks, 16, 52, 52)
    knobs = kernel.usual(sizes, registers=32, cores=1)
    assert knobs.vectors == vectors
    assert sizes.tiles % knobs.tiles == 0
    assert knobs.tiles >= 8


def test_a_workload_says_what_it_is() -> None:
    assert workload.marked(Case(4, (1, 8, 9, 6), 8, (2, 1, 0, 0)).workload()) == (ALGORITHMS[4], 2, 1)
    plain = te.placeholder((4, 4), name="x")
    module = tvm.IRModule({"main": te.create_prim_func([plain, topi.nn.relu(plain)])})
    assert workload.marked(module) is None and kernel.expanded(module) is module


def test_a_result_that_moves_elsewhere_is_refused() -> None:
    data, weights = te.placeholder((1, 1, 6, 6, 8), name="data"), te.placeholder((1, 36, 8, 8), name="weights")
    moved = topi.transpose(workload.convolution(data, weights, ALGORITHMS[4], (1, 1, 1, 1)), (0, 1, 4, 2, 3))
    module = tvm.IRModule({"main": te.create_prim_func([data, weights, moved])})
    with pytest.raises(kernel.NotExpandable, match="place by place"):
        kernel.understand(module)
