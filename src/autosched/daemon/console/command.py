"""Types of a console command and its answer."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from autosched import protocol as p
from autosched.daemon.console.line_parser import Line

R = TypeVar("R", bound=Struct)
Ask = Callable[[p.Method], Awaitable[Struct]]
"""Calls a method of the daemon with the rights of the connected user."""


class Said(Struct):
    """An answer: the text after OK, further lines, and the same as data for programs."""

    first: str = ""
    lines: Sequence[str] = ()
    key: str = "answer"
    value: object = None


class Command(Struct, frozen=True):
    """A command. `options`: for each option, whether it takes a value."""

    usage: str
    help: str
    run: Callable[[Ask, Line], Awaitable[Said]]
    options: dict[str, bool] = {}


async def call(ask: Ask, method: p.Method, kind: type[R]) -> R:
    """Call a method and check the type of the answer."""
    answer = await ask(method)
    assert isinstance(answer, kind)
    return answer
