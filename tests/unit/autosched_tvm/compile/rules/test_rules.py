"""Kernels with schedules by rule have the same results as without."""

import re
import threading

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from tvm import te, tirx, topi  # noqa: E402

from autosched_runtime.thread_pool import use  # noqa: E402
from autosched_tvm.compile import kernel_sketches, lowering, rules  # noqa: E402
from autosched_tvm.compile.rules import parallelisation  # noqa: E402
from autosched_tvm.compile.rules.kernel_ir import Loop, NoRule  # noqa: E402

pytestmark = pytest.mark.tvm
TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})


def data(*shape: int, dtype: str = "float32"):
    return te.placeholder(shape, dtype, name="data")


def softmax():
    x = data(3, 37)
    return [x, topi.nn.softmax(x)]


def layer_norm():
    x, scale = data(5, 37), te.placeholder((37,), name="scale")
    return [x, scale, topi.nn.layer_norm(x, scale, scale, [1])]


def harmonics():
    """Shifted copies side by side: slices, paddings, a concatenation and a transposition."""
    x = topi.exp(placeholder := data(1, 7, 30))
    left = topi.nn.pad(topi.strided_slice(x, [0, 0, 5], [1, 7, 30]), [0, 0, 0], [0, 0, 5])
    right = topi.nn.pad(topi.strided_slice(x, [0, 0, 0], [1, 7, 27]), [0, 0, 3], [0, 0, 0])
    return [placeholder, topi.transpose(topi.concatenate([left, x, right], 1), [0, 2, 1])]


def product(m: int, n: int, k: int, transposed: bool = False):
    a = data(m, k)
    b = te.placeholder((n, k) if transposed else (k, n), name="b")
    return [a, b, topi.nn.relu(topi.matmul(a, b, False, transposed))]


