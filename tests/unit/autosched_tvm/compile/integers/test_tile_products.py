"""Products on whole tiles (AMX): sums are exact, and kernels request the registers from the operating system."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from tvm import relax, te  # noqa: E402

import this_cpu  # noqa: E402
from autosched_tvm.compile import kernel_sketches, lowering, onnx_import  # noqa: E402
from autosched_tvm.compile.integers import packed_products, product, tile_instructions  # noqa: E402
from autosched_tvm.compile.integers.dot_instructions import VNNI_512  # noqa: E402
from autosched_tvm.tuning import schedule_traces  # noqa: E402

HERE = this_cpu.target()
TILES = tvm.target.Target({"kind": "llvm", "mcpu": "sapphirerapids", "num-cores": 1})
OLDER = tvm.target.Target({"kind": "llvm", "mcpu": "cascadelake", "num-cores": 1})


def scheduled(shape: tuple[int, ...], columns: int, depth: int, seed: int | None = None) -> Any:
    """Returns a product with halved sums, under a drawn schedule or one by rule."""
    data = te.placeholder((*shape, depth), "uint8", name="x")
    weights = te.placeholder((-(-columns // 16), depth // 4, 16, 4), "int8", name="w")
    sums = product.tiled_product(data, weights)
    half = te.compute(sums.shape, lambda *i: sums[i].astype("float32") * tvm.tirx.const(0.5, "float32"), name="half")
    function = te.create_prim_func([data, weights, half])
    if seed is None:
        return kernel_sketches.by_rule(function, 32)
    drawn = kernel_sketches.sampled(tvm.IRModule({"main": function}), seed)
    assert drawn is not None
    return drawn.mod["main"]


def built(function: Any, target: Any) -> Any:
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return tvm.tirx.build(module, target=target, pipeline=lowering.install())


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize(
    ("shape", "columns", "depth"),
    [((16,), 16, 64), ((32,), 64, 192), ((48,), 48, 64), ((1, 17), 32, 128), ((257, 1), 32, 64), ((96,), 96, 128)],
)
def test_sums_are_exact(shape: tuple[int, ...], columns: int, depth: int, seed: int | None) -> None:
    if not tile_instructions.available(HERE):
        pytest.skip("this machine has no AMX")
    drawn = np.random.default_rng(0)
    data = drawn.integers(0, 256, (*shape, depth)).astype("uint8")
    weights = drawn.integers(-128, 128, (depth, columns)).astype("int8")
    made = tvm.runtime.tensor(np.zeros((*shape, columns), "float32"))
    kernel = built(scheduled(shape, columns, depth, seed), HERE)
    kernel["main"](*map(tvm.runtime.tensor, (data, product.pack(weights, VNNI_512))), made)
    assert np.array_equal(made.numpy(), (data.astype("int32") @ weights.astype("int32")).astype("float32") / 2)


def test_a_candidate_is_replayed_in_a_process_that_has_not_made_its_sketch(tmp_path: Path) -> None:
    data, weights = te.placeholder((64, 448), "uint8", name="x"), te.placeholder((4, 112, 16, 4), "int8", name="w")
    function = te.create_prim_func([data, weights, product.tiled_product(data, weights)])
    drawn = kernel_sketches.sampled(tvm.IRModule({"main": function}), 1)
    assert drawn is not None
    (tmp_path / "task.json").write_text(tvm.ir.save_json(tvm.IRModule({"main": function})))
    (tmp_path / "candidate").write_bytes(schedule_traces.write(drawn.trace.as_json()))
    code = (
        "import sys; from pathlib import Path; from autosched_tvm.compile import candidate_build as build;"
        "folder = Path(sys.argv[1]); candidate = (folder / 'candidate').read_bytes();"
        "print(build.scheduled(build.load_task(str(folder / 'task.json')), candidate).script())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert "tdpbusd" in done.stdout, done.stderr[-500:]


def test_kernels_request_the_tile_registers_and_use_them() -> None:
    code = built(scheduled((64,), 64, 128), TILES).inspect_source("asm")
    for word in ("tdpbusd", "tileloadd", "tilerelease", "syscall"):
        assert word in code, word


def test_other_kernels_request_no_tile_registers() -> None:
    data = te.placeholder((64,), name="x")
    function = te.create_prim_func([data, te.compute((64,), lambda i: data[i] + 1.0)])
    assert "syscall" not in built(function, TILES).inspect_source("asm")


def test_only_cpus_with_the_instructions_have_them() -> None:
    assert tile_instructions.available(TILES)
    assert not tile_instructions.available(OLDER)
    assert not tile_instructions.available(tvm.target.Target({"kind": "cuda", "arch": "sm_80"}))
    refused = {"kind": "llvm", "mcpu": "sapphirerapids", "mattr": ["-amx-tile"]}
    assert not tile_instructions.available(tvm.target.Target(refused)), "Linux does not grant the registers"


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "tiled"), [(32, 300, 512, True), (8, 4096, 512, False), (512, 64, 512, False)]
)
def test_large_products_of_a_network_use_tiles(rows: int, depth: int, columns: int, tiled: bool) -> None:
    drawn = np.random.default_rng(0)
    weights = drawn.integers(-128, 128, (depth, columns)).astype("int8")
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((1, rows, depth), "uint8"))
    with builder.function("main", [data]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.matmul(data, relax.const(weights), out_dtype="int32"))
        builder.emit_func_output(result)
    module = packed_products.packed(onnx_import.clean(builder.get()), VNNI_512, tiles=True)
    kernels = [one.script() for _, one in module.functions_items() if isinstance(one, tvm.tirx.PrimFunc)]
    assert any(product.TILE_DOT in text for text in kernels) is tiled
