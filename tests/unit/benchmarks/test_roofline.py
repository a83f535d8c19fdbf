"""Operations of the products of a network."""

import pytest
import roofline
from onnx import TensorProto, helper


def model(*nodes: object, weights: dict[str, list[int]], shape: list[int]) -> object:
    constants = [
        helper.make_tensor(name, TensorProto.FLOAT, dims, [0.0] * roofline.math.prod(dims))
        for name, dims in weights.items()
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return helper.make_model(helper.make_graph(list(nodes), "g", [given], [made], initializer=constants))


@pytest.mark.parametrize(
    ("node", "weights", "shape", "multiply_adds"),
    [
        (helper.make_node("Conv", ["x", "w"], ["y"]), {"w": [4, 3, 3, 3]}, [1, 3, 10, 10], 4 * 8 * 8 * 27),
        (helper.make_node("Conv", ["x", "w"], ["y"], group=4), {"w": [4, 1, 3, 3]}, [1, 4, 5, 5], 4 * 9 * 9),
        (helper.make_node("MatMul", ["x", "w"], ["y"]), {"w": [7, 5]}, [2, 3, 7], 2 * 3 * 5 * 7),
        (helper.make_node("Gemm", ["x", "w"], ["y"], transA=1), {"w": [7, 5]}, [7, 2], 2 * 5 * 7),
        (
            helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=6, direction="bidirectional"),
            {"w": [2, 24, 3], "r": [2, 24, 6]}, [10, 1, 3], 10 * 2 * 4 * 6 * (3 + 6),
        ),
    ],
)  # fmt: skip
def test_operations_are_two_for_each_multiply_add(
    node: object, weights: dict[str, list[int]], shape: list[int], multiply_adds: int
) -> None:
    assert roofline.operations(model(node, weights=weights, shape=shape)) == 2 * multiply_adds
