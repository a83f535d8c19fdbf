"""Generated integers are valid where they are used as indices."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from autosched_tvm.compile.frontend import input_ranges
from autosched_tvm.generated_inputs import random_inputs
from autosched_tvm.tensors import Kind
from nets import model


@pytest.mark.parametrize(
    ("kind", "attributes", "table", "high"),
    [
        ("Gather", {}, (30, 4), 30),
        ("Gather", {"axis": 1}, (30, 4), 4),
        ("Gather", {}, (1, 4), 1),
        ("GatherND", {}, (30, 4), 4),
    ],
)
def test_an_index_is_as_large_as_its_table_allows(
    kind: str, attributes: dict[str, int], table: tuple[int, ...], high: int
) -> None:
    nodes = [
        helper.make_node("Cast", ["ids"], ["index"], to=7),
        helper.make_node(kind, ["table", "index"], ["y"], **attributes),
    ]
    net = model(nodes, {"ids": [2, 2]}, ["y"], {"table": np.zeros(table, "float32")})
    net.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    assert input_ranges.ranges(net) == {"ids": (0, high)}


N = helper.make_node


@pytest.mark.parametrize(
    ("nodes", "low", "high"),
    [
        ([N("Cast", ["ids"], ["i"], to=6)], 0, 50),
        ([N("Add", ["ids", "45"], ["i"])], 0, 5),
        ([N("Sub", ["ids", "100"], ["i"])], 100, 150),
        ([N("Sub", ["100", "ids"], ["i"])], 51, 101),
        ([N("Mul", ["ids", "10"], ["i"])], 0, 5),
        ([N("Div", ["ids", "10"], ["i"])], 0, 500),
        ([N("Mod", ["ids", "45"], ["i"])], 0, 128),
        ([N("Mod", ["ids", "100"], ["i"])], 0, 50),
        ([N("Clip", ["ids", "", "45"], ["i"])], 0, 128),
        ([N("Clip", ["ids", "", "100"], ["i"])], 0, 50),
        ([N("Min", ["ids", "45"], ["i"])], 0, 128),
        ([N("Neg", ["ids"], ["n"]), N("Abs", ["n"], ["i"])], 0, 50),
        ([N("Equal", ["ids", "45"], ["e"]), N("Where", ["e", "10", "ids"], ["i"])], 0, 50),
        ([N("Greater", ["ids", "45"], ["e"]), N("Where", ["e", "10", "ids"], ["i"])], 0, 128),
        ([N("Less", ["ids", "100"], ["e"]), N("Not", ["e"], ["f"]), N("Where", ["f", "ids", "45"], ["i"])], 0, 100),
        ([N("Add", ["ids", "steps"], ["i"])], 0, 47),
        ([N("CumSum", ["ids", "0"], ["i"])], 0, 25),
        ([N("Pad", ["ids", "pads", "100"], ["i"])], 0, 1),
        ([N("Concat", ["ids", "steps"], ["i"], axis=0)], 0, 50),
    ],
)
def test_indices_are_followed_through_arithmetic(nodes: list[Any], low: int, high: int) -> None:
    weights = {str(number): np.array(number) for number in (0, 10, 45, 100)}
    weights |= {"steps": np.arange(4).reshape(2, 2), "table": np.zeros((50, 4), "float32"), "pads": np.ones(4, "int64")}
    net = model([*nodes, N("Gather", ["table", "i"], ["y"])], {"ids": [2, 2]}, ["y"], weights)
    net.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    assert input_ranges.ranges(net)["ids"] == (low, high)


def test_a_large_table_is_used_whole_and_every_generated_index_is_inside() -> None:
    nodes = [N("Sub", ["ids", "k"], ["i"]), N("Gather", ["table", "i"], ["a"]), N("Gather", ["small", "i"], ["y"])]
    weights = {"k": np.array(7), "table": np.zeros((300_000, 1), "float32"), "small": np.zeros((250_000, 1), "float32")}
    net = model(nodes, {"ids": [64, 64]}, ["y", "a"], weights)
    net.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    (tensor,) = input_ranges.inputs(net)
    assert (tensor.low, tensor.high) == (7, 250_007)
    made = random_inputs([tensor])["ids"]
    assert 7 <= made.min() < 2_000
    assert 248_000 < made.max() < 250_007


def test_rows_of_an_index_are_indices_into_what_the_network_computes() -> None:
    nodes = [
        helper.make_node("Relu", ["nodes"], ["features"]),
        helper.make_node("Gather", ["edges", "first"], ["from"], axis=0),
        helper.make_node("Gather", ["features", "from"], ["y"], axis=0),
    ]
    net = model(nodes, {"nodes": [12, 3], "edges": [2, 40]}, ["y"], {"first": np.array(0)})
    net.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.INT64
    assert input_ranges.ranges(net)["edges"] == (0, 12)


def test_a_tensor_that_a_network_writes_to_is_a_table_too() -> None:
    nodes = [helper.make_node("ScatterND", ["table", "ids", "x"], ["y"])]
    net = model(nodes, {"ids": [2, 2], "x": [2]}, ["y"], {"table": np.zeros((9, 5), "float32")})
    net.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    assert input_ranges.ranges(net)["ids"] == (0, 5)


def test_other_numbers_are_bytes_and_masks_are_bits() -> None:
    net = model([helper.make_node("Add", ["ids", "mask"], ["y"])], {"ids": [2], "mask": [2]}, ["y"], {})
    assert input_ranges.ranges(net) == {"ids": (0, input_ranges.PLAIN_HIGH), "mask": (0, input_ranges.MASK_HIGH)}


@pytest.mark.parametrize(
    ("name", "shape", "kind"),
    [
        ("data", [1, 3, 64, 64], Kind.IMAGE),
        ("data", [1, 64, 64, 3], Kind.IMAGE),
        ("data", [1, 80, 64, 64], Kind.NORMAL),
        ("wave", [1, 16000], Kind.SOUND),
        ("features", [1, 128, 40], Kind.NORMAL),
        ("attention_mask", [1, 128], Kind.MASK),
        ("h0", [2, 1, 64], Kind.STATE),
    ],
)
def test_the_name_and_shape_of_an_input_determine_its_content(name: str, shape: list[int], kind: Kind) -> None:
    made = model([helper.make_node("Relu", [name], ["y"])], {name: shape}, ["y"], {})
    assert [tensor.kind for tensor in input_ranges.inputs(made)] == [kind]


@pytest.mark.parametrize(
    ("operator", "value", "kind"),
    [("Div", 255.0, Kind.PIXELS), ("Mul", 1 / 127.5, Kind.PIXELS), ("Sub", 0.5, Kind.UNIT_IMAGE)],
)
def test_a_network_that_normalises_its_image_tells_the_range(operator: str, value: float, kind: Kind) -> None:
    made = model(
        [helper.make_node(operator, ["x", "c"], ["n"]), helper.make_node("Relu", ["n"], ["y"])],
        {"x": [1, 3, 32, 32]}, ["y"], {"c": np.full(1, value, "float32")},
    )  # fmt: skip
    assert input_ranges.inputs(made)[0].kind is kind


@pytest.mark.parametrize(
    ("name", "shape", "high"), [("sr", [], 16_001), ("lengths", [1], 129), ("position_ids", [1, 128], 128)]
)
def test_rates_lengths_and_positions_are_whole_numbers(name: str, shape: list[int], high: int) -> None:
    made = model([helper.make_node("Identity", ["ids"], ["y"])], {"ids": [1, 128], name: shape}, ["y"], {})
    for value in made.graph.input:
        value.type.tensor_type.elem_type = onnx.TensorProto.INT64
    found = {tensor.name: tensor for tensor in input_ranges.inputs(made)}[name]
    assert (found.high, found.kind in (Kind.COUNT, Kind.POSITIONS)) == (high, True)


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        ([("Clip", ["d", "small"]), ("Reciprocal", ["0"])], Kind.POSITIVE),
        ([("Unsqueeze", ["d", "axes"]), ("Max", ["0", "small"]), ("Div", ["one", "1"])], Kind.POSITIVE),
        ([("Add", ["d", "small"]), ("Sqrt", ["0"])], Kind.POSITIVE),
        ([("Log", ["d"])], Kind.POSITIVE),
        ([("Div", ["d", "one"])], Kind.SOUND),
        ([("Mul", ["d", "d"]), ("Sqrt", ["0"])], Kind.SOUND),
        ([("Relu", ["d"]), ("Add", ["d", "0"]), ("Log", ["1"])], Kind.SOUND),
    ],
    ids=lambda one: "-".join(name for name, _ in one) if isinstance(one, list) else str(one),
)
def test_divisors_are_positive(nodes: list[tuple[str, list[str]]], kind: Kind) -> None:
    """A negative distance was clipped to 1e-6, and outputs of a million hid a broken kernel."""
    made = [helper.make_node(name, given, [str(number)]) for number, (name, given) in enumerate(nodes)]
    constants = {"small": np.array(1e-6, "float32"), "one": np.array(1.0, "float32"), "axes": np.array([1])}
    net = model(made, {"d": [512]}, [made[-1].output[0]], constants)
    (tensor,) = input_ranges.inputs(net)
    assert tensor.kind is kind
    (values,) = random_inputs([tensor]).values()
    assert bool(values.min() > 0) is (kind is Kind.POSITIVE)
