from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autosched.errors import ModelRejected, RequestError
from autosched_tvm.compile.frontend import preparation
from nets import model, small_net


def nothing(_nodes: Iterable[Any]) -> list[Any]:
    return []


def write(net: Any, folder: Path) -> Path:
    path = folder / "net.onnx"
    onnx.save(net, path)
    return path


def test_a_good_model_is_prepared(tmp_path: Path) -> None:
    ready = preparation.prepare(write(small_net(), tmp_path), {}, nothing)
    assert ready.opset == 13
    assert ready.nodes_before == 9
    assert any("Sum made Add" in fix for fix in ready.fixes)
    assert [value.name for value in preparation.inputs_of(ready.model)] == ["x"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"hello, world " * 20, "not an ONNX file"),
        (small_net().SerializeToString()[:-50], "truncated"),
        (onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [])).SerializeToString(), "no operators"),
    ],
)
def test_bad_files_have_different_errors(data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelRejected, match=words):
        preparation.read(path)


def test_a_value_that_no_node_computes_is_named_with_its_reader(tmp_path: Path) -> None:
    net = small_net()
    net.graph.node[2].input[1] = "nowhere"
    with pytest.raises(ModelRejected, match=r"nothing makes 'nowhere', which node 'joined' \(Concat\) reads"):
        preparation.read(write(net, tmp_path))


def test_an_optional_input_may_be_left_out(tmp_path: Path) -> None:
    clip = helper.make_node("Clip", ["x", "", "most"], ["y"])
    net = model([clip], {"x": [1, 4]}, ["y"], {"most": 1.0})
    assert preparation.read(write(net, tmp_path)).graph.node[0].input[1] == ""


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ModelRejected, match="cannot be read"):
        preparation.read(tmp_path / "none.onnx")


def test_weights_in_other_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save_model(small_net(), path, save_as_external_data=True, location="weights", size_threshold=0)
    with pytest.raises(ModelRejected, match="other files"):
        preparation.read(path)


def test_an_unknown_batch_becomes_one_and_is_reported(tmp_path: Path) -> None:
    path = write(small_net(batch="N"), tmp_path)
    ready = preparation.prepare(path, {}, nothing)
    assert preparation.dims_of(ready.model.graph.input[0]) == [1, 3, 12, 12]
    assert ready.notes == ["batch dimension of input 'x' set to 1 (for another: --shape x=8,3,12,12)"]
    assert set(ready.notes) <= set(ready.fixes)
    ready = preparation.prepare(path, {"x": (2, 3, 12, 12)}, nothing)
    assert preparation.dims_of(ready.model.graph.input[0]) == [2, 3, 12, 12]
    assert not ready.notes


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"y": (1,)}, "no input 'y'; its inputs are: 'x'"),
        ({"x": (1, 3, 12)}, "does not fit"),
        ({"x": (1, 4, 12, 12)}, "does not fit"),
        ({"x": (0, 3, 12, 12)}, "at least 1"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, tuple[int, ...]], words: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=words):
        preparation.prepare(write(small_net(batch="N"), tmp_path), shapes, nothing)


@pytest.mark.parametrize(
    ("kind", "domain", "words"),
    [
        ("Scan", "", r"operator Scan \(node 'odd'\).*unrolled"),
        ("ConvInteger", "", "in QDQ form"),
        ("FusedGelu", "com.acme", r"com\.acme\.FusedGelu.*no standard"),
        ("Det", "", "replace that layer"),
    ],
)
def test_unsupported_operators_are_named(kind: str, domain: str, words: str, tmp_path: Path) -> None:
    node = helper.make_node(kind, ["x"], ["y"], name="odd", domain=domain)
    net = model([helper.make_node("Relu", ["x"], ["z"])], {"x": [2, 2]}, ["z"], {})
    net.graph.node.append(node)
    net.graph.output.append(helper.make_tensor_value_info("y", 1, None))
    if domain:
        net.opset_import.append(helper.make_opsetid(domain, 1))
    with pytest.raises(ModelRejected, match=words):
        preparation.prepare(write(net, tmp_path), {}, lambda nodes: [n for n in nodes if n.op_type == kind])


def test_an_old_model_is_raised(tmp_path: Path) -> None:
    net = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2, 2]}, ["y"], {}, opset=6)
    prepared = preparation.prepare(write(net, tmp_path), {}, nothing)
    assert (prepared.opset, prepared.fixes[:1]) == (6, ["opset 6 raised to 7"])


