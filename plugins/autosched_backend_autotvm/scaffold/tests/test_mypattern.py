"""Configurations of the template apply, and their results are right."""

import tvm
from autosched_template_mypattern import MypatternTemplate
from tvm import te

from autosched_backend_autotvm.template_api import check


def sums(rows: int, columns: int) -> tvm.IRModule:
    """Returns a kernel that sums up each row of a matrix."""
    matrix = te.placeholder((rows, columns), name="matrix")
    column = te.reduce_axis((0, columns), name="column")
    result = te.compute((rows,), lambda row: te.sum(matrix[row, column], axis=column), name="sums")
    return tvm.IRModule({"main": te.create_prim_func([matrix, result])})


def test_sums_are_right() -> None:
    assert check(MypatternTemplate(), sums(12, 64)) > 0


def test_other_kernels_are_left_alone() -> None:
    matrix = te.placeholder((4, 4), name="matrix")
    doubled = te.compute((4, 4), lambda row, column: 2.0 * matrix[row, column])
    module = tvm.IRModule({"main": te.create_prim_func([matrix, doubled])})
    assert MypatternTemplate().knobs(module, tvm.target.Target("llvm")) is None
