"""Networks in each layout have the same outputs, and no more layout transforms than necessary."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

import tvm  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.s_tir import meta_schedule as ms  # noqa: E402

from autosched_tvm.compile import network_compiler, onnx_import  # noqa: E402
from autosched_tvm.compile.candidate_build import load_target  # noqa: E402
from autosched_tvm.compile.frontend import rewrites  # noqa: E402
from autosched_tvm.compile.layouts import layout_assignment  # noqa: E402
from autosched_tvm.compile.layouts.layout_assignment import Converted, Survey  # noqa: E402
from autosched_tvm.compile.layouts.layout_option import LayoutOption  # noqa: E402
from autosched_tvm.compile.layouts.operator_layouts import Way  # noqa: E402
from nets import model  # noqa: E402

TARGET = load_target('{"kind": "llvm"}')
LANES = 8


class Net:
    """Nodes and weights of a network under construction."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}
        self.random = np.random.default_rng(11)

    def constant(self, array: Any) -> str:
        name = f"k{len(self.weights)}"
        self.weights[name] = array
        return name

    def normal(self, *shape: int) -> Any:
        return (self.random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype("float32")

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def conv(self, x: str, out: int, into: int, size: int = 3, groups: int = 1, **attributes: Any) -> str:
        attributes.setdefault("pads", [size // 2] * 4)
        kernel = self.constant(self.normal(out, into // groups, size, size))
        return self.add("Conv", x, kernel, self.constant(self.normal(out)), group=groups, **attributes)

    def done(self, outputs: list[str], *shape: int) -> Any:
        made = model(self.nodes, {"x": list(shape)}, outputs, self.weights, opset=14)
        rewrites.apply(made)
        return made


def residual() -> Any:
    """An image, strides, pooling, a skip connection, and a dense layer."""
    net = Net()
    a = net.add("Relu", net.conv("x", 16, 3, 7, strides=[2, 2]))
    a = net.add("MaxPool", a, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    b = net.conv(net.add("Relu", net.conv(a, 16, 16)), 16, 16)
    c = net.add("Relu", net.add("Add", b, a))
    p = net.add("Flatten", net.add("GlobalAveragePool", net.conv(c, 24, 16, 1)))
    return net.done([net.add("MatMul", p, net.constant(net.normal(24, 5)))], 1, 3, 24, 24)


def branches() -> Any:
    """Two branches that are concatenated, and pools of both kinds."""
    net = Net()
    a = net.add("Relu", net.conv("x", 16, 8))
    left, right = net.add("Relu", net.conv(a, 8, 16, 1)), net.add("Relu", net.conv(a, 16, 16))
    joined = net.add("Concat", left, right, axis=1)
    pooled = net.add("AveragePool", joined, kernel_shape=[2, 2], strides=[2, 2])
    return net.done([net.conv(pooled, 8, 24)], 2, 8, 9, 9)


def mobile() -> Any:
    """Depthwise with a stride, relu6, hard swish, squeeze and excite with its product over channels."""
    net = Net()
    low, high = net.constant(np.float32(0)), net.constant(np.float32(6))
    a = net.add("Clip", net.conv("x", 16, 3, strides=[2, 2]), low, high)
    b = net.add("HardSwish", net.conv(a, 16, 16, groups=16, strides=[2, 2]))
    s = net.add("Relu", net.conv(net.add("GlobalAveragePool", b), 8, 16, 1))
    s = net.add("Sigmoid", net.conv(s, 16, 8, 1))
    c = net.conv(net.add("Mul", b, s), 16, 16, 1)
    d = net.conv(net.add("LeakyRelu", c, alpha=0.1), 16, 16, 5, groups=16, dilations=[2, 2], pads=[4, 4, 4, 4])
    return net.done([net.add("ReduceMean", d, axes=[2, 3], keepdims=0)], 1, 3, 20, 20)


def odd() -> Any:
    """Channels that no block divides, uneven padding, slopes, and an image that weights all channels."""
    net = Net()
    a = net.add("PRelu", net.conv("x", 11, 5, pads=[0, 1, 2, 1]), net.constant(net.normal(11, 1, 1)))
    mask = net.add("Sigmoid", net.conv(a, 1, 11, 1))
    b = net.add("Mul", net.conv(a, 13, 11), mask)
    c = net.add(
        "Div",
        net.add("Sub", b, net.constant(net.normal(13, 1, 1))),
        net.constant(np.full((1, 13, 1, 1), 2.0, "float32")),
    )
    return net.done([net.conv(c, 3, 13), net.add("Exp", c)], 1, 5, 10, 12)  # fmt: skip


def joined_odd() -> Any:
    """A concatenation inside a block, then a softmax over channels."""
    net = Net()
    a, b = net.add("Relu", net.conv("x", 12, 8)), net.add("Relu", net.conv("x", 5, 8))
    c = net.conv(net.add("Concat", a, b, axis=1), 8, 17, 1)
    return net.done([net.add("Softmax", c, axis=1)], 1, 8, 6, 6)


def grouped() -> Any:
    """Groups that blocks fit into, groups that they do not, and a separate padding."""
    net = Net()
    a = net.conv("x", 32, 16, groups=2)
    a = net.add("Pad", net.add("Relu", a), net.constant(np.array([0, 0, 1, 2, 0, 0, 3, 4])))
    b = net.conv(a, 12, 32, groups=4)
    return net.done([net.add("Tanh", net.conv(b, 8, 12, 1))], 1, 16, 7, 7)


def shuffled() -> Any:
    """An operator without layouts between two convolutions."""
    net = Net()
    a = net.conv("x", 16, 8)
    turned = net.add("Reshape", a, net.constant(np.array([1, 2, 8, 6, 6])))
    turned = net.add("Transpose", turned, perm=[0, 2, 1, 3, 4])
    a = net.add("Reshape", turned, net.constant(np.array([1, 16, 6, 6])))
    return net.done([net.conv(a, 8, 16), a], 1, 8, 6, 6)


def pixels() -> Any:
    """A model from a framework with NHWC images: transposed to NCHW for its convolutions, and back."""
    net = Net()
    a = net.add("Relu", net.conv(net.add("Transpose", "x", perm=[0, 3, 1, 2]), 8, 3))
    return net.done([net.add("Transpose", net.conv(a, 8, 8, 1), perm=[0, 2, 3, 1])], 1, 10, 10, 3)


def upsampling(**attributes: Any) -> Any:
    """A transposed convolution to 16 channels, an activation, and another one to a single channel."""
    net = Net()
    size = attributes.pop("size")
    a = net.add("ConvTranspose", net.conv("x", 12, 8), net.constant(net.normal(12, 16, *size)), **attributes)
    a = net.add("Relu", a)
    b = net.add("ConvTranspose", a, net.constant(net.normal(16, 1, 2, 2)), strides=[2, 2])
    return net.done([net.add("Sigmoid", b)], 2, 8, 5, 6)


def dense(columns: int) -> Any:
    """A product with weights, of rank 3, with a bias and an activation, and a product of a computed matrix."""
    net = Net()
    a = net.add("Relu", net.add("Add", net.add("MatMul", "x", net.constant(net.normal(12, columns))),
                                net.constant(net.normal(columns))))  # fmt: skip
    return net.done([net.add("MatMul", a, net.add("Transpose", a, perm=[0, 2, 1]))], 2, 5, 12)


def enlarged() -> Any:
    """An image that is enlarged in two ways between convolutions, and concatenated."""
    net = Net()
    sizes = [net.constant(np.array([], "float32")), net.constant(np.array([1, 1, 2, 2], "float32"))]
    a = net.add("Relu", net.conv("x", 16, 8))
    b = net.add("Resize", a, *sizes, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    c = net.add("Resize", a, *sizes, mode="linear", coordinate_transformation_mode="half_pixel")
    return net.done([net.conv(net.add("Concat", b, c, axis=1), 8, 32, 1)], 1, 8, 6, 5)


def ranged() -> Any:
    """Convolutions whose results are divided by their own range, and scaled by a computed vector."""
    net = Net()
    a = "x"
    for channels in (8, 16, 16):
        a = net.conv(a, 16, channels)
        high, low = (net.add(kind, a, keepdims=keeps) for kind, keeps in (("ReduceMax", 0), ("ReduceMin", 1)))
        total = net.add("ReduceSum", net.add("Abs", a), keepdims=0)
        width = net.add("Sub", high, low)
        a = net.add(
            "Relu", net.add("Add", net.add("Div", a, net.add("Add", width, net.constant(np.float32(1)))), total)
        )
        a = net.add("Sub", a, net.add("Mul", width, net.constant(net.normal(1, 16, 1, 1))))
    return net.done([a], 1, 8, 6, 5)


def surveyed(net: Any) -> Survey:
    found = layout_assignment.survey(onnx_import.cleaned(net), LANES)
    assert found is not None
    return found


def converted(net: Any, wanted: LayoutOption) -> Converted:
    found = surveyed(net)
    return layout_assignment.convert(found, layout_assignment.plan(found, layout_assignment.uniform(wanted)), TARGET)


def outputs(fused: Any, inputs: dict[str, Any]) -> list[Any]:
    with TARGET, ms.database.MemoryDatabase(), tvm.transform.PassContext(opt_level=1):
        machine = relax.VirtualMachine(
            relax.build(fused, TARGET, relax_pipeline=network_compiler._pipeline()), tvm.cpu()
        )
    result = machine["main"](*(tvm.runtime.tensor(array) for array in inputs.values()))
    return [result.numpy()] if hasattr(result, "numpy") else [one.numpy() for one in result]


def check(net: Any, module: Any) -> None:
    """Checks that the module computes the outputs of the model."""
    value = net.graph.input[0].type.tensor_type.shape
    shape = [int(d.dim_value) for d in value.dim]
    inputs = {"x": np.random.default_rng(2).standard_normal(shape).astype("float32")}
    expected = ReferenceEvaluator(net).run(None, inputs)
    got = outputs(onnx_import.fused(module, TARGET), inputs)
    for want, have in zip(expected, got, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)


# What is left: inputs and outputs of the network in blocks, results of one channel, joints inside of blocks, operators
# that know no layouts.
MOVES = {
    residual: (0, 1),
    branches: (2, 2),
    mobile: (0, 1),
    odd: (4, 4),
    joined_odd: (5, 2),
    grouped: (4, 2),
    shuffled: (4, 4),
    pixels: (1, 0),
    enlarged: (2, 2),
    ranged: (2, 2),
}


@pytest.mark.parametrize("make", MOVES)
@pytest.mark.parametrize("wanted", [LayoutOption.NCHWC, LayoutOption.NHWC])
def test_outputs_stay_and_few_moves_are_left(make: Callable[[], Any], wanted: LayoutOption) -> None:
    net = make()
    made = converted(net, wanted)
    check(net, made.module)
    assert len(made.moves) == MOVES[make][wanted is LayoutOption.NHWC]
    kept = (
        LayoutOption.NCHW if make is grouped and wanted is LayoutOption.NCHWC else wanted
    )  # three channels are no block
    assert set(made.wanted) == {wanted, kept}


@pytest.mark.parametrize(
    "attributes",
    [
        {"size": (2, 2), "strides": [2, 2]},
        {"size": (4, 4), "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"size": (3, 3), "strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
        {"size": (3, 5), "strides": [3, 2], "pads": [0, 2, 1, 1]},
        {"size": (3, 3), "strides": [1, 1], "pads": [1, 1, 1, 1]},
        {"size": (2, 2), "strides": [3, 3]},
    ],
)
def test_transposed_convolutions_compute_no_zeros(attributes: dict[str, Any]) -> None:
    net = upsampling(**attributes)
    made = converted(net, LayoutOption.NCHWC)
    check(net, made.module)
    names = [str(variable.name_hint) for variable in onnx_import.fused(made.module, TARGET).get_global_vars()]
    assert sum("spread" in name for name in names) == 2 and not any("transpose" in name for name in names)


@pytest.mark.parametrize(("columns", "blocks"), [(32, (2, 12, 16)), (37, (3, 12, 16)), (8, (1, 12, 8)), (7, None)])
def test_weights_of_products_are_packed(columns: int, blocks: tuple[int, ...] | None) -> None:
    """Weights are in blocks of two vectors of columns; fewer columns than a vector are left unchanged."""
    net = dense(columns)
    made = converted(net, LayoutOption.NCHWC)
    check(net, made.module)
    shapes = [tuple(kernel.value.numpy().shape) for kernel in made.kernels]
    assert shapes == ([] if blocks is None else [blocks])
    assert all(kernel.value.numpy().shape == (12, columns) for kernel in converted(net, LayoutOption.NCHW).kernels)


def test_convolutions_may_be_in_different_layouts() -> None:
    """Each of four convolutions has its own layout; the outputs stay."""
    net = mobile()
    found = surveyed(net)
    cycle = dict(zip(found.convolutions, [LayoutOption.NHWC, LayoutOption.NCHW, LayoutOption.NCHWC] * 2, strict=True))

    def price(index: int, way: Way) -> float:
        return layout_assignment.uniform(cycle[index])(index, way) if index in cycle else 0.0

    made = layout_assignment.convert(found, layout_assignment.plan(found, price), TARGET)
    assert list(made.wanted) == list(cycle.values())
    check(net, made.module)


def test_an_operation_that_can_be_fused_stays_fused() -> None:
    """At the network's end a value is transformed after its activation, which stays in the convolution's kernel."""
    net = Net()
    made = converted(net.done([net.add("Relu", net.conv("x", 16, 8))], 1, 8, 6, 6), LayoutOption.NCHWC)
    names = [
        str(task.task_name)
        for task in ms.relax_integration.extract_tasks(onnx_import.fused(made.module, TARGET), TARGET)
    ]
    assert "fused_conv2d_NCHWc_add_relu" in names


def test_a_network_of_more_than_one_block_is_left_alone() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 4, 4), "float32"))
    with builder.function("main", [x]):
        value = builder.emit(relax.op.nn.relu(x))  # outside of a dataflow block
        builder.emit_func_output(value)
    assert layout_assignment.survey(builder.get(), LANES) is None