def changed(net: Any, change: str) -> Any:
    """Returns a network that is no valid ONNX."""
    match change:
        case "order":
            net.graph.node.append(net.graph.node.pop(0))
        case "twice":
            net.graph.node[1].output[0] = net.graph.node[0].output[0]
        case "input":
            net.graph.node[1].output[0] = net.graph.input[0].name
        case "opset":
            del net.opset_import[:]
    return net


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("order", "which a later node makes"), ("twice", "makes .* again"), ("input", "makes .* again"),
        ("opset", "does not say which opset"),
    ],
)  # fmt: skip
def test_a_graph_that_is_no_valid_onnx_is_refused_in_words(change: str, words: str, tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
    net = model([*nodes, helper.make_node("Add", ["a", "b"], ["y"])], {"x": [1, 4]}, ["y"], {})
    with pytest.raises(ModelRejected, match=words):
        preparation.read(write(changed(net, change), tmp_path))


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
@pytest.mark.parametrize("constant", [True, False])
def test_sparse_weights_become_dense(constant: bool, indices: list[Any], tmp_path: Path) -> None:
    values = numpy_helper.from_array(np.array([1, 2], "float32"), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices), "places"), [2, 3])
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    if constant:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse))
    net = model(nodes, {"x": [2, 3]}, ["y"], {})
    if not constant:
        net.graph.sparse_initializer.append(sparse)
    found = preparation.read(write(net, tmp_path)).graph
    tensor = found.node[0].attribute[0].t if constant else found.initializer[0]
    assert numpy_helper.to_array(tensor).tolist() == [[0, 1, 0], [0, 0, 2]]
    sparse.dims[0] = 1 << 40
    for node in net.graph.node[:1] if constant else ():
        node.attribute[0].sparse_tensor.CopyFrom(sparse)
    for one in net.graph.sparse_initializer:
        one.CopyFrom(sparse)
    with pytest.raises(ModelRejected, match=r"3,298,534,883,328 elements, zeros included"):
        preparation.read(write(net, tmp_path))


def test_a_tree_ensemble_is_refused_with_a_program_that_runs_it(tmp_path: Path) -> None:
    net = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [1, 4]}, ["y"], {}, 13)
    net.graph.node[0].op_type, net.graph.node[0].domain = "TreeEnsembleRegressor", "ai.onnx.ml"
    net.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    with pytest.raises(ModelRejected, match=r"TreeEnsembleRegressor .* no neural network\. ONNX Runtime runs it"):
        preparation.prepare(write(net, tmp_path), {}, list)


def outside() -> Any:
    """A tensor whose numbers are in another file."""
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[1, 4])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    return tensor


@pytest.mark.parametrize(
    "place",
    ["initializer", "Constant", "subgraph", "sparse", "function", "list of tensors", "training", "metadata only"],
)
def test_numbers_in_other_files_are_refused_wherever_they_are_named(place: str, tmp_path: Path) -> None:
    model = small_net()
    constant = helper.make_node("Constant", [], ["w"], value=outside())
    if place == "initializer":
        model.graph.initializer.append(outside())
    elif place == "Constant":
        model.graph.node.append(constant)
    elif place == "subgraph":
        branch = helper.make_graph([constant], "branch", [], [])
        inner = helper.make_graph([helper.make_node("If", ["c"], ["y"], then_branch=branch)], "inner", [], [])
        model.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner))
    elif place == "sparse":
        model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=outside(), dims=[1, 4]))
    elif place == "function":
        model.functions.append(helper.make_function("own", "f", [], ["w"], [constant], []))
    elif place == "list of tensors":
        node = helper.make_node("Custom", [], ["w"])
        node.attribute.append(onnx.AttributeProto(name="all", type=onnx.AttributeProto.TENSORS, tensors=[outside()]))
        model.graph.node.append(node)
    elif place == "training":
        model.training_info.append(onnx.TrainingInfoProto(algorithm=helper.make_graph([constant], "a", [], [])))
    else:
        tensor = outside()
        tensor.data_location = onnx.TensorProto.DEFAULT
        model.graph.initializer.append(tensor)
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelRejected, match="lie in other files"):
        preparation.read(path)


@pytest.mark.parametrize("nested", [False, True])
def test_default_attributes_of_the_models_own_functions_are_kept(nested: bool, tmp_path: Path) -> None:
    slope = helper.make_node("LeakyRelu", ["v"], ["w"])
    slope.attribute.append(onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="alpha"))
    inner = helper.make_function("own", "steep", ["v"], ["w"], [slope], [helper.make_opsetid("", 17)], [])
    inner.attribute_proto.append(helper.make_attribute("alpha", 0.7))
    outer = helper.make_function(
        "own", "outer", ["v"], ["w"], [helper.make_node("steep", ["v"], ["w"], domain="own")],
        [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
    )  # fmt: skip
    call = helper.make_node("outer" if nested else "steep", ["x"], ["y"], domain="own")
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([call], "net", values[:1], values[1:])
    net = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)])
    net.functions.extend([inner, outer])
    ready = preparation.prepare(write(net, tmp_path), {}, nothing)
    (node,) = [node for node in ready.model.graph.node if node.op_type == "LeakyRelu"]
    assert [round(a.f, 3) for a in node.attribute if a.name == "alpha"] == [0.7]
