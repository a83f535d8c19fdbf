"""3x3 convolutions of 8-bit integers by Winograd's algorithm: sums are bit-exact, under each tile and schedule."""

from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from tvm import relax, te  # noqa: E402

import this_cpu  # noqa: E402
from autosched_tvm.compile import kernel_sketches, lowering, onnx_import  # noqa: E402
from autosched_tvm.compile.integers import dot_instructions, dot_sketch, winograd_convolution  # noqa: E402
from autosched_tvm.compile.integers.convolution import Window  # noqa: E402
from autosched_tvm.compile.integers.dot_instructions import PAIRS_256, PAIRS_512, SDOT, VNNI_512  # noqa: E402
from autosched_tvm.compile.layouts import layout_variants  # noqa: E402
from autosched_tvm.compile.layouts.layout_option import LayoutOption  # noqa: E402
from autosched_tvm.compile.rules import stage_inlining  # noqa: E402
from compiled_networks import outputs  # noqa: E402
from quantising import convolution_network, convolution_sums, run  # noqa: E402

HERE = this_cpu.target()
CASES: dict[str, tuple[tuple[int, ...], int, Window]] = {
    "even": ((1, 2, 8, 12, 8), 32, Window(border=(1, 1, 1, 1), border_value=7)),
    "odd": ((2, 1, 9, 7, 8), 24, Window(border=(1, 1, 1, 1), border_value=255)),
    "uneven border": ((1, 3, 6, 11, 4), 16, Window(border=(0, 2, 1, 0), border_value=3)),
    "no border": ((1, 1, 7, 10, 16), 8, Window()),
    "dilation": ((1, 2, 13, 10, 8), 16, Window(dilation=(2, 1), border=(1, 1, 1, 1), border_value=9)),
    "uneven dilation": ((2, 1, 18, 17, 8), 8, Window(dilation=(3, 2), border=(2, 0, 3, 1), border_value=9)),
    "bands": ((1, 8, 64, 42, 16), 16, Window(border=(1, 1, 1, 1), border_value=128)),
}


def bounded(values: Any) -> Any:
    """Returns the function of an index to the value there, at least 0."""
    return lambda *index: te.max(values(*index), tvm.tirx.const(0.0))


def workload(name: str, bounds: int = 1) -> Any:
    """Returns the sums, scaled, and clipped at 0 this number of times."""
    shape, filters, how = CASES[name]
    one, channels = PAIRS_256, shape[1] * shape[4]
    data = te.placeholder(shape, "uint8")
    blocks = filters // one.lanes, winograd_convolution.COUNT, channels // one.group
    weights = te.placeholder((*blocks, one.lanes, one.group), one.weights)
    sums = winograd_convolution.convolution(data, weights, how)
    half = tvm.tirx.const(0.5, "float32")
    result = te.compute(sums.shape, lambda *i: sums(*i).astype("float32") * half)
    for _ in range(bounds):
        result = te.compute(sums.shape, bounded(result))
    return tvm.IRModule({"main": te.create_prim_func([data, weights, result]).with_attr("global_symbol", "main")})


def ran(module: Any, name: str) -> tuple[Any, Any]:
    """Returns the results of a kernel, and the expected ones."""
    shape, filters, how = CASES[name]
    drawn = np.random.default_rng(0)
    data = drawn.integers(0, 256, shape).astype("uint8")
    data.flat[: shape[-2]] = 255
    weights = drawn.integers(-128, 128, (filters, shape[1] * shape[4], 3, 3)).astype("int8")
    weights[0], weights[1] = -128, 127  # the largest sums
    flat = data.transpose(0, 1, 4, 2, 3).reshape(shape[0], -1, *shape[2:4])
    wanted = convolution_sums(flat, weights, how)
    built = tvm.tirx.build(module, target=HERE, pipeline=lowering.install())
    out = np.empty((shape[0], filters // PAIRS_256.lanes, *wanted.shape[2:], PAIRS_256.lanes), "float32")
    packed = winograd_convolution.pack(weights, shape[1] * shape[4], PAIRS_256)
    tensors = [tvm.runtime.tensor(array) for array in (data, packed, out)]
    built["main"](*tensors)
    found = tensors[-1].numpy().transpose(0, 1, 4, 2, 3).reshape(shape[0], -1, *wanted.shape[2:])
    return found, np.maximum(wanted.astype("float32") * np.float32(0.5), 0)


@pytest.mark.parametrize("name", CASES)
def test_sums_are_equal_to_the_bit(name: str) -> None:
    if PAIRS_256 not in dot_instructions.available(HERE):
        pytest.skip("this machine has no AVX2")
    module = workload(name)
    by_rule = [tvm.IRModule({"main": kernel_sketches.by_rule(module["main"], registers)}) for registers in (16, 32)]
    for scheduled in (*(kernel_sketches.sampled(module, seed).mod for seed in range(1, 5)), *by_rule):
        found, wanted = ran(scheduled, name)
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("name", ["even", "uneven border"])
def test_kernels_without_a_schedule_are_the_same_on_all_targets(name: str) -> None:
    module, long = workload(name), workload(name, bounds=stage_inlining.STAGES_MAX)
    joined = stage_inlining.joined(long["main"])
    assert "int8_points" in str(joined), "if they were inlined, each would be computed for each filter"
    vectors = [kernel_sketches.plain(function) for function in (module["main"], joined)]
    for plain in (module, *(tvm.IRModule({"main": function}) for function in vectors)):
        found, wanted = ran(plain, name)
        assert np.array_equal(found, wanted)


def test_points_of_a_large_image_are_made_in_bands() -> None:
    function = kernel_sketches.by_rule(workload("bands")["main"], 16)
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function}))
    bands = schedule.get(schedule.get_loops(schedule.get_sblock("int8_points"))[0])
    assert bands.kind == tvm.tirx.ForKind.PARALLEL
    assert int(bands.extent) > 1


