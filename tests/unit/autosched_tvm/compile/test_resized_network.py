"""Networks in other sizes have the same tasks as an import with these shapes."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tvm")

import numpy as np
import onnx
import tvm
from onnx import helper
from tvm import relax
from tvm.script import relax as R

from autosched.errors import RequestError
from autosched.task_bundle import Change
from autosched_tvm.compile import intrinsics, model_sources, targets, task_extraction
from autosched_tvm.compile.candidate_build import load_target
from autosched_tvm.compile.layouts.layout_option import LayoutOption
from autosched_tvm.compile.layouts.layout_variants import offered
from autosched_tvm.compile.resized_network import CUT, image_axes, input_shapes, reshaped, resized
from nets import model, small_net

pytestmark = pytest.mark.tvm
Shape = tuple[int, ...]


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 3, 224, 224), (2, 3)), ((1, 224, 224, 3), (1, 2)), ((1, 1, 28, 28), (2, 3)), ((1, 64, 56, 56), (2, 3)),
        ((1, 3, 16, 112, 112), (2, 3, 4)), ((1, 4, 4, 4), (2, 3)), ((1, 128), ()), ((1, 80, 3000), ()), ((), ()),
    ],
)  # fmt: skip
def test_images_are_told_by_their_axes(shape: Shape, axes: Shape) -> None:
    assert image_axes(shape) == axes


@pytest.mark.parametrize(
    ("change", "shapes", "expected"),
    [
        (Change(), [(1, 3, 224, 224)], [(1, 3, 224, 224)]),
        (Change(batch=4), [(1, 3, 224, 224), (1,), (2, 1, 128)], [(4, 3, 224, 224), (4,), (2, 1, 128)]),
        (Change(batch=4), [(), (1, 128)], [(), (4, 128)]),
        (Change(resolution=0.75), [(1, 3, 224, 224), (1, 10)], [(1, 3, 160, 160), (1, 10)]),
        (Change(resolution=1.25), [(1, 24, 24, 3)], [(1, 32, 32, 3)]),
        (Change(resolution=0.01), [(1, 3, 224, 227)], [(1, 3, 2, 2)]),
        (Change(resolution=0.5), [(1, 3, 32, 16)], [(1, 3, 16, 8)]),
        (Change(resolution=0.75), [(1, 3, 32, 300)], [(1, 3, 24, 224)]),
        (Change(resolution=0.001), [(1, 3, 32, 7)], [(1, 3, 1, 1)]),
        (Change(2, 2.0), [(1, 3, 16, 112, 112)], [(2, 3, 32, 224, 224)]),
    ],
)
def test_inputs_of_other_sizes(change: Change, shapes: list[Shape], expected: list[Shape]) -> None:
    assert input_shapes(shapes, change) == expected


@pytest.mark.parametrize(
    ("change", "shapes", "why"),
    [
        (Change(batch=4), [()], "no input has a batch"),
        (Change(resolution=2.0), [(1, 128), ()], "no input is an image.*inputs: 1x128, scalar"),
    ],
)
def test_a_network_without_the_changed_dimension_is_refused(change: Change, shapes: list[Shape], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        input_shapes(shapes, change)


@pytest.mark.parametrize(
    ("old", "new", "target", "batch", "image"),
    [  # the target's sizes after a change of the batch, and of the image
        ((1, 64, 3, 3), (4, 64, 3, 3), (1, 576), (4, 576), (4, 576)),
        ((1, 64, 3, 3), (1, 64, 5, 5), (1, 576), (1, 1600), (1, 1600)),
        ((1, 1000, 1, 1), (4, 1000, 1, 1), (1, 1000), (4, 1000), (4, 1000)),
        ((1, 112, 56, 56), (4, 112, 56, 56), (1, 4, 28, 56, 56), (4, 4, 28, 56, 56), (4, 4, 28, 56, 56)),
        ((196, 768), (784, 768), (1, 196, 768), (4, 196, 768), (1, 784, 768)),
        ((1, 196, 768), (4, 196, 768), (196, 768), (784, 768), (784, 768)),
        ((1, 16, 768), (4, 16, 768), (1, 16, 12, 64), (4, 16, 12, 64), (4, 16, 12, 64)),
        ((1, 56, 56, 96), (1, 70, 70, 96), (1, 8, 7, 8, 7, 96), (1, 10, 7, 10, 7, 96), (1, 10, 7, 10, 7, 96)),
        ((1, 56, 56, 96), (1, 60, 60, 96), (1, 8, 7, 8, 7, 96), None, None),
        ((5,), (7,), (1, 5, 1), None, (1, 7, 1)),
        ((2, 3), (2, 3), (3, 2), (3, 2), (3, 2)),
        ((1,), (4,), (), None, None),
        ((), (), (1, 1), (1, 1), (1, 1)),
    ],
)  # fmt: skip
def test_reshapes_take_the_change(
    old: Shape, new: Shape, target: Shape, batch: Shape | None, image: Shape | None
) -> None:
    assert reshaped(old, new, target, batch=True) == batch
    assert reshaped(old, new, target, batch=False) == image


def attention(batch: int | str, steps: int = 6) -> Any:
    """A class token before the inputs, attention with heads of two channels, a slice, a broadcast table."""
    random = np.random.default_rng(3)
    weights = {name: random.standard_normal((8, 8)).astype("float32") for name in ("q", "k", "v")}
    weights |= {"token": random.standard_normal((1, 1, 8)).astype("float32")}
    weights |= {"table": random.standard_normal((1, steps + 1, 8)).astype("float32")}
    weights |= {"heads": np.asarray([0, 0, 4, 2]), "merged": np.asarray([0, 0, 8]), "zero": np.asarray([0])}
    weights |= {"one": np.asarray([1]), "axis": np.asarray([1])}
    nodes = [
        helper.make_node("Concat", ["token", "x"], ["joined"], axis=1)
        if batch == 1
        else helper.make_node("Concat", ["tokens", "x"], ["joined"], axis=1),
        helper.make_node("Add", ["joined", "table"], ["a"]),
    ]
    if batch != 1:
        weights["tokens"] = np.repeat(weights.pop("token"), int(batch), axis=0)
    for name in ("q", "k", "v"):
        nodes += [
            helper.make_node("MatMul", ["a", name], [f"{name}1"]),
            helper.make_node("Reshape", [f"{name}1", "heads"], [f"{name}2"]),
            helper.make_node(
                "Transpose", [f"{name}2"], [f"{name}3"], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
            ),
        ]
    nodes += [
        helper.make_node("MatMul", ["q3", "k3"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v3"], ["mixed"]),
        helper.make_node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["back", "merged"], ["m"]),
        helper.make_node("Slice", ["m", "zero", "one", "axis"], ["first"]),
        helper.make_node("Squeeze", ["first", "axis"], ["s"]),
        helper.make_node("MatMul", ["s", "q"], ["y"]),
    ]
    return model(nodes, {"x": [batch, steps, 8]}, ["y"], weights)


def upsampling(size: int) -> Any:
    """A convolution whose result is halved, doubled again, and concatenated with the original."""
    weights = {
        "w": np.ones((8, 3, 3, 3), "float32"),
        "v": np.ones((8, 16, 1, 1), "float32"),
        "none": np.zeros(0, "float32"),
    }
    weights["scales"] = np.asarray([1, 1, 2, 2], "float32")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Resize", ["p", "none", "scales"], ["u"], mode="nearest"),
        helper.make_node("Concat", ["c", "u"], ["j"], axis=1),
        helper.make_node("Conv", ["j", "v"], ["y"]),
    ]
    return model(nodes, {"x": [1, 3, size, size]}, ["y"], weights)


def cleaned(net: Any, folder: Path, shapes: dict[str, Shape] | None = None) -> Any:
    intrinsics.install()
    onnx.save(net, folder / "net.onnx")
    source = model_sources.prepare(folder / "net.onnx", shapes or {}).source
    return source.cleaned(load_target(targets.resolve("x86-64-v3", 1)))


def tasks(module: Any) -> dict[str, int]:
    """Returns the number of calls of each kernel by its hash."""
    aim = load_target(targets.resolve("x86-64-v3", 1))
    variants = offered(module, aim, LayoutOption.NCHWC, winograd=True).variants
    extracted, _ = task_extraction.extract([variant.fused for variant in variants], aim)
    return {info.workload: info.weight for info in extracted.tasks}


def test_a_larger_batch_equals_an_import_with_that_batch(tmp_path: Path) -> None:
    found = resized(cleaned(small_net(), tmp_path), Change(batch=4))
    assert not found.kept
    assert tasks(found.module) == tasks(cleaned(small_net("batch"), tmp_path, {"x": (4, 3, 12, 12)}))


@pytest.mark.parametrize("batch", [2, 4])
def test_a_transformer_has_the_batch_everywhere(batch: int, tmp_path: Path) -> None:
    found = resized(cleaned(attention(1), tmp_path), Change(batch=batch))
    assert not found.kept
    assert tasks(found.module) == tasks(cleaned(attention(batch), tmp_path))


@pytest.mark.parametrize(("size", "factor", "wanted"), [(32, 2.0, 64), (64, 0.5, 32), (8, 1.9, 16), (8, 5.0, 40)])
def test_another_resolution_equals_an_import_with_that_resolution(
    size: int, factor: float, wanted: int, tmp_path: Path
) -> None:
    found = resized(cleaned(upsampling(size), tmp_path), Change(resolution=factor))
    assert not found.kept
    assert tasks(found.module) == tasks(cleaned(upsampling(wanted), tmp_path))


def flattening(size: int) -> Any:
    """Two convolutions, and a product after the image is flattened."""
    weights = {"w": np.ones((16, 3, 3, 3), "float32"), "m": np.ones((16 * (size - 2) ** 2, 32), "float32")}
    weights["n"] = np.ones((32, 7), "float32")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["a"]),
        helper.make_node("MatMul", ["a", "n"], ["y"]),
    ]
    return model(nodes, {"x": [1, 3, size, size]}, ["y"], weights)


def test_a_network_is_cut_where_it_only_takes_its_own_size(tmp_path: Path) -> None:
    module = cleaned(flattening(8), tmp_path)
    found = resized(module, Change(resolution=2.0))
    assert found.kept == ["matmul of 1x576 and 576x32"]
    assert [p.name for p in found.module["main"].params if p.name.startswith(CUT)] == [f"{CUT}1"]
    before, after = tasks(module), tasks(found.module)
    behind = before.keys() & after.keys()
    assert behind, "the products stay as they were"
    assert after.keys() - before.keys(), "the convolution is a larger one"
    outputs = found.module["main"].ret_ty
    assert isinstance(outputs, relax.TupleType), "what computes the image is an output, so it stays"


def pooling(size: int) -> Any:
    """A convolution, and a pool as large as its image."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("AveragePool", ["c"], ["p"], kernel_shape=[size, size]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    weights = {"w": np.ones((16, 3, 3, 3), "float32"), "m": np.ones((16, 8), "float32")}
    return model(nodes, {"x": [1, 3, size, size]}, ["y"], weights)


