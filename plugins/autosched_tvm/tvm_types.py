"""Names of TVM's types, for annotations. TVM has no types that a checker reads; nothing is an instance of these."""

from collections.abc import Iterator
from typing import Any


class Object:
    """An object of TVM. Its attributes are not checked."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class Expr(Object):
    """An expression of Relax or TIR."""

    def _operator(self, *_: object) -> Any:
        raise NotImplementedError

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _operator
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _operator
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __invert__ = __call__ = __getitem__ = _operator

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def __int__(self) -> int:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


class Tensor(Expr):
    """The result of a computation, `tvm.te.Tensor`."""


class PrimFunc(Expr):
    """A kernel."""


class Function(Expr):
    """A function of Relax."""


class IRModule(Object):
    """A module: functions by their names."""

    def __getitem__(self, name: Any) -> Any:
        raise NotImplementedError

    def __setitem__(self, name: Any, function: Any) -> None:
        raise NotImplementedError

    def __contains__(self, name: object) -> bool:
        raise NotImplementedError


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


class BlockBuilder(Object):
    """Builds a function of Relax."""


class Type(Object):
    """The type of an expression."""


class Binding(Object):
    """A variable and its value."""


class Pass(Object):
    """A pass over a module."""

    def __call__(self, module: IRModule) -> IRModule:
        """The module after the pass."""
        raise NotImplementedError


class Attrs(Object):
    """Attributes of an operator."""


class Device(Object):
    """A device of the runtime."""


class DeviceTensor(Object):
    """A tensor on a device."""


class Module(Object):
    """Compiled code."""

    def __getitem__(self, name: str) -> Any:
        raise NotImplementedError
