"""Base class of the Python API's types: each step has one next step, and a blocking and an awaitable form."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from autosched.errors import RequestError

T = TypeVar("T")


class Ordered:
    """Explains the order of steps if a later one is called on the wrong type."""

    _instead: Mapping[str, str] = {}

    if not TYPE_CHECKING:  # type checkers report the attribute by themselves

        def __getattr__(self, name: str) -> NoReturn:
            kind = type(self).__name__
            if name in self._instead:
                raise AttributeError(f"a {kind} has no {name!r}: {self._instead[name]}")
            raise AttributeError(f"{kind!r} object has no attribute {name!r}")


def wait(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine for a caller without an event loop. Raises RequestError for one that has one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    work.close()
    raise RequestError("an event loop runs in this thread: await the method of the same name that ends in _async")