@pytest.mark.parametrize(
    ("factor", "kept"), [(0.5, ["avg_pool2d of 1x16x16x16"]), (2.0, ["reshape of 1x16x1x1"])], ids=["smaller", "larger"]
)
def test_a_pool_of_a_fixed_size_cuts_smaller_and_larger_images(factor: float, kept: list[str], tmp_path: Path) -> None:
    found = resized(cleaned(pooling(16), tmp_path), Change(resolution=factor))
    assert found.kept == kept
    for output in found.module["main"].ret_ty.fields:
        assert all(int(size) > 0 for size in output.shape)


@tvm.script.ir_module
class Branching:
    """A network that adds or multiplies, depending on a second input."""

    @R.function
    def main(x: R.Tensor((1, 8), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((1, 8), "float32"):
        y = R.add(x, x)
        if c:  # noqa: SIM108 (the other form is none of TVMScript)
            z = R.add(y, y)
        else:
            z = R.multiply(y, y)
        return z


def test_a_network_with_branches_has_its_own_size_only() -> None:
    assert resized(Branching, Change(batch=1)).module is Branching
    with pytest.raises(RequestError, match=r"branches, loops.*its own size only"):
        resized(Branching, Change(batch=4))


def test_both_changes_and_no_change_are_possible(tmp_path: Path) -> None:
    module = cleaned(flattening(8), tmp_path)
    assert resized(module, Change()).module is module
    assert resized(module, Change(batch=1)).module is module
    both = resized(module, Change(batch=4, resolution=2.0))
    assert both.kept == ["matmul of 4x576 and 576x32"]
    images = [tuple(int(size) for size in p.ty.shape) for p in both.module["main"].params]
    assert images == [(4, 3, 16, 16), (4, 576)]
