"""Products with 4-bit weights: results equal those of ONNX Runtime's own operator, under each schedule."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm


import this_cpu  # noqa: E402
from autosched_tvm.compile import kernel_sketches, lowering, onnx_import, targets  # noqa: E402
from autosched_tvm.compile.frontend import few_bits, standard_operators  # noqa: E402
from autosched_tvm.compile.frontend.dequantisation import Form  # noqa: E402
from autosched_tvm.compile.integers import nibble_sketch, nibbles  # noqa: E402
from compiled_networks import outputs  # noqa: E402
from quantising import network  # noqa: E402

HERE = this_cpu.target()
NARROW = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1})
SAME = 1e-5
"""Maximum distance of sums around 10 with different orders of addition."""


def product(
    rows: tuple[int, ...] = (3,), depth: int = 64, columns: int = 24, block: int = 32, *, zeros: str = "packed",
    bias: bool = False, bits: int = 4,
) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """Returns a network of one product, and inputs for it."""
    drawn = np.random.default_rng(0)
    blocks = -(-depth // block)
    constants: dict[str, Any] = {
        "w": drawn.integers(0, 256, (columns, blocks, block * bits // 8)).astype("uint8"),
        "s": drawn.uniform(0.02, 0.04, columns * blocks).astype("float32"),
    }
    if zeros == "packed":
        constants["z"] = drawn.integers(0, 256, columns * -(-blocks * bits // 8)).astype("uint8")
    if bias:
        constants["b"] = drawn.standard_normal(columns).astype("float32")
    names = ["x", "w", "s", "z" if "z" in constants else "", "", "b" if bias else ""]
    while not names[-1]:
        names.pop()
    node = helper.make_node(
        "MatMulNBits", names, ["y"], domain="com.microsoft", K=depth, N=columns, bits=bits, block_size=block
    )
    given = {"x": drawn.standard_normal((*rows, depth)).astype("float32")}
    return network([node], given, {"y": TensorProto.FLOAT}, constants), given


def prepared(model: Any) -> Any:
    standard_operators.rewrite(model, Form.INTEGERS)
    return model


def compiled(model: Any, given: dict[str, Any], target: Any = HERE) -> Any:
    module = onnx_import.fused(onnx_import.cleaned(model), target)
    for variable, one in module.functions_items():
        if variable.name_hint.startswith(("nibble", "fused_nibble")):
            assert kernel_sketches.by_rule(one, targets.vector_registers(target)) is not None
    return outputs(module, target, given.values(), by_rule=True)[0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rows": (1,), "zeros": ""},
        {"rows": (1, 8), "columns": 17, "bias": True},
        {"rows": (2, 4), "depth": 96, "block": 16},
        {"rows": (1, 1), "depth": 256, "columns": 64, "block": 128},
    ],
    ids=str,
)
@pytest.mark.parametrize("target", [HERE, NARROW], ids=["here", "narrow"])
def test_results_are_those_of_onnx_runtime(options: dict[str, Any], target: Any) -> None:
    model, given = product(**options)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, given)
    model = prepared(model)
    assert any(map(few_bits.stays, model.graph.node))
    # accepts the remaining node
    onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.abs(compiled(model, given, target) - expected).max() < SAME


@pytest.mark.parametrize(
    "options", [{"rows": (3, 3)}, {"depth": 40}, {"bits": 8}, {"bits": 2}], ids=["rows", "depth", "8 bits", "2 bits"]
)
def test_other_products_have_float32_weights(options: dict[str, Any]) -> None:
    model = prepared(product(**options)[0])
    assert [node.op_type for node in model.graph.node] == ["MatMul"]


def test_products_of_float16_do_not_keep_their_weights() -> None:
    model, _ = product()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for tensor in model.graph.initializer:
        if tensor.name == "s":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("float16"), "s"))
    assert not any(map(few_bits.stays, prepared(model).graph.node)), "its kernel computes in float32"


@pytest.mark.parametrize("seed", range(4))
def test_every_drawn_schedule_computes_the_same(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    levels, scales = drawn.integers(0, 16, (64, 48)), drawn.uniform(0.5, 1, (4, 48)).astype("float32")
    data = drawn.standard_normal((4, 64)).astype("float32")
    arrays = [data, nibbles.pack(levels), nibbles.pack_factors(scales), nibbles.pack_factors(-8 * scales)]
    parts = [tvm.te.placeholder(one.shape, str(one.dtype), name=f"p{i}") for i, one in enumerate(arrays)]
    workload = tvm.IRModule({"main": tvm.te.create_prim_func([*parts, nibbles.product(*parts, 16)])})
    schedule = kernel_sketches.sampled(workload, seed + 1)
    assert schedule is not None
    assert schedule.trace.decisions, "tiles are drawn"
    built = tvm.tirx.build(schedule.mod, target=HERE, pipeline=lowering.install())
    made = tvm.runtime.tensor(np.zeros((4, 48), "float32"))
    built["main"](*map(tvm.runtime.tensor, arrays), made)
    assert np.abs(made.numpy() - data @ ((levels - 8) * np.repeat(scales, 16, 0))).max() < 10 * SAME


@pytest.mark.parametrize(("rows", "parts", "registers"), [(1, 256, 32), (8, 256, 32), (8, 3, 16), (7, 5, 16)])
def test_usual_tiles_fit_into_the_registers(rows: int, parts: int, registers: int) -> None:
    high, wide = nibble_sketch.usual(rows, parts, registers)
    assert not (rows % high or parts % wide)
    assert high * wide < registers
