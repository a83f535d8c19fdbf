"""Kernels that differ only in float constants are one task; each keeps its own constants under the task's schedule."""

import json
from typing import Any

import numpy as np
import pytest
from onnx import helper

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

import tvm  # noqa: E402
from tests import compiled_networks  # noqa: E402
from tests.nets import model  # noqa: E402

from autosched_tvm.compile import candidate_build, intrinsics, network_compiler, onnx_import, rules, task_extraction  # noqa: E402
from autosched_tvm.compile.layouts.layout_option import LayoutOption  # noqa: E402
from autosched_tvm.tuning import schedule_traces  # noqa: E402
from autosched_tvm.worker_messages import TaskSchedules  # noqa: E402

TARGET = json.dumps({"kind": "llvm", "num-cores": 1})
SIZE = 32


def scaled_layers(*factors: float) -> Any:
    """Returns products, each followed by a factor and a maximum with 0."""
    random = np.random.default_rng(3)
    weights: dict[str, Any] = {}
    nodes, last = [], "x"
    for number, factor in enumerate(factors):
        weights[f"w{number}"] = random.standard_normal((SIZE, SIZE)).astype("float32")
        weights[f"f{number}"] = np.float32(factor)
        nodes += [
            helper.make_node("MatMul", [last, f"w{number}"], [f"p{number}"]),
            helper.make_node("Mul", [f"p{number}", f"f{number}"], [f"m{number}"]),
            helper.make_node("Relu", [f"m{number}"], [last := f"y{number}"]),
        ]
    return model(nodes, {"x": [8, SIZE]}, [last], weights)


def taken(net: Any) -> tuple[Any, Any, Any]:
    """Returns the fused network, its tasks and their programs."""
    intrinsics.install()
    target = candidate_build.load_target(TARGET)
    fused, _ = network_compiler.laid_out(onnx_import.cleaned(net), target, [], LayoutOption.KEEP, winograd=False)
    extracted, workloads = task_extraction.extract([fused], target)
    return fused, extracted.tasks, workloads


def split_rows(workload: Any) -> bytes:
    """Returns a candidate that splits the first loop of the product."""
    schedule = tvm.s_tir.Schedule(workload, debug_mask=0, enable_check=False)
    product = next(
        block for block in schedule.get_child_blocks(schedule.get_sblock("root"))
        if "matmul" in schedule.get(block).name_hint
    )  # fmt: skip
    schedule.split(schedule.get_loops(product)[0], [None, 4])
    return schedule_traces.write(schedule.trace.as_json())


def test_kernels_with_other_constants_are_one_task_with_all_their_calls() -> None:
    _, tasks, _ = taken(scaled_layers(0.37, 0.11, 0.23))
    assert [task.weight for task in tasks] == [3]


@pytest.mark.parametrize("plain", [0.5, 2.0, -1.0, 3e38])
def test_a_constant_with_a_meaning_of_its_own_makes_another_task(plain: float) -> None:
    _, tasks, _ = taken(scaled_layers(0.37, plain))
    assert [task.weight for task in tasks] == [1, 1]


def test_each_kernel_keeps_its_constants_under_the_schedule_of_the_task(tmp_path: Any) -> None:
    fused, tasks, workloads = taken(scaled_layers(0.37, 0.11, 0.23))
    path = tmp_path / "1.json"
    task_extraction.save(workloads[0], path)
    schedules, notes = network_compiler.applied([TaskSchedules(1, str(path), (split_rows(workloads[0]),), 1e-3)])
    assert not notes
    module, used = network_compiler.with_schedules(fused, schedules)
    assert used == len(tasks) == 1
    tuned = [
        f
        for _, f in module.functions_items()
        if isinstance(f, tvm.tirx.PrimFunc) and rules.schedule_of(f) == rules.TUNED
    ]
    assert len(tuned) == 3
    x = np.random.default_rng(5).standard_normal((8, SIZE)).astype("float32")
    target = candidate_build.load_target(TARGET)
    (plain,), (scheduled,) = (compiled_networks.outputs(one, target, [x]) for one in (fused, module))
    assert np.abs(plain).max() > 0
    np.testing.assert_allclose(scheduled, plain, rtol=1e-5)


def test_a_schedule_that_fits_one_kernel_only_leaves_the_others_to_the_rules() -> None:
    fused, _, workloads = taken(scaled_layers(0.37, 0.11))
    key = task_extraction.workload_hash(workloads[0])
    fitting = {task_extraction.hash_of(workloads[0]): workloads[0]["main"]}
    schedule = network_compiler.Applied(1, b"[no trace", fitting)
    module, used = network_compiler.with_schedules(fused, {key: schedule})
    assert used == 1
    tuned = [
        f
        for _, f in module.functions_items()
        if isinstance(f, tvm.tirx.PrimFunc) and rules.schedule_of(f) == rules.TUNED
    ]
    assert len(tuned) == 1
