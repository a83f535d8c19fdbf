"""Type and shape of each node in TVM are compared with ONNX at import; what cannot be built is refused there."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from quantisation import quantise

from autosched.errors import ModelRejected
from autosched_tvm.compile import model_sources, onnx_import, targets
from autosched_tvm.compile.frontend.refused_operators import OperatorRejected
from nets import model

tvm = pytest.importorskip("tvm")
from tvm import relax  # noqa: E402
from tvm.relax.frontend.onnx import onnx_frontend  # noqa: E402


def imported(net: Any, folder: Path) -> Any:
    path = folder / "net.onnx"
    onnx.save(net, str(path))
    return onnx_import.cleaned(onnx_import.prepare(path, {}).model)


def net_of(operator: str, **attributes: Any) -> Any:
    return model([helper.make_node(operator, ["x"], ["y"], **attributes)], {"x": [2, 3, 4]}, ["y"], {}, 13)


WRONG = {
    "type": lambda value: relax.op.astype(value, "float64"),
    "shape": lambda value: relax.op.sum(value, axis=0),
    "rank": lambda value: relax.op.expand_dims(value, 0),
}


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("operator", ["Tanh", "Sqrt", "Erf", "Floor", "Sigmoid", "Softplus"])
def test_a_wrong_converter_is_found_at_import(
    operator: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert = WRONG[fault]

    class Mutant(onnx_frontend.OnnxOpConverter):  # type: ignore[misc]  # TVM has no types
        @classmethod
        def get_converter(cls, _opset: int) -> Any:
            return lambda builder, inputs, attributes, params: builder.emit(convert(inputs[0]))

    original = onnx_frontend._get_convert_map
    monkeypatch.setattr(onnx_frontend, "_get_convert_map", lambda: {**original(), operator: Mutant})
    with pytest.raises(ModelRejected, match=f"TVM misreads operator {operator} .*'y' has the"):
        imported(net_of(operator), tmp_path)


@pytest.mark.parametrize(
    ("operator", "attribute", "value", "usual"),
    [
        ("HardSigmoid", "alpha", 0.5, 0.2), ("LeakyRelu", "alpha", 0.5, 0.01), ("ArgMax", "axis", 1, 0),
        ("AveragePool", "count_include_pad", 1, 0), ("ReduceMean", "keepdims", 0, 1), ("Elu", "alpha", 2.0, 1.0),
    ],
)  # fmt: skip
def test_an_attribute_that_a_converter_does_not_read_is_named(
    operator: str, attribute: str, value: Any, usual: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = onnx_frontend._get_convert_map

    class Ignoring(original()[operator]):  # type: ignore[misc]  # TVM has no types
        @classmethod
        def get_converter(cls, opset: int) -> Any:
            convert = super().get_converter(opset)

            def without(builder: Any, inputs: Any, attributes: Any, params: Any) -> Any:
                names = [name for name in dict.keys(attributes) if name != attribute]
                return convert(builder, inputs, {name: attributes[name] for name in names}, params)

            return without

    monkeypatch.setattr(onnx_frontend, "_get_convert_map", lambda: {**original(), operator: Ignoring})
    given = {"kernel_shape": [2]} if operator == "AveragePool" else {}
    with pytest.raises(ModelRejected, match=rf"TVM ignores the attribute {attribute}={value} of operator {operator}"):
        imported(net_of(operator, **given, **{attribute: value}), tmp_path)
    imported(net_of(operator, **given, **{attribute: usual}), tmp_path)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("odd.\nit is odd."), r"TVM cannot import operator Erf \(node 'second'\): it is odd; export that"),
        (
            ValueError(
                'In ir.Op(span=None, name="relax.divide", arguments=(ir.ArgumentInfo(name="x1"),),'
                " support_level=10), the shape at dim 1 is T.int64(6)"
            ),
            r": In divide, the shape at dim 1 is 6; ",
        ),
        (ModelRejected("it is too odd"), r"^operator Erf \(node 'second'\): it is too odd"),
    ],
)
def test_the_node_whose_converter_fails_is_named(
    error: Exception, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    class Failing(onnx_frontend.OnnxOpConverter):  # type: ignore[misc]  # TVM has no types
        @classmethod
        def get_converter(cls, _opset: int) -> Any:
            def convert(builder: Any, inputs: Any, _attributes: Any, _params: Any) -> Any:
                seen.append(1)
                if len(seen) > 1:
                    raise error
                return builder.emit(relax.op.erf(inputs[0]))

            return convert

    original = onnx_frontend._get_convert_map
    monkeypatch.setattr(onnx_frontend, "_get_convert_map", lambda: {**original(), "Erf": Failing})
    nodes = [helper.make_node("Erf", ["x"], ["a"], name="first"), helper.make_node("Erf", ["a"], ["y"], name="second")]
    with pytest.raises(OperatorRejected, match=words) as caught:
        imported(model(nodes, {"x": [2, 3, 4]}, ["y"], {}, 13), tmp_path)
    assert caught.value.results == [["y"]]


def test_a_parameter_that_must_be_constant_is_named(tmp_path: Path) -> None:
    net = model([helper.make_node("ReduceSum", ["x", "axes"], ["y"])], {"x": [2, 3], "axes": [1]}, ["y"], {}, 13)
    net.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(OperatorRejected, match="export 'axes' as constants, which the network takes as inputs"):
        imported(net, tmp_path)


def test_right_converters_pass(tmp_path: Path) -> None:
    assert imported(net_of("Tanh"), tmp_path) is not None


@pytest.mark.parametrize("kind", [TensorProto.FLOAT8E4M3FN, TensorProto.INT4, TensorProto.UINT4])
def test_values_of_few_bits_are_refused_by_name(kind: int, tmp_path: Path) -> None:
    net = net_of("Cast", to=kind)
    net.opset_import[0].version, net.ir_version = 21, 10
    net.graph.output[0].type.tensor_type.elem_type = kind
    with pytest.raises(ModelRejected, match=r"operator Cast makes 'y', which is of the type (float8|int4|uint4)"):
        imported(net, tmp_path)


def test_an_output_without_a_fixed_shape_is_refused_by_name(tmp_path: Path) -> None:
    net = net_of("NonZero")
    net.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT64, [3, None]))
    with pytest.raises(ModelRejected, match="'y' has no fixed shape: operator NonZero"):
        imported(net, tmp_path)


def test_clip_keeps_the_type_of_whole_numbers(tmp_path: Path) -> None:
    weights = {"low": np.array(0), "high": np.array(9)}
    net = model([helper.make_node("Clip", ["x", "low", "high"], ["y"])], {"x": [4]}, ["y"], weights, 13)
    for value in (*net.graph.input, *net.graph.output):
        value.type.tensor_type.elem_type = TensorProto.INT64
    assert "int64" in str(imported(net, tmp_path)["main"].ret_ty)


def exported() -> Any:
    """A small network with all attributes, as exporters write them."""
    square = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1], "dilations": [1, 1]}
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape).astype("float32") * 0.2
        for name, shape in {"a": (8, 3, 3, 3), "d": (8, 1, 3, 3), "t": (8, 4, 2, 2), "m": (4, 5), "b": (5,)}.items()
    }
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c"], group=1, auto_pad="NOTSET", **square),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "d"], ["dw"], group=8, **square),
        helper.make_node("Add", ["dw", "r"], ["s"]),
        helper.make_node("MaxPool", ["s"], ["p"], kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4, ceil_mode=0),
        helper.make_node(
            "ConvTranspose", ["p", "t"], ["u"], kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4, group=1,
            dilations=[1, 1],
        ),
        helper.make_node("GlobalAveragePool", ["u"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"], axis=1),
        helper.make_node("Gemm", ["f", "m", "b"], ["y"], alpha=1.0, beta=1.0, transB=0),
    ]  # fmt: skip
    return model(nodes, {"x": [1, 3, 8, 8]}, ["y"], weights, 13)


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("how", ["", "qdq", "dynamic"])
def test_networks_as_exporters_write_them_are_imported(how: str, integers: bool, tmp_path: Path) -> None:
    """Quantised ones were refused: no converter reads what the shape of the weights says, too."""
    pytest.importorskip("onnxruntime")
    path, quantised = tmp_path / "net.onnx", tmp_path / "quantised.onnx"
    onnx.save(exported(), str(path))
    if how:
        quantise(path, quantised, how, {"x": (1, 3, 8, 8)})
    aim = tvm.target.Target(json.loads(targets.resolve("auto", 2)))
    ready = model_sources.prepare(quantised if how else path, {}, integers=integers)
    assert ready.source.cleaned(aim)["main"] is not None
