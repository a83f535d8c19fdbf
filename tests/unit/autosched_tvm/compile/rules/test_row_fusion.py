"""Kernels that compute all stages of a row before the next row begins."""

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from tvm import te, tirx, topi  # noqa: E402

import this_cpu  # noqa: E402
from autosched_tvm.compile import lowering, rules  # noqa: E402
from autosched_tvm.compile.rules import inlining, kernel_ir, row_fusion  # noqa: E402

pytestmark = pytest.mark.tvm
TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})


def softmax(shape, axis=-1):
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, topi.nn.softmax(x, axis)])


def layer_norm(shape):
    x, scale, bias = te.placeholder(shape, name="x"), te.placeholder(shape[-1:], name="s"), te.placeholder(shape[-1:])
    return te.create_prim_func([x, scale, bias, topi.nn.layer_norm(x, scale, bias, [len(shape) - 1])])


def share(shape):
    """Divides each element by the sum of its row."""
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, topi.divide(x, topi.sum(x, -1, True))])


def run(function, *arrays, cores=1):
    target = this_cpu.target(num_cores=cores)
    module = tvm.IRModule({"main": rules.scheduled(function, target)})
    result = tvm.runtime.tensor(np.zeros_like(arrays[0]))
    tvm.tirx.build(module, target=target, pipeline=lowering.install())["main"](*map(tvm.runtime.tensor, arrays), result)
    return result.numpy()


def numbers(*shape):
    return np.random.default_rng(0).normal(0, 3, shape).astype(np.float32)


def exact_softmax(x):
    powers = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("shape", [(6, 128), (2, 3, 5, 37), (4, 3), (300, 300)])
def test_softmax_of_rows_is_correct(shape, cores):
    x = numbers(*shape)
    np.testing.assert_allclose(run(softmax(shape), x, cores=cores), exact_softmax(x), rtol=2e-6, atol=1e-9)


def test_softmax_of_masked_and_undefined_elements_is_that_of_ieee():
    x = numbers(4, 40)
    x[0, 5:] = -np.inf
    x[1, :] = 3e38
    x[2, 7] = np.nan
    found = run(softmax(x.shape), x)
    np.testing.assert_array_equal(found[0, 5:], 0)
    np.testing.assert_allclose(found[[0, 1, 3]], exact_softmax(x)[[0, 1, 3]], rtol=2e-6)
    assert np.isnan(found[2]).all()


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("shape", [(6, 384), (1, 5, 37), (700, 96)])
def test_layer_normalisation_of_rows_is_correct(shape, cores):
    x, scale, bias = numbers(*shape), numbers(shape[-1]), numbers(shape[-1])
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias
    np.testing.assert_allclose(run(layer_norm(shape), x, scale, bias, cores=cores), wanted, rtol=1e-4, atol=1e-5)


def test_intermediate_results_need_the_memory_of_one_row():
    found = row_fusion.rows_of(inlining.joined(kernel_ir.read(softmax((2, 12, 128, 100)))))
    assert [loop.extent for loop in found.loops] == [2, 12, 128]
    assert max(int(np.prod(kernel_ir.shape_of(buffer))) for buffer in found.program.buffers) == 100


def product():
    """A product of matrices with an activation: rows share the columns."""
    a, b = te.placeholder((64, 31), name="a"), te.placeholder((31, 64), name="b")
    return te.create_prim_func([a, b, topi.nn.relu(topi.matmul(a, b))])


def pool():
    """One element from each window."""
    x = te.placeholder((1, 8, 20, 20), name="x")
    kept = topi.nn.pool2d(x, [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], "max")
    return te.create_prim_func([x, topi.sigmoid(kept)])


@pytest.mark.parametrize(
    "function",
    [softmax((1, 1000)), softmax((1, 64, 9, 9), 1), softmax((3, 300_000)), product(), pool()],
    ids=["one row", "columns", "long rows", "product", "pool"],
)
def test_other_kernels_have_no_rows(function):
    assert row_fusion.rows_of(inlining.joined(kernel_ir.read(function))) is None


def test_only_the_sum_of_a_softmax_is_inverted():
    def divisors(function):
        found = row_fusion.rows_of(inlining.joined(kernel_ir.read(function)))
        return [str(node.a) for one in found.program.stages for node in kernel_ir.nodes(one.value, tirx.Div)]

    assert divisors(softmax((4, 40))) == ["T.float32(1.0)"]
    assert divisors(share((4, 40))) == ["x[row0, v_ax1]"]


def test_a_softmax_with_a_tiny_sum_is_correct():
    x = np.full((4, 40), 2.0**-149, np.float32)
    np.testing.assert_allclose(run(share(x.shape), x), 1 / 40, rtol=1e-6)


def windows(kind, blocks=6):
    """Padded windows of blocks of channels: a depthwise convolution with its activation, or a pool."""
    x = te.placeholder((1, blocks, 9, 11, 8), name="x")
    if kind == "pool":
        return [x, topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max", layout="NCHW8c")]
    weights, padded = te.placeholder((blocks, 3, 3, 8), name="weights"), topi.nn.pad(x, [0, 0, 1, 1, 0])
    kh, kw = te.reduce_axis((0, 3), name="kh"), te.reduce_axis((0, 3), name="kw")

    def sums(n, c, y, x_, lane):
        return te.sum(padded[n, c, y + kh, x_ + kw, lane] * weights[c, kh, kw, lane], axis=[kh, kw])

    return [x, weights, topi.nn.relu(te.compute((1, blocks, 9, 11, 8), sums))]


@pytest.mark.parametrize("kind", ["depthwise", "pool"])
def test_a_block_of_channels_is_a_row_of_windows(kind):
    found = row_fusion.rows_of(inlining.joined(kernel_ir.read(te.create_prim_func(windows(kind)))))
    assert [loop.extent for loop in found.loops] == [1, 6]
    assert max(int(np.prod(kernel_ir.shape_of(buffer))) for buffer in found.program.buffers) == 11 * 13 * 8


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("kind", ["depthwise", "pool"])
def test_windows_of_blocks_of_channels_are_correct(kind, cores):
    tensors = windows(kind, 40)
    function = te.create_prim_func(tensors)
    target = this_cpu.target(num_cores=cores)
    found = []
    for one in (function, rules.scheduled(function, target)):
        inputs = [numbers(*(int(size) for size in tensor.shape)) for tensor in tensors[:-1]]
        result = tvm.runtime.tensor(np.full([int(size) for size in tensors[-1].shape], np.nan, "float32"))
        built = tvm.tirx.build(tvm.IRModule({"main": one}), target=target, pipeline=lowering.install())
        built["main"](*map(tvm.runtime.tensor, inputs), result)
        found.append(result.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-5)


def test_an_ordinary_convolution_has_no_rows():
    x, weights = te.placeholder((2, 2, 9, 11, 8), name="x"), te.placeholder((4, 2, 3, 3, 8, 8), name="weights")
    with TARGET:
        function = te.create_prim_func([x, weights, topi.nn.conv2d_NCHWc(x, weights, 1, 1, 1, "NCHW8c", "NCHW8c")])
    assert row_fusion.rows_of(inlining.joined(kernel_ir.read(function))) is None
