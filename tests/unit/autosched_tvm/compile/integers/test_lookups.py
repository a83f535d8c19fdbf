"""Lookups in tables: part of the kernel before them, in any layout, with the results of the replaced operators."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from tvm import te, tirx  # noqa: E402

import this_cpu  # noqa: E402
from autosched_tvm.compile import lowering, onnx_import  # noqa: E402
from autosched_tvm.compile.frontend import lookup_tables  # noqa: E402
from autosched_tvm.compile.integers import dot_instructions, table_registers  # noqa: E402
from autosched_tvm.compile.layouts import layout_variants  # noqa: E402
from autosched_tvm.compile.layouts.layout_option import LayoutOption  # noqa: E402
from compiled_networks import outputs  # noqa: E402
from quantising import network, run  # noqa: E402

HERE = this_cpu.target()
NEWER = tvm.target.Target({"kind": "llvm", "mcpu": "icelake-server", "num-cores": 1})
OLDER = tvm.target.Target({"kind": "llvm", "mcpu": "haswell", "num-cores": 1})
TABLE = np.random.default_rng(0).permutation(256).astype("uint8")


def looking_up(shape: tuple[int, ...], levels: str = "uint8") -> Any:
    """Returns a network of one lookup."""
    node = helper.make_node("Lookup", ["x", "table"], ["y"], domain=lookup_tables.DOMAIN)
    model = network([node], {"x": np.zeros(shape, levels)}, {"y": TensorProto.UINT8}, {"table": TABLE})
    model.opset_import.append(helper.make_opsetid(lookup_tables.DOMAIN, 1))
    return model


@pytest.mark.parametrize("by_rule", [False, True])
@pytest.mark.parametrize("target", [HERE, OLDER], ids=["here", "older"])
@pytest.mark.parametrize("shape", [(4, 64), (1, 3, 7), (1, 32, 5, 16)])
def test_each_number_gets_its_entry(shape: tuple[int, ...], target: Any, by_rule: bool) -> None:
    data = np.random.default_rng(1).integers(0, 256, shape).astype("uint8")
    (found,) = outputs(onnx_import.network(looking_up(shape), target), target, [data], by_rule=by_rule)
    assert np.array_equal(found, TABLE[data])


def test_signed_numbers_are_places_of_unsigned_ones() -> None:
    data = np.arange(256).astype("uint8").view("int8").reshape(16, 16)
    (found,) = outputs(onnx_import.network(looking_up((16, 16), "int8"), HERE), HERE, [data])
    assert np.array_equal(found, TABLE[data.view("uint8")])


@pytest.mark.parametrize("lanes", [4, 16, 64])
@pytest.mark.parametrize(("target", "there"), [(NEWER, True), (OLDER, False)])
@pytest.mark.parametrize("sizes", ["int32", "int64"])
def test_vectors_are_looked_up_in_registers(lanes: int, target: Any, there: bool, sizes: str) -> None:
    size, entries = tirx.IntImm(sizes, 640), tirx.IntImm(sizes, 256)  # networks have sizes of 64 bits
    levels, table = te.placeholder((size,), "uint8", name="x"), te.placeholder((entries,), "uint8", name="t")
    found = te.compute((size,), lambda i: table[levels[i].astype("int32")], name="lookup")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func([levels, table, found])}))
    schedule.vectorize(schedule.split(schedule.get_loops(schedule.get_sblock("lookup"))[0], [None, lanes])[1])
    built = tvm.tirx.build(schedule.mod, target=target, pipeline=lowering.install())
    code = built.inspect_source("asm")
    assert ("vpermi2b" in code or "vpermt2b" in code) is there
    if not there or table_registers.available(HERE):
        data = np.random.default_rng(1).integers(0, 256, 640).astype("uint8")
        made = tvm.runtime.tensor(np.zeros(640, "uint8"))
        built["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(TABLE), made)
        assert np.array_equal(made.numpy(), TABLE[data])


def rounding_network() -> Any:
    """Returns an 8-bit convolution, rounded, times its sigmoid, which is rounded before and after."""
    nodes, constants = [], {
        "w": np.random.default_rng(1).integers(-128, 128, (20, 8, 3, 3)).astype("int8"), "z": np.asarray(99, "uint8"),
    }  # fmt: skip

    def add(kind: str, *inputs: Any, **attributes: Any) -> str:
        names = []
        for value in inputs:
            names.append(value if isinstance(value, str) else f"c{len(constants)}")
            if not isinstance(value, str):
                constants[names[-1]] = np.asarray(value, "float32")
        nodes.append(helper.make_node(kind, names, [f"v{len(nodes)}"], **attributes))
        return f"v{len(nodes) - 1}"

    def rounded(real: str, scale: float) -> str:
        bounded = add("Clip", add("Add", add("Round", add("Mul", real, 1 / scale)), 9.0), 0.0, 255.0)
        return add("Cast", bounded, to=TensorProto.UINT8)

    def real(levels: str, scale: float) -> str:
        return add("Mul", add("Sub", add("Cast", levels, to=TensorProto.FLOAT), 9.0), scale)

    sums = add("ConvInteger", "x", "w", "z", pads=[1, 1, 1, 1])
    one = rounded(add("Mul", add("Cast", sums, to=TensorProto.FLOAT), 1e-4), 0.05)
    gate = rounded(add("Sigmoid", real(one, 0.05)), 1 / 240)
    last = rounded(add("Mul", real(one, 0.05), real(gate, 1 / 240)), 0.04)
    return network(nodes, {"x": np.zeros((1, 8, 11, 14), "uint8")}, {last: TensorProto.UINT8}, constants)


@pytest.mark.parametrize("layout", [LayoutOption.KEEP, LayoutOption.NCHWC])
def test_a_lookup_is_part_of_the_convolution_before_it(layout: LayoutOption) -> None:
    if (one := dot_instructions.of_target(HERE)) is None:
        pytest.skip("this machine has no dot instruction")
    net = rounding_network()
    with_table = onnx.ModelProto()
    with_table.CopyFrom(net)
    assert lookup_tables.put_in(with_table) == 1
    fused = layout_variants.single(onnx_import.cleaned(with_table, one), HERE, layout).fused
    names = [variable.name_hint for variable in fused.get_global_vars()]
    alone = [name for name in names if name.startswith("lookup")]
    assert bool(alone) is not table_registers.available(HERE)
    data = np.random.default_rng(2).integers(0, 256, (1, 8, 11, 14)).astype("uint8")
    (found,) = outputs(fused, HERE, [data], by_rule=True)
    expected = run(net, {"x": data})[0].astype("int32")
    assert np.abs(found.astype("int32") - expected).max() <= 1, "a sigmoid may be rounded to the next level"
    assert (found != expected).mean() < 0.01
