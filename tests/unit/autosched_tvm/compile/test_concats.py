"""Kernels write directly into the concatenated tensor, unless its parts have other readers."""

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from tvm import relax, topi  # noqa: E402

from autosched_tvm.compile import concats  # noqa: E402

pytestmark = pytest.mark.tvm
SHAPE = (1, 2, 3, 4)


def network(case: str, axis: int = 1):
    """Returns two kernels and their concatenation, or a more complicated case."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            left, right = builder.emit_te(topi.exp, x), builder.emit_te(topi.tanh, x)
            parts = {"an input": [left, x], "twice": [left, left]}.get(case, [left, right])
            if case == "three":
                parts.append(builder.emit_te(topi.negative, x))
            result = builder.emit_te(topi.concatenate, parts, axis)
            if case == "nested":
                result = builder.emit_te(topi.concatenate, [result, builder.emit_te(topi.negative, x)], axis)
            result = builder.emit_te(topi.sigmoid, result)
            outputs = [result, left] if case == "a part is a result" else [result]
            if case == "a part is read":
                outputs = [builder.emit_te(topi.add, builder.emit_te(topi.exp, left), x), result]
            found = builder.emit_output(relax.Tuple(outputs))
        builder.emit_func_output(found)
    passes = relax.transform
    steps = [passes.ToNonDataflow(), passes.RemovePurityChecking(), passes.CallTIRRewrite()]
    return tvm.transform.Sequential(steps)(builder.get())


def run(module):
    """Returns its results, all as one row."""
    passes = relax.transform
    steps = [
        passes.StaticPlanBlockMemory(), passes.LowerAllocTensor(), passes.KillAfterLastUse(),
        passes.LowerRuntimeBuiltin(), passes.ComputePrimValue(), passes.VMShapeLower(), passes.AttachGlobalSymbol(),
    ]  # fmt: skip
    built = relax.build(tvm.transform.Sequential(steps)(module), target="llvm", relax_pipeline=None)
    data = np.random.default_rng(0).uniform(size=SHAPE).astype("float32")
    found = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(data))
    return np.concatenate([value.numpy().ravel() for value in found])


def copies(module) -> int:
    return sum(variable.name_hint.startswith("concatenate") for variable in module.get_global_vars())


@pytest.mark.parametrize(
    ("case", "axis", "left"),
    [
        ("two", 1, 0), ("two", 3, 0), ("two", 2, 0), ("three", 1, 0),
        ("nested", 1, 1), ("an input", 1, 1), ("twice", 1, 1), ("a part is a result", 1, 1), ("a part is read", 1, 1),
    ],
)  # fmt: skip
def test_only_compatible_concatenations_are_joined_and_results_stay_the_same(case, axis, left):
    before = network(case, axis)
    after = concats.joined(before)
    assert copies(before) == (2 if case == "nested" else 1)
    assert copies(after) == left
    np.testing.assert_array_equal(run(after), run(before))


def test_unused_kernels_are_removed():
    names = {variable.name_hint for variable in concats.joined(network("two")).get_global_vars()}
    assert names == {"main", "exp_part", "tanh_part", "sigmoid"}
