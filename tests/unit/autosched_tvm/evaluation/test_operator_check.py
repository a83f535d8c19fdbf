"""A converter with a fault is found before the first trial, with its operator and node; right ones pass."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from quantisation import quantise

from autosched.errors import ModelRejected
from nets import conv_net, model

tvm = pytest.importorskip("tvm")
pytest.importorskip("onnxruntime")
from tvm import relax  # noqa: E402
from tvm.relax.frontend.onnx import onnx_frontend  # noqa: E402

from autosched_tvm.compile import model_sources, onnx_import, targets  # noqa: E402
from autosched_tvm.evaluation import operator_check, verification  # noqa: E402

TARGET = targets.resolve("auto", 2)
SHAPE = [2, 3, 8, 6]


def scaled(value: Any) -> Any:
    return relax.op.multiply(value, relax.const(1.02, str(value.ty.dtype)))


def shifted(value: Any) -> Any:
    return relax.op.add(value, relax.const(0.25, str(value.ty.dtype)))


def turned(value: Any) -> Any:
    return relax.op.flip(value, 0)


def negated(value: Any) -> Any:
    return relax.op.logical_not(value)


def next_one(value: Any) -> Any:
    return relax.op.add(value, relax.const(1, str(value.ty.dtype)))


MUTANTS: list[tuple[str, dict[str, Any], Callable[[Any], Any]]] = [
    ("Tanh", {}, scaled), ("Sigmoid", {}, shifted), ("Erf", {}, turned), ("HardSigmoid", {"alpha": 0.3}, scaled),
    ("LeakyRelu", {"alpha": 0.2}, shifted), ("Elu", {}, scaled), ("Softplus", {}, turned), ("Softsign", {}, scaled),
    ("Floor", {}, next_one), ("Abs", {}, turned), ("Exp", {}, scaled), ("Cos", {}, shifted),
    ("AveragePool", {"kernel_shape": [2, 2]}, scaled), ("MaxPool", {"kernel_shape": [3, 3], "pads": [1] * 4}, turned),
    ("GlobalAveragePool", {}, shifted), ("Transpose", {"perm": [0, 1, 3, 2]}, turned), ("Flatten", {}, turned),
    ("ReduceSum", {"keepdims": 1}, scaled), ("ArgMax", {"axis": 1}, next_one), ("LogSoftmax", {"axis": 1}, turned),
    ("LRN", {"size": 3}, scaled), ("DepthToSpace", {"blocksize": 1}, turned),
]  # fmt: skip


def net_of(operator: str, attributes: dict[str, Any]) -> Any:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Sub", ["r", "half"], ["s"]),
        helper.make_node(operator, ["s"], ["y"], name="suspect", **attributes),
    ]
    return model(nodes, {"x": SHAPE}, ["y"], {"half": np.float32(0.5)}, 13)


def checked(net: Any, folder: Path, samples: str = "", *, unverified: bool = False) -> None:
    path = folder / "net.onnx"
    onnx.save(net, str(path))
    prepared = folder / "prepared.onnx"
    onnx.save(onnx_import.prepare(path, {}).model, str(prepared))
    operator_check.check(str(path), str(prepared), TARGET, samples, unverified)


@pytest.mark.parametrize(("operator", "attributes", "fault"), MUTANTS, ids=[f"{o}-{f.__name__}" for o, _, f in MUTANTS])
def test_a_wrong_converter_is_found(
    operator: str, attributes: dict[str, Any], fault: Callable[[Any], Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    net = net_of(operator, attributes)
    if operator == "ArgMax":
        net.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    checked(net, tmp_path)  # the right one passes
    original = onnx_frontend._get_convert_map

    def changed() -> dict[str, Any]:
        known = original()

        class Mutant(known[operator]):  # type: ignore[misc,name-defined]  # TVM has no types
            @classmethod
            def get_converter(cls, opset: int) -> Any:
                convert = known[operator].get_converter(opset)
                return lambda builder, *rest: builder.emit(fault(builder.emit(convert(builder, *rest))))

        return {**known, operator: Mutant}

    monkeypatch.setattr(onnx_frontend, "_get_convert_map", changed)
    with pytest.raises(ModelRejected, match=rf"operator {operator} \(node '.*'\) is computed wrongly: its result"):
        checked(net, tmp_path)


def test_a_network_of_right_operators_passes(tmp_path: Path) -> None:
    checked(conv_net(), tmp_path)


def test_an_operator_on_a_single_number_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number has no dimensions, also as an input of an operator that is run alone."""
    nodes = [helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0), helper.make_node("Div", ["x", "m"], ["y"])]
    net = model(nodes, {"x": [2, 5]}, ["y"], {}, 13)
    checked(net, tmp_path)
    original = onnx_frontend._get_convert_map

    class Mutant(onnx_frontend.OnnxOpConverter):  # type: ignore[misc]  # TVM has no types
        @classmethod
        def get_converter(cls, _opset: int) -> Any:
            return lambda builder, inputs, *_: builder.emit(scaled(builder.emit(relax.op.divide(*inputs))))

    monkeypatch.setattr(onnx_frontend, "_get_convert_map", lambda: {**original(), "Div": Mutant})
    with pytest.raises(ModelRejected, match=r"operator Div .* is computed wrongly"):
        checked(net, tmp_path)