def packed_product(m: int, n: int, k: int, block: int):
    """A product with the columns of the right factor in blocks, the last of which may be padded."""
    a, b = data(m, k), te.placeholder((-(-n // block), k, block), name="b")
    step = te.reduce_axis((0, k), name="k")
    found = te.compute((m, n), lambda i, j: te.sum(a[i, step] * b[j // block, step, j % block], axis=step))
    return [a, b, topi.nn.relu(found)]


def convolution(strides: int, pad: int, layout: str = "NCHW"):
    x = data(1, 5, 13, 11) if layout == "NCHW" else data(1, 13, 11, 5)
    w = te.placeholder((9, 5, 3, 3) if layout == "NCHW" else (3, 3, 5, 9), name="w")
    kernel = "OIHW" if layout == "NCHW" else "HWIO"
    found = topi.nn.conv(x, w, [strides, strides], [pad] * 4, [1, 1], 1, layout, kernel)
    return [x, w, topi.sigmoid(found)]


def blocked_convolution(chunks: int):
    """A convolution in blocks of eight channels, with `chunks` blocks of results."""
    x, w = data(1, 2, 6, 9, 8), te.placeholder((chunks, 2, 3, 3, 8, 8), name="w")
    return [x, w, topi.nn.relu(topi.nn.conv2d_NCHWc(x, w, 1, 1, 1, "NCHW8c", "NCHW8c"))]


def pool(kind: str):
    x = data(1, 3, 11, 9, 8)
    return [x, topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], kind, layout="NCHW8c")]


def take():
    x, places = data(50, 13), te.placeholder((7,), "int64", name="places")
    return [x, places, topi.take(x, places, 0)]


def one(operator, *shape: int, dtype: str = "float32"):
    x = data(*shape, dtype=dtype)
    return [x, operator(x)]


CASES = {
    "elementwise": lambda: one(lambda x: topi.sqrt(topi.abs(x) + 1.0), 3, 5, 7),
    "whole numbers": lambda: one(lambda x: x * x + 3, 5, 21, dtype="int64"),
    "half precision": lambda: one(lambda x: topi.multiply(x, x), 5, 21, dtype="float16"),
    "comparison": lambda: one(lambda x: topi.greater(x, topi.full_like(x, 0.5)), 5, 21),
    "scalar": lambda: one(lambda x: topi.reshape(x, ()), 1, 1),
    "broadcast": lambda: one(lambda x: topi.broadcast_to(x, (4, 3, 21)), 3, 1),
    "transposition": lambda: one(lambda x: topi.transpose(x, [0, 2, 1]), 2, 35, 21),
    "heads apart": lambda: one(lambda x: topi.transpose(topi.reshape(x, (5, 3, 8)), [1, 0, 2]), 5, 24),
    "into blocks": lambda: one(lambda x: topi.layout_transform(x, "NCHW", "NCHW8c"), 1, 16, 5, 7),
    "out of blocks": lambda: one(lambda x: topi.layout_transform(x, "NCHW8c", "NHWC"), 1, 2, 5, 7, 8),
    "mirror": lambda: one(lambda x: topi.nn.mirror_pad(x, [0, 3], [0, 2], "REFLECT"), 4, 19),
    "resize": lambda: one(
        lambda x: topi.image.resize2d(x, [0.0] * 4, (10, 14), "NCHW", "nearest_neighbor", "asymmetric"), 1, 3, 5, 7
    ),
    "harmonics": harmonics,
    "take": take,
    "sum of rows": lambda: one(lambda x: topi.sum(x, 1), 5, 77),
    "sum of columns": lambda: one(lambda x: topi.sum(x, 0), 77, 45),
    "mean of an image": lambda: one(lambda x: topi.sum(x, [2, 3]) / 35.0, 1, 2, 5, 7, 8),
    "largest of all": lambda: one(lambda x: topi.max(x, [0, 1]), 9, 13),
    "softmax": softmax,
    "layer norm": layer_norm,
    "product": lambda: product(13, 45, 31),
    "product with a transposed factor": lambda: product(13, 45, 31, True),
    "packed product": lambda: packed_product(13, 48, 31, 16),
    "packed product with a block that is filled up": lambda: packed_product(7, 45, 31, 16),
    "reshape that no multiple fits": lambda: one(lambda x: topi.transpose(topi.reshape(x, (6, 35)), [1, 0]), 14, 15),
    "one row": lambda: product(1, 100, 31),
    "one column": lambda: product(31, 1, 77),
    "convolution": lambda: convolution(1, 1),
    "convolution with strides": lambda: convolution(2, 0),
    "convolution NHWC": lambda: convolution(1, 1, "NHWC"),
    "blocked convolution, pairs of blocks": lambda: blocked_convolution(4),
    "blocked convolution, three blocks": lambda: blocked_convolution(3),
    "blocked convolution, odd blocks": lambda: blocked_convolution(5),
    "largest of windows": lambda: pool("max"),
    "mean of windows": lambda: pool("avg"),
}  # fmt: skip


def function_of(case: str):
    with TARGET:
        return te.create_prim_func(CASES[case]())


def outputs(function, arrays):
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    built = tvm.tirx.build(module, target=TARGET, pipeline=lowering.install())
    buffers = [tvm.runtime.tensor(array) for array in arrays]
    built["main"](*buffers)
    return buffers[-1].numpy()


def arguments(function):
    generator = np.random.default_rng(0)
    for parameter in function.params:
        shape, dtype = tuple(int(d) for d in parameter.ty.shape), str(parameter.ty.dtype)
        values = generator.uniform(-2, 2, shape) if dtype.startswith("float") else generator.integers(0, 7, shape)
        yield np.asarray(values).astype(dtype)


@pytest.mark.parametrize("case", CASES)
def test_kernels_by_rule_compute_the_same(case: str) -> None:
    function = function_of(case)
    arrays = list(arguments(function))
    by_rule = rules.scheduled(function, TARGET)
    np.testing.assert_allclose(outputs(by_rule, arrays), outputs(function, arrays), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_kernels_on_several_threads_compute_the_same(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallelisation, "SERIAL_S_MIN", 0.0)
    function = function_of(case)
    arrays = list(arguments(function))
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 3})
    by_rule = rules.scheduled(function, target)
    found: list[np.ndarray] = []

    def run() -> None:
        use(3)
        found.append(outputs(by_rule, arrays))

    thread = threading.Thread(target=run)  # each thread has its own pool
    thread.start()
    thread.join()
    np.testing.assert_allclose(found[0], outputs(function, arrays), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("case", ["elementwise", "sum of rows", "sum of columns", "product", "convolution NHWC"])
def test_inner_loops_are_vectors(case: str) -> None:
    assert "T.vectorized(8)" in rules.scheduled(function_of(case), TARGET).script()


def test_vectors_run_along_an_axis_that_a_reshape_has_split() -> None:
    x, bias = data(20, 192), te.placeholder((192,), name="bias")
    function = te.create_prim_func([x, bias, topi.reshape(topi.add(x, bias), (20, 3, 64))])
    by_rule = rules.scheduled(function, TARGET).script()
    names = [loop for loop in re.findall(r"for (.*) in .*", by_rule) if loop.endswith("_v")]
    assert len(names) == 1
    assert "ax0" not in names[0], "rows of the matrix lie far apart"


@pytest.mark.parametrize("case", ["harmonics", "mirror"])
def test_conditions_on_places_become_loops_of_their_own(case: str) -> None:
    assert "if_then_else" in function_of(case).script() or "Select" in function_of(case).script()
    by_rule = rules.scheduled(function_of(case), TARGET).script()
    assert "if_then_else" not in by_rule
    assert "Select" not in by_rule


def test_a_function_that_is_read_often_is_computed_once() -> None:
    """The exponential of `harmonics` has three readers, the softmax reads its own twice."""
    for case in ("harmonics", "softmax"):
        assert rules.scheduled(function_of(case), TARGET).script().count("T.exp(") <= 2


def test_large_stages_are_parallel_on_several_cores_only() -> None:
    x = data(64, 100, 50)
    function = te.create_prim_func([x, topi.transpose(x, [2, 0, 1])])
    several = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
    assert "T.parallel" in rules.scheduled(function, several).script()
    assert "T.parallel" not in rules.scheduled(function, TARGET).script()
    assert "T.parallel" not in rules.scheduled(function_of("transposition"), several).script()


def test_functions_use_threads_at_smaller_sizes_than_sums() -> None:
    several = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
    for operator, parallel in ((topi.exp, True), (lambda x: x + x, False)):
        function = te.create_prim_func(one(operator, 16, 512))
        assert ("T.parallel" in rules.scheduled(function, several).script()) is parallel


@pytest.mark.parametrize(
    ("extents", "cores", "count"),
    [((8, 5), 2, 1), ((3, 8, 5), 2, 2), ((1, 1, 64), 2, 3), ((3, 5), 2, 2), ((5,), 4, 1), ((1, 1), 2, 0), ((), 2, 0)],
)
def test_enough_loops_are_joined_to_keep_all_cores_busy(extents: tuple[int, ...], cores: int, count: int) -> None:
    loops = [Loop(tirx.Var(f"i{number}", "int64"), extent) for number, extent in enumerate(extents)]
    assert parallelisation.shared(loops, cores) == count


def test_last_loop_is_spread_where_there_is_no_other() -> None:
    several = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
    for case in (one(lambda x: x + 1.0, 300_000), one(lambda x: topi.transpose(x, [1, 0]), 384, 512)):
        assert "T.parallel" in rules.scheduled(te.create_prim_func(case), several).script()


def test_a_kernel_that_is_scheduled_already_has_no_rule() -> None:
    schedule = tvm.s_tir.Schedule(function_of("product"))
    block = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    schedule.split(schedule.get_loops(block)[0], [None, 2])
    function = schedule.mod["main"]
    with pytest.raises(NoRule):
        rules.scheduled(function, TARGET)
    assert rules.by_rule(function, TARGET).same_as(function)


def test_a_kernel_with_two_results_in_one_block_is_left_alone() -> None:
    with TARGET:
        x = data(5, 21)
        function = te.create_prim_func([x, topi.argmax(x, 1)])
    assert rules.by_rule(function, TARGET).same_as(function)
    assert isinstance(function, tirx.PrimFunc)


@pytest.mark.parametrize(("rows", "height"), [(128, 6), (4, 4), (1, 1), (12, 6), (16, 6)])
def test_rows_of_a_tile_fill_the_registers_and_leave_few_over(rows: int, height: int) -> None:
    """Two vectors of columns, of eight numbers each, in 16 registers."""
    with TARGET:
        function = te.create_prim_func(packed_product(rows, 64, 31, 16))
    by_rule = rules.scheduled(function, TARGET).script()
    assert f"_acc0 = T.sblock_alloc_buffer(({16 * height},)" in by_rule


@pytest.mark.parametrize(
    ("rows", "columns", "accumulators"),
    [(1, 256, 2 * 4), (1, 80, 2 * 5), (1, 96, 2 * 6), (1, 17 * 16, 2), (2, 64, 2 * 2 * 2), (6, 64, 2 * 6)],
)
def test_blocks_of_columns_join_a_tile_of_few_rows(rows: int, columns: int, accumulators: int) -> None:
    """Two vectors of a block alone would wait for each other's sums. No number of 17 blocks fits."""
    with TARGET:
        function = te.create_prim_func(packed_product(rows, columns, 64, 16))
    by_rule = rules.scheduled(function, TARGET).script()
    assert f"_acc0 = T.sblock_alloc_buffer(({8 * accumulators},)" in by_rule


@pytest.mark.parametrize(("chunks", "accumulators"), [(16, 8), (12, 6), (10, 5), (13, 1)])
def test_at_most_eight_blocks_of_one_pixel_join_a_tile(chunks: int, accumulators: int) -> None:
    x, w = data(1, 8, 1, 1, 8), te.placeholder((chunks, 8, 1, 1, 8, 8), name="w")
    with TARGET:
        function = te.create_prim_func([x, w, topi.nn.conv2d_NCHWc(x, w, 1, 0, 1, "NCHW8c", "NCHW8c")])
    by_rule = rules.scheduled(function, TARGET).script()
    assert f"_acc0 = T.sblock_alloc_buffer(({8 * accumulators},)" in by_rule


@pytest.mark.parametrize(("columns", "accumulators"), [(64, 2 * 2), (128, 2 * 4)])
def test_each_core_keeps_a_tile(columns: int, accumulators: int) -> None:
    several = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
    with several:
        function = te.create_prim_func(packed_product(1, columns, 4096, 16))
    by_rule = rules.scheduled(function, several).script()
    assert f"_acc0 = T.sblock_alloc_buffer(({8 * accumulators},)" in by_rule
    assert "T.parallel(2)" in by_rule


@pytest.mark.parametrize(("chunks", "vectors"), [(4, 2 * 5), (3, 3 * 3), (5, 9)])
def test_blocks_of_results_share_what_they_read(chunks: int, vectors: int) -> None:
    """Nine pixels of a row, in 16 registers: two blocks of five, three blocks of three, or one block of all."""
    with TARGET:
        function = te.create_prim_func(blocked_convolution(chunks))
    by_rule = rules.scheduled(function, TARGET).script()
    sizes = re.findall(r"_acc\d+ = T.sblock_alloc_buffer\(\((\d+),\)", by_rule)
    assert int(sizes[0]) == 8 * vectors


def test_the_innermost_loop_of_a_convolution_is_over_a_block_of_channels() -> None:
    """LLVM would unroll one over the columns of a window, and spill registers."""
    script = rules.by_rule(function_of("blocked convolution, odd blocks"), TARGET).script()
    assert re.search(r"for \w+_o, \w+_kh, \w+_kw, \w+_i in T.grid\(2, 3, 3, 8\)", script), script


@pytest.mark.parametrize(
    ("block", "height", "width", "loops"),
    [(8, 3, 1, r"\w+_o, \w+_kh, \w+_i in T.grid\(2, 3, 8\)"),
     (4, 3, 3, r"\w+_o, \w+_kh, \w+_kw, \w+_i in T.grid\(4, 3, 3, 4\)")],
)  # fmt: skip
def test_blocks_of_channels_are_innermost_for_all_windows(block: int, height: int, width: int, loops: str) -> None:
    """A window with one column, and channels in blocks that are smaller than a vector."""
    x = data(1, 16 // block, 9, 12, block)
    w = te.placeholder((4, 16 // block, height, width, block, 8), name="w")
    with TARGET:
        found = topi.nn.conv2d_NCHWc(x, w, 1, 0, 1, f"NCHW{block}c", "NCHW8c")
        script = rules.by_rule(te.create_prim_func([x, w, found]), TARGET).script()
    assert re.search(f"for {loops}", script), script


def test_a_tile_has_neighbouring_pixels_although_the_image_is_higher_than_wide() -> None:
    x, w = data(1, 2, 90, 31, 8), te.placeholder((4, 2, 3, 3, 8, 8), name="w")
    with TARGET:
        function = te.create_prim_func([x, w, topi.nn.conv2d_NCHWc(x, w, 1, 0, 1, "NCHW8c", "NCHW8c")])
    script = rules.by_rule(function, TARGET).script()
    assert "v_ow_o" in script
    assert "v_oh_o" not in script


@pytest.mark.parametrize(("channels", "blocks"), [(8, 2), (3, 1)])
def test_blocks_of_results_with_few_terms_do_not_share_a_tile(channels: int, blocks: int) -> None:
    """Two blocks of five pixels, or one block of nine."""
    x, w = data(1, 1, 6, 11, channels), te.placeholder((4, 1, 3, 3, channels, 8), name="w")
    with TARGET:
        layout = f"NCHW{channels}c"
        function = te.create_prim_func([x, w, topi.nn.conv2d_NCHWc(x, w, 1, 0, 1, layout, "NCHW8c")])
    sizes = re.findall(r"_acc\d+ = T.sblock_alloc_buffer\(\((\d+),\)", rules.scheduled(function, TARGET).script())
    assert int(sizes[0]) == 8 * {2: 2 * 5, 1: 9}[blocks]


def test_a_kernel_without_a_root_block_is_left_alone() -> None:
    x, places, updates = data(4, 8), te.placeholder((2, 8), "int64", name="places"), te.placeholder((2, 8), name="new")
    with TARGET:
        function = te.create_prim_func([x, places, updates, topi.scatter_elements(x, places, updates, 0, "add")])
    assert not kernel_sketches.has_root(function)
    assert rules.by_rule(function, TARGET).same_as(function)
