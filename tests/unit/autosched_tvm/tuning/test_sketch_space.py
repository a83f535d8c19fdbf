"""The design space of a task: sketches, and schedules grown from them."""

from typing import Any

import pytest

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from tvm import te, topi  # noqa: E402

from autosched.model import TaskInfo  # noqa: E402
from autosched_tvm.compile import candidate_build, targets  # noqa: E402
from autosched_tvm.compile.task_extraction import hash_of  # noqa: E402
from autosched_tvm.tuning import schedule_traces  # noqa: E402
from autosched_tvm.tuning.blocked_sketch import blocked_sketch  # noqa: E402
from autosched_tvm.tuning.search_method import SearchContext, Unsupported  # noqa: E402
from autosched_tvm.tuning.sketch_space import COMPUTATIONS_MAX, SketchSpace  # noqa: E402
from small import matmul  # noqa: E402

TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1}


def convolution(*, epilogue: bool = True, kernel: int = 3, stride: int = 1, inner: int = 8) -> SearchContext:
    """Returns a small convolution in blocks of eight channels."""
    target = tvm.target.Target(TARGET)
    data, weight = te.placeholder((1, 2, 8, 8, inner)), te.placeholder((4, 2, kernel, kernel, inner, 8))
    bias = te.placeholder((1, 4, 1, 1, 8))
    with target:
        found = topi.nn.conv2d_NCHWc(data, weight, stride, kernel // 2, 1, f"NCHW{inner}c", "NCHW8c")
        tensors = [data, weight, bias, topi.nn.relu(topi.add(found, bias))] if epilogue else [data, weight, found]
        function = te.create_prim_func(tensors).with_attr("global_symbol", "main")
    info = TaskInfo(task=1, name="conv", workload="00", weight=1, flops=1.0, shape="")
    return SearchContext(info, tvm.IRModule({"main": function}), target, 1, 1)


def drawn(space: SketchSpace, sketch: int, seed: int) -> Any:
    return space.grow(sketch, [None] * len(space.sketches[sketch].places), seed)


def test_the_same_decisions_grow_into_the_same_program() -> None:
    space, other = SketchSpace(matmul(1)), SketchSpace(matmul(2))
    for sketch in range(len(space.sketches)):
        grown = drawn(space, sketch, 12345)
        again = other.grow(sketch, grown.decisions, 99)
        assert again == grown
        assert hash_of(candidate_build.replay(other.workload, grown.candidate()).mod) == grown.key


def test_missing_decisions_are_drawn() -> None:
    space = SketchSpace(matmul(1))
    grown = drawn(space, 0, 12345)
    kept = [None, *grown.decisions[1:]]
    found = [space.grow(0, kept, seed) for seed in range(10_000, 200_000, 10_000)]
    assert {one.decisions[1:] for one in found} == {grown.decisions[1:]}
    assert len({one.decisions[0] for one in found}) > 2


def test_a_record_is_identified() -> None:
    space = SketchSpace(matmul(1))
    for sketch in range(len(space.sketches)):
        trace = schedule_traces.read(drawn(space, sketch, 777).candidate({"generation": 1}))
        assert trace is not None
        assert space.identify(trace) == sketch
        assert trace.memo == {"generation": 1}
    other = schedule_traces.read(drawn(SketchSpace(convolution()), 0, 777).candidate())
    assert other is not None
    assert space.identify(other) is None


def test_impossible_decisions_are_rejected() -> None:
    space = SketchSpace(matmul(1))
    places = len(space.sketches[0].places)
    assert space.grow(0, [7] * places, 1) is None


@pytest.mark.parametrize(
    "site", [{}, {"epilogue": False}, {"kernel": 1}, {"stride": 2}, {"inner": 3}], ids=lambda site: str(site)
)
def test_blocked_convolutions_have_a_separate_sketch(site: dict[str, Any]) -> None:
    place = convolution(**site)
    assert blocked_sketch(place.workload, 1) is not None
    space = SketchSpace(place)
    grown = drawn(space, len(space.sketches) - 1, 4711)
    text = grown.schedule.mod.script()
    assert text.count("T.vectorized(8)") >= 3, "update, initialisation and write-back"
    assert "T.unroll" in text
    assert "T.parallel" in text


def test_other_tasks_have_no_such_sketch() -> None:
    assert blocked_sketch(matmul(1).workload, 1) is None


def test_a_task_with_very_many_computations_is_not_searched() -> None:
    tensors = [te.placeholder((4, 8))]
    for _ in range(COMPUTATIONS_MAX + 1):
        tensors.append(topi.nn.relu(tensors[-1]))
    function = te.create_prim_func([tensors[0], tensors[-1]]).with_attr("global_symbol", "main")
    info = TaskInfo(task=1, name="relus", workload="00", weight=1, flops=1.0, shape="")
    site = SearchContext(info, tvm.IRModule({"main": function}), tvm.target.Target(TARGET), 1, 1)
    with pytest.raises(Unsupported, match="more than 100 computations"):
        SketchSpace(site)


def test_sketches_for_a_gpu_bind_threads_and_use_no_tensor_cores() -> None:
    """TVM would choose the rules of tensor cores by the architecture, whose intrinsics take half a minute to parse."""
    site = matmul(1, 64, targets.of_gpu(90))
    space = SketchSpace(site)
    assert space.sketches
    drawn = (space.grow(0, [None] * len(space.sketches[0].decided), seed) for seed in range(1, 100))
    grown = next(one for one in drawn if one is not None)  # most draws exceed the limits of a GPU
    text = str(grown.schedule.mod)
    assert "threadIdx.x" in text
    assert "wmma" not in text
