"""The rules as passes over a whole network."""

import logging
from typing import Any

import tvm
from tvm import relax, sym, tirx

from autosched.errors import ModelRejected
from autosched_tvm.compile import kernel_sketches, relax_calls, targets
from autosched_tvm.compile.movable_rounding import movable
from autosched_tvm.compile.rules import gpu, index_set_splitting, inlining, stage_inlining
from autosched_tvm.compile.rules.kernel_assembly import scheduled
from autosched_tvm.compile.rules.kernel_ir import NoRule, Program, flat, nodes, read, shape_of
from autosched_tvm.tvm_types import BlockBuilder, Expr, IRModule, Pass, PrimFunc, Target

SCHEDULED = "tirx.is_scheduled"
"""TVM's attribute of a function that has a schedule from a database."""
SCHEDULE = "autosched.schedule"
"""Attribute that names the source of a function's schedule."""
TUNED, BY_RULE, DEFAULT = "tuned", "by rule", "default"
NO_RULE = "autosched.no_rule"
"""Attribute of a function whose schedule by rule is wrong."""

log = logging.getLogger(__name__)


def with_rules(target: Target) -> Pass:
    """Returns the pass that schedules each function without a schedule."""

    return relax_calls.kernel_pass("autosched.rules", _unscheduled, lambda function: by_rule(function, target))


def with_joined_stages() -> Pass:
    """Returns the pass that joins the stages of each function without a schedule."""
    return relax_calls.kernel_pass("autosched.joined_stages", _unscheduled, stage_inlining.joined)


def with_plain_sums() -> Pass:
    """Returns the pass that does the same, adds sums of 8-bit products in vectors, and makes roundings movable."""

    def plain(function: PrimFunc) -> Expr:
        return kernel_sketches.plain(stage_inlining.joined(movable(function)))

    return relax_calls.kernel_pass("autosched.plain_sums", _unscheduled, plain)


def _unscheduled(function: PrimFunc) -> bool:
    return schedule_of(function) == DEFAULT


def schedule_of(function: PrimFunc) -> str:
    """Returns the source of a function's schedule."""
    attributes = function.attrs or {}
    return str(attributes.get(SCHEDULE, TUNED if attributes.get(SCHEDULED) else DEFAULT))


def by_rule(function: PrimFunc, target: Target) -> PrimFunc:
    """Returns a function scheduled by the rules. Where none fits or the function may have none, its stages are joined.

    For a GPU, raises ModelRejected where none fits.
    """
    if targets.is_gpu(target):
        return _on_gpu(function, target)
    if NO_RULE in (function.attrs or {}):
        return stage_inlining.joined(function)
    try:
        return scheduled(function, target).with_attr(SCHEDULE, BY_RULE)
    except NoRule as reason:
        log.info("no rule fits a kernel: %s", reason)
        return stage_inlining.joined(function)


def _on_gpu(function: PrimFunc, target: Target) -> PrimFunc:
    try:
        if NO_RULE in (function.attrs or {}):
            return gpu.plain(function)
        return gpu.scheduled(function, target).with_attr(SCHEDULE, BY_RULE)
    except NoRule as reason:
        name = str((function.attrs or {}).get("global_symbol", "of the network"))
        raise ModelRejected(
            f"a kernel ({name[:60]}) cannot run on a GPU: {reason}. Tune the network for a CPU: --device cpu"
        ) from reason


def with_views() -> Pass:
    """Returns the pass that replaces kernels which copy a tensor in memory order by views that share the memory."""
    return tvm.transform.module_pass(lambda module, _context: _viewed(module), opt_level=0, name="autosched.views")


def _viewed(module: IRModule) -> IRModule:
    module = relax.transform.CanonicalizeBindings()(module)  # without it, a result may have aliases
    copies = {
        variable
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc) and copies_in_order(function)
    }
    wanted = [
        binding.value
        for block in getattr(module["main"].body, "blocks", ())
        for binding in block.bindings
        if isinstance(binding, relax.VarBinding)
        and isinstance(binding.var, relax.DataflowVar)  # an output of the network needs its own memory
        and _calls(binding.value, copies)
    ]
    if not wanted:
        return module

    def view(_builder: BlockBuilder, call: Expr, arguments: list[Expr]) -> Expr:
        return relax.op.reshape(arguments[1][0], call.ty.shape)

    views = relax_calls.replaced(module, lambda call: any(call.same_as(one) for one in wanted), view)
    return relax.transform.DeadCodeElimination()(views)


def _calls(value: Expr, functions: set[Any]) -> bool:
    return (
        isinstance(value, relax.Call)
        and getattr(value.op, "name", "") == "relax.call_tir"
        and value.args[0] in functions
        and isinstance(value.args[1], relax.Tuple)
        and len(value.args[1].fields) == 1
        and len(value.args) == 2
    )


def copies_in_order(function: PrimFunc) -> bool:
    """Returns whether a function of one tensor writes the tensor's elements in memory order."""
    try:
        return len(function.params) == 2 and _is_copy(inlining.joined(read(function)))
    except NoRule:
        return False


def _is_copy(program: Program) -> bool:
    if len(program.stages) != 1 or program.stages[0].reduction or program.buffers:
        return False
    stage = program.stages[0]
    if index_set_splitting.boxes(stage)[1:]:
        return False
    spans = {loop.variable: (0, loop.extent) for loop in stage.loops}
    load = index_set_splitting.simplified(stage.value, spans)
    source, sink = program.function.params
    if not isinstance(load, tvm.ir.TensorLoad) or not load.source.same_as(source) or not stage.buffer.same_as(sink):
        return False
    if str(source.ty.dtype) != str(sink.ty.dtype) or _count(source) != _count(sink):
        return False
    analyzer = sym.Analyzer()
    for variable, (low, high) in spans.items():
        analyzer.bind(variable, tvm.ir.Range(low, high))
    distance = flat(load.source, load.indices) - flat(stage.buffer, stage.indices)
    return not nodes(load.indices, tvm.ir.TensorLoad) and bool(analyzer.can_prove_equal(distance, 0))


def _count(buffer: Expr) -> int:
    count = 1
    for size in shape_of(buffer):
        count *= size
    return count
