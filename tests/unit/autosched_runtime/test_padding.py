"""Inputs of sizes between those of the networks: which can be padded, and what becomes of their outputs."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

import autosched_runtime
from autosched.export import Form, export
from autosched_runtime.errors import InvalidInput
from autosched_runtime.padding import Extent, Padding, possible, read
from autosched_runtime.side_file import Description, Tensor
from autosched_tvm.evaluation.padding_check import checked
from unit.autosched_runtime.small_networks import X
from unit.export.packed import tuned

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.tvm
SIZES = 2, 4, 8
RULE = Padding({"x": 0}, (Extent(0, 1, 0),), 1, SIZES)


def described(inputs: dict[str, tuple[int, ...]], outputs: dict[str, tuple[int, ...]]) -> Description:
    tensors = [tuple(Tensor(name, shape, "float32") for name, shape in each.items()) for each in (inputs, outputs)]
    return Description("net", tensors[0], tensors[1], {}, (), {}, {})


def of_sizes(form: Callable[[int], tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]]) -> list[Description]:
    return [described(*form(size)) for size in SIZES]


@pytest.mark.parametrize(
    ("form", "axes", "outputs"),
    [
        (lambda n: ({"x": (1, n)}, {"y": (1, n, 5)}), {"x": 1}, (Extent(1, 1, 0),)),
        (lambda n: ({"x": (n,), "mask": (1, n), "k": (3,)}, {"y": (7,)}), {"x": 0, "mask": 1}, (None,)),
        (lambda n: ({"x": (n,)}, {"y": (2 * n + 3,), "z": (n - 1,)}), {"x": 0}, (Extent(0, 2, 3), Extent(0, 1, -1))),
    ],
)
def test_a_size_that_varies_in_all_inputs_can_be_padded(
    form: Any, axes: dict[str, int], outputs: tuple[Extent | None, ...]
) -> None:
    found = possible(of_sizes(form), 1)
    assert found == Padding(axes, outputs, 1, SIZES)
    assert read(found.told(), of_sizes(form)) == found


@pytest.mark.parametrize(
    ("form", "why"),
    [
        (lambda n: ({"x": (1, 3)}, {"y": (1,)}), "no size varies"),
        (lambda n: ({"x": (n, n)}, {"y": (1,)}), "several sizes of input 'x' vary"),
        (lambda n: ({"x": (n,), "z": (2 * n,)}, {"y": (1,)}), "several sizes vary, each by itself"),
        (lambda n: ({"x": (n,)}, {"y": (n * n,)}), "the shape of output 'y' does not follow that of the inputs"),
        (lambda n: ({"x": (n,)}, {"y": (n // 4 + 1,)}), "the shape of output 'y' does not follow"),
        (lambda n: ({"x": (n,)}, {"y": (n, n)}), "the shape of output 'y' does not follow"),
    ],
)
def test_other_networks_cannot_be_padded(form: Any, why: str) -> None:
    found = possible(of_sizes(form), 1)
    assert isinstance(found, str)
    assert found.startswith(why)


@pytest.mark.parametrize(("size", "place"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (8, 2)])
def test_the_next_larger_network_runs(size: int, place: int) -> None:
    assert RULE.place_of(size) == place


def test_sizes_that_differ_or_are_too_large_are_refused() -> None:
    two = Padding({"x": 0, "y": 1}, (None,), 2, SIZES)
    assert two.size_of(["x", "k", "y"], [(3,), (9,), (1, 3)]) == 3
    for shapes, words in (
        ([(3,), (9,), (1, 4)], "the inputs differ in their size: {'x': 3, 'y': 4}"),
        ([(3,), (9,), (3,)], "differ in their size"),
        ([(9,), (9,), (1, 9)], "the inputs have the size 9, and networks are there for 2 to 8"),
        ([(1,), (9,), (1, 1)], "the size 1"),
        ([(0,), (9,), (1, 0)], "the size 0"),
    ):
        with pytest.raises(InvalidInput, match=re.escape(words)):
            two.size_of(["x", "k", "y"], shapes)


def test_inputs_get_zeros_and_outputs_are_cut() -> None:
    rule = Padding({"x": 1}, (Extent(0, 2, -1), None), 1, SIZES)
    wanted = [Tensor("x", (2, 4), "int64"), Tensor("k", (2,), "float32")]
    padded = rule.padded(wanted, [np.array([[1, 2, 3], [4, 5, 6]]), np.ones(2, "float32")], 3)
    assert padded[0].tolist() == [[1, 2, 3, 0], [4, 5, 6, 0]]
    assert padded[0].dtype == np.int64
    first, second = rule.cut([np.arange(7), np.arange(3)], 3)
    assert first.tolist() == [0, 1, 2, 3, 4]
    assert second.tolist() == [0, 1, 2]
    ones = replace(rule, ones=frozenset({"x"}))
    first = ones.padded(wanted, [np.array([[1, 2, 3], [4, 5, 6]]), np.ones(2, "float32")], 3)[0]
    assert first[1].tolist() == [4, 5, 6, 1]
    assert read(ones.told(), of_sizes(lambda n: ({"x": (1, n)}, {"y": (n,), "z": (1,)}))).ones == {"x"}
    with pytest.raises(InvalidInput, match="given as float64 2x3"):
        rule.padded(wanted, [np.ones((2, 3)), np.ones(2, "float32")], 3)
    with pytest.raises(InvalidInput, match=r"input 'x' \(int64 2x3\) was given as int64 3x3"):
        rule.padded(wanted, [np.ones((3, 3), "int64"), np.ones(2, "float32")], 3)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sizes")
    for size in SIZES:
        (folder / str(size)).mkdir()
    return [tuned(folder / str(size), rows=size) for size in SIZES]


def rows(count: int) -> Any:
    return np.tile(X, (count, 1)) + np.arange(count, dtype="float32")[:, None]


def model(path: Path, *, mean: bool = False) -> Path:
    """Writes a model of x + 1 with any number of rows; with `mean`, the mean of all rows is added too."""
    tensors = [onnx.helper.make_tensor_value_info(name, 1, ["rows", 64]) for name in ("x", "y")]
    nodes = [
        onnx.helper.make_node("Constant", [], ["one"], value_float=1.0),
        onnx.helper.make_node("Add", ["x", "one"], ["sum" if mean else "y"]),
    ]
    if mean:
        nodes += [
            onnx.helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
            onnx.helper.make_node("Add", ["sum", "mean"], ["y"]),
        ]
    graph = onnx.helper.make_graph(nodes, "g", tensors[:1], tensors[1:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_padded_calls_that_equal_the_models_are_allowed(modules: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    file = export(modules, Form.FILE, tmp_path / "net.asn")
    assert checked(file, model(tmp_path / "net.onnx"), 1) == RULE
    found = checked(file, model(tmp_path / "mean.onnx", mean=True), 1)
    assert isinstance(found, str)
    assert found.startswith("output 'x' of inputs of size 1, padded to 2, differs by")
    assert "ONNX Runtime cannot run the model" in str(checked(file, tmp_path / "none.onnx", 1))
    alone = export(modules[:1], Form.FILE, tmp_path / "alone.asn")
    assert checked(alone, tmp_path / "net.onnx", 1) == "there is one size alone"


def test_a_network_takes_all_sizes(modules: list[Path], tmp_path: Path) -> None:
    file = export(modules, Form.FILE, tmp_path / "net.asn", padding=RULE.told())
    network, session = autosched_runtime.load(file), autosched_runtime.InferenceSession(file)
    for size in range(1, 9):
        assert np.array_equal(network.run({"x": rows(size)})[0], rows(size) + 1)
        assert np.array_equal(network.run([rows(size)])[0], rows(size) + 1)
        assert np.array_equal(network.submit({"x": rows(size)}).result()[0], rows(size) + 1)
        assert np.array_equal(session.run(None, {"x": rows(size)})[0], rows(size) + 1)
    with pytest.raises(InvalidInput, match="have the size 9, and networks are there for 1 to 8"):
        network.run([rows(9)])
    with pytest.raises(InvalidInput, match="given as float64"):
        network.run([rows(3).astype("float64")])
    with pytest.raises(InvalidInput, match=r"\(float32 3x64\) was given as float32 3x5"):
        network.submit([rows(3)[:, :5]])
    network.close()
    with pytest.raises(autosched_runtime.NetworkError, match="is closed"):
        network.submit([rows(3)]).result()
