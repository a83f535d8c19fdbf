"""Each template, on tiny shapes: each drawn configuration applies, builds and has correct results."""

import json
import random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import s_tir, te, topi

from autosched_backend_autotvm import template_matching
from autosched_backend_autotvm.config_space import PROMISE
from autosched_tvm.compile.candidate_build import replay, scheduled
from autosched_tvm.compile.integers import convolution, product
from autosched_tvm.compile.integers.convolution import Window
from autosched_tvm.compile.winograd import algebra
from unit.autotvm import kernels
from unit.autotvm.kernels import CPU, GPU, Judge

pytestmark = pytest.mark.tvm

CASES: dict[str, tuple[str, Any]] = {
    "blocked": ("conv2d_nchwc", lambda: kernels.blocked(epilogue=True)),
    "blocked, strided": ("conv2d_nchwc", lambda: kernels.blocked(stride=2)),
    "blocked, 1x1": ("conv2d_nchwc", lambda: kernels.blocked(kernel=1, filters=32, epilogue=True)),
    "blocked, 1x1, strided": ("conv2d_nchwc", lambda: kernels.blocked(kernel=1, stride=2)),
    "blocked, dilated": ("conv2d_nchwc", lambda: kernels.blocked(dilation=2)),
    "first layer": ("conv2d_nchwc", lambda: kernels.blocked(3, inner=1, kernel=5, stride=2, size=8, epilogue=True)),
    "first layer, blocked": ("conv2d_nchwc", lambda: kernels.blocked(3, inner=3, kernel=5, stride=2, size=8)),
    "channels last": ("conv2d_nhwc", lambda: kernels.plain("NHWC", epilogue=True)),
    "channels last, 1x1, strided": ("conv2d_nhwc", lambda: kernels.plain("NHWC", kernel=1, stride=2)),
    "channels last, several images": ("conv2d_nhwc", lambda: kernels.plain("NHWC", images=4, epilogue=True)),
    "channels first, several images": ("conv2d_nchw", lambda: kernels.plain("NCHW", images=4)),
    "channels first": ("conv2d_nchw", lambda: kernels.plain("NCHW", epilogue=True)),
    "channels first, strided": ("conv2d_nchw", lambda: kernels.plain("NCHW", stride=2)),
    "depthwise, blocked": ("depthwise_conv2d_nchwc", lambda: kernels.blocked_depthwise(epilogue=True)),
    "depthwise, strided": ("depthwise_conv2d_nchwc", lambda: kernels.blocked_depthwise(stride=2)),
    "depthwise, channels last": ("depthwise_conv2d_nhwc", lambda: kernels.plain("NHWC", 16, groups=16, epilogue=True)),
    "depthwise, channels first": ("depthwise_conv2d_nchw", lambda: kernels.plain("NCHW", 16, groups=16, epilogue=True)),
    "grouped, channels last": ("group_conv2d_nhwc", lambda: kernels.plain("NHWC", groups=2, epilogue=True)),
    "grouped, channels first": ("group_conv2d_nchw", lambda: kernels.plain("NCHW", groups=2)),
    "dense": ("matmul_nn", lambda: kernels.product(epilogue=True)),
    "dense, one row": ("matmul_nn", lambda: kernels.product(1, 40, 64)),
    "dense, transposed": ("matmul_nt", lambda: kernels.product(transposed=True, epilogue=True)),
    "dense, leading dimension": ("matmul_nn", lambda: kernels.product(batch=(2,), shared=True, epilogue=True)),
    "batched": ("batch_matmul_nn", lambda: kernels.product(batch=(2, 3), epilogue=True)),
    "batched, transposed": ("batch_matmul_nt", lambda: kernels.product(batch=(2,), transposed=True)),
}
PACKED = {
    "whole blocks": lambda: kernels.product(6, 32, 12, epilogue=True, block=16),
    "a block that is filled up": lambda: kernels.product(6, 40, 12, block=16),
    "leading dimension": lambda: kernels.product(6, 32, 12, (2,), shared=True, epilogue=True, block=16),
}
DRAWN, DRAWN_FOR_GPU = 2, 1
VULKAN = tvm.target.Target({"kind": "vulkan"})


