"""Convolutions on whole tiles (AMX): sums are exact for all sizes, and large convolutions of a network use them."""

from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from tvm import relax, te  # noqa: E402
from tvm.s_tir import TensorIntrin  # noqa: E402

import this_cpu  # noqa: E402
from autosched_tvm.compile import kernel_sketches, lowering, onnx_import  # noqa: E402
from autosched_tvm.compile.integers import product, tile_convolution, tile_instructions  # noqa: E402
from autosched_tvm.compile.integers.convolution import Window  # noqa: E402
from autosched_tvm.compile.layouts import layout_variants  # noqa: E402
from autosched_tvm.compile.layouts.layout_option import LayoutOption  # noqa: E402
from quantising import convolution_sums  # noqa: E402

HERE = this_cpu.target()
TILES = tvm.target.Target({"kind": "llvm", "mcpu": "sapphirerapids", "num-cores": 1})
OLDER = tvm.target.Target({"kind": "llvm", "mcpu": "cascadelake", "num-cores": 1})
CASES: dict[str, tuple[tuple[int, ...], tuple[int, int], int, Window]] = {
    "1x1": ((1, 4, 7, 7, 16), (1, 1), 64, Window()),
    "3x3 with a border": ((1, 2, 14, 14, 16), (3, 3), 48, Window(border=(1, 1, 1, 1), border_value=7)),
    "rows that are multiplied as one": ((2, 4, 6, 9, 16), (3, 3), 16, Window(border=(1, 1, 1, 1))),
    "strides": ((1, 4, 21, 40, 16), (3, 3), 32, Window((2, 2), border=(1, 0, 1, 2), border_value=100)),
    "dilated rows": ((1, 1, 16, 33, 16), (3, 5), 20, Window(dilation=(2, 1), border=(2, 1, 3, 0), border_value=1)),
    "blocks of 8 channels": ((1, 12, 5, 24, 8), (2, 3), 80, Window()),
    "an image in several parts": ((2, 8, 40, 96, 16), (3, 3), 16, Window(border=(1, 1, 1, 1), border_value=3)),
}


def sizes_of(name: str) -> tile_convolution.Geometry:
    (_, chunks, *image, block), taps, _, how = CASES[name]
    return tile_convolution.geometry((image[0], image[1]), chunks * block, taps, how)


def scheduled(name: str, seed: int | None = None) -> Any:
    """Returns the sums, halved, under a drawn schedule or one by rule; seed 0: not scheduled."""
    shape, taps, filters, how = CASES[name]
    sizes = sizes_of(name)
    blocks = -(-filters // 16)
    data = te.placeholder(shape, "uint8")
    weights = te.placeholder((blocks, taps[0], sizes.run // 4, 16, 4), "int8")
    result = blocks, *how.results((shape[2], shape[3]), taps)
    sums = tile_convolution.convolution(data, weights, sizes, how, result)
    half = te.compute(sums.shape, lambda *i: sums[i].astype("float32") * tvm.tirx.const(0.5, "float32"), name="half")
    function = te.create_prim_func([data, weights, half])
    if seed is None:
        return kernel_sketches.by_rule(function, 32)
    drawn = kernel_sketches.sampled(tvm.IRModule({"main": function}), seed) if seed else tvm.s_tir.Schedule(function)
    assert drawn is not None
    return drawn.mod["main"]


def built(function: Any, target: Any) -> Any:
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return tvm.tirx.build(module, target=target, pipeline=lowering.install())


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize("name", CASES)
def test_sums_are_exact(name: str, seed: int | None) -> None:
    if seed != 0 and not tile_instructions.available(HERE):
        pytest.skip("this machine has no AMX")
    shape, taps, filters, how = CASES[name]
    drawn = np.random.default_rng(0)
    data = drawn.integers(0, 256, shape).astype("uint8")
    weights = drawn.integers(-128, 128, (filters, shape[1] * shape[4], *taps)).astype("int8")
    sizes = sizes_of(name)
    flat = data.transpose(0, 1, 4, 2, 3).reshape(shape[0], -1, *shape[2:4])
    wanted = convolution_sums(flat, weights, how)
    blocks = -(-filters // 16)
    made = tvm.runtime.tensor(np.zeros((shape[0], blocks, *wanted.shape[2:], 16), "float32"))
    packed = tile_convolution.pack(weights, sizes.channels, sizes.run)
    built(scheduled(name, seed), HERE)["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(packed), made)
    got = made.numpy().transpose(0, 1, 4, 2, 3).reshape(shape[0], -1, *wanted.shape[2:])[:, :filters]
    assert np.array_equal(got, wanted.astype("float32") / 2)


def test_the_cases_have_the_named_properties() -> None:
    assert sizes_of("rows that are multiplied as one").group.rows > 1
    assert sizes_of("an image in several parts").bands > 1
    assert sizes_of("1x1").bands == 1


@pytest.mark.parametrize("name", CASES)
def test_kernels_use_the_registers(name: str) -> None:
    assert "tdpbusd" in built(scheduled(name), TILES).inspect_source("asm")


def test_an_image_with_long_rows_is_copied_row_by_row() -> None:
    sizes = tile_convolution.geometry((8, 4096), 256, (3, 3), Window(border=(1, 1, 1, 1)))
    assert (sizes.bands, sizes.groups) == (8, 1)


def test_the_name_of_an_intrinsic_determines_it() -> None:
    tiles = tile_instructions.Tiles(1, 3, 320, 5, 999, 48)
    tile_instructions.register_named(f'["{tiles.name}"]')
    assert TensorIntrin.get(tiles.name, allow_missing=True) is not None


@pytest.mark.parametrize(
    ("shape", "weights", "how", "tiled"),
    [
        ((1, 4, 28, 28, 16), (64, 64, 3, 3), Window(border=(1, 1, 1, 1)), True),
        ((1, 16, 28, 28, 16), (64, 256, 1, 1), Window(), True),
        ((1, 4, 28, 28, 16), (64, 64, 3, 3), Window(dilation=(2, 2)), False),  # bytes that are not contiguous
        ((1, 1, 80, 80, 16), (16, 16, 3, 3), Window(), False),  # too few products of a sum
        ((1, 16, 1, 1, 16), (64, 256, 1, 1), Window(), False),  # one place in a tile of 16
    ],
)
def test_tiles_are_used_where_they_are_filled(
    shape: tuple[int, ...], weights: tuple[int, ...], how: Window, tiled: bool
) -> None:
    assert tile_convolution.worthwhile(shape, weights, how) is tiled


@pytest.mark.parametrize(("target", "tiled"), [(TILES, True), (OLDER, False)])
def test_convolutions_of_a_network_use_them(target: Any, tiled: bool) -> None:
    weights = np.random.default_rng(0).integers(-128, 128, (64, 64, 3, 3)).astype("int8")
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((1, 64, 20, 20), "uint8"))
    with builder.function("main", [data]):
        with builder.dataflow():
            sums = builder.emit(relax.op.nn.conv2d(data, relax.const(weights), out_dtype="int32"))
            result = builder.emit_output(relax.op.astype(sums, "float32"))
        builder.emit_func_output(result)
    variants = layout_variants.offered(onnx_import.clean(builder.get()), target, LayoutOption.NCHWC).variants
    functions = [one for _, one in variants[0].fused.functions_items() if isinstance(one, tvm.tirx.PrimFunc)]
    assert any(product.TILE_DOT in one.script() for one in functions) is tiled
