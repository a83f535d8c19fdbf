"""Lists installed backends, and whether they work: each is imported in a separate process."""

import asyncio
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from autosched import backend
from autosched.conformance.option_help import OptionHelp
from autosched.errors import AutoschedError
from autosched.process import json_command

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PROBE = "autosched.conformance.backend_description"
PROBE_S = 60.0


class Plugin(Struct, frozen=True):
    """One entry point."""

    name: str
    package: str
    version: str
    entry: str
    """MODULE:NAME"""
    api: str = ""
    """Version of the interface that the plugin was written for; empty if it cannot be loaded."""
    about: str = ""
    options: tuple[str, ...] = ()
    """Names of its options."""
    option_help: tuple[OptionHelp, ...] = ()
    trouble: str = ""
    """Why the plugin cannot be used; empty if it can."""


async def installed() -> list[Plugin]:
    """All backends by name. Those that crash, hang or raise during their import are listed with the reason."""
    from importlib.metadata import entry_points

    used = backend.available()
    found = sorted(entry_points(group=backend.GROUP), key=lambda entry: entry.name)
    return list(await asyncio.gather(*(_look(entry, used) for entry in found)))


async def described(name: str) -> Plugin:
    """One backend. Raises NotFound for a name that no package provides."""
    backend.check_name(name)
    used = backend.available()
    return await _look(used[name], used)


async def _look(entry: "EntryPoint", used: "dict[str, EntryPoint]") -> Plugin:
    package, version = (entry.dist.name, entry.dist.version) if entry.dist is not None else ("?", "?")
    plugin = Plugin(entry.name, package, version, entry.value)
    winner = used[entry.name].dist
    if winner is not None and winner.name != package:
        return _with(plugin, trouble=f"hidden: the package {winner.name} offers a backend of the same name")
    try:
        answer = await json_command.ask(PROBE, [entry.name], timeout_s=PROBE_S)
    except AutoschedError as error:
        return _with(plugin, trouble=str(error).partition("\n")[0])
    api, options = ".".join(map(str, answer["api"])), msgspec.convert(answer["options"], tuple[OptionHelp, ...])
    names = tuple(option.name for option in options)
    return _with(plugin, api=api, about=str(answer["doc"]), options=names, option_help=options)


def _with(plugin: Plugin, **fields: object) -> Plugin:
    from msgspec.structs import replace

    return replace(plugin, **fields)
