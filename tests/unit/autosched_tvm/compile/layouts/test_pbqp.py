import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched_tvm.compile.layouts.pbqp import Graph, cost, solve

COSTS = st.integers(0, 20).map(float)


@st.composite
def graphs(draw: st.DrawFn, nodes_max: int = 6, skips: int | None = None) -> Graph:
    """Draws graphs; `skips`: number of edges beyond those of a chain."""
    graph = Graph()
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=nodes_max))
    for size in sizes:
        graph.node(draw(st.lists(COSTS, min_size=size, max_size=size)))
    pairs = list(itertools.combinations_with_replacement(range(len(sizes)), 2))
    chain = [(i, i + 1) for i in range(len(sizes) - 1)]
    count = len(pairs) if skips is None else skips
    for a, b in [*chain, *draw(st.lists(st.sampled_from(pairs), max_size=count))]:
        if draw(st.booleans()):
            a, b = b, a
        graph.edge(a, b, [[draw(COSTS) for _ in range(sizes[b])] for _ in range(sizes[a])])
    return graph


def brute(graph: Graph) -> float:
    return min(cost(graph, options) for options in itertools.product(*(range(len(n)) for n in graph.nodes)))


@given(graphs())
@settings(max_examples=150, deadline=None)
def test_a_solution_costs_what_it_says_and_never_less_than_the_best(graph: Graph) -> None:
    solution = solve(graph)
    best = brute(graph)
    assert solution.cost == cost(graph, solution.options)
    assert solution.cost >= best
    if solution.exact:
        assert solution.cost == best


@given(graphs(nodes_max=7, skips=1))
@settings(max_examples=100, deadline=None)
def test_a_chain_with_one_skip_is_solved_exactly(graph: Graph) -> None:
    solution = solve(graph)
    assert solution.exact
    assert solution.cost == brute(graph)


def test_costs_that_depend_on_one_node_make_no_neighbours() -> None:
    graph = Graph()
    for _ in range(6):
        graph.node([3.0, 1.0, 2.0])
    for a, b in itertools.combinations(range(6), 2):
        graph.edge(a, b, [[0.0, 5.0, math.inf]] * 3 if a % 2 else [[7.0] * 3, [0.0] * 3, [1.0] * 3])
    solution = solve(graph)
    assert solution.exact
    assert solution.cost == brute(graph)


def test_a_dense_graph_is_solved_well_and_marked_as_inexact() -> None:
    random = np.random.default_rng(1)
    ratios = []
    for _ in range(30):
        graph = Graph()
        for _ in range(7):
            graph.node(random.uniform(0, 5, 3).tolist())
        for a, b in itertools.combinations(range(7), 2):
            graph.edge(a, b, random.uniform(0, 5, (3, 3)).tolist())
        solution = solve(graph)
        assert not solution.exact
        ratios.append(solution.cost / brute(graph))
    assert np.mean(ratios) < 1.1


def test_equal_costs_give_the_earlier_option_and_impossible_ones_are_left_out() -> None:
    graph = Graph()
    a, b = graph.node([math.inf, 1.0, 1.0]), graph.node([2.0, 2.0])
    graph.edge(b, a, [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert solve(graph).options == (1, 0)


def test_moving_twice_is_avoided_by_leaving_the_middle_as_it_is() -> None:
    """A layer that would gain 1 in another layout keeps its own, since two transforms cost 1.2."""
    graph = Graph()
    nodes = [graph.node([1.0, 9.0]), graph.node([2.0, 1.0]), graph.node([1.0, 9.0])]
    for left, right in itertools.pairwise(nodes):
        graph.edge(left, right, [[0.0, 0.6], [0.6, 0.0]])
    assert solve(graph).options == (0, 0, 0)
    graph.nodes[1] = np.array([3.0, 1.0])
    assert solve(graph).options == (0, 1, 0)


@pytest.mark.parametrize("count", [3000])
def test_a_long_network_is_solved_quickly(count: int) -> None:
    graph = Graph()
    nodes = [graph.node([1.0, 0.5, 2.0]) for _ in range(count)]
    for a, b in itertools.pairwise(nodes):
        graph.edge(a, b, [[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    for a in nodes[:-3:3]:
        graph.edge(a, a + 3, [[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    assert solve(graph).options == (1,) * count
