"""Chooses one option for each node of a graph with the least total cost of nodes and edges. Pure.

The partitioned Boolean quadratic problem, solved by reductions (Scholz and Eckstein, "Register allocation for irregular
architectures", LCTES 2002, section 4). A node with at most two neighbours is eliminated exactly, and its costs are
added to theirs. Where all nodes have more, the one with the most neighbours is fixed heuristically. In the end, each
node is tried again. Networks of chains, skips and joined branches are solved exactly.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Matrix = np.ndarray[Any, Any]

LIGHT = 2
"""Maximum number of neighbours of a node that can be eliminated exactly."""
ROUNDS_MAX = 20


@dataclass
class Graph:
    """Costs of each node's options, and of each pair of options of two nodes. `math.inf`: impossible."""

    nodes: list[Matrix] = field(default_factory=list)
    edges: dict[tuple[int, int], Matrix] = field(default_factory=dict)
    """Cost matrix by (lower, higher) node, with a row for each option of the lower one."""

    def node(self, costs: Sequence[float]) -> int:
        """Adds a node; returns its number."""
        self.nodes.append(np.asarray(costs, "float64"))
        return len(self.nodes) - 1

    def edge(self, left: int, right: int, costs: Sequence[Sequence[float]]) -> None:
        """Adds the costs of pairs of options, a row for each option of `left`. Repeated edges add up."""
        matrix = np.asarray(costs, "float64")
        if left == right:
            self.nodes[left] = self.nodes[left] + np.diagonal(matrix)
            return
        key, matrix = ((left, right), matrix) if left < right else ((right, left), matrix.T)
        self.edges[key] = self.edges[key] + matrix if key in self.edges else matrix


@dataclass(frozen=True)
class Solution:
    """An option for each node."""

    options: tuple[int, ...]
    cost: float
    exact: bool
    """Whether the solution is optimal."""


def cost(graph: Graph, options: Sequence[int]) -> float:
    """Returns the cost of a choice."""
    total = sum(float(costs[option]) for costs, option in zip(graph.nodes, options, strict=True))
    return total + sum(float(matrix[options[a], options[b]]) for (a, b), matrix in graph.edges.items())


def solve(graph: Graph) -> Solution:
    """Returns the cheapest choice, or a good one where exact elimination is not possible. Ties: the earlier option."""
    work = _Work(graph)
    exact = True
    while work.left:
        node = work.light()
        if node is None:
            exact = False
            work.decide(work.hardest())
        else:
            work.reduce(node)
    options = work.options()
    if not exact:
        options = _improved(graph, options)
    return Solution(tuple(options), cost(graph, options), exact)


class _Work:
    """The remaining graph, and the eliminated nodes."""

    def __init__(self, graph: Graph) -> None:
        self.costs = [np.array(costs) for costs in graph.nodes]
        self.near: list[dict[int, Matrix]] = [{} for _ in graph.nodes]  # a row for each option of the owner
        for (a, b), matrix in graph.edges.items():
            self._connect(a, b, matrix)
        self.left = set(range(len(graph.nodes)))
        self.few = [node for node in self.left if self.degree(node) <= LIGHT]
        self.taken: list[tuple[int, Matrix, Mapping[int, Matrix]]] = []

    def degree(self, node: int) -> int:
        return len(self.near[node])

    def light(self) -> int | None:
        """Returns a node that can be eliminated exactly."""
        while self.few:
            node = self.few.pop()
            if node in self.left and self.degree(node) <= LIGHT:
                return node
        return None

    def hardest(self) -> int:
        return max(self.left, key=lambda node: (self.degree(node), -node))

    def reduce(self, node: int) -> None:
        """Eliminates a node with at most two neighbours."""
        near, costs = self.near[node], self.costs[node]
        self._take(node)
        match list(near.items()):
            case [(other, matrix)]:
                self.costs[other] = self.costs[other] + (costs[:, None] + matrix).min(axis=0)
            case [(a, to_a), (b, to_b)]:
                joined = (costs[:, None, None] + to_a[:, :, None] + to_b[:, None, :]).min(axis=0)
                self._connect(a, b, self.near[a].pop(b, 0.0) + joined)
                self.few += [other for other in (a, b) if self.degree(other) <= LIGHT]

    def _connect(self, a: int, b: int, matrix: Matrix) -> None:
        """Adds the costs of pairs of options, a row for each option of `a`. Costs that depend on the option of one node
        only become costs of that node: the nodes are no neighbours then."""
        self.near[b].pop(a, None)
        if (matrix == matrix[:1]).all():
            self.costs[b] = self.costs[b] + matrix[0]
        elif (matrix == matrix[:, :1]).all():
            self.costs[a] = self.costs[a] + matrix[:, 0]
        else:
            self.near[a][b], self.near[b][a] = matrix, matrix.T

    def decide(self, node: int) -> None:
        """Eliminates a node by fixing the option that is best if each neighbour can follow."""
        near = self.near[node]
        views = self.costs[node].copy()
        for other, matrix in near.items():
            views = views + (matrix + self.costs[other][None, :]).min(axis=1)
        option = int(np.argmin(views))
        fixed = np.full(len(views), math.inf)
        fixed[option] = 0.0
        self._take(node)
        self.taken[-1] = (node, fixed, {})
        for other, matrix in near.items():
            self.costs[other] = self.costs[other] + matrix[option]

    def options(self) -> list[int]:
        """Returns the option of each node, once all are eliminated."""
        chosen: dict[int, int] = {}
        for node, costs, near in reversed(self.taken):
            total = costs.copy()
            for other, matrix in near.items():
                total = total + matrix[:, chosen[other]]
            chosen[node] = int(np.argmin(total))
        return [chosen[node] for node in range(len(self.near))]

    def _take(self, node: int) -> None:
        near = self.near[node]
        self.taken.append((node, self.costs[node], near))
        for other in near:
            del self.near[other][node]
            if self.degree(other) <= LIGHT:
                self.few.append(other)
        self.left.remove(node)


def _improved(graph: Graph, options: list[int]) -> list[int]:
    """Changes one node at a time while the cost falls."""
    near: list[list[tuple[int, Matrix]]] = [[] for _ in graph.nodes]
    for (a, b), matrix in graph.edges.items():
        near[a].append((b, matrix))
        near[b].append((a, matrix.T))
    for _ in range(ROUNDS_MAX):
        changed = False
        for node, costs in enumerate(graph.nodes):
            total = costs + sum((matrix[:, options[other]] for other, matrix in near[node]), np.zeros(len(costs)))
            best = int(np.argmin(total))
            if total[best] < total[options[node]]:
                options[node] = best
                changed = True
        if not changed:
            break
    return options
