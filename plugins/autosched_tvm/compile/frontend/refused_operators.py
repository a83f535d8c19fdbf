"""Refusals of a network for some of its operators, and the advice to cut it before them."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from autosched.errors import ModelRejected
from autosched_tvm.compile.frontend.node_builder import Node, read_inside

if TYPE_CHECKING:
    from onnx import GraphProto

_WORTH_TUNING = frozenset({
    "Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN", "Attention", "MultiHeadAttention",
    "GroupQueryAttention", "FusedConv", "FusedMatMul", "FusedGemm", "ConvInteger", "MatMulInteger", "QLinearConv",
    "QLinearMatMul", "MatMulNBits", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "QAttention", "DeformConv",
})  # fmt: skip
NAMES_SHOWN = 3


class OperatorRejected(ModelRejected):
    """Some operators of a network cannot be built."""

    def __init__(self, message: str, graph: "GraphProto", nodes: Sequence[Node]) -> None:
        """`message`: what is wrong, without the advice to cut the network."""
        self.results = [_after(graph, node) for node in nodes]
        """For each operator, its results, and the values computed from them, nearest first."""
        super().__init__(message + _advice(graph, nodes))


def name_of(node: Node) -> str:
    """Returns how messages name a node."""
    return repr(node.name or first_output(node))


def first_output(node: Node) -> str:
    """Returns the name of a node's first output, which no other node has."""
    return next((str(name) for name in node.output if name), "")


def computed_from(nodes: Iterable[Node], values: Collection[str]) -> list[Node]:
    """Returns the nodes, in order, that read these values or what is computed from them."""
    reached, found = set(values), []
    for node in nodes:
        if not reached.isdisjoint(node.input) or not reached.isdisjoint(read_inside(node)):
            found.append(node)
            reached.update(name for name in node.output if name)
    return found


def _after(graph: "GraphProto", node: Node) -> list[str]:
    own = [name for name in node.output if name]
    return own + [name for one in computed_from(graph.node, own) for name in one.output if name]


def _advice(graph: "GraphProto", nodes: Sequence[Node]) -> str:
    """The advice to cut the network, if something worth tuning is left."""
    own = [name for node in nodes for name in node.output if name]
    gone = {first_output(node) for node in (*nodes, *computed_from(graph.node, own))}
    before = [node for node in graph.node if first_output(node) not in gone]
    if not any(node.op_type in _WORTH_TUNING for node in before):
        return ""
    made = {name for node in before for name in node.output if name}
    read = [name for node in nodes for name in node.input if name in made and "__" not in name][:NAMES_SHOWN]
    where = f"up to {', '.join(map(repr, dict.fromkeys(read)))}" if read else "before it"
    return f"; autosched model cut FILE writes the part {where} as a network to tune, and the rest for ONNX Runtime"
