"""Recurrent layers with 8-bit weights: the compiled layer's outputs equal those of ONNX Runtime's own operator."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from tvm import tirx  # noqa: E402

import this_cpu  # noqa: E402
from autosched_tvm.compile import lowering, onnx_import  # noqa: E402
from autosched_tvm.compile.integers import dot_instructions, packed_products  # noqa: E402
from autosched_tvm.compile.integers.dot_instructions import (  # noqa: E402
    PAIRS_256,
    PAIRS_512,
    SDOT,
    SIGNED_PAIRS,
    VNNI_256,
    VNNI_512,
    DotInstruction,
)
from autosched_tvm.compile.recurrent import layer as layers  # noqa: E402
from autosched_tvm.evaluation.quantised_reference import make_weights_unsigned  # noqa: E402
from compiled_networks import outputs  # noqa: E402
from quantising import network  # noqa: E402

SAME = 2e-6
"""Maximum distance of float32 numbers with different orders of addition."""
HERE = this_cpu.target()
WITH_CODE = [
    (VNNI_512, {"kind": "llvm", "mcpu": "cascadelake", "num-cores": 1}, "vpdpbusd", "zmm"),
    (VNNI_256, {"kind": "llvm", "mcpu": "alderlake", "num-cores": 1}, "vpdpbusd", "ymm"),
    (SDOT, {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76", "num-cores": 1}, "sdot", "v"),
    (PAIRS_512, {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 1}, "vpmaddubsw", "ymm"),
    (PAIRS_256, {"kind": "llvm", "mcpu": "haswell", "num-cores": 1}, "vpmaddubsw", "ymm"),
]


class Signed(DotInstruction):
    """An instruction for signed data, composed of one for unsigned data."""

    def added(self, sums: Any, data: Any, weights: Any) -> Any:
        flipped = data + tirx.Broadcast(tirx.const(-128, "int8"), 4)
        ones = tirx.Broadcast(tirx.const(1, "int8"), 4)
        nothing = tirx.Broadcast(tirx.const(0, "int32"), self.lanes)
        return super().added(sums, flipped, weights) - 128 * super().added(nothing, ones, weights)


def layer(
    *, hidden: int = 16, features: int = 6, batch: int = 1, both: bool = False, columns: bool = False,
    kind: str = "int8", zero: int = 0, optional: str = "b h c", lengths: tuple[int, ...] = (),
    least: int = SIGNED_PAIRS.weights_min, **attributes: Any,
) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """Returns a network of one layer, and inputs for it. `columns`: a scale for each column of the weights. `least`:
    the least weight of "int8"."""
    drawn = np.random.default_rng(0)
    directions = 2 if both else 1
    low, high = (1, 256) if kind == "uint8" else (least, 128)
    scales = (directions, 4 * hidden) if columns else (directions,)
    constants: dict[str, Any] = {"b": drawn.standard_normal((directions, 8 * hidden)).astype("float32")}
    for name, rows in (("w", features), ("r", hidden)):
        constants |= {
            name: drawn.integers(low, high, (directions, rows, 4 * hidden)).astype(kind),
            f"{name}s": drawn.uniform(0.004, 0.01, scales).astype("float32") / np.float32(hidden**0.25),
            f"{name}z": np.full(scales, zero, kind),
        }
    constants["p"] = drawn.standard_normal((directions, 3 * hidden)).astype("float32")
    given = {"x": drawn.standard_normal((7, batch, features)).astype("float32")}
    for name in ("h", "c"):
        if name in optional:
            given[name] = drawn.uniform(-0.8, 0.8, (directions, batch, hidden)).astype("float32")
    if lengths:
        given["n"] = np.asarray(lengths, "int32")
    names = [name if name in optional or (name == "n" and lengths) else "" for name in ("b", "n", "h", "c", "p")]
    if both:
        attributes["direction"] = "bidirectional"
    node = helper.make_node(
        "DynamicQuantizeLSTM", ["x", "w", "r", *names, "ws", "wz", "rs", "rz"], ["y", "hn", "cn"],
        domain="com.microsoft", hidden_size=hidden, **attributes,
    )  # fmt: skip
    outputs = dict.fromkeys(("y", "hn", "cn"), TensorProto.FLOAT)
    used = {name: value for name, value in constants.items() if name in node.input}
    return network([node], given, outputs, used), given


def compiled_outputs(
    model: Any, given: dict[str, Any], instruction: DotInstruction | None, cores: int = 1
) -> list[Any]:
    module = onnx_import.cleaned(model, instruction, cores)
    if type(instruction) is DotInstruction:
        module = packed_products.packed(module, instruction)
    return outputs(onnx_import.fused(module, HERE), HERE, (given[value.name] for value in model.graph.input))


def expected_outputs(model: Any, given: dict[str, Any], *, optimised: bool = True) -> list[Any]:
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1  # several threads would round the batch rows apart
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, given))


def off(model: Any, given: dict[str, Any], instruction: DotInstruction | None, cores: int = 1) -> float:
    """Returns the largest distance of the compiled layer's outputs from ONNX Runtime's."""
    pairs = zip(compiled_outputs(model, given, instruction, cores), expected_outputs(model, given), strict=True)
    return max(float(np.abs(made - expected).max()) for made, expected in pairs)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden": 10, "optional": "", "least": -128},
        {"hidden": 96, "features": 8, "columns": True, "direction": "reverse"},
        {"hidden": 40, "both": True, "columns": True, "optional": "b h c p"},
        {"batch": 3, "kind": "uint8", "zero": 128, "input_forget": 1},
        {"batch": 2, "zero": 0, "both": True, "clip": 0.4, "optional": "b"},
        {"batch": 2, "hidden": 24, "lengths": (7, 4)},
    ],
    ids=str,
)
def test_outputs_are_those_of_onnx_runtime(options: dict[str, Any]) -> None:
    model, given = layer(**options)
    for instruction in dot_instructions.available(HERE):
        if instruction.weights_min <= options.get("least", SIGNED_PAIRS.weights_min):
            assert off(model, given, instruction) < SAME, instruction.name
    assert off(model, given, None) > 100 * SAME, "float products do not round"


@pytest.mark.parametrize("columns", [False, True])
def test_the_reference_of_a_verdict_does_not_saturate(columns: bool) -> None:
    model, given = layer(hidden=40, both=True, columns=columns, least=-128)
    wanted = expected_outputs(model, given)
    make_weights_unsigned(model)
    for exact, other in zip(wanted, expected_outputs(model, given, optimised=False), strict=True):
        np.testing.assert_allclose(other, exact, atol=SAME)


def test_parts_of_a_step_run_on_several_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    if (known := dot_instructions.of_target(HERE)) is None:
        pytest.skip("this machine has no dot instruction")
    monkeypatch.setattr(layers, "PART_BYTES_MIN", 1)
    model, given = layer(hidden=96, batch=3, lengths=(7, 4, 1))
    assert "T.parallel" in onnx_import.cleaned(model, known, 2).script()
    assert off(model, given, known, cores=2) < SAME


def test_levels_of_signed_instructions_are_signed() -> None:
    if (known := dot_instructions.of_target(HERE)) is None or known.data != "uint8":
        pytest.skip("this machine has no dot instruction for unsigned data")
    model, given = layer(hidden=40, columns=True)
    one = Signed("signed", known.lanes, known.group, known.features, "int8", "int8", known.llvm)
    assert off(model, given, one) < SAME


@pytest.mark.parametrize(("one", "target", "mnemonic", "register"), WITH_CODE, ids=lambda v: getattr(v, "name", ""))
def test_the_recurrence_uses_the_instruction_for_few_rows(
    one: DotInstruction, target: dict[str, Any], mnemonic: str, register: str
) -> None:
    assert dot_instructions.of_target(tvm.target.Target(target)) == one
    model, _ = layer(hidden=32)
    module = onnx_import.cleaned(model, one)
    kernel = next(function for name, function in module.functions.items() if name.name_hint == "lstm_steps")
    named = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
    built = tvm.tirx.build(named, target=tvm.target.Target(target), pipeline=lowering.install())
    code = built.inspect_source("asm")
    lines = [line for line in code.splitlines() if mnemonic in line]
    assert lines
    assert "prefetch" in code or "prfm" in code
    assert tvm.s_tir.analysis.estimate_tir_flops(named) == 2 * 7 * 4 * 32 * 32
    assert all(register in line for line in lines)


def test_weights_outside_8_bits_become_float() -> None:
    """With a zero point of 100, integers up to 255 need more than 8 bits."""
    model, given = layer(kind="uint8", zero=100)
    assert off(model, given, dot_instructions.of_target(HERE) or VNNI_512) == off(model, given, None)
