"""Operators that stay operators, and compute the model's outputs."""

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

import tvm  # noqa: E402
from tvm import relax  # noqa: E402

from autosched_tvm.compile import onnx_import  # noqa: E402
from nets import model  # noqa: E402

BOUNDS = {"low": np.float32(-0.5), "high": np.float32(0.75), "never": np.float32(np.nan)}


def clip(*inputs: str, opset: int = 13, **attributes: float) -> Any:
    node = helper.make_node("Clip", list(inputs), ["y"], **attributes)
    return model([node], {"x": [1, 3, 4, 5]}, ["y"], {name: BOUNDS[name] for name in inputs[1:] if name}, opset)


def largest(kind: str) -> Any:
    weights = {"row": np.linspace(-1, 1, 5, dtype="float32"), "number": np.float32(0.1)}
    return model([helper.make_node(kind, ["x", "row", "number"], ["y"])], {"x": [1, 3, 4, 5]}, ["y"], weights)


def pad(*widths: int, mode: str = "constant") -> Any:
    node = helper.make_node("Pad", ["x", "widths", "fill"] if mode == "constant" else ["x", "widths"], ["y"], mode=mode)
    return model([node], {"x": [1, 3, 4, 5]}, ["y"], {"widths": np.array(widths), "fill": np.float32(2.5)})


@pytest.mark.parametrize(
    ("net", "operators"),
    [
        (clip("x", "low", "high"), {"relax.maximum", "relax.minimum"}),
        (clip("x", "", "high"), {"relax.minimum"}),
        (clip("x", "low"), {"relax.maximum"}),
        (clip("x", opset=6, min=-0.5, max=0.75), {"relax.maximum", "relax.minimum"}),
        (clip("x", opset=6, max=0.75), {"relax.minimum"}),
        (largest("Max"), {"relax.maximum"}),
        (largest("Min"), {"relax.minimum"}),
        (pad(0, 1, 0, 2, 0, 0, 3, 4), {"relax.nn.pad"}),
        (pad(0, 0, 1, 1, 0, 0, 2, 2, mode="reflect"), {"relax.call_tir"}),
    ],
)
def test_the_module_has_operators_and_the_same_outputs(net: Any, operators: set[str]) -> None:
    module = onnx_import.cleaned(net)
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    assert {binding.value.op.name for binding in bindings} == operators
    x = np.random.default_rng(1).standard_normal((1, 3, 4, 5)).astype("float32")
    run = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())["main"]
    np.testing.assert_allclose(run(tvm.runtime.tensor(x)).numpy(), ReferenceEvaluator(net).run(None, {"x": x})[0])


def test_a_bound_that_is_no_number_bounds_nothing() -> None:
    module = onnx_import.cleaned(clip("x", "never", "high"))
    x = np.full((1, 3, 4, 5), -9.0, "float32")
    run = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())["main"]
    assert (run(tvm.runtime.tensor(x)).numpy() == -9.0).all()


def test_the_importer_is_restored_afterwards() -> None:
    from tvm.relax.frontend.onnx import onnx_frontend

    before = onnx_frontend._get_convert_map
    onnx_import.cleaned(clip("x", "low"))
    assert onnx_frontend._get_convert_map is before


@pytest.mark.parametrize(
    ("domain", "strange"), [("", False), ("ai.onnx", False), ("com.microsoft", False), ("com.acme", True)]
)
def test_an_operator_of_another_domain_is_not_confused_with_its_namesake(domain: str, strange: bool) -> None:
    node = helper.make_node("Gelu", ["x"], ["y"], domain=domain)
    assert onnx_import.unsupported([node]) == ([node] if strange else [])


@pytest.mark.parametrize(
    ("node", "weights", "opset"),
    [
        (helper.make_node("Slice", ["x"], ["y"], starts=[1, 0], ends=[3, -1], axes=[1, 3]), {}, 9),
        (helper.make_node("Slice", ["x"], ["y"], starts=[0, 1], ends=[1, 9]), {}, 9),
        (helper.make_node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 3.0]), {}, 8),
        (helper.make_node("Upsample", ["x", "s"], ["y"]), {"s": np.array([1, 1, 2, 2], "float32")}, 9),
        (helper.make_node("Upsample", ["x", "s"], ["y"], mode="linear"), {"s": np.array([1, 1, 2, 2], "float32")}, 9),
        (helper.make_node("Resize", ["x", "s"], ["y"]), {"s": np.array([1, 1, 1.5, 2], "float32")}, 10),
        (helper.make_node("Resize", ["x", "s"], ["y"], mode="linear"), {"s": np.array([1, 1, 2, 3], "float32")}, 10),
        (helper.make_node("Gather", ["x", "i"], ["y"], axis=2), {"i": np.array(-1)}, 13),
        (helper.make_node("Gather", ["x", "i"], ["y"], axis=-1), {"i": np.array([[0, -2], [4, 1]], "int32")}, 13),
        (
            helper.make_node("Resize", ["x", "e", "e", "n"], ["y"], coordinate_transformation_mode="asymmetric"),
            {"e": np.zeros(0, "float32"), "n": np.array([1, 3, 8, 10])}, 13,
        ),
    ],
)  # fmt: skip
def test_older_forms_of_operators(node: Any, weights: dict[str, Any], opset: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    net = model([node], {"x": [1, 3, 4, 5]}, ["y"], weights, opset)
    x = np.random.default_rng(1).standard_normal((1, 3, 4, 5)).astype("float32")
    (expected,) = onnxruntime.InferenceSession(net.SerializeToString()).run(None, {"x": x})
    run = relax.VirtualMachine(tvm.compile(onnx_import.cleaned(net), target="llvm"), tvm.cpu())["main"]
    np.testing.assert_allclose(run(tvm.runtime.tensor(x)).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_resize_that_tvm_would_compute_without_antialiasing_is_refused() -> None:
    assert onnx_import.unsupported([helper.make_node("Resize", ["x", "", "s"], ["y"], antialias=1)])
    assert not onnx_import.unsupported([helper.make_node("Resize", ["x", "", "s"], ["y"])])
