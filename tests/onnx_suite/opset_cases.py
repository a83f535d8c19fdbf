"""Cases of common operators in each of their versions from opset 7 to 24; ONNX Runtime gives the expected outputs.

The backend suite of an onnx package has the operators in their last version only.
"""

import multiprocessing
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import onnx
from msgspec import Struct
from onnx import TensorProto, defs, helper, numpy_helper

from onnx_suite.cases import Case

FIRST, LAST = 7, 24
"""First and last opset: ONNX Runtime promises nothing for earlier ones."""
RELATIVE, ABSOLUTE = 1e-3, 1e-5


class Variant(Struct, frozen=True):
    """One use of an operator, in a range of opsets. The first input is given, the others are constants."""

    operator: str
    inputs: list[Any]
    attributes: dict[str, Any] = {}
    outputs: int = 1
    since: int = FIRST
    until: int = LAST


def _floats(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def _whole(*numbers: int) -> Any:
    return np.array(numbers, "int64")


IMAGE, ROWS, SIGNAL = _floats(2, 6, 9, 7), _floats(4, 5, 6), _floats(1, 3, 15)
POSITIVE = np.abs(ROWS) + 0.1
NUMBERS = np.array([[3, -1, 4], [-1, 5, -9]], "int64")
CHANNELS = _floats(6)
V = Variant


def _simple() -> Iterator[Variant]:
    for name in (
        "Abs", "Ceil", "Elu", "Exp", "Floor", "HardSigmoid", "LeakyRelu", "Neg", "Relu", "Selu", "Sigmoid", "Softplus",
        "Softsign", "Tanh", "ThresholdedRelu", "Identity", "Sin", "Cos", "Tan", "Atan", "Erf", "Sign", "Sinh", "Cosh",
        "Asinh", "Round", "Celu", "HardSwish", "Gelu", "Mish", "IsNaN", "IsInf", "Shrink", "MeanVarianceNormalization",
        "LpNormalization", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "Flatten", "Shape", "Size", "Dropout",
        "Hardmax",
    ):  # fmt: skip
        yield V(name, [IMAGE])
    for name in ("Log", "Sqrt", "Reciprocal"):
        yield V(name, [POSITIVE])
    yield V("Acosh", [POSITIVE + 1])
    yield V("Gelu", [ROWS], {"approximate": "tanh"})
    yield V("Not", [ROWS > 0])
    for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Mean", "Sum"):
        yield V(name, [ROWS, _floats(5, 1) + 3])
    for name in ("Add", "Sub", "Mul", "Div", "Max", "Min"):
        yield V(name, [NUMBERS, np.array([[2], [-3]])], since=8 if name not in ("Max", "Min") else 12)
    yield V("Pow", [POSITIVE, np.array(2.5, "float32")])
    for name in ("Equal", "Less", "Greater"):
        yield V(name, [ROWS, ROWS[0]], since=11)
    for name in ("LessOrEqual", "GreaterOrEqual"):
        yield V(name, [ROWS, ROWS[0]])
    for name in ("And", "Or", "Xor"):
        yield V(name, [ROWS > 0, ROWS[0] > 0.5])
    yield V("Where", [ROWS > 0, ROWS, ROWS[0]])
    for mode in (0, 1):
        yield V("Mod", [NUMBERS, np.array([2, 3, -4])], {"fmod": mode})
    yield V("BitShift", [np.array([1, 200, 7], "uint8"), np.array([1, 2, 3], "uint8")], {"direction": "LEFT"})
    for to in (TensorProto.INT64, TensorProto.DOUBLE, TensorProto.BOOL, TensorProto.UINT8):
        yield V("Cast", [POSITIVE], {"to": to})
    yield V("Clip", [ROWS], {"min": -0.5, "max": 0.75}, until=10)
    yield V("Clip", [ROWS], {"max": 0.75}, until=10)
    yield V("Clip", [ROWS, np.float32(-0.5), np.float32(0.75)], since=11)
    yield V("Clip", [ROWS, None, np.float32(0.75)], since=11)
    yield V("Clip", [NUMBERS, np.int64(0)], since=12)


def _along_axes() -> Iterator[Variant]:
    for name in ("Softmax", "LogSoftmax", "Hardmax"):
        for axis in (0, 1, 2):
            yield V(name, [ROWS], {"axis": axis})
    for name in (
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
        "ReduceLogSumExp", "ReduceSumSquare",
    ):  # fmt: skip
        inputs = 13 if name == "ReduceSum" else 18
        yield V(name, [POSITIVE], {"axes": [0, 2], "keepdims": 0}, until=inputs - 1)
        yield V(name, [POSITIVE], {"axes": [1]}, until=inputs - 1)
        yield V(name, [POSITIVE, _whole(0, -1)], {"keepdims": 0}, since=inputs)
        yield V(name, [POSITIVE], {"noop_with_empty_axes": 1}, since=inputs)
        yield V(name, [POSITIVE])
    for name in ("ArgMax", "ArgMin"):
        yield V(name, [np.round(ROWS)], {"axis": 1, "keepdims": 0})
        yield V(name, [np.round(ROWS)], {"axis": -1, "select_last_index": 1}, since=12)
    yield V("TopK", [ROWS], {"k": 3, "axis": 1}, 2, until=9)
    yield V("TopK", [ROWS, _whole(3)], {"axis": -1}, 2, since=10)
    yield V("TopK", [ROWS, _whole(2)], {"axis": 0, "largest": 0}, 2, since=11)
    for given in ({}, {"exclusive": 1}, {"reverse": 1}):
        yield V("CumSum", [ROWS, np.int64(1)], given)


def _moved() -> Iterator[Variant]:
    yield V("Concat", [ROWS, _floats(4, 2, 6)], {"axis": 1})
    yield V("Split", [ROWS], {"axis": 1, "split": [2, 3]}, 2, until=12)
    yield V("Split", [ROWS, _whole(2, 3)], {"axis": 1}, 2, since=13)
    yield V("Split", [ROWS], {"axis": 2}, 3, until=17)
    yield V("Split", [ROWS], {"axis": 1, "num_outputs": 2}, 2, since=18)
    yield V("Slice", [ROWS], {"starts": [1, -3], "ends": [9, -1], "axes": [0, 2]}, until=9)
    yield V("Slice", [ROWS, _whole(1, -3), _whole(9, -1), _whole(0, 2)], since=10)
    yield V("Slice", [ROWS, _whole(4, -1), _whole(0, -9), _whole(1, 2), _whole(-2, -1)], since=10)
    yield V("Squeeze", [_floats(1, 3, 1, 2)], {"axes": [0, 2]}, until=12)
    yield V("Squeeze", [_floats(1, 3, 1, 2), _whole(0, -2)], since=13)
    yield V("Squeeze", [_floats(1, 3, 1, 2)])
    yield V("Unsqueeze", [ROWS], {"axes": [0, 2]}, until=12)
    yield V("Unsqueeze", [ROWS, _whole(0, -1)], since=13)
    yield V("Flatten", [ROWS], {"axis": 2})
    yield V("Transpose", [ROWS], {"perm": [2, 0, 1]})
    yield V("Transpose", [ROWS])
    yield V("Reshape", [ROWS, _whole(0, -1, 2)])
    yield V("Expand", [_floats(4, 1, 6), _whole(2, 1, 5, 6)])
    yield V("Tile", [_floats(2, 3), _whole(2, 3)])
    for mode in ("constant", "reflect", "edge"):
        yield V("Pad", [ROWS], {"pads": [0, 1, 2, 1, 0, 2], "mode": mode}, until=10)
        yield V("Pad", [ROWS, _whole(0, 1, 2, 1, 0, 2)], {"mode": mode}, since=11)
    yield V("Pad", [ROWS], {"pads": [0, -1, 2, 1, 0, -2], "value": 1.5}, until=10)
    yield V("Pad", [ROWS, _whole(0, -1, 2, 1, 0, -2), np.float32(1.5)], since=11)
    yield V("Pad", [ROWS, _whole(1, 2), np.float32(1.5), _whole(-1)], since=18)
    yield V("Pad", [ROWS, _whole(0, 1, 2, 1, 0, 2)], {"mode": "wrap"}, since=19)
    yield V("Gather", [ROWS, np.array([[0, 2], [-1, 1]])], {"axis": 1}, since=11)
    yield V("GatherElements", [ROWS, np.array(NUMBERS % 4)[None]], {"axis": 1})
    yield V("GatherND", [ROWS, np.array([[0, 2], [3, 1]])])
    yield V("GatherND", [ROWS, np.array([[1], [0], [3], [2]])], {"batch_dims": 1}, since=12)
    index, updates = np.array([[1, 0, 2], [0, 3, 1]])[None], _floats(1, 2, 3)
    yield V("Scatter", [ROWS, index, updates], {"axis": 1}, until=10)
    yield V("ScatterElements", [ROWS, index, updates], {"axis": 1})
    for reduction, since in (("add", 16), ("mul", 16), ("max", 18), ("min", 18)):
        yield V("ScatterElements", [ROWS, index, updates], {"axis": 1, "reduction": reduction}, since=since)
        yield V("ScatterND", [ROWS, np.array([[1], [3]]), _floats(2, 5, 6)], {"reduction": reduction}, since=since)
    yield V("ScatterND", [ROWS, np.array([[1, 2], [3, 0]]), _floats(2, 6)])
    yield V("OneHot", [NUMBERS, np.int64(5), np.array([0.5, 2], "float32")], {"axis": 1})
    for upper in (0, 1):
        yield V("Trilu", [ROWS, np.int64(-1)], {"upper": upper})
    yield V("Einsum", [ROWS, _floats(4, 6, 3)], {"equation": "bij,bjk->bik"})
    yield V("ReverseSequence", [ROWS, _whole(4, 2, 1, 3, 4)], {"time_axis": 0, "batch_axis": 1})


def _layers() -> Iterator[Variant]:
    weights, small = _floats(8, 6, 3, 2), _floats(8, 3, 3, 3)
    yield V("Conv", [IMAGE, weights, _floats(8)], {"pads": [1, 0, 2, 1], "strides": [2, 1]})
    yield V("Conv", [IMAGE, small], {"group": 2, "dilations": [2, 1]})
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        yield V("Conv", [IMAGE, weights], {"auto_pad": pad, "strides": [2, 2]})
        yield V("MaxPool", [IMAGE], {"kernel_shape": [3, 2], "auto_pad": pad, "strides": [2, 2]})
        yield V("AveragePool", [IMAGE], {"kernel_shape": [3, 2], "auto_pad": pad, "strides": [2, 2]})
        yield V("ConvTranspose", [IMAGE, _floats(6, 4, 3, 2)], {"auto_pad": pad, "strides": [2, 2]})
    yield V("Conv", [SIGNAL, _floats(4, 3, 5)], {"pads": [2, 1], "strides": [2]})
    yield V("Conv", [_floats(1, 2, 5, 6, 4), _floats(3, 2, 3, 3, 2)], {"pads": [1, 1, 0, 1, 0, 1]})
    up = _floats(6, 4, 3, 2)
    yield V("ConvTranspose", [IMAGE, up, _floats(4)], {"pads": [1, 0, 0, 1], "strides": [2, 3]})
    yield V("ConvTranspose", [IMAGE, up], {"output_padding": [1, 0], "strides": [2, 2]})
    yield V("ConvTranspose", [IMAGE, up], {"output_shape": [19, 15], "strides": [2, 2]})
    yield V("ConvTranspose", [IMAGE, _floats(6, 2, 3, 2)], {"group": 2, "dilations": [2, 1]})
    yield V("ConvTranspose", [SIGNAL, _floats(3, 4, 5)], {"strides": [3], "pads": [1, 2]})
    pools: list[tuple[dict[str, Any], int, int]] = [
        ({"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 2]}, 7, 7),
        ({"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, 10, 10),
        ({"kernel_shape": [3, 2], "pads": [1, 1, 1, 0], "strides": [3, 2], "ceil_mode": 1}, 10, 10),
        ({"kernel_shape": [2, 2], "dilations": [3, 2], "pads": [1, 0, 0, 1]}, 10, 19),
        ({"kernel_shape": [2, 2], "dilations": [2, 2], "strides": [2, 2], "ceil_mode": 1}, 10, 19),
    ]
    for given, since, mean in pools:
        yield V("MaxPool", [IMAGE], given, since=since)
        yield V("AveragePool", [IMAGE], given, since=mean)
        yield V("AveragePool", [IMAGE], given | {"count_include_pad": 1}, since=mean)
    yield V("MaxPool", [SIGNAL], {"kernel_shape": [4], "strides": [3], "pads": [1, 2]})
    yield V("AveragePool", [SIGNAL], {"kernel_shape": [4], "strides": [3], "pads": [1, 2]})
    yield V("MaxPool", [_floats(1, 2, 5, 6, 4)], {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2]})
    yield V("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "strides": [2, 2]}, 2, since=8)
    yield V("MaxPool", [np.arange(48, dtype="int8").reshape(1, 2, 6, 4)], {"kernel_shape": [2, 2]}, since=12)
    for p in (1, 2, 3):
        yield V("LpPool", [IMAGE], {"kernel_shape": [3, 2], "p": p, "pads": [1, 0, 1, 1]})
    yield V("LpPool", [IMAGE], {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}, since=18)
    for name in ("LSTM", "GRU", "RNN"):
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
        for direction in ("forward", "reverse", "bidirectional"):
            count = 2 if direction == "bidirectional" else 1
            inputs = [_floats(7, 2, 3), _floats(count, gates * 5, 3), _floats(count, gates * 5, 5)]
            inputs.append(_floats(count, 2 * gates * 5))
            yield V(name, inputs, {"hidden_size": 5, "direction": direction}, 2)
        inputs = [_floats(7, 2, 3), _floats(1, gates * 5, 3), _floats(1, gates * 5, 5), None, np.array([7, 4], "int32")]
        yield V(name, inputs, {"hidden_size": 5}, 2)
    yield V(
        "GRU", [_floats(7, 2, 3), _floats(1, 15, 3), _floats(1, 15, 5)], {"hidden_size": 5, "linear_before_reset": 1}
    )
    yield V("Gemm", [_floats(4, 5), _floats(5, 3), _floats(3)], {"alpha": 0.5, "beta": 2.0})
    yield V("Gemm", [_floats(5, 4), _floats(3, 5)], {"transA": 1, "transB": 1}, since=11)
    for left, right in (((2, 3, 4, 5), (5, 6)), ((3, 4, 5), (2, 1, 5, 6)), ((5,), (2, 5, 3)), ((2, 4, 5), (5,))):
        yield V("MatMul", [_floats(*left), _floats(*right)])


def _normalised_and_sampled() -> Iterator[Variant]:
    mean, spread = _floats(6), np.abs(_floats(6)) + 0.5
    yield V("BatchNormalization", [IMAGE, CHANNELS, CHANNELS + 1, mean, spread], {"epsilon": 1e-3})
    yield V("InstanceNormalization", [IMAGE, CHANNELS, CHANNELS + 1])
    yield V("GroupNormalization", [IMAGE, _floats(3), _floats(3)], {"num_groups": 3}, since=18, until=20)
    yield V("GroupNormalization", [IMAGE, CHANNELS, CHANNELS], {"num_groups": 3}, since=21)
    yield V("LayerNormalization", [ROWS, _floats(6), _floats(6)])
    yield V("LayerNormalization", [ROWS, _floats(5, 6)], {"axis": 1}, 3)
    yield V("RMSNormalization", [ROWS, _floats(5, 6)], {"axis": 1})
    yield V("LRN", [IMAGE], {"size": 4, "alpha": 0.1, "beta": 0.6, "bias": 2.0})
    yield V("LpNormalization", [ROWS], {"axis": 1, "p": 1})
    for mode in ("DCR", "CRD"):
        yield V("DepthToSpace", [_floats(1, 8, 3, 2)], {"blocksize": 2, "mode": mode}, since=11)
    yield V("DepthToSpace", [_floats(1, 8, 3, 2)], {"blocksize": 2})
    yield V("SpaceToDepth", [_floats(1, 3, 6, 4)], {"blocksize": 2})
    scales = np.array([1, 1, 2, 3], "float32")
    for mode in ("nearest", "linear"):
        yield V("Upsample", [_floats(1, 2, 4, 3)], {"scales": [1.0, 1.0, 2.0, 3.0], "mode": mode}, until=8)
        yield V("Upsample", [_floats(1, 2, 4, 3), scales], {"mode": mode}, since=9, until=9)
        for factor in (scales, np.array([1, 1, 1.7, 0.6], "float32"), np.array([1, 1, 0.6, 0.75], "float32")):
            yield V("Resize", [_floats(1, 2, 5, 8), factor], {"mode": mode}, since=10, until=10)
    for mode in ("nearest", "linear", "cubic"):
        for place in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
            given = {"mode": mode, "coordinate_transformation_mode": place}
            yield V("Resize", [_floats(1, 2, 5, 7), None, None, _whole(1, 2, 8, 3)], given, since=13)
            if place != "align_corners":
                factor = np.array([1, 1, 1.7, 0.6], "float32")
                yield V("Resize", [_floats(1, 2, 5, 7), None, factor], given, since=13)
    for mode in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        given = {"nearest_mode": mode, "coordinate_transformation_mode": "half_pixel"}
        yield V("Resize", [_floats(1, 2, 5, 7), None, None, _whole(1, 2, 8, 3)], given, since=13)
    grid = np.clip(_floats(1, 3, 4, 2) * 0.7, -1.3, 1.3)
    for align in (0, 1):
        for mode in ("bilinear", "nearest", "bicubic"):
            for border in ("zeros", "border", "reflection"):
                given = {"mode": mode, "padding_mode": border, "align_corners": align}
                later = given | {"mode": {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)}
                yield V("GridSample", [_floats(1, 2, 5, 6), grid], given, since=16, until=19)
                yield V("GridSample", [_floats(1, 2, 5, 6), grid], later, since=20)
    regions = np.array([[0.5, 1, 5.2, 6.7], [2, 2, 7, 4]], "float32")
    for given in ({}, {"sampling_ratio": 2}, {"spatial_scale": 0.5}):
        shape = {"output_height": 3, "output_width": 2}
        yield V("RoiAlign", [IMAGE, regions, _whole(0, 1)], shape | given, since=10)
    yield V(
        "RoiAlign", [IMAGE, regions, _whole(1, 0)], {"coordinate_transformation_mode": "output_half_pixel"}, since=16
    )
    scale = np.float32(0.05)
    for zero in (np.uint8(120), np.int8(-5)):
        yield V("QuantizeLinear", [ROWS, scale, zero], since=10)
        yield V("DequantizeLinear", [np.arange(-20, 20).astype(zero.dtype), scale, zero], since=10)


@cache
def _versions(operator: str) -> tuple[int, ...]:
    """The first opset of each version of an operator."""
    known = [(opset, _schema(operator, opset)) for opset in range(FIRST, LAST + 1)]
    since = [(opset, one.since_version) for opset, one in known if one is not None and not one.deprecated]
    return tuple(min(opset for opset, one in since if one == version) for version in sorted({one for _, one in since}))


def _schema(operator: str, opset: int) -> Any:
    try:
        return defs.get_schema(operator, opset, "")
    except defs.SchemaError:
        return None


def _models() -> Iterator[tuple[str, Any, Any]]:
    """Name, model, and its input."""
    numbers: dict[str, int] = {}
    for variant in (*_simple(), *_along_axes(), *_moved(), *_layers(), *_normalised_and_sampled()):
        versions = _versions(variant.operator)
        opsets = {one for one in versions if variant.since <= one <= variant.until}
        opsets |= {max(variant.since, versions[0])}
        numbers[variant.operator] = number = numbers.get(variant.operator, 0) + 1
        for opset in sorted(opsets):
            if _schema(variant.operator, opset) is not None and not _schema(variant.operator, opset).deprecated:
                yield f"opset{opset:02}_{variant.operator}_{number}", _model(variant, opset), variant.inputs[0]


def _model(variant: Variant, opset: int) -> Any:
    names = [f"i{place}" if array is not None else "" for place, array in enumerate(variant.inputs)]
    node = helper.make_node(variant.operator, names, [f"y{n}" for n in range(variant.outputs)], **variant.attributes)
    first = np.asarray(variant.inputs[0])
    kind = helper.np_dtype_to_tensor_dtype(first.dtype)
    graph = helper.make_graph(
        [node], variant.operator, [helper.make_tensor_value_info("i0", kind, first.shape)],
        [helper.make_value_info(name, onnx.TypeProto()) for name in node.output],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in zip(names[1:], variant.inputs[1:], strict=True) if n],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def expected(model: bytes, value: Any) -> list[Any] | None:
    """Outputs of ONNX Runtime without its graph optimisations; None where it cannot run the model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return list(session.run(None, {"i0": np.asarray(value)}))
    except Exception:  # its errors have no common class
        return None


def all_cases() -> Iterator[Case]:
    """All cases that ONNX Runtime can run. It runs in a process of its own, since it starts threads."""
    made: Iterable[tuple[str, Any, Any]] = list(_models())
    models = [model.SerializeToString() for _, model, _ in made]
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        found = list(pool.map(expected, models, [value for *_, value in made], chunksize=100))
    for (name, _, value), model, outputs in zip(made, models, found, strict=True):
        if outputs is not None:
            yield Case(name, model, [([np.asarray(value)], outputs)], RELATIVE, ABSOLUTE)
