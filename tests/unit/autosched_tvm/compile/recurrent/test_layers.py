"""Recurrent layers: the compiled network's outputs equal ONNX Runtime's for each attribute and each optional input."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

tvm = pytest.importorskip("tvm")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.tvm


from autosched.errors import ModelRejected  # noqa: E402
from autosched_tvm.compile import onnx_import, task_extraction  # noqa: E402
from autosched_tvm.compile.recurrent import layer as layers  # noqa: E402
from compiled_networks import outputs as outputs_of  # noqa: E402

TARGET = {
    "kind": "llvm",
    "mcpu": "x86-64-v3" if "x86" in __import__("platform").machine() else "generic",
    "num-cores": 1,
}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(
    kind: str, *, steps: int = 4, batch: int = 2, hidden: int = 10, directions: int = 1, optional: str = "B h0 c0",
    lengths: tuple[int, ...] = (), **attributes: Any,
) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """Returns a network of one layer, and inputs for it."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return (random.standard_normal(shape) * 0.7).astype("float32")

    rows, present = GATES[kind] * hidden, set(optional.split())
    by_batch = attributes.get("layout", 0)
    state = (batch, directions, hidden) if by_batch else (directions, batch, hidden)
    weights = {"W": normal(directions, rows, 3), "R": normal(directions, rows, hidden) / np.float32(hidden**0.5)}
    given = {"x": normal(batch, steps, 3) if by_batch else normal(steps, batch, 3)}
    names = ["x", "W", "R"]
    for name, value, constant in (
        ("B", normal(directions, 2 * rows), True),
        ("lengths", np.array(lengths, "int32"), False),
        ("h0", normal(*state), False),
        ("c0", normal(*state), False),
        ("P", normal(directions, 3 * hidden), True),
    ):
        there = bool(lengths) if name == "lengths" else name in present and (kind == "LSTM" or name not in ("c0", "P"))
        names.append(name if there else "")
        if there:
            (weights if constant else given)[name] = value
    if kind != "LSTM":
        names = names[:6]
    if directions == 2:
        attributes["direction"] = "bidirectional"
    outputs = ["y", "hn", "cn"] if kind == "LSTM" else ["y", "hn"]
    node = helper.make_node(kind, names, outputs, hidden_size=hidden, **attributes)
    graph = helper.make_graph(
        [node], "net",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in given.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model), given


def compiled_outputs(model: Any, given: dict[str, Any]) -> list[Any]:
    target = tvm.target.Target(TARGET)
    module = onnx_import.network(model, target)
    return outputs_of(module, target, (given[value.name] for value in model.graph.input))


def expected_outputs(model: Any, given: dict[str, Any]) -> list[Any]:
    return list(onnxruntime.InferenceSession(model.SerializeToString()).run(None, given))


def assert_same(model: Any, given: dict[str, Any]) -> None:
    for made, expected in zip(compiled_outputs(model, given), expected_outputs(model, given), strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LSTM", {}),
        ("LSTM", {"optional": "", "hidden": 16, "steps": 1}),
        ("LSTM", {"optional": "B P", "batch": 3, "clip": 0.3}),
        ("LSTM", {"input_forget": 1, "direction": "reverse"}),
        ("LSTM", {"directions": 2, "optional": "B h0 c0 P", "lengths": (0, 3), "batch": 2}),
        ("LSTM", {"activations": ["HardSigmoid", "Softsign", "Elu"], "activation_alpha": [0.3, 0.5]}),
        ("GRU", {}),
        ("GRU", {"linear_before_reset": 1, "clip": 0.5}),
        ("GRU", {"linear_before_reset": 1, "optional": "", "hidden": 8, "batch": 1}),
        ("GRU", {"directions": 2, "lengths": (4, 2, 0), "batch": 3}),
        ("RNN", {"hidden": 64, "batch": 1}),
        ("RNN", {"directions": 2, "activations": ["Relu", "ScaledTanh"], "activation_alpha": [0.5],
                 "activation_beta": [2.0], "steps": 2}),
        ("RNN", {"direction": "reverse", "lengths": (2, 4), "activations": ["Softplus"], "steps": 4, "clip": 0.4}),
    ],
)  # fmt: skip
def test_outputs_equal_onnx_runtime(kind: str, options: dict[str, Any]) -> None:
    assert_same(*layer(kind, **options))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LSTM", {"hidden": 40, "batch": 3, "lengths": (4, 0, 2)}),
        ("LSTM", {"hidden": 24, "batch": 1, "direction": "reverse"}),
        ("GRU", {"hidden": 50}),
        ("RNN", {"hidden": 128, "batch": 1}),
    ],
)
@pytest.mark.parametrize("cores", [2, 3])
def test_parts_of_a_step_run_on_several_cores(
    kind: str, options: dict[str, Any], cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "PART_BYTES_MIN", 1)
    monkeypatch.setitem(TARGET, "num-cores", cores)
    model, given = layer(kind, **options)
    assert "T.parallel" in onnx_import.network(model, tvm.target.Target(TARGET)).script()
    assert_same(model, given)


