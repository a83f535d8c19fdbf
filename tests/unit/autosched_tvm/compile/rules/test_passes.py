"""The rules in a whole network: the kernels that they schedule, and the calls that become views."""

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

import tvm_ffi  # noqa: E402
from tvm import relax, te, topi  # noqa: E402
from tvm.s_tir import meta_schedule as ms  # noqa: E402

from autosched_tvm.compile import network_compiler, rules  # noqa: E402

pytestmark = pytest.mark.tvm
TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
SHAPE = (1, 6, 1, 8)


def network(*, moved_last: bool = False):
    """An operator, a transposition that moves nothing, and one more operator."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit_te(topi.negative, x)
            value = builder.emit_te(topi.transpose, value, [0, 2, 1, 3])
            if not moved_last:
                value = builder.emit_te(topi.abs, value)
            found = builder.emit_output(value)
        builder.emit_func_output(found)
    return builder.get()


def kernels(module) -> set[str]:
    return {v.name_hint for v, f in module.functions_items() if isinstance(f, tvm.tirx.PrimFunc)}


def test_a_move_that_keeps_the_order_becomes_a_view() -> None:
    assert kernels(network()) == {"negative", "transpose", "abs"}
    assert kernels(rules.with_views()(network())) == {"negative", "abs"}


def test_a_result_of_the_network_has_memory_of_its_own() -> None:
    assert kernels(rules.with_views()(network(moved_last=True))) == {"negative", "transpose"}


def test_a_network_by_rule_computes_the_same() -> None:
    data = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype("float32")
    with TARGET, ms.database.MemoryDatabase():
        built = relax.build(network(), target=TARGET, relax_pipeline=network_compiler._pipeline(TARGET))
    found = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(data)).numpy()
    np.testing.assert_array_equal(found, np.abs(data).transpose(0, 2, 1, 3))


def test_scheduled_kernels_are_left_as_they_are() -> None:
    module = network()
    variable = module.get_global_var("abs")
    module.update_func(variable, module[variable].with_attr(rules.SCHEDULE, rules.TUNED))
    changed = rules.with_rules(TARGET)(module)
    assert tvm_ffi.structural_equal(changed[variable], module[variable])
    assert "vectorized" in changed["negative"].script()
    assert "vectorized" not in changed["abs"].script()


def distance(values, number: int):
    return lambda i, j: te.abs(values[i, j] - number)


@pytest.mark.parametrize(("count", "left"), [(7, 8), (30, 2)])
def test_many_stages_of_a_kernel_without_a_schedule_are_joined(count: int, left: int) -> None:
    data = te.placeholder((8, 8), name="x")
    depth = te.reduce_axis((0, 8), name="k")
    value = te.compute((8, 8), lambda i, j: te.sum(data[i, depth] * data[depth, j], axis=depth), name="sum")
    for number in range(count):
        value = te.compute((8, 8), distance(value, number), name=f"s{number}")
    function = te.create_prim_func([data, value])
    joined = rules.with_joined_stages()(tvm.IRModule({"main": function}))["main"]
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": joined}))
    assert len(schedule.get_child_blocks(schedule.get_sblock("root"))) == left
    given = np.random.default_rng(0).integers(0, 4, (8, 8)).astype("float32")
    found = tvm.runtime.tensor(np.zeros((8, 8), "float32"))
    tvm.compile(tvm.IRModule({"main": joined}), target="llvm")["main"](tvm.runtime.tensor(given), found)
    wanted = given @ given
    for number in range(count):
        wanted = np.abs(wanted - number)
    np.testing.assert_array_equal(found.numpy(), wanted)
