"""Made-up whole numbers must be valid where they are used as indices."""

import numpy as np
import pytest
from onnx import helper

from autosched.tvm.frontend import ranges
from nets import model


@pytest.mark.parametrize(
    ("kind", "attributes", "table", "high"),
    [
        ("Gather", {}, (30, 4), 30),
        ("Gather", {"axis": 1}, (30, 4), 4),
        ("Gather", {}, (1, 4), 1),
        ("GatherND", {}, (30, 4), 4),
    ],
)
def test_an_index_is_as_large_as_its_table_allows(
    kind: str, attributes: dict[str, int], table: tuple[int, ...], high: int
) -> None:
    nodes = [
        helper.make_node("Cast", ["ids"], ["index"], to=7),
        helper.make_node(kind, ["table", "index"], ["y"], **attributes),
    ]
    net = model(nodes, {"ids": [2, 2]}, ["y"], {"table": np.zeros(table, "float32")})
    assert ranges.highs(net) == {"ids": high}


def test_what_a_network_writes_to_is_a_table_as_well() -> None:
    nodes = [helper.make_node("ScatterND", ["table", "ids", "x"], ["y"])]
    net = model(nodes, {"ids": [2, 2], "x": [2]}, ["y"], {"table": np.zeros((9, 5), "float32")})
    assert ranges.highs(net)["ids"] == 5


def test_other_numbers_are_bytes_and_masks_are_bits() -> None:
    net = model([helper.make_node("Add", ["ids", "mask"], ["y"])], {"ids": [2], "mask": [2]}, ["y"], {})
    assert ranges.highs(net) == {"ids": ranges.PLAIN_HIGH, "mask": ranges.MASK_HIGH}
