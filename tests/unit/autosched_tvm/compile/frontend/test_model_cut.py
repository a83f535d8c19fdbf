"""A network is cut before what is refused; both parts together give what the whole gives."""

import contextlib
import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autosched.errors import ModelRejected, RequestError
from autosched_tvm.compile.frontend import model_cut
from autosched_tvm.compile.frontend.model_cut import Cut
from autosched_tvm.compile.frontend.refused_operators import OperatorRejected, computed_from

onnxruntime = pytest.importorskip("onnxruntime")
SIZE = 4
W = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype("float32")


def network(nodes: list[Any], outputs: list[str], inputs: int = 1) -> Any:
    def value(name: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE, SIZE])

    graph = helper.make_graph(
        nodes, "net", [value(f"x{i}") for i in range(inputs)], [value(name) for name in outputs],
        [numpy_helper.from_array(W, "w"), numpy_helper.from_array(np.float32(0.5), "half")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def refusing(*operators: str) -> Any:
    """A refusal of the first operator of these kinds that a network has."""

    def refusal(net: Any) -> ModelRejected | None:
        found = [node for node in net.graph.node if node.op_type in operators]
        return OperatorRejected(f"operator {found[0].op_type} is refused", net.graph, found[:1]) if found else None

    return refusal


def run(net: Any, values: dict[str, Any]) -> dict[str, Any]:
    onnx.checker.check_model(net)
    session = onnxruntime.InferenceSession(net.SerializeToString())
    given = {one.name: values[one.name] for one in session.get_inputs()}
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, given), strict=True))


def joined(net: Any, cut: Cut) -> None:
    """Checks that both parts give what the network gives."""
    generator = np.random.default_rng(1)
    values = {one.name: generator.standard_normal((SIZE, SIZE)).astype("float32") for one in net.graph.input}
    found = run(cut.head, values)
    found |= run(cut.rest, values | found)
    for name, right in run(net, values).items():
        np.testing.assert_allclose(found[name], right, rtol=1e-4, atol=1e-5)


def operators(part: Any) -> list[str]:
    return [node.op_type for node in part.graph.node]


N = helper.make_node
CHAIN = [N("MatMul", ["x0", "w"], ["a"]), N("Erf", ["a"], ["b"], name="odd"), N("Relu", ["b"], ["y"])]


def test_the_rest_begins_with_the_refused_operator() -> None:
    net = network(CHAIN, ["y"])
    cut = model_cut.before_refused(net, refusing("Erf"))
    assert (operators(cut.head), operators(cut.rest)) == (["MatMul"], ["Erf", "Relu"])
    assert cut.why.startswith("operator Erf is refused; autosched model cut FILE writes the part up to 'a'")
    joined(net, cut)


def test_the_cut_moves_until_nothing_is_refused_and_other_branches_stay() -> None:
    nodes = [
        N("Sin", ["x0"], ["s"]), N("MatMul", ["s", "w"], ["a"]), N("Erf", ["a"], ["b"]), N("Cos", ["x1"], ["c"]),
        N("MatMul", ["c", "w"], ["d"]), N("Add", ["b", "d"], ["y"]), N("Relu", ["d"], ["z"]), N("Tan", ["z"], ["t"]),
    ]  # fmt: skip
    net = network(nodes, ["y", "z", "t"], inputs=2)
    cut = model_cut.before_refused(net, refusing("Tan", "Erf", "Sin"))
    assert (operators(cut.head), operators(cut.rest)) == (
        ["Cos", "MatMul", "Relu"],
        ["Sin", "MatMul", "Erf", "Add", "Tan"],
    )
    assert [value.name for value in cut.head.graph.input] == ["x1"]
    joined(net, cut)


def test_what_a_branch_reads_comes_with_it() -> None:
    def branch(name: str, *inputs: str) -> Any:
        output = helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE, SIZE])
        return helper.make_graph([N("MatMul", list(inputs), [name])], name, [], [output])

    nodes = [
        N("MatMul", ["x0", "w"], ["a"]), N("ReduceMax", ["a"], ["m"], keepdims=0), N("Greater", ["m", "half"], ["c"]),
        N("If", ["c"], ["y"], then_branch=branch("t", "a", "w"), else_branch=branch("e", "w", "x0")),
    ]  # fmt: skip
    net = network(nodes, ["y"])
    cut = model_cut.before_refused(net, refusing("If"))
    assert [value.name for value in cut.rest.graph.input] == ["x0", "a", "c"]
    joined(net, cut)


@pytest.mark.parametrize("seed", range(20))
def test_any_network_cut_anywhere_gives_the_same(seed: int) -> None:
    chance = random.Random(seed)
    values, nodes = ["x0", "x1", "w"], []
    for number in range(chance.randrange(3, 15)):
        operator = chance.choice(["Add", "Sub", "MatMul", "Tanh", "Neg", "Constant"])
        inputs = [chance.choice(values) for _ in range({"Tanh": 1, "Neg": 1, "Constant": 0}.get(operator, 2))]
        given = {"value": numpy_helper.from_array(W)} if operator == "Constant" else {}
        nodes.append(N(operator, inputs, [f"v{number}"], **given))
        values.append(f"v{number}")
    made = [node.output[0] for node in computed_from(nodes, ["x0", "x1"])]
    if not made:
        return
    net = network(nodes, chance.sample(made, min(2, len(made))), inputs=2)
    at = chance.choice(made)
    with contextlib.suppress(RequestError, ModelRejected):  # nothing to tune, or nothing to cut off
        joined(net, model_cut.at(net, [at]))


def test_a_cut_behind_a_value_that_is_named() -> None:
    cut = model_cut.at(network(CHAIN, ["y"]), ["b"])
    assert (operators(cut.head), operators(cut.rest)) == (["MatMul", "Erf"], ["Relu"])
    with pytest.raises(RequestError, match="no operator makes 'bb'; did you mean b"):
        model_cut.at(network(CHAIN, ["y"]), ["bb"])
    with pytest.raises(RequestError, match="no output is computed from y"):
        model_cut.at(network(CHAIN, ["y"]), ["y"])


def test_a_network_without_a_part_to_tune_and_one_that_needs_no_cut() -> None:
    with pytest.raises(ModelRejected, match="no cut makes a network"):
        model_cut.before_refused(network(CHAIN, ["y"]), refusing("MatMul"))
    with pytest.raises(RequestError, match="can be tuned as it is"):
        model_cut.before_refused(network(CHAIN, ["y"]), refusing("Sin"))
    with pytest.raises(ModelRejected, match=r"no cut makes a network that can be tuned: the disk is odd"):
        model_cut.before_refused(network(CHAIN, ["y"]), lambda _net: ModelRejected("the disk is odd"))


def test_operators_that_the_import_has_renamed_are_found() -> None:
    net = network(CHAIN, ["y"])
    inner = network(
        [N("MatMul", ["x0", "w"], ["a"]), N("Erf", ["a"], ["odd__erf"]), N("Relu", ["odd__erf"], ["y"])], ["y"]
    )

    def refusal(part: Any) -> ModelRejected | None:
        whole = "Relu" in operators(part)
        return OperatorRejected("no", inner.graph, [inner.graph.node[1]]) if whole else None

    assert operators(model_cut.before_refused(net, refusal).head) == ["MatMul", "Erf"], "the next value of its own name"
