"""Kernels whose roundings a parameter moves."""

from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from tvm import te  # noqa: E402

import this_cpu  # noqa: E402
from autosched_tvm.compile.movable_rounding import movable, roundings_of  # noqa: E402

HERE = this_cpu.attributes()
DATA = np.array([0.2, 0.499, 1.5, 2.501], "float32")


def kernel(roundings: int, rounded: Any = tvm.tirx.nearbyint) -> Any:
    """Returns a kernel that rounds so often, and multiplies by 2 each time."""

    def doubled(values: Any) -> Any:
        return te.compute(DATA.shape, lambda i: rounded(values[i]) * 2)

    values = data = te.placeholder(DATA.shape, "float32")
    for _ in range(roundings):
        values = doubled(values)
    if values is data:
        values = te.compute(DATA.shape, lambda i: data[i] * 2)
    return te.create_prim_func([data, values]).with_attr("global_symbol", "main")


def ran(function: Any, *more: np.ndarray[Any, Any]) -> Any:
    out = tvm.runtime.tensor(np.zeros_like(DATA))
    built = tvm.tirx.build(tvm.IRModule({"main": function}), target=tvm.target.Target(HERE))
    built["main"](tvm.runtime.tensor(DATA), out, *map(tvm.runtime.tensor, more))
    return out.numpy()


@pytest.mark.parametrize("roundings", [0, 1])
def test_a_kernel_that_rounds_once_stays(roundings: int) -> None:
    function = kernel(roundings)
    assert movable(function).same_as(function)
    assert roundings_of(function) == 0


@pytest.mark.parametrize("rounded", [tvm.tirx.round, tvm.tirx.nearbyint])
def test_a_move_is_added_to_what_its_rounding_rounds(rounded: Any) -> None:
    function, changed = kernel(3, rounded), movable(kernel(3, rounded))
    assert roundings_of(changed) == 3
    moves = np.zeros(3, "float32")
    assert np.array_equal(ran(changed, moves), ran(function))
    moves[0] = 0.01
    assert np.array_equal(ran(changed, moves) - ran(function), [0, 8, 0, 0]), "0.499 is 1 now"
    moves[:] = [0, 0.6, 0]
    assert np.array_equal(ran(changed, moves) - ran(function), [4, 4, 4, 4])
