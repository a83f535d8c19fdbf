"""Prepared networks: saved, loaded, their unknown dimensions fixed. Only TVM is needed."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tvm")

import numpy as np
import onnx
import tvm
from tvm import relax

from autosched.errors import ModelRejected, RequestError
from autosched_tvm.compile import model_sources, relax_import
from autosched_tvm.evaluation import verification
from nets import small_net

pytestmark = pytest.mark.tvm


def network(batch: Any = 2, length: Any = 5) -> Any:
    """Returns the rows of a table at given indices, times a mask."""
    builder = relax.BlockBuilder()
    ids = relax.Var("ids", relax.TensorType((batch, length), "int64"))
    mask = relax.Var("mask", relax.TensorType((batch, length), "int64"))
    table = relax.const(np.arange(40, dtype="float32").reshape(20, 2))
    with builder.function("main", [ids, mask]):
        with builder.dataflow():
            flat = builder.emit(relax.op.reshape(ids, (-1,)))
            rows = builder.emit(relax.op.take(table, flat, axis=0))
            weight = builder.emit(relax.op.astype(relax.op.reshape(mask, (-1, 1)), "float32"))
            result = builder.emit_output(relax.op.multiply(rows, weight))
        builder.emit_func_output(result)
    return builder.get()


def run(module: Any, *arrays: Any) -> Any:
    target = tvm.target.Target("llvm")
    with target:
        executable = tvm.compile(module, target)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()


def test_a_relax_network_is_the_same_after_it_was_saved(tmp_path: Path) -> None:
    inputs = relax_import.tensors(network(), ("ids", "mask"))
    model_sources.RelaxSource(network(), inputs, ("rows",)).save(tmp_path / "net")
    loaded = model_sources.load(tmp_path / "net")
    assert loaded.inputs == inputs
    assert loaded.outputs == ("rows",)
    ids, mask = np.asarray([[1, 2, 3, 4, 5], [19, 0, 1, 2, 3]]), np.ones((2, 5), "int64")
    expected = np.arange(40, dtype="float32").reshape(20, 2)[ids.ravel()]
    np.testing.assert_array_equal(run(loaded.cleaned(tvm.target.Target("llvm")), ids, mask), expected)


def test_each_prepared_network_has_a_first_sample(tmp_path: Path) -> None:
    """Models of other formats than ONNX have a baseline, too."""
    inputs = relax_import.tensors(network(), ("ids", "mask"))
    model_sources.RelaxSource(network(), inputs, ("rows",)).save(tmp_path / "net")
    made = verification.first_sample(str(tmp_path / "net"), "")
    assert {name: (array.shape, str(array.dtype)) for name, array in made.items()} == {
        tensor.name: (tensor.shape, tensor.dtype) for tensor in inputs
    }
    np.savez(tmp_path / "inputs.npz", ids=np.ones((3, 2, 5), "int64"), wrong=np.ones(1))
    with pytest.raises(RequestError, match="wrong"):
        verification.first_sample(str(tmp_path / "net"), str(tmp_path / "inputs.npz"))


def test_an_onnx_network_is_saved_as_onnx(tmp_path: Path) -> None:
    model_sources.OnnxSource(small_net()).save(tmp_path / "net")
    onnx.checker.check_model(onnx.load(tmp_path / "net"))
    loaded = model_sources.load(tmp_path / "net")
    assert [(one.name, one.shape, one.dtype) for one in loaded.inputs] == [("x", (1, 3, 12, 12), "float32")]
    assert loaded.outputs == ("y",)


def test_indices_are_below_the_size_of_their_table() -> None:
    ids, mask = relax_import.tensors(network(), ("ids", "mask"))
    assert (ids.high, mask.high) == (20, 2)


def symbolic() -> Any:
    return network(tvm.tirx.Var("batch", "int64"), tvm.tirx.Var("length", "int64"))


def test_unknown_batches_become_1() -> None:
    fixes: list[str] = []
    module = relax_import.fixed(symbolic(), ("ids", "mask"), {"ids": (1, 7)}, fixes)
    assert [tensor.shape for tensor in relax_import.tensors(module, ("ids", "mask"))] == [(1, 7), (1, 7)]
    module = relax_import.fixed(network(tvm.tirx.Var("batch", "int64")), ("ids", "mask"), {}, fixes)
    assert relax_import.tensors(module, ("ids", "mask"))[0].shape == (1, 5)
    assert fixes == ["unknown batch of 'ids' fixed at 1"]


def test_other_unknown_dimensions_need_a_value() -> None:
    with pytest.raises(ModelRejected, match=r"'ids' is \?,\?.*--shape ids=1,128"):
        relax_import.fixed(symbolic(), ("ids", "mask"), {}, [])


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"none": (1, 2)}, "no input 'none'"),
        ({"ids": (1, 2, 3)}, "does not fit"),
        ({"ids": (1, 2), "mask": (1, 3)}, "does not fit"),
        ({"ids": (0, 2)}, "at least 1"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, tuple[int, ...]], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        relax_import.fixed(symbolic(), ("ids", "mask"), shapes, [])


@pytest.mark.parametrize(
    ("name", "words"), [("data.pkl", "no exported program.*torch.export.save"), ("archive_format", "PyTorch|import")]
)
def test_bad_pytorch_files_get_clear_errors(name: str, words: str, tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "net.pt2"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"net/{name}", "pt2")
    with pytest.raises(ModelRejected, match=words):
        model_sources.prepare(path, {})


def test_bad_tflite_files_get_clear_errors(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(b"\x1c\0\0\0TFL3" + bytes(8))
    with pytest.raises(ModelRejected, match=r"net\.tflite"):
        model_sources.prepare(path, {})


def test_facts_of_a_model_are_its_own() -> None:
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([], "nothing", [value], [value])
    model = onnx.helper.make_model(graph, producer_name="a test", doc_string="does nothing", model_version=3)
    onnx.helper.set_model_props(model, {"letters": "a,b", "onnxsim.removed_nodes": "MatMul"})
    assert model_sources.OnnxSource(model).about == {
        "producer_name": "a test", "graph_name": "nothing", "description": "does nothing", "version": 3,
        "metadata": {"letters": "a,b"},
    }  # fmt: skip
