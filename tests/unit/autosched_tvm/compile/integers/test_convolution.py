"""Convolutions of 8-bit integers: sums are bit-exact, under each tile and through the import of an ONNX model."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from tvm import relax, te  # noqa: E402

import this_cpu  # noqa: E402
from autosched.errors import ModelRejected  # noqa: E402
from autosched_tvm.compile import (  # noqa: E402
    kernel_sketches,
    lowering,
    onnx_import,
)
from autosched_tvm.compile.integers import convolution, dot_instructions, product  # noqa: E402
from autosched_tvm.compile.integers.convolution import Window, filled_blocks  # noqa: E402
from autosched_tvm.compile.integers.dot_instructions import (  # noqa: E402
    PAIRS_256,
    PAIRS_512,
    SDOT,
    SIGNED_PAIRS,
    VNNI_256,
    VNNI_512,
    DotInstruction,
)
from autosched_tvm.compile.integers.dot_sketch import usual_band  # noqa: E402
from autosched_tvm.compile.layouts import layout_variants  # noqa: E402
from autosched_tvm.compile.layouts.layout_option import LayoutOption  # noqa: E402
from compiled_networks import outputs  # noqa: E402
from quantising import convolution_network, convolution_sums, network, run  # noqa: E402

HERE = this_cpu.target()
CASES: dict[str, tuple[tuple[int, ...], tuple[int, int], int, Window]] = {
    "1x1": ((1, 2, 6, 7, 16), (1, 1), 40, Window()),
    "3x3 with a border": ((2, 1, 9, 8, 8), (3, 3), 16, Window(border=(1, 1, 1, 1), border_value=7)),
    "strides": ((1, 1, 23, 21, 4), (7, 5), 24, Window((2, 2), border=(3, 2, 3, 2), border_value=100)),
    "dilation": ((1, 2, 12, 40, 8), (3, 2), 8, Window(dilation=(2, 3), border=(0, 1, 2, 0), border_value=1)),
    "many filters": ((1, 1, 3, 4, 16), (2, 2), 190, Window()),
}


def workload(name: str, one: DotInstruction) -> Any:
    """Returns the sums, scaled, and clipped at 0."""
    shape, taps, filters, how = CASES[name]
    blocks = -(-filters // one.lanes)
    data = te.placeholder(shape, one.data)
    weights = te.placeholder(
        (filled_blocks(blocks), shape[1], *taps, shape[4] // one.group, one.lanes, one.group), one.weights
    )  # fmt: skip
    excess = te.placeholder((blocks * one.lanes,), "int32")
    sums = convolution.convolution(data, weights, excess, how)
    half = tvm.tirx.const(0.5, "float32")
    scaled = te.compute(sums.shape, lambda *i: te.max(sums(*i).astype("float32") * half, tvm.tirx.const(0.0)))
    return tvm.IRModule(
        {"main": te.create_prim_func([data, weights, excess, scaled]).with_attr("global_symbol", "main")}
    )


def ran(module: Any, name: str, one: DotInstruction) -> tuple[Any, Any]:
    """Returns the results of a kernel, and the expected ones."""
    shape, taps, filters, how = CASES[name]
    drawn = np.random.default_rng(0)
    low, high = (-128, 128) if one.data == "int8" else (0, 256)
    data = drawn.integers(low, high, shape).astype(one.data)
    weights = drawn.integers(one.weights_min, 128, (filters, shape[1] * shape[4], *taps)).astype("int8")
    blocks = -(-filters // one.lanes)
    more = filled_blocks(blocks) * one.lanes - filters
    packed = convolution.pack(np.pad(weights, ((0, more), (0, 0), (0, 0), (0, 0))), shape[4], one)
    excess = drawn.integers(-99, 99, blocks * one.lanes).astype("int32")
    flat = data.transpose(0, 1, 4, 2, 3).reshape(shape[0], -1, *shape[2:4])
    wanted = convolution_sums(flat, weights, how) + excess[:filters].reshape(1, -1, 1, 1)
    built = tvm.tirx.build(module, target=HERE, pipeline=lowering.install())
    out = np.empty((shape[0], blocks, *wanted.shape[2:], one.lanes), "float32")
    tensors = [tvm.runtime.tensor(array) for array in (data, packed, excess, out)]
    built["main"](*tensors)
    found = tensors[-1].numpy().transpose(0, 1, 4, 2, 3).reshape(shape[0], -1, *wanted.shape[2:])
    return found[:, :filters], np.maximum(wanted.astype("float32") * np.float32(0.5), 0)


@pytest.mark.parametrize("name", CASES)
def test_sums_are_equal_to_the_bit(name: str) -> None:
    for one in dot_instructions.available(HERE):
        module = workload(name, one)
        by_rule = tvm.IRModule({"main": kernel_sketches.by_rule(module["main"], 32)})
        for scheduled in (*(kernel_sketches.sampled(module, seed).mod for seed in range(1, 3)), by_rule):
            found, wanted = ran(scheduled, name, one)
            assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("height", "high", "row", "parts", "rows"),
    [
        (900, 1, 163 * 128, 2, 6),  # 6 rows of 20 KB: the second cache
        (900, 4, 163 * 128, 2, 4),
        (900, 1, 10**6, 2, 1),  # no row is small enough
        (40, 2, 42 * 64, 1, 4),  # 10 pieces for threads; 8 rows would be 5
        (7, 1, 9 * 256, 8, 7),
        (7, 7, 9 * 256, 1, 7),
    ],
)
def test_a_band_of_an_image_fits_into_the_second_cache_and_leaves_pieces_for_threads(
    height: int, high: int, row: int, parts: int, rows: int
) -> None:
    assert usual_band(height, high, row, parts) == rows


def test_a_large_padded_image_is_made_in_bands() -> None:
    CASES["large"] = ((1, 4, 64, 96, 16), (3, 3), 64, Window(border=(1, 1, 1, 1), border_value=7))
    one = dot_instructions.ALL[0]
    for scheduled in (
        kernel_sketches.by_rule(workload("large", one)["main"], 32),
        kernel_sketches.sampled(workload("large", one), 1).mod["main"],
    ):
        schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": scheduled}))
        bands = schedule.get(schedule.get_loops(schedule.get_sblock(product.BORDER))[0])
        assert bands.kind == tvm.tirx.ForKind.PARALLEL
        assert int(bands.extent) > 1
        for block in schedule.get_child_blocks(schedule.get_sblock("root")):
            assert schedule.get(schedule.get_loops(block)[0]).same_as(bands), "the only outer loop"


@pytest.mark.parametrize(
    ("image", "taps", "how"),
    [
        ((9, 20), (3, 3), Window(border=(1, 1, 1, 1), border_value=7)),
        ((23, 21), (7, 5), Window((2, 2), border=(3, 2, 3, 2), border_value=100)),
        ((12, 40), (3, 2), Window(dilation=(2, 3), border=(0, 1, 2, 0), border_value=1)),
        ((8, 8), (1, 4), Window()),
    ],
)
def test_an_image_of_one_channel_is_multiplied_by_rows_of_the_window(
    image: tuple[int, int], taps: tuple[int, int], how: Window
) -> None:
    drawn = np.random.default_rng(0)
    weights = drawn.integers(SIGNED_PAIRS.weights_min, 128, (20, 1, *taps)).astype("int8")
    data = drawn.integers(0, 256, (2, 1, *image)).astype("uint8")
    wanted = convolution_sums(data, weights, how)
    for one in dot_instructions.available(HERE):
        builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(data.shape, "uint8"))
        with builder.function("main", [x]):
            builder.emit_func_output(builder.emit(convolution.packed(builder, x, weights, how, one)))
        module = builder.get()
        variable = next(one for one in module.get_global_vars() if "conv2d" in one.name_hint)
        kernel = module[variable].with_attr("global_symbol", "main")
        assert int(kernel.params[1].ty.shape[3]) == 1, "the columns are channels now"
        samples = (kernel_sketches.sampled(tvm.IRModule({"main": kernel}), seed).mod["main"] for seed in range(1, 3))
        for form in (kernel, kernel_sketches.by_rule(kernel, 32), *samples):
            module.update_func(variable, form.without_attr("global_symbol"))
            built = relax.build(module, HERE, tir_pipeline=lowering.install())
            found = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(data)).numpy()
            plain = found.transpose(0, 1, 4, 2, 3).reshape(2, -1, *wanted.shape[2:])
            assert np.array_equal(plain[:, :20], wanted)


@pytest.mark.parametrize("name", ["3x3 with a border", "strides", "dilation"])
def test_filters_of_single_channels_give_the_same_under_every_tile(name: str) -> None:
    shape, taps, _, how = CASES[name]
    drawn = np.random.default_rng(0)
    channels = shape[1] * shape[4]
    weights = drawn.integers(-128, 128, (channels, 1, *taps)).astype("int8")
    data = drawn.integers(0, 256, shape).astype("uint8")
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, "uint8"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(convolution.depthwise(builder, x, weights, how)))
    kernel = next(one for variable, one in builder.get().functions_items() if variable.name_hint != "main")
    module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
    flat = data.transpose(0, 1, 4, 2, 3).reshape(shape[0], -1, *shape[2:4])
    wanted = np.concatenate([convolution_sums(flat[:, [i]], weights[[i]], how) for i in range(channels)], axis=1)
    factors = weights[:, 0].reshape(-1, shape[4], *taps).transpose(0, 2, 3, 1).astype("float32")
    by_rule = tvm.IRModule({"main": kernel_sketches.by_rule(module["main"], 32)})
    for scheduled in (*(kernel_sketches.sampled(module, seed).mod for seed in range(1, 5)), by_rule):
        out = tvm.runtime.tensor(np.empty((shape[0], shape[1], *wanted.shape[2:], shape[4]), "int32"))
        built = tvm.tirx.build(scheduled, target=HERE, pipeline=lowering.install())
        built["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(np.ascontiguousarray(factors)), out)
        found = out.numpy().transpose(0, 1, 4, 2, 3).reshape(wanted.shape)
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("one", [VNNI_256, SDOT, PAIRS_256], ids=lambda one: one.name)
def test_kernels_without_a_schedule_are_the_same_on_all_targets(one: DotInstruction) -> None:
    module = workload("strides", one)
    for plain in (module, tvm.IRModule({"main": kernel_sketches.plain(module["main"])})):
        found, wanted = ran(plain, "strides", one)
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("one", "target", "mnemonic"),
    [
        (VNNI_512, {"kind": "llvm", "mcpu": "cascadelake"}, "vpdpbusd"),
        (VNNI_256, {"kind": "llvm", "mcpu": "alderlake"}, "vpdpbusd"),
        (SDOT, {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76"}, "sdot"),
        (PAIRS_512, {"kind": "llvm", "mcpu": "skylake-avx512"}, "vpmaddwd"),
        (PAIRS_256, {"kind": "llvm", "mcpu": "haswell"}, "vpmaddwd"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_instruction_is_in_the_object_code(one: DotInstruction, target: dict[str, str], mnemonic: str) -> None:
    scheduled = tvm.IRModule({"main": kernel_sketches.by_rule(workload("3x3 with a border", one)["main"], 32)})
    built = tvm.tirx.build(scheduled, target=tvm.target.Target(target), pipeline=lowering.install())
    assert mnemonic in built.inspect_source("asm")


@pytest.mark.parametrize("layout", [LayoutOption.KEEP, LayoutOption.NCHWC])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pads": [1, 2, 0, 1], "strides": [2, 1]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [1, 2], "channels": 32, "filters": 32},
        {"pads": [2, 1, 0, 1], "dilations": [2, 3]},
        {"auto_pad": "VALID", "zero": 0},
        {"group": 24, "channels": 24, "filters": 24, "pads": [1, 1, 1, 1]},
        {"group": 32, "channels": 32, "filters": 32, "strides": [2, 2], "pads": [0, 1, 1, 0]},
        {"group": 2, "channels": 32, "filters": 64, "pads": [1, 1, 1, 1]},
        {"group": 3, "channels": 24, "filters": 48, "strides": [2, 1]},
        {"group": 16, "channels": 64, "filters": 64, "pads": [1, 1, 1, 1]},
        {"group": 8, "channels": 96, "filters": 256, "dilations": [1, 2]},
        {"group": 2, "channels": 6, "filters": 10},
    ],
    ids=str,
)
def test_a_model_has_the_sums_of_onnx_runtime(options: dict[str, Any], layout: LayoutOption) -> None:
    if (one := dot_instructions.of_target(HERE)) is None:
        pytest.skip("this machine has no dot instruction")
    net = convolution_network(**options)
    variant = layout_variants.single(onnx_import.cleaned(net, one), HERE, layout)
    names = [variable.name_hint for variable in variant.fused.get_global_vars()]
    depthwise = options.get("group") == options.get("channels", 3)
    kernel = "int8_depthwise_NCHWc" if depthwise else "int8_conv2d_NCHWc"
    assert any(kernel in name for name in names) == (layout is LayoutOption.NCHWC)
    assert not any("pad" in name for name in names) or layout is LayoutOption.KEEP, "it has become part of the kernel"
    data = np.random.default_rng(2).integers(0, 256, (1, options.get("channels", 3), 11, 14)).astype("uint8")
    (found,) = outputs(variant.fused, HERE, [data])
    assert np.array_equal(found, run(net, {"x": data})[0])


def dynamic(*, channels: int = 3, filters: int = 20, taps: int = 2, **attributes: Any) -> Any:
    """Returns a convolution of integers in ONNX whose zero point is an input."""
    depth = channels // attributes.get("group", 1)
    weights = np.random.default_rng(1).integers(-128, 128, (filters, depth, *[3] * taps)).astype("int8")
    node = helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], **attributes)
    given = {"x": np.zeros((1, channels, 11, 14)[: 2 + taps], "uint8"), "z": np.zeros((), "uint8")}
    return network([node], given, {"y": TensorProto.INT32}, {"w": weights})


@pytest.mark.parametrize("layout", [LayoutOption.KEEP, LayoutOption.NCHWC])
@pytest.mark.parametrize(
    "options",
    [
        {"pads": [1, 2, 0, 1], "channels": 32},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"group": 32, "channels": 32, "filters": 32, "strides": [2, 2], "pads": [0, 1, 1, 0]},
        {"taps": 1, "pads": [1, 2], "channels": 8},
    ],
    ids=str,
)
@pytest.mark.parametrize("zero", [0, 201])
def test_a_zero_point_that_the_network_computes(options: dict[str, Any], layout: LayoutOption, zero: int) -> None:
    if (one := dot_instructions.of_target(HERE)) is None:
        pytest.skip("this machine has no dot instruction")
    net = dynamic(**options)
    variant = layout_variants.single(onnx_import.cleaned(net, one), HERE, layout)
    names = " ".join(variable.name_hint for variable in variant.fused.get_global_vars())
    assert ("int8" in names) == (layout is LayoutOption.NCHWC and "taps" not in options)
    shape = [size.dim_value for size in net.graph.input[0].type.tensor_type.shape.dim]
    data, start = np.random.default_rng(2).integers(0, 256, shape).astype("uint8"), np.asarray(zero, "uint8")
    (found,) = outputs(variant.fused, HERE, [data, start])
    assert np.array_equal(found, run(net, {"x": data, "z": start})[0])


def test_weights_that_the_network_computes_are_refused() -> None:
    net = convolution_network()
    net.graph.input.append(helper.make_tensor_value_info("more", TensorProto.INT8, [20, 3, 3, 3]))
    net.graph.node[0].input[1] = "more"
    with pytest.raises(ModelRejected, match="weights, or a zero point of weights, that the network computes"):
        onnx_import.cleaned(net)
