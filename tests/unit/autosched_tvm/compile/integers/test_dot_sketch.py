"""Products of 8-bit integers: sums are bit-exact, under each tile, and the object code has the instruction."""

import math
from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from tvm import te  # noqa: E402

import this_cpu  # noqa: E402
from autosched.model import TaskInfo  # noqa: E402
from autosched_tvm.compile import (  # noqa: E402
    candidate_build,
    intrinsics,
    kernel_sketches,
    lowering,
)
from autosched_tvm.compile.integers import dot_instructions, product  # noqa: E402
from autosched_tvm.compile.integers.dot_instructions import (  # noqa: E402
    PAIRS_256,
    PAIRS_512,
    SDOT,
    SIGNED_PAIRS,
    VNNI_256,
    VNNI_512,
    DotInstruction,
)
from autosched_tvm.compile.integers.dot_sketch import Tile, usual  # noqa: E402
from autosched_tvm.tuning.search_method import SearchContext  # noqa: E402
from autosched_tvm.tuning.sketch_space import SketchSpace  # noqa: E402

HERE = this_cpu.attributes()
MNEMONICS = [
    (VNNI_512, {"kind": "llvm", "mcpu": "cascadelake"}, "vpdpbusd", "zmm"),
    (VNNI_256, {"kind": "llvm", "mcpu": "alderlake"}, "vpdpbusd", "ymm"),
    (SDOT, {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76"}, "sdot", "v"),
    (PAIRS_512, {"kind": "llvm", "mcpu": "skylake-avx512"}, "vpmaddwd", "zmm"),
    (PAIRS_256, {"kind": "llvm", "mcpu": "haswell"}, "vpmaddwd", "ymm"),
    (SIGNED_PAIRS, {"kind": "llvm", "mcpu": "haswell"}, "vpmaddubsw", "ymm"),
]
SHAPES = [((8,), 64, 48), ((1, 197), 64, 40), ((1, 30, 1), 20, 16), ((1,), 32, 256), ((13,), 4, 16)]
"""Rows, depth, columns: whole tiles, and sizes that are padded."""


def workload(rows: tuple[int, ...], depth: int, columns: int, one: DotInstruction) -> Any:
    """Returns a product with scaled and clipped sums."""
    data = te.placeholder((*rows, depth), one.data)
    weights = te.placeholder((-(-columns // one.lanes), depth // one.group, one.lanes, one.group), one.weights)
    sums = product.product(data, weights)
    scaled = te.compute(sums.shape, lambda *i: sums(*i).astype("float32") * tvm.tirx.const(0.5, "float32"))
    bounded = te.compute(sums.shape, lambda *i: tvm.te.max(scaled(*i), tvm.tirx.const(0.0, "float32")))
    return tvm.IRModule({"main": te.create_prim_func([data, weights, bounded]).with_attr("global_symbol", "main")})


def ran(module: Any, rows: tuple[int, ...], depth: int, columns: int, one: DotInstruction) -> tuple[Any, Any]:
    """Returns the result of a kernel, and the expected one."""
    drawn = np.random.default_rng(0)
    low, high = (-128, 128) if one.data == "int8" else (0, 256)
    data = drawn.integers(low, high, (*rows, depth)).astype(one.data)
    weights = drawn.integers(one.weights_min, 128, (depth, columns)).astype("int8")
    weights[:, 0] = one.weights_min  # with the largest data, this makes the largest sums
    data.flat[:depth] = data.min()
    filled = -(-columns // one.lanes) * one.lanes
    out = tvm.runtime.tensor(np.empty((*rows, filled), "float32"))
    built = tvm.tirx.build(module, target=tvm.target.Target(HERE), pipeline=lowering.install())
    built["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(product.pack(weights, one)), out)
    right = np.maximum(data.astype("int32") @ weights.astype("int32") * np.float32(0.5), 0)
    return out.numpy()[..., :columns], right


@pytest.mark.parametrize(("rows", "depth", "columns"), SHAPES)
def test_sums_are_equal_to_the_bit(rows: tuple[int, ...], depth: int, columns: int) -> None:
    for one in dot_instructions.available(tvm.target.Target(HERE)):
        module = workload(rows, depth, columns, one)
        by_rule = tvm.IRModule({"main": kernel_sketches.by_rule(module["main"], 32)})
        for scheduled in (*(kernel_sketches.sampled(module, seed).mod for seed in range(1, 4)), by_rule):
            found, right = ran(scheduled, rows, depth, columns, one)
            assert np.array_equal(found, right)


def test_a_result_that_is_used_several_times_is_computed_once() -> None:
    if (one := dot_instructions.of_target(tvm.target.Target(HERE))) is None:
        pytest.skip("this machine has no dot instruction")
    data, weights = (
        te.placeholder((16, 32), one.data),
        te.placeholder((2, 32 // one.group, one.lanes, one.group), one.weights),
    )
    sums = product.product(data, weights)
    scaled = te.compute(sums.shape, lambda i, j: sums(i, j).astype("float32") * tvm.tirx.const(0.5, "float32"))
    pairs = te.compute((16, *sums.shape), lambda i, j, k: scaled(i, k) + scaled(j, k))
    function = te.create_prim_func([data, weights, pairs]).with_attr("global_symbol", "main")
    module = tvm.IRModule({"main": function})
    for scheduled in (
        kernel_sketches.sampled(module, 1).mod,
        tvm.IRModule({"main": kernel_sketches.by_rule(function, 32)}),
    ):
        outer = tvm.s_tir.Schedule(scheduled)
        dots = [
            block for block in outer.get_child_blocks(outer.get_sblock("root")) if "update" in str(outer.get(block))
        ]
        done = math.prod(int(outer.get(loop).extent) for block in dots for loop in outer.get_loops(block))
        assert done == 16 * 2 * 32 // one.group, "one instruction for each group of a vector of results"


@pytest.mark.parametrize(("rows", "depth", "columns"), SHAPES)
def test_kernels_without_a_schedule_are_the_same_on_all_targets(
    rows: tuple[int, ...], depth: int, columns: int
) -> None:
    for one in dot_instructions.ALL:
        module = workload(rows, depth, columns, one)
        in_vectors = tvm.IRModule({"main": kernel_sketches.plain(module["main"])})
        assert f"T.vectorized({one.lanes})" in str(in_vectors)
        for plain in (module, in_vectors):
            found, right = ran(plain, rows, depth, columns, one)
            assert np.array_equal(found, right)


@pytest.mark.parametrize(("one", "target", "mnemonic", "register"), MNEMONICS, ids=[one[0].name for one in MNEMONICS])
def test_the_instruction_is_in_the_object_code(
    one: DotInstruction, target: dict[str, str], mnemonic: str, register: str
) -> None:
    aim = tvm.target.Target(target)
    assert one in dot_instructions.available(aim)
    scheduled = kernel_sketches.by_rule(workload((16,), 64, 64, one)["main"], 32)
    built = tvm.tirx.build(tvm.IRModule({"main": scheduled}), target=aim, pipeline=lowering.install())
    lines = [line for line in built.inspect_source("asm").splitlines() if mnemonic in line]
    tile = usual(16, 64 // one.lanes, 32 - one.temporaries)
    assert len(lines) % (tile.rows * tile.vectors) == 0, "LLVM may unroll the steps"
    assert all(register in line for line in lines)


@pytest.mark.parametrize(
    "target",
    [{"kind": "llvm", "mcpu": "x86-64-v2"}, {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}],
)
def test_older_processors_have_none(target: dict[str, str]) -> None:
    assert dot_instructions.of_target(tvm.target.Target(target)) is None


def test_a_builder_reproduces_the_tiles_of_a_search() -> None:
    intrinsics.install()
    module = workload((24,), 64, 96, VNNI_512)
    info = TaskInfo(task=1, name="product", workload="00", weight=1, flops=1.0, shape="")
    space = SketchSpace(SearchContext(info, module, tvm.target.Target({**MNEMONICS[0][1], "num-cores": 1}), 1, 1))
    assert len(space.sketches) == 1, "those of MetaSchedule know no dot instruction"
    grown = [space.grow(0, [None] * len(space.sketches[0].places), seed) for seed in range(1_000, 9_000, 1_000)]
    assert len({one.key for one in grown if one is not None}) > 2
    for one in grown:
        assert one is not None
        again = candidate_build.replay(module, one.candidate()).mod
        assert "vpdpbusd" in str(again)


@pytest.mark.parametrize(
    ("rows", "blocks", "registers", "tile"),
    [
        (400, 24, 31, Tile(4, 6)),
        (1, 64, 31, Tile(1, 8)),
        (198, 3, 31, Tile(9, 3)),
        (16, 8, 15, Tile(2, 4)),
        (7, 1, 15, Tile(7, 1)),
        (384, 48, 14, Tile(3, 3)),
    ],
)
def test_the_tile_without_a_search_fits_into_the_registers(rows: int, blocks: int, registers: int, tile: Tile) -> None:
    assert usual(rows, blocks, registers) == tile


def test_the_best_instruction_of_a_target_comes_first() -> None:
    for one, target, _, _ in MNEMONICS:
        if one != SIGNED_PAIRS:
            assert dot_instructions.of_target(tvm.target.Target(target)) == one


def test_few_rows_are_multiplied_as_bytes_where_the_weights_have_opposites() -> None:
    weights = np.array([[-127, 127]], "int8")
    assert PAIRS_256.suited(dot_instructions.FEW_ROWS, weights) == SIGNED_PAIRS
    assert PAIRS_256.suited(dot_instructions.FEW_ROWS + 1, weights) == PAIRS_256
    assert PAIRS_256.suited(1, np.array([[-128]], "int8")) == PAIRS_256
    assert VNNI_512.suited(1, weights) == VNNI_512


@pytest.mark.parametrize(("rows", "filled"), [(1, 1), (12, 12), (13, 14), (197, 198), (400, 400)])
def test_rows_are_filled_up_to_tiles(rows: int, filled: int) -> None:
    assert product.filled_rows(rows) == filled


def test_other_kernels_have_no_such_sketch() -> None:
    x = te.placeholder((8, 8), "float32")
    function = te.create_prim_func([x, te.compute((8, 8), lambda i, j: x[i, j] + 1)])
    assert kernel_sketches.sampled(tvm.IRModule({"main": function}), 1) is None