def test_one_wrong_operator_of_several_outputs_does_not_accuse_others() -> None:
    nodes = [helper.make_node("Split", ["x"], ["a", "b"], axis=1), helper.make_node("Tanh", ["x"], ["c"])]
    net = model(nodes, {"x": [2, 4]}, ["a", "b", "c"], {}, 13)
    cases, x = list(operator_check._cases(net)), np.ones((2, 4), "float32")
    made, given = operator_check._network(cases, {"x": x}, net)
    right = operator_check._by_runtime(made, given, None)

    def wrong(*_: object) -> list[Any]:
        return [right[0] + 1, right[1] + 1, right[2]]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(operator_check, "_by_tvm", wrong)
        found = operator_check._wrong(cases, {"x": x}, net, None, operator_check._by_runtime, float("inf"))
    assert [one.operator for one in found] == ["Split"]


def test_a_recurrent_layer_that_rounds_inside_is_left_to_the_verification(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {"w": (1, 128, 16), "r": (1, 128, 32), "b": (1, 256)}
    net = model(
        [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=32)], {"x": [20, 1, 16]}, ["y"],
        {name: rng.standard_normal(shape).astype("float32") for name, shape in weights.items()}, 13,
    )  # fmt: skip
    onnx.save(net, str(tmp_path / "float.onnx"))
    quantise(tmp_path / "float.onnx", tmp_path / "dynamic.onnx", "dynamic", {"x": (20, 1, 16)})
    made = model_sources.prepare(tmp_path / "dynamic.onnx", {}, integers=True).source
    assert isinstance(made, model_sources.OnnxSource)
    assert "DynamicQuantizeLSTM" in {node.op_type for node in made.model.graph.node}
    assert "DynamicQuantizeLSTM" not in {case.original.op_type for case in operator_check._cases(made.model)}


def test_a_wrong_rewrite_is_found(tmp_path: Path) -> None:
    before, after = (net_of("Elu", {"alpha": alpha}) for alpha in (1.0, 0.5))
    paths = [tmp_path / name for name in ("net.onnx", "prepared.onnx")]
    for net, path in zip((before, after), paths, strict=True):
        onnx.save(net, str(path))
    with pytest.raises(ModelRejected, match="after its operators were rewritten for TVM: output 'y'"):
        operator_check.check(*map(str, paths), TARGET)


def test_equal_nodes_are_run_once_and_large_ones_not_at_all() -> None:
    nodes = [helper.make_node("Tanh", ["x"], ["a"]), helper.make_node("Tanh", ["a"], ["b"])]
    nodes += [helper.make_node("Conv", ["b", "w"], ["y"])]
    net = model(nodes, {"x": [1, 64, 64, 64]}, ["y"], {"w": np.zeros((64, 64, 3, 3), "float32")}, 13)
    assert [case.original.op_type for case in operator_check._cases(net)] == ["Tanh"]


def test_places_that_tie_may_be_chosen() -> None:
    scores = {0: operator_check.Scores(np.array([[1.0, 1.0, 0.0]]), (), 1)}
    assert operator_check._difference(np.array([[0]]), np.array([[1]]), scores) == ""
    assert "is 2, and not 0" in operator_check._difference(np.array([[0]]), np.array([[2]]), scores)


def test_inputs_that_onnx_runtime_refuses_are_told_before_the_search(tmp_path: Path) -> None:
    """Nothing could be verified: the whole search would be in vain."""
    net = model([helper.make_node("Gather", ["t", "x"], ["y"])], {"x": [2]}, ["y"], {"t": np.arange(5.0, dtype="f4")})
    net.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    checked(net, tmp_path)
    samples = tmp_path / "samples.npz"
    np.savez(samples, x=np.array([3, 7]))
    with pytest.raises(ModelRejected, match=r"ONNX Runtime refuses the given inputs: .*idx=7.* --inputs FILE.npz"):
        checked(net, tmp_path, str(samples))


def remainders() -> Any:
    """A network that ONNX Runtime loads and does not run: it computes no Mod of floats with the sign of the divisor."""
    nodes = [helper.make_node("Sub", ["x", "half"], ["s"]), helper.make_node("Mod", ["s", "d"], ["y"], name="suspect")]
    divisors = np.array([3.0, -3.0, np.inf, -np.inf, -0.3], "float32")
    return model(nodes, {"x": [20, 5]}, ["y"], {"half": np.float32(0.5), "d": divisors}, 13)


def test_without_onnx_runtime_the_reference_of_the_standard_finds_a_wrong_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked(remainders(), tmp_path)
    net = remainders()
    net.graph.node[0].op_type = "Add"
    original = onnx_frontend._get_convert_map

    class Mutant(onnx_frontend.OnnxOpConverter):  # type: ignore[misc]  # TVM has no types
        @classmethod
        def get_converter(cls, _opset: int) -> Any:
            return lambda builder, inputs, *_: builder.emit(scaled(builder.emit(relax.op.add(*inputs))))

    monkeypatch.setattr(onnx_frontend, "_get_convert_map", lambda: {**original(), "Add": Mutant})
    with pytest.raises(ModelRejected, match=r"operator Add .* is computed wrongly: its result"):
        checked(net, tmp_path)


def test_a_network_that_no_engine_runs_is_refused_unless_it_may_stay_unverified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Any:
        raise ValueError("no Tanh")

    monkeypatch.setattr(operator_check, "_session", refuse)
    monkeypatch.setattr(verification, "reference_of", lambda *_, **__: "ONNX Runtime cannot run the model: no Tanh")
    with pytest.raises(
        ModelRejected, match=r"no engine can check .*: ONNX Runtime cannot run .* no Tanh.* --unverified"
    ):
        checked(net_of("Tanh", {}), tmp_path)
    checked(net_of("Tanh", {}), tmp_path, unverified=True)


def test_an_operator_that_onnx_runtime_does_not_run_alone_is_not_accused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Any:
        raise ValueError("no such operator")

    monkeypatch.setattr(operator_check, "_by_runtime", refuse)
    checked(conv_net(), tmp_path)