@pytest.mark.parametrize(
    ("height", "row", "rows"), [(450, 81 * 16 * 128, 1), (28, 16 * 28 * 64, 4), (4, 16 * 4 * 256, 4)]
)
def test_a_band_fits_into_the_second_cache(height: int, row: int, rows: int) -> None:
    assert dot_sketch.usual_band(height, 1, row) == rows


SMALL, LARGE = (np.full((64, 64, 3, 3), value, "int8") for value in (50, -128))


@pytest.mark.parametrize(
    ("shape", "weights", "how", "one", "worth"),
    [
        ((1, 8, 28, 28, 8), SMALL, Window(border=(1, 1, 1, 1)), PAIRS_256, True),
        ((1, 4, 28, 28, 16), SMALL, Window(), PAIRS_512, True),
        ((1, 8, 28, 28, 8), SMALL, Window(), VNNI_512, False),  # takes bytes
        ((1, 8, 28, 28, 8), SMALL, Window(), SDOT, False),
        ((1, 8, 28, 28, 8), SMALL, Window((2, 2)), PAIRS_256, False),
        ((1, 8, 28, 28, 8), SMALL, Window(dilation=(1, 2)), PAIRS_256, True),
        ((1, 8, 28, 28, 8), SMALL, Window(dilation=(12, 12)), PAIRS_256, False),  # tiles are mostly outside
        ((1, 8, 28, 28, 8), SMALL[:, :, :, :2], Window(), PAIRS_256, False),
        ((1, 16, 28, 28, 8), SMALL, Window(), PAIRS_256, False),  # two groups
        ((1, 8, 3, 3, 8), SMALL, Window(), PAIRS_256, False),  # one result: tiles of four are waste
        ((1, 1, 28, 28, 4), SMALL[:8, :4], Window(), PAIRS_256, False),  # the transforms take longer
        ((1, 64, 28, 28, 8), np.tile(SMALL, (1, 8, 1, 1)), Window(), PAIRS_256, True),
    ],
)
def test_it_is_used_where_it_is_faster(
    shape: tuple[int, ...], weights: Any, how: Window, one: Any, worth: bool
) -> None:
    assert winograd_convolution.worthwhile(shape, weights.shape, how, one) == worth


@pytest.mark.parametrize(("weights", "exact"), [(SMALL, True), (LARGE, False)], ids=["fit", "overflow"])
def test_it_is_not_used_where_sums_could_overflow(weights: Any, exact: bool) -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1, 64, 28, 28, 8), "uint8"))
    with builder.function("main", [x]):
        call = winograd_convolution.packed(builder, x, np.tile(weights, (1, 8, 1, 1)), Window(), PAIRS_256)
        builder.emit_func_output(x if call is None else builder.emit(call))
    assert (call is not None) == exact


@pytest.mark.parametrize(
    ("one", "target", "register"),
    [
        (PAIRS_512, {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 1}, "zmm"),
        (PAIRS_256, {"kind": "llvm", "mcpu": "haswell", "num-cores": 1}, "ymm"),
    ],
    ids=["avx512", "avx2"],
)
def test_a_network_has_the_sums_of_onnx_runtime_without_a_dot_instruction(
    one: Any, target: dict[str, Any], register: str
) -> None:
    aim = tvm.target.Target(target)
    net = convolution_network(channels=32, filters=48, image=(21, 30), pads=[1, 1, 1, 1])
    fused = layout_variants.single(onnx_import.cleaned(net, one), aim, LayoutOption.NCHWC).fused
    (kernel,) = [function for name, function in fused.functions_items() if "winograd" in name.name_hint]
    scheduled = tvm.IRModule({"main": kernel_sketches.by_rule(kernel, 32).with_attr("global_symbol", "main")})
    built = tvm.tirx.build(scheduled, target=aim, pipeline=lowering.install())
    lines = [line for line in built.inspect_source("asm").splitlines() if "vpmaddwd" in line]
    assert lines
    assert all(register in line for line in lines)
    data = np.random.default_rng(2).integers(0, 256, (1, 32, 21, 30)).astype("uint8")
    (found,) = outputs(fused, HERE, [data])
    assert np.array_equal(found, run(net, {"x": data})[0])
