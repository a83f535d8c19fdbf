"""Times of single operators inside a network."""

from pathlib import Path

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from autosched_tvm.compile import model_sources, network_compiler, onnx_import  # noqa: E402
from autosched_tvm.compile.network_compiler import SideName  # noqa: E402
from autosched_tvm.device import operator_profiling  # noqa: E402
from autosched_tvm.device.loaded_module import LoadedModule  # noqa: E402
from autosched_tvm.generated_inputs import random_inputs  # noqa: E402

pytestmark = pytest.mark.tvm
TARGET_TEXT = '{"kind": "llvm", "mcpu": "x86-64-v3"}'


def module(folder: Path, *, by_rule: bool) -> LoadedModule:
    """Two equal products, and a mean."""
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype("float32")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("ReduceMean", ["b"], ["y"], axes=[1], keepdims=1),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (8, 64)), ("y", (8, 1)))]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    fused = onnx_import.network(model, tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"}))
    who = SideName("net", "tuned" if by_rule else "default")
    network_compiler.write_build(folder / "net", fused, model_sources.OnnxSource(model), TARGET_TEXT, who)
    return LoadedModule(folder / "net")


@pytest.mark.parametrize("by_rule", [True, False])
def test_equal_operators_share_a_row_with_the_source_of_their_schedule(tmp_path: Path, by_rule: bool) -> None:
    net = module(tmp_path, by_rule=by_rule)
    found = operator_profiling.measured(net, random_inputs(net.info.inputs), 0.05)
    rows = {row.name: row for row in found.rows}
    assert rows["matmul 8x64 by 64x64"].calls == 2
    assert rows["mean 8x64 -> 8x1"].calls == 1
    schedules = {row.schedule for row in found.rows}
    assert schedules == {"by rule" if by_rule else "default", operator_profiling.VIRTUAL_MACHINE}
    assert found.whole_s > 0
    assert [row.time_s for row in found.rows] == sorted((row.time_s for row in found.rows), reverse=True)


def test_the_cost_of_the_instrument_is_subtracted_from_each_call() -> None:
    """A kernel of 10 us is measured as 13: the instrument adds 1.5 us, which count twice in this network."""
    calls = [operator_profiling.Call("kernel", ((2, 2), (2, 2)), 2, [13e-6] * 3) for _ in range(4)]
    calls.append(operator_profiling.Call("vm.builtin.alloc_tensor", (), 2, [5e-6]))
    overhead = operator_profiling.Overhead(told_s=1.5e-6, call_s=1e-7, added_s=2e-6)
    rows = {row.name: row for row in operator_profiling._rows(calls, {"kernel": "tuned"}, {2: overhead}, 2.0, 1e-3)}
    assert rows["kernel 2x2"].time_s == pytest.approx(40e-6)
    assert rows["memory"].time_s == pytest.approx(2.1e-6)
    assert rows["calls of kernels"].time_s == pytest.approx(4e-7)


def test_the_virtual_machine_has_no_more_than_the_kernels_leave() -> None:
    """A network of 7 us, whose kernel takes 5: calls that take 4 us one by one overlap with it."""
    calls = [operator_profiling.Call("kernel", ((2, 2), (2, 2)), 2, [5e-6])]
    calls.append(operator_profiling.Call("vm.builtin.alloc_tensor", (), 2, [1e-6]))
    overhead = operator_profiling.Overhead(told_s=0.0, call_s=1.5e-6, added_s=0.0)
    rows = {row.name: row for row in operator_profiling._rows(calls, {"kernel": "tuned"}, {2: overhead}, 1.0, 7e-6)}
    assert rows["kernel 2x2"].time_s == pytest.approx(5e-6)
    assert (rows["memory"].time_s, rows["calls of kernels"].time_s) == pytest.approx((1.25e-6, 0.75e-6))


def test_a_module_without_sources_of_schedules_shows_unknown() -> None:
    calls = [operator_profiling.Call("kernel", ((2, 2), (2, 2)), 2, [1e-5])]
    overhead = {2: operator_profiling.Overhead(0.0, 0.0, 0.0)}
    assert operator_profiling._rows(calls, {}, overhead, 1.0, 1e-5)[0].schedule == "unknown"
    assert operator_profiling._rows(calls, {"another": "tuned"}, overhead, 1.0, 1e-5)[0].schedule == "library"


def test_a_kernel_that_does_nothing_costs_little_and_an_instrument_adds_to_it() -> None:
    overhead = operator_profiling._overhead(3)
    assert 0 < overhead.call_s < overhead.call_s + overhead.added_s
    assert overhead.told_s > 0
