"""Operators that TVM lacks, written with others: equal to ONNX Runtime, and gone."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

from unit.autosched_tvm.compile.frontend.test_misread_operators import net, normal, rewritten


@pytest.mark.parametrize("strides", [[1, 1], [2, 3]])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 1, 2]])
@pytest.mark.parametrize("dilations", [[1, 1], [2, 1]])
def test_overlapping_blocks_are_summed(strides: list[int], pads: list[int], dilations: list[int]) -> None:
    image, block = [7, 8], [2, 3]
    sums = [pads[i] + pads[i + 2] for i in (0, 1)]
    counts = [(image[i] + sums[i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in (0, 1)]
    x = {"x": normal(2, 3 * 6, counts[0] * counts[1])}
    node = helper.make_node("Col2Im", ["x", "i", "b"], ["y"], strides=strides, pads=pads, dilations=dilations)
    made = rewritten(net(node, x, {"y": "float32"}, {"i": np.array(image), "b": np.array(block)}, 18), x)
    assert made == {"Reshape", "ConvTranspose"}


@pytest.mark.parametrize(("groups", "moved"), [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize(("strides", "pads", "dilations"), [([1, 1], [0] * 4, [1, 1]), ([2, 1], [1, 2, 1, 2], [1, 2])])
@pytest.mark.parametrize("whole", [True, False])
def test_a_deformable_convolution(
    whole: bool, strides: list[int], pads: list[int], dilations: list[int], groups: int, moved: int
) -> None:
    size, kernel = [7, 6], [3, 2]
    sums = [pads[i] + pads[i + 2] for i in (0, 1)]
    out = [(size[i] + sums[i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in (0, 1)]
    x = {"x": normal(2, 4, *size), "o": 2 * normal(2, moved * 12, *out)}
    weights = {"w": normal(6, 4 // groups, *kernel)}
    if whole:
        weights |= {"b": normal(6), "m": normal(2, moved * 6, *out)}
    node = helper.make_node(
        "DeformConv", ["x", "w", "o", "b", "m"][: 5 if whole else 3], ["y"], kernel_shape=kernel, strides=strides,
        pads=pads, dilations=dilations, group=groups, offset_group=moved,
    )  # fmt: skip
    assert "DeformConv" not in rewritten(net(node, x, {"y": "float32"}, weights, 19), x)


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [1, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [2, 2], "dilations": [2, 3]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"kernel_shape": [2, 2], "strides": [2, 2], "storage_order": 1},
    ],
)
@pytest.mark.parametrize("opset", [12, 18])
def test_the_places_of_maxima(attributes: dict[str, Any], opset: int) -> None:
    x = {"x": np.round(normal(2, 3, 7, 6))}  # equal values: the first one counts
    node = helper.make_node("MaxPool", ["x"], ["y", "places"], **attributes)
    assert "MaxPool" not in rewritten(net(node, x, {"y": "float32", "places": "int64"}, {}, opset), x)


def test_the_maxima_stay_as_they_are_without_their_places() -> None:
    x = {"x": normal(1, 2, 6, 6)}
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])
    assert rewritten(net(node, x, {"y": "float32"}, {}, 12), x) == {"MaxPool"}


def test_values_go_back_to_the_places_of_their_maxima() -> None:
    x = {"x": normal(1, 2, 2, 2)}
    places = np.array([[[[0, 2], [9, 11]], [[16, 18], [24, 31]]]])
    node = helper.make_node("MaxUnpool", ["x", "p"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    assert "MaxUnpool" not in rewritten(net(node, x, {"y": "float32"}, {"p": places}, 11), x)


@pytest.mark.parametrize(("operator", "value"), [("Range", [2.0, 9.0, 1.5]), ("ConstantOfShape", [2, 3])])
def test_a_size_that_is_given_is_that_which_the_network_declares(operator: str, value: list[float]) -> None:
    floats = operator == "Range"
    inputs = {f"i{n}": np.array(one, "float32") for n, one in enumerate(value)} if floats else {"i": np.array(value)}
    node = helper.make_node(operator, list(inputs), ["y"])
    declared = net(node, inputs, {"y": "float32"}, {}, 13)
    shape = declared.graph.output[0].type.tensor_type.shape
    del shape.dim[:]
    for size in (5,) if floats else value:
        shape.dim.add().dim_value = int(size)
    assert operator not in rewritten(declared, inputs)


@pytest.mark.parametrize("k", [-1, 0, 2])
def test_a_unit_matrix(k: int) -> None:
    x = {"x": normal(3, 4)}
    node = helper.make_node("EyeLike", ["x"], ["y"], k=k, dtype=7)
    assert rewritten(net(node, x, {"y": "int64"}, {}, 9), x) <= {"Identity", "Constant"}