@pytest.mark.parametrize(
    ("backward", "size", "cores", "parts"),
    [
        ((False,), 1 << 20, 1, 1),
        ((False,), 1 << 20, 2, 2),
        ((False,), 1 << 20, 4, 2),
        ((False,), (1 << 20) - 1, 2, 1),
        ((False,), 1 << 30, 64, 16),
        ((False, True), 1 << 30, 64, 1),
    ],
)
def test_small_and_bidirectional_layers_are_not_cut(
    backward: tuple[bool, ...], size: int, cores: int, parts: int
) -> None:
    one = layers.Layer("LSTM", steps=1, batch=1, hidden=256, dtype="float32", backward=backward, activations=())
    assert one.blocks == 16
    assert layers.parts_of(one, size, cores) == parts


def test_batch_first_layout_only_permutes_dimensions() -> None:
    """ONNX Runtime does not run layout 1; its result follows from layout 0."""
    model, given = layer("LSTM", batch=2)
    swapped, _ = layer("LSTM", batch=2, layout=1)
    y, hn, cn = expected_outputs(model, given)
    turned = {name: value.swapaxes(0, 1).copy() for name, value in given.items()}
    made = compiled_outputs(swapped, turned)
    for one, expected in zip(made, (y.transpose(2, 0, 1, 3), hn.swapaxes(0, 1), cn.swapaxes(0, 1)), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted({*layers._ALPHAS, *layers._PLAIN}))
def test_each_activation_function(name: str) -> None:
    parameters = {"activation_alpha": [0.4]} if name in layers._ALPHAS else {}
    parameters |= {"activation_beta": [0.7]} if name in layers._BETAS else {}
    assert_same(*layer("RNN", steps=2, activations=[name], **parameters))


def test_a_long_sequence_needs_few_kernels_and_one_task() -> None:
    model, _ = layer("LSTM", steps=500, hidden=16)
    target = tvm.target.Target(TARGET)
    module = onnx_import.network(model, target)
    extracted, _ = task_extraction.extract([module], target)
    assert [task.name for task in extracted.tasks] == ["fused_matmul_add"]
    assert task_extraction.BY_RULE in [skipped.reason for skipped in extracted.skipped]
    assert len(module.functions) < 12


def test_weights_that_the_network_computes_are_refused() -> None:
    model, _ = layer("GRU")
    model.graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, [1, 30, 10]))
    model.graph.node.insert(0, helper.make_node("Add", ["R", "more"], ["computed"]))
    model.graph.node[1].input[2] = "computed"
    with pytest.raises(ModelRejected, match="constant weights"):
        onnx_import.cleaned(model)


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ModelRejected, match="'Swish'"):
        layers.layer_of("RNN", {"activations": [b"Swish"]}, (1, 1, 8), "float32")
