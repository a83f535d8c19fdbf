"""Names of TVM's types, for annotations. TVM has no types that a checker reads; nothing is an instance of these."""

from typing import Any


class Object:
    """An object of TVM. Its attributes are not checked."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def _unchecked(self, *_: object) -> Any:
        raise NotImplementedError


class Expr(Object):
    """An expression of Relax or TIR."""

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = Object._unchecked
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = Object._unchecked
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __neg__ = __invert__ = Object._unchecked
    __lt__ = __le__ = __gt__ = __ge__ = Object._unchecked
    __call__ = __getitem__ = __iter__ = __int__ = __len__ = Object._unchecked


class Tensor(Expr):
    """The result of a computation, `tvm.te.Tensor`."""


class PrimFunc(Expr):
    """A kernel."""


class Function(Expr):
    """A function of Relax."""


class IRModule(Object):
    """A module: functions by their names."""

    __getitem__ = __setitem__ = __contains__ = Object._unchecked


class Stmt(Object):
    """A statement of a kernel."""


class Schedule(Object):
    """A schedule of a kernel."""


class BlockRV(Object):
    """A block of a schedule."""


class LoopRV(Object):
    """A loop of a schedule."""


class Trace(Object):
    """The steps of a schedule."""


class Target(Object):
    """A target."""

    __enter__ = __exit__ = Object._unchecked


class BlockBuilder(Object):
    """Builds a function of Relax."""


class Type(Object):
    """The type of an expression."""


class Binding(Object):
    """A variable and its value."""


class Pass(Object):
    """A pass over a module."""

    __call__ = Object._unchecked


class Attrs(Object):
    """Attributes of an operator."""


class Device(Object):
    """A device of the runtime."""


class DeviceTensor(Object):
    """A tensor on a device."""


class Module(Object):
    """Compiled code."""

    __getitem__ = Object._unchecked
