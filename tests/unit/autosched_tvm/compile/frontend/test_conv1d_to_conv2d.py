"""One-dimensional convolutions as two-dimensional ones: the outputs stay, and few tensors change their rank."""

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autosched_tvm.compile.frontend import rewrites

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 4, 20)).astype("float32")


def constant(name: str, *shape: int) -> Any:
    return numpy_helper.from_array(RANDOM.standard_normal(shape).astype("float32"), name)


def integers(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, "int64"), name)


def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(","), [output], name=output, **attributes)


def lifted(nodes: list[Any], constants: list[Any], opset: int = 17, outputs: str = "y") -> tuple[Any, Counter[str]]:
    """Rewrites a network of input x, compares its outputs with those of the original, and counts its operators."""
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs.split(",")]
    graph = helper.make_graph(nodes, "g", given, made, initializer=constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    expected = ReferenceEvaluator(model).run(None, {"x": X})
    rewrites.apply(model)
    onnx.checker.check_model(model, full_check=True)
    for want, got in zip(expected, ReferenceEvaluator(model).run(None, {"x": X}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return model, Counter(one.op_type for one in model.graph.node)


@pytest.mark.parametrize(
    ("kind", "weight", "attributes"),
    [
        ("Conv", (6, 4, 3), {"kernel_shape": [3], "pads": [1, 2], "strides": [2], "dilations": [3]}),
        ("Conv", (8, 1, 5), {"group": 4, "auto_pad": "SAME_UPPER"}),
        ("ConvTranspose", (4, 6, 4), {"strides": [3], "pads": [1, 0], "output_padding": [2]}),
    ],
)
def test_convolutions_of_all_kinds_keep_their_result(
    kind: str, weight: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    model, kinds = lifted([node(kind, "x,w", "y", **attributes)], [constant("w", *weight)])
    convolution = next(one for one in model.graph.node if one.op_type == kind)
    (stored,) = [tensor for tensor in model.graph.initializer if tensor.name == convolution.input[1]]
    assert list(stored.dims) == [*weight[:2], 1, weight[2]]
    assert (kinds["Unsqueeze"], kinds["Squeeze"]) == (1, 1)


def test_convolutions_of_integers_keep_their_result() -> None:
    weights = numpy_helper.from_array(RANDOM.integers(-9, 9, (6, 4, 3)).astype("int8"), "w")
    nodes = [
        helper.make_node("Cast", ["x"], ["q"], to=TensorProto.UINT8),
        node("ConvInteger", "q,w,z", "sums", pads=[1, 2]),
        helper.make_node("Cast", ["sums"], ["y"], to=TensorProto.FLOAT),
    ]
    model, kinds = lifted(nodes, [weights, numpy_helper.from_array(np.asarray(7, "uint8"), "z")])
    (stored,) = [tensor for tensor in model.graph.initializer if tensor.data_type == TensorProto.INT8]
    assert list(stored.dims) == [6, 4, 1, 3]
    assert (kinds["Unsqueeze"], kinds["Squeeze"]) == (1, 1)


@pytest.mark.parametrize("opset", [11, 17])
def test_operators_between_convolutions_keep_the_height(opset: int) -> None:
    nodes = [
        node("Conv", "x,w1,b", "c1", pads=[1, 1]),
        node("LeakyRelu", "c1", "l1"),
        node("Add", "l1,row", "a1"),
        node("Mul", "a1,column", "m1"),
        node("Slice", "m1,begin,end,axes", "s1"),
        node("Concat", "s1,m1", "j1", axis=-1),
        node("Pad", "j1,pads", "p1", mode="reflect"),
        node("MaxPool", "p1", "q1", kernel_shape=[2], strides=[2]),
        node("Conv", "q1,w2", "c2"),
        node("Sub", "c2,scalar", "y"),
    ]
    constants = [
        constant("w1", 6, 4, 3), constant("b", 6), constant("w2", 5, 6, 3),
        constant("row", 20), constant("column", 6, 1), constant("scalar"),
        integers("begin", -3), integers("end", 1000), integers("axes", 2),
        integers("pads", 0, 0, 2, 0, 0, 3),
    ]  # fmt: skip
    _, kinds = lifted(nodes, constants, opset)
    assert (kinds["Unsqueeze"], kinds["Squeeze"]) == (1, 1)


def test_other_operators_get_the_tensor_without_a_height() -> None:
    nodes = [
        node("Conv", "x,w", "c"),
        node("Relu", "c", "r"),
        node("Transpose", "r", "t", perm=[0, 2, 1]),
        node("Softmax", "t", "y", axis=-1),
        node("Sigmoid", "r", "z"),
    ]
    model, kinds = lifted(nodes, [constant("w", 6, 4, 3)], outputs="y,z,r")
    assert kinds["Squeeze"] == 2
    assert {value.name for value in model.graph.output} == {"y", "z", "r"}


def test_an_operand_of_two_dimensions_is_given_a_height_too() -> None:
    nodes = [node("Conv", "x,w", "c"), node("ReduceMax", "c", "m", axes=[0], keepdims=0), node("Sub", "c,m", "y")]
    lifted(nodes, [constant("w", 6, 4, 3)])


def test_a_tensor_that_a_subgraph_reads_exists_in_its_old_form() -> None:
    inner = [
        helper.make_graph(
            [node(kind, "c", kind)], kind, [], [helper.make_tensor_value_info(kind, TensorProto.FLOAT, None)]
        )
        for kind in ("Relu", "Neg")
    ]
    nodes = [
        node("Conv", "x,w", "c"),
        node("ReduceMax", "x", "most", keepdims=0),
        node("Greater", "most,zero", "positive"),
        node("If", "positive", "y", then_branch=inner[0], else_branch=inner[1]),
    ]
    zero = numpy_helper.from_array(np.array(0.0, "float32"), "zero")
    lifted(nodes, [constant("w", 6, 4, 3), zero])


def test_a_network_of_images_stays_as_it_is() -> None:
    nodes = [node("Unsqueeze", "x,axis", "u"), node("Conv", "u,w", "y")]
    _, kinds = lifted(nodes, [constant("w", 6, 4, 3, 1), integers("axis", -1)])
    assert kinds == {"Unsqueeze": 1, "Conv": 1}
