from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autosched.errors import ModelRejected, RequestError
from autosched_tvm.compile.frontend import input_shapes
from nets import model


def net(inputs: dict[str, Any], nodes: list[Any] | None = None, weights: dict[str, Any] | None = None) -> Any:
    """Returns a network. An input is given by its dimensions, or its element type and its dimensions."""
    typed = {name: given if isinstance(given, tuple) else (TensorProto.FLOAT, given) for name, given in inputs.items()}
    first = next(iter(inputs))
    made = model(
        nodes or [helper.make_node("Identity", [first], ["y"])], {first: typed[first][1]}, ["y"], weights or {}
    )
    del made.graph.input[:], made.graph.value_info[:]
    made.graph.input.extend(helper.make_tensor_value_info(name, *given) for name, given in typed.items())
    return made


def fixed(made: Any, **given: tuple[int, ...]) -> dict[str, list[int]]:
    input_shapes.fix(made, given)
    return {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in made.graph.input}


def question(made: Any, **given: tuple[int, ...]) -> str:
    with pytest.raises(ModelRejected) as caught:
        input_shapes.fix(made, given)
    return str(caught.value)


@pytest.mark.parametrize("name", ["N", "batch_size", "unk__749", "DynamicDimension.0", "s6", "?", None])
def test_an_unknown_first_dimension_becomes_one(name: str | None) -> None:
    made = net({"x": [name, 5]})
    assert input_shapes.fix(made, {}) == ["batch dimension of input 'x' set to 1 (for another: --shape x=8,5)"]
    assert made.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1


@pytest.mark.parametrize("name", ["sequence", "num_atoms", "time", "frames", "height"])
def test_a_first_dimension_that_is_no_batch_needs_a_value(name: str) -> None:
    assert f"'x' is ?,5 ({name} unknown)" in question(net({"x": [name, 5]}))


def test_a_batch_is_known_by_its_name_at_any_place() -> None:
    assert fixed(net({"x": [3, "batch", 7]})) == {"x": [3, 1, 7]}


@pytest.mark.parametrize("name", ["h", "c0", "state", "rnn_hidden"])
def test_the_batch_of_a_recurrent_state_is_its_second_dimension(name: str) -> None:
    assert fixed(net({name: [2, None, 64]})) == {name: [2, 1, 64]}


def test_a_name_has_one_size_everywhere() -> None:
    made = net({"ids": (TensorProto.INT64, ["batch", "seq"]), "mask": (TensorProto.INT64, ["batch", "seq"])})
    assert fixed(made, ids=(2, 9)) == {"ids": [2, 9], "mask": [2, 9]}


def test_a_size_that_a_weight_forces_is_taken() -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Sub", ["t", "mean"], ["m"]),
        helper.make_node("Conv", ["m", "w"], ["y"]),
    ]
    weights = {"mean": np.float32(0.5), "w": np.zeros((4, 3, 3, 3), "float32")}
    made = net({"x": ["N", 32, 32, "C"]}, nodes, weights)
    said = input_shapes.fix(made, {})
    assert "'C' of input 'x' set to 3, since Conv 'y' takes no other" in said
    assert [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim] == [1, 32, 32, 3]


@pytest.mark.parametrize(("attributes", "shape"), [({"transB": 1}, (5, 7)), ({}, (7, 5))])
def test_a_size_that_a_dense_layer_forces_is_taken(attributes: dict[str, int], shape: tuple[int, ...]) -> None:
    node = helper.make_node("Gemm", ["x", "w"], ["y"], **attributes)
    assert fixed(net({"x": ["batch", "features"]}, [node], {"w": np.zeros(shape, "float32")})) == {"x": [1, 7]}


@pytest.mark.parametrize(
    ("inputs", "example"),
    [
        ({"x": ["N", 3, "h", "w"]}, "--shape x=1,3,224,224"),
        ({"x": ["N", None, None, None]}, "--shape x=1,3,224,224"),
        ({"x": ["N", 1, 64, "width"]}, "--shape x=1,1,64,320"),
        ({"x": (TensorProto.INT64, ["N", "seq"])}, "--shape x=1,128"),
        ({"x": ["N", "samples"]}, "--shape x=1,16000"),
        ({"x": ["N", "frames", 80]}, "--shape x=1,100,80"),
        ({"length": (TensorProto.INT64, [None])}, "--shape length=1"),
        ({"x": None}, "--shape x=1,3,224,224"),
    ],
)
def test_the_question_has_an_example(inputs: dict[str, Any], example: str) -> None:
    assert question(net(inputs)).endswith(f"for example: {example}")


def test_a_guess_is_no_longer_than_the_table_of_positions() -> None:
    weights = {"encoder.position_embeddings.weight": np.zeros((48, 8), "float32")}
    assert "--shape x=1,48" in question(net({"x": (TensorProto.INT64, ["N", "seq"])}, weights=weights))


def test_an_example_fits_the_network() -> None:
    """The sum after the reshape allows multiples of 512 only."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    weights = {"shape": np.array([2, 256]), "w": np.zeros((256, 3), "float32")}
    assert "--shape x=1,512" in question(net({"x": ["N", "samples"]}, nodes, weights))


@pytest.mark.parametrize(
    ("given", "words"), [({"z": (1,)}, "no input 'z'"), ({"x": (2,)}, "does not fit"), ({"x": (0, 5)}, "at least 1")]
)
def test_impossible_shapes_are_refused(given: dict[str, tuple[int, ...]], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        input_shapes.fix(net({"x": ["N", 5]}), given)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("shape", "size"), [([-1, 5, 3], 4), ([8, 15], 8)])
def test_a_batch_that_the_network_has_inside_is_taken(shape: list[int], size: int, constant: bool) -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("Concat", ["r", "w"], ["y"], axis=-1)]
    weights = {"shape": np.array(shape), "w": np.zeros((size, 5, 2)[: len(shape)], "float32")}
    if constant:
        value = onnx.numpy_helper.from_array(weights.pop("shape"))
        nodes.insert(0, helper.make_node("Constant", [], ["shape"], value=value))
    made = net({"x": ["n", 15]}, nodes, weights)
    assert input_shapes.fix(made, {}) == [f"batch dimension of 'x' set to {size}: the network has that size inside"]
    assert [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim] == [size, 15]


def test_a_batch_of_one_stays_where_no_other_fits_either() -> None:
    node = helper.make_node("Concat", ["x", "w"], ["y"], axis=1)
    made = net({"x": ["n", 4, 1]}, [node], {"w": np.zeros((3, 4), "float32")})
    assert fixed(made) == {"x": [1, 4, 1]}


def test_a_size_of_zero_is_named() -> None:
    assert "a size of 'past' is 0; an empty input must be left out" in question(net({"past": [1, 0, 8]}))


def test_a_network_with_all_shapes_known_is_left_alone() -> None:
    made = net({"x": [2, 5]})
    before = onnx.ModelProto()
    before.CopyFrom(made)
    assert input_shapes.fix(made, {}) == []
    assert made == before
