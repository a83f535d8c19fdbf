"""Lowered kernels: small buffers are on the stack, large ones in TVM's pool; arguments are not checked."""

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from tvm import relax, s_tir, te, topi  # noqa: E402

import compiled_networks  # noqa: E402
from autosched_tvm.compile import lowering  # noqa: E402

pytestmark = pytest.mark.tvm
TARGET = tvm.target.Target({"kind": "llvm"})


def tiled(columns: int):
    """A product with a tile of sums under the first loop."""
    left, right = te.placeholder((8, 16), name="left"), te.placeholder((16, columns), name="right")
    schedule = s_tir.Schedule(te.create_prim_func([left, right, topi.matmul(left, right)]))
    block = schedule.get_sblock("T_matmul")
    written = schedule.cache_write(block, 0, "global")
    schedule.compute_at(block, schedule.get_loops(written)[0])
    return schedule.mod


@pytest.mark.parametrize(("columns", "pooled"), [(512, False), (2048, False), (2049, True)])
def test_a_tile_of_sums_is_pooled_only_when_it_is_large(columns, pooled):
    module = tiled(columns)
    usual = tvm.tirx.build(module, target=TARGET)
    ours = tvm.tirx.build(module, target=TARGET, pipeline=lowering.install())
    assert "TVMBackendAllocWorkspace" in usual.inspect_source("ll")
    assert ("TVMBackendAllocWorkspace" in ours.inspect_source("ll")) == pooled
    generator = np.random.default_rng(0)
    arrays = [generator.uniform(size=shape).astype("float32") for shape in ((8, 16), (16, columns), (8, columns))]
    buffers = [tvm.runtime.tensor(array) for array in arrays]
    ours["main"](*buffers)
    np.testing.assert_allclose(buffers[2].numpy(), arrays[0] @ arrays[1], rtol=1e-4)


def test_installing_twice_is_the_same():
    assert lowering.install() == lowering.install() == lowering.PIPELINE


def test_kernels_do_not_check_their_arguments():
    usual = tvm.tirx.build(tiled(512), target=TARGET).inspect_source("ll")
    ours = tvm.tirx.build(tiled(512), target=TARGET, pipeline=lowering.install()).inspect_source("ll")
    assert "SetRaised" in usual, "the function that raises an error"
    assert "SetRaised" not in ours


@pytest.mark.parametrize(("shape", "dtype"), [((4, 9), "float32"), ((5, 8), "float32"), ((4, 8), "float64")])
def test_a_network_checks_its_inputs(shape, dtype):
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit_te(topi.exp, x))
    right = np.ones((4, 8), "float32")
    assert np.allclose(compiled_networks.outputs(builder.get(), TARGET, [right])[0], np.e)
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        compiled_networks.outputs(builder.get(), TARGET, [np.ones(shape, dtype)])
