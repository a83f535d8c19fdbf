"""The table of methods that the daemon answers: for each kind of peer, the function that answers it.

A function registers itself with `ANSWERS.to` in the module that it stands in.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, TypeVar

from msgspec import Struct

from autosched.errors import WireError
from autosched.protocol import Method

S = TypeVar("S")
M = TypeVar("M", bound=Method)
Answer = Struct | None | Awaitable[Struct | None]
"""None: done, without a result."""
Handler = Callable[[S, M], Answer]
"""Takes the session of the peer, and the method."""


class Caller(StrEnum):
    """Kinds of peers that call methods of the daemon."""

    USER = "user"
    CLIENT = "client"
    HELPER = "helper"


class Answers:
    """Handlers by peer and method."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[Caller, type[Method]], Handler[Any, Any]] = {}

    def to(self, kind: type[M], *callers: Caller) -> Callable[[Handler[S, M]], Handler[S, M]]:
        """Decorator of the function that answers a method of these peers; without peers: of users."""

        def register(handler: Handler[S, M]) -> Handler[S, M]:
            for caller in callers or (Caller.USER,):
                assert (caller, kind) not in self._handlers, f"{kind.__name__} of a {caller} has two handlers"
                self._handlers[caller, kind] = handler
            return handler

        return register

    def answer(self, caller: Caller, session: object, method: Method) -> Answer:
        """Begin to answer a call. Raises WireError for a method that is for others."""
        if (handler := self._handlers.get((caller, type(method)))) is None:
            raise WireError(f"a {caller} may not ask for {type(method).__name__}")
        return handler(session, method)

    def methods_of(self, caller: Caller) -> frozenset[type[Method]]:
        """The methods that these peers may call."""
        return frozenset(kind for peer, kind in self._handlers if peer is caller)


ANSWERS = Answers()
