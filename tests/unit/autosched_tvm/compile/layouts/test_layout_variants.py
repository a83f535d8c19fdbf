"""The layouts that are tuned, and the choice once latencies are known."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

import tvm  # noqa: E402

from autosched_tvm import worker_messages  # noqa: E402
from autosched_tvm.compile import candidate_build, network_compiler, network_import, onnx_import, task_extraction  # noqa: E402
from autosched_tvm.compile.layouts import layout_variants  # noqa: E402
from autosched_tvm.compile.layouts.layout_option import LayoutOption  # noqa: E402
from autosched_tvm.compile.winograd import workload  # noqa: E402
from autosched_tvm.device.loaded_module import LoadedModule  # noqa: E402
from autosched_tvm.generated_inputs import random_inputs  # noqa: E402
from nets import model  # noqa: E402

TARGET_TEXT = '{"kind": "llvm"}'
TARGET = candidate_build.load_target(TARGET_TEXT)


def chain(channels: int = 16, size: int = 40) -> Any:
    """Returns three successive convolutions of different sizes."""
    random = np.random.default_rng(4)
    nodes, weights, value = [], {}, "x"
    for index, kernel in enumerate((3, 1, 5)):
        shape = (channels, channels, kernel, kernel)
        weights[f"w{index}"] = (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32")
        inputs = [value, f"w{index}"]
        nodes.append(helper.make_node("Conv", inputs, [f"c{index}"], name=f"c{index}", pads=[kernel // 2] * 4))
        nodes.append(helper.make_node("Relu", [f"c{index}"], [f"r{index}"]))
        value = f"r{index}"
    return model(nodes, {"x": [1, channels, size, size]}, [value], weights)


def taken_in(net: Any, folder: Path, layout: LayoutOption, *, winograd: bool = False) -> worker_messages.Extracted:
    onnx.save(net, folder / "net.onnx")
    return network_import.take_in(
        str(folder / "net.onnx"), {}, TARGET_TEXT, str(folder / "prepared.onnx"), str(folder),
        worker_messages.Ways(layout.value, winograd),
    )  # fmt: skip


def test_task_names_contain_the_layout(tmp_path: Path) -> None:
    said = {layout: [info.shape for info in taken_in(chain(), tmp_path, layout).tasks] for layout in LayoutOption}
    assert (
        said[LayoutOption.KEEP][0]
        == said[LayoutOption.NCHW][0]
        == "conv2d+relu 16x40x40, 5x5".replace(", ", " -> 16x40x40, ")
    )
    assert said[LayoutOption.NHWC][0] == "conv2d NHWC+relu 40x40x16 -> 40x40x16, 5x5"
    assert said[LayoutOption.NCHWC][0].startswith("conv2d NCHW") and said[LayoutOption.NCHWC][0].endswith(
        "c+relu 16x40x40 -> 16x40x40, 5x5"
    )
    assert set(said[LayoutOption.AUTO]) >= {*said[LayoutOption.NCHW], *said[LayoutOption.NCHWC]}


def test_tasks_are_the_same_each_time(tmp_path: Path) -> None:
    first, second = (taken_in(chain(), tmp_path, LayoutOption.AUTO) for _ in range(2))
    assert first == second
    assert len({info.workload for info in first.tasks}) == len(first.tasks) == 6
    assert first.uses == 3


def test_layout_auto_groups_the_tasks_that_compete(tmp_path: Path) -> None:
    found = taken_in(chain(), tmp_path, LayoutOption.AUTO)
    shapes = {info.task: info.shape.partition(" -> ")[2] for info in found.tasks}
    rivals = [{info.task for info in found.tasks if group in info.groups} for group in groups_of(found)]
    assert len(rivals) == 3 and all(len(tasks) == 2 for tasks in rivals)
    assert all(shapes[a] == shapes[b] for a, b in rivals)
    assert groups_of(taken_in(chain(), tmp_path, LayoutOption.NCHWC)) == set()


def groups_of(found: worker_messages.Extracted) -> set[str]:
    return {group for info in found.tasks for group in info.groups}


def test_other_operators_compete_by_their_place_and_equal_ones_together(tmp_path: Path) -> None:
    """Three equal convolutions and a pool, in two layouts: two groups, one of three calls and one of a single one."""
    random = np.random.default_rng(4)
    weights = {f"w{i}": (random.standard_normal((16, 16, 3, 3)) / 12).astype("float32") for i in range(3)}
    nodes, value = [], "x"
    for index in range(3):
        nodes.append(helper.make_node("Conv", [value, f"w{index}"], [f"c{index}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{index}"], [f"r{index}"]))
        value = f"r{index}"
    nodes.append(helper.make_node("MaxPool", [value], ["y"], kernel_shape=[3, 3], strides=[2, 2]))
    found = taken_in(model(nodes, {"x": [1, 16, 40, 40]}, ["y"], weights), tmp_path, LayoutOption.AUTO)
    assert len(groups_of(found)) == 2
    sizes = {group: [i.groups[group] for i in found.tasks if group in i.groups] for group in groups_of(found)}
    assert sorted(sizes.values()) == [[1, 1], [3, 3]]
    assert all(sum(info.groups.values()) == info.weight for info in found.tasks)


def best_of(cleaned: Any, latencies_s: Mapping[str, float]) -> layout_variants.Best:
    offer = layout_variants.offered(cleaned, TARGET, LayoutOption.AUTO)
    return layout_variants.best(offer, TARGET, latencies_s, LayoutOption.AUTO)


def latencies(found: worker_messages.Extracted, plain_s: float, blocked_s: float, **others: float) -> dict[str, float]:
    """Returns latencies by workload; `others`: those of blocked tasks with this window."""
    return {
        info.workload: others.get("w" + info.shape[-3:], blocked_s) if "c+relu" in info.shape else plain_s
        for info in found.tasks
    }


@pytest.mark.parametrize(
    ("blocked_s", "others", "blocked"),
    [(0.5, {}, 3), (2.0, {}, 0), (0.5, {"w5x5": 3.0}, 2), (1.0 - 1e-9, {}, 0)],
)
def test_the_fastest_assignment_is_chosen(
    blocked_s: float, others: dict[str, float], blocked: int, tmp_path: Path
) -> None:
    """All, none, or all but one convolution; a gain below the cost of transforms is none."""
    found = taken_in(chain(), tmp_path, LayoutOption.AUTO)
    cleaned = onnx_import.cleaned(onnx.load(tmp_path / "prepared.onnx"))
    best = best_of(cleaned, latencies(found, 1.0, blocked_s, **others))
    assert sum(1 for way in best.variant.ways if way.output.block) == blocked
    assert best.variant.workloads == tuple(w for w in best.variant.workloads if w)
    assert set(best.variant.workloads) <= {info.workload for info in found.tasks}
    assert "measured kernels" in best.said


def test_a_layout_without_measurements_is_not_chosen(tmp_path: Path) -> None:
    found = taken_in(chain(), tmp_path, LayoutOption.AUTO)
    cleaned = onnx_import.cleaned(onnx.load(tmp_path / "prepared.onnx"))
    known = {info.workload: 1e-5 for info in found.tasks if "c+relu" not in info.shape}
    best = best_of(cleaned, known)
    assert all(way.wanted is LayoutOption.NCHW for way in best.variant.ways)
    assert "measured kernels 0.03 ms" in best.said, "three of 10 us"
    assert "nchwc" not in best.said, "nothing was measured in it"
    assert "measured" not in best_of(cleaned, {}).said


def test_records_of_several_layouts_compile_into_one_network(tmp_path: Path) -> None:
    """The tasks of each layout have a schedule; the network takes those of the chosen layouts."""
    found = taken_in(chain(size=12), tmp_path, LayoutOption.AUTO)
    choices = []
    for info in found.tasks:
        file = str(tmp_path / f"{info.task}.json")
        best_s = 1e-3 if "NCHW" not in info.shape or "5x5" in info.shape else 1e-6
        choices.append(worker_messages.TaskSchedules(info.task, file, (candidate(file),), best_s))
    compilation = worker_messages.Compilation(
        str(tmp_path / "prepared.onnx"), TARGET_TEXT, str(tmp_path), "net", LayoutOption.AUTO.value
    )
    compiled = network_compiler.compile_network(compilation, choices)
    assert compiled.tasks == 3
    assert any("layouts: " in note and "convolutions in" in note for note in compiled.notes)
    default, tuned = (LoadedModule(tmp_path / name) for name in ("default", "tuned"))
    inputs = random_inputs(default.info.inputs)
    np.testing.assert_allclose(tuned.run(inputs)[0], default.run(inputs)[0], rtol=1e-4, atol=1e-5)


def rivals_of(found: worker_messages.Extracted) -> list[set[str]]:
    """Returns the operators of the tasks that compete, by group."""
    named = {
        group: {info.shape.partition(" ")[0] for info in found.tasks if group in info.groups}
        for group in groups_of(found)
    }
    return list(named.values())


def test_winograd_competes_with_the_direct_way_where_it_can_win(tmp_path: Path) -> None:
    """One of three convolutions has a window of 3x3; without blocks there is no Winograd."""
    found = taken_in(chain(), tmp_path, LayoutOption.NCHWC, winograd=True)
    assert rivals_of(found) == [{"conv2d", "winograd"}]
    said = [info.shape for info in found.tasks if "winograd" in info.shape]
    assert said == ["winograd conv2d NCHW4c+relu 16x40x40 -> 16x40x40, 3x3 in tiles of 4x4"]
    assert len({info.workload for info in found.tasks}) == len(found.tasks) == 4
    for layout in (LayoutOption.KEEP, LayoutOption.NHWC):
        assert not any("winograd" in info.shape for info in taken_in(chain(), tmp_path, layout, winograd=True).tasks)


def test_winograd_competes_along_one_axis(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    weights = (random.standard_normal((32, 32, 3)) / 10).astype("float32")
    signal = model(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1])], {"x": [1, 32, 96]}, ["y"], {"w": weights}
    )
    found = taken_in(signal, tmp_path, LayoutOption.NCHWC, winograd=True)
    said = sorted(info.shape.partition(", ")[2] for info in found.tasks)
    assert said == ["1x3", "1x3 in tiles of 1x4", "1x3 in tiles of 1x6"]
    assert rivals_of(found) == [{"conv2d", "winograd"}]


def test_winograd_competes_with_several_layouts(tmp_path: Path) -> None:
    found = taken_in(chain(), tmp_path, LayoutOption.AUTO, winograd=True)
    sizes = Counter(sum(group in info.groups for info in found.tasks) for group in groups_of(found))
    assert sizes == {2: 2, 3: 1}


@pytest.mark.parametrize(("winograd_s", "taken"), [(0.5, 1), (2.0, 0)])
def test_the_faster_algorithm_is_compiled(winograd_s: float, taken: int, tmp_path: Path) -> None:
    """The network is correct either way, and has all of its schedules."""
    found = taken_in(chain(size=12), tmp_path, LayoutOption.NCHWC, winograd=True)
    choices = []
    for info in found.tasks:
        file = str(tmp_path / f"{info.task}.json")
        fast = winograd_s if "winograd" in info.shape else 1.0
        made = winograd_candidate(file) if "winograd" in info.shape else candidate(file)
        choices.append(worker_messages.TaskSchedules(info.task, file, (made,), fast))
    compilation = worker_messages.Compilation(
        str(tmp_path / "prepared.onnx"), TARGET_TEXT, str(tmp_path), "net", LayoutOption.NCHWC.value, winograd=True
    )
    compiled = network_compiler.compile_network(compilation, choices)
    assert compiled.tasks == 3
    assert any("by Winograd" in note for note in compiled.notes) == bool(taken)
    default, tuned = (LoadedModule(tmp_path / name) for name in ("default", "tuned"))
    inputs = random_inputs(default.info.inputs)
    np.testing.assert_allclose(tuned.run(inputs)[0], default.run(inputs)[0], rtol=1e-4, atol=1e-5)


def winograd_candidate(file: str) -> bytes:
    schedule = tvm.s_tir.Schedule(candidate_build.load_task(file))
    workload.annotate(schedule, {"tiles": 3, "vectors": 2, "blocks": 1, "parallel": "chunks"})
    return json.dumps(schedule.trace.as_json(), default=lambda value: value.value).encode()


def candidate(file: str) -> bytes:
    """Returns some schedule: the outermost loop of the last block in parallel."""
    schedule = tvm.s_tir.Schedule(candidate_build.load_task(file))
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    schedule.parallel(schedule.get_loops(blocks[-1])[1])
    return json.dumps(schedule.trace.as_json(), default=lambda value: value.value).encode()


def test_shapes_are_shown_without_blocks() -> None:
    say = task_extraction.describe
    blocked = [(1, 4, 56, 56, 16), (4, 4, 3, 3, 16, 16), (1, 4, 1, 1, 16), (1, 4, 56, 56, 16)]
    assert say("fused_conv2d_NCHWc17_add9_relu", blocked) == "conv2d NCHW16c+add+relu 64x56x56 -> 64x56x56, 3x3"
    packed = [(1, 128, 384), (96, 384, 16), (1536,), (1, 128, 1536)]
    assert say("fused_packed_matmul3_add4", packed) == "packed matmul+add 128x384 by 384x1536"
    depthwise = [(1, 2, 9, 9, 8), (2, 1, 5, 5, 1, 8), (1, 2, 9, 9, 8)]
    assert say("depthwise_conv2d_NCHWc", depthwise) == "depthwise conv2d NCHW8c 16x9x9 -> 16x9x9, 5x5"
    nhwc = [(1, 9, 9, 16), (5, 3, 16, 8), (1, 9, 9, 8)]
    assert say("fused_conv2d_NHWC2_relu", nhwc) == "conv2d NHWC+relu 9x9x16 -> 9x9x8, 5x3"
    assert say("max_pool2d1", [(1, 4, 9, 9, 16), (1, 4, 5, 5, 16)]) == "max_pool2d NCHW16c 64x9x9 -> 64x5x5"
    assert say("layout_transform3", [(1, 64, 9, 9), (1, 4, 9, 9, 16)]) == "layout_transform 64x9x9 -> 4x9x9x16"