def drawn(template: Any, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Draws admitted configurations, half of them with the values that may be added."""
    space = template.space()
    wide = space.enlarge({knob.name: list(knob.spare) for knob in space.knobs if knob.spare})
    rng = random.Random(seed)
    found: list[dict[str, Any]] = []
    for _ in range(20_000):
        one = (space, wide)[len(found) % 2]
        config = one.config(rng.randrange(one.size))
        if one.admits(config) is None:
            found.append(config)
        if len(found) == count:
            return found
    raise AssertionError(f"{template.name} admits nothing")


def schedule_of(workload: Any, template: Any, config: dict[str, Any], *, check: bool = False) -> Any:
    schedule = s_tir.Schedule(workload) if check else s_tir.Schedule(workload, debug_mask=0, enable_check=False)
    template.apply(schedule, config)
    return schedule


@pytest.mark.parametrize("case", CASES)
def test_any_configuration_computes_the_correct_result(case):
    name, make = CASES[case]
    workload = make()
    template = template_matching.find(workload, CPU).template
    assert template is not None and template.name == f"{name}.llvm"
    judge = Judge(workload)
    for config in drawn(template, DRAWN):
        schedule = schedule_of(workload, template, config)
        candidate = json.dumps(schedule.trace.as_json(), default=lambda number: number.value).encode()
        assert not any(inst.kind.name.startswith("Sample") for inst in schedule.trace.insts)
        judge.check(replay(workload, candidate).mod)


@pytest.mark.parametrize("case", CASES)
def test_a_configuration_for_a_gpu_compiles_and_stays_within_its_limits(case):
    name, make = CASES[case]
    workload = make()
    template = template_matching.find(workload, GPU).template
    assert template is not None and template.name == f"{name}.cuda"
    for config in drawn(template, DRAWN_FOR_GPU):
        schedule = schedule_of(workload, template, config, check=True)
        built = tvm.tirx.build(schedule.mod, target=GPU)
        assert "threadIdx.x" in built.imports[0].inspect_source()
        assert _threads(schedule) <= int(GPU.attrs["max_num_threads"])


@pytest.mark.parametrize("case", PACKED)
def test_packed_columns_are_computed_correctly_in_tiles_of_one_or_more_blocks(case):
    workload = PACKED[case]()
    template = template_matching.find(workload, CPU).template
    assert template is not None and template.name == "matmul_packed.llvm"
    judge = Judge(workload)
    for config in drawn(template, DRAWN):
        assert 16 % config["tile_n"] == 0 or config["tile_n"] % 16 == 0
        judge.check(schedule_of(workload, template, config).mod)


def _threads(schedule: Any) -> int:
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    loops = [schedule.get(loop) for block in blocks for loop in schedule.get_loops(block)]
    return max(
        int(loop.extent)
        for loop in loops
        if loop.thread_binding is not None and str(loop.thread_binding.thread_tag) == "threadIdx.x"
    )


def test_chunks_of_input_channels_are_added_up():
    workload = kernels.blocked(32, 16, epilogue=True)
    template = template_matching.find(workload, CPU).template
    assert template is not None
    space = template.space()
    space = space.enlarge({"chunks": [2, 4]})
    config = {knob.name: knob.values[-1] for knob in space.knobs}
    config |= {"chunks": 4, "outer": "oc h w", "sums": "ic kh kw ib", "tile_oc": 1, "tile_h": 1, "tile_w": 6}
    assert space.admits(config) is None
    schedule = schedule_of(workload, template, config)
    assert "_rf" in schedule.mod.script()
    Judge(workload).check(schedule.mod)
    assert "chunks are summed inside" in str(space.admits(config | {"outer": "h w oc"}))


def test_results_that_are_moved_to_another_shape_are_written_separately():
    left, right = te.placeholder((6, 12), name="left"), te.placeholder((12, 16), name="right")
    moved = topi.transpose(topi.reshape(topi.matmul(left, right), (6, 2, 8)), (1, 0, 2))
    workload = tvm.IRModule({"main": te.create_prim_func([left, right, moved])})
    judge = Judge(workload)
    for target in (CPU, GPU):
        template = template_matching.find(workload, target).template
        assert template is not None
        for config in drawn(template, 2):
            schedule = schedule_of(workload, template, config)
            if target is CPU:
                judge.check(schedule.mod)
            else:
                tvm.tirx.build(schedule.mod, target=GPU)


@pytest.mark.parametrize("one", [*algebra.BOTH_AXES, algebra.algorithms((1, 5))[-1]], ids=lambda one: str(one.words))
def test_any_configuration_of_winograd_computes_the_correct_result(one: algebra.Algorithm) -> None:
    """Candidates of a template whose knobs are written beside the workload, and expanded during the build."""
    workload = kernels.winograd(one)
    template = template_matching.find(workload, CPU).template
    assert template is not None and template.name == f"winograd_{one.words}_nchwc.llvm"
    judge = Judge(workload)
    for config in drawn(template, DRAWN):
        schedule = schedule_of(workload, template, config)
        candidate = json.dumps(schedule.trace.as_json(), default=lambda number: number.value).encode()
        built = scheduled(workload, candidate)
        assert "winograd_products" not in built.script()
        judge.check(built, 1e-6)


def test_winograd_has_no_template_for_a_gpu():
    assert "CPUs only" in template_matching.find(kernels.winograd(algebra.BOTH_AXES[0]), GPU).why_not


CUT_OFF: dict[str, tuple[Any, dict[str, Any]]] = {
    "blocked": (lambda: kernels.blocked(size=7, epilogue=True), {"tile_w": 4, "tile_h": 2}),
    "blocked, padded under rows": (
        lambda: kernels.blocked(size=7), {"tile_w": 5, "tile_h": 3, "pad": "h", "outer": "h w oc"},
    ),
    "blocked, in chunks": (
        lambda: kernels.blocked(32, 16, 7, epilogue=True),
        {"tile_w": 3, "tile_h": 2, "chunks": 2, "outer": "oc h w", "sums": "ic kh kw ib"},
    ),
    "blocked channels": (lambda: kernels.blocked(filters=24), {"tile_oc": 2, "tile_w": 4}),
    "depthwise": (lambda: kernels.blocked_depthwise(size=7, epilogue=True), {"tile_w": 4}),
    "channels first": (lambda: kernels.plain("NCHW", size=7, epilogue=True), {"tile_h": 2}),
    "channels last": (lambda: kernels.plain("NHWC", size=7, epilogue=True), {"tile_h": 2, "tile_w": 4}),
    "dense": (lambda: kernels.product(10, 16, 40, epilogue=True), {"tile_m": 4, "tile_n": 12}),
}  # fmt: skip


@pytest.mark.parametrize("case", CUT_OFF)
def test_the_last_tile_may_be_cut_off(case):
    make, wanted = CUT_OFF[case]
    workload = make()
    template = template_matching.find(workload, CPU).template
    assert template is not None
    space = template.space()
    space = space.enlarge({name: [value] for name, value in wanted.items()})
    config = {knob.name: knob.values[0] for knob in space.knobs} | wanted
    assert space.admit is None or space.admit(config) is None
    Judge(workload).check(schedule_of(workload, template, config).mod)


def test_registers_bound_a_tile_and_idle_units_too():
    template = template_matching.find(kernels.blocked(64, 64, 56, block=4), CPU).template
    assert template is not None
    space = template.space()
    config = {knob.name: knob.values[0] for knob in space.knobs}
    assert "leaves arithmetic units idle" in str(space.admits(config))
    assert "does not fit 16 registers" in str(space.admits(config | {"tile_oc": 4, "tile_w": 14}))
    assert space.admits(config | {"tile_oc": 2, "tile_w": 7}) is None


def test_a_tiny_kernel_has_a_configuration():
    template = template_matching.find(kernels.blocked(8, 8, 1, 1), CPU).template
    assert template is not None
    assert drawn(template, 1)


def test_a_gpu_configuration_with_too_many_threads_or_too_much_memory_is_not_admitted():
    template = template_matching.find(kernels.product(2048, 2048, 2048), GPU).template
    assert template is not None
    space = template.space()
    config = {knob.name: knob.values[0] for knob in space.knobs}
    assert "leave most of a warp idle" in str(space.admits(config | {"tile_m": (1, 1, 8), "tile_n": (1, 8, 1)}))
    assert "2048 threads" in str(space.admits(config | {"tile_m": (1, 64, 1), "tile_n": (1, 32, 1)}))
    assert "do not fit its registers" in str(space.admits(config | {"tile_m": (4, 8, 8), "tile_n": (4, 8, 8)}))
    much = config | {"tile_m": (1, 256, 2), "tile_n": (1, 4, 2), "step": 32}
    assert "bytes of shared memory" in str(space.admits(much))


def _sum_of_sums() -> Any:
    data = te.placeholder((4, 8), name="data")
    return [data, topi.sum(topi.sum(data, axis=1, keepdims=True), axis=0)]


def _two_results() -> Any:
    left, right = te.placeholder((4, 8), name="left"), te.placeholder((8, 16), name="right")
    product = topi.matmul(left, right)
    return [left, right, topi.nn.relu(product), topi.exp(product)]


def _convolution(dimensions: int) -> Any:
    data = te.placeholder((1, 8, *[6] * dimensions), name="data")
    weights = te.placeholder((8, 8, *[3] * dimensions), name="weights")
    compute = {1: topi.nn.conv1d_ncw, 3: topi.nn.conv3d_ncdhw}[dimensions]
    with CPU:
        return [data, weights, compute(data, weights, 1, 1, 1, *([1] if dimensions == 3 else []))]


def _softmax() -> Any:
    data = te.placeholder((4, 8), name="data")
    return [data, topi.nn.softmax(data)]


def _pool() -> Any:
    data = te.placeholder((1, 8, 6, 6), name="data")
    return [data, topi.nn.pool2d(data, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")]


def _elementwise() -> Any:
    data = te.placeholder((4, 8), name="data")
    return [data, topi.nn.relu(data)]


def _quantised_product() -> Any:
    data, weights = te.placeholder((8, 64), "uint8", "data"), te.placeholder((2, 16, 16, 4), "int8", "weights")
    return [data, weights, product.product(data, weights)]


def _quantised_convolution() -> Any:
    data = te.placeholder((1, 2, 6, 6, 16), "uint8", "data")
    weights = te.placeholder((2, 2, 3, 3, 4, 16, 4), "int8", "weights")
    excess = te.placeholder((32,), "int32", "excess")
    return [data, weights, excess, convolution.convolution(data, weights, excess, Window(border=(1, 1, 1, 1)))]


def _scatter() -> Any:
    data, new = te.placeholder((4, 8), name="data"), te.placeholder((2, 8), name="new")
    places = te.placeholder((2, 8), "int64", name="places")
    return [data, places, new, topi.scatter_elements(data, places, new, 0, "add")]


def _dynamic() -> Any:
    rows = tvm.tirx.Var("rows", "int32")
    left, right = te.placeholder((rows, 8), name="left"), te.placeholder((8, 16), name="right")
    return [left, right, topi.matmul(left, right)]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_elementwise, "nothing is summed up"),
        (_sum_of_sums, "computations sum something up"),
        (_softmax, "computations sum something up"),
        (_two_results, "2 results"),
        (_pool, "not a sum"),
        (lambda: _convolution(1), "a convolution over 1 dimensions"),
        (lambda: _convolution(3), "a convolution over 3 dimensions"),
        (_dynamic, "only when the kernel runs"),
        (_scatter, "one block without a root"),
        (_quantised_product, "schedules of its own"),
        (_quantised_convolution, "schedules of its own"),
    ],
)
def test_a_kernel_without_a_template_has_a_reason(make, said):
    workload = tvm.IRModule({"main": te.create_prim_func(make())})
    found = template_matching.find(workload, CPU)
    assert found.template is None
    assert said in found.why_not


def test_a_kernel_that_is_scheduled_already_has_no_template():
    schedule = s_tir.Schedule(kernels.product())
    schedule.split(schedule.get_loops(schedule.get_sblock("product"))[0], factors=[None, 2])
    assert "scheduled already" in template_matching.find(schedule.mod, CPU).why_not


def test_other_kinds_of_targets_have_no_templates():
    assert "no templates for targets of kind vulkan" in template_matching.find(kernels.product(), VULKAN).why_not


def test_registers_follow_from_the_target():
    wide = template_matching.machine(tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 4}))
    narrow = template_matching.machine(tvm.target.Target({"kind": "llvm", "mcpu": "haswell"}))
    assert (wide.vector_bytes, wide.registers, wide.threads) == (64, 32, 4)
    assert (narrow.vector_bytes, narrow.registers, narrow.threads) == (32, 16, 1)


@pytest.mark.parametrize(
    ("workload", "whole", "halves"),
    [
        (lambda: kernels.blocked(size=6), {"tile_oc": 2, "tile_h": 2, "tile_w": 6}, {"tile_h": 3}),
        (lambda: kernels.product(m=6), {"tile_m": 2, "tile_n": 16}, {"tile_m": 3}),
        (lambda: kernels.product(n=48, transposed=True), {"tile_m": 6, "tile_n": 16}, {"tile_n": 24}),
    ],
)
def test_tiles_that_keep_all_threads_busy_promise_more(workload, whole, halves):
    """Three tiles on two threads take as long as four."""

    def promises(cores):
        target = tvm.target.Target({"kind": "llvm", "mcpu": "haswell", "num-cores": cores})
        space = template_matching.find(workload(), target).template.space()
        first = {knob.name: knob.values[0] for knob in space.knobs if isinstance(knob.values[0], int)} | whole
        second = first | halves
        columns = {name: np.array([float(first[name]), float(second[name])]) for name in first}
        one, other = space.insight(columns)[PROMISE]
        return other - one

    assert promises(2) > promises(1)


@pytest.mark.parametrize(
    ("case", "knobs"),
    [
        ("channels first", {"tile_oc", "tile_h", "tile_w", "step", "rows", "columns", "vector", "unroll"}),
        ("channels last, several images", {"tile_n", "tile_oc", "step", "rows", "vector", "padding", "registers"}),
        ("dense", {"tile_m", "tile_n", "step", "padding", "registers"}),
    ],
)
def test_templates_for_gpus_have_the_knobs_of_autotvm_and_of_its_enlarged_spaces(case, knobs):
    """Design-spaces report, tables of sections 3.3 and 3.4."""
    template = template_matching.find(CASES[case][1](), GPU).template
    assert template is not None
    space = template.space()
    there = {knob.name: knob for knob in space.knobs}
    assert knobs <= there.keys()
    assert there["vector"].legal(4) and not there["vector"].legal(8), "16 bytes are the most that a GPU loads at once"
    assert "padding" not in knobs or there["padding"].legal(8)
    assert there["unroll"].legal(2048), "values may be added"


def test_padding_counts_as_shared_memory():
    """Rows of 24 elements begin 40 apart, rows of 40 are as they are."""
    template = template_matching.find(kernels.product(256, 240, 24), GPU).template
    assert template is not None
    space = template.space()
    config = {knob.name: knob.values[0] for knob in space.knobs} | {"step": 24, "tile_n": (1, 40, 1)}
    fits = config | {"tile_m": (1, 16, 16), "padding": 0}
    assert space.admits(fits) is None, "(256 * 24 + 24 * 40) * 4 bytes"
    assert space.admits(fits | {"tile_m": (1, 16, 8), "padding": 8}) is None
    assert "of shared memory" in str(space.admits(fits | {"padding": 8, "tile_n": (2, 40, 3), "tile_m": (1, 16, 16)}))
