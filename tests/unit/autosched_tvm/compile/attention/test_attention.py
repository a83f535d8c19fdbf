"""Attention in one kernel: the networks that get one, and results equal to those of the original operators."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from tvm import relax  # noqa: E402

import this_cpu  # noqa: E402
from autosched_tvm.compile import (  # noqa: E402
    kernel_sketches,
    lowering,
    onnx_import,
    targets,
)
from autosched_tvm.compile.attention import attention_sketch, computation, fusion  # noqa: E402
from compiled_networks import outputs  # noqa: E402
from nets import model  # noqa: E402

HERE = this_cpu.target()
NARROW = this_cpu.target(vector_width=256)
SAME = 3e-6
"""Maximum distance of weighted means of numbers around 1 with different orders of addition."""


def network(
    rows: int = 9, columns: int = 21, depth: int = 5, wide: int = 7, *, heads: int = 2, around: str = "",
    chain: tuple[Any, ...] = (), after: tuple[Any, ...] = (), weights: dict[str, Any] | None = None,
    inputs: dict[str, list[int]] | None = None, outputs: tuple[str, ...] = ("y",), opset: int = 13,
) -> Any:  # fmt: skip
    """Returns attention over `heads` heads; 0: three axes. `around`: "moved" for heads behind the rows; `chain`:
    operators from "s" to "t", before the softmax; `after`: those from "p" to "w", behind it."""
    make = helper.make_node
    nodes = []
    shapes = {"q": [1, heads, rows, depth], "k": [1, heads, depth, columns], "v": [1, heads, columns, wide]}
    if not heads:
        shapes = {name: [2, *shape[2:]] for name, shape in shapes.items()}
    used = dict.fromkeys("qkv")
    for name in used:
        used[name] = name
        if around == "moved":
            axes = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
            nodes.append(make("Transpose", [name], [f"{name}m"], perm=axes))
            nodes.append(make("Mul", [f"{name}m", "half"], [f"{name}h"]))
            used[name] = f"{name}h"
            shapes[name] = [shapes[name][axes.index(axis)] for axis in range(4)]
    nodes += [
        make("MatMul", [used["q"], used["k"]], ["s"]), *chain, make("Softmax", ["t" if chain else "s"], ["p"], axis=-1),
        *after, make("MatMul", ["w" if after else "p", used["v"]], ["o" if around else "y"]),
    ]  # fmt: skip
    if around:
        nodes.append(make("Transpose", ["o"], ["y"], perm=[0, 2, 1, 3]))
    known = {"half": np.float32(0.5)} if around else {}
    return model(nodes, shapes | (inputs or {}), list(outputs), known | (weights or {}), opset)


def fused(made: Any, target: Any = HERE) -> Any:
    return onnx_import.fused(onnx_import.cleaned(made), target)


def kernels(module: Any) -> list[str]:
    names = [variable.name_hint for variable, one in module.functions_items() if isinstance(one, tvm.tirx.PrimFunc)]
    return [name for name in names if name.startswith(fusion.NAME)]


def off(made: Any, target: Any = HERE) -> float:
    """Returns the largest distance of a network's outputs from ONNX Runtime's, with schedules by rule."""
    drawn = np.random.default_rng(0)
    given = {
        value.name: drawn.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim], "float32")
        for value in made.graph.input
    }
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    pairs = zip(run(fused(made, target), target, given), session.run(None, given), strict=True)
    return max(float(np.abs(result - expected).max()) for result, expected in pairs)


def run(module: Any, target: Any, given: dict[str, Any]) -> list[Any]:
    for name in kernels(module):
        assert kernel_sketches.by_rule(module[name], targets.vector_registers(target)) is not None
    return outputs(module, target, given.values(), by_rule=True)


def node(kind: str, *names: str, **attributes: Any) -> Any:
    *read, written = names
    return helper.make_node(kind, read, [written], **attributes)


SCALED = (node("Mul", "s", "c", "a"), node("Add", "a", "mask", "t"))
ROUNDED = (node("Mul", "p", "c", "a"), node("Floor", "a", "b"), node("Div", "b", "c", "w"))
CASES = {
    "odd sizes": network(),
    "whole vectors": network(16, 64, 16, 32),
    "one row": network(1, 33, 8, 16),
    "one column": network(3, 1, 8, 16),
    "many rows": network(100, 40, 8, 3, heads=3),
    "moved": network(17, 20, 6, 16, around="moved"),
    "scaled, mask for columns": network(
        chain=SCALED, weights={"c": np.float32(0.3)}, inputs={"mask": [1, 1, 1, 21]}
    ),
    "scaled, mask for all": network(13, chain=SCALED, weights={"c": np.float32(3)}, inputs={"mask": [13, 21]}),
    "mask for rows": network(13, 16, chain=SCALED, weights={"c": np.float32(1)}, inputs={"mask": [1, 2, 13, 1]}),
    "mask of constants": network(
        13, chain=SCALED, weights={"c": np.float32(1), "mask": np.triu(np.full((13, 21), -1e9, "float32"), 1)}
    ),
    "three axes": network(9, 40, 16, 24, heads=0),
    "hidden scores": network(
        chain=(node("Where", "seen", "s", "low", "t"),),
        weights={"seen": np.tri(9, 21, 5, dtype="bool"), "low": np.float32(-1e9)},
    ),
    "rounded weights": network(16, 48, after=ROUNDED, weights={"c": np.float32(8)}),
    "old softmax": network(opset=12),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_kernel_with_the_results_of_its_operators(case: str) -> None:
    made = CASES[case]
    for target in (HERE, NARROW):
        assert len(kernels(fused(made, target))) == 1
        assert off(made, target) < SAME


def test_equal_attentions_are_one_kernel() -> None:
    first, second = network(9, 9, 5, 5), network(9, 9, 5, 5)
    for one in second.graph.node:
        for names in (one.input, one.output):
            names[:] = ["y" if name == "v" else name if name in "qk" else f"{name}2" for name in names]
    first.graph.node.extend(second.graph.node)
    first.graph.output[0].name = "y2"
    module = fused(first)
    assert len(kernels(module)) == 1
    assert off(first) < SAME


@pytest.mark.parametrize(
    "made",
    [
        network(outputs=("y", "p")),
        network(chain=(node("Add", "s", "mask", "t"),), inputs={"mask": [1, 2, 9, 21]}, outputs=("y", "t")),
        network(chain=(node("ReduceMax", "s", "m", axes=[-1]), node("Sub", "s", "m", "t"))),
    ],
    ids=["weights are an output", "scores are an output", "scores are read twice"],
)  # fmt: skip
def test_values_with_other_readers_stay(made: Any) -> None:
    assert not kernels(fused(made))
    assert off(made) < SAME


def test_other_devices_keep_their_operators() -> None:
    module = onnx_import.cleaned(network())
    assert fusion.fused(module, tvm.target.Target({"kind": "cuda", "arch": "sm_80"})) is module


@pytest.mark.parametrize("options", [{}, {"bias": True}, {"causal_mask": "TopLeft"}, {"scale": 0.2}], ids=str)
def test_the_operator_of_pytorch_programs_is_one_kernel(options: dict[str, Any]) -> None:
    drawn = np.random.default_rng(0)
    shapes = {"q": (1, 9, 2, 6), "k": (1, 9, 2, 6), "v": (1, 9, 2, 6)} | (
        {"b": (1, 2, 9, 9)} if "bias" in options else {}
    )
    given = {name: drawn.standard_normal(shape, "float32") for name, shape in shapes.items()}
    builder = relax.BlockBuilder()
    variables = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
    with builder.function("main", variables):
        with builder.dataflow():
            words = {name: value for name, value in options.items() if name != "bias"}
            result = builder.emit_output(relax.op.nn.attention(*variables, **words))
        builder.emit_func_output(result)
    module = onnx_import.clean(builder.get())
    made = run(onnx_import.fused(module, HERE), HERE, given)[0]
    with HERE, tvm.transform.PassContext(opt_level=3):
        plain = relax.build(builder.get(), target=HERE)
    expected = relax.VirtualMachine(plain, tvm.cpu())["main"](*map(tvm.runtime.tensor, given.values()))
    assert len(kernels(onnx_import.fused(module, HERE))) == 1
    assert np.abs(made - expected.numpy()).max() < SAME


@pytest.mark.parametrize("seed", range(6))
def test_every_drawn_schedule_computes_the_same(seed: int) -> None:
    module = fused(network(24, 48, 16, 32))
    function = next(one for gv, one in module.functions_items() if gv.name_hint == fusion.NAME)
    workload = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    schedule = kernel_sketches.sampled(workload, seed + 1)
    assert schedule is not None
    assert schedule.trace.decisions, "tiles are drawn"
    drawn = np.random.default_rng(seed)
    q, k, v = (drawn.standard_normal(s, "float32") for s in ((1, 2, 24, 16), (1, 2, 16, 48), (1, 2, 48, 32)))
    scores = np.exp(q @ k - (q @ k).max(-1, keepdims=True))
    expected = scores / scores.sum(-1, keepdims=True) @ v
    made = tvm.runtime.tensor(np.zeros(expected.shape, "float32"))
    built = tvm.tirx.build(schedule.mod, target=HERE, pipeline=lowering.install())
    built["main"](*map(tvm.runtime.tensor, (q, k, v)), made)
    assert np.abs(made.numpy() - expected).max() < SAME


@pytest.mark.parametrize(("rows", "blocks", "mixed"), [(258, 18, 4), (256, 16, 4), (1, 2, 1), (7, 3, 5), (1500, 94, 8)])
@pytest.mark.parametrize("registers", [16, 32])
def test_usual_tiles_fit_into_the_registers(rows: int, blocks: int, mixed: int, registers: int) -> None:
    high, wide, across, count = attention_sketch.usual(rows, blocks, mixed, registers)
    assert not (rows % (high * count) or blocks % wide or mixed % across)
    assert high * max(wide, across) <= registers


@pytest.mark.parametrize(
    ("size", "expected"), [(1, 1), (8, 8), (9, 12), (40, 40), (197, 198), (257, 264), (1500, 1500)]
)
def test_rows_are_filled_as_little_as_possible(size: int, expected: int) -> None:
    assert computation.filled_rows(size) == expected
