"""Replaces the operators of each attention in a network by one kernel."""

from typing import Any

from tvm import relax

from autosched_tvm.compile import targets
from autosched_tvm.compile.attention import computation, pattern
from autosched_tvm.compile.attention.pattern import Attention
from autosched_tvm.compile.relax_operators import constant, shape_of
from autosched_tvm.tvm_types import Binding, BlockBuilder, Expr, IRModule, Target

NAME = "attention"
"""Name of the kernels."""
PART = "autosched.attention"
"""Attribute that names the part of a kernel which a function computes. TVM would merge equal functions."""


def fused(module: IRModule, target: Target) -> IRModule:
    """Returns a cleaned module with such kernels, or the module itself for targets other than CPUs. Each kernel is a
    Relax function, which TVM's FuseTIR turns into one loop nest."""
    if str(target.kind.name) != "llvm":
        return module
    found = pattern.find(module["main"])
    if not found:
        return module
    builder = relax.BlockBuilder(module)
    lanes = targets.vector_bits(target) // 32
    calls = {one.last: _call(builder, one, lanes) for one in found}

    @relax.expr_functor.mutator
    class Fused(relax.PyExprMutator):  # type: ignore[misc] # the base class is not typed
        """Replaces the last operator of each attention."""

        def visit_var_binding_(self, binding: Binding) -> None:
            """Emits a binding, or the kernel in its place."""
            if binding.var not in calls:
                super().visit_var_binding_(binding)
                return
            call = calls[binding.var]
            made = relax.Call(call.op, [self.visit_expr(argument) for argument in call.args])
            self.set_var_remap(binding.var, self.builder_.emit(made))

    mutator = Fused(builder.get())
    mutator.builder_.update_func(module.get_global_var("main"), mutator.visit_expr(module["main"]))
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


def _call(builder: BlockBuilder, found: Attention, lanes: int) -> Expr:
    """Returns a call of the kernel, in the network's own variables."""
    kernel = _Kernel(builder, found, lanes)
    with builder.function(NAME, list(kernel.parameters.values()), {"Primitive": True}, private=True):
        with builder.dataflow():
            result = builder.emit_output(kernel.result())
        function = builder.emit_func_output(result)
    return relax.Call(function, list(kernel.parameters))


class _Kernel:
    """The operators of one attention, over the parameters of a function."""

    def __init__(self, builder: BlockBuilder, found: Attention, lanes: int) -> None:
        self.builder, self.found, self.lanes = builder, found, lanes
        self.parameters: dict[Any, Any] = {}
        """Parameter, by the outer variable or constant."""
        for call in found.calls.values():
            for argument in call.args:
                if argument not in found.calls and argument not in self.parameters and _is_parameter(argument, call):
                    self.parameters[argument] = relax.Var(f"p{len(self.parameters)}", argument.ty)
        self._made: dict[Any, Any] = {}
        *_, self.rows, self.columns = shape_of(found.softmax) or ()
        self._total: Any = None

    def result(self) -> Expr:
        """Value of the last operator."""
        return self._value(self.found.last)

    def _value(self, given: Expr) -> Expr:
        """Returns a variable's value inside the function; a constant as it is."""
        if given in self.parameters:
            return self.parameters[given]
        if given not in self.found.calls:
            return given
        if given not in self._made:
            call = self.found.calls[given]
            if given == self.found.scores:
                made = self._scores(*call.args)
            elif given == self.found.softmax:
                made = self._softmax(call.args[0])
            elif given == self.found.mixed:
                made = self._mixed(*call.args)
            else:
                take = self._operand if given in self.found.combined else self._value
                made = relax.Call(call.op, [take(one) for one in call.args], call.attrs, call.ty_args)
            self._made[given] = self.builder.emit(made)
        return self._made[given]

    def _operand(self, given: Expr) -> Expr:
        """Returns an argument of an operator between the products, padded as the scores are."""
        value = self._value(given)
        shape = shape_of(value)
        if given in self.found.calls or not shape:
            return value
        wide = shape[-1] > 1 and self.columns != computation.filled_columns(self.columns, self.lanes)
        high = shape[-2:-1] == (self.rows,) and self.rows != computation.filled_rows(self.rows)
        return self._te(computation.operand, value, self.rows, self.lanes) if wide or high else value

    def _scores(self, queries: Expr, keys: Expr) -> Expr:
        rows = self._te(computation.queries, self._value(queries))
        return self._te(computation.scores, rows, self._te(computation.keys, self._value(keys), self.lanes))

    def _softmax(self, given: Expr) -> Expr:
        powers = self._te(computation.softmax, self._operand(given), self.columns, self.lanes)
        powers, self._total = (self.builder.emit(relax.TupleGetItem(powers, number)) for number in range(2))
        if self.found.softmax_alone:
            return powers
        return self._te(computation.shares, powers, self._total)

    def _mixed(self, factors: Expr, values: Expr) -> Expr:
        packed = self._te(computation.values, self._value(values), self.lanes)
        if self.found.softmax_alone:
            found = self._te(computation.mix, self._value(factors), packed, self._total, lanes=self.lanes)
        else:
            weights = self._te(computation.weights, self._value(factors))
            found = self._te(computation.mix, weights, packed, None, lanes=self.lanes)
        return self._te(computation.result, found, self.rows, (shape_of(self.found.mixed) or ())[-1])

    def _te(self, function: Any, *arguments: Any, **options: Any) -> Expr:
        """Emits a part of the kernel, with an attribute that keeps it apart from an equal part."""
        return self.builder.emit_te(function, *arguments, primfunc_attrs={PART: function.__name__}, **options)


def _is_parameter(value: Expr, call: Expr) -> bool:
    """Returns whether an argument of a call is a parameter of the function: a variable, or a constant that TVM does not
    write into the operator's expression."""
    array = constant(value)
    return isinstance(value, relax.Var) if array is None else array.ndim > 0 or call.op.name == "relax.where"
