"""Weights in other files are put into the model, wherever they stand; those that lie elsewhere are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autosched.api import whole_models
from autosched.errors import RequestError
from autosched_tvm.commands import model_whole
from autosched_tvm.compile.frontend.preparation import external_tensors

VALUES = np.arange(6, dtype="float32").reshape(2, 3)


def outside(name: str, location: str, offset: int = 0) -> Any:
    """A tensor whose values lie in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=VALUES.shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": str(offset), "length": str(VALUES.nbytes)}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def saved(folder: Path, location: str = "net.data") -> Path:
    """A model with weights in an initializer, in a constant, in a branch and in a function."""
    node = helper.make_node

    def branch(name: str) -> Any:
        nodes = [
            node("Constant", [], [f"{name}c"], value=outside("", location, 24)),
            node("Add", ["a", f"{name}c"], [name]),
        ]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, 1, [2, 3])])

    own = helper.make_function(
        "own", "F", ["p"], ["q"],
        [node("Constant", [], ["k"], value=outside("", location)), node("Mul", ["p", "k"], ["q"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [
        node("Constant", [], ["c"], value=outside("", location, 24)), node("Add", ["x", "c"], ["s"]),
        node("Add", ["s", "w"], ["t"]), node("F", ["t"], ["a"], domain="own"),
        node("If", ["b"], ["y"], then_branch=branch("then"), else_branch=branch("else")),
    ]  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", 1, [2, 3]), helper.make_tensor_value_info("b", TensorProto.BOOL, [])]
    graph = helper.make_graph(
        nodes, "net", inputs, [helper.make_tensor_value_info("y", 1, [2, 3])], [outside("w", location)]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    path = folder / "net.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, functions=[own], ir_version=9).SerializeToString())
    return path


def test_all_weights_come_into_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path)
    (tmp_path / "net.data").write_bytes(VALUES.tobytes() + (VALUES * 2).tobytes())
    assert whole_models.names_other_files(path)
    assert model_whole.join(path, tmp_path / "whole.onnx") == ["net.data"]
    model = onnx.load(str(tmp_path / "whole.onnx"), load_external_data=False)
    assert not list(external_tensors(model))
    assert not whole_models.names_other_files(tmp_path / "whole.onnx")
    assert np.array_equal(numpy_helper.to_array(model.graph.initializer[0]), VALUES)
    assert np.array_equal(numpy_helper.to_array(model.graph.node[0].attribute[0].t), VALUES * 2)
    inner = model.graph.node[4].attribute[0].g.node[0].attribute[0].t
    assert np.array_equal(numpy_helper.to_array(inner), VALUES * 2)
    assert np.array_equal(numpy_helper.to_array(model.functions[0].node[0].attribute[0].t), VALUES)


@pytest.mark.parametrize("location", ["gone.data", "../net.data", "/etc/hostname"])
def test_weights_that_are_not_beside_the_model_are_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "net.data").write_bytes(bytes(48))
    (tmp_path / "inner").mkdir()
    path = saved(tmp_path / "inner", location)
    with pytest.raises(RequestError, match=r"weights .* of net.onnx cannot be read: .* beside the model"):
        model_whole.join(path, tmp_path / "whole.onnx")
    assert not (tmp_path / "whole.onnx").exists()


def test_a_link_to_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(48))
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "net.data").symlink_to(tmp_path / "secret")
    with pytest.raises(RequestError, match="cannot be read"):
        model_whole.join(saved(tmp_path / "inner"), tmp_path / "whole.onnx")


def test_more_than_a_file_can_hold_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_whole, "BYTES_MAX", 100)
    with pytest.raises(RequestError, match=r"weights in net.data. A job takes one file.*extract_model"):
        model_whole.join(saved(tmp_path), tmp_path / "whole.onnx")


def test_a_whole_model_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(bytes(whole_models.BLOCK_BYTES - 4) + whole_models.MARK)
    assert whole_models.names_other_files(path), "the mark is found between two blocks"
    graph = helper.make_graph([helper.make_node("Relu", ["location"], ["y"])], "net", [], [])
    path.write_bytes(helper.make_model(graph).SerializeToString())
    assert model_whole.join(path, tmp_path / "whole.onnx") == []
    path.write_bytes(b"no model")
    assert model_whole.join(path, tmp_path / "whole.onnx") == []
