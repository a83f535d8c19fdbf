"""Replaces calls in the main function of a Relax module, and changes its kernels."""

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, tirx

from autosched_tvm.tvm_types import Expr, IRModule, Pass


def replaced(
    module: IRModule, wanted: Callable[[Any], bool], expression: Callable[[Any, Any, list[Any]], Any]
) -> IRModule:
    """Returns the module with the `wanted` calls of its main function replaced. `expression` receives a builder, the
    original call, and its arguments in the new function."""

    @relax.expr_functor.mutator
    class Replaced(relax.PyExprMutator):  # type: ignore[misc] # the base class is not typed
        """Visits each call."""

        def visit_call_(self, call: Expr) -> Expr:
            """Returns a call or its replacement."""
            if not wanted(call):
                return super().visit_call_(call)
            return expression(self.builder_, call, [self.visit_expr(argument) for argument in call.args])

    mutator = Replaced(module)
    mutator.builder_.update_func(module.get_global_var("main"), mutator.visit_expr(module["main"]))
    return mutator.builder_.get()


def kernel_pass(name: str, wanted: Callable[[Any], bool], change: Callable[[Any], Any]) -> Pass:
    """Returns the pass that changes the `wanted` kernels of a module."""

    def run(module: IRModule, _context: object) -> IRModule:
        changed = module.clone()
        for variable, function in module.functions_items():
            if isinstance(function, tirx.PrimFunc) and wanted(function):
                changed.update_func(variable, change(function))
        return changed

    return tvm.transform.module_pass(run, opt_level=0, name=name)
