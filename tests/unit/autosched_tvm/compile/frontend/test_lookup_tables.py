"""Functions of one quantised tensor become tables with the same results; all others stay."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from autosched_tvm.compile.frontend import lookup_tables
from quantising import network

SHAPE = (2, 3, 64)


class Graph:
    """Nodes of a network that rounds, as the import writes them."""

    def __init__(self, levels: str = "uint8") -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.levels = np.dtype(levels)

    def add(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        names = []
        for value in inputs:
            if not isinstance(value, str):
                self.constants[f"c{len(self.constants)}"] = np.asarray(value, "float32")
                value = f"c{len(self.constants) - 1}"
            names.append(value)
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [name], **attributes))
        return name

    def real(self, levels: str, scale: Any = 0.05, zero: float = 100.0) -> str:
        return self.add("Mul", self.add("Sub", self.add("Cast", levels, to=TensorProto.FLOAT), zero), scale)

    def rounded(self, real: str, scale: float = 0.02, zero: float = 20.0) -> str:
        low, high = np.iinfo(self.levels).min, np.iinfo(self.levels).max
        moved = self.add("Add", self.add("Round", self.add("Mul", real, np.float32(1 / scale))), zero)
        kind = helper.np_dtype_to_tensor_dtype(self.levels)
        return self.add("Cast", self.add("Clip", moved, float(low), float(high)), to=kind)

    def model(self, *outputs: str, inputs: tuple[str, ...] = ("x",)) -> Any:
        given = {name: np.zeros(SHAPE, self.levels) for name in inputs}
        kind = helper.np_dtype_to_tensor_dtype(self.levels)
        return network(self.nodes, given, dict.fromkeys(outputs, kind), self.constants)


class Lookup(OpRun):
    op_domain = lookup_tables.DOMAIN

    def _run(self, levels: Any, table: Any) -> tuple[Any]:
        return (table[levels.view("uint8")],)


def hard_swish(graph: Graph, levels: str) -> str:
    """Adds a hard swish as an exporter writes it: each step is rounded."""
    real = graph.real(levels)
    gate = graph.rounded(graph.add("Clip", graph.add("Add", real, 3.0), 0.0, 6.0))
    product = graph.rounded(graph.add("Mul", real, graph.real(gate, 0.02, 20.0)))
    return graph.rounded(graph.add("Div", graph.real(product, 0.02, 20.0), 6.0))


def silu(graph: Graph, levels: str) -> str:
    gate = graph.rounded(graph.add("Sigmoid", graph.real(levels)), 1 / 256, 0.0)
    return graph.rounded(graph.add("Mul", graph.real(levels), graph.real(gate, 1 / 256, 0.0)))


def changed(model: Any, wanted: int) -> list[str]:
    """Returns the operators after the rewrite, and checks that the results stay."""
    after = onnx.ModelProto()
    after.CopyFrom(model)
    assert lookup_tables.put_in(after) == wanted
    data = np.arange(np.prod(SHAPE)).astype("uint8").reshape(SHAPE)
    inputs = {
        value.name: data.view(np.uint8 if value.type.tensor_type.elem_type == 2 else np.int8)
        for value in model.graph.input
    }
    expected = ReferenceEvaluator(model).run(None, inputs)
    for one, other in zip(expected, ReferenceEvaluator(after, new_ops=[Lookup]).run(None, inputs), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    return [node.op_type for node in after.graph.node]


@pytest.mark.parametrize("levels", ["uint8", "int8"])
@pytest.mark.parametrize("function", [hard_swish, silu])
def test_a_function_of_one_tensor_becomes_a_table(function: Any, levels: str) -> None:
    graph = Graph(levels)
    assert changed(graph.model(function(graph, "x")), 1) == ["Lookup"]


def test_functions_of_functions_are_tables_of_the_first_tensor() -> None:
    graph = Graph()
    first = hard_swish(graph, "x")
    model = graph.model(first, silu(graph, first))
    assert changed(model, 2) == ["Lookup", "Lookup"]
    lookup_tables.put_in(model)
    assert [node.input[0] for node in model.graph.node] == ["x", "x"]


def test_results_with_other_readers_stay() -> None:
    graph = Graph()
    graph.nodes.append(helper.make_node("Neg", [graph.real(hard_swish(graph, "x"))], ["y"]))
    model = network(graph.nodes, {"x": np.zeros(SHAPE, "uint8")}, {"y": TensorProto.FLOAT}, graph.constants)
    assert changed(model, 1) == ["Lookup", "Cast", "Sub", "Mul", "Neg"]


def test_another_scale_alone_stays() -> None:
    graph = Graph()
    assert "Lookup" not in changed(graph.model(graph.rounded(graph.real("x"))), 0)


@pytest.mark.parametrize("scale", [np.full((3, 1), 0.05), np.full((1, 1, 1, 1), 0.05)])
def test_functions_that_differ_between_places_or_change_the_shape_stay(scale: Any) -> None:
    graph = Graph()
    gate = graph.rounded(graph.add("Sigmoid", graph.real("x", scale)), 1 / 256, 0.0)
    result = graph.rounded(graph.add("Mul", graph.real("x", scale), graph.real(gate, 1 / 256, 0.0)))
    assert "Lookup" not in changed(graph.model(result), 0)


def test_functions_of_two_tensors_stay() -> None:
    graph = Graph()
    gate = graph.rounded(graph.add("Sigmoid", graph.real("x")), 1 / 256, 0.0)
    result = graph.rounded(graph.add("Mul", graph.real("other"), graph.real(gate, 1 / 256, 0.0)))
    assert "Lookup" not in changed(graph.model(result, inputs=("x", "other")), 0)


def test_functions_with_other_operators_between_stay() -> None:
    graph = Graph()
    moved = graph.add("Transpose", hard_swish(graph, "x"), perm=[0, 2, 1])
    gate = graph.rounded(graph.add("Softmax", graph.real(moved)), 1 / 256, 0.0)
    assert changed(graph.model(gate), 1).count("Softmax") == 1


def test_graphs_with_graphs_inside_stay() -> None:
    graph = Graph()
    model = graph.model(hard_swish(graph, "x"))
    branch = helper.make_graph([], "branch", [], [helper.make_tensor_value_info("x", TensorProto.UINT8, SHAPE)])
    model.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch))
    assert lookup_tables.put_in(model) == 0
